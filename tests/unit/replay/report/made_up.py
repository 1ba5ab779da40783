"""Tables of a made-up replay, and the aggregates that Spark would have told: as many partitions as one likes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from broker_sim.replay.diagnosis_limits import BUCKETS, WORST, piece_of
from broker_sim.replay.questions import PARTITIONS_SHOWN

START = 1_700_000_000_000
SPAN = 2 * 3_600_000
Row = dict[str, Any]


def write(out: Path, name: str, columns: dict[str, Any]) -> None:
    (out / name).mkdir()
    pq.write_table(pa.table(columns), str(out / name / "part-0.parquet"), compression="zstd")


def always(word: str, rows: int) -> Any:
    return pa.array([word]).take(pa.array(np.zeros(rows, np.int8)))


def tables(out: Path, partitions: int, *, changes: int = 4, topic: str = "orders") -> None:
    """Every partition loses replica 3 and gets it back, again and again."""
    rows = partitions * changes
    partition, nth = np.repeat(np.arange(partitions, dtype=np.int32), changes), np.tile(np.arange(changes), partitions)
    ts = START + 1_000 + (partition.astype(np.int64) % 997) * 7 + nth * (SPAN // changes)
    isr = pa.array([[1, 2], [1, 2, 3]], pa.list_(pa.int32())).take(pa.array(nth % 2))
    same = {"topic": always(topic, rows), "partition": partition}
    event = pa.array(["isr_shrink", "isr_expand"]).take(pa.array(nth % 2))
    write(out, "isr_history", {
        **same, "ts": ts, "event": event, "leader": np.ones(rows, np.int32), "leader_epoch": nth // 2, "isr_old": isr,
        "isr": isr, "source": always("trace", rows),
    })  # fmt: skip
    write(out, "windows", {
        **same, "window": always("under_replicated", rows), "from_ts": ts, "to_ts": ts + 30_000,
        "duration_ms": np.full(rows, 30_000), "missing": np.ones(rows, np.int32),
    })  # fmt: skip
    write(out, "comparison", {
        "topic": always(topic, partitions), "partition": np.arange(partitions, dtype=np.int32),
        **{n: np.full(partitions, changes) for n in ("emitted", "replayed", "matched", "hw_rows", "hw_matched")},
        **{n: np.zeros(partitions, np.int64) for n in ("missing", "spurious", "refused", "time_error_ms_max")},
        "time_error_ms_mean": np.zeros(partitions),
    })  # fmt: skip
    by_replica_3 = {"replica": np.full(rows, 3), "leader": np.ones(rows, np.int32), "shrink_ts": ts}
    write(out, "flaps", {**same, **by_replica_3, "cause": always("follower", rows)})
    steps = 20
    write(out, "copy_progress", {
        "topic": [topic] * steps, "partition": pa.array([0] * steps, pa.int32()), "leader": [1] * steps,
        "replica": [3] * steps, "ts": [START + 5_000 + 500 * i for i in range(steps)],
        "leo": [10 * i for i in range(steps)], "start": [0] * steps, "target": [200] * steps,
        "progress": [i / 20 for i in range(steps)],
    })  # fmt: skip


def summary(partitions: int) -> Row:
    compared = dict.fromkeys(("emitted", "replayed", "matched", "hw_rows", "hw_matched"), 4 * partitions)
    compared |= dict.fromkeys(("missing", "spurious", "refused", "time_error_ms_max"), 0)
    return {
        "trace": "traces", "from_ts": START, "to_ts": START + SPAN, "rows": 10, "duplicates": 0,
        "quarantined": {"torn": 1}, "noticed": {}, "profile": "P37", "partitions": partitions, "brokers": [1, 2],
        "comparison": compared, "changes": {},
        "windows": {"under_replicated": window(count=4 * partitions), "offline": window(count=2)},
    }  # fmt: skip


def window(**columns: Any) -> Row:
    told = {"count": 1, "total_ms": 90_000, "longest_ms": 30_000, "open": 0, "partitions": 3, "worst": "orders-7",
            "deficit_ms": 90_000, "degraded": 1,
            "closed_ms": 90_000, "closed_longest_ms": 30_000, "closed_partitions": 3,
            "closed_worst": "orders-7"}  # fmt: skip
    return {**told, **columns}


def troubles(partitions: int, *, topic: str = "orders") -> Row:
    """Every list as long as it can get."""
    shown = min(partitions, PARTITIONS_SHOWN)
    flap = {"count": 12, "partitions": 4, "leaders": 2, "longest_ms": 9_000, "from_ts": START, "to_ts": START + SPAN}
    back = {
        "topic": topic, "partition": 0, "replica": 3, "leader": 1, "left_by": "leader", "left_ts": START + 4_000,
        "first_fetch_ts": START + 5_000, "joined_ts": START + 15_000, "catch_up_ms": 10_500, "out_of_isr_ms": 11_000,
        "backlog_bytes": 2_000_000, "needed_bytes_per_second": 40_000.0,
    }  # fmt: skip
    times = {"count": 9, "max_ms": 10_500, "median_ms": 500, "p95_ms": 9_000}
    move = {
        "topic": topic, "partition": 0, "start_ts": START + 5_000, "replicas": [1, 2, 3], "adding": [3],
        "removing": [2], "copied_bytes": 5_000_000, "bytes_per_second": 1000.0, "original_shrinks": 1,
        "state_writes": 4, "isr_writes": 2,
    }  # fmt: skip
    done = {**move, "partition": 1, "finish_ts": START + 65_000, "duration_ms": 60_000, "condition_ts": START + 64_000}
    kinds = ("under_replicated", "under_min_isr", "offline", "reassigning")
    return {
        **{key: summary(partitions)[key] for key in ("partitions", "brokers", "comparison", "windows", "changes")},
        "partitions_shown": [{"topic": topic, "partition": p * (partitions // shown)} for p in range(shown)],
        "controllers": [{"controller": 1001, "from_ts": START, "to_ts": START + SPAN, "rows": 9}],
        **out_of_sync(partitions, topic),
        "settings": [{"lag_min_ms": 30_000, "lag_max_ms": 30_000}],
        "totals": [{"changed_partitions": partitions, "differing_partitions": 0}],
        "catch_up": [{"left_by": "leader", "slow": 4, "timed": 9, **times}],
        "rejoins": [{"replica": 3, "out_max_ms": 11_000, **times}],
        "slowest": [back] * WORST,
        "longest_out": [back] * (2 * WORST),
        "outside": [{"replica": 3, "count": 2}],
        "flaps": [{"replica": 3, "cause": "follower", **flap}],
        "flapping_leaders": [{"leader": 1, **flap}],
        "flapping_partitions": [{"topic": topic, "partition": 0, **flap}],
        "flap_map": [{"replica": b, "bucket": i, "count": 1 + i % 3} for b in range(1, 61) for i in range(BUCKETS)],
        "reassignments": [move, done],
        "reassigned": [{"count": 2, "unfinished": 1, "original_shrinks": 2, "hurt": 1, "copied_bytes": 10_000_000,
                        "longest_ms": 60_000, "longest": f"{topic}-1", "state_writes": 8, "isr_writes": 4}],
        "disturbed": [{"during": 3, "otherwise": 1, "moving_minutes": 2}],
        "headroom": [{"replica": 2, "least_ms": 900, "worst": "orders-3", "near": 5}],
        "ack_latency": [{"rows": 9, "p95_max_ms": 40, "worst_ms": 900, "worst": "orders-3"}],
        "differences": [],
        "incidents": [incident(), incident(kind="behind", who=2, offline=None, partitions=4)],
        "troubled_over_time": [{"window": k, "bucket": i, "partitions": i % 9} for k in kinds for i in range(BUCKETS)],
        "elections_over_time": [{"bucket": i, "count": i % 5, "leader_epoch": i // 20} for i in range(BUCKETS)],
        "what_if": [*lag_rows(), *rate_rows()],
    }  # fmt: skip


def out_of_sync(partitions: int, topic: str) -> Row:
    """Sums of `replay/out_of_sync.py`, every list as long as it can get."""
    piece = piece_of(SPAN)
    pieces = range(SPAN // piece + 1)

    def replica(b: int) -> Row:
        return {"replica": b, "total_ms": 60_000 * (61 - b), "count": 7, "partitions": partitions // 2 + 1,
                "longest_ms": 50_000, "worst": f"{topic}-0", "open": b % 2}  # fmt: skip

    def change(by: str, of: object, i: int) -> Row:
        return {by: of, "piece": i, "change": 1 if i % 2 == 0 else -1, "ms": piece // 2 if i % 2 == 0 else -piece // 2}

    bad = {"topic": topic, "total_ms": 9_000, "count": 2, "first_ts": START + 1_000, "last_ts": START + 99_000,
           "longest_ms": 8_000, "open": 0, "missing": [2, 3]}  # fmt: skip
    sums = {"offline_ms": 9_000, "under_min_isr_ms": 8_000, "under_replicated_ms": 90_000, "partitions": partitions}
    return {
        "behind": [replica(b) for b in range(1, 61)],
        "behind_in_all": [{"total_ms": 60_000 * 1830, "partitions": partitions}],
        "hosted": [{"replica": b, "partitions": partitions} for b in range(1, 61)],
        "racks": [{"replica": b, "rack": f"r{b % 3}"} for b in range(1, 61)],
        "absent_over_time": [change("replica", b, i) for b in range(1, 61) for i in pieces],
        "bad_over_time": [change("window", k, i) for k in ("under_replicated", "under_min_isr") for i in pieces],
        "behind_by_topic": [{"topic": topic, **sums}] * WORST,
        "under_min_isr": [{**bad, "partition": p} for p in range(WORST)],
        "offices": [{"controller": 1001 + i % 3, "epoch": i, "ts": START + 10_000 * i} for i in range(50)],
    }


def incident(**columns: Any) -> Row:
    told = {"kind": "gone", "who": 3, "from_ts": START + 60_000, "to_ts": START + 65_000, "partitions": 0,
            "before": None, "epoch": None, "topic": None,
            "offline": {"windows": 1, "partitions": 1, "longest_ms": 4_200, "open": 0},
            "short": {"rows": 5, "since_ts": START + 59_000, "to_ts": START + 65_000, "partitions": 4,
                      "until_ts": START + 70_000, "longest_ms": 9_000, "open": 0}}  # fmt: skip
    return {**told, **columns}


def lag_rows() -> list[Row]:
    def row(value: int | None, flaps: int) -> Row:
        told = {"key": "replica.lag.time.max.ms", "scope": "all", "shrinks": flaps, "flaps": flaps, "hw_stalls": 2,
                "under_replicated_ms": 60_000 * flaps, "under_min_isr_ms": 0, "hw_stall_max_ms": 3 * (value or 30_000),
                "detection_max_ms": value or 40_000, "detection_mean_ms": 1.5, "limits": []}  # fmt: skip
        return told if value is None else {**told, "value": value, "limits": ["throttle_active"]}

    return [row(None, 3), row(60_000, 0), row(10_000, 14)]


def rate_rows() -> list[Row]:
    def row(value: int, never: int, **columns: Any) -> Row:
        return {"key": "throttle", "scope": "all", "value": value, "never": never, "limits": [], **columns}

    recorded = {"key": "throttle", "scope": "all", "eta_ms": 60_000, "never": 0, "smallest_rate": 4_000_000}
    return [recorded, row(10_000_000, 0, eta_ms=30_000), row(1_000_000, 2)]


def quiet_troubles(partitions: int) -> Row:
    """Nothing happened: every list but the totals is empty."""
    told = troubles(partitions)
    return {key: [] for key, value in told.items() if isinstance(value, list) and key != "totals"}
