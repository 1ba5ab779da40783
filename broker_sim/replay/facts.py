"""What goes into the history of a partition (`FactRow`) and what comes out (`DerivedRow`), as flat rows. Pure.

A fact is a row of the trace that is of one partition and no bulk, or an outcome of the rules.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from broker_sim.replay.rows import OutcomeKind
from controller.wire.trace import STOP_DELETE, STOP_DELETE_TOPIC, STOP_UNKNOWN, TraceEvent

#: `kind` of the fact that a broker deleted its replica, which the deletion of the topic may be the reason of.
REPLICA_DELETED: Final = "replica_deleted"
#: `kind` of the fact that what follows is not known until the next state.
STATE_UNKNOWN: Final = "state_unknown"
#: `value` of a `stop` row -> the kind of fact that it is.
STOP_FACTS: Final = {
    STOP_DELETE: REPLICA_DELETED,
    STOP_DELETE_TOPIC: TraceEvent.DELETE.value,
    STOP_UNKNOWN: STATE_UNKNOWN,
}
#: Changes of the ISR; where no broker wrote one of a partition, those that the rules derived count.
ISR_CHANGES: Final = (TraceEvent.ISR_SHRINK.value, TraceEvent.ISR_EXPAND.value)
#: Events of a trace that are facts as they stand, beside the changes of the ISR that were written.
FACT_EVENTS: Final = (
    TraceEvent.LEADER.value,
    TraceEvent.ELECT.value,
    TraceEvent.ASSIGN.value,
    TraceEvent.DELETE.value,
)
#: Outcomes of the rules that are facts.
FACT_OUTCOMES: Final = (
    OutcomeKind.CATCH_UP.value,
    OutcomeKind.MIN_ISR.value,
    OutcomeKind.LEADER_DOWN.value,
    OutcomeKind.COPIED.value,
    OutcomeKind.HW_STALLED.value,
)
#: Facts of one partition that happened in the same ms are taken in this order.
FACT_ORDER: Final = {
    TraceEvent.DELETE.value: 0,
    OutcomeKind.LEADER_DOWN.value: 1,
    TraceEvent.ELECT.value: 2,
    OutcomeKind.COPIED.value: 3,
    TraceEvent.LEADER.value: 4,
    TraceEvent.ASSIGN.value: 5,
    OutcomeKind.MIN_ISR.value: 6,
    OutcomeKind.HW_STALLED.value: 6,
    TraceEvent.ISR_SHRINK.value: 7,
    TraceEvent.ISR_EXPAND.value: 7,
    OutcomeKind.CATCH_UP.value: 8,
    REPLICA_DELETED: 9,
    STATE_UNKNOWN: 10,
}


class FactRow(NamedTuple):
    """One fact about a partition: a leadership, a change of the ISR, an assignment, its end, or an `Outcome`."""

    ts: int
    kind: str
    leader: int | None = None
    epoch: int | None = None
    zk_version: int | None = None
    replica: int | None = None
    isr_old: list[int] | None = None
    isr: list[int] | None = None
    replicas: list[int] | None = None
    adding: list[int] | None = None
    removing: list[int] | None = None
    cu: int | None = None
    left_ms: int | None = None
    left_by: str | None = None
    first_fetch_ms: int | None = None
    joined_ms: int | None = None
    amount: int | None = None
    cu_min: int | None = None
    cu_max: int | None = None
    backlog_records: int | None = None
    backlog_bytes: int | None = None
    ingress_bytes_per_second: float | None = None
    source: str | None = None


class WindowKind(Enum):
    """The predicates of §6; the value is the `window` column."""

    UNDER_REPLICATED = "under_replicated"
    UNDER_MIN_ISR = "under_min_isr"
    AT_MIN_ISR = "at_min_isr"
    OFFLINE = "offline"
    REASSIGNING = "reassigning"
    ORIGINAL_MISSING = "original_missing"
    HW_STALLED = "hw_stalled"


class DerivedRow(NamedTuple):
    """A row of `windows`, `catch_up`, `flaps` or `reassignments`; `table` tells which, unused columns are null."""

    table: str
    window: str | None = None
    replica: int | None = None
    leader: int | None = None
    leader_epoch: int | None = None
    from_ts: int | None = None
    to_ts: int | None = None
    is_open: bool | None = None
    missing: int | None = None
    deficit_ms: int | None = None
    isr: list[int] | None = None
    left_by: str | None = None
    first_fetch_ts: int | None = None
    condition_ts: int | None = None
    catch_up_ms: int | None = None
    outage_ms: int | None = None
    out_of_isr_ms: int | None = None
    replicas: list[int] | None = None
    adding: list[int] | None = None
    removing: list[int] | None = None
    copied_bytes: int | None = None
    bytes_per_second: float | None = None
    original_shrinks: int | None = None
    state_writes: int | None = None
    isr_writes: int | None = None
    cu_min: int | None = None
    cu_max: int | None = None
    backlog_records: int | None = None
    backlog_bytes: int | None = None
    ingress_bytes_per_second: float | None = None
    needed_bytes_per_second: float | None = None
    source: str | None = None
