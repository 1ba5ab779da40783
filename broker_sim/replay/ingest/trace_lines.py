"""Trace files, and their lines as columns. No line is fatal: what cannot be read is a row that says so.

Lines are judged later, with those of other sources (`neighbours`, `by_workers`).
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Collection, Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from broker_sim.replay.below import below
from broker_sim.replay.errors import ReplayRefused
from broker_sim.replay.grouped import arrow_schema
from broker_sim.replay.schema import ADDED_COLUMNS, CORRUPT, LINE_DDL, OF_OTHER_VERSION, TRACE_DDL
from broker_sim.replay.tables import exactly
from controller.wire.trace import COLUMNS, READABLE_VERSIONS

#: Endings of trace files in a folder.
ENDINGS: Final = (".jsonl", ".jsonl.gz", ".parquet")
#: Hidden in a folder, such as what macOS packs beside each file. And what Spark passes over, without a word.
_HIDDEN: Final = "."
_PASSED_OVER: Final = (_HIDDEN, "_")
#: The columns of a trace in Parquet, as `kwob trace generate --format parquet` writes it: names do not tell there who
#: wrote a row.
_PARQUET_TYPES: Final = {**COLUMNS, "role": ADDED_COLUMNS["role"], "run": ADDED_COLUMNS["run"]}
#: `broker-<id>-<start ms>.jsonl` and, when that was full, `broker-<id>-<start ms>.1.jsonl`; `controller-<id>.jsonl`:
#: who wrote it, and when its process started.
_FILE_NAME: Final = r"^(broker|controller)-\d+(?:-(\d+))?(?:\.\d+)?\.jsonl(?:\.gz)?$"
#: A line as `read_lines` gives it.
_READ_DDL: Final = f"{TRACE_DDL}, `{CORRUPT}` string, `{OF_OTHER_VERSION}` boolean"
#: A process writes the version of its trace among its first lines: so much of a file is looked at.
_HEAD_BYTES: Final = 16 * 1024
_GZIP_MAGIC: Final = b"\x1f\x8b"


def trace_files(paths: Sequence[Path]) -> list[Path]:
    """The trace files at `paths`: themselves, or those in and below the folders that are not hidden, sorted.

    Raises: ReplayRefused, when there are none, or one cannot be read, or would be passed over.
    """
    return sorted({file for path in paths for file in _trace_files(path)})


def _trace_files(path: Path) -> list[Path]:
    try:
        if not path.exists():
            raise ReplayRefused(f"no such file or folder: {path}")
        files = [path] if path.is_file() else sorted(p for p in below(path) if _is_trace(p.name))
        for unread in (file for file in files if file.name.startswith(_PASSED_OVER)):
            raise ReplayRefused(f"Spark reads no file whose name begins with _ or a dot: rename {unread}")
        lacking = {file: missing for file in files if file.suffix == ".parquet" and (missing := _lacking(file))}
        if path in lacking:
            raise ReplayRefused(f"{path} is no trace in Parquet: it lacks {', '.join(lacking[path])}")
        files = [file for file in files if file not in lacking]  # truth, or results, may be beside a trace
        if not files:
            raise ReplayRefused(f"no trace in {path}: expected files named {' or '.join('*' + e for e in ENDINGS)}")
        for file in files:
            with file.open("rb") as stream:
                is_packed = stream.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            if is_packed and file.suffix != ".gz":  # Spark goes by the name
                raise ReplayRefused(f"{file} is packed with gzip: rename it to {file.name}.gz")
    except OSError as error:
        raise ReplayRefused(f"cannot read {error.filename}: {error.strerror}") from error
    if not any(file.stat().st_size for file in files):
        raise ReplayRefused(f"empty trace: {path}")
    return files


def _is_trace(name: str) -> bool:
    return name.endswith(ENDINGS) and not name.startswith(_HIDDEN)


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


def read_lines(spark: SparkSession, files: Sequence[Path], *, refused: Collection[Path] = ()) -> DataFrame:
    """Every line, or row of Parquet, as columns of the trace, with the file it stands in and who wrote it.

    Lines of a `refused` file (`of_other_versions`) are all quarantined. A packed file is read as far as it goes; one
    that ends early, or is damaged, is a line more, of which the error is told.
    """
    in_parquet = [file for file in files if file.suffix == ".parquet"]
    lines = [file for file in files if file not in in_parquet]
    parts = [_of_lines(spark, lines, refused)] if lines else []
    parts += [_of_parquet(spark, in_parquet)] if in_parquet else []
    packed = [str(file.absolute()) for file in lines if file.suffix == ".gz"]
    parts += [_torn_files(spark, packed)] if packed else []
    return reduce(DataFrame.unionByName, parts)


def _torn_files(spark: SparkSession, packed: Sequence[str]) -> DataFrame:
    """Packed files that end early or are damaged: Spark reads them as far as they go, silently."""
    schema = arrow_schema(_READ_DDL)

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in batches for number in batch["id"].to_pylist()):
            if (error := _torn(packed[number])) is not None:
                yield pa.RecordBatch.from_pylist([{"file": packed[number], CORRUPT: error}], schema)

    return spark.range(0, len(packed), 1, len(packed)).mapInArrow(check, schema=_READ_DDL)


def _torn(path: str) -> str | None:
    try:
        with gzip.open(path) as stream:
            while stream.read(1024 * 1024):
                pass
    except (EOFError, OSError, zlib.error) as error:
        return str(error)
    return None


def _of_parquet(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    schema = ", ".join(f"`{name}` {kind}" for name, kind in _PARQUET_TYPES.items())
    frame = spark.read.schema(schema).parquet(*(exactly(file.absolute()) for file in files))
    added = {
        "file": F.col("_metadata.file_name"),
        CORRUPT: F.lit(None).cast("string"),
        OF_OTHER_VERSION: F.lit(False),
    }
    return frame.withColumns(added)


def _of_lines(spark: SparkSession, files: Sequence[Path], refused: Collection[Path]) -> DataFrame:
    lines = spark.read.schema(LINE_DDL).option("columnNameOfCorruptRecord", CORRUPT)
    frame = lines.option("ignoreCorruptFiles", "true").json([exactly(file.absolute()) for file in files])
    frame = frame.withColumn("file", F.col("_metadata.file_name"))
    other = F.lit(False)
    if refused:
        uris = [file.absolute().as_uri() for file in refused]
        # Hadoop writes the same path with one slash or with three.
        other = F.col("_metadata.file_path").isin([*uris, *(uri.replace("file:///", "file:/", 1) for uri in uris)])
    frame = frame.withColumn(OF_OTHER_VERSION, other)
    run = F.regexp_extract("file", _FILE_NAME, 2)
    return frame.withColumns(
        {
            "role": F.when(F.regexp_extract("file", _FILE_NAME, 1) == "controller", "controller").otherwise("broker"),
            "run": F.when(run == "", F.lit(0)).otherwise(run.cast("bigint")),
        }
    )
