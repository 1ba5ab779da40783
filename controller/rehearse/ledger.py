"""What happened to partitions, counted as it happens: from the state and topic znodes alone, so from what was decided.

A window is a stretch of time in which a partition was offline, under its min ISR, under-replicated, or moving. Pure.
Times are ms since the rehearsal began.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from controller.wire.types import BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition


class Trouble(StrEnum):
    """In the order of how bad each is."""

    OFFLINE = "offline"
    UNDER_MIN_ISR = "under_min_isr"
    UNDER_REPLICATED = "under_replicated"
    MOVING = "moving"


def length_ms(from_ms: int, to_ms: int | None, end_ms: int) -> int:
    """How long something lasted that ended at `to_ms`, or (None) only with the rehearsal."""
    return (end_ms if to_ms is None else to_ms) - from_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """`to_ms` None: it was so still at the end."""

    topic_partition: TopicPartition
    trouble: Trouble
    from_ms: int
    to_ms: int | None = None

    def length_ms(self, end_ms: int) -> int:
        """How long it lasted, in a rehearsal that ended then."""
        return length_ms(self.from_ms, self.to_ms, end_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of a partition's leadership: how many of a rehearsal were elections, and how many unclean."""

    topic_partition: TopicPartition
    at_ms: int
    leader_before: BrokerId | None
    leader: BrokerId | None
    is_unclean: bool


@dataclass(slots=True)
class _Partition:
    state: LeaderAndIsr | None = None
    assignment: ReplicaAssignment = field(default_factory=lambda: ReplicaAssignment(replicas=()))
    open: dict[Trouble, int] = field(default_factory=dict)


class Ledger:
    """`counts` has how many partitions are in which trouble now; `leaders` how many each broker leads."""

    def __init__(self, min_isr: Mapping[str, int], *, default_min_isr: int) -> None:
        self._min_isr, self._default_min_isr = min_isr, default_min_isr
        self._partitions: dict[TopicPartition, _Partition] = {}
        self.counts: Counter[Trouble] = Counter()
        self.leaders: Counter[BrokerId] = Counter()
        self.windows: list[Window] = []
        self.elections: list[Change] = []
        self.isr_changes = 0
        #: grows with every change
        self.version = 0

    def begin(self) -> None:
        """What was wrong before counts from now on; what changed before does not count."""
        self.windows, self.elections, self.isr_changes = [], [], 0
        for partition in self._partitions.values():
            partition.open = dict.fromkeys(partition.open, 0)

    def assigned(self, topic_partition: TopicPartition, assignment: ReplicaAssignment, at_ms: int) -> None:
        """The topic znode says that these are its replicas."""
        partition = self._partitions.setdefault(topic_partition, _Partition())
        partition.assignment = assignment
        self.version += 1
        self._judge(topic_partition, partition, at_ms)

    def decided(self, topic_partition: TopicPartition, state: LeaderAndIsr, at_ms: int) -> None:
        """The state znode says so."""
        partition = self._partitions.setdefault(topic_partition, _Partition())
        before, partition.state = partition.state, state
        self.version += 1
        if before is not None and before.leader != state.leader:
            self._led(topic_partition, before, state, at_ms)
        if before is None or before.leader != state.leader:
            if before is not None and before.leader is not None:
                self.leaders[before.leader] -= 1
            if state.leader is not None:
                self.leaders[state.leader] += 1
        if before is not None and set(before.isr) != set(state.isr):
            self.isr_changes += 1
        self._judge(topic_partition, partition, at_ms)

    def _led(self, topic_partition: TopicPartition, before: LeaderAndIsr, state: LeaderAndIsr, at_ms: int) -> None:
        is_unclean = state.leader is not None and state.leader not in before.isr
        self.elections.append(
            Change(
                topic_partition=topic_partition,
                at_ms=at_ms,
                leader_before=before.leader,
                leader=state.leader,
                is_unclean=is_unclean,
            )
        )

    def deleted(self, topic_partition: TopicPartition, at_ms: int) -> None:
        """Its znodes are gone: what was wrong with it ends."""
        partition = self._partitions.pop(topic_partition, None)
        self.version += 1
        if partition is not None:
            for trouble in list(partition.open):
                self._close(topic_partition, partition, trouble, at_ms)
            if partition.state is not None and partition.state.leader is not None:
                self.leaders[partition.state.leader] -= 1

    def partition(self, topic_partition: TopicPartition) -> tuple[LeaderAndIsr | None, ReplicaAssignment]:
        """What its znodes say."""
        found = self._partitions.get(topic_partition) or _Partition()
        return found.state, found.assignment

    def min_isr_of(self, topic_partition: TopicPartition, assignment: ReplicaAssignment) -> int:
        """How many in sync producers wait for; never more than it has replicas when it does not move."""
        return min(self._min_isr.get(topic_partition.topic, self._default_min_isr), max(_full(assignment), 1))

    def troubled(self, trouble: Trouble) -> list[TopicPartition]:
        """Those that are in this trouble now, sorted."""
        return sorted(tp for tp, partition in self._partitions.items() if trouble in partition.open)

    def finish(self) -> tuple[Window, ...]:
        """All windows, those that are open still included, by their begin."""
        open_ones = [
            Window(topic_partition=tp, trouble=trouble, from_ms=from_ms)
            for tp, partition in self._partitions.items()
            for trouble, from_ms in partition.open.items()
        ]
        return tuple(sorted([*self.windows, *open_ones], key=lambda w: (w.from_ms, w.topic_partition, w.trouble)))

    def _judge(self, topic_partition: TopicPartition, partition: _Partition, at_ms: int) -> None:
        now = self._troubles(topic_partition, partition)
        for trouble in _TROUBLES:
            if trouble in now and trouble not in partition.open:
                partition.open[trouble] = at_ms
                self.counts[trouble] += 1
            elif trouble not in now and trouble in partition.open:
                self._close(topic_partition, partition, trouble, at_ms)

    def _close(self, topic_partition: TopicPartition, partition: _Partition, trouble: Trouble, at_ms: int) -> None:
        from_ms = partition.open.pop(trouble)
        self.counts[trouble] -= 1
        self.windows.append(Window(topic_partition=topic_partition, trouble=trouble, from_ms=from_ms, to_ms=at_ms))

    def _troubles(self, topic_partition: TopicPartition, partition: _Partition) -> set[Trouble]:
        state, assignment = partition.state, partition.assignment
        found = {Trouble.MOVING} if assignment.is_being_reassigned else set()
        if state is None:
            return found
        full, min_isr = _full(assignment), self.min_isr_of(topic_partition, assignment)
        if state.leader is None:
            found.add(Trouble.OFFLINE)
        if len(state.isr) < min_isr:
            found.add(Trouble.UNDER_MIN_ISR)
        if len(state.isr) < full:
            found.add(Trouble.UNDER_REPLICATED)
        return found


def _full(assignment: ReplicaAssignment) -> int:
    return len(assignment.replicas) - len(assignment.adding_replicas)


_TROUBLES: Final = tuple(Trouble)
