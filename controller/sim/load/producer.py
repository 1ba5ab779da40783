"""Producers: with acks=all or acks=1, one try per batch; or idempotent, with retries until it is acknowledged."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from controller.sim.cluster import Cluster
from controller.sim.load.ledger import Ledger, Sent
from controller.sim.load.links import CallFailed, Links
from controller.sim.shape import TOPIC
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.records import Record, build_batch

#: Pause before a retry.
RETRY_S: Final = 0.3
#: Sequences of some idempotent producers begin here, so that they wrap.
NEAR_THE_WRAP: Final = 0x7FFFFFFF - 20
#: Pauses between batches, as shares of the usual one: bursts, and quiet between them. One on average.
GAPS: Final = (0.02, 0.02, 0.02, 0.02, 0.5, 0.9, 1.5, 2.0, 5.0)
#: After so many batches a producer becomes slow: long worlds need no more of it.
DENSE_BATCHES: Final = 80
SPARSE_S: Final = 0.8
#: Answers after which the batch is not in the log, and a retry may succeed.
FINAL: Final = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNKNOWN_PRODUCER_ID}
)


class Producer:
    """`run` is a program. Values tell who sent them and when: `producer-1/2/000017`."""

    def __init__(self, cluster: Cluster, ledger: Ledger, name: str, *, acks: int = -1, idempotent: bool = False):
        assert cluster.shape is not None
        self._cluster, self._ledger, self._shape = cluster, ledger, cluster.shape
        self._name, self._acks, self._idempotent = name, acks, idempotent
        self._links = Links(cluster, name)
        self._sent: dict[int, int] = {}
        self.is_stopping = False

    async def run(self) -> None:
        """Until `is_stopping`, and what is under way has ended."""
        if self._idempotent:
            producer_id = await self._new_id()
            partitions = range(self._shape.partitions)
            await asyncio.gather(*(self._keep_sending([partition], producer_id) for partition in partitions))
        else:
            await self._keep_sending(list(range(self._shape.partitions)), -1)

    async def _keep_sending(self, partitions: list[int], producer_id: int) -> None:
        """Where a sequence breaks, its partition alone gets another id: what others still repeat keeps its own."""
        every_s = self._shape.produce_every_ms / 1000 * (len(partitions) if self._idempotent else 1)
        first = NEAR_THE_WRAP if self._links.chance.random() < 0.5 else 0
        sequence = first
        number = 0
        while not self.is_stopping:
            partition = partitions[number % len(partitions)]
            number += 1
            count = self._links.chance.randint(1, self._shape.batch_records)
            values = [self._value(partition) for _ in range(count)]
            if not self._idempotent:
                await self._send(partition, values, producer_id, -1)
            elif await self._send_until_acked(partition, values, producer_id, sequence):
                sequence = (sequence + count) & 0x7FFFFFFF
            else:
                producer_id, sequence = await self._new_id(), first
            pace_s = every_s if number < DENSE_BATCHES else max(every_s, SPARSE_S)
            await asyncio.sleep(pace_s * self._links.chance.choice(GAPS))

    def _value(self, partition: int) -> bytes:
        number = self._sent.get(partition, 0)
        self._sent[partition] = number + 1
        value = f"{self._name}/{partition}/{number:06d}".encode()
        self._ledger.sent[value] = Sent(self._name, (TOPIC, partition), number, self._idempotent)
        return value

    async def _new_id(self) -> int:
        while True:
            body = {"transactional_id": None, "transaction_timeout": 60_000}
            try:
                answer = await self._links.call(self._links.any_broker(), ApiKey.INIT_PRODUCER_ID, 1, body)
            except CallFailed:
                await asyncio.sleep(RETRY_S)
                continue
            if answer.error_code == 0:
                return int(answer.producer_id)
            await asyncio.sleep(RETRY_S)

    async def _send_until_acked(self, partition: int, values: list[bytes], producer_id: int, sequence: int) -> bool:
        """Retries as Kafka's producer does. False when the broker says that the sequence is broken."""
        while True:
            error = await self._send(partition, values, producer_id, sequence)
            if error is ErrorCode.NONE:
                return True
            if error in FINAL:
                if (TOPIC, partition) not in self._ledger.unclean:
                    self._ledger.broken.append(f"{self._name}: {TOPIC}-{partition} answered {error} to {values[0]!r}")
                return False
            await asyncio.sleep(RETRY_S)

    async def _send(self, partition: int, values: list[bytes], producer_id: int, sequence: int) -> ErrorCode | None:
        """One try; None when its outcome is not known."""
        leader = self._links.leader(TOPIC, partition)
        if leader is None:
            return ErrorCode.LEADER_NOT_AVAILABLE
        now_ms = self._cluster.world.clock.now_ms()
        records = [Record(offset, now_ms, None, value) for offset, value in enumerate(values)]
        if self._idempotent:
            batch = build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        else:
            batch = build_batch(records)
        topic: dict[str, Any] = {"name": TOPIC, "partition_data": [{"index": partition, "records": batch}]}
        body = {"transactional_id": None, "acks": self._acks, "timeout": 3_000, "topic_data": [topic]}
        sent_s = self._cluster.world.loop.time()
        try:
            answer = await self._links.call(leader, ApiKey.PRODUCE, 8, body)
        except CallFailed:
            self._links.forget_leader(TOPIC, partition)
            return None
        found = answer.responses[0].partition_responses[0]
        error = ErrorCode.of(int(found.error_code))
        if error is not ErrorCode.NONE:
            self._links.forget_leader(TOPIC, partition)
            for on_error in self._ledger.on_error if self._acks == -1 else ():
                on_error(leader, (TOPIC, partition), error, sent_s)
            return error
        if self._acks == -1:
            self._ledger.was_acked((TOPIC, partition), int(found.base_offset), values, broker=leader)
            taken_s = max(sent_s, self._links.free_s[leader])
            for observer in self._ledger.on_ack:
                observer(leader, (TOPIC, partition), int(found.base_offset) + len(values), taken_s)
        return ErrorCode.NONE
