"""Why each replica is where it is: Kafka's placement arithmetic, told step by step. Pure.

`controller.rules.placement` computes; this traces the same arithmetic with its intermediate values, and finds out from
a finished layout where it may have started. A test holds the two against each other.
Source: Kafka 3.9 `AdminUtils`; spec admin.md §1.4-1.7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from controller.rules.placement import BrokerRack, Start, alternate_racks, fixed_start, infer_start
from controller.wire.types import BrokerId


class Origin(Enum):
    """How a run of partitions came to its replicas, as far as they show."""

    PLACED = "placed when the topic was created"
    ADDED = "added to the topic later"
    BY_HAND = "no start of the arithmetic gives these replicas: placed by hand, reassigned, or on other brokers"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaReason:
    """One replica: where it stands in the broker list, how that was found, and who was passed over."""

    broker_id: BrokerId
    rack: str | None
    index: int
    because: str
    passed_over: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReason:
    """All replicas of a partition, in order; `reasons` is empty when nothing explains them."""

    partition: int
    replicas: tuple[BrokerId, ...]
    origin: Origin
    reasons: tuple[ReplicaReason, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Partitions first to last that one use of the arithmetic placed; `start` is None when none did."""

    first: int
    last: int
    origin: Origin
    start: Start | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A topic's layout: the list that the arithmetic counts in, its runs, and a reason for each replica."""

    broker_list: tuple[BrokerId, ...]
    racks: Mapping[BrokerId, str]
    runs: tuple[Run, ...]
    partitions: tuple[PartitionReason, ...]


def explain(brokers: Sequence[BrokerRack], layout: Mapping[int, Sequence[BrokerId]]) -> Explanation:
    """Explains a layout on these brokers. Racks count only when every broker has one, as for Kafka.

    What fits no start on these brokers is said to be placed by hand: it may also date from when there were others.
    """
    by_id = sorted(brokers, key=lambda b: b.broker_id)
    racks = {b.broker_id: b.rack for b in by_id if b.rack is not None}
    if len(racks) != len(by_id):
        by_id = [BrokerRack(broker_id=b.broker_id) for b in by_id]
        racks = {}
    ids = tuple(alternate_racks(racks) if racks else [b.broker_id for b in by_id])
    ordered = {number: tuple(layout[number]) for number in sorted(layout)}
    runs = tuple(_runs(by_id, ordered))
    partitions = [
        PartitionReason(
            partition=number,
            replicas=ordered[number],
            origin=run.origin,
            reasons=()
            if run.start is None
            else trace(ids, racks, number, len(ordered[number]), run.start, from_partition=run.first),
        )
        for run in runs
        for number in range(run.first, run.last + 1)
        if number in ordered
    ]
    return Explanation(broker_list=ids, racks=racks, runs=runs, partitions=tuple(partitions))


def _runs(brokers: Sequence[BrokerRack], layout: Mapping[int, tuple[BrokerId, ...]]) -> list[Run]:
    """One run for the whole, else the longest beginning that one creation explains and what was added behind it."""
    if not layout:
        return []
    numbers = list(layout)
    placed = _longest(brokers, layout)
    if placed == 0:
        return [Run(first=numbers[0], last=numbers[-1], origin=Origin.BY_HAND, start=None)]
    head = {number: layout[number] for number in numbers[:placed]}
    runs = [Run(first=numbers[0], last=numbers[placed - 1], origin=Origin.PLACED, start=infer_start(brokers, head))]
    return runs + _added(brokers, layout, numbers[placed:])


def _longest(brokers: Sequence[BrokerRack], layout: Mapping[int, tuple[BrokerId, ...]]) -> int:
    """How many partitions from the first on come from one start: what fits a longer beginning fits a shorter one."""
    numbers, low, high = list(layout), 0, len(layout)
    while low < high:
        middle = (low + high + 1) // 2
        if infer_start(brokers, {number: layout[number] for number in numbers[:middle]}) is not None:
            low = middle
        else:
            high = middle - 1
    return low


def _added(brokers: Sequence[BrokerRack], layout: Mapping[int, tuple[BrokerId, ...]], rest: Sequence[int]) -> list[Run]:
    if not rest:
        return []
    ids = [b.broker_id for b in brokers]
    head = layout[min(layout)][0]
    start = fixed_start(next((at for at, broker in enumerate(ids) if broker >= head), 0))
    racks = {b.broker_id: b.rack for b in brokers if b.rack is not None}
    listed = tuple(alternate_racks(racks) if racks else ids)
    fits = [
        len(layout[n]) <= len(ids)
        and tuple(r.broker_id for r in trace(listed, racks, n, len(layout[n]), start, from_partition=rest[0]))
        == layout[n]
        for n in rest
    ]
    count = fits.index(False) if False in fits else len(fits)
    runs = []
    if count:
        runs.append(Run(first=rest[0], last=rest[count - 1], origin=Origin.ADDED, start=start))
    if count < len(rest):
        runs.append(Run(first=rest[count], last=rest[-1], origin=Origin.BY_HAND, start=None))
    return runs


def trace(
    ids: Sequence[BrokerId],
    racks: Mapping[BrokerId, str],
    partition: int,
    replication_factor: int,
    start: Start,
    *,
    from_partition: int = 0,
) -> tuple[ReplicaReason, ...]:
    """The replicas of one partition with the arithmetic of each; `ids` is the list that it counts in.

    `start` belongs to a run of partitions that begins with `from_partition`.
    """
    count = len(ids)
    shift = start.shift + sum(1 for n in range(max(1, from_partition), partition + 1) if n % count == 0)
    first = (partition + start.start_index) % count
    reasons = [
        ReplicaReason(
            broker_id=ids[first],
            rack=racks.get(ids[first]),
            index=first,
            because=f"({partition} + {start.start_index}) mod {count} = {first}",
        )
    ]
    step = 0
    while len(reasons) < replication_factor:
        reason, step = _follower(ids, racks, first, shift, step, reasons)
        reasons.append(reason)
    return tuple(reasons)


def _follower(
    ids: Sequence[BrokerId],
    racks: Mapping[BrokerId, str],
    first: int,
    shift: int,
    step: int,
    chosen: Sequence[ReplicaReason],
) -> tuple[ReplicaReason, int]:
    """The next follower and the step after it; a rack-aware placement passes brokers over."""
    count = len(ids)
    rack_count = len(set(racks.values()))
    base = shift * rack_count if racks else shift
    used_racks = {r.rack for r in chosen}
    passed: list[str] = []
    while True:
        offset = (base + step) % (count - 1)
        at = (first + 1 + offset) % count
        broker, rack = ids[at], racks.get(ids[at])
        step += 1
        if racks and rack in used_racks and len(used_racks) < rack_count:
            passed.append(f"{broker}: rack {rack} has a replica")
        elif any(r.broker_id == broker for r in chosen):
            passed.append(f"{broker}: has a replica")
        else:
            why = f"({first} + 1 + ({base} + {step - 1}) mod {count - 1}) mod {count} = {at}"
            return ReplicaReason(broker_id=broker, rack=rack, index=at, because=why, passed_over=tuple(passed)), step
