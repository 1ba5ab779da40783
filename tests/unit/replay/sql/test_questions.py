"""What the questions in SQL answer, on tables made by hand: rows that lanes share, facts, history, state writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from broker_sim.replay import schema
from broker_sim.replay.rows import ALIVENESS_RUN, RULES_OFF
from broker_sim.replay.sql import run
from broker_sim.replay.sql.facts import FACTS
from broker_sim.replay.sql.history import CONTRADICTORY_STATE, MISSING_STATE, STATE_NOTICES
from broker_sim.replay.sql.lanes import SHARED_ROWS
from broker_sim.replay.sql.tables import TABLES_OF_ROWS, tables
from tests.unit.replay.made_tables import TYPES, ddl_of, made

Row = Mapping[str, Any]
PROCESSES = (
    "role string, broker int, run bigint, rows bigint, first_ts bigint, last_ts bigint, ticks bigint, bulk bigint, "
    "logged bigint"
)
DDL = {
    "trace": schema.TRACE_DDL,
    "processes": PROCESSES,
    "outcomes": schema.OUTCOME_DDL,
    "derived": schema.DERIVED_DDL,
    "clock": ddl_of(schema.NOTICE_TYPES),
}


def asked(question: str, **rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The answer; without the columns that have no value."""
    with run.tables({name: made(ddl, rows.get(name, ())) for name, ddl in DDL.items()}, Path()) as connection:
        found = connection.execute(question).to_arrow_table().to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in found]


def of_broker(broker: int, seq: int, ev: str, *, ts: int = 1, run: int = 7, **columns: Any) -> dict[str, Any]:
    return {"role": "broker", "broker": broker, "run": run, "seq": seq, "ts": ts, "ev": ev, **columns}


def leads(broker: int, seq: int, partition: int = 0, *, topic: str = "t", **columns: Any) -> dict[str, Any]:
    return of_broker(broker, seq, "leader", topic=topic, partition=partition, epoch=0, isr=[1, 2], **columns)


def of_controller(ev: str, *, ts: int = 1, **columns: Any) -> dict[str, Any]:
    return {"role": "controller", "broker": 901, "run": 3, "seq": 9, "ts": ts, "ev": ev, **columns}


def process(broker: int, **columns: Any) -> dict[str, Any]:
    return {"role": "broker", "broker": broker, "run": 7, "ticks": 0, "bulk": 0, "logged": 0, "last_ts": 99, **columns}


def shared(*trace: Row, processes: Iterable[Row] = ()) -> list[dict[str, Any]]:
    rows = asked(SHARED_ROWS, trace=trace, processes=processes)
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["broker"], row["seq"], row["ts"]))


@pytest.mark.parametrize("name", [*tables(1), "shared", "facts"])
def test_every_question_can_be_asked_where_there_is_nothing_and_has_its_columns(name: str) -> None:
    question = {**tables(1), "shared": SHARED_ROWS, "facts": FACTS}[name]
    with run.tables({table: made(ddl, ()) for table, ddl in DDL.items()}, Path()) as connection:
        answer = connection.execute(question).to_arrow_table()
    assert answer.num_rows == 0
    columns: dict[str, tuple[str, ...]] = {
        "shared": schema.LANE_COLUMNS,
        "facts": ("topic", "partition", *schema.FACT_COLUMNS),
        "isr_history": schema.ISR_HISTORY_COLUMNS,
        "state_writes": schema.STATE_WRITE_COLUMNS,
        "measures": schema.MEASURE_COLUMNS,
        "copy_progress": schema.COPY_PROGRESS_COLUMNS,
        "notices": schema.NOTICE_COLUMNS,
    }
    if name in columns:
        assert tuple(answer.column_names) == columns[name]
    types = [field.type.value_type if pa.types.is_list(field.type) else field.type for field in answer.schema]
    assert set(types) <= set(TYPES.values()), "no decimals, which sums of DuckDB are: scripts expect integers"


def test_a_start_is_of_each_partition_that_the_broker_ever_led_with_what_is_known_of_its_run() -> None:
    trace = [of_broker(1, 0, "start"), leads(1, 5, 0), leads(1, 6, 3), leads(2, 5, 4), of_broker(1, 9, "fetch")]
    rows = shared(*trace, processes=[process(1, ticks=4), process(2)])
    assert [(r["partition"], r["broker"], r["ev"], r["run_ticks"], r["run_end"], r["of_topic"]) for r in rows] == [
        (0, 1, "start", 4, 99, False),
        (3, 1, "start", 4, 99, False),
    ]


def test_a_setting_of_a_topic_is_of_its_partitions_alone() -> None:
    trace = [leads(1, 5, 0), leads(1, 6, 0, topic="u"), of_broker(1, 7, "config", topic="u", key="k", value="v")]
    assert [(r["topic"], r["of_topic"], r["value"]) for r in shared(*trace)] == [("u", True, "v")]


def test_a_tick_is_of_the_partitions_led_at_that_moment() -> None:
    trace = [
        *(of_broker(1, seq, "tick", ts=seq) for seq in (1, 4, 8, 12)),
        leads(1, 3), of_broker(1, 7, "follower", topic="t", partition=0), leads(1, 10),
        of_broker(2, 4, "tick"), {**leads(1, 2), "run": 8},
    ]  # fmt: skip
    assert [(r["ev"], r["seq"]) for r in shared(*trace)] == [("tick", 4), ("tick", 12)]


def test_who_is_alive_is_the_controllers_view_where_a_broker_has_none() -> None:
    up = [of_controller("broker_down", ts=50, replica=1), of_controller("broker_down", ts=60, replica=2)]
    own = shared(leads(1, 5), *up)
    assert [(r["run"], r["seq"], r["ts"], r["replica"]) for r in own] == [(ALIVENESS_RUN, 50, 50, 1)], "itself alone"
    unknown = shared({**leads(1, 5), "run": 0}, *up)
    assert [r["replica"] for r in unknown] == [1, 2]
    seen = of_broker(1, 8, "broker_down", replica=3)
    assert [(r["run"], r["seq"], r["replica"]) for r in shared(leads(1, 5), seen)] == [(7, 8, 3)], "its own view"
    assert shared(leads(1, 5), {**seen, "run": 0}) == [], "nobody knows whose view that is"


def test_settings_of_a_metadata_log_concern_topics_brokers_or_all() -> None:
    rows = shared(
        leads(1, 5, 0), leads(2, 5, 1), leads(2, 6, 0, topic="u"),
        of_controller("config", ts=5, key="k", value="of all"),
        of_controller("config", ts=6, replica=2, key="k", value="of 2"),
        of_controller("config", ts=7, topic="u", key="k", value="of u"),
    )  # fmt: skip
    assert sorted((r["topic"], r["partition"], r["value"], r["of_topic"]) for r in rows) == [
        ("t", 0, "of all", False), ("t", 1, "of 2", False), ("t", 1, "of all", False),
        ("u", 0, "of 2", False), ("u", 0, "of all", False), ("u", 0, "of u", True),
    ]  # fmt: skip
    assert all(r["run"] == 0 and r["seq"] // r["ts"] == rows[0]["seq"] // rows[0]["ts"] for r in rows)


def test_rules_are_off_for_brokers_of_which_only_log_lines_are_known() -> None:
    rows = shared(leads(1, 5), leads(2, 5), leads(3, 5), processes=[process(1, logged=4), process(2, bulk=1, logged=4)])
    assert [(r["broker"], r["ev"], r["run"], r["seq"], r["ts"]) for r in rows] == [(1, RULES_OFF, ALIVENESS_RUN, -1, 0)]


def shrink(ts: int, isr: list[int], *, seq: int = 1, broker: int = 1, **columns: Any) -> dict[str, Any]:
    written = {"topic": "t", "partition": 0, "epoch": 1, "isr": isr, "replica": 9, **columns}
    return of_broker(broker, seq, "isr_shrink", ts=ts, **written)


def outcome(kind: str, ts: int = 1, partition: int = 0, **columns: Any) -> dict[str, Any]:
    return {"topic": "t", "partition": partition, "leader": 1, "kind": kind, "ts": ts, "epoch": 1, **columns}


def test_one_write_is_one_change_and_knows_the_isr_before_it() -> None:
    trace = [
        of_controller("elect", ts=4, topic="t", partition=0, epoch=1, replica=1, isr=[1, 2, 3], zk_version=0),
        shrink(8, [1], seq=6, zk_version=2, replica=2),
        shrink(8, [1], seq=5, zk_version=2, replica=3),
        shrink(5, [1, 2], zk_version=1),
        shrink(9, [2], err=1),
    ]
    rows = asked(tables(1)["isr_history"], trace=trace, outcomes=[outcome("isr_shrink", 6, isr_old=[1, 2], isr=[1])])
    assert [(r["ts"], r["event"], r["leader"], r.get("isr_old"), r["isr"], r["source"]) for r in rows] == [
        (4, "controller", 1, None, [1, 2, 3], "trace"),
        (5, "isr_shrink", 1, [1, 2, 3], [1, 2], "trace"),
        (6, "isr_shrink", 1, [1, 2], [1], "replayed"),
        (8, "isr_shrink", 1, [1, 2], [1], "trace"),
    ]


def test_a_change_tells_what_was_before_it_and_else_the_row_before_does() -> None:
    trace = [
        leads(1, 9, ts=3), {**leads(1, 8, ts=4, src="zk"), "isr": [1]}, {**leads(1, 9, ts=3), "isr_old": [7]},
        shrink(8, [1], isr_old=[1, 5]),
    ]  # fmt: skip
    rows = asked(tables(1)["isr_history"], trace=trace)
    assert [(r["ts"], r["event"], r.get("isr_old"), r["isr"], r["source"]) for r in rows] == [
        (3, "leader", None, [1, 2], "trace"),  # of two that say the same the one with nothing first
        (8, "isr_shrink", [1, 5], [1], "trace"),
    ]
    assert asked(tables(1)["isr_history"], trace=trace[1:2])[0]["source"] == "log"


def test_facts_name_the_leader_and_of_equal_writes_the_first() -> None:
    trace = [leads(1, 1), of_controller("assign", topic="t", partition=0, replicas=[1], ts=2)]
    trace += [shrink(8, [1], seq=6, replica=2), shrink(8, [1], seq=5, replica=3)]
    rows = sorted(asked(FACTS, trace=trace), key=lambda row: row["ts"])
    assert [(r["kind"], r.get("leader"), r.get("replica")) for r in rows] == [
        ("leader", 1, None),
        ("assign", None, None),
        ("isr_shrink", 1, 3),
    ]


def test_derived_changes_are_facts_where_no_broker_wrote_one() -> None:
    derived = [outcome("isr_shrink", 5, isr=[1]), outcome("isr_shrink", 5, 1, isr=[2]), outcome("min_isr", 1, amount=2)]
    stops = [of_broker(2, 3, "stop", topic="t", partition=0, value=value) for value in ("delete", "restart")]
    rows = asked(FACTS, trace=[shrink(6, [1]), *stops], outcomes=derived)
    assert sorted((r["partition"], r["ts"], r["kind"], r["source"]) for r in rows) == [
        (0, 1, "min_isr", "replayed"),
        (0, 1, "replica_deleted", "trace"),
        (0, 6, "isr_shrink", "trace"),
        (1, 5, "isr_shrink", "replayed"),
    ]


def test_a_deletion_of_a_topic_is_one_of_each_of_its_partitions() -> None:
    trace = [leads(1, 1, 0), leads(1, 2, 5), leads(1, 3, 0, topic="u"), of_controller("delete", ts=7, topic="t")]
    rows = [row for row in asked(FACTS, trace=trace) if row["kind"] == "delete"]
    assert sorted((row["topic"], row["partition"], row["ts"], row.get("leader")) for row in rows) == [
        ("t", 0, 7, None),
        ("t", 5, 7, None),
    ]


def state(partition: int, version: int, ev: str, isr: list[int], ts: int, **columns: Any) -> dict[str, Any]:
    return {
        "topic": "t", "partition": partition, "ts": ts, "ev": ev, "zk_version": version, "epoch": 0, "isr": isr,
        "broker": 1, "replica": 1, "src": schema.SRC_METADATA, **columns,
    }  # fmt: skip


def test_rows_that_disagree_and_versions_that_are_missing_are_named() -> None:
    rows = [state(0, 1, "elect", [1, 2], 5), state(0, 1, "leader", [1], 6), state(1, 1, "elect", [1], 7)]
    rows += [state(1, 4, "elect", [1], 9), state(2, 1, "elect", [], 1), state(2, 1, "leader", [], 1)]
    rows += [state(3, 1, "elect", [2, 1], 1), state(3, 1, "leader", [1, 2], 1)]
    found = asked(STATE_NOTICES, trace=rows)
    assert {(r["reason"], r["partition"], r["rows"], r["first_ts"]) for r in found} == {
        (CONTRADICTORY_STATE, 0, 1, 5),
        (MISSING_STATE, 1, 2, 9),
    }
    clock = {"reason": "clock_went_back", "topic": "t", "partition": 4, "broker": 1, "rows": 2, "first_ts": 3}
    both = asked(TABLES_OF_ROWS["notices"], trace=rows, clock=[clock])
    assert [r["reason"] for r in both] == ["clock_went_back", CONTRADICTORY_STATE, MISSING_STATE]


def test_of_a_version_who_wrote_it_tells_best_and_a_new_topic_begins_at_zero_again() -> None:
    created = of_controller("assign", ts=100, topic="t", partition=0, value="created", replicas=[1])
    rows = [
        state(0, 3, "leader", [1, 2], 9), state(0, 3, "elect", [1, 2], 8, replica=2, src=schema.SRC_LOG),
        state(0, 4, "isr_shrink", [1], 20, src=schema.SRC_INFERRED), state(0, 4, "leader", [1], 21),
        state(0, 5, "isr_shrink", [1], 30, err=1), state(0, 6, "isr_shrink", [1], 40, done=45),
        created, state(0, 0, "elect", [1], 100),
    ]  # fmt: skip
    found = asked(tables(1)["state_writes"], trace=rows)
    assert [(r["generation"], r["zk_version"], r["ts"], r["leader"], r["written_by"], r["source"]) for r in found] == [
        (0, 3, 8, 2, "controller", "log"),
        (0, 4, 21, 1, "controller", "metadata"),
        (0, 6, 45, 1, "leader", "metadata"),
        (1, 0, 100, 1, "controller", "metadata"),
    ]


def flap(partition: int, replica: int, leader: int, ts: int) -> dict[str, Any]:
    span = {"from_ts": ts, "to_ts": ts + 5, "out_of_isr_ms": 5}
    return {"table": "flaps", "topic": "t", "partition": partition, "replica": replica, "leader": leader, **span}


def test_what_flapped_together_names_the_cause() -> None:
    rows = [
        flap(0, 3, 1, 0), flap(1, 3, 2, 9_999),  # one replica left two leaders
        flap(2, 4, 1, 20_000), flap(3, 5, 1, 20_001),  # two replicas left one
        flap(4, 6, 2, 30_000), flap(5, 6, 2, 30_000),  # the same pair twice
        flap(6, 6, 2, 40_000), flap(7, 7, 1, 50_000), flap(8, 7, 2, 70_000),  # apart
    ]  # fmt: skip
    causes = [row["cause"] for row in asked(tables(1)["flaps"], derived=rows)]
    assert causes == [*["follower"] * 2, *["leader"] * 2, *["follower_or_link"] * 2, *["partition"] * 3]


def test_totals_of_a_partition() -> None:
    window = {"table": "windows", "topic": "t", "partition": 0, "window": "under_replicated", "from_ts": 0}
    rows = [{**window, "to_ts": 10, "deficit_ms": 20}, {**window, "to_ts": 30, "deficit_ms": 30}, flap(0, 3, 1, 0)]
    rows += [{**window, "window": "offline", "to_ts": 4}, {**window, "partition": 1, "to_ts": 4}]
    row, without = asked(tables(1_800_000)["partition_totals"], derived=rows)
    assert (without["flaps"], without["flaps_per_hour"]) == (0, 0.0)
    figures = ("under_replicated_ms", "under_replicated_count", "under_replicated_longest_ms", "deficit_ms")
    assert [row[name] for name in figures] == [40, 2, 30, 50]
    assert (row["offline_ms"], row["at_min_isr_ms"], row["flaps"], row["flaps_per_hour"]) == (4, 0, 1, 2.0)
    assert "at_min_isr_longest_ms" not in row


def test_derived_and_emitted_are_compared_per_partition() -> None:
    rows = [
        outcome("matched", error_ms=-4), outcome("matched", error_ms=2), outcome("missing"), outcome("spurious", 1, 1),
        outcome("hw", total=9, amount=8), outcome("refused"),
    ]  # fmt: skip
    found = asked(tables(1)["comparison"], outcomes=rows)
    names = ("emitted", "replayed", "matched", "missing", "spurious", "refused", "hw_rows", "hw_matched")
    assert [[row[name] for name in names] for row in found] == [[3, 2, 2, 1, 0, 1, 9, 8], [0, 1, 0, 0, 1, 0, 0, 0]]
    assert (found[0]["time_error_ms_max"], found[0]["time_error_ms_mean"]) == (4, 3.0)


@pytest.mark.parametrize(
    ("start", "leo", "target", "share"), [(0, 5, 10, 0.5), (4, 4, 4, 1.0), (0, 20, 10, 1.0), (5, 0, 10, 0.0)]
)
def test_progress_of_a_copy(start: int, leo: int, target: int, share: float) -> None:
    row = outcome("progress", replica=3, left_ms=start, amount=leo, total=target)
    (found,) = asked(tables(1)["copy_progress"], outcomes=[row])
    assert (found["progress"], found["start"], found["leo"], found["target"]) == (share, start, leo, target)


def test_what_lanes_measured_and_rows_they_could_not_use() -> None:
    measured = {"change": "ack_latency_ms", "amount": 5, "total": 7, "p95": 8, "worst": 9, "replica": None}
    rows = [outcome("measure", 4, **measured), outcome("measure", 6, change="rows_without_leader", amount=3)]
    (first, _) = asked(tables(1)["measures"], outcomes=rows)
    names = ("measure", "value", "count", "p95", "worst", "leader_epoch", "ts")
    assert [first[name] for name in names] == ["ack_latency_ms", 5, 7, 8, 9, 1, 4]
    assert asked(tables(1)["notices"], outcomes=rows) == [
        {"reason": "rows_without_leader", "topic": "t", "partition": 0, "broker": 1, "rows": 3, "first_ts": 6}
    ]
