"""Log files to trace rows on Spark: lines, facts, sessions, ticks, rows. Every step streams; nothing is collected.

The only thing that comes to the driver is which brokers there are.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlparse
from zoneinfo import ZoneInfo

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from broker_sim.replay.grouped import ArrowBatches, ArrowStep, arrow_schema
from broker_sim.replay.logs.facts import CLUSTER, FACT_DDL, OF_CLUSTER, OF_SESSIONS, Fact, What
from broker_sim.replay.logs.files import FileKind, LogFile
from broker_sim.replay.logs.reader import KEPT_PATTERN, TORN, Bad, LogReader, Place
from broker_sim.replay.logs.request_lines import Sessions
from broker_sim.replay.logs.ticks import Ticks
from broker_sim.replay.logs.weave import Weave
from broker_sim.replay.schema import CORRUPT, QUARANTINE_COLUMNS
from controller.wire.trace import COLUMNS

#: `what` of a line that cannot be used: `key` is the reason, `value` the line.
BAD: Final = "bad"
#: So much of a bad line is kept.
BAD_LINE_CHARS: Final = 2000
#: A packed file is unpacked in pieces of this size when it is checked.
_CHECKED_BYTES: Final = 1024 * 1024
_FOR_TICKS: Final = (What.START, What.DOWN, What.SHRINKING, What.CONFIG, What.ANSWERED)
_NOT_WOVEN: Final = (*OF_SESSIONS, What.ANSWERED, BAD)
_GROUP: Final = ("topic", "partition", "of_broker")
#: A row as `weave` writes it.
ROW_DDL: Final = ", ".join(f"`{name}` {kind}" for name, kind in {**COLUMNS, "role": "string", "file": "string"}.items())
_TICK_US: Final = 999

Zones = Mapping[int | None, ZoneInfo]


def facts(spark: SparkSession, files: Sequence[LogFile], zones: Zones) -> DataFrame:
    """Every line that says something as facts, and every one that cannot be used as a `BAD` one.

    `zones`: the time zone of each broker's JVM; that of None is for all others. A packed file that ends early is read
    as far as it goes, and told of.
    """
    logs = [file for file in files if file.kind is FileKind.LOG]
    lines = spark.read.option("ignoreCorruptFiles", "true").text([str(file.path) for file in logs])
    placed = lines.select(
        "value",
        F.col("_metadata.file_path").alias("file"),
        F.col("_metadata.file_block_start").alias("block"),
        F.monotonically_increasing_id().alias("line"),
    ).filter(F.col("value").rlike(KEPT_PATTERN))
    brokers = {str(file.path): file.broker for file in logs}
    read = placed.mapInArrow(_read(brokers, dict(zones), arrow_schema(FACT_DDL)), schema=FACT_DDL)
    packed = [str(file.path) for file in logs if file.path.suffix == ".gz"]
    return read.unionByName(_torn(spark, packed)) if packed else read


def _read(brokers: dict[str, int | None], zones: dict[int | None, ZoneInfo], schema: pa.Schema) -> ArrowStep:
    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        out = ArrowBatches(schema)
        reader: LogReader | None = None
        place, path, uri = Place("", 0, 0), "", ""
        for batch in batches:
            for line, file, block, number in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if (file, block) != (uri, place.block) or reader is None:
                    if reader is not None:
                        out.extend(_with_bad(reader.finish(place), reader))
                    uri, path = file, unquote(urlparse(file).path)
                    broker = brokers.get(path)
                    reader = LogReader(zones.get(broker, zones[None]), broker)
                place = Place(path, block, number)
                out.extend(_with_bad(reader.feed(line, place), reader))
            yield from out.full()
        if reader is not None:
            out.extend(_with_bad(reader.finish(place), reader))
        yield from out.rest()

    return step


def _with_bad(fact_rows: Iterable[Fact], reader: LogReader) -> Iterator[Fact]:
    yield from fact_rows
    if reader.bad:
        yield from map(_bad_fact, reader.bad)
        reader.bad.clear()


def _bad_fact(bad: Bad) -> Fact:
    return Fact(None, 0, BAD, key=bad.reason, value=bad.line[:BAD_LINE_CHARS], file=bad.file)


def _torn(spark: SparkSession, packed: Sequence[str]) -> DataFrame:
    """Packed files that end early or are damaged: Spark reads them as far as they go, and does not say so."""
    files = spark.createDataFrame([(path,) for path in packed], "file string").repartition(len(packed))
    schema = arrow_schema(FACT_DDL)

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        out = ArrowBatches(schema)
        for batch in batches:
            for path in batch.column(0).to_pylist():
                out.extend(map(_bad_fact, _check_packed(path)))
        yield from out.rest()

    return files.mapInArrow(step, schema=FACT_DDL)


def _check_packed(path: str) -> Iterator[Bad]:
    read = 0
    try:
        with gzip.open(path) as stream:
            while piece := stream.read(_CHECKED_BYTES):
                read += len(piece)
    except (EOFError, OSError, zlib.error) as error:
        yield Bad(TORN, path, f"the packed file cannot be unpacked beyond about {read} bytes: {error}")


# -- facts to rows ----------------------------------------------------------------------------------------------------


def rows(fact_rows: DataFrame) -> DataFrame:
    """The facts of brokers as trace rows, with what ingest adds to a line of a trace. `fact_rows` are read often."""
    of_brokers = _brokers(fact_rows)
    richer = F.col("broker").isin(*of_brokers.recording)
    plain = fact_rows.filter(~F.col("what").isin(*_NOT_WOVEN) & ~((F.col("what") == What.PRODUCED) & richer))
    of_requests = fact_rows.filter(~richer) if of_brokers.recording else fact_rows
    every = plain.unionByName(_fetches(of_requests)).unionByName(_ticks(of_requests))
    whose = F.when(F.col("what").isin(*OF_CLUSTER), CLUSTER).otherwise(F.col("broker"))
    of_broker = F.when(F.col("partition").isNull(), whose).alias("of_broker")
    grouped = every.select("*", of_broker).repartition(*_GROUP)
    ordered = grouped.sortWithinPartitions(*_GROUP, "at_us", "file", "block", "line", "sub")
    woven = ordered.mapInArrow(_weave(of_brokers.unsaid, of_brokers.every, arrow_schema(ROW_DDL)), schema=ROW_DDL)
    added = {"run": F.lit(0).cast("bigint"), CORRUPT: F.lit(None).cast("string"), "of_other_version": F.lit(False)}
    return woven.withColumns(added)


def bad_lines(fact_rows: DataFrame) -> DataFrame:
    """What could not be used: rows of `quarantine`, each line once, whatever number of copies there are."""
    bad = fact_rows.filter(F.col("what") == BAD)
    once = bad.groupBy(F.col("key").alias("reason"), F.col("value").alias("line")).agg(F.min("file").alias("file"))
    return once.withColumn("source", F.lit("log")).select(*QUARANTINE_COLUMNS)


class _Brokers(NamedTuple):
    """What kinds of brokers there are; as many as brokers, which is few."""

    every: frozenset[int]
    #: up to Kafka 2.3 they tell of attempts to change the ISR, and of none that it was written
    unsaid: frozenset[int]
    #: they tell of each fetch and append themselves (DEBUG), which is better than what requests tell
    recording: frozenset[int]


def _brokers(fact_rows: DataFrame) -> _Brokers:
    what = F.col("what")
    has_cu = (what == What.SHRINKING) & F.col("value").rlike(r":\d+:\d")
    modern = (what == What.UPDATED) | has_cu | ((what == What.LEADER) & F.col("isr").isNotNull())
    named = (
        fact_rows.filter(F.col("broker").isNotNull())
        .groupBy("broker")
        .agg(
            F.max(what.isin(*_ATTEMPTS)).alias("tries"),
            F.max(modern).alias("modern"),
            F.max((what == What.FETCH) & F.col("session").isNull()).alias("records"),
        )
        .collect()
    )
    return _Brokers(
        every=frozenset(row["broker"] for row in named),
        unsaid=frozenset(row["broker"] for row in named if row["tries"] and not row["modern"]),
        recording=frozenset(row["broker"] for row in named if row["records"]),
    )


_ATTEMPTS: Final = (What.SHRINKING, What.EXPANDING)


def _fetches(fact_rows: DataFrame) -> DataFrame:
    named = fact_rows.filter(F.col("what").isin(*OF_SESSIONS))
    key = ("broker", "session")
    ordered = named.repartition(*key).sortWithinPartitions(*key, "at_us", "correlation", "file", "sub")
    schema = arrow_schema(FACT_DDL)

    def expand(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        out, sessions, broker = ArrowBatches(schema), Sessions(), None
        for batch in batches:
            for fact in _facts_of(batch):
                if fact.broker != broker:
                    out.extend(sessions.finish())
                    broker, sessions = fact.broker, Sessions()
                out.extend(sessions.feed(fact))
                yield from out.full()
        out.extend(sessions.finish())
        yield from out.rest()

    return ordered.mapInArrow(expand, schema=FACT_DDL)


def _ticks(fact_rows: DataFrame) -> DataFrame:
    needed = fact_rows.filter(F.col("what").isin(*_FOR_TICKS) & F.col("broker").isNotNull())
    ordered = needed.repartition("broker").sortWithinPartitions("broker", "at_us")
    schema = arrow_schema(FACT_DDL)

    def compute(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        out, ticks, broker = ArrowBatches(schema), Ticks(), None
        for batch in batches:
            for fact in _facts_of(batch):
                if fact.broker != broker:
                    out.extend(_tick_facts(broker, ticks))
                    broker, ticks = fact.broker, Ticks()
                    yield from out.full()
                ticks.feed(fact)
        out.extend(_tick_facts(broker, ticks))
        yield from out.rest()

    return ordered.mapInArrow(compute, schema=FACT_DDL)


def _tick_facts(broker: int | None, ticks: Ticks) -> Iterator[Fact]:
    """A check comes after what arrived in the same ms."""
    return (Fact(broker, ms * 1000 + _TICK_US, What.TICK, ts=ms) for ms in ticks.times())


def _facts_of(batch: pa.RecordBatch) -> Iterator[Fact]:
    return map(Fact._make, zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _weave(unsaid: frozenset[int], brokers: frozenset[int], schema: pa.Schema) -> ArrowStep:
    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        out = ArrowBatches(schema)
        key: tuple[Any, ...] | None = None
        weave = Weave(unsaid, brokers)
        for batch in batches:
            for *values, of_broker in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                fact = Fact._make(values)
                if (fact.topic, fact.partition, of_broker) != key:
                    weave.finish()
                    out.drain(weave.rows)
                    key, weave = (fact.topic, fact.partition, of_broker), Weave(unsaid, brokers)
                weave.feed(fact)
                if weave.rows:
                    out.drain(weave.rows)
            yield from out.full()
        weave.finish()
        out.drain(weave.rows)
        yield from out.rest()

    return step
