"""Who waits for replicas waits for what is its own: of each partition, of each batch."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker_sim.replicas.types import FetchPartition
from controller.wire.errors import ErrorCode
from controller.wire.records import Record, build_batch
from controller.wire.types import TopicPartition
from tests.worlds.replicas import Cluster

TP = TopicPartition("t", 0)


def test_what_is_sent_twice_waits_for_itself_and_not_for_what_came_after_it(
    cluster_of: type[Cluster], tmp_path: Path
) -> None:
    async def scenario(cluster: Cluster) -> None:
        def send(sequence: int) -> Any:
            record = Record(0, cluster.world.clock.now_ms(), b"k", b"v")
            data = build_batch([record], producer_id=7, producer_epoch=0, base_sequence=sequence)
            return asyncio.ensure_future(
                cluster.nodes[1].manager.producing.produce({TP: data}, acks=-1, timeout_ms=60_000)
            )

        cluster.appoint(TP, 1, (1, 2), (1, 2), is_new=True)
        assert (await send(0))[TP].error is ErrorCode.NONE
        cluster.nodes[2].paused.add(TP)
        await cluster.world.sleep(1)
        waiting = [send(sequence) for sequence in (1, 1, 0)]
        await cluster.world.sleep(1)
        assert [each.done() for each in waiting] == [False, False, True]
        cluster.nodes[2].paused.discard(TP)
        answers = [(await each)[TP] for each in waiting]
        assert [(each.error, each.base_offset) for each in answers] == [(ErrorCode.NONE, n) for n in (1, 1, 0)]

    cluster_of.run(tmp_path, scenario, brokers=(1, 2))


@pytest.mark.parametrize("what", ["records", "their deletion"])
@pytest.mark.parametrize(("order", "comes"), [((0, 1), 2), ((1, 0), 2), ((1, 0), 1)])
def test_who_waits_for_several_partitions_hears_of_each(
    cluster_of: type[Cluster], tmp_path: Path, what: str, order: tuple[int, int], comes: int
) -> None:
    """The last of them comes, or does not within the time."""

    async def scenario(cluster: Cluster) -> None:
        partitions = [TopicPartition("t", number) for number in range(2)]
        manager = cluster.nodes[1].manager
        for tp in partitions:
            cluster.appoint(tp, 1, (1, 2), (1, 2), is_new=True)
            await cluster.produce(tp, 1, acks=-1)
        await cluster.world.sleep(1)
        cluster.nodes[2].paused.update(partitions)
        await cluster.world.sleep(1)
        waits: Any = (
            manager.producing.produce({tp: cluster.batch([b"v"]) for tp in partitions}, acks=-1, timeout_ms=10_000)
            if what == "records"
            else manager.offsets.delete_records(dict.fromkeys(partitions, 1), timeout_ms=10_000)
        )
        waiting = asyncio.ensure_future(waits)
        for number in order[:comes]:
            await cluster.world.sleep(2)
            assert not waiting.done()
            cluster.nodes[2].paused.discard(partitions[number])
        await cluster.world.sleep(2)
        assert waiting.done() is (comes == 2)
        found = await waiting
        late = [partitions[number] for number in order[comes:]]
        assert [tp for tp in partitions if found[tp].error is ErrorCode.REQUEST_TIMED_OUT] == late
        assert [tp for tp in partitions if found[tp].error is ErrorCode.NONE] == [
            tp for tp in partitions if tp not in late
        ]

    cluster_of.run(tmp_path, scenario, brokers=(1, 2))


def test_a_deletion_that_is_late_tells_the_low_watermark_of_its_beginning(
    cluster_of: type[Cluster], tmp_path: Path
) -> None:
    """Source: Kafka 3.9 `DelayedDeleteRecords`, which sets it again only when the deletion is done."""

    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, (1, 2), (1, 2), is_new=True)
        await cluster.produce(TP, 1, [b"v"] * 3, acks=-1)
        cluster.nodes[2].paused.add(TP)
        await cluster.world.sleep(1)
        manager, partition = cluster.nodes[1].manager, cluster.nodes[1].partition(TP)
        waiting = asyncio.ensure_future(manager.offsets.delete_records({TP: 3}, timeout_ms=2_000))
        await cluster.world.sleep(1)
        position = FetchPartition(fetch_offset=3, max_bytes=1, current_leader_epoch=0, log_start_offset=2)
        now_ms = manager.table.now_ms()
        partition.record_fetch(2, position, returned_bytes=0, throttled=False, error=ErrorCode.NONE, now_ms=now_ms)
        assert partition.low_watermark() == 2
        late = (await waiting)[TP]
        assert (late.error, late.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, 0)

    cluster_of.run(tmp_path, scenario, brokers=(1, 2))
