"""What to ingest, and the one place that writes ingested rows: `trace`, `quarantine`, `files`, `notices`.

`look` says what can be refused before Spark starts. `ingest` gives the same rows however often, and in however many
overlapping copies, the same lines come in.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyspark.sql import DataFrame, SparkSession

from broker_sim.replay.errors import ReplayRefused
from broker_sim.replay.grouped import arrow_schema
from broker_sim.replay.ingest import by_workers, neighbours, own_verdict
from broker_sim.replay.ingest import layout as ingest_layout
from broker_sim.replay.ingest.join import joined
from broker_sim.replay.ingest.layout import Ingested
from broker_sim.replay.ingest.neighbours import DUPLICATE
from broker_sim.replay.ingest.trace_lines import of_other_versions, read_lines, trace_files
from broker_sim.replay.logs import frames, woven
from broker_sim.replay.logs.files import FileKind, LogFile, log_files
from broker_sim.replay.logs.reader import LOG_REASONS
from broker_sim.replay.metadata_log.files import MetadataFile, metadata_files
from broker_sim.replay.metadata_log.ingest import REASONS as METADATA_REASONS
from broker_sim.replay.metadata_log.ingest import take
from broker_sim.replay.schema import CLOCK_WENT_BACK, NOTICE_TYPES, QUARANTINE_COLUMNS
from broker_sim.replay.session import size_of, tuned_for
from broker_sim.replay.sql import run as sql
from broker_sim.replay.tables import write_empty, write_rows
from controller.wire.whole import whole

TRACE: Final = "trace"
LOG: Final = "log"
METADATA: Final = "metadata_log"
JOINED: Final = "joined"
#: Below the folder of intermediate results: rows of `notices` that the input gives.
INGEST_NOTICES: Final = "ingest_notices"
_QUARANTINE: Final = "quarantine"
_FACTS: Final = "facts"
_ASIDE: Final = "aside"
#: Bytes of a log file for each of the facts that Spark gets of it, at most levels more. "log files" of the benchmark: a
#: session that is started for so little took 29 s of CPU for 300 MB, one for the size of the files 52 s.
_LOG_BYTES_PER_FACT_BYTE: Final = 16
#: Reasons that are told of even where there are none; all reasons.
_ALWAYS_TOLD: Final = (own_verdict.TORN, *own_verdict.REASONS, own_verdict.UNKNOWN_VERSION)
REASONS: Final = (*_ALWAYS_TOLD, *LOG_REASONS, *METADATA_REASONS)
_TOLD_DDL: Final = {
    _QUARANTINE: ", ".join(f"{column} string" for column in QUARANTINE_COLUMNS),
    INGEST_NOTICES: ", ".join(f"{column} {kind}" for column, kind in NOTICE_TYPES.items()),
}
#: Rows of `quarantine`: those that `by_workers` refused.
_REFUSED_ROWS: Final = "SELECT key AS reason, '{source}' AS source, file, value AS line FROM aside"
#: Rows of `notices`: lanes whose clock went back.
_CLOCK_NOTICES: Final = f"""
    SELECT '{CLOCK_WENT_BACK}' AS reason, topic, partition, broker, count(*) AS rows, min(ts) AS first_ts
    FROM aside GROUP BY ALL"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Traces, or log files and the metadata log of a real cluster: files and folders.

    `zones`: `Europe/Berlin`, or `3=Europe/Berlin` for one broker. `only`: glob patterns of log files' names.
    `brokers`: `PATTERN=ID`, whose the log files are that fit.
    """

    traces: tuple[Path, ...] = ()
    kafka_logs: tuple[Path, ...] = ()
    metadata_logs: tuple[Path, ...] = ()
    zones: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    brokers: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        """All of them."""
        return (*self.traces, *self.kafka_logs, *self.metadata_logs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What `look` found: trace files, a folder of ingested rows, or log files and files of a metadata log."""

    traces: tuple[Path, ...] = ()
    #: those of `traces` that are of versions which are not read
    of_other_versions: tuple[Path, ...] = ()
    layout: Path | None = None
    logs: tuple[LogFile, ...] = ()
    metadata: tuple[MetadataFile, ...] = ()
    #: paths of which nothing can be read although the rest goes on, in words
    problems: tuple[str, ...] = ()
    zones: dict[int | None, ZoneInfo] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """How much there is for Spark to read: of log files, what their lines say."""
        files = (*self.traces, *(self.layout.rglob("*.parquet") if self.layout else ()))
        logs = sum(log.size for log in self.logs if log.kind is FileKind.LOG) // _LOG_BYTES_PER_FACT_BYTE
        metadata = (file.size for file in self.metadata)
        return int(sum(f.stat().st_size for f in files) + logs + sum(metadata))


def look(source: Source) -> Inputs:
    """The files to read.

    Raises: ReplayRefused, when a path is missing or unreadable, or there is nothing of the kind.
    """
    of_cluster = bool(source.kafka_logs or source.metadata_logs)
    if source.traces and of_cluster:
        raise ReplayRefused("--trace PATH stands alone: only one of it and --kafka-logs or --metadata-log can be given")
    if not source.paths:
        raise ReplayRefused("--trace PATH is needed, or --kafka-logs PATH, --metadata-log PATH or both of these")
    source = replace(source, traces=_as_spark_names(source.traces), kafka_logs=_as_spark_names(source.kafka_logs))
    if of_cluster:
        return _of_cluster(source)
    layouts = [path for path in source.traces if ingest_layout.is_layout(path)]
    if not layouts:
        files = trace_files(source.traces)
        return Inputs(traces=tuple(files), of_other_versions=tuple(of_other_versions(files)))
    if len(source.traces) > 1:
        raise ReplayRefused(
            f"{layouts[0]} is a folder of ingested rows: it can be replayed alone, not with other traces"
        )
    ingest_layout.check_layout(layouts[0])
    return Inputs(layout=layouts[0])


def _of_cluster(source: Source) -> Inputs:
    logs: list[LogFile] = []
    if source.kafka_logs:
        brokers = [_broker_of(pattern) for pattern in source.brokers]
        logs = log_files(source.kafka_logs, only=source.only, brokers=brokers)
    metadata, without = metadata_files(source.metadata_logs) if source.metadata_logs else ([], [])
    problems = tuple(f"{path}: no metadata log in it" for path in without)
    return Inputs(logs=tuple(logs), metadata=tuple(metadata), problems=problems, zones=_zones(source.zones))


def _as_spark_names(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Without `..`: Spark takes such steps out of a path, and rows find their file by the name that Spark tells."""
    return tuple(Path(os.path.normpath(path.absolute())) if ".." in path.parts else path for path in paths)


def _broker_of(given: str) -> tuple[str, int]:
    pattern, equals, broker = given.rpartition("=")
    number = whole(broker)
    if not equals or not pattern or number is None:
        raise ReplayRefused(f"--broker {given!r}: expected PATTERN=ID, as in 'host-a/*=1'")
    return pattern, number


def _zones(given: Sequence[str]) -> dict[int | None, ZoneInfo]:
    zones: dict[int | None, ZoneInfo] = {None: ZoneInfo("UTC")}
    for one in given:
        broker, equals, name = one.rpartition("=")
        if equals and whole(broker) is None:
            raise ReplayRefused(f"--time-zone {one!r}: expected ZONE or BROKER=ZONE, as in '3=Europe/Berlin'")
        try:
            zones[int(broker) if equals else None] = ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            hint = "a name such as Europe/Berlin or UTC"
            raise ReplayRefused(f"--time-zone {one!r}: no time zone {name!r}; expected {hint}") from error
    return zones


def ingest_into(spark: SparkSession, inputs: Inputs, out: Path, stage: Path) -> dict[str, Any]:
    """Writes the tables to `out`, with intermediate results below `stage`; returns counts and the span of time.

    A folder of ingested rows is taken as it is: its rows were judged when it was written.

    Raises: ReplayRefused, when no row can be used.
    """
    if inputs.layout is not None:
        return _take_layout(inputs, inputs.layout, out, stage)
    read = _read(spark, inputs, out, stage)
    aside = stage / _ASIDE
    counts = read.write(out / TRACE, aside)
    if not counts["kept"]:
        refused_lines = f"of {counts[by_workers.REFUSED]} lines is a row of a trace"
        expectation = refused_lines if inputs.traces else "said anything about replication"
        raise ReplayRefused(f"nothing to replay: none {expectation}")
    source = LOG if inputs.logs else TRACE if inputs.traces else METADATA
    with tuned_for(spark, size_of(aside)):
        refused = _REFUSED_ROWS.format(source=source)
        _write_told(read.unread, aside / by_workers.REFUSED, refused, out / _QUARANTINE, stage)
        _write_told(read.notices, aside / CLOCK_WENT_BACK, _CLOCK_NOTICES, stage / INGEST_NOTICES, stage)
    _write_files(inputs, out, others=read.others)
    return counts | {"quarantined": _by_reason(out, stage)} | read.summary


def rows_of(spark: SparkSession, inputs: Inputs, out: Path) -> Ingested:
    """The rows that `ingest_into` wrote or took."""
    return ingest_layout.read_rows(spark, inputs.layout or out / TRACE)


def _take_layout(inputs: Inputs, layout: Path, out: Path, stage: Path) -> dict[str, Any]:
    counts = ingest_layout.totals(layout)
    if not counts["kept"]:
        raise ReplayRefused(f"nothing to replay: {layout} has no rows")
    _write_told([], stage / _ASIDE, "", out / _QUARANTINE, stage)
    _write_told([], stage / _ASIDE, "", stage / INGEST_NOTICES, stage)
    _write_files(inputs, out)
    return counts | {"quarantined": dict.fromkeys(_ALWAYS_TOLD, 0), DUPLICATE: 0}


def _write_told(parts: Sequence[DataFrame], aside: Path, question: str, table: Path, stage: Path) -> None:
    """A table of what Spark has of it, and of what stands `aside`, by a question about that."""
    folders, questions = {}, []
    if parts:
        folders["parts"] = stage / f"{table.name}_parts"
        reduce(DataFrame.unionByName, parts).coalesce(1).write.parquet(str(folders["parts"]))
        questions.append("SELECT * FROM parts")
    if aside.is_dir():
        folders["aside"] = aside
        questions.append(question)
    if not questions:
        write_empty(table.parent, table.name, arrow_schema(_TOLD_DDL[table.name]))
        return
    with sql.tables(folders, stage) as connection:
        sql.write(connection, " UNION ALL BY NAME ".join(questions), table.parent, table.name)


def _by_reason(out: Path, stage: Path) -> dict[str, int]:
    with sql.tables({"quarantine": out / _QUARANTINE}, stage) as connection:
        counted = dict(connection.execute("SELECT reason, count(*) FROM quarantine GROUP BY ALL").fetchall())
    return {reason: counted.get(reason, 0) for reason in REASONS if reason in counted or reason in _ALWAYS_TOLD}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """What the input tells: how its rows are judged and written (to a folder, and aside), quarantine rows of what could
    not be read at all, notices, and what goes into `summary.json`."""

    write: Callable[[Path, Path], dict[str, Any]]
    unread: list[DataFrame] = field(default_factory=list)
    notices: list[DataFrame] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    #: files of another cluster's metadata log
    others: frozenset[Path] = frozenset()


def _read(spark: SparkSession, inputs: Inputs, out: Path, stage: Path) -> _Read:
    if inputs.traces:
        return _Read(write=_compared(read_lines(spark, inputs.traces, refused=inputs.of_other_versions)))
    facts = frames.write_facts(spark, inputs.logs, inputs.zones, stage / _FACTS) if inputs.logs else None
    unread = [frames.bad_lines(facts)] if facts is not None and facts.has(frames.Part.BAD) else []
    if not inputs.metadata:
        assert facts is not None
        return _Read(write=_woven(facts), unread=unread)
    metadata = take(spark, inputs.metadata, inputs.problems, out, stage)
    summary: dict[str, Any] = {METADATA: metadata.summary}
    if facts is None:
        return _Read(write=_compared(metadata.rows), unread=[metadata.unread], summary=summary, others=metadata.others)
    both = joined(woven.rows(facts), metadata, stage)
    return _Read(
        write=_compared(both.rows),
        unread=[*unread, metadata.unread],
        notices=[both.notices],
        summary=summary | {JOINED: both.summary},
        others=metadata.others,
    )


def _compared(rows: DataFrame) -> Callable[[Path, Path], dict[str, Any]]:
    """Rows that may stand twice."""
    return lambda folder, aside: by_workers.write_rows(
        neighbours.in_order(rows), neighbours.compared, folder, aside=aside
    )


def _woven(facts: frames.Facts) -> Callable[[Path, Path], dict[str, Any]]:
    """Rows of log files: none stands twice, and each tells whether the clock went back before it."""

    def write(folder: Path, aside: Path) -> dict[str, Any]:
        brokers = facts.brokers()
        weave = woven.weave_step(facts, brokers)
        return by_workers.write_rows(woven.grouped(facts, brokers), weave, folder, aside=aside)

    return write


def _write_files(inputs: Inputs, out: Path, *, others: Collection[Path] = ()) -> None:
    columns = ("file", "kind", "broker", "broker_from", "bytes")
    rows = [dict(zip(columns, file.as_row(), strict=True)) for file in inputs.logs]
    for log in inputs.metadata:
        kind = (
            FileKind.OTHER_CLUSTER
            if log.path in others
            else FileKind.SNAPSHOT
            if log.is_snapshot
            else FileKind.METADATA
        )
        whose = "content" if log.node is not None else None
        rows.append(dict(zip(columns, (str(log.path), kind.value, log.node, whose, log.size), strict=True)))
    traces = [*inputs.traces, *([inputs.layout] if inputs.layout else [])]
    for file in traces:
        size = file.stat().st_size if file.is_file() else None
        rows.append(dict(zip(columns, (str(file), TRACE, None, None, size), strict=True)))
    write_rows(out, "files", rows)
