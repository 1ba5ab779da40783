"""How much a fetch returns and when one that waits has enough, against plain arithmetic on the batches there are."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from broker_sim.replicas.produce_and_fetch import FetchRequest
from broker_sim.replicas.types import FetchPartition
from controller.wire.records import batches
from controller.wire.types import TopicPartition
from tests.worlds.replicas import Cluster

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
#: batches of each partition
COUNTS = (3, 0, 2)
EVERYTHING = 1 << 20


def expected(size: int, *, each: int, in_all: int, has_first: bool) -> list[int]:
    """Batches per partition: as many as fit its limit and what is left of that of all; of the first with any, one."""
    found, left, needs_first = [], in_all, has_first
    for count in COUNTS:
        taken = min(count, min(each, left) // size)
        taken = max(taken, 1) if needs_first and count else taken
        needs_first = needs_first and not taken
        left = max(0, left - taken * size)
        found.append(taken)
    return found


@pytest.mark.parametrize("replica_id", [-1, 2], ids=["a consumer", "a follower"])
def test_a_fetch_keeps_to_every_limit(cluster_of: type[Cluster], tmp_path: Path, replica_id: int) -> None:
    """Those of the partition, of the request and of the broker; from version 3 on one batch comes all the same."""

    async def scenario(cluster: Cluster) -> None:
        table, size = cluster.nodes[1].manager.table, len(cluster.batch([b"x" * 1000]))
        for tp, count in zip(PARTITIONS, COUNTS, strict=True):
            cluster.appoint(tp, 1, (1,), (1, 2), is_new=True)
            for _ in range(count):
                await cluster.produce(tp, 1, [b"x" * 1000])
        bounds = [1, size - 1, size, int(2.5 * size), 4 * size, EVERYTHING]
        for each, in_all, of_broker, version in itertools.product(bounds, bounds, bounds, (2, 3, 11)):
            table.settings = replace(table.settings, fetch_max_bytes=of_broker)
            request = FetchRequest(
                partitions={tp: FetchPartition(fetch_offset=0, max_bytes=each) for tp in PARTITIONS},
                max_wait_ms=0, min_bytes=1, max_bytes=in_all, version=version, replica_id=replica_id,
            )  # fmt: skip
            results = await cluster.nodes[1].manager.fetching.fetch(request)
            got = [len(list(batches(result.records))) for result in results.values()]
            wanted = expected(size, each=each, in_all=min(in_all, of_broker), has_first=version >= 3)
            assert got == wanted, (each, in_all, of_broker, version)

    cluster_of.run(tmp_path, scenario, brokers=(1,))


@pytest.mark.parametrize("replica_id", [-1, 2], ids=["a consumer", "a follower"])
def test_a_fetch_waits_for_enough_in_all_its_partitions_together(
    cluster_of: type[Cluster], tmp_path: Path, replica_id: int
) -> None:
    async def scenario(cluster: Cluster) -> None:
        size = len(cluster.batch([b"x" * 1000]))
        for tp in PARTITIONS:
            cluster.appoint(tp, 1, (1,), (1, 2), is_new=True)
            await cluster.produce(tp, 1, [b"x" * 1000])  # the follower is known to have asked for it
        for wanted, order in itertools.product((1, 2, 3), itertools.product((0, 1, 2), repeat=3)):
            positions = {
                tp: FetchPartition(fetch_offset=cluster.nodes[1].log_end(tp), max_bytes=2 * size) for tp in PARTITIONS
            }
            request = FetchRequest(
                partitions=positions, max_wait_ms=400, min_bytes=wanted * size, max_bytes=EVERYTHING,
                replica_id=replica_id,
            )  # fmt: skip
            waiting = asyncio.ensure_future(cluster.nodes[1].manager.fetching.fetch(request))
            await cluster.world.sleep(0.001)
            has: dict[int, int] = {}
            for number in order:
                assert not waiting.done()
                await cluster.produce(PARTITIONS[number], 1, [b"x" * 1000])
                has[number] = has.get(number, 0) + 1
                await cluster.world.sleep(0.001)
                if sum(min(count, 2) for count in has.values()) >= wanted:  # more than its limit is of no use
                    break
            assert waiting.done() == (sum(min(count, 2) for count in has.values()) >= wanted), (wanted, order)
            got = [len(list(batches(result.records))) for result in (await waiting).values()]
            assert got == [min(has.get(number, 0), 2) for number in range(3)]

    cluster_of.run(tmp_path, scenario, brokers=(1,))


@pytest.mark.parametrize("limit", ["of the request", "of the broker"])
def test_nobody_waits_for_more_than_an_answer_may_have(cluster_of: type[Cluster], tmp_path: Path, limit: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        size, table, tp = len(cluster.batch([b"x" * 1000])), cluster.nodes[1].manager.table, PARTITIONS[0]
        cluster.appoint(tp, 1, (1,), (1, 2), is_new=True)
        await cluster.produce(tp, 1, [b"x" * 1000])
        await cluster.produce(tp, 1, [b"x" * 1000])
        is_request = limit == "of the request"
        table.settings = replace(table.settings, fetch_max_bytes=EVERYTHING if is_request else 2 * size)
        request = FetchRequest(
            partitions={tp: FetchPartition(fetch_offset=0, max_bytes=EVERYTHING)}, max_wait_ms=400,
            min_bytes=EVERYTHING, max_bytes=2 * size if is_request else EVERYTHING,
        )  # fmt: skip
        before_ms = cluster.world.clock.now_ms()
        results = await cluster.nodes[1].manager.fetching.fetch(request)
        assert (len(results[tp].records), cluster.world.clock.now_ms()) == (2 * size, before_ms)

    cluster_of.run(tmp_path, scenario, brokers=(1,))


@pytest.mark.parametrize(("replica_id", "offset", "is_at_once"), [(-1, 1, True), (2, 1, True), (-1, 2, False)])
def test_who_reads_a_segment_that_gets_no_more_does_not_wait_for_more(
    cluster_of: type[Cluster], tmp_path: Path, replica_id: int, offset: int, is_at_once: bool
) -> None:
    """Segments of two batches each: what is read from offset 1 on ends with the first, however much follows."""

    async def scenario(cluster: Cluster) -> None:
        size, tp = len(cluster.batch([b"x" * 1000])), PARTITIONS[0]
        cluster.appoint(tp, 1, (1,), (1, 2), is_new=True)
        for _ in range(3):
            await cluster.produce(tp, 1, [b"x" * 1000])
        request = FetchRequest(
            partitions={tp: FetchPartition(fetch_offset=offset, max_bytes=EVERYTHING)}, max_wait_ms=400,
            min_bytes=2 * size, max_bytes=EVERYTHING, replica_id=replica_id,
        )  # fmt: skip
        before_ms = cluster.world.clock.now_ms()
        results = await cluster.nodes[1].manager.fetching.fetch(request)
        assert len(results[tp].records) == size
        assert (cluster.world.clock.now_ms() == before_ms) is is_at_once

    cluster_of.run(tmp_path, scenario, brokers=(1,), log_segment_bytes=2_500)
