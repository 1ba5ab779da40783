"""The values that pass between the steps of the replay. Pure: no Spark, no Arrow.

A `LaneRow` is a trace row as the row machine (`rules/lane.py`) takes it; an `Outcome` is what the machine says. Both
are flat, because they cross the border to Arrow as columns.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

#: `run` of the rows that tell who is alive: they stand before all others of a lane and take effect by their time.
ALIVENESS_RUN: Final = -1


#: `ev` of the row that says that nothing tells of the broker's fetches: what was written is taken as it stands.
RULES_OFF: Final = "rules_off"


class LaneRow(NamedTuple):
    """One row of a lane; a lane is what one broker wrote about one partition. Names as in `controller.wire.trace`."""

    run: int  #: start of the process in ms, from the file name; 0 where it is not known
    seq: int
    ts: int
    ev: str
    epoch: int | None = None
    replica: int | None = None
    offset: int | None = None
    leo: int | None = None
    hw: int | None = None
    bytes: int | None = None
    err: int | None = None
    isr: list[int] | None = None
    replicas: list[int] | None = None
    adding: list[int] | None = None
    removing: list[int] | None = None
    zk_version: int | None = None
    cu: int | None = None
    done: int | None = None
    key: str | None = None
    value: str | None = None
    #: config rows only: whether the row is a topic's override.
    of_topic: bool | None = None
    #: start rows only: how many tick rows this run of the broker wrote, and its last ts.
    run_ticks: int | None = None
    run_end: int | None = None


class OutcomeKind(Enum):
    """What an `Outcome` tells; the value is its `kind` column."""

    #: the rules changed the ISR
    SHRINK = "isr_shrink"
    EXPAND = "isr_expand"
    #: emitted and derived changes of membership, compared
    MATCHED = "matched"
    MISSING = "missing"
    SPURIOUS = "spurious"
    REFUSED = "refused"
    #: a replica joined (or is still outside at the end: `joined_ms` null)
    CATCH_UP = "catch_up"
    #: min.insync.replicas in force from `ts` on: `amount`
    MIN_ISR = "min_isr"
    #: the leader's process or session ended while it led
    LEADER_DOWN = "leader_down"
    #: `amount` bytes were fetched by replicas that a reassignment was adding
    COPIED = "copied"
    #: high watermark rows that agree (`amount` of `total`)
    HW = "hw"
    #: the high watermark stood still below the log's end, longer than the lag: `left_ms` to `joined_ms`
    HW_STALLED = "hw_stalled"
    #: one of `Measure`, in `change`
    MEASURE = "measure"
    #: how far a replica outside the ISR has copied: from offset `left_ms` it is at `amount`, and needs `total`
    PROGRESS = "progress"


class Measure(Enum):
    """What a lane measures; the value is the `measure` column."""

    #: how close a member came to being removed, ms: lag − (tick − last caught up), at the least
    LAG_HEADROOM = "lag_headroom_ms"
    #: from an append until the high watermark had passed it, ms: what acks=all takes at least; the median
    ACK_LATENCY = "ack_latency_ms"
    #: how long a caught-up replica outside the ISR held the high watermark, ms
    HW_HELD_BY_OUTSIDERS = "hw_held_by_outsiders_ms"
    #: rows that could not be used because no `leader` row stands before them
    ROWS_WITHOUT_LEADER = "rows_without_leader"


class LeftBy(Enum):
    """Why a replica is outside the ISR."""

    LEADER = "leader"
    CONTROLLER = "controller"
    ADDED = "added"
    #: it was outside when this broker took over
    BEFORE = "before"


class Outcome(NamedTuple):
    """One thing the row machine says about its lane. Times are ms on the leader's clock."""

    kind: str
    ts: int
    epoch: int
    replica: int | None = None
    isr_old: list[int] | None = None
    isr: list[int] | None = None
    #: shrinks: lastCaughtUpTimeMs of the replicas that left; catch-ups: of the one replica, when it left
    cu: int | None = None
    left_ms: int | None = None
    left_by: str | None = None
    first_fetch_ms: int | None = None
    joined_ms: int | None = None
    #: matched: emitted minus derived time, ms
    error_ms: int | None = None
    change: str | None = None
    amount: int | None = None
    total: int | None = None
    p95: int | None = None
    worst: int | None = None
    #: catch-ups: between which times the replica was last caught up, where that is not known exactly
    cu_min: int | None = None
    cu_max: int | None = None
    #: catch-ups: what the replica had to copy at its first fetch, and what was appended meanwhile
    backlog_records: int | None = None
    backlog_bytes: int | None = None
    ingress_bytes_per_second: float | None = None
