"""The job, from input to report. Results appear whole or not at all.

ingest (`ingest.job`) -> trace, quarantine | rules -> outcomes | fold -> tables | findings -> summary, report
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from broker_sim.isr import PROFILES
from broker_sim.replay import steps, worker_files
from broker_sim.replay.chronicle import incidents
from broker_sim.replay.diagnosis import troubles_of
from broker_sim.replay.draft import STAGE, draft_of, has_place, put_in_place
from broker_sim.replay.effects import with_effects
from broker_sim.replay.errors import ReplayRefused
from broker_sim.replay.finding import Finding
from broker_sim.replay.findings import find
from broker_sim.replay.ingest import job as ingest_job
from broker_sim.replay.ingest.job import Inputs, Source
from broker_sim.replay.ingest.neighbours import DUPLICATE
from broker_sim.replay.progress import StepProgress
from broker_sim.replay.report.page import write_report
from broker_sim.replay.schema import DERIVED_DDL, FACT_DDL, LANE_DDL, OUTCOME_DDL
from broker_sim.replay.session import size_of, tuned_for
from broker_sim.replay.sql import run as sql
from broker_sim.replay.sql.facts import FACTS
from broker_sim.replay.sql.lanes import SHARED_ROWS
from broker_sim.replay.sql.tables import TABLES_OF_ROWS, tables
from broker_sim.replay.tables import dataset, exactly, write_csv, write_rows
from broker_sim.replay.what_if.asked import Change
from broker_sim.replay.what_if.tables import what_if

_SHARED, _FACTS = "shared_rows", "facts_of_partitions"
SUMMARY_FILE: Final = "summary.json"
REPORT_FILE: Final = "report.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """What to replay, and where to. `profile` is a key of `isr.PROFILES`."""

    source: Source
    out: Path
    profile: str = "P37"
    overwrite: bool = False
    #: settings to run the rules again with, from `what_if.asked.parse`
    what_if: tuple[Change, ...] = ()


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


def check(settings: ReplaySettings) -> Inputs:
    """What can be refused before Spark starts; returns what to read.

    Raises: ReplayRefused.
    """
    if settings.profile not in PROFILES:
        raise ReplayRefused(f"no profile {settings.profile!r}; there are {', '.join(PROFILES)}")
    inputs = ingest_job.look(settings.source)
    out = settings.out
    if not has_place(out):
        raise ReplayRefused(f"--out {out}: results are written beside and put in its place: give the folder's name")
    if out.exists():
        is_result = out.is_dir() and ((out / SUMMARY_FILE).exists() or not any(out.iterdir()))
        if not is_result:
            raise ReplayRefused(f"{out} exists and is not the result of a replay: choose another --out")
        if not settings.overwrite and any(out.iterdir()):
            raise ReplayRefused(f"{out} exists already: choose another --out, or --overwrite it")
        if any(path.resolve().is_relative_to(out.resolve()) for path in settings.source.paths):
            raise ReplayRefused(f"the input lies in {out}, which would be overwritten")
    return inputs


def run(spark: SparkSession, settings: ReplaySettings, inputs: Inputs, progress: StepProgress) -> Replayed:
    """Replays `inputs` (from `check`) into `settings.out`.

    Raises: ReplayRefused, when nothing can be replayed or the folder cannot be written.
    """
    with _whole_or_nothing(settings.out) as out:
        stage = out / STAGE
        with progress.step(_ingest_words(inputs), spark):
            counts = ingest_job.ingest_into(spark, inputs, out, stage)
        rows = ingest_job.rows_of(spark, inputs, out)
        folders = rows.tables | {"clock": stage / ingest_job.INGEST_NOTICES}
        with progress.step("replay the rules", spark):
            shared = spark.read.schema(LANE_DDL).parquet(sql.staged(folders, SHARED_ROWS, stage, _SHARED))
            lane_rows = steps.lanes(rows.trace, shared)
            folders["outcomes"] = stage / "outcomes"
            worker_files.write(
                steps.in_lanes(lane_rows), steps.rules(settings.profile), OUTCOME_DDL, folders["outcomes"]
            )
        with progress.step("derive history and windows", spark), tuned_for(spark, size_of(stage)):
            facts = spark.read.schema(FACT_DDL).parquet(sql.staged(folders, FACTS, stage, _FACTS))
            folders["derived"] = stage / "derived"
            worker_files.write(steps.in_partitions(facts), steps.fold(counts["to_ts"]), DERIVED_DDL, folders["derived"])
        with progress.step("write the tables"):
            counts["noticed"] = _write_tables(folders, tables(counts["to_ts"] - counts["from_ts"]), out, stage)
        if settings.what_if:
            with progress.step("what if", spark):
                frames = (rows.trace, lane_rows, spark.read.parquet(exactly(out / "catch_up")))
                changes, end_ts = settings.what_if, counts["to_ts"]
                asked = what_if(*frames, profile=settings.profile, changes=changes, end_ts=end_ts)
                asked.write.parquet(str(out / "what_if"))
                write_csv(out, "what_if")
        with progress.step("find what is worth a look"):
            span = {"from_ts": counts["from_ts"], "to_ts": counts["to_ts"]}
            troubles = troubles_of(out, rows.tables, scratch=stage, **span)
            troubles["incidents"] = with_effects(out, incidents(troubles), end_ts=counts["to_ts"])
        with progress.step("write the report"):
            summary = _summary(settings, counts, troubles)
            findings = find(summary, troubles)
            _finish(out, summary, troubles, findings)
        shutil.rmtree(stage)
    return Replayed(summary=summary, findings=findings)


def ingest_only(spark: SparkSession, settings: ReplaySettings, inputs: Inputs, progress: StepProgress) -> Replayed:
    """Ingests `inputs` (from `check`) into `settings.out`, without replaying: rows, state writes, what was refused.

    Raises: ReplayRefused, when no row can be used or the folder cannot be written.
    """
    with _whole_or_nothing(settings.out) as out:
        stage = out / STAGE
        with progress.step(_ingest_words(inputs), spark):
            counts = ingest_job.ingest_into(spark, inputs, out, stage)
        with progress.step("write the tables"):
            folders = ingest_job.rows_of(spark, inputs, out).tables | {"clock": stage / ingest_job.INGEST_NOTICES}
            counts["noticed"] = _write_tables(folders, TABLES_OF_ROWS, out, stage)
        ingested = _ingested(settings, counts)
        (out / SUMMARY_FILE).write_text(json.dumps(ingested, indent=2) + "\n", encoding="utf-8")
        shutil.rmtree(stage)
    return Replayed(summary=ingested, findings=[])


def _ingest_words(inputs: Inputs) -> str:
    if inputs.traces or inputs.layout:
        return "read and sort the trace"
    names = [name for name, files in (("log files", inputs.logs), ("metadata log", inputs.metadata)) if files]
    return f"read and sort the {' and the '.join(names)}"


def _write_tables(folders: sql.Folders, questions: Mapping[str, str], out: Path, stage: Path) -> dict[str, int]:
    """Writes what each question answers; returns the rows of `notices` by reason."""
    with sql.tables(folders, stage) as connection:
        for name, question in questions.items():
            sql.write(connection, question, out, name)
            write_csv(out, name)
    rows = dataset(out, "notices").to_table(columns=["reason", "rows"]).group_by("reason").aggregate([("rows", "sum")])
    return {row["reason"]: row["rows_sum"] for row in rows.sort_by("reason").to_pylist()}


def _ingested(settings: ReplaySettings, counts: dict[str, Any]) -> dict[str, Any]:
    return {
        "trace": " ".join(str(path) for path in settings.source.paths),
        "from_ts": counts["from_ts"],
        "to_ts": counts["to_ts"],
        "rows": counts["kept"],
        "duplicates": counts[DUPLICATE],
        "quarantined": counts["quarantined"],
        "noticed": counts["noticed"],
        **{name: counts[name] for name in (ingest_job.METADATA, ingest_job.JOINED) if name in counts},
    }


def _summary(settings: ReplaySettings, counts: dict[str, Any], troubles: dict[str, Any]) -> dict[str, Any]:
    return {
        **_ingested(settings, counts),
        "profile": settings.profile,
        **{key: troubles[key] for key in ("partitions", "brokers", "comparison", "windows", "changes")},
    }


def _finish(out: Path, summary: dict[str, Any], troubles: dict[str, Any], findings: list[Finding]) -> None:
    write_rows(out, "findings", [finding.as_row() for finding in findings])
    write_rows(out, "summary", [{"metric": k, "value": json.dumps(v)} for k, v in summary.items()])
    write_report(out, out / REPORT_FILE, summary, troubles, findings)
    summary_row = {**summary, "findings": [finding.as_row() for finding in findings]}
    (out / SUMMARY_FILE).write_text(json.dumps(summary_row, indent=2) + "\n", encoding="utf-8")


@contextmanager
def _whole_or_nothing(out: Path) -> Iterator[Path]:
    """A folder beside `out` that takes its place when the block ends, and vanishes when the block fails."""
    with ExitStack() as stack:
        try:
            draft = stack.enter_context(draft_of(out))
        except OSError as error:
            raise ReplayRefused(f"cannot write to {out.parent}: {error.strerror}") from error
        yield draft
        put_in_place(draft, out)
