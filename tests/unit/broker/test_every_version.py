"""Errors reach a client in every version of its request: none closes the connection for want of words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from broker_sim.apis.table import ROWS
from controller.rules.configs.topic import TOPIC_CONFIGS
from controller.wire.errors import TRANSACTIONS_REFUSED, ErrorCode
from controller.wire.protocol import ApiKey, plain
from controller.wire.records import build_values
from controller.wire.types import GROUP_METADATA_TOPIC

#: Those of the controller, in bytes of their own (`test_control_requests`).
CONTROL: Final = {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA}
NO_TOPIC, NO_MEMBER, NO_GROUP, NO_CONTROLLER, NONE = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.NOT_CONTROLLER, ErrorCode.NONE,
)  # fmt: skip
RECORDS: Final = {"index": 0, "records": build_values([(None, b"v")], timestamp=1)}
MEMBER: Final = {"group_id": "g", "member_id": "m"}
GENERATION: Final = {**MEMBER, "generation_id": 1}
JOIN: Final = {
    **MEMBER,
    "session_timeout": 10_000,
    "rebalance_timeout": 10_000,
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b""}],
}
COMMITTED: Final = {"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 5}]}
RESOURCE: Final = {"resource_type": 2, "resource_name": "nowhere"}


def of_nowhere(*partitions: Any, named: str = "name") -> list[dict[str, Any]]:
    """A topic that is not there."""
    return [{named: "nowhere", "partitions": list(partitions)}]


#: request about what is not there -> its body, what the answer says
ASKED: Final[dict[ApiKey, tuple[dict[str, Any], ErrorCode]]] = {
    ApiKey.PRODUCE: ({"acks": 1, "topic_data": [{"name": "nowhere", "partition_data": [RECORDS]}]}, NO_TOPIC),
    ApiKey.FETCH: ({"replica_id": -1, "session_epoch": -1, "topics": of_nowhere({}, named="topic")}, NO_TOPIC),
    ApiKey.LIST_OFFSETS: ({"replica_id": -1, "topics": of_nowhere({"timestamp": -1})}, NO_TOPIC),
    ApiKey.METADATA: ({"topics": [{"name": "nowhere"}]}, NO_TOPIC),
    ApiKey.DELETE_RECORDS: ({"topics": of_nowhere({})}, NO_TOPIC),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ({"topics": of_nowhere({}, named="topic")}, NO_TOPIC),
    ApiKey.DESCRIBE_CONFIGS: ({"resources": [{**RESOURCE, "configuration_keys": None}]}, NO_TOPIC),
    ApiKey.ALTER_CONFIGS: ({"resources": [{**RESOURCE, "configs": []}]}, NO_TOPIC),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ({"resources": [{**RESOURCE, "configs": []}]}, NO_TOPIC),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ({"dirs": [{"path": "/x", "topics": of_nowhere(0)}]}, ErrorCode.LOG_DIR_NOT_FOUND),
    ApiKey.DESCRIBE_LOG_DIRS: ({"topics": of_nowhere(0, named="topic")}, NONE),
    ApiKey.DESCRIBE_CLUSTER: ({}, NONE),
    ApiKey.INIT_PRODUCER_ID: ({"transactional_id": "x"}, TRANSACTIONS_REFUSED),
    ApiKey.SASL_HANDSHAKE: ({"mechanism": "PLAIN"}, ErrorCode.ILLEGAL_SASL_STATE),
    ApiKey.SASL_AUTHENTICATE: ({"auth_bytes": b"\0me\0secret"}, ErrorCode.ILLEGAL_SASL_STATE),
    ApiKey.FIND_COORDINATOR: ({"key": "g"}, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ApiKey.CONTROLLED_SHUTDOWN: ({"broker_id": 1}, ErrorCode.STALE_CONTROLLER_EPOCH),
    ApiKey.CREATE_TOPICS: ({"topics": [{"name": "n", "num_partitions": 1, "replication_factor": 1}]}, NO_CONTROLLER),
    ApiKey.DELETE_TOPICS: ({"topic_names": ["nowhere"]}, NO_CONTROLLER),
    ApiKey.CREATE_PARTITIONS: ({"topics": [{"name": "nowhere", "count": 2}]}, NO_CONTROLLER),
    ApiKey.ELECT_LEADERS: ({"topic_partitions": of_nowhere(0, named="topic")}, NO_CONTROLLER),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ({"topics": of_nowhere({"replicas": [1]})}, NO_CONTROLLER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ({"topics": None}, NO_CONTROLLER),
}
#: request about a group -> its body, what the group's coordinator says
OF_GROUPS: Final[dict[ApiKey, tuple[dict[str, Any], ErrorCode]]] = {
    ApiKey.JOIN_GROUP: (JOIN, NO_MEMBER),
    ApiKey.SYNC_GROUP: ({**GENERATION, "protocol_type": "consumer", "protocol_name": "range"}, NO_MEMBER),
    ApiKey.HEARTBEAT: (GENERATION, NO_MEMBER),
    ApiKey.LEAVE_GROUP: ({**MEMBER, "members": [{"member_id": "m"}]}, NO_MEMBER),
    ApiKey.OFFSET_COMMIT: (
        {**MEMBER, "generation_id_or_member_epoch": 1, "topics": [COMMITTED]}, ErrorCode.ILLEGAL_GENERATION
    ),
    ApiKey.OFFSET_FETCH: ({"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}, NONE),
    ApiKey.OFFSET_DELETE: ({"group_id": "g", "topics": [{"name": "t", "partitions": [{}]}]}, NO_GROUP),
    ApiKey.DESCRIBE_GROUPS: ({"groups": ["g"]}, NONE),
    ApiKey.DELETE_GROUPS: ({"groups_names": ["g"]}, NO_GROUP),
    ApiKey.LIST_GROUPS: ({}, NONE),
}  # fmt: skip


def values_of(answer: Any, key: str) -> Iterator[Any]:
    """At all depths."""
    if isinstance(answer, dict):
        for name, value in answer.items():
            yield from [value] if name == key else values_of(value, key)
    elif isinstance(answer, list):
        for value in answer:
            yield from values_of(value, key)


async def told(cluster: Any, api: ApiKey, body: dict[str, Any]) -> dict[int, set[int]]:
    """version -> the errors of its answer. Raises: ConnectionError, where there is none."""
    first, last = ROWS[api].versions
    answers = {version: plain(await cluster.call(1, api, version, body)) for version in range(first, last + 1)}
    return {version: set(values_of(answer, "error_code")) - {NONE} for version, answer in answers.items()}


def in_each(api: ApiKey, error: ErrorCode) -> dict[int, set[int]]:
    first, last = ROWS[api].versions
    return {version: {int(error)} - {NONE} for version in range(first, last + 1)}


def test_all_requests_of_clients_are_asked_here() -> None:
    assert ASKED.keys() | OF_GROUPS.keys() == ROWS.keys() - CONTROL


@pytest.mark.parametrize("api", ASKED, ids=lambda api: api.name)
def test_who_asks_for_what_is_not_there_is_told_so(in_memory: Any, api: ApiKey) -> None:
    body, error = ASKED[api]
    waits = {"timeout": 100} if error is NO_CONTROLLER else {}

    async def scenario(cluster: Any) -> None:
        await cluster.start(1, auto_create_topics_enable=False)
        await cluster.update_metadata(1)
        assert await told(cluster, api, {**body, **waits}) == in_each(api, error)

    in_memory(scenario)


@pytest.mark.parametrize("api", OF_GROUPS, ids=lambda api: api.name)
def test_who_asks_about_a_group_that_is_not_there_or_not_here_is_told_so(in_memory: Any, api: ApiKey) -> None:
    body, error = OF_GROUPS[api]
    elsewhere = NONE if api is ApiKey.LIST_GROUPS else ErrorCode.NOT_COORDINATOR

    async def scenario(cluster: Any) -> None:
        for number in (1, 2):
            await cluster.start(number, offsets_topic_num_partitions=1)
        await cluster.create_topic("t", [(1,)])
        await cluster.create_topic(GROUP_METADATA_TOPIC, [(2, 1)])
        assert await told(cluster, api, body) == in_each(api, elsewhere)
        await cluster.create_topic(GROUP_METADATA_TOPIC, [(1, 2)], leader_epoch=1, is_new=False)
        await cluster.world.sleep(1)
        assert await told(cluster, api, body) == in_each(api, error)

    in_memory(scenario)


@pytest.mark.parametrize("version", range(ROWS[ApiKey.JOIN_GROUP].versions[1] + 1))
def test_a_join_that_is_refused_names_no_protocol(in_memory: Any, version: int) -> None:
    """By an empty name, until version 7 can say that there is none. Source: Kafka 3.9 `JoinGroupResponse`."""

    async def scenario(cluster: Any) -> None:
        await cluster.start(1, offsets_topic_num_partitions=1)
        await cluster.create_topic(GROUP_METADATA_TOPIC, [(1,)])
        await cluster.world.sleep(1)
        for member, error in (("m", NO_MEMBER), ("", ErrorCode.MEMBER_ID_REQUIRED if version >= 4 else NONE)):
            found = await cluster.call(1, ApiKey.JOIN_GROUP, version, {**JOIN, "member_id": member})
            no_name = None if version >= 7 else ""
            assert (found.error_code, found.protocol_name) == (error, "range" if error is NONE else no_name)
            assert getattr(found, "protocol_type", None) is None

    in_memory(scenario)


#: All of a kind, at a broker with one topic and one group that committed an offset of it.
TOPICS, WITH_OFFSETS, CONFIGS, GROUPS, NOTHING = {"t", GROUP_METADATA_TOPIC}, {"t"}, set(TOPIC_CONFIGS), {"g"}, set()
#: request, its body with such a list, which names of the answer count -> those where the list is empty, and where it is
#: null; None: there is no null
LISTS: Final[list[tuple[ApiKey, Callable[[Any], dict[str, Any]], str, set[str], set[str] | None]]] = [
    (ApiKey.METADATA, lambda names: {"topics": names}, "name", NOTHING, TOPICS),
    (ApiKey.OFFSET_FETCH, lambda names: {"group_id": "g", "topics": names}, "name", NOTHING, WITH_OFFSETS),
    (ApiKey.DESCRIBE_LOG_DIRS, lambda names: {"topics": names}, "name", NOTHING, TOPICS),
    (
        ApiKey.DESCRIBE_CONFIGS,
        lambda names: {"resources": [{"resource_type": 2, "resource_name": "t", "configuration_keys": names}]},
        "name",
        CONFIGS,
        CONFIGS,
    ),
    (ApiKey.LIST_GROUPS, lambda names: {"states_filter": names}, "group_id", GROUPS, None),
    (ApiKey.LIST_GROUPS, lambda names: {"types_filter": names}, "group_id", GROUPS, None),
    (ApiKey.DESCRIBE_GROUPS, lambda names: {"groups": names}, "group_id", NOTHING, None),
    (ApiKey.DELETE_GROUPS, lambda names: {"groups_names": names}, "group_id", NOTHING, None),
]
#: Before these versions null cannot be said.
NULL_SINCE: Final = {ApiKey.METADATA: 1, ApiKey.OFFSET_FETCH: 2}


def test_an_empty_list_is_none_of_them_where_null_is_all(in_memory: Any) -> None:
    """But for Metadata of version 0, configs and filters. Source: Kafka 3.9 `KafkaApis`, `ConfigHelper`."""

    async def scenario(cluster: Any) -> None:
        await cluster.start(1, offsets_topic_num_partitions=1)
        for topic in ("t", GROUP_METADATA_TOPIC):
            await cluster.create_topic(topic, [(1,)])
        await cluster.world.sleep(1)
        await cluster.call(1, ApiKey.OFFSET_COMMIT, 2, {"group_id": "g", "topics": [COMMITTED]})
        for api, asked, key, empty, null in LISTS:
            first, last = ROWS[api].versions
            for version in range(first, last + 1):
                expected = [([], null if (api, version) == (ApiKey.METADATA, 0) else empty)]
                if null is not None and version >= NULL_SINCE.get(api, 0):
                    expected.append((None, null))
                for names, named in expected:
                    answer = plain(await cluster.call(1, api, version, asked(names)))
                    assert set(values_of(answer, key)) == named, (api, version, names)

    in_memory(scenario)
