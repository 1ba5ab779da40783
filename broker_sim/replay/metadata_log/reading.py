"""The files of a metadata log on Spark: looked at, cut into pieces, decoded, all on the workers.

A file is never held whole. To the driver comes what is as small as the number of files, of pieces and of gaps.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from broker_sim.replay.grouped import ArrowBatches, arrow_schema
from broker_sim.replay.metadata_log import schemas
from broker_sim.replay.metadata_log.columns import RECORD_DDL, problem_row, record_row
from broker_sim.replay.metadata_log.files import MetadataFile
from broker_sim.replay.metadata_log.segments import PIECE_BYTES, Piece, Problem, Walked, found_in, walk
from broker_sim.replay.schema import QUARANTINE_COLUMNS

_WALK_DDL: Final = (
    "file string, start bigint, `end` bigint, first_offset bigint, next_offset bigint, first_ts bigint, "
    "last_ts bigint, reason string, text string, contains_until bigint, has_footer boolean"
)
_PIECE_DDL: Final = "file string, folder string, snapshot bigint, start bigint, `end` bigint"
SOURCE: Final = "metadata_log"


def walked(spark: SparkSession, files: Sequence[MetadataFile]) -> dict[str, Walked]:
    """Each file's batches, looked at on the workers; by path."""
    schema = arrow_schema(_WALK_DDL)

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        out = ArrowBatches(schema)
        for batch in batches:
            for path in batch.column(0).to_pylist():
                out.extend(_walk_rows(path, _with_bytes(path, walk)))
        yield from out.rest()

    listed = spark.createDataFrame([(str(file.path),) for file in files], "file string")
    listed = listed.repartition(_tasks(spark, len(files), sum(file.size for file in files)))
    found: dict[str, list[Any]] = {str(file.path): [] for file in files}
    for row in listed.mapInArrow(step, schema=_WALK_DDL).collect():
        found[row["file"]].append(row)
    return {path: _as_walked(rows) for path, rows in found.items()}


def _tasks(spark: SparkSession, parts: int, size: int) -> int:
    """As many as there are cores, more where there is more to read; small files share one."""
    cores: int = spark.sparkContext.defaultParallelism
    return max(1, min(parts, max(cores, size // PIECE_BYTES)))


def _with_bytes(path: str, use: Callable[[memoryview], Any]) -> Any:
    with Path(path).open("rb") as stream:
        if not stream.seek(0, 2):
            return use(memoryview(b""))
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            view = memoryview(mapped)
            try:
                return use(view)
            finally:
                view.release()


def _walk_rows(path: str, of: Walked) -> Iterator[tuple[Any, ...]]:
    yield (path, *[None] * 8, of.contains_until, of.has_footer)
    for piece in of.pieces:
        yield (path, *piece, *[None] * 4)
    for problem in of.problems:
        yield (path, problem.at, *[None] * 5, problem.reason, problem.text, None, None)


def _as_walked(rows: list[Any]) -> Walked:
    pieces = [Piece(*(row[name] for name in Piece._fields)) for row in rows if row["end"] is not None]
    problems = [Problem(row["start"], row["reason"], row["text"]) for row in rows if row["reason"] is not None]
    head = next(row for row in rows if row["has_footer"] is not None)
    return Walked(tuple(sorted(pieces)), tuple(sorted(problems)), head["contains_until"], head["has_footer"])


def records(spark: SparkSession, files: Sequence[MetadataFile], found: Mapping[str, Walked]) -> DataFrame:
    """Every record of the files, decoded on the workers, with `RECORD_DDL`. What cannot be decoded is a row with
    `problem`."""
    pieces = [
        (str(file.path), file.folder, file.offset if file.is_snapshot else None, piece.start, piece.end)
        for file in files
        for piece in found[str(file.path)].pieces
    ]
    schema = arrow_schema(RECORD_DDL)

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        out = ArrowBatches(schema)
        for batch in batches:
            for file, folder, snapshot, start, end in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                for one in found_in(_with_bytes(file, lambda view, a=start, b=end: bytes(view[a:b]))):  # type: ignore[misc]
                    if isinstance(one, Problem):
                        out.extend([problem_row(folder, file, snapshot, one)])
                    elif one.record.api_key != schemas.NO_OP:
                        out.extend([record_row(folder, file, snapshot, one)])
                    yield from out.full()
        yield from out.rest()

    size = sum(end - start for *_, start, end in pieces)
    listed = spark.createDataFrame(pieces, _PIECE_DDL).repartition(_tasks(spark, len(pieces), size))
    return listed.mapInArrow(step, schema=RECORD_DDL)


def bad_records(decoded: DataFrame, found: Mapping[str, Walked], spark: SparkSession) -> DataFrame:
    """What could not be used: rows of `quarantine`, each once whatever number of copies there are."""
    of_files = [(p.reason, SOURCE, path, p.text) for path, of in found.items() for p in of.problems]
    listed = spark.createDataFrame(of_files, ", ".join(f"{name} string" for name in QUARANTINE_COLUMNS))
    of_records = decoded.filter(F.col("problem").isNotNull()).select(
        F.col("problem").alias("reason"), F.lit(SOURCE).alias("source"), "file", F.col("value").alias("line"), "offset"
    )
    once = of_records.groupBy("reason", "source", "line", "offset").agg(F.min("file").alias("file"))
    return listed.unionByName(once.select(*QUARANTINE_COLUMNS))
