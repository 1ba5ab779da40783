"""What clients and tools ask of a broker besides records: topics, configs, groups, log dirs, ids."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema

from broker_sim.apis.table import ROWS
from controller.wire.errors import ErrorCode
from controller.wire.fault_rows import decode, parse_row
from controller.wire.protocol import ApiKey
from controller.wire.records import build_values
from controller.wire.types import GROUP_METADATA_TOPIC, TopicPartition
from controller.wire.zk_operations import Create, GetChildren, GetData
from controller.wire.znodes import ConfigEntityZNode, TopicZNode

RANGES = {key: row.versions for key, row in ROWS.items()}


@pytest.mark.parametrize(("key", "versions"), RANGES.items(), ids=[key.name for key in RANGES])
def test_every_version_offered_has_a_schema(key: ApiKey, versions: tuple[int, int]) -> None:
    for version in range(versions[0], versions[1] + 1):
        request, response = load_request_schema(key, version), load_response_schema(key, version)
        assert (request.__api_key__, request.__version__, response.__version__) == (key, version, version)


def test_api_versions_tells_the_table(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        body = {"client_software_name": "x", "client_software_version": "1"}
        answer = await cluster.call(1, ApiKey.API_VERSIONS, 3, body)
        told = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
        assert told == {**RANGES, ApiKey.API_VERSIONS: (0, 3)}
        refused = await cluster.call(1, ApiKey.API_VERSIONS, 3, {**body, "client_software_name": "-x"})
        assert refused.error_code == ErrorCode.INVALID_REQUEST

    in_memory(scenario)


@pytest.mark.feature("000-20")
def test_metadata_creates_a_missing_topic_where_that_is_allowed(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1, num_partitions=2)
        await cluster.update_metadata(1)

        async def error(topic: str, allowed: bool) -> int:
            body = {"topics": [{"name": topic}], "allow_auto_topic_creation": allowed}
            return int((await cluster.call(1, ApiKey.METADATA, 5, body)).topics[0].error_code)

        assert await error("t", False) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await error("t", True) == ErrorCode.LEADER_NOT_AVAILABLE
        assert await error("bad/name", True) == ErrorCode.INVALID_TOPIC_EXCEPTION
        found = await cluster.in_broker(1, broker.zk.perform_one(GetData(TopicZNode.path("t"))))
        assignment = TopicZNode.decode(found.data).partitions
        assert {p: a.replicas for p, a in assignment.items()} == {0: (1,), 1: (1,)}

    in_memory(scenario)


@pytest.mark.feature("003-08")
def test_only_the_controller_creates_topics(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        body = {"topics": [{"name": "t", "num_partitions": 1, "replication_factor": 1}], "timeout": 1000}
        created = await cluster.call(1, ApiKey.CREATE_TOPICS, 5, body)
        assert [topic.error_code for topic in created.topics] == [ErrorCode.NOT_CONTROLLER]
        listed = await cluster.call(1, ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"topics": None, "timeout": 1000})
        assert listed.error_code == ErrorCode.NOT_CONTROLLER

    in_memory(scenario)


def alter(resource_type: int, name: str, *changes: tuple[str, int, str | None]) -> dict[str, Any]:
    configs = [{"name": key, "config_operation": op, "value": value} for key, op, value in changes]
    return {"resources": [{"resource_type": resource_type, "resource_name": name, "configs": configs}]}


SET, DELETE, APPEND = 0, 1, 2
TOPIC, BROKER = 2, 4
ALTERATIONS = [
    ("a good value", TOPIC, "t", ("min.insync.replicas", SET, "2"), ErrorCode.NONE),
    ("a value of a wrong type", TOPIC, "t", ("min.insync.replicas", SET, "x"), ErrorCode.INVALID_CONFIG),
    ("an unknown name", TOPIC, "t", ("foo", SET, "x"), ErrorCode.INVALID_CONFIG),
    ("no value", TOPIC, "t", ("min.insync.replicas", SET, None), ErrorCode.INVALID_REQUEST),
    ("append to what is no list", TOPIC, "t", ("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
    ("an unknown topic", TOPIC, "u", ("retention.ms", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ("no topic name", TOPIC, "", ("retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
    ("another broker", BROKER, "2", ("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
    ("no broker id", BROKER, "x", ("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
    ("this broker", BROKER, "1", ("log.retention.ms", SET, "1000"), ErrorCode.NONE),
    ("all brokers", BROKER, "", ("leader.replication.throttled.rate", SET, "1000"), ErrorCode.NONE),
    (
        "a rate that is no number",
        BROKER,
        "",
        ("leader.replication.throttled.rate", SET, "-1"),
        ErrorCode.INVALID_REQUEST,
    ),
    ("a setting of the start", BROKER, "1", ("zookeeper.connect", SET, "x"), ErrorCode.INVALID_REQUEST),
    ("a broker logger", 8, "1", ("root", SET, "DEBUG"), ErrorCode.INVALID_REQUEST),
]


@pytest.mark.parametrize(("_", "kind", "name", "change", "error"), ALTERATIONS, ids=[row[0] for row in ALTERATIONS])
def test_altering_configs(in_memory: Any, _: str, kind: int, name: str, change: Any, error: ErrorCode) -> None:
    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1)
        await cluster.create_topic("t", [(1,)])
        answer = await cluster.call(1, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, alter(kind, name, change))
        assert answer.responses[0].error_code == error, answer.responses[0].error_message
        notices = await cluster.in_broker(1, broker.zk.perform_one(GetChildren("/config/changes")))
        assert len(notices.children) == (1 if error is ErrorCode.NONE else 0)

    in_memory(scenario)


def test_an_altered_topic_config_counts_once_the_notice_is_processed_and_is_described(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        await cluster.create_topic("t", [(1,)])
        changes = alter(TOPIC, "t", ("min.insync.replicas", SET, "2"), ("cleanup.policy", APPEND, "compact"))
        await cluster.call(1, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, changes)
        body = {
            "resources": [
                {
                    "resource_type": TOPIC,
                    "resource_name": "t",
                    "configuration_keys": ["min.insync.replicas", "cleanup.policy", "retention.ms"],
                }
            ],
            "include_synonyms": True,
        }
        answer = await cluster.call(1, ApiKey.DESCRIBE_CONFIGS, 3, body)
        found = {config.name: (config.value, config.config_source) for config in answer.results[0].configs}
        assert found == {
            "cleanup.policy": ("delete,compact", 1),
            "min.insync.replicas": ("2", 1),
            "retention.ms": ("604800000", 5),
        }
        await cluster.world.sleep(1)
        batch = build_values([(b"k", b"v")], timestamp=1)
        produced = await cluster.call(
            1,
            ApiKey.PRODUCE,
            8,
            {
                "acks": -1,
                "timeout": 1000,
                "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": batch}]}],
            },
        )
        # min(min.insync.replicas, replication factor) is 1
        assert produced.responses[0].partition_responses[0].error_code == ErrorCode.NONE

    in_memory(scenario)


def test_a_new_session_reads_the_notices_that_came_meanwhile(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1)
        store = broker.context.config_store
        cluster.world.zookeeper.expire_session(broker.zk.session_id)
        configs = ConfigEntityZNode.encode({"follower.replication.throttled.rate": "9"})
        await cluster.in_broker(1, broker.zk.perform([Create("/config/brokers/1", configs)]))
        await cluster.in_broker(1, store.write("brokers/1", {"follower.replication.throttled.rate": "10"}))
        await cluster.world.until(
            lambda: broker.context.configs.dynamic == {"follower.replication.throttled.rate": "10"},
            within_s=5,
            what="the configs are read",
        )

    in_memory(scenario)


def test_describe_log_dirs_shows_each_dir_and_producer_ids_differ(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        await cluster.start(2)
        await cluster.create_topic("t", [(1,)])
        answer = await cluster.call(1, ApiKey.DESCRIBE_LOG_DIRS, 2, {"topics": None})
        assert [topic.name for topic in answer.results[0].topics] == ["t"]
        moved = await cluster.call(
            1,
            ApiKey.ALTER_REPLICA_LOG_DIRS,
            1,
            {"dirs": [{"path": "/nowhere", "topics": [{"name": "t", "partitions": [0]}]}]},
        )
        assert moved.results[0].partitions[0].error_code == ErrorCode.LOG_DIR_NOT_FOUND
        ask = {"transactional_id": None, "producer_id": -1, "producer_epoch": -1}
        ids = [(await cluster.call(broker, ApiKey.INIT_PRODUCER_ID, 3, ask)).producer_id for broker in (1, 1, 2)]
        assert ids == [0, 1, 1000]

    in_memory(scenario)


async def join(cluster: Any, broker_id: int, member_id: str) -> Any:
    body = {
        "group_id": "g",
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\x00\x00\x00\x00\x00\x01\x00\x01t"}],
    }
    return await cluster.call(broker_id, ApiKey.JOIN_GROUP, 5, body)


def commit(member_id: str, generation: int, offset: int) -> dict[str, Any]:
    return {
        "group_id": "g",
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
        "topics": [
            {"name": "t", "partitions": [{"partition_index": 0, "committed_offset": offset, "committed_metadata": "x"}]}
        ],
    }


FETCH_OFFSETS = {"group_id": "g", "topics": None}


def test_groups_and_offsets_move_with_their_partition(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id, offsets_topic_num_partitions=1)
        await cluster.create_topic("t", [(1, 2)])
        missing = await cluster.call(1, ApiKey.FIND_COORDINATOR, 2, {"key": "g"})
        assert missing.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await cluster.create_topic(GROUP_METADATA_TOPIC, [(1, 2)])
        found = await cluster.call(2, ApiKey.FIND_COORDINATOR, 2, {"key": "g"})
        assert (found.node_id, found.host) == (1, "broker-1")

        asked = await join(cluster, 1, "")
        assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
        joined = await join(cluster, 1, asked.member_id)
        assert (joined.error_code, joined.generation_id, joined.leader) == (ErrorCode.NONE, 1, asked.member_id)
        member = {"group_id": "g", "generation_id": 1, "member_id": asked.member_id}
        assignments = [{"member_id": asked.member_id, "assignment": b"mine"}]
        synced = await cluster.call(1, ApiKey.SYNC_GROUP, 3, {**member, "assignments": assignments})
        assert (synced.error_code, bytes(synced.assignment)) == (ErrorCode.NONE, b"mine")
        committed = await cluster.call(1, ApiKey.OFFSET_COMMIT, 7, commit(asked.member_id, 1, 42))
        assert committed.topics[0].partitions[0].error_code == ErrorCode.NONE

        await cluster.create_topic(GROUP_METADATA_TOPIC, [(2, 1)], leader_epoch=1, is_new=False)
        await cluster.world.sleep(1)
        assert (await cluster.call(1, ApiKey.HEARTBEAT, 3, member)).error_code == ErrorCode.NOT_COORDINATOR
        assert (await cluster.call(2, ApiKey.HEARTBEAT, 3, member)).error_code == ErrorCode.NONE
        offsets = await cluster.call(2, ApiKey.OFFSET_FETCH, 7, FETCH_OFFSETS)
        partition = offsets.topics[0].partitions[0]
        assert (partition.committed_offset, partition.metadata) == (42, "x")
        described = await cluster.call(2, ApiKey.DESCRIBE_GROUPS, 4, {"groups": ["g"]})
        group = described.groups[0]
        assert (group.group_state, group.protocol_data, len(group.members)) == ("Stable", "range", 1)
        assert bytes(group.members[0].member_assignment) == b"mine"

        refused = await cluster.call(2, ApiKey.DELETE_GROUPS, 1, {"groups_names": ["g"]})
        assert refused.results[0].error_code == ErrorCode.NON_EMPTY_GROUP
        await cluster.world.sleep(15)  # the session expires
        listed = await cluster.call(2, ApiKey.LIST_GROUPS, 4, {"states_filter": ["Empty"]})
        assert [entry.group_id for entry in listed.groups] == ["g"]
        for types, found in ((["Classic"], ["g"]), (["consumer"], []), ([], ["g"])):
            typed = await cluster.call(2, ApiKey.LIST_GROUPS, 5, {"types_filter": types})
            assert [(entry.group_id, entry.group_type) for entry in typed.groups] == [(g, "classic") for g in found]
        deleted = await cluster.call(2, ApiKey.DELETE_GROUPS, 1, {"groups_names": ["g", "h"]})
        assert [r.error_code for r in deleted.results] == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
        offsets = await cluster.call(2, ApiKey.OFFSET_FETCH, 7, FETCH_OFFSETS)
        assert offsets.topics == ()

        await cluster.create_topic(GROUP_METADATA_TOPIC, [(1, 2)], leader_epoch=2, is_new=False)
        await cluster.world.sleep(1)
        listed = await cluster.call(1, ApiKey.LIST_GROUPS, 4, {"states_filter": []})
        assert listed.groups == (), "who reads its log next does not find it again"
        assert (await cluster.call(1, ApiKey.OFFSET_FETCH, 7, FETCH_OFFSETS)).topics == ()

    in_memory(scenario)


def test_requests_that_wait_in_a_group_are_answered_when_the_coordinator_moves(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id, offsets_topic_num_partitions=1)
        await cluster.create_topic(GROUP_METADATA_TOPIC, [(1, 2)])
        asked = await join(cluster, 1, "")
        other = await cluster.connect(1)
        cluster.connections.pop(1)
        waiting = asyncio.ensure_future(join(cluster, 1, asked.member_id))
        await cluster.world.sleep(1)
        assert not waiting.done()
        cluster.connections[1] = other
        await cluster.create_topic(GROUP_METADATA_TOPIC, [(2, 1)], leader_epoch=1, is_new=False)
        assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR

    in_memory(scenario)


def test_faults_drop_delay_and_pause(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        first, second = await cluster.start(1), await cluster.start(2)
        await cluster.create_topic("t", [(1, 2)])
        drop = decode('{"fault": "api", "broker": 1, "api": "Metadata", "nth": 2, "action": "drop"}')
        first.set_faults(drop)
        await cluster.call(1, ApiKey.METADATA, 1, {"topics": None})
        with pytest.raises(ConnectionError):
            await cluster.call(1, ApiKey.METADATA, 1, {"topics": None})
        await cluster.call(1, ApiKey.METADATA, 1, {"topics": None})
        first.set_faults(decode('{"fault": "api", "api": "Metadata", "action": "error", "error_code": 7}'))
        answer = await cluster.call(1, ApiKey.METADATA, 1, {"topics": None})
        assert [topic.error_code for topic in answer.topics] == [7]
        first.set_faults(decode('{"fault": "api", "api": "Metadata", "action": "delay", "delay_ms": 5000}'))
        before = cluster.world.loop.time()
        await cluster.call(1, ApiKey.METADATA, 1, {"topics": None})
        assert cluster.world.loop.time() - before >= 5
        first.set_faults(())

        second.set_faults(decode('{"fault": "pause_replication", "broker": 2, "topic": null}'))
        await cluster.world.sleep(2)
        batch = build_values([(None, b"v")], timestamp=1)
        body = {
            "acks": -1,
            "timeout": 3000,
            "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": batch}]}],
        }
        produced = await cluster.call(1, ApiKey.PRODUCE, 8, body)
        assert produced.responses[0].partition_responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        second.set_faults(())
        body["timeout"] = 30_000
        produced = await cluster.call(1, ApiKey.PRODUCE, 8, body)
        assert produced.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert first.context.replicas.is_leader(TopicPartition("t", 0))

    in_memory(scenario)


def test_a_failed_log_dir_is_told_to_the_controller_and_the_last_one_halts_the_broker(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1, dirs=2)
        paths = [str(path) for path in broker.identity.log_dirs]

        async def notices_after(failed: list[str]) -> int:
            broker.set_faults(parse_row({"fault": "fail_log_dir", "log_dir": path}) for path in failed)
            await cluster.world.sleep(1)
            asked = broker.zk.perform_one(GetChildren("/log_dir_event_notification"))
            return len((await cluster.in_broker(1, asked)).children)

        halted = asyncio.ensure_future(broker.wait_halted())
        assert await notices_after(paths[:1]) == 1 and not halted.done()
        assert await notices_after(paths) == 1 and halted.done(), "of the last nobody is told"

    in_memory(scenario)


def test_a_broker_stops_cleanly_and_starts_again_with_its_records(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1, controlled_shutdown_retry_backoff_ms=10)
        await cluster.create_topic("t", [(1,)])
        batch = build_values([(None, b"v")], timestamp=1)
        body = {
            "acks": 1,
            "timeout": 3000,
            "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": batch}]}],
        }
        await cluster.call(1, ApiKey.PRODUCE, 8, body)
        await cluster.in_broker(1, broker.stop())
        assert cluster.world.zookeeper.sessions == {}
        again = await cluster.start(1)
        assert again.context.registration.broker_epoch > broker.context.registration.broker_epoch
        await cluster.create_topic("t", [(1,)], leader_epoch=1, is_new=False)
        listed = await cluster.call(
            1,
            ApiKey.LIST_OFFSETS,
            5,
            {"replica_id": -1, "topics": [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}]},
        )
        assert listed.topics[0].partitions[0].offset == 1

    in_memory(scenario)


def test_offsets_and_empty_groups_go_after_their_retention(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        settings = {"offsets_topic_num_partitions": 1, "offsets_retention_minutes": 60}
        await cluster.start(1, connections_max_idle_ms=-1, **settings)
        await cluster.create_topic("t", [(1,)])
        await cluster.create_topic(GROUP_METADATA_TOPIC, [(1,)])
        await cluster.call(1, ApiKey.OFFSET_COMMIT, 7, commit("", -1, 5))
        rows = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": "x" * 5_000}]
        other = {"group_id": "h", "generation_id_or_member_epoch": -1, "member_id": ""}
        too_large = {**other, "topics": [{"name": "t", "partitions": rows}]}
        await cluster.call(1, ApiKey.OFFSET_COMMIT, 7, too_large)

        async def groups() -> list[str]:
            return [g.group_id for g in (await cluster.call(1, ApiKey.LIST_GROUPS, 4, {})).groups]

        assert await groups() == ["g", "h"]
        await cluster.world.sleep(50 * 60)
        assert await groups() == ["g"]
        await cluster.world.sleep(30 * 60)
        assert await groups() == []

    in_memory(scenario)


#: timestamp -> the first version that may ask for it, and (timestamp, offset) of its answer for records at 7, 9, 8.
TIMES = {-1: (1, (-1, 3)), -2: (1, (-1, 0)), -3: (7, (9, 1)), -4: (8, (-1, 0)), -5: (9, (-1, -1)), -6: (99, None)}


def test_times_that_are_none_are_known_since_their_version(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        await cluster.create_topic("t", [(1,)])
        for timestamp in (7, 9, 8):
            rows = [{"index": 0, "records": build_values([(None, b"v")], timestamp=timestamp)}]
            body = {"acks": 1, "timeout": 3000, "topic_data": [{"name": "t", "partition_data": rows}]}
            await cluster.call(1, ApiKey.PRODUCE, 8, body)
        for version in range(1, 10):
            for timestamp, (since, answer) in TIMES.items():
                rows = [{"partition_index": 0, "timestamp": timestamp}]
                body = {"replica_id": -1, "topics": [{"name": "t", "partitions": rows}]}
                [listed] = (await cluster.call(1, ApiKey.LIST_OFFSETS, version, body)).topics[0].partitions
                found = (listed.error_code, listed.timestamp, listed.offset)
                assert found == ((0, *answer) if version >= since and answer else (35, -1, -1)), (version, timestamp)

    in_memory(scenario)


def test_an_empty_group_dies_with_its_last_offset(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1, offsets_topic_num_partitions=1)
        await cluster.create_topic("t", [(1,), (1,)])
        await cluster.create_topic(GROUP_METADATA_TOPIC, [(1,)])

        async def state_after_deleting(*partitions: int) -> str:
            rows = [{"partition_index": number} for number in partitions]
            body = {"group_id": "g", "topics": [{"name": "t", "partitions": rows}]}
            deleted = await cluster.call(1, ApiKey.OFFSET_DELETE, 0, body)
            assert deleted.error_code == 0
            described = await cluster.call(1, ApiKey.DESCRIBE_GROUPS, 4, {"groups": ["g"]})
            return str(described.groups[0].group_state)

        both = commit("", -1, 5)
        both["topics"][0]["partitions"].append({"partition_index": 1, "committed_offset": 6, "committed_metadata": ""})
        await cluster.call(1, ApiKey.OFFSET_COMMIT, 7, both)
        assert await state_after_deleting(0) == "Empty"
        assert await state_after_deleting(0) == "Empty"
        assert await state_after_deleting(1) == "Dead"
        assert (await cluster.call(1, ApiKey.LIST_GROUPS, 4, {})).groups == ()
        await cluster.call(1, ApiKey.OFFSET_COMMIT, 7, both)
        assert await state_after_deleting(0, 1) == "Dead"
        joined = await join(cluster, 1, (await join(cluster, 1, "")).member_id)
        await cluster.call(1, ApiKey.OFFSET_COMMIT, 7, commit(joined.member_id, joined.generation_id, 5))
        assert await state_after_deleting(0) == "CompletingRebalance"

    in_memory(scenario)


def test_old_fetchers_are_sent_away_from_a_failed_log_dir_and_new_ones_are_told(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1, dirs=2)
        await cluster.create_topic("t", [(1,)])
        replicas = broker.context.replicas
        (path,) = (d.path for d in replicas.describe_log_dirs() if d.replicas)
        replicas.fail_log_dir(path)

        async def error(version: int) -> int:
            partition = {"partition": 0, "fetch_offset": 0, "log_start_offset": -1, "partition_max_bytes": 100}
            body = {
                "replica_id": -1,
                "max_wait": 0,
                "min_bytes": 1,
                "max_bytes": 100,
                "isolation_level": 0,
                "topics": [{"topic": "t", "partitions": [partition]}],
            }
            answer = await cluster.call(1, ApiKey.FETCH, version, body)
            return int(answer.responses[0].partitions[0].error_code)

        told = {version: await error(version) for version in range(4, 12)}
        old, new = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR
        assert told == {4: old, 5: old, **dict.fromkeys(range(6, 12), new)}

    in_memory(scenario)
