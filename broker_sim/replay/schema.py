"""The columns of every frame and table of the job: the one place. Explicit, so that no step infers anything.

Spark types only here; the pure modules know the same names as named tuples.
"""

from __future__ import annotations

from typing import Final

from broker_sim.replay.facts import DerivedRow, FactRow
from broker_sim.replay.rows import LaneRow, Outcome
from controller.wire.trace import COLUMNS, TraceEvent

#: Where Spark puts a line that is no JSON of the schema.
CORRUPT: Final = "_corrupt"
#: Whether a row's process wrote a version of the trace that is not read.
OF_OTHER_VERSION: Final = "of_other_version"
#: A trace line as it is read.
LINE_DDL: Final = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items()) + f", `{CORRUPT}` string"
#: What ingest adds: who wrote the file (`broker` or `controller`), when that process started (0: not known), the file.
ADDED_COLUMNS: Final[dict[str, str]] = {"role": "string", "run": "bigint", "file": "string"}
TRACE_COLUMNS: Final = (*COLUMNS, *ADDED_COLUMNS)
TRACE_DDL: Final = ", ".join(f"`{name}` {kind}" for name, kind in {**COLUMNS, **ADDED_COLUMNS}.items())

#: `src` of a row: read from a log line, put together from what other lines imply, read from a KRaft cluster's metadata
#: log, or from a snapshot of it, which tells a state and not since when; else `trace`, by a simulated broker.
SRC_LOG: Final = "log"
SRC_INFERRED: Final = "inferred"
SRC_METADATA: Final = "metadata"
SRC_SNAPSHOT: Final = "snapshot"

#: The clock of an emitter went back by more than `CLOCK_STEP_MS` between two rows of one lane.
CLOCK_WENT_BACK: Final = "clock_went_back"
CLOCK_STEP_MS: Final = 1000

#: What could not be used, line by line.
QUARANTINE_COLUMNS: Final = ("reason", "source", "file", "line")
#: What was used although it is odd: counted per lane.
NOTICE_TYPES: Final = {
    "reason": "string",
    "topic": "string",
    "partition": "int",
    "broker": "int",
    "rows": "bigint",
    "first_ts": "bigint",
}
NOTICE_COLUMNS: Final = tuple(NOTICE_TYPES)
#: Every write of a partition's state znode that is told of: one row per version.
STATE_WRITE_COLUMNS: Final = (
    "topic",
    "partition",
    "generation",
    "zk_version",
    "leader_epoch",
    "leader",
    "isr",
    "ts",
    "written_by",
    "source",
)

#: The many: one row per append, fetch and step of the high watermark. Only who runs the rules needs them.
BULK_EVENTS: Final = (TraceEvent.APPEND.value, TraceEvent.FETCH.value, TraceEvent.HW.value)

LANE_KEY: Final = ("topic", "partition", "broker")
LANE_COLUMNS: Final = (*LANE_KEY, *LaneRow._fields)
#: Columns of lanes that a trace does not have: only rows that lanes share have a value.
SHARED_TYPES: Final = {"of_topic": "boolean", "run_ticks": "bigint", "run_end": "bigint"}
LANE_TYPES: Final = {name: {**COLUMNS, **ADDED_COLUMNS, **SHARED_TYPES}[name] for name in LANE_COLUMNS}
LANE_DDL: Final = ", ".join(f"`{name}` {kind}" for name, kind in LANE_TYPES.items())
#: Events of controllers, which are of no lane although they name a partition, and who is alive.
ALIVENESS: Final = ("broker_up", "broker_down")
OF_CONTROLLER: Final = ("assign", "elect", "delete", "controller", *ALIVENESS)

_OUTCOME_TYPES: Final = {
    "kind": "string",
    "ts": "bigint",
    "epoch": "int",
    "replica": "int",
    "isr_old": "array<int>",
    "isr": "array<int>",
    "left_by": "string",
    "change": "string",
    "ingress_bytes_per_second": "double",
}
OUTCOME_COLUMNS: Final = ("topic", "partition", "leader", *Outcome._fields)
OUTCOME_DDL: Final = "topic string, partition int, leader int, " + ", ".join(
    f"{name} {_OUTCOME_TYPES.get(name, 'bigint')}" for name in Outcome._fields
)

PARTITION_KEY: Final = ("topic", "partition")
FACT_TYPES: Final = {
    "ts": "bigint",
    "kind": "string",
    "leader": "int",
    "epoch": "int",
    "zk_version": "int",
    "replica": "int",
    "isr_old": "array<int>",
    "isr": "array<int>",
    "replicas": "array<int>",
    "adding": "array<int>",
    "removing": "array<int>",
    "left_by": "string",
    "ingress_bytes_per_second": "double",
    "source": "string",
}
FACT_COLUMNS: Final = FactRow._fields
FACT_DDL: Final = "topic string, partition int, " + ", ".join(
    f"`{name}` {FACT_TYPES.get(name, 'bigint')}" for name in FACT_COLUMNS
)

_DERIVED_TYPES: Final = {
    "table": "string",
    "window": "string",
    "left_by": "string",
    "replica": "int",
    "leader": "int",
    "leader_epoch": "int",
    "missing": "int",
    "original_shrinks": "int",
    "is_open": "boolean",
    "bytes_per_second": "double",
    "ingress_bytes_per_second": "double",
    "needed_bytes_per_second": "double",
    "state_writes": "int",
    "isr_writes": "int",
    "source": "string",
    "isr": "array<int>",
    "replicas": "array<int>",
    "adding": "array<int>",
    "removing": "array<int>",
}
DERIVED_DDL: Final = "topic string, partition int, " + ", ".join(
    f"`{name}` {_DERIVED_TYPES.get(name, 'bigint')}" for name in DerivedRow._fields
)

#: ev -> columns without which a row means nothing (isr-replay.md §7).
REQUIRED: Final[dict[str, tuple[str, ...]]] = {
    TraceEvent.START.value: (),
    TraceEvent.DOWN.value: (),
    TraceEvent.TICK.value: (),
    TraceEvent.CONFIG.value: ("key",),
    TraceEvent.LEADER.value: ("topic", "partition", "epoch", "isr"),
    TraceEvent.FOLLOWER.value: ("topic", "partition"),
    TraceEvent.STOP.value: ("topic", "partition"),
    TraceEvent.APPEND.value: ("topic", "partition", "leo"),
    TraceEvent.FETCH.value: ("topic", "partition", "replica", "offset"),
    # one that was written also needs the ISR that it wrote
    TraceEvent.ISR_SHRINK.value: ("topic", "partition", "replica"),
    TraceEvent.ISR_EXPAND.value: ("topic", "partition", "replica"),
    TraceEvent.HW.value: ("topic", "partition", "hw"),
    TraceEvent.ASSIGN.value: ("topic", "partition", "replicas"),
    TraceEvent.ELECT.value: ("topic", "partition", "epoch", "replica", "isr"),
    TraceEvent.BROKER_UP.value: ("replica",),
    TraceEvent.BROKER_DOWN.value: ("replica",),
    TraceEvent.DELETE.value: ("topic",),
    TraceEvent.CONTROLLER.value: ("epoch", "value"),
}

#: isr_history, fixed for scripts (design.md §7).
ISR_HISTORY_COLUMNS: Final = (
    "topic",
    "partition",
    "ts",
    "event",
    "leader",
    "leader_epoch",
    "isr_old",
    "isr",
    "source",
)

#: table -> {column: where it comes from in the derived rows}; the order is that of the table.
DERIVED_TABLES: Final[dict[str, dict[str, str]]] = {
    "windows": {
        "window": '"window"',
        "from_ts": "from_ts",
        "to_ts": "to_ts",
        "duration_ms": "to_ts - from_ts",
        "is_open": "is_open",
        "missing": "missing",
        "deficit_ms": "deficit_ms",
        "leader": "leader",
        "leader_epoch": "leader_epoch",
        "isr": "isr",
        "source": "source",
    },
    "absences": {
        "replica": "replica",
        "from_ts": "from_ts",
        "to_ts": "to_ts",
        "duration_ms": "to_ts - from_ts",
        "is_open": "is_open",
        "leader": "leader",
    },
    "catch_up": {
        "replica": "replica",
        "leader": "leader",
        "leader_epoch": "leader_epoch",
        "left_ts": "from_ts",
        "left_by": "left_by",
        "first_fetch_ts": "first_fetch_ts",
        "joined_ts": "to_ts",
        "catch_up_ms": "catch_up_ms",
        "outage_ms": "outage_ms",
        "out_of_isr_ms": "out_of_isr_ms",
        "caught_up_min_ts": "cu_min",
        "caught_up_max_ts": "cu_max",
        "backlog_records": "backlog_records",
        "backlog_bytes": "backlog_bytes",
        "ingress_bytes_per_second": "ingress_bytes_per_second",
        "needed_bytes_per_second": "needed_bytes_per_second",
        "source": "source",
    },
    "flaps": {
        "replica": "replica",
        "leader": "leader",
        "leader_epoch": "leader_epoch",
        "shrink_ts": "from_ts",
        "expand_ts": "to_ts",
        "out_of_isr_ms": "out_of_isr_ms",
    },
    "reassignments": {
        "start_ts": "from_ts",
        "condition_ts": "condition_ts",
        "finish_ts": "to_ts",
        "is_open": "is_open",
        "duration_ms": "to_ts - from_ts",
        "replicas": "replicas",
        "adding": "adding",
        "removing": "removing",
        "copied_bytes": "copied_bytes",
        "bytes_per_second": "bytes_per_second",
        "original_shrinks": "original_shrinks",
        "state_writes": "state_writes",
        "isr_writes": "isr_writes",
    },
}

#: What lanes measured: `rows.Measure`.
MEASURE_COLUMNS: Final = (
    *PARTITION_KEY,
    "leader",
    "leader_epoch",
    "ts",
    "measure",
    "replica",
    "value",
    "count",
    "p95",
    "worst",
)
COPY_PROGRESS_COLUMNS: Final = (*PARTITION_KEY, "leader", "replica", "ts", "leo", "start", "target", "progress")
