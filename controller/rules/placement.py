"""Where the replicas of new partitions go: Kafka's assignment arithmetic, as pure functions.

Controller, brokers (auto-creation) and tools (plans) share it. Broker ids come from the given order of brokers, never
from arithmetic on ids; chance comes only from a `Chance` that is passed in.

Source: Kafka 3.9 `AdminUtils`, `AdminZkClient`, `BrokerMetadata`; spec admin.md §1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.types import BrokerId

#: Replicas of each partition, in order; the first is the preferred leader.
Assignment = dict[int, tuple[BrokerId, ...]]


class InvalidPartitions(KafkaError):
    """A number of partitions that cannot be (InvalidPartitionsException)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_PARTITIONS, message)


class InvalidReplicationFactor(KafkaError):
    """A replication factor that cannot be (InvalidReplicationFactorException)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REPLICATION_FACTOR, message)


class InvalidReplicaAssignment(KafkaError):
    """A manual assignment that cannot be (InvalidReplicaAssignmentException)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


class BrokersNotAvailable(KafkaError):
    """A manual assignment names brokers that are not registered (BrokerNotAvailableException)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.BROKER_NOT_AVAILABLE, message)


class AdminOperationFailed(KafkaError):
    """What Kafka has no error code for (AdminOperationException): peers see UNKNOWN_SERVER_ERROR."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)


class Chance(Protocol):
    """What is used of `random.Random`."""

    def randrange(self, stop: int, /) -> int:
        """A uniform draw from 0 to `stop` - 1."""
        ...


class RackMode(Enum):
    """What to do about brokers without a rack; see `usable_brokers`."""

    ENFORCED = "enforced"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRack:
    """A broker that replicas may be put on."""

    broker_id: BrokerId
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where the arithmetic starts: both in 0..brokers-1."""

    start_index: int
    shift: int


MIXED_RACKS_ENFORCED = (
    "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica assignment "
    "without rack information."
)
MIXED_RACKS = "Not all brokers have rack information for replica rack aware assignment."


def usable_brokers(brokers: Iterable[BrokerRack], mode: RackMode) -> list[BrokerRack]:
    """The brokers by id, with or without their racks as `mode` says.

    Raises: AdminOperationFailed, when racks are enforced and only some brokers have one.
    """
    by_id = sorted(brokers, key=lambda b: b.broker_id)
    if mode is RackMode.DISABLED:
        return [BrokerRack(broker_id=b.broker_id) for b in by_id]
    if 0 < sum(b.rack is not None for b in by_id) < len(by_id):
        raise AdminOperationFailed(MIXED_RACKS_ENFORCED)
    return by_id


def draw_start(broker_count: int, chance: Chance) -> Start:
    """Two independent draws, in this order; zeros without brokers (the assignment then says what is wrong)."""
    if broker_count <= 0:
        return Start(start_index=0, shift=0)
    return Start(start_index=chance.randrange(broker_count), shift=chance.randrange(broker_count))


def fixed_start(index: int) -> Start:
    """Kafka's `fixedStartIndex`: both values are the same."""
    return Start(start_index=index, shift=index)


def assign_replicas(
    brokers: Sequence[BrokerRack], *, partitions: int, replication_factor: int, start: Start, first_partition: int = 0
) -> Assignment:
    """Replicas for `partitions` partitions, numbered from `first_partition`.

    Rack-unaware when no broker has a rack, rack-aware when all have one. Deterministic: chance is in `start`.

    Raises: InvalidPartitions, InvalidReplicationFactor, AdminOperationFailed (only some have a rack), in this order.
    """
    check_counts(partitions=partitions, replication_factor=replication_factor, broker_count=len(brokers))
    racks = {b.broker_id: b.rack for b in brokers if b.rack is not None}
    if racks and len(racks) != len(brokers):
        raise AdminOperationFailed(MIXED_RACKS)
    numbers = range(max(0, first_partition), max(0, first_partition) + partitions)
    if not racks:
        return _rack_unaware([b.broker_id for b in brokers], numbers, replication_factor, start)
    return _rack_aware(racks, numbers, replication_factor, start)


def check_counts(*, partitions: int, replication_factor: int, broker_count: int) -> None:
    """Refuses counts that cannot be placed on so many brokers. Raises: as `assign_replicas`."""
    if partitions <= 0:
        raise InvalidPartitions("Number of partitions must be larger than 0.")
    if replication_factor <= 0:
        raise InvalidReplicationFactor("Replication factor must be larger than 0.")
    if replication_factor > broker_count:
        raise InvalidReplicationFactor(
            f"Replication factor: {replication_factor} larger than available brokers: {broker_count}."
        )


def _rack_unaware(ids: Sequence[BrokerId], numbers: range, replication_factor: int, start: Start) -> Assignment:
    count, shift = len(ids), start.shift
    assignment: Assignment = {}
    for partition in numbers:
        if partition > 0 and partition % count == 0:
            shift += 1
        first = (partition + start.start_index) % count
        followers = (_follower(first, shift + j, count) for j in range(replication_factor - 1))
        assignment[partition] = (ids[first], *(ids[at] for at in followers))
    return assignment


def _follower(first: int, step: int, count: int) -> int:
    """The `step`-th broker after the first, which itself is never met."""
    return (first + 1 + step % (count - 1)) % count


def _rack_aware(racks: Mapping[BrokerId, str], numbers: range, replication_factor: int, start: Start) -> Assignment:
    ids = alternate_racks(racks)
    count, shift = len(ids), start.shift
    rack_count = len(set(racks.values()))
    assignment: Assignment = {}
    for partition in numbers:
        if partition > 0 and partition % count == 0:
            shift += 1
        first = (partition + start.start_index) % count
        chosen = [ids[first]]
        used_racks = {racks[ids[first]]}
        step = 0
        while len(chosen) < replication_factor:
            candidate = ids[_follower(first, shift * rack_count + step, count)]
            step += 1
            rack_is_free = racks[candidate] not in used_racks or len(used_racks) == rack_count
            if rack_is_free and candidate not in chosen:
                chosen.append(candidate)
                used_racks.add(racks[candidate])
        assignment[partition] = tuple(chosen)
    return assignment


def alternate_racks(racks: Mapping[BrokerId, str]) -> list[BrokerId]:
    """All brokers, one of each rack in turn: racks by name, ids ascending within a rack, empty racks skipped."""
    by_rack: dict[str, list[BrokerId]] = {}
    for broker_id in sorted(racks):
        by_rack.setdefault(racks[broker_id], []).append(broker_id)
    columns = [by_rack[rack] for rack in sorted(by_rack)]
    deepest = max(map(len, columns), default=0)
    return [column[depth] for depth in range(deepest) for column in columns if depth < len(column)]


def add_partitions(
    topic: str,
    existing: Mapping[int, Sequence[BrokerId]],
    brokers: Iterable[BrokerRack],
    *,
    total: int,
    manual: Sequence[Sequence[BrokerId]] | None = None,
) -> Assignment:
    """Replicas of the partitions that bring `topic` to `total`; `manual` gives them, in order, instead of arithmetic.

    Raises: AdminOperationFailed (no partition 0, or a gap, so that a number would be given twice, which Kafka does;
    docs/deviations.md; mixed racks), InvalidPartitions (no increase),
    InvalidReplicaAssignment and BrokersNotAvailable (manual lists), InvalidReplicationFactor, in this order.
    """
    by_id = sorted(brokers, key=lambda b: b.broker_id)
    missing = next((p for p in range(len(existing)) if p not in existing), 0)
    if 0 not in existing or not existing.keys().isdisjoint(range(len(existing), total)):
        raise AdminOperationFailed(
            f"Unexpected existing replica assignment for topic '{topic}', partition id {missing} is missing. "
            f"Assignment: {_map_text(existing)}"
        )
    if total <= len(existing):
        raise InvalidPartitions(
            f"The number of partitions for a topic can only be increased. Topic {topic} currently has "
            f"{len(existing)} partitions, {total} would not be an increase."
        )
    if manual is not None:
        added = {len(existing) + at: tuple(replicas) for at, replicas in enumerate(manual)}
        check_added(added, replication_factor=len(existing[0]), brokers={b.broker_id for b in by_id})
        return added
    head = existing[0][0] if existing[0] else BrokerId(-1)
    index = next((at for at, broker in enumerate(by_id) if broker.broker_id >= head), 0)
    return assign_replicas(
        by_id,
        partitions=total - len(existing),
        replication_factor=len(existing[0]),
        start=fixed_start(index),
        first_partition=len(existing),
    )


def check_added(added: Mapping[int, Sequence[BrokerId]], *, replication_factor: int, brokers: set[BrokerId]) -> None:
    """Refuses manual lists of added partitions. Raises: InvalidReplicaAssignment, BrokersNotAvailable."""
    for partition, replicas in added.items():
        if not replicas:
            raise InvalidReplicaAssignment(_no_replica(partition))
        if len(set(replicas)) != len(replicas):
            raise InvalidReplicaAssignment(
                f"Duplicate brokers not allowed in replica assignment: {_join(replicas)} for partition id {partition}."
            )
        if not set(replicas) <= brokers:
            raise BrokersNotAvailable(
                f"Some brokers specified for partition id {partition} are not available. "
                f"Specified brokers: {_join(replicas)}, available brokers: {_join(sorted(brokers))}."
            )
    wrong = sorted((p, len(r)) for p, r in added.items() if len(r) != replication_factor)
    if wrong:
        raise InvalidReplicaAssignment(
            f"Inconsistent replication factor between partitions, partition 0 has {replication_factor} while "
            f"partitions [{_join(p for p, _ in wrong)}] have replication factors [{_join(n for _, n in wrong)}], "
            "respectively."
        )


def _no_replica(partition: int) -> str:
    return f"Cannot have replication factor of 0 for partition id {partition}."


def check_manual(assignment: Mapping[int, Sequence[BrokerId]]) -> None:
    """Refuses a manual assignment of a new topic. Unknown brokers are allowed, as in Kafka.

    Raises: InvalidReplicaAssignment: unequal counts, none (Kafka makes partitions that nobody can lead;
    docs/deviations.md), a broker twice in a partition, numbers that are not 0..n-1; in this order.
    """
    if len({len(replicas) for replicas in assignment.values()}) != 1:
        raise InvalidReplicaAssignment("All partitions should have the same number of replicas")
    for partition in sorted(assignment):
        replicas = assignment[partition]
        if not replicas:
            raise InvalidReplicaAssignment(_no_replica(partition))
        if len(set(replicas)) != len(replicas):
            raise InvalidReplicaAssignment(f"Duplicate replica assignment found: {_map_text(assignment)}")
    if set(assignment) != set(range(len(assignment))):
        raise InvalidReplicaAssignment("partitions should be a consecutive 0-based integer sequence")


def assign_naively(brokers: Sequence[BrokerRack], *, partitions: int, replication_factor: int) -> Assignment:
    """The obvious scheme, kept to show what is wrong with it: replica j of partition i on broker (i + j) mod n.

    Its flaws: every topic starts at the first broker, so that what does not divide evenly always lands on the first
    ones; and partitions i and i + n have the same replicas, so that all leaderships of a broker that dies go to one
    neighbour. Racks are not looked at. Raises: InvalidPartitions, InvalidReplicationFactor. Source: spec admin.md §1.9.
    """
    check_counts(partitions=partitions, replication_factor=replication_factor, broker_count=len(brokers))
    ids, count = [b.broker_id for b in brokers], len(brokers)
    return {i: tuple(ids[(i + j) % count] for j in range(replication_factor)) for i in range(partitions)}


def infer_start(brokers: Sequence[BrokerRack], assignment: Mapping[int, Sequence[BrokerId]]) -> Start | None:
    """The start from which the arithmetic on these brokers gives exactly this layout; None when no start does.

    The start index is where the first partition's leader stands. The shift is known modulo brokers - 1 only, so the
    least one is given; without followers it is 0, for nothing shows it.
    """
    if not assignment or not assignment[min(assignment)]:
        return None
    first, factor = min(assignment), len(assignment[min(assignment)])
    racks = {b.broker_id: b.rack for b in brokers if b.rack is not None}
    if list(assignment) != list(range(first, first + len(assignment))) or factor > len(brokers):
        return None
    if racks and len(racks) != len(brokers):
        return None
    ids = alternate_racks(racks) if racks else [b.broker_id for b in brokers]
    leader = assignment[first][0]
    if leader not in ids:
        return None
    target = {number: tuple(replicas) for number, replicas in assignment.items()}
    for shift in range(max(1, len(ids) - 1)):
        start = Start(start_index=(ids.index(leader) - first) % len(ids), shift=shift)
        if _begins_with(brokers, start, target) and target == assign_replicas(
            brokers, partitions=len(target), replication_factor=factor, start=start, first_partition=first
        ):
            return start
    return None


def _begins_with(brokers: Sequence[BrokerRack], start: Start, target: Assignment) -> bool:
    """A quick look at the first partition, before all are placed."""
    first = min(target)
    placed = assign_replicas(
        brokers, partitions=1, replication_factor=len(target[first]), start=start, first_partition=first
    )
    return placed[first] == target[first]


def duplicates(values: Iterable[int]) -> list[int]:
    """The values that occur more than once, in order of first occurrence."""
    return [value for value, count in Counter(values).items() if count > 1]


def _join(values: Iterable[int]) -> str:
    return ", ".join(map(str, values))


def _map_text(assignment: Mapping[int, Sequence[BrokerId]]) -> str:
    """As Scala prints a map of lists."""
    return "Map(" + ", ".join(f"{p} -> List({_join(r)})" for p, r in sorted(assignment.items())) + ")"
