"""What a controller answers: the checks of each request in their order, waiting, and refusals when it has no office."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import structlog

from controller.node.requests.table import APIS
from controller.rules.hashing import group_partition
from controller.rules.placement import MIXED_RACKS_ENFORCED
from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.zk_operations import Create, Delete, Multi, SetData, WatchKind

Play = Callable[..., list[Any]]


def topic(name: str, partitions: int = 1, factor: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": factor, **more}


def manual(*replicas: tuple[int, ...]) -> dict[str, Any]:
    return {
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": p, "broker_ids": r} for p, r in enumerate(replicas)],
    }


def configs(**values: str | None) -> dict[str, Any]:
    return {"configs": [{"name": name.replace("_", "."), "value": value} for name, value in values.items()]}


async def create(cluster: Any, *topics: Mapping[str, Any], version: int = 5, timeout: int = 5_000, **more: Any) -> Any:
    answer = await cluster.ask(ApiKey.CREATE_TOPICS, version, {"topics": topics, "timeout": timeout, **more})
    return answer["topics"]


CREATE_REFUSED: list[tuple[str, dict[str, Any], ErrorCode, str]] = [
    ("exists", topic("old"), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'old' already exists."),
    ("a config without a value", topic("new", **configs(retention_ms=None)), ErrorCode.INVALID_CONFIG,
     "Null value not supported for topic configs: retention.ms"),
    ("replicas and a count", topic("new", assignments=[{"partition_index": 0, "broker_ids": [1]}]),
     ErrorCode.INVALID_REQUEST, "Both numPartitions or replicationFactor and replicasAssignments were set. "
     "Both cannot be used at the same time."),
    ("replicas and their number", topic("new", -1, assignments=[{"partition_index": 0, "broker_ids": [1]}]),
     ErrorCode.INVALID_REQUEST, "Both numPartitions or replicationFactor and replicasAssignments were set. "
     "Both cannot be used at the same time."),
    ("no partitions", topic("new", 0), ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0."),
    ("no replicas", topic("new", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR,
     "Replication factor must be larger than 0."),
    ("more replicas than brokers, before a bad name", topic("b@d", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR,
     "Replication factor: 4 larger than available brokers: 3."),
    ("a million partitions", topic("new", 1_000_000), ErrorCode.INVALID_PARTITIONS,
     "1000000 partitions are too many; 100000 fit into a request."),
    ("an empty name", topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION,
     "Topic name is invalid: the empty string is not allowed"),
    ("a dot", topic("."), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '.' is not allowed"),
    ("a path", topic("../ids/1"), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '../ids/1' contains one "
     "or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
    ("a long name", topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: the length of "
     f"'{'x' * 250}' is longer than the max allowed length 249"),
    ("marked for deletion", topic("marked"), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'marked' is marked for deletion."),
    ("exists in ZooKeeper only", topic("unled"), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'unled' already exists."),
    ("collides", topic("a.b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic 'a.b' collides with existing topics: a_b"),
    ("unequal replica counts", {"name": "new", **manual((1, 2), (1,))}, ErrorCode.INVALID_REPLICA_ASSIGNMENT,
     "All partitions should have the same number of replicas"),
    ("a broker twice", {"name": "new", **manual((1, 1))}, ErrorCode.INVALID_REPLICA_ASSIGNMENT,
     "Duplicate replica assignment found: Map(0 -> List(1, 1))"),
    ("an unknown config", topic("new", **configs(foo="1")), ErrorCode.INVALID_CONFIG, "Unknown topic config name: foo"),
]  # fmt: skip


def test_topics_are_refused_by_the_first_check_that_fails(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        await create(cluster, topic("old"), topic("a_b"))
        await cluster.zk(Create("/brokers/topics/unled", b'{"partitions":{"0":[77]}}'))
        await cluster.zk(Create("/admin/delete_topics/marked"))
        await cluster.zk(Create("/brokers/topics/marked", b'{"partitions":{"0":[77]}}'))
        for name, wanted, code, message in CREATE_REFUSED:
            if name == "marked for deletion":
                await cluster.zk(Create("/admin/delete_topics/marked"))
            (answer,) = await create(cluster, wanted)
            assert (answer["error_code"], answer["error_message"]) == (code, message), name

    play(scenario)


def test_a_topic_is_answered_with_what_was_created(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        good, twice, _ = await create(cluster, topic("t", 4, 2, **configs(retention_ms="5")), topic("x"), topic("x"))
        assert (good["error_code"], good["num_partitions"], good["replication_factor"]) == (0, 4, 2)
        shown = {c["name"]: (c["value"], c["config_source"]) for c in good["configs"]}
        assert (shown["retention.ms"], shown["segment.bytes"]) == (("5", 1), ("1073741824", 5))
        assert (twice["error_code"], twice["error_message"]) == (42, "Found multiple entries for this topic.")
        assert json.loads(await cluster.read("/config/topics/t")) == {"version": 1, "config": {"retention.ms": "5"}}
        assert await cluster.read("/brokers/topics/x") is None
        metadata = await cluster.ask(ApiKey.METADATA, 9, {"topics": [{"name": "t"}]})
        assert [p["error_code"] for p in metadata["topics"][0]["partitions"]] == [0] * 4
        placed, defaults = await create(cluster, {"name": "m", **manual((1, 2), (2, 1), (1, 2))}, topic("d", -1, -1))
        assert (placed["num_partitions"], placed["replication_factor"]) == (3, 2), (
            "what was made, not what was asked for"
        )
        assert (defaults["num_partitions"], defaults["replication_factor"]) == (1, 1)

    play(scenario)


@pytest.mark.parametrize("by", ["a request", "metadata"])
def test_whoever_sees_a_topic_sees_its_configs(play: Play, by: str) -> None:
    async def scenario(cluster: Any) -> None:
        made: list[str] = []

        def look(events: Any) -> None:
            made.extend(e.path for e in events if e.kind is WatchKind.CREATED and e.path.endswith("/topics/new"))

        cluster.world.zookeeper.on_commit.append(look)
        if by == "metadata":
            await cluster.ask(ApiKey.METADATA, 3, {"topics": [{"name": "new"}]})
        else:
            await create(cluster, topic("new", **configs(retention_ms="7")))
        assert made == ["/config/topics/new", "/brokers/topics/new"]

    play(scenario)


def test_validation_writes_nothing(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        (answer,) = await create(cluster, topic("t"), validate_only=True)
        assert (answer["error_code"], answer["num_partitions"]) == (0, 1)
        assert await cluster.read("/config/topics/t") is None

    play(scenario)


def test_waiting_for_leaders_ends_with_the_time(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        before = cluster.world.loop.time()
        (dead,) = await create(cluster, {"name": "dead", **manual((9,))}, timeout=700)
        assert dead["error_code"] == ErrorCode.REQUEST_TIMED_OUT
        assert 0.7 <= cluster.world.loop.time() - before < 2
        (hurry,) = await create(cluster, topic("hurry"), timeout=0)
        assert hurry["error_code"] == ErrorCode.REQUEST_TIMED_OUT
        assert await cluster.read("/brokers/topics/hurry") is not None

    play(scenario)


def test_racks_on_some_brokers_only(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.register(4, rack="r1")
        with structlog.testing.capture_logs() as logs:
            (created,) = await create(cluster, topic("t"))
            assert (created["error_code"], created["error_message"]) == (-1, None)
            await create(cluster, {"name": "t", **manual((1,))})
            grown = await grow(cluster, "t", 2)
            assert (grown["error_code"], grown["error_message"]) == (-1, None)
        text = "Not all brokers have rack information for replica rack aware assignment."
        reasons = [(row["request"], row["reason"]) for row in logs if row["event"] == ev.REQUEST_FAILED]
        assert reasons == [("CreateTopics", text), ("CreatePartitions", MIXED_RACKS_ENFORCED)]

    play(scenario)


async def grow(cluster: Any, name: str, count: int, replicas: list[list[int]] | None = None, **more: Any) -> Any:
    lists = None if replicas is None else [{"broker_ids": r} for r in replicas]
    body = {"topics": [{"name": name, "count": count, "assignments": lists}], "timeout": 5_000, **more}
    return (await cluster.ask(ApiKey.CREATE_PARTITIONS, 2, body))["results"][0]


def test_a_partition_whose_list_cannot_be_keeps_its_number(play: Play) -> None:
    """Those behind it keep theirs, with their replicas and records."""

    async def scenario(cluster: Any) -> None:
        asked = {"topics": [topic("t") | manual((1,), (2,), (1,))], "timeout": 5_000}
        await cluster.ask(ApiKey.CREATE_TOPICS, 5, asked)
        await cluster.zk(SetData("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1],"1":[],"2":[1]}}'))
        assert (await grow(cluster, "t", 4))["error_code"] == ErrorCode.NONE
        now = json.loads(await cluster.read("/brokers/topics/t"))["partitions"]
        assert now.pop("3")
        assert now == {"0": [1], "1": [], "2": [1]}

    play(scenario)


@pytest.mark.parametrize("meanwhile", ["a move begins", "somebody adds two", "its own answer is lost"])
def test_partitions_are_added_to_what_is_there_when_they_are_written(play: Play, meanwhile: str) -> None:
    """Nothing that another wrote in between is lost, and what was done counts as done."""
    path = "/brokers/topics/t"
    others = {
        "a move begins": b'{"version":3,"partitions":{"0":[1,2]},"adding_replicas":{"0":[2]},"removing_replicas":{}}',
        "somebody adds two": b'{"version":1,"partitions":{"0":[1],"1":[2],"2":[1]}}',
    }

    async def scenario(cluster: Any) -> None:
        await cluster.ask(ApiKey.CREATE_TOPICS, 5, {"topics": [topic("t") | manual((1,))], "timeout": 5_000})
        tree = cluster.world.zookeeper.tree
        raced = False

        def race(op: Any) -> None:
            nonlocal raced
            if isinstance(op, SetData) and op.path == path and not raced:
                raced = True
                data = others.get(meanwhile, op.data)
                assert tree.write(SetData(path, data), session=0, now_ms=0).result.ok

        tree.refusal = race
        asked = asyncio.ensure_future(grow(cluster, "t", 2, [[2]]))
        await cluster.world.sleep(1)
        tree.refusal = lambda _: None
        assert raced
        await cluster.zk(SetData(path, tree.get(path).payload))  # what is done within the tree fires no watch
        grown = await asked
        if meanwhile in others:
            assert tree.get(path).payload == others[meanwhile], "neither is lost"
        assert grown["error_code"] == {
            "a move begins": ErrorCode.REASSIGNMENT_IN_PROGRESS,
            "somebody adds two": ErrorCode.INVALID_PARTITIONS,
        }.get(meanwhile, ErrorCode.NONE)

    play(scenario)


def test_partitions_are_added_or_refused(play: Play) -> None:
    refused: list[tuple[str, int, list[list[int]] | None, ErrorCode, str]] = [
        ("none", 2, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'none' does not exist."),
        ("t", 1, None, ErrorCode.INVALID_PARTITIONS,
         "Topic currently has 2 partitions, which is higher than the requested 1."),
        ("t", 2, None, ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partitions."),
        ("t", 3, [[9, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Unknown broker(s) in replica assignment: 9."),
        ("t", 4, [[1, 2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT,
         "Increasing the number of partitions by 2 but 1 assignments provided."),
        ("t", 3, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Inconsistent replication factor between partitions, "
         "partition 0 has 2 while partitions [2] have replication factors [1], respectively."),
        ("moving", 2, None, ErrorCode.REASSIGNMENT_IN_PROGRESS,
         "A partition reassignment is in progress for the topic 'moving'."),
    ]  # fmt: skip

    async def scenario(cluster: Any) -> None:
        moving = b'{"version":3,"partitions":{"0":[2,1]},"adding_replicas":{"0":[2]},"removing_replicas":{"0":[1]}}'
        await create(cluster, {"name": "t", **manual((1, 2), (2, 3))}, {"name": "moving", **manual((1,))})
        await cluster.zk(SetData("/brokers/topics/moving", moving))
        for name, count, replicas, code, message in refused:
            answer = await grow(cluster, name, count, replicas)
            assert (answer["error_code"], answer["error_message"]) == (code, message)
        assert (await grow(cluster, "t", 3, [[3, 1]]))["error_code"] == 0
        assert (await grow(cluster, "t", 5))["error_code"] == 0
        assignment = json.loads(await cluster.read("/brokers/topics/t"))["partitions"]
        assert assignment == {"0": [1, 2], "1": [2, 3], "2": [3, 1], "3": [1, 3], "4": [2, 1]}

    play(scenario)


def test_deletion_is_answered_once_it_shows(play: Play) -> None:
    async def delete(cluster: Any, *names: str, timeout: int = 5_000) -> list[int]:
        answer = await cluster.ask(ApiKey.DELETE_TOPICS, 4, {"topic_names": names, "timeout": timeout})
        return [r["error_code"] for r in answer["responses"]]

    async def scenario(cluster: Any) -> None:
        await create(cluster, topic("t"), topic("u"))
        assert await delete(cluster, "t", "none", "../ids", "") == [0, 3, 3, 3]
        assert await delete(cluster, "u", timeout=0) == [ErrorCode.REQUEST_TIMED_OUT]
        await cluster.world.sleep(2)
        assert await cluster.read("/brokers/topics/t") is None
        assert await cluster.read("/brokers/topics/u") is None

    play(scenario)


@pytest.mark.parametrize(("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)])
def test_deletion_may_be_disabled(play: Play, version: int, code: ErrorCode) -> None:
    async def scenario(cluster: Any) -> None:
        answer = await cluster.ask(ApiKey.DELETE_TOPICS, version, {"topic_names": ["t"], "timeout": 5})
        assert answer["responses"][0]["error_code"] == code

    play(scenario, brokers=0, settings={"delete.topic.enable": "false"})


def test_reassignments_and_elections_pass_through_the_queue(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        await create(cluster, {"name": "t", **manual((1, 2), (2, 3))})
        move = {"topics": [{"name": "t", "partitions": [
            {"partition_index": 0, "replicas": [1, 3]}, {"partition_index": 1, "replicas": [9]},
            {"partition_index": 7, "replicas": [1]}]}], "timeout": 1}  # fmt: skip
        answer = await cluster.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, move)
        codes = {p["partition_index"]: p["error_code"] for p in answer["responses"][0]["partitions"]}
        assert (answer["error_code"], codes) == (0, {0: 0, 1: 39, 7: 3})
        listed = await cluster.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"topics": None, "timeout": 1})
        (moving,) = listed["topics"][0]["partitions"]
        assert (moving["replicas"], moving["adding_replicas"], moving["removing_replicas"]) == ([1, 3, 2], [3], [2])
        elect = {"election_type": 0, "timeout": 1_000}
        named = {**elect, "topic_partitions": [{"topic": "t", "partitions": [1, 7]}]}
        answer = await cluster.ask(ApiKey.ELECT_LEADERS, 2, named)
        codes = {p["partition_id"]: p["error_code"] for p in answer["replica_election_results"][0]["partition_result"]}
        assert codes == {1: ErrorCode.ELECTION_NOT_NEEDED, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        answer = await cluster.ask(ApiKey.ELECT_LEADERS, 2, {**elect, "topic_partitions": None})
        assert (answer["error_code"], answer["replica_election_results"]) == (0, [])
        answer = await cluster.ask(ApiKey.ELECT_LEADERS, 2, {**named, "election_type": 5})
        assert answer["error_code"] == ErrorCode.UNKNOWN_SERVER_ERROR

    play(scenario)


def test_controlled_shutdown_moves_leaders(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        await create(cluster, {"name": "t", **manual((1, 2))})
        unknown = await cluster.ask(ApiKey.CONTROLLED_SHUTDOWN, 3, {"broker_id": 9, "broker_epoch": 4})
        assert unknown["error_code"] == ErrorCode.UNKNOWN_SERVER_ERROR
        gone = await cluster.ask(ApiKey.CONTROLLED_SHUTDOWN, 1, {"broker_id": 9})
        assert gone["error_code"] == ErrorCode.BROKER_NOT_AVAILABLE
        epoch = cluster.controller.state.live_brokers[1].broker_epoch
        left = await cluster.ask(ApiKey.CONTROLLED_SHUTDOWN, 3, {"broker_id": 1, "broker_epoch": epoch})
        assert (left["error_code"], left["remaining_partitions"]) == (0, [])
        metadata = await cluster.ask(ApiKey.METADATA, 7, {"topics": [{"name": "t"}]})
        assert metadata["topics"][0]["partitions"][0]["leader_id"] == 2

    play(scenario)


def test_topics_of_one_request_that_collide(play: Play) -> None:
    """The first is created, the second is refused as if it had come later; validated only, both can be."""

    async def scenario(cluster: Any) -> None:
        both = (topic("a.b"), topic("a_b"))
        tried = await create(cluster, *both, validate_only=True)
        assert [t["error_code"] for t in tried] == [ErrorCode.NONE] * 2
        made = await create(cluster, *both)
        assert [t["error_code"] for t in made] == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION]
        assert made[1]["error_message"] == "Topic 'a_b' collides with existing topics: a.b"

    play(scenario)


@pytest.mark.parametrize(
    ("stalled", "least_s", "most_s"),
    [(None, 0.0, 1.0), (2, 1.9, 2.5), (3, 0.0, 1.0)],
    ids=["all answer", "the new leader is stalled", "somebody else is"],
)
@pytest.mark.known_failure("X6")
def test_a_shutdown_is_answered_once_the_others_were_told(
    play: Play, stalled: int | None, least_s: float, most_s: float
) -> None:
    """X6 of the known failures, and its limit."""

    async def scenario(cluster: Any) -> None:
        await create(cluster, {"name": "t", **manual((1, 2))})
        if stalled is not None:
            cluster.world.network.partition("controller", f"broker-{stalled}")
        started = cluster.world.loop.time()
        left = await cluster.ask(ApiKey.CONTROLLED_SHUTDOWN, 3, {"broker_id": 1, "broker_epoch": -1})
        assert left["error_code"] == 0
        assert least_s <= cluster.world.loop.time() - started < most_s
        backlogs = {n: gauges.queue_size for n, gauges in cluster.controller.channels.gauges().items()}
        assert [n for n, waiting in backlogs.items() if waiting] == ([] if stalled is None else [stalled])

    play(scenario, brokers=3)


def test_what_the_controller_decides_is_traced(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        await create(cluster, {"name": "t", **manual((1, 2))})
        await cluster.unregister(1)
        await cluster.world.sleep(1)
        rows = [json.loads(line) for line in cluster.trace]
        assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
        assert {row["broker"] for row in rows} == {100}
        assert {"broker_up", "assign", "elect", "broker_down"} <= {row["ev"] for row in rows}
        assert [row["replicas"] for row in rows if row["ev"] == "assign"] == [[1, 2]]

    play(scenario, brokers=2)


def test_an_id_of_a_broker_is_refused(play: Play) -> None:
    from controller.node.process import IdTaken

    async def scenario(cluster: Any) -> None:
        with pytest.raises(IdTaken, match="a broker with id 1 is registered; choose another --controller-id"):
            await cluster.world.machine("second").run(cluster.make(1, "second").start())

    play(scenario, brokers=1)


def test_configs_are_edited_and_shown(play: Play) -> None:
    async def alter(cluster: Any, kind: int, name: str, *edits: tuple[str, int, str | None], **more: Any) -> Any:
        resource = {"resource_type": kind, "resource_name": name, "configs": [
            {"name": n, "config_operation": op, "value": v} for n, op, v in edits]}  # fmt: skip
        answer = await cluster.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], **more})
        return answer["responses"][0]["error_code"], answer["responses"][0]["error_message"]

    where = "Invalid config value for resource ConfigResource(type=TOPIC, name='t'): "
    refused: list[tuple[int, str, Any, Any]] = [
        (2, "none", [("retention.ms", 0, "1")], (3, "The topic 'none' does not exist.")),
        (2, "none", [("retention.ms", 2, "1")],
         (40, "Config value append is not allowed for config key: retention.ms")),
        (2, "none", [("retention.ms", 0, "x")], (3, "The topic 'none' does not exist.")),
        (2, "no/ne", [("retention.ms", 0, "1")], (3, "The topic 'no/ne' does not exist.")),
        (2, "none", [("retention.ms", 9, "1")], (-1, None)),
        (2, "none", [("retention.ms", 9, None)], (42, "Null value not supported for : retention.ms")),
        (2, "t", [("no.such", 2, "1")], (-1, None)),
        (4, "1", [("num.io.threads", 9, "1")], (42, "Unexpected broker id, expected 100, but received 1")),
        (4, "100", [("num.io.threads", 9, "1")], (42, "Unknown operations type 9")),
        (8, "100", [("a", 9, "b")], (42, "Unsupported resource type: BROKER_LOGGER")),
        (2, "", [("retention.ms", 0, "1")], (42, "Default topic resources are not allowed.")),
        (2, "t", [("foo", 0, "1")], (40, "Unknown topic config name: foo")),
        (2, "t", [("retention.ms", 0, "x")],
         (40, where + "Invalid value x for configuration retention.ms: Not a number of type LONG")),
        (2, "t", [("retention.ms", 2, "1")],
         (40, "Config value append is not allowed for config key: retention.ms")),
        (2, "t", [("min.compaction.lag.ms", 0, "9"), ("max.compaction.lag.ms", 0, "5")],
         (40, "conflict topic config setting min.compaction.lag.ms (9) > max.compaction.lag.ms (5)")),
        (2, "t", [("retention.ms", 0, None)], (42, "Null value not supported for : retention.ms")),
        (2, "t", [("retention.ms", 0, "1"), ("retention.ms", 0, "2")], (42, "Error due to duplicate config keys")),
        (4, "1", [("num.io.threads", 0, "1")], (42, "Unexpected broker id, expected 100, but received 1")),
        (4, "x", [("num.io.threads", 0, "1")], (42, "Node id must be an integer, but it is: x")),
        (4, "", [("broker.id", 0, "1")], (42, "Cannot update these configs dynamically: Set(broker.id)")),
        (8, "1", [("a", 0, "b")], (42, "Unsupported resource type: BROKER_LOGGER")),
    ]  # fmt: skip

    async def scenario(cluster: Any) -> None:
        await create(cluster, topic("t"))
        for kind, name, edits, expected in refused:
            assert await alter(cluster, kind, name, *edits) == expected
        assert (await cluster.read("/config/topics/t")) == b'{"version":1,"config":{}}'
        ok = (0, None)
        assert await alter(cluster, 2, "t", ("cleanup.policy", 2, "compact"), ("retention.ms", 0, "5")) == ok
        assert await alter(cluster, 2, "t", ("retention.ms", 1, None)) == ok
        assert await alter(cluster, 2, "t", ("retention.ms", 0, "7"), validate_only=True) == ok
        stored = json.loads(await cluster.read("/config/topics/t"))
        assert stored["config"] == {"cleanup.policy": "delete,compact"}
        assert await alter(cluster, 4, "", ("log.retention.ms", 0, "9")) == ok
        await cluster.world.sleep(1)
        described = await cluster.ask(
            ApiKey.DESCRIBE_CONFIGS, 3, {"include_synonyms": True, "resources": [
                {"resource_type": 2, "resource_name": "t", "configuration_keys": ["retention.ms"]},
                {"resource_type": 4, "resource_name": "", "configuration_keys": None},
                {"resource_type": 4, "resource_name": "100", "configuration_keys": ["auto.leader.rebalance.enable"]},
                {"resource_type": 2, "resource_name": "no", "configuration_keys": None},
                {"resource_type": 2, "resource_name": "../no", "configuration_keys": None}]})  # fmt: skip
        of_topic, of_default, own, missing, bad = described["results"]
        (entry,) = of_topic["configs"]
        assert (entry["value"], entry["config_source"]) == ("9", 3)
        assert [(s["name"], s["value"]) for s in entry["synonyms"]] == [("log.retention.ms", "9")]
        assert [(c["name"], c["value"]) for c in of_default["configs"]] == [("log.retention.ms", "9")]
        assert [(c["value"], c["config_source"]) for c in own["configs"]] == [("false", 4)]
        assert (missing["error_code"], bad["error_code"]) == (3, 17)

    play(scenario)


def test_unclean_election_switched_on_for_the_cluster_wakes_leaderless_partitions(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        await create(cluster, {"name": "t", **manual((1, 2))})
        state = json.loads(await cluster.read("/brokers/topics/t/partitions/0/state"))
        (written,) = await cluster.zk(
            SetData("/brokers/topics/t/partitions/0/state", json.dumps({**state, "isr": [1]}).encode())
        )
        assert written.ok
        await cluster.unregister(1)
        await cluster.world.sleep(1)
        leader = json.loads(await cluster.read("/brokers/topics/t/partitions/0/state"))["leader"]
        assert leader == -1
        edit = {"name": "unclean.leader.election.enable", "config_operation": 0, "value": "true"}
        resource = {"resource_type": 4, "resource_name": "", "configs": [edit]}
        await cluster.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
        await cluster.world.sleep(1)
        leader = json.loads(await cluster.read("/brokers/topics/t/partitions/0/state"))["leader"]
        assert leader == 2

    play(scenario, brokers=2)


def test_metadata_names_the_controller_and_creates_topics(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        first = await cluster.ask(ApiKey.METADATA, 9, {"topics": [{"name": "auto"}, {"name": "b@d"}],
                                                       "allow_auto_topic_creation": True})  # fmt: skip
        assert [t["error_code"] for t in first["topics"]] == [5, 17]
        await cluster.world.sleep(1)
        again = await cluster.ask(ApiKey.METADATA, 0, {"topics": []})
        assert [t["name"] for t in again["topics"]] == ["auto"]
        unasked = {"topics": [{"name": "no"}], "allow_auto_topic_creation": False}
        none = await cluster.ask(ApiKey.METADATA, 9, unasked)
        assert none["topics"][0]["error_code"] == 3
        assert (none["controller_id"], len(none["cluster_id"])) == (100, 22)
        assert [(b["node_id"], b["host"]) for b in none["brokers"]] == [
            (1, "broker-1"), (2, "broker-2"), (3, "broker-3"), (100, "controller")]  # fmt: skip
        described = await cluster.ask(ApiKey.DESCRIBE_CLUSTER, 0, {})
        assert (described["controller_id"], [b["broker_id"] for b in described["brokers"]]) == (100, [1, 2, 3, 100])
        controllers = await cluster.ask(ApiKey.DESCRIBE_CLUSTER, 1, {"endpoint_type": 2})
        assert (controllers["controller_id"], [b["broker_id"] for b in controllers["brokers"]]) == (100, [100])
        assert controllers["endpoint_type"] == 2
        stranger = await cluster.ask(ApiKey.DESCRIBE_CLUSTER, 1, {"endpoint_type": 3})
        assert stranger["error_code"] == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        nothing = await cluster.ask(ApiKey.METADATA, 1, {"topics": []})
        assert nothing["topics"] == []

    play(scenario)


def test_clients_that_take_the_controller_for_a_broker_are_helped(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        group = {"key": "my-group", "key_type": 0}
        await create(cluster, topic("__consumer_offsets", 8))
        await cluster.world.sleep(2)
        found = await cluster.ask(ApiKey.FIND_COORDINATOR, 3, group)
        leader = cluster.controller.state.leadership(("__consumer_offsets", group_partition("my-group", 8))).leader
        assert (found["error_code"], found["node_id"], found["host"]) == (0, leader, f"broker-{leader}")
        transaction = await cluster.ask(ApiKey.FIND_COORDINATOR, 1, {"key": "t", "key_type": 1})
        assert transaction["error_code"] == 53, "an answer that clients take for final"
        ids = [
            (await cluster.ask(ApiKey.INIT_PRODUCER_ID, 3, {"transactional_id": None}))["producer_id"] for _ in range(2)
        ]
        assert ids == [0, 1]
        block = json.loads(await cluster.read("/latest_producer_id_block"))
        assert (block["broker"], block["block_start"], block["block_end"]) == (100, "0", "999")
        refused = await cluster.ask(ApiKey.INIT_PRODUCER_ID, 3, {"transactional_id": "x"})
        assert (refused["error_code"], refused["producer_id"]) == (53, -1)
        assert (await cluster.ask(ApiKey.LIST_GROUPS, 3, {}))["groups"] == []
        dirs = (await cluster.ask(ApiKey.DESCRIBE_LOG_DIRS, 2, {"topics": None}))["results"]
        assert [(row["error_code"], row["topics"]) for row in dirs] == [(0, [])], "no row is a failure"

    play(scenario)


def test_the_groups_topic_is_left_to_brokers(play: Play) -> None:
    """They count its partitions by their own `offsets.topic.num.partitions`, once, when they start."""

    async def scenario(cluster: Any) -> None:
        wanted = {"topics": [{"name": "__consumer_offsets"}], "allow_auto_topic_creation": True}
        metadata = await cluster.ask(ApiKey.METADATA, 9, wanted)
        assert metadata["topics"][0]["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        found = await cluster.ask(ApiKey.FIND_COORDINATOR, 3, {"key": "my-group", "key_type": 0})
        assert (found["error_code"], found["node_id"]) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
        await cluster.world.sleep(2)
        assert not cluster.controller.state.topic_assignment("__consumer_offsets")

    play(scenario, settings={"offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1"})


@pytest.mark.parametrize(
    ("group", "partition"),
    [("my-group", 12), ("test", 48), ("group", 47), ("console-consumer", 40), ("g1", 42), ("connect-cluster", 13),
     ("", 0)],
)  # fmt: skip
def test_groups_live_where_java_hashes_them(group: str, partition: int) -> None:
    assert group_partition(group, 50) == partition


#: request -> body and how the refusal shows when another process holds the office.
INACTIVE: list[tuple[ApiKey, int, dict[str, Any], Callable[[Any], int], ErrorCode]] = [
    (ApiKey.CREATE_TOPICS, 5, {"topics": [topic("t")], "timeout": 1},
     lambda a: a["topics"][0]["error_code"], ErrorCode.NOT_CONTROLLER),
    (ApiKey.DELETE_TOPICS, 4, {"topic_names": ["t"], "timeout": 1},
     lambda a: a["responses"][0]["error_code"], ErrorCode.NOT_CONTROLLER),
    (ApiKey.CREATE_PARTITIONS, 2, {"topics": [{"name": "t", "count": 2, "assignments": None}], "timeout": 1},
     lambda a: a["results"][0]["error_code"], ErrorCode.NOT_CONTROLLER),
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"topics": [], "timeout": 1},
     lambda a: a["error_code"], ErrorCode.NOT_CONTROLLER),
    (ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"topics": None, "timeout": 1},
     lambda a: a["error_code"], ErrorCode.NOT_CONTROLLER),
    (ApiKey.ELECT_LEADERS, 2, {"topic_partitions": [{"topic": "t", "partitions": [0]}], "timeout": 1},
     lambda a: a["replica_election_results"][0]["partition_result"][0]["error_code"], ErrorCode.NOT_CONTROLLER),
    (ApiKey.CONTROLLED_SHUTDOWN, 3, {"broker_id": 1, "broker_epoch": 1},
     lambda a: a["error_code"], ErrorCode.STALE_CONTROLLER_EPOCH),
]  # fmt: skip


def test_a_standby_refuses_and_names_the_controller(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        standby = cluster.make(200, "standby")
        await cluster.world.machine("standby").run(standby.start())
        await cluster.world.sleep(1)
        for key, version, body, code, expected in INACTIVE:
            assert code(await cluster.ask(key, version, body, host="standby")) == expected, key.name
        metadata = await cluster.ask(ApiKey.METADATA, 9, {"topics": [{"name": "t"}]}, host="standby")
        assert (metadata["controller_id"], metadata["topics"][0]["error_code"]) == (100, 5)
        await cluster.world.machine("standby").run(standby.stop())

    play(scenario, brokers=1)


def test_a_standby_takes_over_when_the_controller_ends(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        standby = cluster.make(200, "standby")
        await cluster.world.machine("standby").run(standby.start())
        await create(cluster, topic("t"))
        await cluster.machine.run(cluster.controller.stop())
        await cluster.world.until(lambda: standby.state.serving, within_s=5, what="the standby is in office")
        answer = await cluster.ask(ApiKey.METADATA, 9, {"topics": [{"name": "t"}]}, host="standby")
        assert (answer["controller_id"], answer["topics"][0]["partitions"][0]["error_code"]) == (200, 0)
        await cluster.world.machine("standby").run(standby.stop())

    play(scenario, brokers=1)


def test_a_lost_session_is_replaced_and_the_office_won_again(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        await create(cluster, topic("t"))
        controller = cluster.controller
        for _ in range(2):
            epoch = controller.state.epoch
            cluster.world.zookeeper.expire_session(controller.state.session_id)
            await cluster.world.until(
                lambda epoch=epoch: controller.state.serving and controller.state.epoch > epoch,
                within_s=10,
                what="the office is won again",
            )
        (answer,) = await create(cluster, topic("u"))
        assert answer["error_code"] == 0

    play(scenario, brokers=1)


def test_answers_wait_neither_for_a_lost_office_nor_for_ever(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        before = cluster.world.loop.time()
        waiting = cluster.world.loop.create_task(create(cluster, {"name": "dead", **manual((9,))}, timeout=50_000))
        await cluster.world.sleep(1)
        other = b'{"version":2,"brokerid":77,"timestamp":"0","kraftControllerEpoch":-1}'
        await cluster.zk(Multi((Delete("/controller"), Create("/controller", other, ephemeral=True))))
        (answer,) = await waiting
        assert answer["error_code"] == ErrorCode.REQUEST_TIMED_OUT
        assert cluster.world.loop.time() - before < 10

    play(scenario, brokers=1)


def test_every_api_has_a_refusal(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        answer = await cluster.ask(ApiKey.API_VERSIONS, 2, {})
        offered = {(r["api_key"], r["min_version"], r["max_version"]) for r in answer["api_keys"]}
        assert offered == {(int(key), *api.versions) for key, api in APIS.items()}

    play(scenario, brokers=0)
