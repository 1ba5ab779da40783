"""The metadata log of a KRaft cluster through the job, on Spark: as without it; and what is said of bad input."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from broker_sim.replay import job
from broker_sim.replay.errors import ReplayRefused
from broker_sim.replay.ingest.job import Source
from broker_sim.replay.job import Replayed, ReplaySettings
from broker_sim.replay.metadata_log import local
from broker_sim.replay.metadata_log.files import FOLDER, metadata_files
from broker_sim.replay.metadata_log.fold import Change
from broker_sim.replay.progress import StepProgress
from tests.unit.replay.metadata_log.written import (
    batch,
    broker_change,
    change,
    config,
    elected,
    partition,
    snapshot,
    topic,
    uvarint,
)

pytestmark = [pytest.mark.spark, pytest.mark.long]

RUN: Final = Path(__file__).parents[1] / "kraft_runs" / "elr" / "metadata"


def replayed(
    spark: SparkSession, out: Path, *paths: Path, ingest: bool = False, logs: tuple[Path, ...] = ()
) -> Replayed:
    settings = ReplaySettings(source=Source(metadata_logs=paths, kafka_logs=logs), out=out)
    work = job.ingest_only if ingest else job.run
    return work(spark, settings, job.check(settings), StepProgress(Console(stderr=True), quiet=True))


def table(out: Path, name: str) -> list[dict[str, Any]]:
    return pq.read_table(out / name).to_pylist()


def by_place(rows: list[dict[str, Any]]) -> dict[tuple[str, int], list[Change]]:
    found: dict[tuple[str, int], list[Change]] = {}
    for row in sorted(rows, key=lambda r: r["offset"]):
        found.setdefault((row["topic"], row["partition"]), []).append(Change(**{n: row[n] for n in Change._fields}))
    return found


@pytest.fixture(scope="module")
def out(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded run, whose second copy lies beside it, through the whole job."""
    folder = tmp_path_factory.mktemp("kraft")
    shutil.copytree(RUN, folder / "copy")
    replayed(spark, folder / "out", RUN, folder / "copy")
    return folder / "out"


def test_spark_finds_the_changes_that_the_plain_fold_finds(out: Path) -> None:
    assert by_place(table(out, "partition_changes")) == local.read(metadata_files([RUN])[0]).changes


def test_every_version_is_a_state_write_and_none_contradicts(out: Path) -> None:
    truth = [json.loads(line) for line in (RUN.parent / "truth.jsonl").read_text().splitlines()]
    written = {
        (r["topic"], r["partition"], r["partition_epoch"]): (r["leader_epoch"], r["leader"], r["ms"]) for r in truth
    }
    told = table(out, "state_writes")
    assert {
        (r["topic"], r["partition"], r["zk_version"]): (r["leader_epoch"], r["leader"], r["ts"]) for r in told
    } == written
    assert not (out / "notices").exists() or table(out, "notices") == []


def test_windows_follow_from_the_states_and_min_isr_from_the_configs(out: Path) -> None:
    kinds = {(row["topic"], row["window"]) for row in table(out, "windows")}
    assert {("orders", "under_replicated"), ("orders", "under_min_isr"), ("loose", "offline")} <= kinds
    assert ("loose", "under_min_isr") not in kinds


def test_the_summary_says_what_there_was_and_that_the_snapshot_agrees(out: Path) -> None:
    told = json.loads((out / "summary.json").read_text())["metadata_log"]
    assert (told["files"], told["is_complete"], told["gaps"], told["told"]) == (20, True, [], [])
    assert (told["check"]["partitions"], told["check"]["different"]) == (13, 0)
    assert {row["kind"] for row in table(out, "files")} == {"metadata_log", "metadata_snapshot"}
    assert [row["controller"] for row in table(out, "controllers")] != []
    assert {row["rack"] for row in table(out, "broker_events") if row["event"] == "registered"} == {"a", "b", "c", "d"}


def test_log_files_beside_it_tell_what_it_has_not(spark: SparkSession, tmp_path: Path) -> None:
    logs = tuple(sorted(RUN.parent.glob("logs-*")))
    out = tmp_path / "[all] {of,it}"
    done = replayed(spark, out, RUN, logs=logs, ingest=True)
    told = done.summary["joined"]
    assert (told["removed"], told["caught_up_known"], told["refused"]) == (5, 5, 3)
    assert not any(told["contradictions"].values())
    assert not told["is_other_cluster"]
    rows = [row for row in table(out, "trace") if row["ev"] in ("isr_shrink", "isr_expand", "elect")]
    of_logs = [row for row in rows if row["src"] not in ("metadata", "snapshot")]
    assert {(row["ev"], row["err"]) for row in of_logs} == {("isr_shrink", 95)}
    removed = [row for row in rows if row["ev"] == "isr_shrink" and not row["err"] and row["value"] == "leader"]
    assert all(0 < row["ts"] - row["cu"] < 60_000 and row["hw"] <= row["leo"] for row in removed)
    truth = [json.loads(line) for line in (RUN.parent / "truth.jsonl").read_text().splitlines()]
    assert len(table(out, "state_writes")) == len(truth)
    assert {row["value"] for row in table(out, "trace") if row["key"] == "replica.lag.time.max.ms"}


# -- bad input --------------------------------------------------------------------------------------------------------


def a_log(folder: Path, *batches: bytes, name: int = 0) -> Path:
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    (folder / FOLDER / f"{name:020}.log").write_bytes(b"".join(batches))
    return folder


def test_a_snapshot_behind_a_gap_tells_the_settings_of_then(spark: SparkSession, tmp_path: Path) -> None:
    """Who was in sync follows from the states; whether that was enough, from what was set while nothing is known."""
    min_isr = "min.insync.replicas"
    begins = (topic(1, "a"), config("a", min_isr, "1"), partition(1, 0, [1, 2, 3]))
    log = a_log(tmp_path, elected(0, 1000, 3), batch(1, 1001, *begins))
    a_log(log, elected(20, 2000, 3, epoch=2), batch(21, 2001, change(1, 0, isr=[1, 2]), epoch=2), name=20)
    state = (topic(1, "a"), config("a", min_isr, "3"), partition(1, 0, [1, 2, 3]))
    (log / FOLDER / f"{20:020}-{1:010}.checkpoint").write_bytes(snapshot(1990, *state))
    out = tmp_path / "out"
    replayed(spark, out, log)
    settings = [(row["ts"], row["value"]) for row in table(out, "trace") if row["key"] == min_isr]
    assert sorted(settings) == [(1001, "1"), (1990, "3")]
    kinds = {(row["window"], row["from_ts"]) for row in table(out, "windows")}
    assert ("under_min_isr", 2001) in kinds


def test_a_setting_that_is_changed_right_behind_a_snapshot_is_told_after_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A snapshot has the name of the offset where it ends, which is that of the next record."""
    min_isr = "min.insync.replicas"
    begins = (topic(1, "a"), config("a", min_isr, "1"), partition(1, 0, [1, 2, 3]))
    log = a_log(tmp_path, elected(0, 1000, 3), batch(1, 1001, *begins))
    a_log(log, batch(20, 2000, config("a", min_isr, "2")), batch(21, 2001, change(1, 0, isr=[1, 2])), name=20)
    state = (topic(1, "a"), config("a", min_isr, "3"), partition(1, 0, [1, 2, 3]))
    (log / FOLDER / f"{20:020}-{1:010}.checkpoint").write_bytes(snapshot(1990, *state))
    out = tmp_path / "out"
    replayed(spark, out, log)
    settings = [(row["seq"], row["ts"], row["value"]) for row in table(out, "trace") if row["key"] == min_isr]
    assert [told[1:] for told in sorted(settings)] == [(1001, "1"), (1990, "3"), (2000, "2")]


def test_what_cannot_be_used_is_counted_and_the_rest_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    later = uvarint(1) + uvarint(99) + uvarint(0)
    begin, abort = (
        uvarint(1) + uvarint(23) + uvarint(0) + uvarint(0),
        uvarint(1) + uvarint(25) + uvarint(0) + uvarint(0),
    )
    ours = a_log(
        tmp_path / "ours",
        elected(0, 1000, 3),
        batch(1, 1001, topic(1, "a"), partition(1, 0, [1, 2, 3])),
        batch(3, 1002, later, change(1, 0, isr=[1, 2])),
        batch(5, 1003, begin, change(1, 0, isr=[1]), abort),
        batch(8, 1004, broker_change(2, fenced=1), change(1, 0, isr=[1])),
        batch(10, 1005, change(1, 0, isr=[1, 2])),  # by a controller that was deposed
        batch(12, 1020, change(1, 0, isr=[1, 2]), epoch=2) + b"torn",
    )
    a_log(tmp_path / "ours", elected(10, 1010, 4, epoch=2), batch(11, 1011, change(1, 0, isr=[1, 3]), epoch=2), name=10)
    other = a_log(tmp_path / "other", elected(0, 7, 9), batch(1, 8, topic(9, "z"), partition(9, 0, [9])))
    (tmp_path / "none").mkdir()
    done = replayed(spark, tmp_path / "out", ours, other, tmp_path / "none", ingest=True)

    rows = sorted(table(tmp_path / "out", "partition_changes"), key=lambda row: row["offset"])
    assert [(r["offset"], r["partition_epoch"], r["isr"], r["cause"], r["controller"]) for r in rows] == [
        (2, 0, [1, 2, 3], "creation", 3),
        (4, 1, [1, 2], "leader", 3),
        (9, 2, [1], "fencing", 3),
        (11, 3, [1, 3], "leader", 4),
        (12, 4, [1, 2], "leader", 4),
    ]
    told = done.summary["metadata_log"]
    assert told["transactions"] == {"committed": 0, "aborted": 1, "unfinished": 0}
    assert (told["superseded"], told["not_decoded"]) == (1, {"unknown_record": 1})
    assert [line.split(": ", 1)[1].split(",")[0] for line in told["told"]] == [
        "no metadata log in it",
        "the metadata log of another cluster",
    ]
    assert {name: n for name, n in done.summary["quarantined"].items() if n} == {"torn": 1, "unknown_record": 1}


def test_a_log_that_tells_of_no_partition_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ReplayRefused, match="tells of no partition"):
        replayed(spark, tmp_path / "out", a_log(tmp_path / "log", elected(0, 1000, 3)))
