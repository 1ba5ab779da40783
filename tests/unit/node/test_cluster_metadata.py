"""Metadata as the controller gives it: which replicas are offline, and what older clients are told in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from controller.core.events import LeaderAndIsrResponseReceived
from controller.node.requests.table import APIS
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, TopicPartition

Play = Callable[..., list[Any]]
TELLS_OFFLINE, NEWEST = 5, APIS[ApiKey.METADATA].versions[1]
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
PLACED = {T0: (1, 2, 3), T1: (2, 3, 1), U0: (3,)}


async def create(cluster: Any, topic: str) -> None:
    """As it is placed."""
    replicas = [{"partition_index": tp.partition, "broker_ids": ids} for tp, ids in PLACED.items() if tp.topic == topic]
    row = {"name": topic, "num_partitions": -1, "replication_factor": -1, "assignments": replicas}
    answer = await cluster.ask(ApiKey.CREATE_TOPICS, 5, {"topics": [row], "timeout": 5_000})
    assert answer["topics"][0]["error_code"] == 0


async def nothing_fails(cluster: Any) -> None:
    """As it is."""


async def a_dir_fails(cluster: Any) -> None:
    """Of the replica of t-0 on 2, by what 2 answers."""
    errors = {T0: ErrorCode.KAFKA_STORAGE_ERROR, T1: ErrorCode.NONE}
    cluster.controller.loop.put(LeaderAndIsrResponseReceived(BrokerId(2), ErrorCode.NONE, errors))
    await cluster.world.sleep(1)


async def shuts_down(cluster: Any, number: int = 3) -> None:
    """It has said so, and is there still."""
    epoch = cluster.controller.state.live_brokers[number].broker_epoch
    asked = {"broker_id": number, "broker_epoch": epoch}
    assert (await cluster.ask(ApiKey.CONTROLLED_SHUTDOWN, 3, asked))["error_code"] == 0
    await cluster.world.sleep(1)


async def dies(cluster: Any) -> None:
    """Broker 3."""
    await cluster.unregister(3)
    await cluster.world.sleep(1)


async def all_at_once(cluster: Any) -> None:
    """1 shuts down, a directory of 2 fails, 3 is dead."""
    await dies(cluster)
    await a_dir_fails(cluster)
    await shuts_down(cluster, 1)


#: what happens -> which replicas of t-0, t-1 and u-0 are offline, and which brokers are gone
EVENTS: list[tuple[Callable[[Any], Any], list[list[int]], set[int]]] = [
    (nothing_fails, [[], [], []], set()),
    (a_dir_fails, [[2], [], []], set()),
    (shuts_down, [[3], [3], [3]], set()),
    (dies, [[3], [3], [3]], {3}),
    (all_at_once, [[1, 2, 3], [3, 1], [3]], {3}),
]


def told_of(cluster: Any, tp: TopicPartition, version: int, gone: set[int]) -> tuple[int, int, list[int]]:
    """Error, leader and replicas."""
    leader = cluster.controller.state.leadership(tp).leader
    replicas = [replica for replica in PLACED[tp] if version > 0 or replica not in gone]
    if leader is None or leader in gone:
        return ErrorCode.LEADER_NOT_AVAILABLE, -1, replicas
    return (ErrorCode.NONE if len(replicas) == len(PLACED[tp]) else ErrorCode.REPLICA_NOT_AVAILABLE), leader, replicas


@pytest.mark.parametrize(("happens", "offline", "gone"), EVENTS, ids=[row[0].__name__ for row in EVENTS])
def test_which_replicas_are_offline_is_told_in_every_version_that_can(
    play: Play, happens: Any, offline: list[list[int]], gone: set[int]
) -> None:
    """Those of brokers that are gone, or shut down, and those in failed log directories. In version 0 the lists hold
    live brokers only, and an error says that some are missing."""

    async def scenario(cluster: Any) -> None:
        await create(cluster, "t")
        await create(cluster, "u")
        await happens(cluster)
        for version in range(NEWEST + 1):
            answer = await cluster.ask(ApiKey.METADATA, version, {"topics": [{"name": "t"}, {"name": "u"}]})
            assert [broker["node_id"] for broker in answer["brokers"]] == sorted({1, 2, 3, 100} - gone), version
            partitions = [partition for topic in answer["topics"] for partition in topic["partitions"]]
            told = [partition.get("offline_replicas", []) for partition in partitions]
            assert told == (offline if version >= TELLS_OFFLINE else [[], [], []]), version
            found = [(p["error_code"], p["leader_id"], p["replica_nodes"]) for p in partitions]
            assert found == [told_of(cluster, tp, version, gone) for tp in PLACED], version
            left = [member for p in partitions for member in p["isr_nodes"] if member in gone]
            assert left == ([] if version == 0 or not gone else [3]), "who was last in sync"

    play(scenario)


def partition_of(number: int, leader: int, replicas: list[int], isr: list[int], **more: Any) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.NONE,
        "partition_index": number,
        "leader_id": leader,
        "leader_epoch": 0,
        "replica_nodes": replicas,
        "isr_nodes": isr,
        "offline_replicas": [],
        **more,
    }


def topic_of(name: str, *partitions: dict[str, Any], is_internal: bool = False) -> dict[str, Any]:
    return {
        "name": name,
        "error_code": ErrorCode.NONE,
        "is_internal": is_internal,
        "partitions": list(partitions),
        "topic_authorized_operations": UNSET,
    }


UNSET, GONE = -(2**31), 4
BROKERS = [(1, "broker-1", 9092, "r1"), (2, "broker-2", 9092, "r2"), (100, "controller", 9090, None)]
#: topic -> replicas of its partitions; the third never has a leader
LED = {"z": [[1, 2], [2, 1], [2, GONE]], "__consumer_offsets": [[2]], "unled": [[GONE]]}
TOPICS = [
    topic_of("__consumer_offsets", partition_of(0, 2, [2], [2]), is_internal=True),
    topic_of("z", partition_of(0, 1, [1, 2], [1, 2]), partition_of(1, 2, [2, 1], [2, 1]),
             partition_of(2, 2, [2, GONE], [2], offline_replicas=[GONE])),
]  # fmt: skip
FAILED: dict[str, ErrorCode] = {"none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "b@d": ErrorCode.INVALID_TOPIC_EXCEPTION,
                                "unled": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}  # fmt: skip


def places(rows: list[dict[str, Any]], of_id: str) -> list[tuple[Any, ...]]:
    return [(row[of_id], row["host"], row["port"], row["rack"]) for row in rows]


async def with_topics(cluster: Any) -> None:
    """Topics as in `LED`, at brokers 1 and 2."""
    await cluster.register(2, rack="r2")
    await cluster.register(1, rack="r1")
    for name, lists in LED.items():
        replicas = [{"partition_index": p, "broker_ids": ids} for p, ids in enumerate(lists)]
        row = {"name": name, "num_partitions": -1, "replication_factor": -1, "assignments": replicas}
        await cluster.ask(ApiKey.CREATE_TOPICS, 5, {"topics": [row], "timeout": 200})


def test_the_whole_of_the_metadata(play: Play) -> None:
    """Of all topics in the order of their names, of those named in the order of the request, each once."""

    async def scenario(cluster: Any) -> None:
        await with_topics(cluster)
        names = ["z", "b@d", "none", "z", "unled", "__consumer_offsets"]
        asked = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}
        every = await cluster.ask(ApiKey.METADATA, 9, {"topics": None})
        named = await cluster.ask(ApiKey.METADATA, 9, asked)
        for answer in (every, named):
            assert (answer["controller_id"], answer["cluster_authorized_operations"]) == (100, UNSET)
            assert places(answer["brokers"], "node_id") == BROKERS
        assert every["topics"] == TOPICS
        offsets, of_z = TOPICS
        failed = {name: {**topic_of(name), "error_code": code} for name, code in FAILED.items()}
        assert named["topics"] == [of_z, failed["b@d"], failed["none"], failed["unled"], offsets]
        oldest = await cluster.ask(ApiKey.METADATA, 0, {"topics": [{"name": "z"}]})
        rows = [(p["error_code"], p["replica_nodes"], p["isr_nodes"]) for p in oldest["topics"][0]["partitions"]]
        assert rows == [(0, [1, 2], [1, 2]), (0, [2, 1], [2, 1]), (ErrorCode.REPLICA_NOT_AVAILABLE, [2], [2])]
        for asked_for, brokers in ((1, BROKERS), (2, BROKERS[2:])):
            described = await cluster.ask(ApiKey.DESCRIBE_CLUSTER, 1, {"endpoint_type": asked_for})
            assert places(described.pop("brokers"), "broker_id") == brokers
            same = {name: every[name] for name in ("cluster_id", "controller_id", "cluster_authorized_operations")}
            none = {"throttle_time": 0, "error_code": 0, "error_message": None}
            assert described == {**same, **none, "endpoint_type": asked_for}

    play(scenario, brokers=0)


@pytest.mark.parametrize(("is_enabled", "version", "allowed", "is_made"), [
    (True, 3, False, True), (True, 4, False, False), (True, 4, True, True), (False, 3, False, False),
    (False, 4, True, False),
])  # fmt: skip
def test_a_topic_is_made_where_both_client_and_settings_allow_it(
    play: Play, is_enabled: bool, version: int, allowed: bool, is_made: bool
) -> None:
    """Clients that cannot say whether do allow it. One that is there already, or made, gets its leaders soon."""

    async def scenario(cluster: Any) -> None:
        await with_topics(cluster)
        names = ["none", "b@d", "unled", "__consumer_offsets"]
        asked = {"topics": [{"name": name} for name in names]}
        more = {"allow_auto_topic_creation": allowed} if version > 3 else {}
        answer = await cluster.ask(ApiKey.METADATA, version, {**asked, **more})
        made = ErrorCode.LEADER_NOT_AVAILABLE
        codes = {**FAILED, **({"none": made, "unled": made} if is_made else {}), "__consumer_offsets": ErrorCode.NONE}
        assert {topic["name"]: topic["error_code"] for topic in answer["topics"]} == {n: codes[n] for n in names}
        assert (await cluster.read("/brokers/topics/none") is not None) == is_made

    play(scenario, brokers=0, settings={"auto.create.topics.enable": str(is_enabled).lower()})
