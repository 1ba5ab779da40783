"""Log files to facts on Spark, written once: pieces of files on the workers, lines that say something, facts.

Facts are written apart by what they are for (`Part`), so that a step reads only what it needs, and is left out where
there is nothing for it; workers write them themselves (`worker_files`). All that comes to the driver is which files
there are, which brokers, and of what kind.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from broker_sim.replay.grouped import ArrowBatches, ArrowStep, arrow_schema
from broker_sim.replay.logs.fact_columns import FACT_DDL, FactColumns
from broker_sim.replay.logs.facts import BAD, OF_SESSIONS, SEEN, Fact, What
from broker_sim.replay.logs.files import FileKind, LogFile
from broker_sim.replay.logs.kinds_of_brokers import Brokers, Marks, brokers_of
from broker_sim.replay.logs.pieces import PIECE_BYTES, Piece, TornFile, kept_lines, pieces_of
from broker_sim.replay.logs.reader import TORN, Bad, LogReader, Place, kept_pattern
from broker_sim.replay.schema import QUARANTINE_COLUMNS
from broker_sim.replay.tables import dataset, exactly
from broker_sim.replay.worker_files import FILE_DDL, WorkerFiles, put_in_place

#: So much of a bad line is kept.
BAD_LINE_CHARS: Final = 2000
_PIECE_DDL: Final = "file string, start bigint, `end` bigint"
_BAD_DDL: Final = "reason string, line string, file string"

Zones = Mapping[int | None, ZoneInfo]


class Part:
    """What facts are for: the values of the column by which they are written apart."""

    COLUMN: Final = "part"
    WOVEN: Final = "woven"
    SESSIONS: Final = "sessions"
    ANSWERED: Final = "answered"
    BAD: Final = "bad"
    SEEN: Final = "seen"


_PART_OF: Final = {
    **dict.fromkeys(OF_SESSIONS, Part.SESSIONS),
    What.ANSWERED: Part.ANSWERED,
    BAD: Part.BAD,
    SEEN: Part.SEEN,
}
_WRITTEN_DDL: Final = f"{FACT_DDL}, {Part.COLUMN} string"


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts in a folder. `columns` makes facts of rows again."""

    spark: SparkSession
    folder: Path
    columns: FactColumns

    def has(self, part: str) -> bool:
        """Whether there is a fact of this part."""
        return self._folder_of(part).is_dir()

    def of(self, *parts: str) -> DataFrame:
        """The facts of these parts."""
        every = self.spark.read.schema(_WRITTEN_DDL).parquet(exactly(self.folder))
        return every.filter(F.col(Part.COLUMN).isin(*parts)).drop(Part.COLUMN)

    def brokers(self) -> Brokers:
        """All brokers of which there are facts."""
        batches = dataset(self.folder, self._folder_of(Part.SEEN).name).to_batches() if self.has(Part.SEEN) else ()
        return brokers_of(fact for batch in batches for fact in self.columns.facts(batch))

    def _folder_of(self, part: str) -> Path:
        return self.folder / f"{Part.COLUMN}={part}"


def write_facts(spark: SparkSession, files: Sequence[LogFile], zones: Zones, folder: Path) -> Facts:
    """Every line that says something as facts, and every one that cannot be used as a `BAD` one.

    `zones`: the time zone of each broker's JVM; that of None is for all others. A packed file that ends early is read
    as far as it goes, and told of.
    """
    logs = {str(file.path): file for file in files if file.kind is FileKind.LOG}
    names = sorted(logs)
    columns = FactColumns(names)
    pieces = [piece for name in names for piece in pieces_of(logs[name].path, logs[name].size)]
    whole = sum(logs[name].size for name in names)
    tasks = min(len(pieces), max(2 * spark.sparkContext.defaultParallelism, whole // PIECE_BYTES))
    listed = spark.createDataFrame(pieces, _PIECE_DDL).repartition(tasks)
    draft = folder.with_name(f"{folder.name}.new")
    read = _read({name: logs[name].broker for name in names}, dict(zones), columns, str(draft))
    written = listed.mapInArrow(read, schema=FILE_DDL).collect()
    folder.mkdir(parents=True)
    put_in_place(written, folder)
    return Facts(spark, folder, columns)


def _read(
    brokers: dict[str, int | None], zones: dict[int | None, ZoneInfo], columns: FactColumns, draft: str
) -> ArrowStep:
    schema, handed_back = arrow_schema(FACT_DDL), arrow_schema(FILE_DDL)

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        out, marks = _Written(schema, draft), Marks()
        for row in (row for batch in batches for row in batch.to_pylist()):
            broker = brokers[row["file"]]
            for fact in facts_of_piece(Piece(**row), LogReader(zones.get(broker, zones[None]), broker)):
                marks.take(fact)
                out.take(_PART_OF.get(fact.what, Part.WOVEN), columns.row(fact))
        for seen in marks.seen():
            out.take(Part.SEEN, columns.row(seen))
        named = ArrowBatches(handed_back)
        named.extend(out.files())
        yield from named.rest()

    return step


class _Written:
    """The facts of one task, each in the file of its part."""

    def __init__(self, schema: pa.Schema, draft: str) -> None:
        self._files = WorkerFiles(draft)
        self._parts: defaultdict[str, ArrowBatches] = defaultdict(lambda: ArrowBatches(schema))

    def take(self, part: str, row: tuple[Any, ...]) -> None:
        batches = self._parts[part]
        batches.append(row)
        for batch in batches.full():
            self._files.add(f"{Part.COLUMN}={part}", batch)

    def files(self) -> list[tuple[str, str]]:
        for part, batches in self._parts.items():
            for batch in batches.rest():
                self._files.add(f"{Part.COLUMN}={part}", batch)
        self._files.end()
        return self._files.written


def facts_of_piece(piece: Piece, reader: LogReader) -> Iterator[Fact]:
    """What the lines of a piece say, and those that cannot be used."""
    place = Place(piece.file, piece.start)
    try:
        for line in kept_lines(piece, kept_pattern(reader.zone)):
            place = Place(piece.file, line.at)
            yield from reader.feed(line.text, place)
            if reader.bad:
                yield from _bad_facts(reader)
    except TornFile as torn:
        reader.bad.append(Bad(TORN, piece.file, str(torn)))
    yield from reader.finish(place)
    yield from _bad_facts(reader)


def _bad_facts(reader: LogReader) -> list[Fact]:
    bad, reader.bad = reader.bad, []
    return [Fact(None, 0, BAD, key=one.reason, value=one.line[:BAD_LINE_CHARS], file=one.file) for one in bad]


def bad_lines(facts: Facts) -> DataFrame:
    """What could not be used: rows of `quarantine`, each line once, whatever number of copies there are."""
    columns, schema = facts.columns, arrow_schema(_BAD_DDL)

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        out = ArrowBatches(schema)
        for batch in batches:
            out.extend((fact.key, fact.value, fact.file) for fact in columns.facts(batch))
            yield from out.full()
        yield from out.rest()

    bad = facts.of(Part.BAD).mapInArrow(step, schema=_BAD_DDL)
    once = bad.groupBy("reason", "line").agg(F.min("file").alias("file"))
    return once.withColumn("source", F.lit("log")).select(*QUARANTINE_COLUMNS)
