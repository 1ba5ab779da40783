"""Partitions that this broker is to host once the configs of their topics can be read.

A topic's settings say what may be deleted and how many replicas an acknowledged record has, so a partition is not
hosted by the defaults while they are not known: its LeaderAndIsr is answered with an error, kept, and taken once they
are. Kafka hosts nothing either, as its read of the configs throws; there the next LeaderAndIsr has to come by chance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from controller.wire.control import LeaderAndIsrEntry, StopReplicaEntry
from controller.wire.types import NO_EPOCH, TopicPartition
from controller.world.config_notices import RETRY_S
from controller.world.supervisor import Supervisor


class PostponedPartitions:
    """The newest entry of each such partition. `host` is called once a second while there are any: it hosts those of
    `entries` whose configs can be read by then, and drops them here."""

    def __init__(self, host: Callable[[], Awaitable[None]], supervisor: Supervisor) -> None:
        self._host, self._supervisor = host, supervisor
        self._entries: dict[TopicPartition, LeaderAndIsrEntry] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def entries(self) -> list[LeaderAndIsrEntry]:
        """Those that wait."""
        return list(self._entries.values())

    def add(self, entries: Iterable[LeaderAndIsrEntry]) -> None:
        """These wait, too; of two of one partition that with the higher leader epoch."""
        for entry in entries:
            other = self._entries.get(entry.topic_partition)
            if other is None or other.state.leader_epoch <= entry.state.leader_epoch:
                self._entries[entry.topic_partition] = entry
        if self._entries and (self._task is None or self._task.done()):
            self._task = self._supervisor.once("postponed-partitions", self._retry)

    def hosted(self, entries: Iterable[LeaderAndIsrEntry]) -> None:
        """These are hosted now: what waits with no higher leader epoch is done with."""
        for entry in entries:
            if self._epoch(entry.topic_partition) <= entry.state.leader_epoch:
                self._entries.pop(entry.topic_partition, None)

    def stop(self, entries: Iterable[StopReplicaEntry]) -> set[TopicPartition]:
        """These are no longer to be hosted, deleted or not. Returns those that wait with a higher leader epoch than
        their stop has: it is stale, as for a partition that is hosted (§7), and they go on waiting."""
        stale = set()
        for entry in entries:
            if entry.is_stale(self._epoch(entry.topic_partition)):
                stale.add(entry.topic_partition)
            else:
                self._entries.pop(entry.topic_partition, None)
        return stale

    def _epoch(self, topic_partition: TopicPartition) -> int:
        entry = self._entries.get(topic_partition)
        return NO_EPOCH if entry is None else entry.state.leader_epoch

    async def _retry(self) -> None:
        while self._entries:
            await asyncio.sleep(RETRY_S)
            await self._host()
