"""Traces in, one clean frame out: every line is kept, dropped as a duplicate, or quarantined with a reason.

Steps are `DataFrame -> DataFrame`. A line is never fatal: a torn one (the last of a killed broker), one of an unknown
event or trace version, one that lacks what its event needs, one that contradicts itself or another are quarantined.
Rows from log files (`logs.woven`) and rows ingested before (`ingest.layout`) take the same way.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Collection, Sequence
from functools import reduce
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from broker_sim.replay.errors import ReplayRefused
from broker_sim.replay.ingest import own_verdict
from broker_sim.replay.schema import (
    ADDED_COLUMNS,
    CLOCK_STEP_MS,
    CLOCK_WENT_BACK,
    CORRUPT,
    LINE_DDL,
    NOTICE_COLUMNS,
    QUARANTINE_COLUMNS,
    TRACE_COLUMNS,
)
from controller.wire.trace import COLUMNS, READABLE_VERSIONS

#: Endings of trace files in a folder.
ENDINGS: Final = (".jsonl", ".jsonl.gz", ".parquet")
#: The columns of a trace in Parquet, as `kwob trace generate --format parquet` writes it: names do not tell there who
#: wrote a row.
_PARQUET_TYPES: Final = {**COLUMNS, "role": ADDED_COLUMNS["role"], "run": ADDED_COLUMNS["run"]}
#: `broker-<id>-<start ms>.jsonl` and, when that was full, `broker-<id>-<start ms>.1.jsonl`; `controller-<id>.jsonl`:
#: who wrote it, and when its process started.
_FILE_NAME: Final = r"^(broker|controller)-\d+(?:-(\d+))?(?:\.\d+)?\.jsonl(?:\.gz)?$"

TORN: Final = "torn"
UNKNOWN_VERSION: Final = "unknown_version"
DUPLICATE: Final = "duplicate"
QUARANTINE_REASONS: Final = (TORN, *own_verdict.REASONS, UNKNOWN_VERSION)
#: Where what is not replayed goes (`placed`).
REFUSED: Final = "refused"
_OF_SPARK: Final = own_verdict.Terms(
    F.col, lambda column: column.isNull(), lambda column, values: column.isin(*values), F.size
)
#: A process writes the version of its trace among its first lines: so much of a file is looked at.
_HEAD_BYTES: Final = 16 * 1024
_GZIP_MAGIC: Final = b"\x1f\x8b"


def trace_files(paths: Sequence[Path]) -> list[Path]:
    """The trace files at `paths`: themselves, or those in and below the folders, sorted.

    Raises: ReplayRefused, when there are none, or one cannot be read.
    """
    return sorted({file for path in paths for file in _trace_files(path)})


def _trace_files(path: Path) -> list[Path]:
    try:
        if not path.exists():
            raise ReplayRefused(f"no such file or folder: {path}")
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.name.endswith(ENDINGS))
        lacking = {file: missing for file in files if file.suffix == ".parquet" and (missing := _lacking(file))}
        if path in lacking:
            raise ReplayRefused(f"{path} is no trace in Parquet: it lacks {', '.join(lacking[path])}")
        files = [file for file in files if file not in lacking]  # truth, or results, may be beside a trace
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


def _lacking(file: Path) -> list[str]:
    """The columns of a trace that this Parquet file has not. Raises: ReplayRefused, when it cannot be read."""
    try:
        there = pq.read_schema(file).names
    except pa.ArrowException as error:
        raise ReplayRefused(f"{file} is no trace in Parquet: {error}") from error
    return [name for name in _PARQUET_TYPES if name not in there]


def of_other_versions(files: Sequence[Path]) -> list[Path]:
    """Files whose process wrote a version of the trace that is not read. Looks at the head of each.

    Raises: ReplayRefused, where none is left.
    """
    versions = {file: _version_of(file) for file in files}
    other = [file for file in files if versions[file] not in (None, *map(str, READABLE_VERSIONS))]
    if other and len(other) == len(files):
        found = ", ".join(sorted({str(versions[file]) for file in other}))
        readable = ", ".join(map(str, READABLE_VERSIONS))
        raise ReplayRefused(
            f"{other[0]}{f' and {len(other) - 1} more' if len(other) > 1 else ''}: version {found} of the trace; this "
            f"release reads {readable}. Replay it with the release that wrote it"
        )
    return other


def _version_of(file: Path) -> str | None:
    if file.suffix == ".parquet":
        return None
    with file.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
    if head.startswith(_GZIP_MAGIC):
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, _HEAD_BYTES)
        except zlib.error:
            return None
    for line in head.splitlines():
        if b"trace.version" in line:
            try:
                row = json.loads(line)
                return str(row["value"]) if row.get("key") == "trace.version" else None
            except (ValueError, KeyError, AttributeError):
                return None
    return None


def torn_files(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    """Packed files that end early or are damaged, as quarantine rows: Spark reads them as far as they go, silently."""
    packed = [(str(file.absolute()),) for file in files if file.suffix == ".gz"]
    listed = spark.createDataFrame(packed or [("",)], "path string").repartition(max(1, len(packed)))

    def check(path: str) -> str | None:
        try:
            with gzip.open(path) as stream:
                while stream.read(1024 * 1024):
                    pass
        except (EOFError, OSError, zlib.error) as error:
            return str(error)
        return None

    verdict = listed.withColumn("error", F.udf(check, "string", useArrow=False)("path")).filter(
        "error IS NOT NULL AND path != ''"
    )
    columns = {"reason": F.lit(TORN), "source": F.lit("trace"), "file": F.col("path"), "line": F.col("error")}
    return verdict.select(*(columns[c].alias(c) for c in QUARANTINE_COLUMNS))


def read_lines(spark: SparkSession, files: Sequence[Path], *, refused: Collection[Path] = ()) -> DataFrame:
    """Every line, or row of Parquet, as columns of the trace, with the file it stands in and who wrote it.

    Lines of a `refused` file (`of_other_versions`) are all quarantined. A packed file is read as far as it goes.
    """
    packed = [file for file in files if file.suffix == ".parquet"]
    lines = [file for file in files if file not in packed]
    parts = [_of_lines(spark, lines, refused)] if lines else []
    parts += [_of_parquet(spark, packed)] if packed else []
    return reduce(DataFrame.unionByName, parts)


def _of_parquet(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    schema = ", ".join(f"`{name}` {kind}" for name, kind in _PARQUET_TYPES.items())
    frame = spark.read.schema(schema).parquet(*(str(file.absolute()) for file in files))
    added = {
        "file": F.col("_metadata.file_name"),
        CORRUPT: F.lit(None).cast("string"),
        "of_other_version": F.lit(False),
    }
    return frame.withColumns(added)


def _of_lines(spark: SparkSession, files: Sequence[Path], refused: Collection[Path]) -> DataFrame:
    lines = spark.read.schema(LINE_DDL).option("columnNameOfCorruptRecord", CORRUPT)
    frame = lines.option("ignoreCorruptFiles", "true").json([str(file.absolute()) for file in files])
    frame = frame.withColumn("file", F.col("_metadata.file_name"))
    other = F.lit(False)
    if refused:
        uris = [file.absolute().as_uri() for file in refused]
        # Hadoop writes the same path with one slash or with three.
        other = F.col("_metadata.file_path").isin([*uris, *(uri.replace("file:///", "file:/", 1) for uri in uris)])
    frame = frame.withColumn("of_other_version", other)
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
    same_run = (F.lag("role").over(before) == F.col("role")) & (F.lag("run").over(before) == F.col("run"))
    went_back = same_run & (F.col("ts") < F.lag("ts").over(before) - CLOCK_STEP_MS)
    return (
        clustered.withColumn("digest", F.xxhash64(*COLUMNS))
        .withColumn("own_reason", _own_reason())
        .withColumn(CLOCK_WENT_BACK, F.coalesce(went_back, F.lit(False)))
        .withColumn("same_place", F.coalesce(same_place, F.lit(False)))
        .withColumn("same_row", F.coalesce(same_row & same_time, F.lit(False)))
        .withColumn(
            "reason",
            F.when(F.col("own_reason").isNotNull(), F.col("own_reason"))
            .when(F.col("same_place") & F.col("same_row"), DUPLICATE)
            .when(F.col("same_place") & (F.col("role") == "broker"), own_verdict.CONTRADICTORY),
        )
    )


def _own_reason() -> Column:
    """Why a line is refused, judged by itself."""
    reason = F.when(F.col("of_other_version"), UNKNOWN_VERSION).when(F.col(CORRUPT).isNotNull(), TORN)
    for name, holds in own_verdict.REASONS.items():
        reason = reason.when(holds(_OF_SPARK), name)
    return reason


def placed(judged: DataFrame, aside: str) -> DataFrame:
    """What is written of judged rows: `TRACE_COLUMNS`, and `aside`, which is null for a row that is replayed.

    `REFUSED`: a row that is not, with its reason as `key` and, as far as it could be read, its text as `value`;
    `CLOCK_WENT_BACK`: a copy of one that is, whose clock went back.
    """
    # "log files" of the benchmark: so rows are judged once; to find these rows all were judged again, twice.
    is_kept, is_refused = F.col("reason").isNull(), F.col("reason").isin(*QUARANTINE_REASONS)
    here = F.lit(None).cast("string")
    places = (
        F.when(is_kept & F.col(CLOCK_WENT_BACK), F.array(here, F.lit(CLOCK_WENT_BACK)))
        .when(is_kept, F.array(here))
        .when(is_refused, F.array(F.lit(REFUSED)))
    )
    text = F.coalesce(F.col(CORRUPT), F.to_json(F.struct(*COLUMNS)))
    texts = {"key": F.when(is_refused, F.col("reason")), "value": F.when(is_refused, text)}
    columns = [texts[c].otherwise(F.col(c)).alias(c) if c in texts else F.col(c) for c in TRACE_COLUMNS]
    return judged.select(*columns, F.explode(places).alias(aside))


def quarantined(refused: DataFrame, *, source: str) -> DataFrame:
    """Rows of `quarantine`: those that were placed as `REFUSED`."""
    parts = {"reason": F.col("key"), "source": F.lit(source), "file": F.col("file"), "line": F.col("value")}
    return refused.select(*(parts[name].alias(name) for name in QUARANTINE_COLUMNS))


def clock_notices(odd: DataFrame) -> DataFrame:
    """Lanes whose clock went back, rows of `notices`: from those that were placed as `CLOCK_WENT_BACK`."""
    per_lane = odd.groupBy("topic", "partition", "broker").agg(
        F.count("*").alias("rows"), F.min("ts").alias("first_ts"), F.lit(CLOCK_WENT_BACK).alias("reason")
    )
    return per_lane.select(*NOTICE_COLUMNS)


def verdict_counts() -> list[Column]:
    """Aggregates over a judged frame: lines by reason, and the span of time of the kept ones."""
    keep = F.col("reason").isNull()
    counts = [F.count_if(F.col("reason") == reason).alias(reason) for reason in (*QUARANTINE_REASONS, DUPLICATE)]
    return [
        F.count_if(keep).alias("kept"),
        F.min(F.when(keep, F.col("ts"))).alias("from_ts"),
        F.max(F.when(keep, F.col("ts"))).alias("to_ts"),
        F.count_if(keep & F.col(CLOCK_WENT_BACK)).alias(CLOCK_WENT_BACK),
        *counts,
    ]
