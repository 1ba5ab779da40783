"""How even a layout is: replicas and leaders per broker and rack, as counts and as one number each. Pure.

A skew is the fullest one's share times their number, divided by the sum: 1.0 is perfect, N means that one has it all.
Brokers without any count, too. Source: spec admin.md §1.10; the imbalance is the controller's own rule
(`KafkaController.checkAndTriggerAutoLeaderRebalance`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from controller.rules.placement import BrokerRack
from controller.wire.types import BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Skew:
    """Counts per broker and per rack (racks by name; none without racks), and what follows of them.

    `rack_violations` is the number of replicas that stand in a rack which the partition already has, although another
    rack was free.
    """

    replicas: Mapping[BrokerId, int]
    leaders: Mapping[BrokerId, int]
    rack_replicas: Mapping[str, int]
    rack_leaders: Mapping[str, int]
    rack_violations: int

    @property
    def replica_skew(self) -> float:
        """Of replicas over brokers."""
        return skew_of(self.replicas.values())

    @property
    def leader_skew(self) -> float:
        """Of preferred leaders over brokers."""
        return skew_of(self.leaders.values())


def skew_of(counts: Iterable[int]) -> float:
    """The greatest count, times how many counts there are, divided by their sum; 1.0 where there is nothing."""
    listed = list(counts)
    total = sum(listed)
    return max(listed) * len(listed) / total if total else 1.0


def measure(layout: Iterable[Sequence[BrokerId]], brokers: Iterable[BrokerRack]) -> Skew:
    """The skew of these replica lists over these brokers; replicas on other brokers are not counted."""
    racks = {b.broker_id: b.rack for b in sorted(brokers, key=lambda b: b.broker_id)}
    replicas, leaders = dict.fromkeys(racks, 0), dict.fromkeys(racks, 0)
    rack_names = sorted({rack for rack in racks.values() if rack is not None})
    rack_replicas, rack_leaders = dict.fromkeys(rack_names, 0), dict.fromkeys(rack_names, 0)
    violations = 0
    for listed in layout:
        for position, broker in enumerate(listed):
            if broker not in racks:
                continue
            replicas[broker] += 1
            leaders[broker] += position == 0
            rack = racks[broker]
            if rack is not None:
                rack_replicas[rack] += 1
                rack_leaders[rack] += position == 0
        racked = [rack for b in listed if (rack := racks.get(b)) is not None]
        violations += min(len(racked), len(rack_names)) - len({*racked})
    return Skew(
        replicas=replicas,
        leaders=leaders,
        rack_replicas=rack_replicas,
        rack_leaders=rack_leaders,
        rack_violations=violations,
    )


def leader_imbalance(partitions: Iterable[tuple[Sequence[BrokerId], BrokerId | None]]) -> dict[BrokerId, float]:
    """Per broker the share, 0 to 1, of the partitions preferring it that are led elsewhere.

    `partitions` are pairs of replicas and present leader. Auto-election fires for a broker above
    `leader.imbalance.per.broker.percentage` / 100.
    """
    preferring: dict[BrokerId, int] = {}
    elsewhere: dict[BrokerId, int] = {}
    for replicas, leader in partitions:
        if replicas:
            preferring[replicas[0]] = preferring.get(replicas[0], 0) + 1
            elsewhere[replicas[0]] = elsewhere.get(replicas[0], 0) + (leader != replicas[0])
    return {broker: elsewhere[broker] / preferring[broker] for broker in sorted(preferring)}
