"""A live view of a reassignment: bytes that the new replicas have copied, how fast, and partitions that are done.

`watch` looks; `progress_view` shows. Nothing here changes the cluster.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from rich.filesize import decimal

from controller.admin.cluster.client import AdminClient
from controller.admin.cluster.failures import ClusterUnreachable, Refused
from controller.admin.cluster.log_dirs import ReplicaLog, describe_log_dirs
from controller.admin.cluster.queries import PartitionInfo, TopicInfo, describe_topics, list_reassignments
from controller.wire.types import BrokerId, PartitionReplica, ReplicaAssignment, TopicPartition

#: Over how long the rate is measured: a throttle lets whole answers through, and then nothing for its window of 11 s.
RATE_WINDOW_S: Final = 30.0
#: How long a broker may take to tell its log sizes; after that the last ones known are used.
SIZES_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One look at a reassignment, with its moves between log directories.

    `bytes_total` is the sum over all replicas that were or are being added of the size of the leader's log, and over
    all replicas that move between directories of the size of their log; `bytes_done` what the copies hold of it.
    A partition is done when it is not being reassigned and no replica of it moves. `bytes_per_s` is measured over the
    last looks; None at first.
    `waits_for` has a line for each partition that is not done, those furthest behind first.
    """

    bytes_done: int
    bytes_total: int
    partitions_done: int
    partitions_total: int
    bytes_per_s: float | None = None
    waits_for: tuple[str, ...] = ()

    @property
    def is_done(self) -> bool:
        """Whether no partition is being reassigned any more."""
        return self.partitions_done == self.partitions_total

    @property
    def percent(self) -> int:
        """Of the bytes, rounded down; of the partitions when there is nothing to copy."""
        if self.bytes_total:
            return min(100, 100 * self.bytes_done // self.bytes_total)
        return 100 * self.partitions_done // self.partitions_total if self.partitions_total else 100

    @property
    def seconds_left(self) -> float | None:
        """At the present rate; None while there is none."""
        return (self.bytes_total - self.bytes_done) / self.bytes_per_s if self.bytes_per_s else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DirCopy:
    """A replica that is to be in another directory of its broker: the log there, the log it has; `is_over` when no copy
    is being made any more, be it done or cancelled."""

    copied_bytes: int
    full_bytes: int
    is_over: bool


@dataclass(slots=True)
class Tally:
    """What was seen so far. Pure: each look is passed in. `moves`: replicas that are to be in another directory."""

    partitions: frozenset[TopicPartition]
    moves: frozenset[PartitionReplica] = frozenset()
    copies: dict[PartitionReplica, DirCopy] = field(default_factory=dict)
    added: dict[TopicPartition, frozenset[BrokerId]] = field(default_factory=dict)
    leader_bytes: dict[TopicPartition, int] = field(default_factory=dict)
    copied_bytes: dict[PartitionReplica, int] = field(default_factory=dict)
    looks: deque[tuple[float, int]] = field(default_factory=deque)
    silent: frozenset[BrokerId] = frozenset()

    def see(
        self,
        at_s: float,
        running: Mapping[TopicPartition, ReplicaAssignment],
        leaders: Mapping[TopicPartition, BrokerId | None],
        sizes: Mapping[PartitionReplica, int],
        copies: Mapping[PartitionReplica, DirCopy] | None = None,
        silent: Collection[BrokerId] = (),
    ) -> Progress:
        """Takes one look in: what runs at `at_s`, who leads, the size of the log of each replica whose broker answered,
        and the moves between directories there. What a broker that was `silent` tells first was not copied since: the
        rate is measured from then on."""
        before = self.copied_bytes.keys() | self.leader_bytes.keys()
        awaited = {PartitionReplica(p, b) for p, brokers in self.added.items() for b in brokers} | self.unseen
        for partition, reassignment in running.items():
            self.added[partition] = self.added.get(partition, frozenset()) | frozenset(reassignment.adding_replicas)
            for broker in self.added[partition]:
                replica = PartitionReplica(partition, broker)
                if replica in sizes:
                    self.copied_bytes[replica] = sizes[replica]
                elif broker not in silent:
                    self.copied_bytes.setdefault(replica, 0)
        for partition in {*running, *self.unseen}:
            leader = leaders.get(partition)
            if leader is not None and (size := sizes.get(PartitionReplica(partition, leader))) is not None:
                self.leader_bytes[partition] = size
        if self.unheard & (copies or {}).keys() or awaited & (
            (self.copied_bytes.keys() | self.leader_bytes.keys()) - before
        ):
            self.looks.clear()
        self.silent = frozenset(silent)
        for replica, copy in (copies or {}).items():
            earlier = self.copies.get(replica)
            was_made_there = replica.replica in self.added.get(replica.topic_partition, ()) and copy.is_over
            counts = not was_made_there or (earlier is not None and earlier.full_bytes)
            self.copies[replica] = copy if counts else replace(copy, full_bytes=0)
        return self._progress(at_s, running.keys())

    @property
    def unheard(self) -> frozenset[PartitionReplica]:
        """Moves between directories of which their brokers, silent until now, have told nothing yet."""
        return frozenset(move for move in self.moves - self.copies.keys() if move.replica in self.silent)

    @property
    def unseen(self) -> frozenset[TopicPartition]:
        """Partitions to which replicas were added before anybody looked, and whose size is not known yet."""
        return frozenset(self.added.keys() - self.leader_bytes.keys())

    def _progress(self, at_s: float, running: Collection[TopicPartition]) -> Progress:
        total = done = 0
        for partition, brokers in self.added.items():
            full = self.leader_bytes.get(partition, 0)
            total += full * len(brokers)
            for broker in brokers:
                copied = self.copied_bytes.get(PartitionReplica(partition, broker), 0)
                done += min(copied, full) if partition in running else full
        for copy in self.copies.values():
            total += copy.full_bytes
            done += copy.full_bytes if copy.is_over else min(copy.copied_bytes, copy.full_bytes)
        copying = {replica for replica, copy in self.copies.items() if not copy.is_over}
        unfinished = {*running, *(replica.topic_partition for replica in copying | self.unheard)}
        self.looks.append((at_s, done))
        while len(self.looks) > 2 and self.looks[1][0] <= at_s - RATE_WINDOW_S:
            self.looks.popleft()
        (then_s, then_done) = self.looks[0]
        return Progress(
            bytes_done=done,
            bytes_total=total,
            partitions_done=len(self.partitions) - len(self.partitions & unfinished),
            partitions_total=len(self.partitions),
            bytes_per_s=max(0, done - then_done) / (at_s - then_s) if at_s > then_s else None,
        )


async def watch(
    admin: AdminClient,
    partitions: Collection[TopicPartition] | None = None,
    *,
    log_dirs: Mapping[PartitionReplica, str] | None = None,
    added: Mapping[TopicPartition, frozenset[BrokerId]] | None = None,
    every_s: float = 0.5,
) -> AsyncIterator[Progress]:
    """Looks every `every_s` seconds until all `partitions` (None: all that are being reassigned now) are done.

    `log_dirs` has the replicas of them that are to go to a directory, `added` the brokers that get a replica: a small
    partition may be done before the first look, and counts with what its log has then.

    The last value has `is_done`. Ending the iteration early leaves the reassignment running.
    Raises: Refused, ClusterUnreachable.
    """
    loop = asyncio.get_running_loop()
    running = await list_reassignments(admin, partitions)
    moves = log_dirs or {}
    every = frozenset(partitions if partitions is not None else running)
    tally = Tally(every, frozenset(moves), added=dict(added or {}))
    is_kraft = await admin.is_kraft()
    while True:
        states = await _states(admin, {*running, *tally.unseen})
        leaders = {partition: state.leader for partition, state in states.items()}
        live = frozenset(await admin.brokers()) if running or moves or tally.unseen else frozenset()
        asked = _whom_to_ask(running, leaders, tally, moves)
        answers = await _logs(admin, asked, live)
        logs = {key: log for answer in answers.values() for key, log in answer.items()}
        sizes = {replica: log.size_bytes for (replica, is_future), log in logs.items() if not is_future}
        copies = _dir_copies(moves, running, logs)
        progress = tally.see(loop.time(), running, leaders, sizes, copies, silent=asked.keys() - answers.keys())
        yield replace(
            progress, waits_for=(*waits(running, states, sizes, live, is_kraft=is_kraft), *_dir_waits(tally, moves))
        )
        if progress.is_done:
            return
        await asyncio.sleep(every_s)
        running = await list_reassignments(admin, tally.partitions)


def waits(
    running: Mapping[TopicPartition, ReplicaAssignment],
    states: Mapping[TopicPartition, PartitionInfo],
    sizes: Mapping[PartitionReplica, int],
    live: Collection[BrokerId],
    *,
    is_kraft: bool = False,
) -> tuple[str, ...]:
    """What each partition waits for, the one with most bytes to go first; in KRaft's words where it is one. Pure."""
    away = "which is fenced: no session, so nothing is copied to it" if is_kraft else "which is not alive"
    last = "the active controller of the quorum" if is_kraft else "the controller"
    rows: list[tuple[int, TopicPartition, str]] = []
    for partition, reassignment in running.items():
        state = states.get(partition)
        missing = [b for b in reassignment.target_replicas if state is None or b not in state.isr]
        full = sizes.get(PartitionReplica(partition, state.leader), 0) if state and state.leader is not None else 0
        reasons, behind = [], 0
        for broker in missing:
            size = sizes.get(PartitionReplica(partition, broker))
            behind = max(behind, full - (size or 0))
            if broker not in live:
                reasons.append(f"broker {broker}, {away}")
            elif size is None:
                reasons.append(f"broker {broker} to begin")
            else:
                reasons.append(f"broker {broker} ({decimal(size)} of {decimal(max(full, size))})")
        if state is None or state.leader is None:
            reasons = ["a leader to copy from"]
        rows.append((-behind, partition, f"{partition} waits for {', '.join(reasons) or last}"))
    return tuple(text for _, _, text in sorted(rows))


async def _states(admin: AdminClient, partitions: Collection[TopicPartition]) -> dict[TopicPartition, PartitionInfo]:
    topics = await describe_topics(admin, {p.topic for p in partitions})
    return {
        TopicPartition(topic.name, p.partition): p
        for topic in topics.values()
        if isinstance(topic, TopicInfo)
        for p in topic.partitions
    }


_Logs = dict[tuple[PartitionReplica, bool], ReplicaLog]


def _whom_to_ask(
    running: Mapping[TopicPartition, ReplicaAssignment],
    leaders: Mapping[TopicPartition, BrokerId | None],
    tally: Tally,
    moves: Collection[PartitionReplica],
) -> dict[BrokerId, set[TopicPartition]]:
    """The brokers of leaders, added replicas and moves between directories, with what is to be asked there."""
    partitions_at: dict[BrokerId, set[TopicPartition]] = {}
    for partition, reassignment in running.items():
        brokers = {*reassignment.adding_replicas, *tally.added.get(partition, ()), leaders.get(partition)}
        for broker in brokers:
            if broker is not None:
                partitions_at.setdefault(broker, set()).add(partition)
    for partition in tally.unseen - running.keys():
        if (leader := leaders.get(partition)) is not None:
            partitions_at.setdefault(leader, set()).add(partition)
    for replica in moves:
        partitions_at.setdefault(replica.replica, set()).add(replica.topic_partition)
    return partitions_at


async def _logs(
    admin: AdminClient, partitions_at: Mapping[BrokerId, Collection[TopicPartition]], live: Collection[BrokerId]
) -> dict[BrokerId, _Logs]:
    """The logs there, and (True) the copies being made in another directory; brokers that do not answer left out."""
    brokers = [broker for broker in sorted(partitions_at) if broker in live]
    answers = await asyncio.gather(*(_logs_at(admin, broker, partitions_at[broker]) for broker in brokers))
    return {broker: logs for broker, logs in zip(brokers, answers, strict=True) if logs is not None}


async def _logs_at(admin: AdminClient, broker: BrokerId, partitions: Collection[TopicPartition]) -> _Logs | None:
    try:
        async with asyncio.timeout(SIZES_TIMEOUT_S):
            dirs = (await describe_log_dirs(admin, [broker], partitions))[broker]
    except (TimeoutError, Refused, ClusterUnreachable):
        return None
    return {
        (PartitionReplica(log.partition, broker), log.is_future): log for log_dir in dirs for log in log_dir.replicas
    }


def _dir_copies(
    moves: Collection[PartitionReplica], running: Collection[TopicPartition], logs: _Logs
) -> dict[PartitionReplica, DirCopy]:
    """How far the moves between directories are, of those whose broker answered."""
    copies = {}
    for replica in moves:
        log, copy = logs.get((replica, False)), logs.get((replica, True))
        if log is not None:
            copies[replica] = DirCopy(
                copied_bytes=copy.size_bytes if copy is not None else 0,
                # A replica that is being added is made in its directory: its bytes count as those of the reassignment.
                full_bytes=log.size_bytes if replica.topic_partition not in running or copy is not None else 0,
                is_over=copy is None and replica.topic_partition not in running,
            )
    return copies


def _dir_waits(tally: Tally, moves: Mapping[PartitionReplica, str]) -> tuple[str, ...]:
    unheard = (f"{each.topic_partition} waits for broker {each.replica} to answer" for each in sorted(tally.unheard))
    return *unheard, *(
        f"{replica.topic_partition} waits for the copy of broker {replica.replica} in {moves[replica]} "
        f"({decimal(copy.copied_bytes)} of {decimal(copy.full_bytes)})"
        for replica, copy in sorted(tally.copies.items())
        if copy.full_bytes and not copy.is_over
    )
