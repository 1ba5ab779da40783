"""Facts to trace rows on Spark: sessions to fetches, checks, the facts of a partition to rows. Every step streams."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from broker_sim.replay.grouped import ArrowBatches, ArrowStep, arrow_schema, column_lists
from broker_sim.replay.logs.fact_columns import FACT_DDL, FactColumns
from broker_sim.replay.logs.facts import CLUSTER, OF_CLUSTER, Fact, What
from broker_sim.replay.logs.frames import Facts, Part
from broker_sim.replay.logs.kinds_of_brokers import Brokers
from broker_sim.replay.logs.request_lines import Sessions
from broker_sim.replay.logs.ticks import Ticks
from broker_sim.replay.logs.waiting_rows import EMITTED
from broker_sim.replay.logs.weave import Weave
from broker_sim.replay.schema import CLOCK_STEP_MS, CLOCK_WENT_BACK
from broker_sim.replay.session import size_of
from controller.wire.trace import COLUMNS

#: A row as it comes out: `waiting_rows.EMITTED`, and whether the clock of who wrote it went back before it.
_WOVEN_COLUMNS: Final = {**COLUMNS, "role": "string", "file": "string"}
WOVEN_DDL: Final = ", ".join(
    f"`{name}` {kind}" for name, kind in {**_WOVEN_COLUMNS, CLOCK_WENT_BACK: "boolean"}.items()
)
_FOR_TICKS: Final = (What.START, What.DOWN, What.SHRINKING, What.CONFIG, What.ANSWERED)
_GROUP: Final = ("topic", "partition", "of_broker")
_TICK_US: Final = 999
#: Facts on disk of which one task makes rows: they are some ten times as large in memory.
_TASK_BYTES: Final = 16 * 1024 * 1024


def rows(facts: Facts) -> DataFrame:
    """The facts of brokers as rows of `WOVEN_DDL`.

    No row stands twice. All rows of a partition, and all that are of no partition of a topic, are in one task.
    """
    brokers = facts.brokers()
    return grouped(facts, brokers).mapInArrow(weave_step(facts, brokers), schema=WOVEN_DDL)


def grouped(facts: Facts, brokers: Brokers) -> DataFrame:
    """All facts that are woven, as `weave_step` takes them: those of a partition in one task, in their order."""
    richer = F.col("broker").isin(*brokers.recording)
    every = facts.of(Part.WOVEN)
    of_requests = facts.of(Part.WOVEN, Part.ANSWERED)
    sessions = facts.of(Part.SESSIONS)
    if brokers.recording:
        every = every.filter(~((F.col("what") == What.PRODUCED) & richer))
        of_requests, sessions = of_requests.filter(~richer), sessions.filter(~richer)
    if facts.has(Part.SESSIONS):
        every = every.unionByName(_fetches(sessions, facts.columns))
    if facts.has(Part.ANSWERED):
        every = every.unionByName(_ticks(of_requests, facts.columns))
    whose = F.when(F.col("what").isin(*OF_CLUSTER), CLUSTER).otherwise(F.col("broker"))
    of_broker = F.when(F.col("partition").isNull(), whose).alias("of_broker")
    tasks = max(facts.spark.sparkContext.defaultParallelism, size_of(facts.folder) // _TASK_BYTES)
    by_partition = every.select("*", of_broker).repartition(tasks, "topic", "partition")
    return by_partition.sortWithinPartitions(*_GROUP, "at_us", "file", "line", "sub")


def _fetches(sessions: DataFrame, columns: FactColumns) -> DataFrame:
    key = ("broker", "session")
    ordered = sessions.repartition(*key).sortWithinPartitions(*key, "at_us", "correlation", "file", "sub")
    schema = arrow_schema(FACT_DDL)

    def expand(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        out, sessions, broker = ArrowBatches(schema), Sessions(), None
        for batch in batches:
            for fact in columns.facts(batch):
                if fact.broker != broker:
                    out.extend(map(columns.row, sessions.finish()))
                    broker, sessions = fact.broker, Sessions()
                out.extend(map(columns.row, sessions.feed(fact)))
                yield from out.full()
        out.extend(map(columns.row, sessions.finish()))
        yield from out.rest()

    return ordered.mapInArrow(expand, schema=FACT_DDL)


def _ticks(of_requests: DataFrame, columns: FactColumns) -> DataFrame:
    needed = of_requests.filter(F.col("what").isin(*_FOR_TICKS) & F.col("broker").isNotNull())
    ordered = needed.repartition("broker").sortWithinPartitions("broker", "at_us")
    schema = arrow_schema(FACT_DDL)

    def compute(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        out, ticks, broker = ArrowBatches(schema), Ticks(), None
        for batch in batches:
            for fact in columns.facts(batch):
                if fact.broker != broker:
                    out.extend(map(columns.row, _tick_facts(broker, ticks)))
                    broker, ticks = fact.broker, Ticks()
                    yield from out.full()
                ticks.feed(fact)
        out.extend(map(columns.row, _tick_facts(broker, ticks)))
        yield from out.rest()

    return ordered.mapInArrow(compute, schema=FACT_DDL)


def _tick_facts(broker: int | None, ticks: Ticks) -> Iterator[Fact]:
    """A check comes after what arrived in the same ms."""
    return (Fact(broker, ms * 1000 + _TICK_US, What.TICK, ts=ms) for ms in ticks.times())


def weave_step(facts: Facts, brokers: Brokers) -> ArrowStep:
    """Facts to rows of `WOVEN_DDL`."""
    columns, schema = facts.columns, arrow_schema(WOVEN_DDL)

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        out = ArrowBatches(schema)
        key: tuple[Any, ...] | None = None
        weave, clocks = Weave(brokers.unsaid, brokers.every, brokers.starts), Clocks()
        for batch in batches:
            of_brokers = column_lists(batch.select(_GROUP[-1:]))[0]
            for fact, of_broker in zip(columns.facts(batch), of_brokers, strict=True):
                if (fact.topic, fact.partition, of_broker) != key:
                    weave.finish()
                    out.extend(clocks.judged(weave.rows))
                    key = (fact.topic, fact.partition, of_broker)
                    weave, clocks = Weave(brokers.unsaid, brokers.every, brokers.starts), Clocks()
                weave.feed(fact)
                if weave.rows:
                    out.extend(clocks.judged(weave.rows))
            yield from out.full()
        weave.finish()
        out.extend(clocks.judged(weave.rows))
        yield from out.rest()

    return step


class Clocks:
    """Whether time goes back between two rows of one lane: rows of one group, in the order of each broker."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, str], int] = {}

    def judged(self, rows: list[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """The rows with what is found out; their list is empty afterwards."""
        for row in rows:
            who, ts = _writer_of(row), row[_TS]
            yield (*row, ts < self._last.get(who, ts) - CLOCK_STEP_MS)
            self._last[who] = ts
        rows.clear()


_TS: Final = EMITTED.index("ts")
_writer_of: Final = itemgetter(EMITTED.index("broker"), EMITTED.index("role"))
