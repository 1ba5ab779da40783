"""The Spark job end to end: files in, tables and report out. One run serves most tests: Spark is slow to ask."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from broker_sim.replay import job
from broker_sim.replay.errors import ReplayRefused
from broker_sim.replay.generator.plan import ClusterPlan
from broker_sim.replay.generator.write import generate
from broker_sim.replay.ingest.job import Source
from broker_sim.replay.job import Replayed, ReplaySettings
from broker_sim.replay.progress import StepProgress
from broker_sim.replay.schema import ISR_HISTORY_COLUMNS
from tests.spark.sums import disagreements

pytestmark = pytest.mark.spark

START = 1_700_000_000_000
#: A folder's name that means something to a program that looks for what fits it.
AS_IT_IS = "it's [prod] {a,b}?*"


def line(seq: int, ms: int, broker: int, ev: str, **columns: Any) -> str:
    return json.dumps({"seq": seq, "ts": START + ms, "broker": broker, "ev": ev, **columns})


def tp(partition: int) -> dict[str, Any]:
    return {"topic": "orders", "partition": partition, "epoch": 0}


def leads(partition: int) -> dict[str, Any]:
    state = {"offset": 0, "hw": 0, "isr": [1, 2, 3], "replicas": [1, 2, 3], "adding": [], "removing": []}
    return {**tp(partition), **state, "zk_version": 0}


def fetch(replica: int, offset: int, leo: int) -> dict[str, Any]:
    return {**tp(0), "replica": replica, "offset": offset, "leo": leo, "err": 0, "req_epoch": 0}


#: Broker 1 leads orders-0. Replica 3 stops fetching and comes back; in between the broker leads orders-1, too.
BROKER_1 = [
    line(0, 0, 1, "start", value=str(START)),
    line(1, 0, 1, "config", key="replica.lag.time.max.ms", value="1000"),
    line(2, 5, 1, "config", topic="orders", key="min.insync.replicas", value="2"),
    line(3, 10, 1, "leader", **leads(0)),
    line(4, 20, 1, "fetch", **fetch(2, 0, 0)),
    line(5, 21, 1, "fetch", **fetch(3, 0, 0)),
    line(6, 100, 1, "append", **tp(0), offset=0, leo=10, bytes=100),
    line(7, 110, 1, "fetch", **fetch(2, 10, 10)),
    line(8, 500, 1, "tick"),
    line(9, 1000, 1, "tick"),
    line(10, 1500, 1, "tick"),
    line(11, 1500, 1, "isr_shrink", **tp(0), replica=3, isr_old=[1, 2, 3], isr=[1, 2],
         zk_version=1, err=0, cu=START + 21, done=START + 1504),
    line(12, 1600, 1, "leader", **leads(1)),
    line(13, 4000, 1, "fetch", **fetch(3, 0, 10)),
    line(14, 4030, 1, "fetch", **fetch(3, 10, 10)),
    line(15, 4030, 1, "isr_expand", **tp(0), replica=3, isr_old=[1, 2], isr=[1, 2, 3],
         zk_version=2, err=0, done=START + 4033),
]  # fmt: skip
CONTROLLER = [
    line(0, 8, 1, "assign", topic="orders", partition=0, replicas=[1, 2, 3]),
    line(1, 9, 1, "elect", **tp(0), replica=1, isr=[1, 2, 3], zk_version=0),
    line(2, 5000, 1, "broker_down", replica=1),
    line(3, 5001, 1, "elect", topic="orders", partition=0, epoch=1, replica=2, isr=[2, 3], zk_version=3),
]
BAD = [
    ('{"seq":16,"ts":17000000', "torn"),
    (line(17, 4100, 1, "party"), "unknown_event"),
    (line(18, 4100, 1, "append", **tp(0)), "incomplete"),
    (line(19, 4100, 1, "append", **tp(0), offset=9, leo=3), "contradictory"),
    (line(14, 4030, 1, "fetch", **fetch(3, 7, 10)), "contradictory"),
]


def replay(spark: SparkSession, trace: Path, out: Path) -> Replayed:
    settings = ReplaySettings(source=Source(traces=(trace,)), out=out)
    progress = StepProgress(Console(stderr=True), quiet=True)
    return job.run(spark, settings, job.check(settings), progress)


@pytest.fixture(scope="module")
def done(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Replayed, Path]:
    base = tmp_path_factory.mktemp("replay") / AS_IT_IS
    traces = base / "traces"
    traces.mkdir(parents=True)
    (traces / f"broker-1-{START}.jsonl").write_text("\n".join([*BROKER_1, *(bad for bad, _ in BAD)]))
    (traces / "controller-1.jsonl").write_text("\n".join(CONTROLLER) + "\n")
    # The same file once more, packed: every good row of it is a duplicate.
    copy = traces / "copy"
    copy.mkdir()
    (copy / f"broker-1-{START}.jsonl.gz").write_bytes(gzip.compress("\n".join(BROKER_1).encode()))
    out = base / "out"
    return replay(spark, traces, out), out


def table(out: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(out / name).to_pylist()
    return rows


def test_every_emitted_change_is_derived_and_no_other(done: tuple[Replayed, Path]) -> None:
    replayed, out = done
    assert replayed.is_exact
    compared = {row["partition"]: row for row in table(out, "comparison")}
    assert (compared[0]["emitted"], compared[0]["replayed"], compared[0]["matched"]) == (2, 2, 2)
    assert compared[0]["time_error_ms_max"] == 0
    assert (compared[1]["emitted"], compared[1]["replayed"]) == (0, 0), (
        "ticks reach every partition, and change nothing"
    )


def test_the_history_has_its_fixed_columns_and_both_sources(done: tuple[Replayed, Path]) -> None:
    _, out = done
    assert pq.read_table(out / "isr_history").schema.names == list(ISR_HISTORY_COLUMNS)
    rows = [row for row in table(out, "isr_history") if row["partition"] == 0]
    told = [(row["ts"] - START, row["event"], row["leader"], row["isr_old"], row["isr"], row["source"]) for row in rows]
    assert told == [
        (9, "controller", 1, None, [1, 2, 3], "trace"),
        (10, "leader", 1, [1, 2, 3], [1, 2, 3], "trace"),
        (1500, "isr_shrink", 1, [1, 2, 3], [1, 2], "replayed"),
        (1500, "isr_shrink", 1, [1, 2, 3], [1, 2], "trace"),
        (4030, "isr_expand", 1, [1, 2], [1, 2, 3], "replayed"),
        (4030, "isr_expand", 1, [1, 2], [1, 2, 3], "trace"),
        (5001, "controller", 2, [1, 2, 3], [2, 3], "trace"),
    ]


def test_windows_catch_up_and_flaps(done: tuple[Replayed, Path]) -> None:
    _, out = done
    windows = {
        (row["window"], row["from_ts"] - START, row["to_ts"] - START)
        for row in table(out, "windows")
        if row["partition"] == 0
    }
    assert ("under_replicated", 1500, 4030) in windows
    assert ("at_min_isr", 1500, 4030) in windows
    assert ("offline", 5000, 5001) in windows
    (came_back,) = table(out, "catch_up")
    assert (came_back["replica"], came_back["catch_up_ms"], came_back["out_of_isr_ms"]) == (3, 30, 2530)
    assert came_back["outage_ms"] == 4000 - 21
    (flap,) = table(out, "flaps")
    assert (flap["replica"], flap["cause"]) == (3, "partition")


def test_bad_lines_are_counted_and_kept_apart(done: tuple[Replayed, Path]) -> None:
    replayed, out = done
    expected = sorted(reason for _, reason in BAD)
    assert sorted(row["reason"] for row in table(out, "quarantine")) == expected
    assert replayed.summary["quarantined"] == {
        reason: expected.count(reason) for reason in replayed.summary["quarantined"]
    }
    torn = next(row for row in table(out, "quarantine") if row["reason"] == "torn")
    assert torn["line"] == BAD[0][0]


def test_duplicates_are_dropped(done: tuple[Replayed, Path]) -> None:
    replayed, out = done
    assert replayed.summary["duplicates"] == len(BROKER_1)
    assert replayed.summary["rows"] == len(BROKER_1) + len(CONTROLLER) == pq.read_table(out / "trace").num_rows


def test_every_table_has_a_csv_and_the_rest_is_gone(done: tuple[Replayed, Path]) -> None:
    _, out = done
    history = (out / "csv" / "isr_history.csv").read_text().splitlines()
    assert history[0].replace('"', "").split(",") == list(ISR_HISTORY_COLUMNS)
    assert "1 2 3" in history[2]
    assert not (out / ".stage").exists() and not (out / "what_if").exists()
    assert [path.name for path in out.parent.iterdir() if ".tmp-" in path.name] == []


def test_the_report_is_one_file_that_loads_nothing(done: tuple[Replayed, Path]) -> None:
    replayed, out = done
    page = (out / "report.html").read_text()
    assert not re.search(r"""src=|href="(?!#)|url\(|@import|https?://""", page)
    assert "orders-0" in page
    assert replayed.findings[0].text.split("'")[0] in page
    told = json.loads((out / "summary.json").read_text())
    assert [f["rank"] for f in told["findings"]] == list(range(1, len(told["findings"]) + 1))


def test_headline_findings_tables_and_csv_agree(done: tuple[Replayed, Path], tmp_path: Path) -> None:
    _, out = done
    assert list(disagreements(out)) == []
    copy = tmp_path / "out"
    shutil.copytree(out, copy)
    summary = json.loads((copy / "summary.json").read_text())
    summary["windows"]["under_replicated"]["total_ms"] += 1_000
    next(finding for finding in summary["findings"] if finding["rows"])["rows"] += 1
    (copy / "summary.json").write_text(json.dumps(summary))
    found = "\n".join(disagreements(copy))
    assert "windows under_replicated" in found and "rests on" in found, "a number that differs is found"


def test_a_generated_trace_in_parquet(spark: SparkSession, tmp_path: Path) -> None:
    plan = ClusterPlan(brokers=4, topics=2, partitions_per_topic=3, hours=0.5, fault_every_ms=60_000, seed=5)
    made = generate(plan, tmp_path / AS_IT_IS, form="parquet", workers=1)
    replayed = replay(spark, tmp_path / AS_IT_IS, tmp_path / "out")
    assert replayed.is_exact and replayed.summary["comparison"]["emitted"] > 0
    assert (replayed.summary["rows"], replayed.summary["quarantined"]["torn"]) == (made.rows, 0)


def test_nothing_but_garbage_is_refused_and_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    trace.write_text("not a row\n\x00\x01\n")
    with pytest.raises(ReplayRefused, match="nothing to replay: none of 2 lines"):
        replay(spark, trace, tmp_path / "out")
    assert list(tmp_path.iterdir()) == [trace]
