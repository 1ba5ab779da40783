"""Who made a change of a partition, and why. The log does not say: it follows from what stands beside it. Pure.

A leader changes an ISR by AlterPartition; the controller does when it fences a broker, lets one shut down, registers
one anew, elects, or is asked to move replicas.
Source: apache/kafka `ReplicationControlManager`, `PartitionChangeBuilder`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

Ids = tuple[int, ...]


class Cause:
    """The values of `cause`."""

    CREATION: Final = "creation"
    #: the leader's AlterPartition was granted
    LEADER: Final = "leader"
    FENCING: Final = "fencing"
    SHUTDOWN: Final = "shutdown"
    #: a broker came back as a new process before it was fenced
    REGISTRATION: Final = "registration"
    ELECTION: Final = "election"
    UNCLEAN_ELECTION: Final = "unclean_election"
    REASSIGNMENT: Final = "reassignment"
    REASSIGNMENT_COMPLETE: Final = "reassignment_complete"
    REASSIGNMENT_CANCELLED: Final = "reassignment_cancelled"
    #: eligible leader replicas were forgotten, because min.insync.replicas was changed
    ELR_CLEARED: Final = "elr_cleared"
    DELETION: Final = "deletion"
    #: nothing beside it tells
    UNKNOWN: Final = "unknown"


#: Causes that are the leader's own doing: it asked, and was granted what it asked.
BY_LEADERS: Final = frozenset({Cause.LEADER, Cause.REASSIGNMENT_COMPLETE})
#: Log directories were assigned, say: nothing that the replay looks at.
OTHER: Final = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A partition, as the log tells it up to an offset."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: Ids
    replicas: Ids
    adding: Ids = ()
    removing: Ids = ()
    elr: Ids = ()
    last_known_elr: Ids = ()
    recovering: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Brokers of which a record with the same append time tells something."""

    fenced: Ids = ()
    stopping: Ids = ()
    registered: Ids = ()


def cause_of(before: State, after: State, beside: Beside) -> str:
    """The first row of the table that fits."""
    return next(cause for cause, fits in _RULES if fits(before, after, beside))


def _moves(s: State) -> bool:
    return bool(s.adding or s.removing)


def _is_reassigned(b: State, a: State) -> bool:
    return (b.replicas, b.adding, b.removing) != (a.replicas, a.adding, a.removing)


def _cancelled(b: State, a: State) -> bool:
    if b.adding:
        return not set(b.adding) & set(a.replicas)
    return bool(b.removing) and set(b.removing) <= set(a.replicas)


def _is_unclean(b: State, a: State) -> bool:
    """A leader that begins to recover; or that leads alone and was neither in sync nor eligible: one that is elected
    while another recovers is not marked anew, and before metadata version 3.2 none is."""
    begins = a.recovering and not b.recovering
    return begins or (a.leader >= 0 and a.isr == (a.leader,) and a.leader not in (b.leader, *b.isr, *b.elr))


def _hit(b: State, a: State) -> set[int]:
    """Who left the ISR or the leadership."""
    return set(b.isr) - set(a.isr) | ({b.leader} if a.leader != b.leader else set())


#: In order; what is tested is what the change does to the state, and who is named beside it.
_RULES: Final[tuple[tuple[str, Callable[[State, State, Beside], bool]], ...]] = (
    (Cause.REASSIGNMENT, lambda b, a, _: _is_reassigned(b, a) and _moves(a)),
    (Cause.REASSIGNMENT_CANCELLED, lambda b, a, _: _is_reassigned(b, a) and _cancelled(b, a)),
    (Cause.REASSIGNMENT_COMPLETE, lambda b, a, _: _is_reassigned(b, a)),
    (Cause.UNCLEAN_ELECTION, lambda b, a, _: _is_unclean(b, a)),
    (Cause.FENCING, lambda b, a, n: bool(_hit(b, a) & set(n.fenced))),
    (Cause.SHUTDOWN, lambda b, a, n: bool(_hit(b, a) & set(n.stopping))),
    (Cause.REGISTRATION, lambda b, a, n: bool(_hit(b, a) & set(n.registered))),
    (Cause.ELECTION, lambda b, a, _: a.leader != b.leader),
    (Cause.LEADER, lambda b, a, _: set(a.isr) != set(b.isr) or (b.recovering and not a.recovering)),
    (OTHER, lambda b, a, _: True),
)
