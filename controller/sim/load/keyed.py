"""A producer of a compacted topic: keys written again and again, others once, some with tombstones, by one producer
id after another. What it was acknowledged is what compaction must leave.

A key's newest record stays, a tombstone for `delete.retention.ms`, and the last batch of each producer id, be it empty.
Source: Kafka 3.9 `LogCleaner`, KIP-354, KIP-534; spec broker.md §10.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from broker_sim.log.log import Log
from controller.sim.cluster import Cluster
from controller.sim.history import History
from controller.sim.load.links import CallFailed, Links
from controller.sim.oracles.brokers import replicas
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.records import Record, build_batch, records_of

KEYED: Final = "keyed"
CONFIGS: Final = {"cleanup.policy": "compact", "segment.bytes": "500", "min.cleanable.dirty.ratio": "0.01"}
KEYS: Final = 4
#: Producer ids of their own, which no broker gives.
FIRST_ID: Final = 800_000_000
#: Batches of one producer id.
BATCHES_OF_AN_ID: Final = 3
PAUSE_S: Final = 0.5
DENSE_BATCHES: Final = 60
SPARSE_S: Final = 2.0
RETRY_S: Final = 0.3


class KeyedProducer:
    """`run` is a program; `lost` is asked at rest. Each value is sent once, so that it tells its key and its turn."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._links = Links(cluster, name)
        #: key -> (offset, value) of its newest record that was acknowledged; None is a tombstone
        self._acked: dict[bytes, tuple[int, bytes | None]] = {}
        self.is_stopping = False

    async def run(self) -> None:
        """Until `is_stopping`."""
        await self._create()
        number = 0
        while not self.is_stopping:
            await self._send_until_acked(number)
            number += 1
            pause_s = PAUSE_S if number < DENSE_BATCHES else SPARSE_S
            await asyncio.sleep(pause_s * self._links.chance.choice((0.05, 0.5, 1.0)))

    async def _create(self) -> None:
        rows = [{"name": name, "value": value} for name, value in CONFIGS.items()]
        replicas_ = list(self._cluster.broker_ids)[:3]
        topic: dict[str, Any] = {"name": KEYED, "num_partitions": -1, "replication_factor": -1, "configs": rows}
        topic["assignments"] = [{"partition_index": 0, "broker_ids": replicas_}]
        body = {"topics": [topic], "timeout": 1_000, "validate_only": False}
        while self._cluster.state(KEYED, 0) is None and not self.is_stopping:
            await self._cluster.ask_once(ApiKey.CREATE_TOPICS, 4, body)
            await asyncio.sleep(1.0)

    async def _send_until_acked(self, number: int) -> None:
        """One record; a batch that may be in the log is sent again as it is."""
        chance = self._links.chance
        key = b"key-%d" % (chance.randrange(KEYS) if chance.random() < 0.6 else KEYS + number)
        value = None if chance.random() < 0.3 else b"%s/%06d" % (key, number)
        producer_id, sequence = FIRST_ID + number // BATCHES_OF_AN_ID, number % BATCHES_OF_AN_ID
        record = Record(0, self._cluster.world.clock.now_ms(), key, value)
        batch = build_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        while not self.is_stopping:
            offset = await self._send(batch)
            if offset is not None:
                if offset >= 0:
                    self._acked[key] = offset, value
                return
            await asyncio.sleep(RETRY_S)

    async def _send(self, batch: bytes) -> int | None:
        """The offset of its record; -1: it was refused for good; None: nobody knows."""
        leader = self._links.leader(KEYED, 0)
        if leader is None:
            return None
        row = {"name": KEYED, "partition_data": [{"index": 0, "records": batch}]}
        body = {"transactional_id": None, "acks": -1, "timeout": 3_000, "topic_data": [row]}
        try:
            answer = await self._links.call(leader, ApiKey.PRODUCE, 8, body)
        except CallFailed:
            self._links.forget_leader(KEYED, 0)
            return None
        found = answer.responses[0].partition_responses[0]
        if found.error_code == 0:
            return int(found.base_offset)
        self._links.forget_leader(KEYED, 0)
        return -1 if ErrorCode.of(int(found.error_code)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER else None

    def lost(self, cluster: Cluster, history: History) -> Iterator[str]:
        """Of each key the newest record that was acknowledged is in every log, or a newer one of that key."""
        for broker_id, tp, replica in replicas(cluster):
            state = cluster.state(*tp)
            if tp != (KEYED, 0) or replica.log is None or tp in history.unclean or broker_id not in state["isr"]:
                continue
            found = newest_of_keys(replica.log)
            for key, acked in sorted(self._acked.items()):
                here = found.get(key, (-1, None))
                if here[0] < acked[0] or (here[0] == acked[0] and here[1] != acked[1]):
                    yield f"broker {broker_id} {tp}: {key!r} was acknowledged as {acked}, its newest record is {here}"


def newest_of_keys(log: Log) -> dict[bytes, tuple[int, bytes | None]]:
    """Of each key its newest record in a log: (offset, value)."""
    found: dict[bytes, tuple[int, bytes | None]] = {}
    for batch in log.batches():
        for record in records_of(batch):
            found[record.key or b""] = record.offset, record.value
    return found
