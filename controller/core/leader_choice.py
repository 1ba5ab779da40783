"""Who leads next: arithmetic on plain values, and the four strategies that use it.

Candidates are always tried in the order of the assignment, never in that of the ISR (KAFKA-3670): the load of a dead
broker then spreads as the assignment says.

Source: Kafka 3.9 `Election`, `PartitionLeaderElectionAlgorithms`; spec controller.md §6.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from controller.wire.types import BrokerId


@dataclass(frozen=True, slots=True)
class Election:
    """A new leader and ISR. `unclean` when the leader was not in the ISR, so records may be lost."""

    leader: BrokerId
    isr: tuple[BrokerId, ...]
    unclean: bool = False


@dataclass(frozen=True, slots=True)
class OfflineElection:
    """For partitions without a live leader. `allow_unclean` permits it without asking the topic's config; with
    `in_sync_only` nobody is asked, and nobody from outside the ISR is elected."""

    allow_unclean: bool = False
    in_sync_only: bool = False


@dataclass(frozen=True, slots=True)
class ReassignElection:
    """For a leader that is not among the target replicas of a reassignment, or is dead."""


@dataclass(frozen=True, slots=True)
class PreferredElection:
    """Back to the first replica."""


@dataclass(frozen=True, slots=True)
class ControlledShutdownElection:
    """Away from brokers that are shutting down."""


Strategy = OfflineElection | ReassignElection | PreferredElection | ControlledShutdownElection


def elect_offline(
    assignment: Sequence[BrokerId],
    isr: Sequence[BrokerId],
    online: Collection[BrokerId],
    *,
    unclean_allowed: bool = False,
) -> Election | None:
    """The first online ISR member in assignment order, with the online part of the ISR; else, where permitted, the
    first online replica alone; else None. Whether the present leader is healthy does not matter."""
    for replica in assignment:
        if replica in online and replica in isr:
            return Election(replica, tuple(r for r in isr if r in online))
    if unclean_allowed:
        for replica in assignment:
            if replica in online:
                return Election(replica, (replica,), unclean=True)
    return None


def elect_for_reassignment(
    target_replicas: Sequence[BrokerId], isr: Sequence[BrokerId], online: Collection[BrokerId]
) -> Election | None:
    """The first online ISR member among the target replicas; the ISR stays."""
    leader = next((r for r in target_replicas if r in online and r in isr), None)
    return None if leader is None else Election(leader, tuple(isr))


def elect_preferred(
    assignment: Sequence[BrokerId], isr: Sequence[BrokerId], online: Collection[BrokerId]
) -> Election | None:
    """The first replica if it is online and in the ISR; the ISR stays."""
    return elect_for_reassignment(assignment[:1], isr, online)


def elect_for_shutdown(
    assignment: Sequence[BrokerId],
    isr: Sequence[BrokerId],
    registered: Collection[BrokerId],
    shutting_down: Collection[BrokerId],
) -> Election | None:
    """The first ISR member that is registered and stays; all that are shutting down leave the ISR."""
    leader = next((r for r in assignment if r in registered and r in isr and r not in shutting_down), None)
    return None if leader is None else Election(leader, tuple(r for r in isr if r not in shutting_down))
