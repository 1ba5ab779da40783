"""From Arrow batches, sorted by group, to the pure machines and back: what runs inside `mapInArrow`.

Groups are streamed: of the input no more than one batch is held, of a group only its machine. Unlike `applyInPandas`,
nothing here grows with the length of a partition's history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from broker_sim.isr import PROFILES
from broker_sim.replay.facts import FactRow
from broker_sim.replay.history import PartitionHistory
from broker_sim.replay.rules.feeding import LaneFeeder

#: Rows per batch handed back.
BATCH_ROWS: Final = 8192

ArrowStep = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def replay_lanes(profile: str, schema: pa.Schema) -> ArrowStep:
    """Rows of lanes (topic, partition, broker; then `LaneRow`) to outcomes of `schema`."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        out = ArrowBatches(schema)
        feeder = LaneFeeder(PROFILES[profile])
        for batch in batches:
            for key, outcomes in feeder.feed(batch):
                out.take(key, outcomes)
            yield from out.full()
        for key, outcomes in feeder.finish():
            out.take(key, outcomes)
        yield from out.rest()

    return step


def fold_histories(end_ts: int, schema: pa.Schema) -> ArrowStep:
    """Facts of partitions (topic, partition; then `FactRow`) to rows of the derived tables."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        out = ArrowBatches(schema)
        key: tuple[Any, ...] | None = None
        history = PartitionHistory()
        for batch in batches:
            for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if values[:2] != key:
                    if key is not None:
                        history.finish(end_ts)
                        out.take(key, history.rows)
                    key, history = values[:2], PartitionHistory()
                history.feed(FactRow._make(values[2:]))
                if history.rows:
                    out.take(key, history.rows)
            yield from out.full()
        if key is not None:
            history.finish(end_ts)
            out.take(key, history.rows)
        yield from out.rest()

    return step


def arrow_schema(ddl: str) -> pa.Schema:
    """The Arrow schema of Spark's DDL."""
    return to_arrow_schema(StructType.fromDDL(ddl))


class ArrowBatches:
    """Collects rows of `schema` and cuts them into batches."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._rows: list[tuple[Any, ...]] = []

    def take(self, key: tuple[Any, ...], rows: list[Any]) -> None:
        """Moves a machine's rows here, the key before each; its list is empty afterwards."""
        self._rows.extend((*key, *row) for row in rows)
        rows.clear()

    def drain(self, rows: list[tuple[Any, ...]]) -> None:
        """Moves whole rows here; the list is empty afterwards."""
        self._rows.extend(rows)
        rows.clear()

    def extend(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Takes whole rows."""
        self._rows.extend(rows)

    def full(self) -> Iterator[pa.RecordBatch]:
        """A batch, when enough rows are there."""
        if len(self._rows) >= BATCH_ROWS:
            yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What is left as a batch, if anything."""
        if self._rows:
            columns = [
                pa.array(values, type=field.type)
                for values, field in zip(zip(*self._rows, strict=True), self._schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)
            self._rows.clear()
