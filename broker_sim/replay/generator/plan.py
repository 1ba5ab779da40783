"""What a generated cluster looks like, and what befalls it: settings, replicas, the schedule of faults. Pure.

Faults come one after the other, with time to recover between, so that what each must cause can be told exactly.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Final

from controller.rules.placement import BrokerRack, assign_replicas, draw_start
from controller.wire.types import BrokerId

#: All times of a partition's rows fall into slots of this many ms, one for each kind of row and each follower, so that
#: no two rows of one partition share a ms.
SLOTS: Final = 8
REPLICATION_FACTOR_MAX: Final = 5
APPEND_INTERVAL_MS_MIN: Final = 2 * SLOTS
#: After a fault has ended, every replica is back in the ISR and every preferred leader leads within this time.
RECOVERY_MS: Final = 60_000
#: A broker that comes back leads its partitions again after this time.
PREFERRED_AFTER_MS: Final = 20_000
#: The id of the first controller; each fail-over brings the next.
FIRST_CONTROLLER: Final = 1001


class FaultKind(Enum):
    """What can befall a cluster; the value is the name in `--faults` and in the truth."""

    #: a follower stops fetching, as if its process were stopped
    PAUSE = "pause"
    #: a follower fetches less than is produced, as if throttled
    SLOW = "slow"
    #: a broker is killed, and comes back after its session has expired
    KILL = "kill"
    #: a follower stops and goes on, several times in a row
    FLAP = "flap"
    #: one replica of one partition moves to another broker
    REASSIGN = "reassign"
    #: another controller takes over and repeats what it knows
    CONTROLLER = "controller"


DEFAULT_FAULTS: Final[Mapping[FaultKind, float]] = {
    FaultKind.PAUSE: 4,
    FaultKind.SLOW: 2,
    FaultKind.KILL: 2,
    FaultKind.FLAP: 1,
    FaultKind.REASSIGN: 2,
    FaultKind.CONTROLLER: 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault, in [`from_ms`, `to_ms`). `broker` for those of a broker, `partition_index` for a reassignment.

    `gaps` are the times in which the broker's followers do not fetch (`slow`: fetch too little).
    """

    number: int
    kind: FaultKind
    from_ms: int
    to_ms: int
    broker: BrokerId | None = None
    partition_index: int | None = None
    gaps: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class ClusterPlan:
    """A cluster, its traffic and its faults. Times are ms since the epoch; a topic has the name `topic-NNN`.

    `append_interval_ms` is the mean time between appends to one partition; the first partition gets `skew` times as
    many. `fault_every_ms` is the mean pause between the end of one fault's recovery and the next fault.

    Raises: ValueError, naming what is not possible.
    """

    brokers: int = 3
    topics: int = 1
    partitions_per_topic: int = 6
    replication_factor: int = 3
    hours: float = 1.0
    seed: int = 0
    start_ms: int = 1_767_225_600_000
    append_interval_ms: int = 400
    skew: float = 1.0
    records_per_append_max: int = 20
    record_bytes: int = 200
    lag_time_max_ms: int = 30_000
    min_insync_replicas: int = 1
    session_timeout_ms: int = 6_000
    fault_every_ms: int = 120_000
    faults_wanted: Mapping[FaultKind, float] = field(default_factory=lambda: DEFAULT_FAULTS)

    def __post_init__(self) -> None:
        """Refuses what cannot be generated."""
        refusals = (
            (self.brokers < 1, f"brokers: {self.brokers}; at least 1"),
            (self.topics < 1, f"topics: {self.topics}; at least 1"),
            (self.partitions_per_topic < 1, f"partitions: {self.partitions_per_topic}; at least 1"),
            (
                not 1 <= self.replication_factor <= min(self.brokers, REPLICATION_FACTOR_MAX),
                f"replication factor: {self.replication_factor}; 1 to {min(self.brokers, REPLICATION_FACTOR_MAX)}",
            ),
            (not self.hours > 0, f"hours: {self.hours}; more than 0"),
            (
                self.append_interval_ms < APPEND_INTERVAL_MS_MIN * max(1.0, self.skew),
                f"append interval: {self.append_interval_ms} ms; at least "
                f"{round(APPEND_INTERVAL_MS_MIN * max(1.0, self.skew))} with a skew of {self.skew:g}",
            ),
            (self.skew < 1, f"skew: {self.skew}; at least 1"),
            (self.records_per_append_max < 1, f"records per append: {self.records_per_append_max}; at least 1"),
            (self.record_bytes < 1, f"record bytes: {self.record_bytes}; at least 1"),
            (self.lag_time_max_ms < 1_000, f"replica.lag.time.max.ms: {self.lag_time_max_ms}; at least 1000"),
            (self.min_insync_replicas < 1, f"min.insync.replicas: {self.min_insync_replicas}; at least 1"),
            (self.session_timeout_ms < 1_000, f"session time-out: {self.session_timeout_ms} ms; at least 1000"),
            (self.fault_every_ms < 0, f"time between faults: {self.fault_every_ms} ms; not negative"),
            (any(w < 0 for w in self.faults_wanted.values()), "weights of faults: not negative"),
        )
        for refused, why in refusals:
            if refused:
                raise ValueError(why)

    @property
    def end_ms(self) -> int:
        """When the trace ends, exclusive."""
        return self.start_ms + round(self.hours * 3_600_000)

    @property
    def broker_ids(self) -> tuple[BrokerId, ...]:
        """1 to `brokers`."""
        return tuple(BrokerId(b) for b in range(1, self.brokers + 1))

    @property
    def partition_count(self) -> int:
        """Of all topics together; a partition's index is its place among them."""
        return self.topics * self.partitions_per_topic

    def topic_partition(self, index: int) -> tuple[str, int]:
        """Topic and partition of the index."""
        topic, partition = divmod(index, self.partitions_per_topic)
        return f"topic-{topic:03d}", partition

    @cached_property
    def assignment(self) -> tuple[tuple[BrokerId, ...], ...]:
        """Replicas by partition index, placed as Kafka places them; the first one leads."""
        chance = random.Random(f"{self.seed} assignment")
        brokers = [BrokerRack(broker_id=b) for b in self.broker_ids]
        placed: list[tuple[BrokerId, ...]] = []
        for _ in range(self.topics):
            of_topic = assign_replicas(
                brokers,
                partitions=self.partitions_per_topic,
                replication_factor=self.replication_factor,
                start=draw_start(self.brokers, chance),
            )
            placed.extend(tuple(of_topic[p]) for p in sorted(of_topic))
        return tuple(placed)

    @cached_property
    def tick_phase_ms(self) -> Mapping[BrokerId, int]:
        """t0 of each broker's first process: when its ReplicaManager started."""
        chance = random.Random(f"{self.seed} ticks")
        return {b: self.start_ms + chance.randrange(1, 1_000) for b in self.broker_ids}

    @staticmethod
    def restarted_ms(fault: Fault) -> int:
        """t0 of the process that comes after a kill."""
        return fault.to_ms - 500

    @cached_property
    def runs(self) -> Mapping[BrokerId, tuple[int, ...]]:
        """When each process of each broker started, which is also its t0, in order."""
        runs = {b: [t0] for b, t0 in self.tick_phase_ms.items()}
        for fault in self.faults:
            if fault.kind is FaultKind.KILL and fault.broker is not None:
                runs[fault.broker].append(self.restarted_ms(fault))
        return {b: tuple(starts) for b, starts in runs.items()}

    def run_of(self, broker: BrokerId, ts: int) -> int:
        """The start of the process of the broker that is there at `ts`."""
        starts = self.runs[broker]
        return starts[max(0, bisect_right(starts, ts) - 1)]

    @cached_property
    def gaps(self) -> Mapping[BrokerId, tuple[tuple[FaultKind, int, int], ...]]:
        """When each broker does not fetch as it should: the kind of fault, from, to."""
        gaps: dict[BrokerId, list[tuple[FaultKind, int, int]]] = {}
        for fault in self.faults:
            if fault.broker is not None:
                gaps.setdefault(fault.broker, []).extend((fault.kind, *gap) for gap in fault.gaps)
        return {b: tuple(of_broker) for b, of_broker in gaps.items()}

    def controller_at(self, ts: int) -> int:
        """The id of the controller in office at `ts`."""
        return FIRST_CONTROLLER + sum(f.kind is FaultKind.CONTROLLER and f.from_ms <= ts for f in self.faults)

    def fault_before(self, ts: int) -> Fault | None:
        """The latest fault that had begun at `ts`."""
        at = bisect_right(self.faults, ts, key=lambda f: f.from_ms)
        return self.faults[at - 1] if at else None

    @cached_property
    def faults(self) -> tuple[Fault, ...]:
        """What happens, in order."""
        return tuple(_schedule(self))


def _schedule(plan: ClusterPlan) -> list[Fault]:
    chance = random.Random(f"{plan.seed} faults")
    kinds = [k for k in FaultKind if plan.faults_wanted.get(k, 0) > 0 and _is_possible(plan, k)]
    if not kinds:
        return []
    weights = [plan.faults_wanted[k] for k in kinds]
    faults: list[Fault] = []
    at = plan.start_ms + RECOVERY_MS + round(chance.uniform(0.2, 1.0) * plan.fault_every_ms)
    while True:
        fault = _draw(plan, chance, len(faults), chance.choices(kinds, weights)[0], at)
        if fault.to_ms + RECOVERY_MS + plan.lag_time_max_ms > plan.end_ms:
            return faults
        faults.append(fault)
        at = fault.to_ms + RECOVERY_MS + round(chance.uniform(0.5, 1.5) * plan.fault_every_ms)


def _is_possible(plan: ClusterPlan, kind: FaultKind) -> bool:
    if kind is FaultKind.REASSIGN:
        return plan.brokers > plan.replication_factor > 1
    return kind in (FaultKind.KILL, FaultKind.CONTROLLER) or plan.replication_factor > 1


def _draw(plan: ClusterPlan, chance: random.Random, number: int, kind: FaultKind, at: int) -> Fault:
    lag = plan.lag_time_max_ms
    broker = chance.choice(plan.broker_ids)
    match kind:
        case FaultKind.PAUSE:
            gaps: tuple[tuple[int, int], ...] = ((at, at + round(chance.uniform(0.3, 3.0) * lag)),)
        case FaultKind.SLOW:
            gaps = ((at, at + round(chance.uniform(1.2, 4.0) * lag)),)
        case FaultKind.KILL:
            gaps = ((at, at + plan.session_timeout_ms + 5_000 + round(chance.uniform(0.2, 3.0) * lag)),)
        case FaultKind.FLAP:
            gaps = tuple(_flaps(chance, at, lag))
        case FaultKind.REASSIGN:
            index = chance.randrange(plan.partition_count)
            return Fault(number=number, kind=kind, from_ms=at, to_ms=at + 30_000, partition_index=index)
        case FaultKind.CONTROLLER:
            return Fault(number=number, kind=kind, from_ms=at, to_ms=at + 1_000)
    return Fault(number=number, kind=kind, from_ms=at, to_ms=gaps[-1][1], broker=broker, gaps=gaps)


def _flaps(chance: random.Random, at: int, lag: int) -> list[tuple[int, int]]:
    gaps = []
    for _ in range(chance.randint(2, 5)):
        end = at + round(chance.uniform(1.6, 2.0) * lag)
        gaps.append((at, end))
        at = end + max(5_000, round(chance.uniform(0.2, 0.6) * lag))
    return gaps
