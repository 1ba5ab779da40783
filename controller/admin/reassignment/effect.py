"""What a reassignment will do, told before it is done: `--execute --dry-run`. Pure.

Bytes are those that the leaders' logs have now; what is produced meanwhile comes on top. The order of steps is that of
the cluster's controller, ZooKeeper mode or KRaft. Source: Kafka 3.9 `KafkaController.onPartitionReassignment`, 4.1
`ReplicationControlManager`; spec admin.md §3.9, §3.10.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from controller.admin.cluster.log_dirs import LogDir
from controller.admin.cluster.queries import PartitionInfo
from controller.admin.toolkit.console import commas
from controller.wire.types import BrokerId, PartitionReplica, ReplicaAssignment, TopicPartition

Dirs = Mapping[BrokerId, Sequence[LogDir]]


@dataclass(frozen=True, slots=True)
class _Log:
    path: str
    size: int


_Logs = Mapping[PartitionReplica, _Log]


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """What the effect is computed from. `moving` are the reassignments that run already."""

    partitions: Mapping[TopicPartition, PartitionInfo]
    dirs: Dirs
    live: Collection[BrokerId]
    moving: Mapping[TopicPartition, ReplicaAssignment] = field(default_factory=dict)
    is_kraft: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMove:
    """One partition: the list it will have meanwhile, who leads before and after, and the bytes of one copy.

    `leader_after` is None when nobody of the target lives; `blocked` says why it would not get done.
    """

    partition: TopicPartition
    meanwhile: ReplicaAssignment
    target: tuple[BrokerId, ...]
    leader: BrokerId | None
    leader_after: BrokerId | None
    bytes_per_copy: int
    blocked: str | None = None
    is_kraft: bool = False

    @property
    def leader_moves(self) -> bool:
        """Whether the controller elects another leader at the end."""
        return self.leader_after != self.leader

    @property
    def preferred_changes(self) -> bool:
        """Whether a later preferred election, or the automatic one, moves leadership."""
        return self.leader_after != self.target[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class DirUse:
    """Bytes in a log directory: now, at the most, and when all is done."""

    broker: BrokerId
    path: str
    before: int
    peak: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """All of it. `links` are bytes from the leader that is copied from to the broker that copies; `dir_moves` those of
    replicas that go to another log directory of their broker."""

    moves: tuple[PartitionMove, ...]
    links: Mapping[tuple[BrokerId, BrokerId], int]
    dirs: tuple[DirUse, ...]
    dir_moves: Mapping[PartitionReplica, int]

    @property
    def bytes_total(self) -> int:
        """To be copied between brokers."""
        return sum(self.links.values())

    def bytes_into(self, broker: BrokerId) -> int:
        """To be copied to a broker."""
        return sum(size for (_, to), size in self.links.items() if to == broker)

    def bytes_out_of(self, broker: BrokerId) -> int:
        """To be copied from a broker."""
        return sum(size for (source, _), size in self.links.items() if source == broker)

    @property
    def brokers(self) -> list[BrokerId]:
        """All that send or get bytes."""
        return sorted({broker for link in self.links for broker in link})

    def least_seconds(self, throttle: int) -> float | None:
        """The least time at so many bytes per second and broker, nothing being produced; None without a limit."""
        if throttle <= 0 or not self.links:
            return None
        return max(max(self.bytes_into(b), self.bytes_out_of(b)) for b in self.brokers) / throttle


def effect(
    targets: Mapping[TopicPartition, tuple[BrokerId, ...]], log_dirs: Mapping[PartitionReplica, str], now: Now
) -> Effect:
    """What executing these targets does. Partitions of `targets` are in `now.partitions`."""
    logs, copies = _logs(now.dirs, are_future=False), _logs(now.dirs, are_future=True)
    moves = tuple(_move(p, targets[p], now, logs) for p in sorted(targets))
    links: Counter[tuple[BrokerId, BrokerId]] = Counter()
    for move in moves:
        for broker in move.meanwhile.adding_replicas:
            if move.leader is not None and broker not in _holders(now, move.partition):
                links[move.leader, broker] += _left_to_copy(move, broker, logs, now)
    return Effect(
        moves=moves,
        links=dict(sorted(links.items())),
        dirs=tuple(_dirs(moves, log_dirs, now, logs, copies)),
        dir_moves=_dir_moves(moves, log_dirs, logs, copies),
    )


def _move(partition: TopicPartition, target: tuple[BrokerId, ...], now: Now, logs: _Logs) -> PartitionMove:
    before = now.partitions[partition]
    current = now.moving.get(partition, ReplicaAssignment(replicas=before.replicas))
    meanwhile = current.reassign_to(target)
    stays = before.leader in target and before.leader in now.live
    after = before.leader if stays else next((b for b in target if b in now.live), None)
    return PartitionMove(
        partition=partition,
        is_kraft=now.is_kraft,
        meanwhile=meanwhile,
        target=target,
        leader=before.leader,
        leader_after=after,
        bytes_per_copy=_size(logs, now.dirs, partition, before.leader),
        blocked=_blocked(before, meanwhile, target, now),
    )


def _blocked(before: PartitionInfo, meanwhile: ReplicaAssignment, target: Sequence[BrokerId], now: Now) -> str | None:
    if not meanwhile.is_being_reassigned:
        return None
    if before.leader is None:
        return "it has no leader to copy from"
    dead = [b for b in target if b not in now.live]
    if dead:
        return f"broker {','.join(map(str, dead))} of the target is not alive, so it cannot come into the ISR"
    return None


def _size(logs: _Logs, brokers: Iterable[BrokerId], partition: TopicPartition, leader: BrokerId | None) -> int:
    """The size of the leader's log of a partition; of the largest log there is when the leader does not tell."""
    found = {broker: logs.get(PartitionReplica(partition, broker)) for broker in brokers}
    sizes = {broker: log.size for broker, log in found.items() if log is not None}
    largest = max(sizes.values(), default=0)
    return largest if leader is None else sizes.get(leader, largest)


def _holders(now: Now, partition: TopicPartition) -> set[BrokerId]:
    """Brokers that are in the ISR already, so that nothing is left to copy."""
    return set(now.partitions[partition].isr)


def _logs(dirs: Dirs, *, are_future: bool) -> _Logs:
    """The logs of replicas, or the copies under way to another directory of the same broker."""
    return {
        PartitionReplica(log.partition, broker): _Log(log_dir.path, log.size_bytes)
        for broker, listed in dirs.items()
        for log_dir in listed
        for log in log_dir.replicas
        if log.is_future is are_future
    }


def _left_to_copy(move: PartitionMove, broker: BrokerId, logs: _Logs, now: Now) -> int:
    """Bytes that a broker has still to get: none in the ISR, and not again what it has of a copy under way."""
    if broker not in move.meanwhile.adding_replicas or broker in _holders(now, move.partition):
        return 0
    begun = logs.get(PartitionReplica(move.partition, broker))
    return max(0, move.bytes_per_copy - (begun.size if begun is not None else 0))


def _dirs(
    moves: Sequence[PartitionMove], log_dirs: Mapping[PartitionReplica, str], now: Now, logs: _Logs, copies: _Logs
) -> Iterator[DirUse]:
    """Per directory: all that comes is there before anything goes, which is the worst that can be.

    A copy that is under way to the directory that is named goes on; one to another is deleted (Kafka 3.9
    `ReplicaManager.alterReplicaLogDirs`), and so are all logs of a broker that has the partition no more.
    """
    before: Counter[tuple[BrokerId, str]] = Counter()
    coming: Counter[tuple[BrokerId, str]] = Counter()
    going: Counter[tuple[BrokerId, str]] = Counter()
    counts: Counter[tuple[BrokerId, str]] = Counter()
    for broker, listed in now.dirs.items():
        for log_dir in listed:
            before[broker, log_dir.path] += sum(log.size_bytes for log in log_dir.replicas)
            counts[broker, log_dir.path] += len(log_dir.replicas)
    for move in moves:
        for broker in dict.fromkeys((*move.meanwhile.replicas, *now.partitions[move.partition].replicas)):
            replica = PartitionReplica(move.partition, broker)
            target_dir, log, copy = log_dirs.get(replica), logs.get(replica), copies.get(replica)
            if broker not in move.target:
                for gone in filter(None, (log, copy)):
                    going[broker, gone.path] += gone.size
            elif log is not None:
                left = _left_to_copy(move, broker, logs, now)
                if left:
                    coming[broker, log.path] += left
                if target_dir is not None and copy is not None and copy.path != target_dir:
                    going[broker, copy.path] += copy.size
                if target_dir is not None and target_dir != log.path:
                    coming[broker, target_dir] += _left_between(log.size + left, copy, target_dir)
                    going[broker, log.path] += log.size + left
            elif broker in move.meanwhile.adding_replicas:
                path = target_dir or _emptiest(broker, now.dirs, counts)
                counts[broker, path] += 1
                coming[broker, path] += move.bytes_per_copy
    for broker, path in sorted(coming.keys() | going.keys()):
        size = before[broker, path]
        peak = size + coming[broker, path]
        yield DirUse(broker=broker, path=path, before=size, peak=peak, after=peak - going[broker, path])


def _left_between(size: int, copy: _Log | None, target_dir: str) -> int:
    """Bytes that a directory has still to get of a log of its broker."""
    return max(0, size - (copy.size if copy is not None and copy.path == target_dir else 0))


def _dir_moves(
    moves: Sequence[PartitionMove], log_dirs: Mapping[PartitionReplica, str], logs: _Logs, copies: _Logs
) -> dict[PartitionReplica, int]:
    """The replicas that stay on their broker and go to another of its directories, with the bytes that are left."""
    staying = {
        PartitionReplica(move.partition, broker)
        for move in moves
        for broker in set(move.target) - set(move.meanwhile.adding_replicas)
    }
    return {
        replica: _left_between(logs[replica].size, copies.get(replica), path)
        for replica, path in sorted(log_dirs.items())
        if replica in staying and replica in logs and logs[replica].path != path
    }


def _emptiest(broker: BrokerId, dirs: Dirs, logs: Mapping[tuple[BrokerId, str], int]) -> str:
    """Where a broker puts a new log: the directory with the fewest, whatever their sizes."""
    usable = [log_dir.path for log_dir in dirs.get(broker, ()) if log_dir.error is None]
    return min(usable, key=lambda path: (logs.get((broker, path), 0), path), default="?")


# -- the order of the controller's steps -------------------------------------------------------------------------------


def steps(move: PartitionMove) -> list[str]:
    """What the controller does for one partition, in order."""
    if move.is_kraft:
        return _steps_of_kraft(move)
    r, topic = move.meanwhile, move.partition.topic
    if not r.is_being_reassigned:
        return [f"write replicas [{commas(move.target)}] to /brokers/topics/{topic}; nothing is copied: done at once"]
    lines = [
        f"write replicas [{commas(r.replicas)}] adding [{commas(r.adding_replicas)}] removing "
        f"[{commas(r.removing_replicas)}] to /brokers/topics/{topic}"
    ]
    if r.adding_replicas:
        lines.append(
            f"LeaderAndIsr with the next leader epoch to {commas(r.replicas)}; {commas(r.adding_replicas)} begin"
        )
        lines.append(f"wait until all of {commas(move.target)} are in the ISR")
    if move.leader_moves:
        lines.append(f"leader {_one(move.leader)} is not in the target or not alive: elect {_one(move.leader_after)}")
    else:
        lines.append(f"leader {_one(move.leader)} stays; LeaderAndIsr with the next leader epoch")
    if r.removing_replicas:
        lines.append(f"StopReplica to {commas(r.removing_replicas)}: out of the ISR, then deleted")
    lines.append(f"write replicas [{commas(move.target)}]; UpdateMetadata to all brokers")
    return lines


def _steps_of_kraft(move: PartitionMove) -> list[str]:
    """One record begins it and one ends it; brokers read both in the metadata log, nobody sends them requests.

    Source: Kafka 4.1 `ReplicationControlManager.alterPartitionReassignment`, `PartitionReassignmentReplicas`.
    """
    r = move.meanwhile
    if not r.is_being_reassigned:
        return [f"metadata log: PartitionChange with replicas [{commas(move.target)}]; nothing is copied: done at once"]
    lines = [
        f"metadata log: PartitionChange with replicas [{commas(r.replicas)}] adding [{commas(r.adding_replicas)}] "
        f"removing [{commas(r.removing_replicas)}]; every broker reads it"
    ]
    if r.adding_replicas:
        lines.append(f"{commas(r.adding_replicas)} begin to copy from leader {_one(move.leader)}")
        lines.append(f"wait until {commas(r.adding_replicas)} are in the ISR: the leader asks for it by AlterPartition")
    leader = f"leader {_one(move.leader_after)}" if move.leader_moves else f"leader {_one(move.leader)} stays"
    lines.append(
        f"metadata log: in one PartitionChange replicas [{commas(move.target)}], ISR without "
        f"[{commas(r.removing_replicas)}], {leader}"
    )
    if r.removing_replicas:
        lines.append(f"{commas(r.removing_replicas)} read it and delete their replicas")
    return lines


# -- is a throttle enough ----------------------------------------------------------------------------------------------


def smallest_useful_rate(result: Effect, produced: Mapping[TopicPartition, float]) -> int:
    """The least throttle, in bytes per second, with which the copies come nearer their leaders; 0 if any will do.

    A broker's rate is shared by all it copies in, and again by all that others copy from it. What is produced to these
    partitions meanwhile uses it up first, once per copy.
    """
    into: dict[BrokerId, float] = defaultdict(float)
    out_of: dict[BrokerId, float] = defaultdict(float)
    for move in result.moves:
        rate = produced.get(move.partition, 0.0)
        for broker in move.meanwhile.adding_replicas:
            into[broker] += rate
            if move.leader is not None:
                out_of[move.leader] += rate
    needed = max([*into.values(), *out_of.values(), 0])
    return int(needed) + 1 if needed > 0 else 0


def _one(broker: BrokerId | None) -> str:
    return "none" if broker is None else str(broker)
