"""Idempotent producers over the wire: what is stored once, what is refused, over new leaders and restarts."""

from __future__ import annotations

import asyncio
from typing import Any

from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.records import Record, build_batch, iterate
from controller.wire.types import TopicPartition

OUT_OF_ORDER, FENCED = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH


def body(cluster: Any, sequence: int, *, producer: int = 7, epoch: int = 0) -> dict[str, Any]:
    """One record of now: a producer whose records are old is forgotten."""
    now_ms = cluster.brokers[1].clock.now_ms()
    records = [Record(0, now_ms, b"k", f"{producer}/{epoch}/{sequence}".encode())]
    batch = build_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    return {
        "acks": -1,
        "timeout": 5000,
        "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": batch}]}],
    }


async def produce(cluster: Any, broker: int, *what: Any, **how: Any) -> tuple[ErrorCode, int]:
    answer = await cluster.call(broker, ApiKey.PRODUCE, 8, body(cluster, *what, **how))
    partition = answer.responses[0].partition_responses[0]
    return ErrorCode(partition.error_code), partition.base_offset


def stored(cluster: Any, broker: int) -> list[str]:
    batches = cluster.brokers[broker].context.replicas.read_records(TopicPartition("t", 0))
    return [record.value.decode() for batch in batches for record in iterate(batch)]


def test_five_in_flight_are_stored_once_however_often_they_are_sent(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        for broker in (1, 2):
            await cluster.start(broker)
        await cluster.create_topic("t", [(1, 2)])
        connection = await cluster.connect(1)
        calls = [connection.call(ApiKey.PRODUCE, 8, body(cluster, n)) for n in range(5)]
        first = await asyncio.gather(*calls)
        again = await asyncio.gather(*(connection.call(ApiKey.PRODUCE, 8, body(cluster, n)) for n in range(5)))
        for answers in (first, again):
            found = [answer.responses[0].partition_responses[0] for answer in answers]
            assert [(p.error_code, p.base_offset) for p in found] == [(0, n) for n in range(5)]
        assert await produce(cluster, 1, 5) == (ErrorCode.NONE, 5)
        assert await produce(cluster, 1, 0) == (OUT_OF_ORDER, -1)  # the sixth back is forgotten
        assert await produce(cluster, 1, 7) == (OUT_OF_ORDER, -1)
        assert stored(cluster, 1) == [f"7/0/{n}" for n in range(6)]

    in_memory(scenario)


def test_a_new_leader_knows_what_the_old_one_stored(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        for broker in (1, 2):
            await cluster.start(broker)
        await cluster.create_topic("t", [(1, 2)])
        for sequence in range(3):
            await produce(cluster, 1, sequence)
        await cluster.create_topic("t", [(2, 1)], leader_epoch=1, is_new=False)
        assert await produce(cluster, 2, 2) == (ErrorCode.NONE, 2)
        assert await produce(cluster, 2, 4) == (OUT_OF_ORDER, -1)
        assert await produce(cluster, 2, 3) == (ErrorCode.NONE, 3)
        assert await produce(cluster, 2, 0, epoch=1) == (ErrorCode.NONE, 4)
        assert await produce(cluster, 2, 4, epoch=0) == (FENCED, -1)
        assert await produce(cluster, 2, 5, epoch=3) == (OUT_OF_ORDER, -1)
        assert await produce(cluster, 2, 9, producer=8) == (ErrorCode.NONE, 5)  # unknown: any sequence
        await cluster.create_topic("t", [(1, 2)], leader_epoch=2, is_new=False)
        assert await produce(cluster, 1, 0, epoch=1) == (ErrorCode.NONE, 4)
        assert await produce(cluster, 1, 10, producer=8) == (ErrorCode.NONE, 6)
        wanted = ["7/0/0", "7/0/1", "7/0/2", "7/0/3", "7/1/0", "8/0/9", "8/0/10"]
        assert stored(cluster, 1) == wanted
        await cluster.world.sleep(2)
        assert stored(cluster, 2) == wanted

    in_memory(scenario)


def test_a_restarted_broker_knows_what_it_stored(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        for epoch, clean in enumerate((True, False), start=1):
            broker = await cluster.start(1, controlled_shutdown_retry_backoff_ms=10)
            if epoch == 1:
                await cluster.create_topic("t", [(1,)])
                for sequence in range(8):
                    await produce(cluster, 1, sequence)
            else:
                await cluster.create_topic("t", [(1,)], leader_epoch=1, is_new=False)
                assert await produce(cluster, 1, 7) == (ErrorCode.NONE, 7)
                assert await produce(cluster, 1, 8) == (ErrorCode.NONE, 8)
            if clean:
                await cluster.in_broker(1, broker.stop())
            else:
                cluster.machine(1).kill()
                broker.context.replicas.abandon()
        await cluster.world.sleep(60)  # the killed one's session ends
        await cluster.start(1)
        await cluster.create_topic("t", [(1,)], leader_epoch=2, is_new=False)
        assert await produce(cluster, 1, 8) == (ErrorCode.NONE, 8)
        assert await produce(cluster, 1, 10) == (OUT_OF_ORDER, -1)
        assert await produce(cluster, 1, 9) == (ErrorCode.NONE, 9)
        assert stored(cluster, 1) == [f"7/0/{n}" for n in range(10)]

    in_memory(scenario)


def test_who_wrote_nothing_for_long_is_forgotten(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1, producer_id_expiration_ms=60_000, connections_max_idle_ms=-1)
        await cluster.create_topic("t", [(1,)])
        await produce(cluster, 1, 0)
        assert (await produce(cluster, 1, 5))[0] is OUT_OF_ORDER
        await cluster.world.sleep(20 * 60)
        assert (await produce(cluster, 1, 5))[0] is ErrorCode.NONE

    in_memory(scenario)
