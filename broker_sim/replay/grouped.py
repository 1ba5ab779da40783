"""From Arrow batches, sorted by group, to the pure machines and back: what runs inside `mapInArrow`.

Groups are streamed: of the input no more than one batch is held, of a group only its machine. Unlike `applyInPandas`,
nothing here grows with the length of a partition's history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np
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


def column_lists(batch: pa.RecordBatch, columns: int | None = None) -> list[list[Any]]:
    """The (first so many) columns of a batch as lists of Python values; what `to_pylist` gives, sooner."""
    return [_values_of(column) for column in batch.columns[:columns]]


def _values_of(column: pa.Array) -> list[Any]:
    # "log files" of the benchmark: `to_pylist` makes an object of Arrow of each value before it is one of Python.
    if column.null_count == len(column):
        return [None] * len(column)
    if pa.types.is_integer(column.type):
        values: list[Any] = column.fill_null(0).to_numpy(zero_copy_only=False).tolist()
        if column.null_count:
            for index in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
                values[index] = None
        return values
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        coded = column.dictionary_encode()
        names = [*coded.dictionary.to_pylist(), None]
        return [names[code] for code in coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).tolist()]
    listed: list[Any] = column.to_pylist()
    return listed


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

    def append(self, row: tuple[Any, ...]) -> None:
        """Takes a whole row."""
        self._rows.append(row)

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
