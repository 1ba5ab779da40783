"""Rows that may stand twice: Spark brings those of a lane together, in order; Arrow compares each with the one before.

The comparison is pure; it holds a batch and the last row of the one before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from broker_sim.replay.ingest.own_verdict import CONTRADICTORY
from broker_sim.replay.schema import CLOCK_STEP_MS, CLOCK_WENT_BACK, LANE_KEY
from controller.wire.trace import COLUMNS

DUPLICATE: Final = "duplicate"
#: Column of compared rows: `DUPLICATE` or `CONTRADICTORY` where a row has the place of the one before; else null.
REPEATS: Final = "repeats"
_DIGEST: Final = "digest"


def in_order(rows: DataFrame) -> DataFrame:
    """The rows as `compared` takes them: those of a lane in one task, each process in its order."""
    clustered = rows.repartition(*LANE_KEY).withColumn(_DIGEST, F.xxhash64(*COLUMNS))
    return clustered.sortWithinPartitions(*LANE_KEY, "role", "run", "seq", "ts", _DIGEST)


def compared(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of `in_order`, with what a look at the row before tells: `CLOCK_WENT_BACK` and `REPEATS`."""
    before: pa.RecordBatch | None = None
    for batch in filter(len, batches):
        pairs = _Pairs(batch, before)
        before = batch.slice(len(batch) - 1)
        same_process = _all([*map(pairs.both_null_or_same, LANE_KEY), pairs.same("role"), pairs.same("run")])
        same_place = pc.and_(same_process, pairs.same("seq"))
        same_row = _all([same_place, pairs.same("ts"), pairs.same(_DIGEST)])
        of_broker = pc.and_(same_place, pc.fill_null(pc.equal(batch["role"], "broker"), False))
        earlier = pc.less(batch["ts"], pc.subtract(pairs.before("ts"), CLOCK_STEP_MS))
        repeats = pc.case_when(pc.make_struct(same_row, of_broker), DUPLICATE, CONTRADICTORY)
        went_back = pc.and_(same_process, pc.fill_null(earlier, False))
        yield batch.append_column(CLOCK_WENT_BACK, went_back).append_column(REPEATS, repeats)


class _Pairs:
    """Each row of a batch beside the one before it; before the very first there is one of nulls."""

    def __init__(self, batch: pa.RecordBatch, before: pa.RecordBatch | None) -> None:
        self._batch, self._last = batch, before

    def before(self, name: str) -> Any:
        """The column as the rows before have it."""
        column = self._batch[name]
        last = pa.nulls(1, column.type) if self._last is None else self._last[name]
        return pa.concat_arrays([last, column.slice(0, len(column) - 1)])

    def same(self, name: str) -> Any:
        """Where neither is null, and both are equal."""
        return pc.fill_null(pc.equal(self._batch[name], self.before(name)), False)

    def both_null_or_same(self, name: str) -> Any:
        """Where both are null, or equal."""
        return pc.or_(self.same(name), pc.and_(self._batch[name].is_null(), self.before(name).is_null()))


def _all(flags: Sequence[Any]) -> Any:
    return reduce(pc.and_, flags)
