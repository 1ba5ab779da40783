"""`--what-if` end to end: one job, all keys; the table, the findings and the report that come of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from broker_sim.replay import job
from broker_sim.replay.ingest.job import Source
from broker_sim.replay.job import Replayed, ReplaySettings
from broker_sim.replay.progress import StepProgress
from broker_sim.replay.what_if.asked import parse
from broker_sim.replay.what_if.tables import WHAT_IF

pytestmark = [pytest.mark.spark, pytest.mark.long]

START = 1_700_000_000_000
_LAG, _MIN, _THROTTLE = "replica.lag.time.max.ms", "min.insync.replicas", "throttle"
MB = 1_000_000


def trace_rows() -> list[dict[str, Any]]:
    """orders-0: replica 3 is silent for 12 s, throttled when it is back. orders-1: replica 3 is added, and copies."""
    rows: list[dict[str, Any]] = []

    def add(ms: int, ev: str, **columns: Any) -> None:
        rows.append({"seq": len(rows), "ts": START + ms, "broker": 1, "ev": ev, **columns})

    def leads(ms: int, partition: int, epoch: int, **columns: Any) -> None:
        state = {"isr": [1, 2, 3], "replicas": [1, 2, 3], "adding": [], "removing": [], "offset": 0, "hw": 0}
        tp = {"topic": "orders", "partition": partition, "epoch": epoch}
        add(ms, "leader", **tp, **{**state, **columns}, zk_version=epoch)

    def fetch(ms: int, partition: int, replica: int, offset: int, leo: int, **columns: Any) -> None:
        tp = {"topic": "orders", "partition": partition, "epoch": 0 if partition == 0 else 1}
        add(ms, "fetch", **tp, replica=replica, offset=offset, leo=leo, err=0, req_epoch=tp["epoch"], **columns)

    add(0, "start", value=str(START))
    add(1, "config", key=_LAG, value="10000")
    add(1, "config", key="replica.fetch.max.bytes", value="10485760", replica=3)
    leads(10, 0, 0)
    fetch(20, 0, 2, 0, 0)
    fetch(21, 0, 3, 0, 0)
    add(100, "append", topic="orders", partition=0, epoch=0, offset=0, leo=10, bytes=1000)
    fetch(150, 0, 2, 10, 10)
    # 1 MB/s come in; 4 MB are there when the copy begins
    leads(200, 1, 1, isr=[1, 2], replicas=[1, 2, 3], adding=[3])
    for k in range(1, 21):
        leo = 1000 * k
        add(200 + k * 1000, "append", topic="orders", partition=1, epoch=1, offset=leo - 1000, leo=leo, bytes=MB)
        fetch(250 + k * 1000, 1, 2, leo, leo, bytes=MB)
        if k >= 4:
            offset = min(leo, 1500 * (k - 4))
            fetch(260 + k * 1000, 1, 3, offset, leo, bytes=1_500_000, throttled=k % 2 == 0)
        if k % 5 == 0:
            add(k * 1000, "tick")
    fetch(12_500, 0, 3, 0, 10, throttled=True)
    fetch(12_600, 0, 3, 10, 10)
    rows.sort(key=lambda row: (row["ts"], row["seq"]))
    return [{**row, "seq": seq} for seq, row in enumerate(rows)]


@pytest.fixture(scope="module")
def done(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Replayed, Path]:
    base = tmp_path_factory.mktemp("what-if")
    trace, out = base / f"broker-1-{START}.jsonl", base / "out"
    trace.write_text("".join(json.dumps(row) + "\n" for row in trace_rows()))
    changes = parse([f"{_LAG}=4000,10000,60000", f"{_MIN}=3", f"{_THROTTLE}=1000000,11000000", "fetch.rate=smallest"])
    settings = ReplaySettings(source=Source(traces=(trace,)), out=out, what_if=changes)
    progress = StepProgress(Console(stderr=True), quiet=True)
    return job.run(spark, settings, job.check(settings), progress), out


def what_if(out: Path, key: str, scope: str) -> list[dict[str, Any]]:
    rows = pq.read_table(out / "what_if").to_pylist()
    return [row for row in rows if (row["key"], row["scope"]) == (key, scope)]


def test_the_table_has_its_columns_and_a_csv(done: tuple[Replayed, Path]) -> None:
    _, out = done
    assert pq.read_table(out / "what_if").schema.names == list(WHAT_IF)
    head = (out / "csv" / "what_if.csv").read_text().splitlines()[0]
    assert head.replace('"', "").split(",") == list(WHAT_IF)


def test_another_lag(done: tuple[Replayed, Path]) -> None:
    _, out = done
    by_value = {row["value"]: row for row in what_if(out, _LAG, "all")}
    assert list(by_value) == [None, 4_000, 10_000, 60_000]
    # Silent from 21 ms on, back at 12,600: removed at 6,000 (grid of 2 s), not before 15,000 (grid of 5 s), never.
    assert [by_value[v]["shrinks"] for v in by_value] == [0, 1, 0, 0]
    assert [by_value[v]["expected_shrinks"] for v in by_value] == [0, 1, 0, 0]  # the phase is known
    assert (by_value[4_000]["flaps"], by_value[4_000]["episodes_throttled"]) == (1, 1)
    assert by_value[4_000]["detection_max_ms"] == 6_000 - 21
    assert "throttle_active" in by_value[4_000]["limits"] and by_value[60_000]["limits"] != by_value[4_000]["limits"]
    (of_partition,) = [r for r in what_if(out, _LAG, "partition") if r["value"] == 4_000 and r["partition"] == 0]
    assert of_partition["under_replicated_ms"] == 12_600 - 6_000


def test_another_minimum(done: tuple[Replayed, Path]) -> None:
    _, out = done
    recorded, changed = what_if(out, _MIN, "all")
    assert recorded["under_min_isr_ms"] == 0 < changed["under_min_isr_ms"]
    # Frozen below the minimum, the high watermark lets the replica that is added to orders-1 in before it has caught
    # up; the next tick removes it, and so once more.
    assert (recorded["shrinks"], changed["shrinks"]) == (0, 2)


def test_the_smallest_rate_to_stay_in_sync(done: tuple[Replayed, Path]) -> None:
    replayed, out = done
    (of_all,) = what_if(out, "fetch.rate", "all")
    assert (of_all["value"], of_all["never"], of_all["limits"]) == (None, 0, [])
    by_partition = {row["partition"]: row["smallest_rate"] for row in what_if(out, "fetch.rate", "partition")}
    # To orders-1 come 1 MB/s; to orders-0 1 kB at once, which any rate brings over before a tick finds it late.
    assert by_partition[1] == of_all["smallest_rate"] == pytest.approx(MB, rel=0.2)
    assert by_partition[0] < 1_000
    assert any("would have stayed in sync" in finding.text for finding in replayed.findings)


def test_another_throttle(done: tuple[Replayed, Path]) -> None:
    _, out = done
    recorded, slow, fast = what_if(out, _THROTTLE, "all")
    assert (slow["never"], slow["eta_ms"]) == (1, None)
    # 1 MB/s that comes in, once for the copy and once for the member; the trace's first and last moments bring nothing.
    assert slow["smallest_rate"] == pytest.approx(2 * MB, rel=0.02)
    assert fast["never"] == 0 and fast["eta_ms"] < 1_000 < recorded["smallest_rate"]
    copies = what_if(out, _THROTTLE, "copy")
    assert {(row["topic"], row["partition"], row["replica"]) for row in copies} == {("orders", 1, 3)}
    assert {row["broker"] for row in what_if(out, _THROTTLE, "broker")} == {1, 3}


def test_findings_and_report_tell_it(done: tuple[Replayed, Path]) -> None:
    replayed, out = done
    told = [f for f in replayed.findings if f.table == "what_if"]
    assert {f.where[0].value for f in told} == {_LAG, _MIN, _THROTTLE, "fetch.rate"}
    (finding,) = (f for f in told if f.where[0].value == _LAG)
    assert finding.filter == f"key = '{_LAG}' and scope = 'all'" and "at 4000: 1 flap" in finding.text
    assert pq.read_table(out / "findings").schema.names[-3:] == ["filter", "from_ts", "to_ts"]
    page = (out / "report.html").read_text()
    assert "What if" in page and "some copy never finishes" in page


def test_every_filter_selects_rows_of_its_table(spark: SparkSession, done: tuple[Replayed, Path]) -> None:
    replayed, out = done
    for finding in replayed.findings:
        if finding.rows and finding.filter:
            table = spark.read.parquet(str(out / finding.table))
            assert table.filter(finding.filter).count() > 0, finding
