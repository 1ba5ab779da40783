"""A producer of a compacted topic: keys written again and again, others once, some with tombstones, by one producer
id after another. What it was acknowledged is what compaction must leave.

What must be left of it: `oracles.compacted`.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from controller.sim.cluster import Cluster
from controller.sim.load.links import CallFailed, Links
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.records import Record, build_batch

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
    """`run` is a program. Each value is sent once, so that it tells its key and its turn."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._links = Links(cluster, name)
        #: key -> (offset, value) of its newest record that was acknowledged; None is a tombstone
        self.acked: dict[bytes, tuple[int, bytes | None]] = {}
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
                    self.acked[key] = offset, value
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
