"""A metadata log on its way into the job: its tables, its rows, and what must be said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from broker_sim.replay.errors import ReplayRefused
from broker_sim.replay.metadata_log import changes as of_log
from broker_sim.replay.metadata_log import one_log, reading
from broker_sim.replay.metadata_log import rows as as_rows
from broker_sim.replay.metadata_log.files import MetadataFile
from broker_sim.replay.metadata_log.fold import Kind
from broker_sim.replay.metadata_log.one_log import MetadataLog
from broker_sim.replay.metadata_log.segments import CORRUPT, MALFORMED, UNKNOWN_RECORD
from broker_sim.replay.tables import exactly, write_csv, write_rows

#: Tables that a metadata log adds to the others.
CHANGES: Final = "partition_changes"
BROKERS: Final = "broker_events"
CONTROLLERS: Final = "controllers"
COVERAGE: Final = "coverage"
#: Why something of a metadata log is quarantined, beside the reasons that a row of a trace may have.
REASONS: Final = (CORRUPT, UNKNOWN_RECORD, MALFORMED)
_RECORDS: Final = "metadata_records"
_FOLDED: Final = "metadata_folded"
#: Differences between snapshot and log that are named; all are counted.
_NAMED_MAX: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FromMetadata:
    """What a metadata log gives the job."""

    rows: DataFrame
    unread: DataFrame
    #: what goes into `summary.json` as `metadata_log`
    summary: dict[str, Any]
    others: frozenset[Path]
    #: spans of append times, ms, of which the log is there; whether it is there from its first record on
    spans: tuple[tuple[int, int], ...] = ()
    from_beginning: bool = False


def take(
    spark: SparkSession, files: Sequence[MetadataFile], problems: Sequence[str], out: Path, stage: Path
) -> FromMetadata:
    """Reads the files, writes their tables to `out`.

    Raises: ReplayRefused, when no record can be used.
    """
    found = reading.walked(spark, files)
    reading.records(spark, files, found).write.parquet(str(stage / _RECORDS))
    decoded = spark.read.parquet(exactly(stage / _RECORDS))
    chosen, others, apart = one_log.cluster_files(decoded, files)
    log = one_log.one_log(decoded, chosen, found, (*problems, *apart))
    of_log.changes(log).write.parquet(str(stage / _FOLDED))
    folded = spark.read.parquet(exactly(stage / _FOLDED))
    summary = _summary(log, chosen, decoded, folded)
    if not summary["changes"] and not summary["states"]:
        raise ReplayRefused(f"nothing to replay: {files[0].folder} tells of no partition")
    changes = of_log.only_changes(folded).repartition("topic", "partition")
    _write(changes.sortWithinPartitions("topic", "partition", "offset"), out, CHANGES)
    _write(as_rows.broker_events(log), out, BROKERS)
    write_rows(out, CONTROLLERS, _controllers(log))
    write_rows(out, COVERAGE, log.inventory.coverage())
    return FromMetadata(
        rows=as_rows.rows(spark.read.parquet(exactly(out / CHANGES)), log),
        unread=reading.bad_records(decoded, found, spark),
        summary=summary,
        others=frozenset(file.path for file in others),
        spans=tuple((span.first_ts, span.last_ts) for span in log.inventory.spans),
        from_beginning=log.inventory.first_offset == 0,
    )


def _write(rows: DataFrame, out: Path, name: str) -> None:
    rows.write.parquet(str(out / name))
    write_csv(out, name)


def _controllers(log: MetadataLog) -> list[dict[str, Any]]:
    return [
        {"controller_epoch": epoch, "controller": who, "offset": offset, "ts": ts}
        for epoch, (who, offset, ts) in sorted(log.controllers.items())
    ]


def _summary(log: MetadataLog, files: Sequence[MetadataFile], decoded: DataFrame, folded: DataFrame) -> dict[str, Any]:
    there = log.inventory
    unusable = decoded.filter(F.col("problem").isNotNull() & F.col("file").isin(sorted(str(f.path) for f in files)))
    counted = unusable.groupBy("problem").agg(F.countDistinct("offset").alias("n")).collect()
    events = {row["event"]: row["n"] for row in folded.groupBy("event").agg(F.count("*").alias("n")).collect()}
    return {
        "cluster": log.cluster,
        "files": len(files),
        "offsets": [[span.start, span.end] for span in there.spans],
        "gaps": [[gap.start, gap.end] for gap in there.gaps],
        "snapshots": [snapshot.offset for snapshot in there.snapshots],
        "is_complete": there.first_offset == 0 and not there.gaps,
        "transactions": {name: log.counts[name] for name in ("committed", "aborted", "unfinished")},
        "superseded": log.counts["superseded"],
        "not_decoded": {row["problem"]: row["n"] for row in counted},
        "changes": sum(events.get(kind, 0) for kind in (Kind.CREATED, Kind.CHANGED, Kind.DELETED)),
        "states": events.get(Kind.SNAPSHOT, 0),
        "changes_without_state": events.get(Kind.WITHOUT_STATE, 0),
        "controllers": len(log.controllers),
        "check": _check(of_log.checks(folded)) if events.get(of_log.CHECKED) else None,
        "told": list(there.problems),
    }


def _check(checks: DataFrame) -> dict[str, Any]:
    """The state that the log leads to, beside the latest snapshot that was held against it."""
    by_offset = checks.groupBy("offset").agg(F.count("*").alias("n"), F.count_if(F.col("what") != "").alias("bad"))
    latest = by_offset.orderBy(F.desc("offset")).limit(1).collect()[0]
    offset, partitions, bad = latest["offset"], latest["n"], latest["bad"]
    odd = checks.filter((F.col("offset") == offset) & (F.col("what") != "")).orderBy("topic", "partition")
    named = [f"{r['topic']}-{r['partition']}: {r['what']}" for r in odd.limit(_NAMED_MAX).collect()] if bad else []
    return {"snapshot": offset, "partitions": partitions, "different": bad, "named": named}
