"""Which error clients get, and which comes first: Produce, ListOffsets, Metadata, groups before anything else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controller.wire.control import UpdateMetadataEntry
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.records import build_values
from controller.wire.types import GROUP_METADATA_TOPIC, Broker, BrokerId, Endpoint, LeaderAndIsr, TopicPartition

TP = TopicPartition("t", 0)
GOOD = build_values([(None, b"v")], timestamp=1)
BROKEN = GOOD[:40] + bytes([GOOD[40] ^ 1]) + GOOD[41:]

#: what, topic, records, acks, client id, answer
PRODUCED = [
    ("a record", "t", GOOD, 1, "c", ErrorCode.NONE),
    ("an unknown topic comes before wrong acks", "nowhere", GOOD, 5, "c", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ("wrong acks come before a wrong checksum", "t", BROKEN, 5, "c", ErrorCode.INVALID_REQUIRED_ACKS),
    ("wrong acks", "t", GOOD, -2, "c", ErrorCode.INVALID_REQUIRED_ACKS),
    ("a wrong checksum", "t", BROKEN, 1, "c", ErrorCode.CORRUPT_MESSAGE),
    ("an internal topic", GROUP_METADATA_TOPIC, GOOD, 1, "c", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ("not led here", "u", GOOD, 1, "c", ErrorCode.NOT_LEADER_OR_FOLLOWER),
]


@pytest.mark.parametrize(
    ("_", "topic", "records", "acks", "client_id", "error"), PRODUCED, ids=[row[0] for row in PRODUCED]
)
def test_produce(
    in_memory: Any, _: str, topic: str, records: bytes, acks: int, client_id: str, error: ErrorCode
) -> None:
    async def scenario(cluster: Any) -> None:
        for number in (1, 2):
            await cluster.start(number)
        await cluster.create_topic("t", [(1,)])
        await cluster.create_topic("u", [(2,)])
        await cluster.create_topic(GROUP_METADATA_TOPIC, [(1,)])
        connection = await cluster.connect(1, client_id)
        rows = [{"index": 0, "records": records}]
        body = {"acks": acks, "timeout": 100, "topic_data": [{"name": topic, "partition_data": rows}]}
        answer = await connection.call(ApiKey.PRODUCE, 8, body)
        found = answer.responses[0].partition_responses[0]
        assert found.error_code == error
        assert found.base_offset == (0 if error is ErrorCode.NONE else -1)

    in_memory(scenario)


def test_the_topic_of_share_groups_is_internal_and_made_like_any(in_memory: Any) -> None:
    """Source: Kafka 3.9 `Topic.INTERNAL_TOPICS`, `AutoTopicCreationManager.creatableTopic`."""
    topic = "__share_group_state"

    async def scenario(cluster: Any) -> None:
        await cluster.start(1, num_partitions=2)
        await cluster.update_metadata(1)

        async def shown() -> tuple[int, bool, int]:
            body = {"topics": [{"name": topic}], "allow_auto_topic_creation": True}
            [found] = (await cluster.call(1, ApiKey.METADATA, 5, body)).topics
            return found.error_code, found.is_internal, len(found.partitions)

        assert await shown() == (ErrorCode.LEADER_NOT_AVAILABLE, True, 0), "it is being created"
        await cluster.create_topic(topic, [(1,), (1,)])
        assert await shown() == (ErrorCode.NONE, True, 2)
        rows = [{"index": 0, "records": GOOD}]
        body = {"acks": 1, "timeout": 100, "topic_data": [{"name": topic, "partition_data": rows}]}
        [produced] = (await cluster.call(1, ApiKey.PRODUCE, 8, body)).responses[0].partition_responses
        body = {"timeout": 100, "topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": 0}]}]}
        [deleted] = (await cluster.call(1, ApiKey.DELETE_RECORDS, 1, body)).topics[0].partitions
        assert (produced.error_code, deleted.error_code) == (ErrorCode.INVALID_TOPIC_EXCEPTION,) * 2

    in_memory(scenario)


#: version -> what a consumer is told of the newest offset while the high watermark has not reached the leader's epoch
NOT_YET = {4: ErrorCode.LEADER_NOT_AVAILABLE, 5: ErrorCode.OFFSET_NOT_AVAILABLE}


@pytest.mark.parametrize("version", NOT_YET)
def test_the_newest_offset_of_a_leader_that_does_not_know_it_yet(in_memory: Any, version: int) -> None:
    async def scenario(cluster: Any) -> None:
        for number in (1, 2):
            await cluster.start(number)
        await cluster.create_topic("t", [(1, 2)])
        await cluster.world.sleep(1)
        cluster.machine(2).pause()
        rows = [{"index": 0, "records": GOOD}]
        body = {"acks": 1, "timeout": 100, "topic_data": [{"name": "t", "partition_data": rows}]}
        await cluster.call(1, ApiKey.PRODUCE, 8, body)
        broker = cluster.brokers.pop(2)
        await cluster.create_topic("t", [(1, 2)], leader_epoch=1, is_new=False)

        async def listed(timestamp: int, **asker: int) -> tuple[int, int]:
            rows = [{"partition_index": 0, "timestamp": timestamp}]
            body = {"replica_id": -1, "topics": [{"name": "t", "partitions": rows}], **asker}
            [found] = (await cluster.call(1, ApiKey.LIST_OFFSETS, version, body)).topics[0].partitions
            return found.error_code, found.offset

        assert await listed(-1) == (NOT_YET[version], -1)
        assert await listed(-2) == (ErrorCode.NONE, 0)
        assert await listed(-1, replica_id=2) == (ErrorCode.NONE, 1), "followers read to the end"
        cluster.machine(2).resume()
        cluster.brokers[2] = broker

    in_memory(scenario)


def test_a_partition_named_twice_has_no_offset(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        await cluster.create_topic("t", [(1,), (1,)])
        rows = [{"partition_index": number, "timestamp": -1} for number in (0, 1, 0)]
        body = {"replica_id": -1, "topics": [{"name": "t", "partitions": rows}]}
        found = (await cluster.call(1, ApiKey.LIST_OFFSETS, 5, body)).topics[0].partitions
        assert [p.error_code for p in found] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE, ErrorCode.INVALID_REQUEST]

    in_memory(scenario)


def test_the_oldest_metadata_leaves_dead_brokers_out_and_says_so(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        state = LeaderAndIsr(leader=BrokerId(1), isr=(BrokerId(1), BrokerId(9)), leader_epoch=0)
        entry = UpdateMetadataEntry(topic_partition=TP, state=state, replicas=(BrokerId(9), BrokerId(1)))
        await cluster.update_metadata(1, [entry])

        async def asked(version: int, topics: Any) -> list[tuple[int, list[int], list[int]]]:
            answer = await cluster.call(1, ApiKey.METADATA, version, {"topics": topics})
            return [
                (p.error_code, list(p.replica_nodes), list(p.isr_nodes)) for t in answer.topics for p in t.partitions
            ]

        assert await asked(0, []) == [(ErrorCode.REPLICA_NOT_AVAILABLE, [1], [1])], "an empty list means all"
        assert await asked(1, []) == [], "and none since version 1"
        assert await asked(1, None) == [(ErrorCode.NONE, [9, 1], [1, 9])]

    in_memory(scenario)


def test_what_update_metadata_names_counts_and_not_who_answers(in_memory: Any) -> None:
    """A broker that the controller does not name alive still tells of the leaders that are."""

    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        other = Broker(broker_id=BrokerId(5), endpoints=(Endpoint(host="five", port=9092),))
        state = LeaderAndIsr(leader=BrokerId(5), isr=(BrokerId(5),), leader_epoch=0)
        entry = UpdateMetadataEntry(topic_partition=TP, state=state, replicas=(BrokerId(5),))
        await cluster.update_metadata(1, [entry], live_brokers=(other,))
        answer = await cluster.call(1, ApiKey.METADATA, 9, {"topics": [{"name": "t"}]})
        assert [(b.node_id, b.host) for b in answer.brokers] == [(5, "five")]
        assert [(p.error_code, p.leader_id) for p in answer.topics[0].partitions] == [(ErrorCode.NONE, 5)]

    in_memory(scenario)


# -- groups: what is checked before anything else ---------------------------------------------------------------------

MEMBER = {"generation_id": 1, "member_id": "m"}
BODIES: dict[ApiKey, tuple[int, dict[str, Any]]] = {
    ApiKey.JOIN_GROUP: (
        5,
        {
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "member_id": "m",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
    ),
    ApiKey.SYNC_GROUP: (3, {**MEMBER, "assignments": []}),
    ApiKey.HEARTBEAT: (3, MEMBER),
    ApiKey.LEAVE_GROUP: (3, {"members": [{"member_id": "m"}]}),
}
LOADING = {ApiKey.SYNC_GROUP: ErrorCode.REBALANCE_IN_PROGRESS, ApiKey.HEARTBEAT: ErrorCode.NONE}


@pytest.mark.parametrize("api", BODIES, ids=[api.name for api in BODIES])
def test_groups_are_checked_in_order(in_memory: Any, api: ApiKey) -> None:
    """No id, not started, loading, not led here; then the member."""
    version, body = BODIES[api]

    async def scenario(cluster: Any) -> None:
        for number in (1, 2):
            await cluster.start(number, offsets_topic_num_partitions=1)

        async def error(group_id: str) -> ErrorCode:
            return ErrorCode((await cluster.call(1, api, version, {"group_id": group_id, **body})).error_code)

        registry = cluster.brokers[1].context.groups.registry
        await cluster.create_topic(GROUP_METADATA_TOPIC, [(2, 1)])
        assert (await error(""), await error("g")) == (ErrorCode.INVALID_GROUP_ID, ErrorCode.NOT_COORDINATOR)
        task = asyncio.ensure_future(asyncio.sleep(0))
        registry.loading[0] = task
        expected = LOADING.get(api, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        assert (await error(""), await error("g")) == (ErrorCode.INVALID_GROUP_ID, expected)
        registry.is_active = False
        assert (await error(""), await error("g")) == (
            ErrorCode.INVALID_GROUP_ID,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        )
        registry.is_active = True
        del registry.loading[0]
        await cluster.create_topic(GROUP_METADATA_TOPIC, [(1, 2)], leader_epoch=1, is_new=False)
        await cluster.world.sleep(1)
        last = await cluster.call(1, api, version, {"group_id": "g", **body})
        code = last.members[0].error_code if api is ApiKey.LEAVE_GROUP else last.error_code
        assert code == ErrorCode.UNKNOWN_MEMBER_ID

    in_memory(scenario)


@pytest.mark.parametrize(
    ("timeout_ms", "error"),
    [
        (5_999, ErrorCode.INVALID_SESSION_TIMEOUT),
        (6_000, ErrorCode.MEMBER_ID_REQUIRED),
        (1_800_000, ErrorCode.MEMBER_ID_REQUIRED),
        (1_800_001, ErrorCode.INVALID_SESSION_TIMEOUT),
    ],
)
def test_session_timeouts_have_bounds(in_memory: Any, timeout_ms: int, error: ErrorCode) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1, offsets_topic_num_partitions=1)
        await cluster.create_topic(GROUP_METADATA_TOPIC, [(1,)])
        await cluster.world.sleep(1)
        version, body = BODIES[ApiKey.JOIN_GROUP]
        asked = {"group_id": "g", **body, "member_id": "", "session_timeout": timeout_ms}
        assert (await cluster.call(1, ApiKey.JOIN_GROUP, version, asked)).error_code == error

    in_memory(scenario)


@pytest.mark.parametrize("names", [[], ["nowhere"], ["nowhere", "elsewhere"]])
def test_a_commit_for_no_known_topic_makes_no_group_and_is_no_sign_of_life(in_memory: Any, names: list[str]) -> None:
    """Source: Kafka 3.9 `KafkaApis.handleOffsetCommitRequest`, which then asks no coordinator."""
    rows = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
    topics = [{"name": name, "partitions": rows} for name in names]

    async def scenario(cluster: Any) -> None:
        await cluster.start(1, offsets_topic_num_partitions=1)
        await cluster.create_topic(GROUP_METADATA_TOPIC, [(1,)])
        await cluster.world.sleep(1)

        async def commit(group: str, member: str = "", generation: int = -1) -> None:
            about = {"group_id": group, "member_id": member, "generation_id_or_member_epoch": generation}
            answer = await cluster.call(1, ApiKey.OFFSET_COMMIT, 7, {**about, "topics": topics})
            codes = [p.error_code for t in answer.topics for p in t.partitions]
            assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * len(names)

        await commit("g")
        listed = await cluster.call(1, ApiKey.LIST_GROUPS, 4, {"states_filter": []})
        assert [g.group_id for g in listed.groups] == []
        joined = await cluster.call(
            1, ApiKey.JOIN_GROUP, 3, {"group_id": "h", **BODIES[ApiKey.JOIN_GROUP][1], "member_id": ""}
        )
        await cluster.world.sleep(9)
        await commit("h", joined.member_id, joined.generation_id)
        await cluster.world.sleep(2)
        (group,) = (await cluster.call(1, ApiKey.DESCRIBE_GROUPS, 4, {"groups": ["h"]})).groups
        assert not group.members, "its session was 10 s"

    in_memory(scenario)


MINUTE_MS = 60_000


@pytest.mark.parametrize(
    ("version", "retention_ms", "minutes"),
    [
        (2, -1, 10),
        (4, -1, 10),
        (2, 3 * MINUTE_MS, 3),
        (4, 15 * MINUTE_MS, 15),
        (3, 2**63 - 1, 0),
        (3, -2, 0),
        (5, None, 10),
    ],
    ids=str,
)
def test_who_commits_may_say_how_long_an_offset_is_kept(
    in_memory: Any, version: int, retention_ms: int | None, minutes: int
) -> None:
    """So could clients up to version 4. Source: Kafka 3.9 `GroupCoordinatorAdapter.commitOffsets`,
    `GroupMetadata.removeExpiredOffsets`."""

    async def scenario(cluster: Any) -> None:
        for number in (1, 2):
            await cluster.start(
                number,
                offsets_topic_num_partitions=1,
                offsets_retention_minutes=10,
                offsets_retention_check_interval_ms=MINUTE_MS,
            )
        await cluster.create_topic("t", [(1,)])
        await cluster.create_topic(GROUP_METADATA_TOPIC, [(1, 2)])
        await cluster.world.sleep(1)
        rows = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
        body = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
        said = {} if retention_ms is None else {"retention_time": retention_ms}
        await cluster.call(
            1, ApiKey.OFFSET_COMMIT, version, {**body, **said, "topics": [{"name": "t", "partitions": rows}]}
        )
        await cluster.create_topic(GROUP_METADATA_TOPIC, [(2, 1)], leader_epoch=1, is_new=False)

        async def is_kept() -> bool:
            fetched = await cluster.call(2, ApiKey.OFFSET_FETCH, 7, {"group_id": "g", "topics": None})
            return bool(fetched.topics)

        if minutes:
            await cluster.world.sleep(60 * minutes - 10)
            assert await is_kept(), "also where its log was read"
        await cluster.world.sleep(80)
        assert not await is_kept()

    in_memory(scenario)


@pytest.mark.parametrize("is_read_again", [False, True], ids=["as it is told", "as its log is read"])
@pytest.mark.parametrize("version", range(2, 9))
def test_what_is_fetched_is_what_was_committed(in_memory: Any, version: int, is_read_again: bool) -> None:
    """Each of its parts, as far as both versions can say it; of the group without a name, too."""

    async def scenario(cluster: Any) -> None:
        await cluster.start(1, offsets_topic_num_partitions=1)
        await cluster.create_topic("t", [(1,), (1,)])
        await cluster.create_topic(GROUP_METADATA_TOPIC, [(1,)])
        await cluster.world.sleep(1)
        body = {"group_id": "", "generation_id_or_member_epoch": -1, "member_id": ""}
        epoch = {"committed_leader_epoch": 7} if version >= 6 else {}
        row = {"partition_index": 1, "committed_offset": 5, "committed_metadata": "m", **epoch}
        topics = [{"name": "t", "partitions": [row]}]
        await cluster.call(1, ApiKey.OFFSET_COMMIT, version, {**body, "topics": topics})
        if is_read_again:
            again = cluster.brokers.pop(1)
            await cluster.in_broker(1, again.stop(controlled=False))
            await cluster.start(1, offsets_topic_num_partitions=1)
            await cluster.create_topic(GROUP_METADATA_TOPIC, [(1,)], leader_epoch=1, is_new=False)
            await cluster.world.sleep(1)
        gone = {"group_id": "", "topics": [{"name": "t", "partitions": [{"partition_index": 1}]}]}
        refused = await cluster.call(1, ApiKey.OFFSET_DELETE, 0, gone)
        assert refused.error_code == ErrorCode.INVALID_GROUP_ID, "it is no group for this alone"
        asked = {"group_id": "", "topics": [{"name": "t", "partition_indexes": [0, 1]}]}
        for fetch_version in range(1, 8):
            answer = await cluster.call(1, ApiKey.OFFSET_FETCH, fetch_version, asked)
            none, found = answer.topics[0].partitions
            assert (none.committed_offset, none.metadata, none.error_code) == (-1, "", 0)
            assert (found.committed_offset, found.metadata, found.error_code) == (5, "m", 0)
            if fetch_version >= 5:
                assert none.committed_leader_epoch == -1
                assert found.committed_leader_epoch == (7 if version >= 6 else -1)

    in_memory(scenario)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("x" * 4096, ErrorCode.NONE),
        ("x" * 4097, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("\u20ac" * 4096, ErrorCode.NONE),
        ("\u20ac" * 4097, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("\U0001f600" * 2048, ErrorCode.NONE),
        ("\U0001f600" * 2048 + "x", ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ],
    ids=[
        "letters",
        "a letter more",
        "of three bytes each",
        "one more of these",
        "of two units each",
        "these and a letter",
    ],
)
def test_metadata_of_a_commit_is_as_long_as_java_says(in_memory: Any, text: str, error: ErrorCode) -> None:
    """Source: Kafka 3.9 `GroupMetadataManager.validateOffsetMetadataLength`, which asks `String.length`."""

    async def scenario(cluster: Any) -> None:
        await cluster.start(1, offsets_topic_num_partitions=1)
        await cluster.create_topic("t", [(1,)])
        await cluster.create_topic(GROUP_METADATA_TOPIC, [(1,)])
        await cluster.world.sleep(1)
        rows = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": text}]
        body = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
        answer = await cluster.call(1, ApiKey.OFFSET_COMMIT, 7, {**body, "topics": [{"name": "t", "partitions": rows}]})
        assert answer.topics[0].partitions[0].error_code == error
        fetched = await cluster.call(1, ApiKey.OFFSET_FETCH, 7, {"group_id": "g", "topics": None})
        kept = [p.metadata for t in fetched.topics for p in t.partitions]
        assert kept == ([text] if error is ErrorCode.NONE else [])

    in_memory(scenario)


def test_what_cannot_be_committed_does_not_keep_the_rest(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1, offsets_topic_num_partitions=1)
        await cluster.create_topic("t", [(1,), (1,)])
        await cluster.create_topic(GROUP_METADATA_TOPIC, [(1,)])
        await cluster.world.sleep(1)
        rows = [(0, ""), (1, "x" * 4097), (2, "")]
        partitions = [
            {"partition_index": number, "committed_offset": 5, "committed_metadata": text} for number, text in rows
        ]
        body = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
        answer = await cluster.call(
            1, ApiKey.OFFSET_COMMIT, 7, {**body, "topics": [{"name": "t", "partitions": partitions}]}
        )
        assert [p.error_code for p in answer.topics[0].partitions] == [
            ErrorCode.NONE,
            ErrorCode.OFFSET_METADATA_TOO_LARGE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        fetched = await cluster.call(1, ApiKey.OFFSET_FETCH, 7, {"group_id": "g", "topics": None})
        assert [(p.partition_index, p.committed_offset) for p in fetched.topics[0].partitions] == [(0, 5)]

    in_memory(scenario)


#: texts beside offsets 5, 6, ... of the same partition -> its error, what is committed
TWICE = [
    (["", "x" * 4097], ErrorCode.OFFSET_METADATA_TOO_LARGE, []),
    (["x" * 4097, ""], ErrorCode.NONE, [6]),
    (["", "y"], ErrorCode.NONE, [6]),
]


@pytest.mark.parametrize(("texts", "error", "offsets"), TWICE)
def test_of_a_partition_that_is_named_twice_the_last_row_counts(
    in_memory: Any, texts: list[str], error: ErrorCode, offsets: list[int]
) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1, offsets_topic_num_partitions=1)
        await cluster.create_topic("t", [(1,)])
        await cluster.create_topic(GROUP_METADATA_TOPIC, [(1,)])
        await cluster.world.sleep(1)
        rows = [
            {"partition_index": 0, "committed_offset": offset, "committed_metadata": text}
            for offset, text in enumerate(texts, 5)
        ]
        body = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
        answer = await cluster.call(1, ApiKey.OFFSET_COMMIT, 7, {**body, "topics": [{"name": "t", "partitions": rows}]})
        assert {p.error_code for p in answer.topics[0].partitions} == {error}
        fetched = await cluster.call(1, ApiKey.OFFSET_FETCH, 7, {"group_id": "g", "topics": None})
        assert [p.committed_offset for t in fetched.topics for p in t.partitions] == offsets

    in_memory(scenario)


@pytest.mark.parametrize("texts", [["", "x" * 4097], ["x" * 4097, "x" * 4097]])
def test_a_group_that_refuses_a_commit_says_so_of_all_partitions(in_memory: Any, texts: list[str]) -> None:
    """How long the metadata is, is looked at afterwards. Source: Kafka 3.9 `GroupCoordinator.doCommitOffsets`."""

    async def scenario(cluster: Any) -> None:
        await cluster.start(1, offsets_topic_num_partitions=1)
        await cluster.create_topic("t", [(1,), (1,)])
        await cluster.create_topic(GROUP_METADATA_TOPIC, [(1,)])
        await cluster.world.sleep(1)
        rows = [
            {"partition_index": number, "committed_offset": 5, "committed_metadata": text}
            for number, text in enumerate(texts)
        ]
        body = {"group_id": "g", "generation_id_or_member_epoch": 3, "member_id": "m"}
        answer = await cluster.call(1, ApiKey.OFFSET_COMMIT, 7, {**body, "topics": [{"name": "t", "partitions": rows}]})
        errors = [p.error_code for p in answer.topics[0].partitions]
        assert errors == [ErrorCode.ILLEGAL_GENERATION] * 2

    in_memory(scenario)


def bits(*numbers: int) -> int:
    return sum(1 << number for number in numbers)


ASKED = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
NOT_LOOKED_AT = -2147483648
#: numbers of `AclOperation`
ON_TOPIC, ON_CLUSTER = bits(3, 4, 5, 6, 7, 8, 10, 11), bits(5, 7, 8, 9, 10, 11, 12)


@pytest.mark.parametrize("asks", [True, False])
def test_who_asks_may_do_everything(in_memory: Any, asks: bool) -> None:
    """`AuthHelper.authorizedOperations` without an authorizer."""
    on_topic, on_cluster, on_group = (ON_TOPIC, ON_CLUSTER, bits(3, 6, 8)) if asks else (NOT_LOOKED_AT,) * 3
    asked = dict.fromkeys(ASKED, asks)

    async def scenario(cluster: Any) -> None:
        await cluster.start(1, offsets_topic_num_partitions=1)
        await cluster.create_topic("t", [(1,)])
        await cluster.create_topic(GROUP_METADATA_TOPIC, [(1,)])
        await cluster.world.sleep(1)
        names = {"topics": [{"name": "t"}, {"name": "no.such"}], "allow_auto_topic_creation": False}
        for version in (8, 9):
            found = await cluster.call(1, ApiKey.METADATA, version, {**names, **asked})
            assert found.cluster_authorized_operations == on_cluster
            assert [topic.topic_authorized_operations for topic in found.topics] == [on_topic, on_topic]
        body = {"include_cluster_authorized_operations": asks}
        assert (await cluster.call(1, ApiKey.DESCRIBE_CLUSTER, 1, body)).cluster_authorized_operations == on_cluster
        body = {"groups": ["g"], "include_authorized_operations": asks}
        (group,) = (await cluster.call(1, ApiKey.DESCRIBE_GROUPS, 5, body)).groups
        assert (group.group_state, group.authorized_operations) == ("Dead", on_group)

    in_memory(scenario)


def test_of_a_group_that_is_elsewhere_nothing_is_listed(in_memory: Any) -> None:
    """`KafkaApis.fetchOffsetsForGroup`; before version 2 there is no place for the group's error."""

    async def scenario(cluster: Any) -> None:
        await cluster.start(1, offsets_topic_num_partitions=1)
        body = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}
        for version in range(2, 8):
            found = await cluster.call(1, ApiKey.OFFSET_FETCH, version, body)
            assert (found.error_code, found.topics) == (ErrorCode.NOT_COORDINATOR, ())
        (topic,) = (await cluster.call(1, ApiKey.OFFSET_FETCH, 1, body)).topics
        assert topic.partitions[0].error_code == ErrorCode.NOT_COORDINATOR
        described = await cluster.call(
            1, ApiKey.DESCRIBE_GROUPS, 5, {"groups": ["g"], "include_authorized_operations": True}
        )
        assert described.groups[0].authorized_operations == NOT_LOOKED_AT
        cluster.brokers[1].context.groups.registry.is_active = False
        listed = await cluster.call(1, ApiKey.LIST_GROUPS, 5, {})
        assert (listed.error_code, listed.groups) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, ())

    in_memory(scenario)
