"""Trace files in, one clean frame out: every line is kept, dropped as a duplicate, or quarantined with a reason.

Steps are `DataFrame -> DataFrame`. A line is never fatal: a torn one (the last of a killed broker), one of an unknown
event, one that lacks what its event needs, one that contradicts itself or another are quarantined.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from broker_sim.replay.errors import ReplayRefused
from broker_sim.replay.schema import CORRUPT, LINE_DDL, REQUIRED, TRACE_COLUMNS
from controller.wire.trace import COLUMNS

#: Endings of trace files in a folder.
ENDINGS: Final = (".jsonl", ".jsonl.gz")
#: `broker-<id>-<start ms>.jsonl`, `controller-<id>.jsonl`: who wrote it, and when its process started.
_FILE_NAME: Final = r"^(broker|controller)-\d+(?:-(\d+))?\.jsonl(?:\.gz)?$"

TORN: Final = "torn"
UNKNOWN_EVENT: Final = "unknown_event"
INCOMPLETE: Final = "incomplete"
CONTRADICTORY: Final = "contradictory"
DUPLICATE: Final = "duplicate"
QUARANTINE_REASONS: Final = (TORN, UNKNOWN_EVENT, INCOMPLETE, CONTRADICTORY)


def trace_files(path: Path) -> list[Path]:
    """The trace files at `path`: itself, or those in and below the folder, sorted.

    Raises: ReplayRefused, when there are none, or one cannot be read.
    """
    try:
        if not path.exists():
            raise ReplayRefused(f"no such file or folder: {path}")
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*.jsonl*") if p.name.endswith(ENDINGS))
        if not files:
            raise ReplayRefused(f"no trace in {path}: expected files named {' or '.join('*' + e for e in ENDINGS)}")
        for file in files:
            with file.open("rb"):
                pass
    except OSError as error:
        raise ReplayRefused(f"cannot read {error.filename}: {error.strerror}") from error
    if not any(file.stat().st_size for file in files):
        raise ReplayRefused(f"empty trace: {path}")
    return files


def read_lines(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    """Every line as columns of the trace, with the file it stands in and what the file's name says."""
    lines = spark.read.schema(LINE_DDL).option("columnNameOfCorruptRecord", CORRUPT)
    frame = lines.json([str(file.absolute()) for file in files]).withColumn("file", F.col("_metadata.file_name"))
    run = F.regexp_extract("file", _FILE_NAME, 2)
    return frame.withColumns(
        {
            "role": F.when(F.regexp_extract("file", _FILE_NAME, 1) == "controller", "controller").otherwise("broker"),
            "run": F.when(run == "", F.lit(0)).otherwise(run.cast("bigint")),
        }
    )


def add_verdict(lines: DataFrame) -> DataFrame:
    """Adds `reason`: null for a line that can be replayed, else why it is quarantined or dropped.

    Needs rows to be clustered by topic, partition and broker only where they are compared with their neighbours, and
    leaves them sorted by topic, partition, broker, role, run, seq.
    """
    clustered = lines.repartition("topic", "partition", "broker")
    order = ("role", "run", "seq", "ts", "digest")
    before = Window.partitionBy("topic", "partition", "broker").orderBy(*order)
    same_place = reduce(Column.__and__, (F.lag(c).over(before) == F.col(c) for c in ("role", "run", "seq")))
    same_row = F.lag("digest").over(before) == F.col("digest")
    same_time = F.lag("ts").over(before) == F.col("ts")
    return (
        clustered.withColumn("digest", F.xxhash64(*COLUMNS))
        .withColumn("own_reason", _own_reason())
        .withColumn("same_place", F.coalesce(same_place, F.lit(False)))
        .withColumn("same_row", F.coalesce(same_row & same_time, F.lit(False)))
        .withColumn(
            "reason",
            F.when(F.col("own_reason").isNotNull(), F.col("own_reason"))
            .when(F.col("same_place") & F.col("same_row"), DUPLICATE)
            .when(F.col("same_place") & (F.col("role") == "broker"), CONTRADICTORY),
        )
    )


def _own_reason() -> Column:
    """Why a line is refused, judged by itself."""
    missing = F.col("seq").isNull() | F.col("ts").isNull() | F.col("broker").isNull()
    for event, columns in REQUIRED.items():
        for column in columns:
            missing |= (F.col("ev") == event) & F.col(column).isNull()
    contradiction = (
        (F.col("seq") < 0)
        | (F.col("ts") < 0)
        | (F.col("topic").isNull() & F.col("partition").isNotNull())
        | (F.col("partition") < 0)
        | (F.col("leo") < 0)
        | ((F.col("ev") == "append") & (F.col("offset") > F.col("leo")))
        | (F.col("ev").isin("isr_shrink", "isr_expand") & (F.size("isr") == F.size("isr_old")))
        | (F.col("done") < 0)
    )
    return (
        F.when(F.col(CORRUPT).isNotNull(), TORN)
        .when(F.col("ev").isNull() | ~F.col("ev").isin(*REQUIRED), UNKNOWN_EVENT)
        .when(missing, INCOMPLETE)
        .when(F.coalesce(contradiction, F.lit(False)), CONTRADICTORY)
    )


def kept(judged: DataFrame) -> DataFrame:
    """The rows that are replayed: the `trace` table."""
    return judged.filter(F.col("reason").isNull()).select(*TRACE_COLUMNS)


def quarantined(judged: DataFrame) -> DataFrame:
    """The lines that are not, each with its reason and, as far as it could be read, its text."""
    text = F.coalesce(F.col(CORRUPT), F.to_json(F.struct(*COLUMNS)))
    return judged.filter(F.col("reason").isin(*QUARANTINE_REASONS)).select("reason", "file", text.alias("line"))


def verdict_counts() -> list[Column]:
    """Aggregates over a judged frame: lines by reason, and the span of time of the kept ones."""
    keep = F.col("reason").isNull()
    counts = [F.count_if(F.col("reason") == reason).alias(reason) for reason in (*QUARANTINE_REASONS, DUPLICATE)]
    return [
        F.count_if(keep).alias("kept"),
        F.min(F.when(keep, F.col("ts"))).alias("from_ts"),
        F.max(F.when(keep, F.col("ts"))).alias("to_ts"),
        *counts,
    ]
