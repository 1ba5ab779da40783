"""What a reassignment will do, told before it is done: `--execute --dry-run`. Pure.

Bytes are those that the leaders' logs have now; what is produced meanwhile comes on top. The order of steps is that of
the cluster's controller, ZooKeeper mode or KRaft. Source: Kafka 3.9 `KafkaController.onPartitionReassignment`, 4.1
`ReplicationControlManager`; spec admin.md §3.9, §3.10.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from controller.admin.cluster.log_dirs import LogDir
from controller.admin.cluster.queries import PartitionInfo
from controller.admin.toolkit.console import commas
from controller.wire.types import BrokerId, PartitionReplica, ReplicaAssignment, TopicPartition

Dirs = Mapping[BrokerId, Sequence[LogDir]]


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
    moves = tuple(_move(p, targets[p], now) for p in sorted(targets))
    links: Counter[tuple[BrokerId, BrokerId]] = Counter()
    for move in moves:
        for broker in move.meanwhile.adding_replicas:
            if move.leader is not None and broker not in _holders(now, move.partition):
                links[move.leader, broker] += move.bytes_per_copy
    return Effect(
        moves=moves,
        links=dict(sorted(links.items())),
        dirs=tuple(_dirs(moves, log_dirs, now)),
        dir_moves=_dir_moves(moves, log_dirs, now),
    )


def _move(partition: TopicPartition, target: tuple[BrokerId, ...], now: Now) -> PartitionMove:
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
        bytes_per_copy=_size(now, partition, before.leader),
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


def _size(now: Now, partition: TopicPartition, broker: BrokerId | None) -> int:
    """The size of a broker's log of a partition; of the largest log known when that broker does not tell."""
    sizes = {
        at: log.size_bytes
        for at, dirs in now.dirs.items()
        for log_dir in dirs
        for log in log_dir.replicas
        if log.partition == partition and not log.is_future
    }
    return sizes.get(broker, max(sizes.values(), default=0)) if broker is not None else max(sizes.values(), default=0)


def _holders(now: Now, partition: TopicPartition) -> set[BrokerId]:
    """Brokers that are in the ISR already, so that nothing is left to copy."""
    return set(now.partitions[partition].isr)


def _dirs(moves: Sequence[PartitionMove], log_dirs: Mapping[PartitionReplica, str], now: Now) -> Iterator[DirUse]:
    """Per directory: all that comes is there before anything goes, which is the worst that can be."""
    before: Counter[tuple[BrokerId, str]] = Counter()
    coming: Counter[tuple[BrokerId, str]] = Counter()
    going: Counter[tuple[BrokerId, str]] = Counter()
    places: dict[PartitionReplica, str] = {}
    sizes: dict[PartitionReplica, int] = {}
    logs: Counter[tuple[BrokerId, str]] = Counter()
    for broker, listed in now.dirs.items():
        for log_dir in listed:
            before[broker, log_dir.path] += sum(log.size_bytes for log in log_dir.replicas)
            logs[broker, log_dir.path] += len(log_dir.replicas)
            here = [log for log in log_dir.replicas if not log.is_future]
            places |= {PartitionReplica(log.partition, broker): log_dir.path for log in here}
            sizes |= {PartitionReplica(log.partition, broker): log.size_bytes for log in here}
    for move in moves:
        for broker in move.meanwhile.replicas:
            replica = PartitionReplica(move.partition, broker)
            target_dir, place = log_dirs.get(replica), places.get(replica)
            if place is None and broker in move.meanwhile.adding_replicas:
                path = target_dir or _emptiest(broker, now.dirs, logs)
                logs[broker, path] += 1
                coming[broker, path] += move.bytes_per_copy
            elif place is not None and broker in move.meanwhile.removing_replicas:
                going[broker, place] += sizes[replica]
            elif place is not None and target_dir is not None and target_dir != place:
                coming[broker, target_dir] += sizes[replica]
                going[broker, place] += sizes[replica]
    for broker, path in sorted(coming.keys() | going.keys()):
        size = before[broker, path]
        peak = size + coming[broker, path]
        yield DirUse(broker=broker, path=path, before=size, peak=peak, after=peak - going[broker, path])


def _dir_moves(
    moves: Sequence[PartitionMove], log_dirs: Mapping[PartitionReplica, str], now: Now
) -> dict[PartitionReplica, int]:
    """The replicas that stay on their broker and go to another of its directories, with their bytes."""
    staying = {
        PartitionReplica(move.partition, broker)
        for move in moves
        for broker in set(move.target) - set(move.meanwhile.adding_replicas)
    }
    here = {
        PartitionReplica(log.partition, broker): (log_dir.path, log.size_bytes)
        for broker, listed in now.dirs.items()
        for log_dir in listed
        for log in log_dir.replicas
        if not log.is_future
    }
    paths = {replica: path for replica, path in log_dirs.items() if replica in staying and replica in here}
    return {replica: here[replica][1] for replica, path in sorted(paths.items()) if here[replica][0] != path}


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
