"""Whoever is the first to meet a disk that has failed is told so, and its log dir is given up; the others go on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from broker_sim.replicas.offsets import OffsetQuestion
from broker_sim.replicas.produce_and_fetch import FetchRequest
from broker_sim.replicas.types import MAX_TIMESTAMP, FetchPartition
from controller.wire.errors import ErrorCode
from controller.wire.types import TopicPartition
from tests.worlds.replicas import Cluster

TP, OTHER = TopicPartition("t", 0), TopicPartition("u", 0)
OFFLINE: Final = ErrorCode.KAFKA_STORAGE_ERROR


async def fetch(cluster: Cluster, *, offset: int = 0, **asked: Any) -> ErrorCode:
    partitions = {TP: FetchPartition(offset, 1 << 20, -1, 0)}
    request = FetchRequest(partitions=partitions, min_bytes=1, max_bytes=1 << 20, **asked)
    return (await cluster.nodes[1].manager.fetching.fetch(request))[TP].error


async def list_offset(cluster: Cluster, timestamp: int) -> ErrorCode:
    question = OffsetQuestion(timestamp=timestamp, version=7)
    return cluster.nodes[1].manager.offsets.list_offset(TP, question).error


async def delete_records(cluster: Cluster) -> ErrorCode:
    answer = await cluster.nodes[1].manager.offsets.delete_records({TP: 1}, timeout_ms=1_000)
    return answer[TP].error


async def own(cluster: Cluster) -> ErrorCode:
    return cluster.nodes[1].manager.producing.append_own(TP, cluster.batch([b"v"]))


async def new_epoch(cluster: Cluster) -> ErrorCode:
    code: ErrorCode = cluster.appoint(TP, 1, (1, 2), (1, 2), to=(1,))[1]
    return code


async def follow(cluster: Cluster) -> ErrorCode:
    """It has no answer to give: its log ends sooner than that of its leader."""
    cluster.nodes[2].paused.add(TP)
    cluster.appoint(TP, 2, (1, 2), (1, 2))
    await cluster.produce(TP, 2)
    await cluster.world.sleep(2)
    return (await cluster.produce(TP, 1)).error


async def stop(cluster: Cluster) -> ErrorCode:
    code: ErrorCode = cluster.stop_replica(TP, 1, delete=True)
    return code


async def put_aside(cluster: Cluster) -> ErrorCode:
    manager = cluster.nodes[1].manager
    folder = manager.put_aside(TP)
    return OFFLINE if folder is None and manager.table.dirs.any_offline else ErrorCode.NONE


#: who asks -> what it is told
WHO: dict[str, Callable[[Cluster], Awaitable[ErrorCode]]] = {
    "a producer": lambda cluster: _error(cluster.produce(TP, 1)),
    "a producer that waits for all": lambda cluster: _error(cluster.produce(TP, 1, acks=-1)),
    "the coordinator": own,
    "a consumer": lambda cluster: fetch(cluster, max_wait_ms=0),
    "a consumer that waits": lambda cluster: fetch(cluster, max_wait_ms=500),
    "a follower": lambda cluster: fetch(cluster, max_wait_ms=500, replica_id=2),
    "who looks for a time": lambda cluster: list_offset(cluster, 0),
    "who looks for the newest": lambda cluster: list_offset(cluster, MAX_TIMESTAMP),
    "who deletes records": delete_records,
    "the controller, with a new epoch": new_epoch,
    "the controller, which deletes the replica": stop,
    "its own fetcher": follow,
    "who puts a replica of nobody aside": put_aside,
}


#: who waits for the partition when its disk fails
WAITING: dict[str, Callable[[Cluster], Awaitable[ErrorCode]]] = {
    "a producer": lambda cluster: _error(cluster.produce(TP, 1, acks=-1, timeout_ms=60_000)),
    "a consumer": lambda cluster: fetch(cluster, offset=2, max_wait_ms=60_000),
}


async def _error(work: Awaitable[Any]) -> ErrorCode:
    code: ErrorCode = (await work).error
    return code


@pytest.mark.parametrize("who", WHO)
def test_the_first_to_meet_a_failed_disk_is_told_and_the_dir_is_given_up(tmp_path: Path, who: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        for tp in (TP, OTHER):
            cluster.appoint(tp, 1, (1, 2), (1, 2), is_new=True)
            for _ in range(2):
                await cluster.produce(tp, 1, acks=-1)
        node = cluster.nodes[1]
        failing = str(node.partition(TP).log.log_dir)
        assert failing != str(node.partition(OTHER).log.log_dir)

        def broken(operation: str, path: Path) -> None:
            if str(path).startswith(failing):
                raise OSError(5, "Input/output error")

        cluster.nodes[2].paused.add(TP)
        waiting = {name: asyncio.ensure_future(wait(cluster)) for name, wait in WAITING.items()}
        await cluster.world.sleep(0.1)
        assert not any(request.done() for request in waiting.values())
        node.manager.table.dirs.files.before = broken
        assert await WHO[who](cluster) is OFFLINE
        await cluster.world.sleep(0.01)
        assert [name for name, request in waiting.items() if not request.done()] == [], "nobody waits for it any more"
        assert ErrorCode.NONE not in {request.result() for request in waiting.values()}
        assert node.failed_dirs == [failing], "the controller is told of it, once"
        is_hosted = WHO[who] not in (stop, put_aside)
        assert is_hosted or TP in node.no_longer_led, "its groups, say, go with it"
        epoch = 1 if WHO[who] is follow else 0
        stops = [(row["topic"], row["epoch"], row["value"]) for row in cluster.rows(1) if row["ev"] == "stop"]
        assert stops == [("t", epoch, "keep" if is_hosted else "delete")], "it is told in the trace, once"
        assert (await cluster.produce(TP, 1)).error is (OFFLINE if is_hosted else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert (await cluster.produce(OTHER, 1)).error is ErrorCode.NONE
        assert node.failed_dirs == [failing]

    Cluster.run(tmp_path, scenario, brokers=(1, 2), dirs=("a", "b"))
