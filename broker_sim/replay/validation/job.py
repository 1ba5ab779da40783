"""Runs of a real Kafka through the job: the trace, the log files, the request logs; figures come out.

Each way is the job's own: ingest, then the rules; on Spark, or in this process (`validation.local`). What is collected
is as small as a run: its changes and state writes.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from broker_sim.replay import steps
from broker_sim.replay.errors import ReplayRefused, reading
from broker_sim.replay.ingest import job as ingest_job
from broker_sim.replay.ingest.job import Source
from broker_sim.replay.ingest.layout import Ingested
from broker_sim.replay.metadata_log import local as metadata_local
from broker_sim.replay.metadata_log.files import metadata_files
from broker_sim.replay.rows import OutcomeKind
from broker_sim.replay.sql import run as sql
from broker_sim.replay.sql.history import STATE_WRITES
from broker_sim.replay.sql.lanes import SHARED_ROWS
from broker_sim.replay.validation import local as validation_local
from broker_sim.replay.validation.figures import (
    SHRINK,
    TOLERANCE_MS,
    Change,
    OutageFigures,
    RulesFigures,
    RunFigures,
    State,
    StateKey,
    StatesFigures,
    Truth,
    derived_changes,
    match,
    outage_figures,
    outages_of,
    read_truth,
    states_figures,
)
from broker_sim.replay.validation.kraft import KraftFigures, is_kraft, kraft_figures
from broker_sim.replay.validation.run_files import TRUTH_FILE, arranged, run_folders

TRACE_FILE: Final = "trace.jsonl.gz"
#: What was done to the run: `ts`, `action`, `broker`.
ACTIONS_FILE: Final = "actions.jsonl"
#: What log4j writes at the levels that Kafka ships.
DEFAULT_LOGS: Final = ("server.log*", "state-change.log*", "controller.log*")
#: What a container writes, kept in a file.
CONSOLE_LOG: Final = "stdout.log*"
REQUEST_LOGS: Final = ("kafka-request.log*",)
WAYS: Final = ("trace", "states", "requests")
#: All files of a run at once, and the outages of killed leaders; without Spark alone, when asked for.
EVERYTHING: Final = "everything"
_ZONE: Final = re.compile(r"JVM time zone (\S+?)[,.\s]")
#: Removals that leaders logged, with lastCaughtUpTimeMs.
_LOGGED: Final = f"""
    SELECT topic, partition, replica, ts, cu FROM trace
    WHERE ev = '{SHRINK}' AND cu IS NOT NULL AND coalesce(err, 0) = 0"""
_KINDS: Final = tuple(
    kind.value
    for kind in (OutcomeKind.SHRINK, OutcomeKind.EXPAND, OutcomeKind.CATCH_UP, OutcomeKind.REFUSED, OutcomeKind.HW)
)


def look(folders: Sequence[Path]) -> list[Path]:
    """The runs in `folders`.

    Raises: ReplayRefused, when there are none in one.
    """
    return [run for folder in folders for run in _look(folder)]


def _look(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise ReplayRefused(f"no such folder: {folder}")
    runs = run_folders(folder)
    if not runs:
        raise ReplayRefused(f"no run in {folder}: expected folders with {TRUTH_FILE}")
    return runs


def validate(
    runs: Sequence[Path],
    *,
    spark: SparkSession | None = None,
    profile: str = "P37",
    zone: str | None = None,
    ways: Sequence[str] = WAYS,
    done: Callable[[RunFigures], None] = lambda _: None,
) -> list[RunFigures]:
    """The figures of each run, by the job on `spark`; without one by its pure steps in this process.

    `zone`: of the JVMs; else what the run's `scenario.md` says, else UTC.

    Raises: ReplayRefused, for a run that cannot be read.
    """
    figures = []
    for run in runs:
        one = _figures(run, spark, profile, zone or _zone_of(run), ways)
        done(one)
        figures.append(one)
    return figures


def _figures(run: Path, spark: SparkSession | None, profile: str, zone: str, ways: Sequence[str]) -> RunFigures:
    try:
        with (run / TRUTH_FILE).open(encoding="utf-8") as lines:
            if is_kraft(lines.readline()):
                return RunFigures(run=run.name, kraft=_kraft(run, zone))
            lines.seek(0)
            truth = read_truth(lines)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReplayRefused(f"{run / TRUTH_FILE} is no truth of a run: {error}") from error
    named = {path.name for path in run.rglob("*") if path.is_file()}

    def goes(way: str, *patterns: str) -> bool:
        return way in ways and any(fnmatch(name, pattern) for name in named for pattern in patterns)

    trace = Source(traces=(run / TRACE_FILE,))
    default = Source(kafka_logs=(run,), only=DEFAULT_LOGS, zones=(zone,))
    rich = Source(kafka_logs=(run,), only=(*DEFAULT_LOGS, *REQUEST_LOGS), zones=(zone,))
    mixed = Source(kafka_logs=(run,), only=("*.log*",), zones=(zone,))
    everything, outages, otherwise = None, None, list[str]()
    if spark is None and goes(EVERYTHING, *REQUEST_LOGS):
        everything, outages = _of_everything(run, mixed, truth, profile)
        with tempfile.TemporaryDirectory(prefix="kwob-validate-") as scratch:
            for way, folder in arranged(run, "*.log*", Path(scratch)):
                again = Source(kafka_logs=(folder,), zones=(zone,))
                if _of_everything(run, again, truth, profile) != (everything, outages):
                    otherwise.append(way)
    figures = RunFigures(
        everything=everything,
        otherwise=tuple(otherwise),
        outages=outages,
        run=run.name,
        trace=_by_rules(spark, trace, truth, profile) if goes("trace", TRACE_FILE) else None,
        states=_by_states(spark, default, truth) if goes("states", *DEFAULT_LOGS) else None,
        requests=_by_rules(spark, rich, truth, profile) if goes("requests", *REQUEST_LOGS) else None,
    )
    if figures == RunFigures(run=run.name):
        raise ReplayRefused(
            f"{run} has nothing beside {TRUTH_FILE}: expected {TRACE_FILE}, or log files of its brokers"
        )
    return figures


def _of_everything(run: Path, source: Source, truth: Truth, profile: str) -> tuple[RulesFigures, OutageFigures]:
    """All log files at once, and the outages of killed leaders, of which `actions.jsonl` tells the begin."""
    rows = _local_rows(source)
    outcomes = list(validation_local.outcomes_of(rows, profile))
    kills = [
        (row["ts"], row["broker"])
        for row in _lines_of(run / ACTIONS_FILE)
        if str(row.get("action")).startswith("kill") and {"ts", "broker"} <= row.keys()
    ]
    windows = validation_local.histories_of(rows, outcomes)
    return (
        _rules_figures(truth, outcomes, []),
        outage_figures(outages_of(_lines_of(run / TRUTH_FILE), kills), (row for row in windows if row["window"])),
    )


def _lines_of(file: Path) -> list[dict[str, Any]]:
    if not file.is_file():
        return []
    with reading(file):
        return [dict(json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]


def _kraft(run: Path, zone: str) -> KraftFigures:
    """In this process: such a log is small."""
    files, _ = metadata_files([run / "metadata"])
    named = any(fnmatch(path.name, pattern) for path in run.rglob("*.log*") for pattern in DEFAULT_LOGS)
    logs = Source(kafka_logs=(run,), only=(*DEFAULT_LOGS, CONSOLE_LOG), zones=(zone,))
    rows = _local_rows(logs) if named else None
    with (run / TRUTH_FILE).open(encoding="utf-8") as truth:
        return kraft_figures(run.name, truth, metadata_local.read(files).changes, rows)


def _zone_of(run: Path) -> str:
    scenario = run / "scenario.md"
    with reading(scenario):
        found = _ZONE.search(scenario.read_text(encoding="utf-8")) if scenario.is_file() else None
    return found[1] if found else "UTC"


def _ingested(spark: SparkSession, source: Source, folder: Path) -> Ingested:
    inputs = ingest_job.look(source)
    ingest_job.ingest_into(spark, inputs, folder, folder / ".stage")
    return ingest_job.rows_of(spark, inputs, folder)


def _asked(ingested: Ingested, question: str) -> list[dict[str, Any]]:
    with sql.tables(ingested.tables, ingested.folder) as tables:
        rows: list[dict[str, Any]] = tables.execute(question).to_arrow_table().to_pylist()
        return rows


def _by_states(spark: SparkSession | None, source: Source, truth: Truth) -> StatesFigures:
    if spark is None:
        return states_figures(truth, validation_local.states_of(_local_rows(source)))
    with tempfile.TemporaryDirectory(prefix="kwob-validate-") as scratch:
        ingested = _ingested(spark, source, Path(scratch))
        states: dict[StateKey, State] = {
            (row["topic"], row["partition"], row["zk_version"]): State(
                frozenset(row["isr"]), row["leader"], row["leader_epoch"]
            )
            for row in _asked(ingested, STATE_WRITES)
        }
    return states_figures(truth, states)


def _local_rows(source: Source) -> list[validation_local.Row]:
    inputs = ingest_job.look(source)
    if inputs.logs:
        return validation_local.rows_of_logs(inputs.logs, inputs.zones[None])
    return [row for file in inputs.traces for row in validation_local.rows_of_trace(file)]


def _outcomes(spark: SparkSession | None, source: Source, profile: str) -> tuple[list[Any], list[Any]]:
    """What the rules say, and the removals that leaders logged, with lastCaughtUpTimeMs."""
    if spark is None:
        rows = _local_rows(source)
        logged = [row for row in rows if row["ev"] == SHRINK and row.get("cu") is not None and not row.get("err")]
        return list(validation_local.outcomes_of(rows, profile)), logged
    with tempfile.TemporaryDirectory(prefix="kwob-validate-") as scratch:
        ingested = _ingested(spark, source, Path(scratch))
        shared = spark.read.parquet(sql.staged(ingested.tables, SHARED_ROWS, Path(scratch), "shared"))
        lanes = steps.lanes(ingested.trace, shared)
        replayed = steps.replayed(lanes, profile=profile).filter(F.col("kind").isin(*_KINDS))
        outcomes = [row.asDict() for row in replayed.collect()]
        return outcomes, _asked(ingested, _LOGGED)


def _by_rules(spark: SparkSession | None, source: Source, truth: Truth, profile: str) -> RulesFigures:
    return _rules_figures(truth, *_outcomes(spark, source, profile))


def _rules_figures(truth: Truth, outcomes: list[dict[str, Any]], logged: list[dict[str, Any]]) -> RulesFigures:
    matched = match(truth.changes, derived_changes(outcomes), refused=_refused(outcomes))
    hw = [row for row in outcomes if row["kind"] == OutcomeKind.HW.value]
    return RulesFigures(
        changes=len(truth.changes),
        found=len(matched.errors_ms),
        spurious=len(matched.spurious),
        errors_ms=tuple(sorted(matched.errors_ms)),
        caught_up_errors_ms=tuple(sorted(_caught_up_errors(outcomes, logged))),
        hw_rows=sum(row["total"] for row in hw),
        hw_found=sum(row["amount"] for row in hw),
    )


def _refused(outcomes: list[dict[str, Any]]) -> list[Change]:
    return [
        Change(row["topic"], row["partition"], row["change"], row["replica"], row["ts"])
        for row in outcomes
        if row["kind"] == OutcomeKind.REFUSED.value and row["change"]
    ]


def _caught_up_errors(outcomes: list[dict[str, Any]], logged: list[dict[str, Any]]) -> list[int]:
    """Derived minus logged lastCaughtUpTimeMs, of every removal of which both are known."""
    derived: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
    for row in outcomes:
        if row["kind"] == OutcomeKind.CATCH_UP.value and row["left_by"] == "leader" and row["cu"]:
            place = (row["topic"], row["partition"], row["replica"])
            derived.setdefault(place, []).append((row["left_ms"], row["cu"]))
    errors = []
    for row in logged:
        near = derived.get((row["topic"], row["partition"], row["replica"]), [])
        left, cu = min(near, key=lambda one: abs(one[0] - row["ts"]), default=(None, None))
        if left is not None and cu is not None and abs(left - row["ts"]) <= TOLERANCE_MS:
            errors.append(cu - row["cu"])
    return errors
