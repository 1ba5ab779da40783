"""The answers that findings and the report are made of, from tables made by hand: no Spark is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from broker_sim.replay.diagnosis import troubles_of
from broker_sim.replay.schema import ADDED_COLUMNS
from controller.wire.trace import COLUMNS
from tests.unit.replay.made_tables import ddl_of, made

_TP = "topic string, partition int"
SCHEMAS = {
    "isr_history": f"{_TP}, ts bigint, event string, leader int, leader_epoch int, source string",
    "comparison": f"{_TP}, emitted bigint, replayed bigint, matched bigint, missing bigint, spurious bigint,"
    " refused bigint, time_error_ms_max bigint, hw_rows bigint, hw_matched bigint",
    "windows": f"{_TP}, window string, from_ts bigint, to_ts bigint, duration_ms bigint, is_open boolean,"
    " missing int, deficit_ms bigint",
    "absences": f"{_TP}, replica int, from_ts bigint, to_ts bigint, duration_ms bigint, is_open boolean",
    "catch_up": f"{_TP}, replica int, left_ts bigint, left_by string, joined_ts bigint, catch_up_ms bigint,"
    " out_of_isr_ms bigint",
    "flaps": f"{_TP}, replica int, leader int, cause string, shrink_ts bigint, expand_ts bigint, out_of_isr_ms bigint",
    "reassignments": f"{_TP}, start_ts bigint, finish_ts bigint, duration_ms bigint, copied_bytes bigint,"
    " original_shrinks int, state_writes int, isr_writes int",
    "measures": f"{_TP}, measure string, replica int, value bigint, p95 bigint, worst bigint",
}
PROCESSES = "role string, broker int, run bigint, first_ts bigint, last_ts bigint"
TRACE = ddl_of({**COLUMNS, **ADDED_COLUMNS})
Rows = Sequence[Mapping[str, Any]]


def asked(folder: Path, **rows: Rows) -> dict[str, Any]:
    """What is answered about these rows, in a trace of a minute."""
    for name, ddl in (SCHEMAS | {"trace": TRACE, "processes": PROCESSES}).items():
        (folder / name).mkdir(parents=True)
        pq.write_table(made(ddl, rows.get(name, ())), folder / name / "part-0.parquet")
    places = {"trace": folder / "trace", "processes": folder / "processes"}
    return troubles_of(folder, places, scratch=folder, from_ts=0, to_ts=60_000)


def window(partition: int, ms: int, *, kind: str = "offline", at: int = 0, is_open: bool = False) -> dict[str, Any]:
    span = {"from_ts": at, "to_ts": at + ms, "duration_ms": ms, "is_open": is_open}
    return {"topic": "t", "partition": partition, "window": kind, "missing": 1, "deficit_ms": ms, **span}


def test_a_cluster_in_which_nothing_happened(tmp_path: Path) -> None:
    """Counts are 0, not absent; a folder may have a name that means something elsewhere."""
    found = asked(tmp_path / "it's [1]*")
    assert found["comparison"] == dict.fromkeys(
        ("emitted", "replayed", "matched", "missing", "spurious", "refused", "hw_rows", "hw_matched",
         "time_error_ms_max"), 0
    )  # fmt: skip
    assert (found["windows"], found["changes"], found["brokers"], found["what_if"]) == ({}, {}, [], [])
    assert found["reassigned"] == [
        dict.fromkeys(
            ("count", "unfinished", "original_shrinks", "hurt", "copied_bytes", "state_writes", "isr_writes"), 0
        )
    ]
    assert found["disturbed"] == [{"during": 0, "otherwise": 0, "moving_minutes": 0}]
    assert found["behind_in_all"] == [{"total_ms": 0, "partitions": 0}]
    assert found["settings"] == [{}]


def test_of_equal_ones_the_first_is_named_in_whatever_order_they_stand(tmp_path: Path) -> None:
    rows = [window(partition, 500) for partition in (9, 2, 10)]
    answers = [asked(tmp_path / name, windows=order) for name, order in (("a", rows), ("b", rows[::-1]))]
    assert answers[0] == answers[1]
    assert answers[0]["windows"]["offline"]["worst"] == "t-2", "by number, not by text"


def test_partitions_are_counted_whichever_table_alone_knows_them(tmp_path: Path) -> None:
    """Of one that never had a leader no rules were replayed, and findings name it all the same."""
    row = {"topic": "t", "event": "assign", "source": "emitted"}
    rows = {name: [row | {"partition": n} for n in (0, own)] for own, name in enumerate(SCHEMAS, 1)}
    rows["windows"] = [window(n, 1) for n in (0, 3)]
    assert asked(tmp_path, **rows)["partitions"] == 1 + len(SCHEMAS)


def test_windows_that_are_open_count_apart(tmp_path: Path) -> None:
    rows = [window(1, 700), window(1, 300), window(2, 9_000, is_open=True)]
    offline = asked(tmp_path, windows=rows)["windows"]["offline"]
    assert (offline["count"], offline["open"], offline["partitions"]) == (3, 1, 2)
    assert (offline["total_ms"], offline["longest_ms"], offline["worst"]) == (10_000, 9_000, "t-2")
    closed = {name: value for name, value in offline.items() if name.startswith("closed")}
    assert closed == {
        "closed_ms": 1_000, "closed_longest_ms": 700, "closed_partitions": 1, "closed_worst": "t-1",
    }  # fmt: skip


def test_a_window_counts_once_in_each_piece_that_it_touches(tmp_path: Path) -> None:
    """Pieces of a minute have 251 ms; the end of a window is not part of it."""
    found = asked(tmp_path, windows=[window(1, 251), window(1, 10, at=100), window(2, 252), window(3, 0, at=60_000)])
    assert found["troubled_over_time"] == [
        {"window": "offline", "bucket": 0, "partitions": 2},
        {"window": "offline", "bucket": 1, "partitions": 1},
        {"window": "offline", "bucket": 239, "partitions": 1},
    ]


@pytest.mark.parametrize(("count", "median", "p95"), [(1, 1, 1), (2, 1, 2), (20, 10, 19), (21, 11, 20)])
def test_quantiles_are_times_that_were_measured(tmp_path: Path, count: int, median: int, p95: int) -> None:
    came_back = {"topic": "t", "partition": 0, "replica": 1, "left_by": "leader", "left_ts": 0, "out_of_isr_ms": 90}
    rows = [came_back | {"joined_ts": 90, "catch_up_ms": ms} for ms in range(1, count + 1)]
    (found,) = asked(tmp_path, catch_up=rows)["catch_up"]
    assert (found["median_ms"], found["p95_ms"], found["max_ms"]) == (median, p95, count)


def test_a_lag_that_is_no_number_is_no_setting(tmp_path: Path) -> None:
    config = dict.fromkeys(COLUMNS) | {"ev": "config", "key": "replica.lag.time.max.ms", "role": "broker", "run": 1}
    rows = [config | {"value": value} for value in ("3000", "10000", "", "-1", "ten", "9" * 30, None)]
    near = [
        {"topic": "t", "partition": p, "measure": "lag_headroom_ms", "replica": 1, "value": value}
        for p, value in ((0, 1_999), (1, 2_000))
    ]
    found = asked(tmp_path, trace=rows, measures=near)
    assert found["settings"] == [{"lag_min_ms": 3000, "lag_max_ms": 10_000}]
    assert found["headroom"] == [{"replica": 1, "least_ms": 1_999, "worst": "t-0", "near": 1}], "of 20 % of the lag"


def test_what_began_and_ended_in_each_piece_of_time(tmp_path: Path) -> None:
    """Pieces of a minute have 10 s: what is left of the piece counts from the moment itself."""
    away = {"topic": "t", "partition": 0, "replica": 7, "from_ts": 4_000, "to_ts": 21_000, "duration_ms": 17_000}
    found = asked(tmp_path, absences=[away | {"is_open": False}])
    assert found["absent_over_time"] == [
        {"replica": 7, "piece": 0, "change": 1, "ms": 6_000},
        {"replica": 7, "piece": 2, "change": -1, "ms": -9_000},
    ]


def test_who_was_missing_while_a_partition_was_under_min_isr(tmp_path: Path) -> None:
    absent = {"topic": "t", "partition": 1, "duration_ms": 1, "is_open": False}
    spans = ((3, 0, 10), (2, 5, 21), (4, 20, 30), (5, 30, 40))
    found = asked(
        tmp_path,
        windows=[window(1, 20, kind="under_min_isr", at=10)],
        absences=[absent | {"replica": replica, "from_ts": since, "to_ts": to} for replica, since, to in spans],
    )
    assert [(row["total_ms"], row["missing"]) for row in found["under_min_isr"]] == [(20, [2, 4])]


def test_a_partition_whose_replicas_together_are_too_few_misses_nobody(tmp_path: Path) -> None:
    """Of a topic with two replicas and min.insync.replicas 3, say: the report has a row of it like of others."""
    found = asked(tmp_path, windows=[window(1, 20, kind="under_min_isr", at=10)])
    assert [(row["partition"], row["missing"]) for row in found["under_min_isr"]] == [(1, [])]


def test_processes_and_the_signs_of_brokers(tmp_path: Path) -> None:
    row = dict.fromkeys((*COLUMNS, "file")) | {"role": "broker", "run": 1, "broker": 3, "seq": 0}
    trace = [
        row | {"ev": "start", "ts": 1},
        row | {"ev": "down", "ts": 9},
        row | {"ev": "broker_down", "role": "controller", "broker": 1, "replica": 3, "ts": 12},
        row | {"ev": "broker_down", "role": "broker", "broker": 2, "replica": 3, "ts": 13},
    ]
    runs = [{"role": "broker", "broker": 3, "run": run, "first_ts": run, "last_ts": run + 8} for run in (20, 1)]
    found = asked(tmp_path, trace=trace, processes=runs)
    assert [(one["run"], one["ended"]) for one in found["processes"]] == [(1, True), (20, False)]
    signs = [(sign["ts"], sign["ev"], sign["broker"]) for sign in found["signs"]]
    assert signs == [(1, "start", 3), (9, "down", 3), (12, "broker_down", 3)], "a broker's view of others is not one"


def test_a_topic_that_is_made_anew_and_deleted_again_was_deleted_twice(tmp_path: Path) -> None:
    def told(ev: str, ts: int, partition: int, **more: Any) -> dict[str, Any]:
        return {"topic": "t", "partition": partition, "ev": ev, "ts": ts, "broker": 101, "role": "controller", **more}

    first = [told("elect", 5, p, epoch=0) for p in (0, 1)] + [told("elect", 6, 1, epoch=1)]
    first += [told("delete", 10, 0), told("delete", 11, 1), told("stop", 12, 0, value="delete_topic", role="broker")]
    second = [told("elect", 20, 0, epoch=0), told("delete", 30, 0), told("delete", 40, 0)]
    assert asked(tmp_path, trace=[*second, *first])["deleted"] == [
        {"topic": "t", "ts": 10, "partitions": 2},
        {"topic": "t", "ts": 30, "partitions": 1},
    ]


def test_a_row_that_names_a_deleted_topic_alone_is_of_all_its_partitions(tmp_path: Path) -> None:
    """Log lines tell of a deletion so; controllers of simulated clusters write a row for each partition."""
    row = dict.fromkeys((*COLUMNS, "file")) | {"role": "controller", "run": 0, "broker": 1, "seq": 0}
    led = [row | {"ev": "elect", "ts": 1, "topic": t, "partition": p} for t in ("a", "b", "c") for p in (0, 1, 2)]
    whole = [row | {"ev": "delete", "ts": ts, "topic": topic} for topic, ts in (("a", 7), ("a", 5), ("unknown", 9))]
    each = [row | {"ev": "delete", "ts": 6 + p, "topic": "b", "partition": p} for p in (0, 1)]
    found = asked(tmp_path, trace=[*led, *whole, *each])["deleted"]
    assert [(one["topic"], one["ts"], one["partitions"]) for one in found] == [
        ("a", 5, 3),
        ("b", 6, 2),
        ("unknown", 9, 0),
    ]


def test_the_longest_move_is_the_longest_of_those_that_finished(tmp_path: Path) -> None:
    move = {"topic": "t", "start_ts": 1, "copied_bytes": 5, "original_shrinks": 0, "state_writes": 2, "isr_writes": 1}
    times = [None] * 30 + [70, 900, 900, 3]
    rows = [
        move | {"partition": p, "duration_ms": ms, "finish_ts": ms and 1 + ms} for p, ms in enumerate(reversed(times))
    ]
    found = asked(tmp_path, reassignments=rows)
    (all_of,) = found["reassigned"]
    assert (all_of["count"], all_of["unfinished"], all_of["longest_ms"], all_of["longest"]) == (34, 30, 900, "t-1")
    assert not [row for row in found["reassignments"] if "finish_ts" in row], "the list has the others alone"
