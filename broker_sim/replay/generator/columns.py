"""From stories to Arrow tables in the columns of the trace, with `role` and `run` beside them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from broker_sim.replay.generator.plan import SLOTS, ClusterPlan, Fault, FaultKind
from broker_sim.replay.generator.story import PartitionStory, TermTraffic
from controller.wire.trace import COLUMNS, TRACE_VERSION, TraceEvent

_TYPES: Final = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "smallint": pa.int16(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "array<int>": pa.list_(pa.int32()),
}
#: The columns of a trace; `role` is `broker` or `controller`, `run` when the process started, 0 for a controller.
TRACE_SCHEMA: Final = pa.schema(
    [(name, _TYPES[kind]) for name, kind in COLUMNS.items()] + [("role", pa.string()), ("run", pa.int64())]
)
#: What really happened to each ISR. `event` as in isr_history; `replica` is who left or joined; `fault` its number.
TRUTH_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("ts", pa.int64()),
        ("event", pa.string()),
        ("leader", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("isr_old", pa.list_(pa.int32())),
        ("isr", pa.list_(pa.int32())),
        ("replica", pa.int32()),
        ("fault", pa.int32()),
    ]
)
#: Rows of one emitter in one ms of one partition: at most so many.
_ORDERS: Final = 8


def partition_batches(plan: ClusterPlan, story: PartitionStory) -> Iterator[pa.RecordBatch]:
    """All rows of a told story; the bulk in order of time within each batch."""
    topic, partition = plan.topic_partition(story.index)
    for traffic in story.traffic:
        key = {"topic": topic, "partition": partition, "broker": traffic.term.leader, "epoch": traffic.term.epoch}
        key |= {"role": "broker", "run": plan.run_of(traffic.term.leader, traffic.term.from_ms), "src": "trace"}
        for columns in (_appends(plan, traffic), *_fetches(plan, traffic)):
            if len(columns["ts"]):
                yield _batch(columns | {"seq": _seq(plan, columns["ts"], story.index)}, key)
    yield of_rows(plan, story.rows, story.index)


def truth_batch(story: PartitionStory) -> pa.RecordBatch:
    """The truth of a told story."""
    return pa.RecordBatch.from_pylist(story.truth, schema=TRUTH_SCHEMA)


def of_rows(plan: ClusterPlan, rows: Iterable[Mapping[str, Any]], index: int) -> pa.RecordBatch:
    """Rows given one by one, each with its `order` among those of the same ms; `index` is that of the partition."""
    numbered = []
    for row in rows:
        seq = int(_seq(plan, np.array([row["ts"]], np.int64), index)[0]) + row["order"]
        numbered.append({**{k: v for k, v in row.items() if k != "order"}, "seq": seq, "src": "trace"})
    return pa.RecordBatch.from_pylist(numbered, schema=TRACE_SCHEMA)


def broker_rows(plan: ClusterPlan) -> list[dict[str, Any]]:
    """What brokers and controllers say that is of no partition: starts, settings, who is there."""
    rows: list[dict[str, Any]] = []

    def add(ts: int, broker: int, ev: TraceEvent, *, order: int = 0, **columns: Any) -> None:
        is_controller = broker not in plan.broker_ids
        run = 0 if is_controller else plan.run_of(plan.broker_ids[broker - 1], ts)
        role = "controller" if is_controller else "broker"
        rows.append({"ts": ts, "broker": broker, "ev": ev.value, "order": order, "role": role, "run": run, **columns})

    settings = {
        "trace.version": str(TRACE_VERSION),
        "replica.lag.time.max.ms": str(plan.lag_time_max_ms),
        "min.insync.replicas": str(plan.min_insync_replicas),
    }
    for broker, starts in plan.runs.items():
        for t0 in starts:
            add(t0, broker, TraceEvent.START, value=str(t0))
            for order, (key, value) in enumerate(settings.items(), start=1):
                add(t0, broker, TraceEvent.CONFIG, order=order, key=key, value=value)
        add(plan.start_ms + 2 * SLOTS * broker, plan.controller_at(0), TraceEvent.BROKER_UP, replica=broker)
    for fault in plan.faults:
        if fault.kind is FaultKind.KILL:
            _add_absence(plan, fault, add)
    return rows


def _add_absence(plan: ClusterPlan, fault: Fault, add: Any) -> None:
    """Its session expires, it registers again: as the controller and then every other broker learns."""
    for ts, ev in (
        (fault.from_ms + plan.session_timeout_ms, TraceEvent.BROKER_DOWN),
        (plan.restarted_ms(fault) + SLOTS, TraceEvent.BROKER_UP),
    ):
        for who in (plan.controller_at(ts), *(b for b in plan.broker_ids if b != fault.broker)):
            add(ts, who, ev, replica=fault.broker)


def _seq(plan: ClusterPlan, ts: np.ndarray[Any, np.dtype[np.int64]], index: int) -> Any:
    """Strictly increasing with time for each emitter, whatever the partition; for broker rows one index more."""
    return ((ts - plan.start_ms) * (plan.partition_count + 1) + index) * _ORDERS


def _appends(plan: ClusterPlan, traffic: TermTraffic) -> dict[str, Any]:
    which = traffic.appends.within(traffic.term.from_ms, traffic.term.to_ms)
    leo, size = traffic.appends.leo[which], traffic.appends.size[which]
    offset = leo - size // plan.record_bytes
    return {"ts": traffic.appends.ts[which], "ev": TraceEvent.APPEND.value, "offset": offset, "leo": leo, "bytes": size}


def _fetches(plan: ClusterPlan, traffic: TermTraffic) -> Iterator[dict[str, Any]]:
    for replica, of_replica in traffic.fetches.items():
        lacks = (of_replica.leo - of_replica.offset) * plan.record_bytes
        yield {
            "ts": of_replica.ts,
            "ev": TraceEvent.FETCH.value,
            "replica": replica,
            "offset": of_replica.offset,
            "leo": of_replica.leo,
            "log_start": 0,
            "bytes": np.where(of_replica.throttled, 0, lacks),
            "req_epoch": traffic.term.epoch,
            "err": 0,
            "throttled": of_replica.throttled,
            "n": of_replica.runs,
        }


def _batch(columns: Mapping[str, Any], key: Mapping[str, Any]) -> pa.RecordBatch:
    """Columns of the schema: arrays as they are, single values repeated, the rest null."""
    given = {**key, **columns}
    rows = len(given["ts"])
    arrays = []
    for field in TRACE_SCHEMA:
        value = given.get(field.name)
        if isinstance(value, np.ndarray):
            arrays.append(pa.array(value, type=field.type))
        elif value is None:
            arrays.append(pa.nulls(rows, field.type))
        else:
            arrays.append(pa.repeat(pa.scalar(value, type=field.type), rows))
    return pa.RecordBatch.from_arrays(arrays, schema=TRACE_SCHEMA)
