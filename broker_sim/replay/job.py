"""The job: the only place that reads and writes. Results appear whole or not at all.

ingest -> trace, quarantine | rules -> outcomes | fold -> tables | findings -> summary, report
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, Observation, SparkSession

from broker_sim.replay import ingest, steps
from broker_sim.replay.errors import ReplayRefused
from broker_sim.replay.findings import Finding, find, troubles_of
from broker_sim.replay.progress import StepProgress
from broker_sim.replay.report import write_report
from broker_sim.replay.schema import DERIVED_TABLES
from broker_sim.replay.tables import write_csv, write_rows

#: Folder of intermediate results; gone when the job ends.
_STAGE: Final = ".stage"
_TABLES_AT_ONCE: Final = 3
SUMMARY_FILE: Final = "summary.json"
REPORT_FILE: Final = "report.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """What to replay, and where to. `profile` is a key of `isr.PROFILES`."""

    trace: Path
    out: Path
    profile: str = "P37"
    overwrite: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What came out: the content of `summary.json`, and the findings, worst first."""

    summary: dict[str, Any]
    findings: list[Finding]

    @property
    def is_exact(self) -> bool:
        """Whether every emitted ISR change was derived, and no other."""
        compared = self.summary["comparison"]
        return not compared["missing"] and not compared["spurious"]


def check(settings: ReplaySettings) -> list[Path]:
    """What can be refused before Spark starts; returns the files to read.

    Raises: ReplayRefused.
    """
    files = ingest.trace_files(settings.trace)
    out = settings.out
    if out.exists():
        is_result = out.is_dir() and ((out / SUMMARY_FILE).exists() or not any(out.iterdir()))
        if not is_result:
            raise ReplayRefused(f"{out} exists and is not the result of a replay: choose another --out")
        if not settings.overwrite and any(out.iterdir()):
            raise ReplayRefused(f"{out} exists already: choose another --out, or --overwrite it")
        if settings.trace.resolve().is_relative_to(out.resolve()):
            raise ReplayRefused(f"the trace lies in {out}, which would be overwritten")
    return files


def run(spark: SparkSession, settings: ReplaySettings, files: list[Path], progress: StepProgress) -> Replayed:
    """Replays `files` (from `check`) into `settings.out`.

    Raises: ReplayRefused, when nothing can be replayed or the folder cannot be written.
    """
    with _whole_or_nothing(settings.out) as out:
        stage = out / _STAGE
        with progress.step("read and sort the trace", spark):
            counts = _ingest(spark, files, out)
        trace = spark.read.parquet(str(out / "trace"))
        with progress.step("replay the rules", spark):
            lane_rows = steps.lanes(trace)
            steps.replayed(lane_rows, profile=settings.profile).write.parquet(str(stage / "outcomes"))
        outcomes = spark.read.parquet(str(stage / "outcomes"))
        with progress.step("derive history and windows", spark):
            fact_rows = steps.facts(trace, outcomes)
            steps.folded(fact_rows, end_ts=counts["to_ts"]).write.parquet(str(stage / "derived"))
        with progress.step("write the tables", spark):
            _write_tables(trace, outcomes, spark.read.parquet(str(stage / "derived")), out)
            troubles = troubles_of(spark, out)
        with progress.step("write the report"):
            summary = _summary(settings, counts, troubles)
            findings = find(summary, troubles)
            _finish(out, summary, troubles, findings)
        shutil.rmtree(stage)
    return Replayed(summary=summary, findings=findings)


def _ingest(spark: SparkSession, files: list[Path], out: Path) -> dict[str, Any]:
    judged = ingest.add_verdict(ingest.read_lines(spark, files))
    seen = Observation("verdicts")
    ingest.kept(judged.observe(seen, *ingest.verdict_counts())).write.parquet(str(out / "trace"))
    counts: dict[str, Any] = dict(seen.get)
    bad = sum(counts[reason] for reason in ingest.QUARANTINE_REASONS)
    if not counts["kept"]:
        raise ReplayRefused(f"nothing to replay: none of {bad} lines is a row of a trace")
    refused = ingest.quarantined(judged) if bad else ingest.quarantined(judged.limit(0))
    refused.coalesce(1).write.parquet(str(out / "quarantine"))
    return counts


def _write_tables(trace: DataFrame, outcomes: DataFrame, derived: DataFrame, out: Path) -> None:
    tables = {
        "isr_history": steps.isr_history(trace, outcomes),
        "comparison": steps.comparison(outcomes),
        **{name: steps.table_of(derived, name) for name in DERIVED_TABLES},
    }
    # Small jobs, most of whose time is planning on the driver.
    with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
        for written in [pool.submit(_write_table, frame, out, name) for name, frame in tables.items()]:
            written.result()


def _write_table(frame: DataFrame, out: Path, name: str) -> None:
    frame.write.parquet(str(out / name))
    write_csv(out, name)


def _summary(settings: ReplaySettings, counts: dict[str, Any], troubles: dict[str, Any]) -> dict[str, Any]:
    return {
        "trace": str(settings.trace),
        "profile": settings.profile,
        "from_ts": counts["from_ts"],
        "to_ts": counts["to_ts"],
        "rows": counts["kept"],
        "duplicates": counts[ingest.DUPLICATE],
        "quarantined": {reason: counts[reason] for reason in ingest.QUARANTINE_REASONS},
        **{key: troubles[key] for key in ("partitions", "brokers", "comparison", "windows", "changes")},
    }


def _finish(out: Path, summary: dict[str, Any], troubles: dict[str, Any], findings: list[Finding]) -> None:
    write_rows(out, "findings", [finding.as_row() for finding in findings])
    write_rows(out, "summary", [{"metric": k, "value": json.dumps(v)} for k, v in summary.items()])
    write_report(out, out / REPORT_FILE, summary, troubles, findings)
    told = {**summary, "findings": [finding.as_row() for finding in findings]}
    (out / SUMMARY_FILE).write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


@contextmanager
def _whole_or_nothing(out: Path) -> Iterator[Path]:
    """A folder beside `out` that takes its place when the block ends, and vanishes when the block fails."""
    draft = out.parent / f"{out.name}.tmp-{os.getpid()}"
    try:
        draft.mkdir(parents=True)
    except OSError as error:
        raise ReplayRefused(f"cannot write to {out.parent}: {error.strerror}") from error
    try:
        yield draft
        old = out.parent / f"{out.name}.old-{os.getpid()}"
        if out.exists():
            out.rename(old)
        draft.rename(out)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
