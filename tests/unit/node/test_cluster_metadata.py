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

    play(scenario)
