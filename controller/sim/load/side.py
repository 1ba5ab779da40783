"""Producers of side topics: what comes and goes, with settings of its own, must not be empty.

Nobody keeps a ledger of it. Its records are deleted by retention, by operations and with their topics.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from controller.sim.cluster import Cluster
from controller.sim.load.links import CallFailed, Links
from controller.sim.shape import SIDE_TOPICS
from controller.wire.protocol import ApiKey
from controller.wire.records import Record, build_batch

PAUSE_S: Final = 0.4
#: After so many batches it becomes slow.
DENSE_BATCHES: Final = 60
SPARSE_S: Final = 2.0
#: Of one record.
VALUE: Final = b"side" * 20


class SideProducer:
    """`run` is a program."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._links = Links(cluster, name)
        self.is_stopping = False

    async def run(self) -> None:
        """Until `is_stopping`."""
        sent = 0
        while not self.is_stopping:
            there = [tp for tp in self._cluster.partitions() if tp[0] in SIDE_TOPICS]
            if there:
                await self._send(*self._links.chance.choice(there))
                sent += 1
            await asyncio.sleep((PAUSE_S if sent < DENSE_BATCHES else SPARSE_S) * self._links.chance.choice((0.1, 1.0)))

    async def _send(self, topic: str, partition: int) -> None:
        leader = self._links.leader(topic, partition)
        if leader is None:
            return
        now_ms = self._cluster.world.clock.now_ms()
        count = self._links.chance.choice((1, 3, 6))
        batch = build_batch([Record(offset, now_ms, None, VALUE) for offset in range(count)])
        rows: list[dict[str, Any]] = [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}]
        acks = self._links.chance.choice((1, 1, -1))
        body = {"transactional_id": None, "acks": acks, "timeout": 1_000, "topic_data": rows}
        try:
            answer = await self._links.call(leader, ApiKey.PRODUCE, 8, body)
        except CallFailed:
            self._links.forget_leader(topic, partition)
            return
        if answer.responses[0].partition_responses[0].error_code != 0:
            self._links.forget_leader(topic, partition)
