"""Which groups this broker has: those of the `__consumer_offsets` partitions that it leads, loaded from their logs.

Source: Kafka 3.9 `GroupMetadataManager`; spec clients.md §7.2.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from broker_sim.config import BrokerSettings
from broker_sim.groups.group import Group
from broker_sim.groups.log import GroupLog, LoadedPartition, restore_group
from broker_sim.groups.records import CommittedOffset
from broker_sim.groups.values import GroupSettings
from controller.rules.hashing import group_partition
from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode
from controller.wire.types import GROUP_METADATA_TOPIC, TopicPartition
from controller.world.ports import Clock
from controller.world.supervisor import Supervisor

#: Batches read between two turns of the event loop while a partition loads.
LOAD_BATCHES_PER_TURN: Final = 100


Offsets = dict[TopicPartition, CommittedOffset]


async def let_others_run(batch: int) -> None:
    """Between two batches of a partition that loads, of which this is the number: at times the event loop turns."""
    if batch % LOAD_BATCHES_PER_TURN == LOAD_BATCHES_PER_TURN - 1:
        await asyncio.sleep(0)


@dataclass(slots=True)
class GroupEntry:
    """A group, the offsets it committed, those of each commit that is being stored (in the order of the log), and the
    timer that it asked for. `is_deleted`: what is still written of it is to be undone."""

    group: Group
    offsets: Offsets = field(default_factory=dict)
    commits_under_way: list[Offsets] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None
    is_deleted: bool = False


class GroupRegistry:
    """The groups by id. `on_loaded` is told of those that come from a log, `on_dropped` of those that go.

    Nothing is served before `is_active`.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        group_log: GroupLog,
        *,
        clock: Clock,
        supervisor: Supervisor,
        log: Any,
        make_group: Callable[[str, GroupSettings], Group] = Group,
        between_batches: Callable[[int], Awaitable[None]] = let_others_run,
        on_loaded: Callable[[GroupEntry], None],
        on_dropped: Callable[[GroupEntry], None],
    ) -> None:
        self._group_log = group_log
        #: Partitions of `__consumer_offsets`, as it was when the broker started: what says where each group lives. A
        #: count that changed while groups live would send them elsewhere. Source: `groupMetadataTopicPartitionCount`.
        self.partition_count = settings.offsets_topic_num_partitions
        self._clock, self._log, self._make_group = clock, log, make_group
        self._between_batches = between_batches
        self._supervisor = supervisor
        self._on_loaded, self._on_dropped = on_loaded, on_dropped
        self._group_settings = GroupSettings(
            initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms, max_size=settings.group_max_size
        )
        self._entries: dict[str, GroupEntry] = {}
        self._owned: set[int] = set()
        self.loading: dict[int, asyncio.Task[None]] = {}
        self.is_active = False

    # -- partitions that come and go -----------------------------------------------------------------------------

    def leadership_changed(
        self, became_leader: Collection[TopicPartition], became_follower: Collection[TopicPartition]
    ) -> None:
        """Loads the groups of partitions that this broker leads now, lets go of those it no longer leads."""
        for tp in sorted(became_follower):
            if tp.topic == GROUP_METADATA_TOPIC:
                self._unload(tp.partition)
        for tp in sorted(became_leader):
            partition = tp.partition
            if tp.topic == GROUP_METADATA_TOPIC and partition not in self._owned and partition not in self.loading:
                task = self._supervisor.once("group-load", partial(self._load, partition))
                self.loading[partition] = task
                task.add_done_callback(partial(self._load_ended, partition))

    def _load_ended(self, partition: int, task: asyncio.Task[None]) -> None:
        """A load that failed leaves a partition that is not owned: clients look elsewhere."""
        if self.loading.get(partition) is task:
            del self.loading[partition]

    async def _load(self, partition: int) -> None:
        """Raises: StorageFailure."""
        loaded = LoadedPartition()
        for number, batch in enumerate(self._group_log.batches(partition)):
            loaded.take(batch, self._log)
            await self._between_batches(number)
        now_ms = self._clock.now_ms()
        for group_id in sorted(loaded.groups.keys() | {g for g, offsets in loaded.offsets.items() if offsets}):
            entry = GroupEntry(self._make_group(group_id, self._group_settings), loaded.offsets.get(group_id, {}))
            if group_id in loaded.groups:
                restore_group(entry.group, loaded.groups[group_id], now_ms)
            self._entries[group_id] = entry
            self._on_loaded(entry)
        self._owned.add(partition)
        del self.loading[partition]
        self._log.info(ev.GROUP_LOADED, partition=partition, groups=len(loaded.groups))

    def _unload(self, partition: int) -> None:
        loading = self.loading.pop(partition, None)
        if loading is not None:
            loading.cancel()
        if partition not in self._owned:
            return
        self._owned.discard(partition)
        gone = [group_id for group_id in self._entries if self.partition_of(group_id) == partition]
        for group_id in gone:
            self.remove(group_id)
        self._log.info(ev.GROUP_UNLOADED, partition=partition, groups=len(gone))

    async def close(self) -> None:
        """Lets go of all partitions. Idempotent."""
        self.is_active = False
        loading = list(self.loading.values())
        for partition in sorted(self._owned | self.loading.keys()):
            self._unload(partition)
        await asyncio.gather(*loading, return_exceptions=True)

    # -- which group is where ------------------------------------------------------------------------------------

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that the group lives in."""
        return group_partition(group_id, self.partition_count)

    def error_for(self, group_id: str, *, may_be_empty: bool = False) -> ErrorCode | None:
        """Why no request about this group can be served here (clients.md §7.2); None if it can."""
        if not group_id and not may_be_empty:
            return ErrorCode.INVALID_GROUP_ID
        if not self.is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        partition = self.partition_of(group_id)
        if partition in self.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return None if partition in self._owned else ErrorCode.NOT_COORDINATOR

    @property
    def is_loading(self) -> bool:
        """Whether some partition is still being read."""
        return bool(self.loading)

    def entry(self, group_id: str) -> GroupEntry | None:
        """The group, if this broker has it."""
        return self._entries.get(group_id)

    def entries(self) -> list[GroupEntry]:
        """All groups of this broker, by id."""
        return [self._entries[group_id] for group_id in sorted(self._entries)]

    def make(self, group_id: str) -> GroupEntry:
        """The group, new if there was none."""
        if group_id not in self._entries:
            self._entries[group_id] = GroupEntry(self._make_group(group_id, self._group_settings))
        return self._entries[group_id]

    def remove(self, group_id: str) -> None:
        """Forgets the group; its parked requests are answered by `on_dropped`."""
        entry = self._entries.pop(group_id, None)
        if entry is not None:
            self._on_dropped(entry)
