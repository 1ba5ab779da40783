"""Arrow batches of sorted lane rows into lanes: in stretches of columns where there are many, else row by row. Pure.

A batch is cut where the lane changes. Within a lane there is one door (`goes_as_stretch`): a piece of rows of the many
kinds (`stretch.BULK_KINDS`) that is long enough goes to `Lane.skip`, which takes as many as decide nothing; what it
leaves, and every other row, goes to `Lane.feed`. Both come to the same (tests/unit/replay/rules/test_stretch.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from broker_sim.isr import Profile
from broker_sim.replay.rows import LaneRow, Outcome
from broker_sim.replay.rules.lane import Lane
from broker_sim.replay.rules.stretch import ABSENT, BULK_KINDS, BulkKind, BulkRows
from controller.wire.types import BrokerId

#: Columns of the key that stand before those of `LaneRow`.
KEY_COLUMNS: Final = 3
#: A piece of fewer rows is fed row by row: making columns of it costs more than they save.
STRETCH_ROWS_MIN: Final = 48
#: So many rows are fed row by row where something may be decided; where that is so again and again, up to so many.
SINGLY_MIN: Final = 8
SINGLY_MAX: Final = 128

_KIND_NAMES: Final = pa.array(list(BULK_KINDS))
_KIND_CODES: Final = np.array([*BULK_KINDS.values(), BulkKind.OTHER], np.int64)
_POSITION: Final = {name: KEY_COLUMNS + i for i, name in enumerate(LaneRow._fields)}

LaneKey = tuple[str, int, int]


class LaneFeeder:
    """Feeds batches, sorted by (topic, partition, broker, run, seq), to one lane after the other."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._key: LaneKey | None = None
        self._lane: Lane | None = None

    def feed(self, batch: pa.RecordBatch) -> Iterator[tuple[LaneKey, list[Outcome]]]:
        """The outcomes of the rows of this batch, lane by lane: the key of each, and a list that may be emptied."""
        if not batch.num_rows:
            return
        columns = LaneColumns(batch)
        for start, stop in columns.lanes():
            key = columns.key(start)
            if key != self._key:
                yield from self.finish()
                self._key, self._lane = key, Lane(broker=BrokerId(key[2]), profile=self._profile)
            assert self._lane is not None
            feed_lane(self._lane, columns, start, stop)
            if self._lane.outcomes:
                yield key, self._lane.outcomes

    def finish(self) -> Iterator[tuple[LaneKey, list[Outcome]]]:
        """No row of the present lane will come."""
        if self._lane is not None and self._key is not None:
            self._lane.finish()
            yield self._key, self._lane.outcomes
        self._key = self._lane = None


class LaneColumns:
    """A batch as the columns that stretches need, and as rows where they are asked for."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._run = self._longs("run")
        kinds = pc.index_in(self._column("ev"), value_set=_KIND_NAMES).fill_null(len(_KIND_NAMES))
        self.bulk = BulkRows(
            _KIND_CODES[kinds.to_numpy(zero_copy_only=False)],
            *(self._longs(name) for name in ("ts", "epoch", "replica", "offset", "leo", "hw", "bytes", "err")),
        )

    def _column(self, name: str) -> pa.Array:
        return self._batch.column(_POSITION[name])

    def _longs(self, name: str) -> npt.NDArray[np.int64]:
        column = self._column(name).cast(pa.int64())
        longs: npt.NDArray[np.int64] = column.fill_null(ABSENT).to_numpy(zero_copy_only=False)
        return longs

    def lanes(self) -> Iterator[tuple[int, int]]:
        """Where each lane's rows begin and end."""
        differs = np.zeros(len(self.bulk), np.bool_)
        for i in range(KEY_COLUMNS):
            column = self._batch.column(i)
            same = pc.equal(column.slice(1), column.slice(0, len(column) - 1))
            differs[1:] |= ~same.to_numpy(zero_copy_only=False).astype(np.bool_)
        return _between(differs)

    def key(self, row: int) -> LaneKey:
        """Topic, partition, broker."""
        topic, partition, broker = (self._batch.column(i)[row].as_py() for i in range(KEY_COLUMNS))
        return topic, partition, broker

    def run(self, row: int) -> int:
        """The process that wrote a row."""
        return int(self._run[row])

    def pieces(self, start: int, stop: int) -> Iterator[tuple[bool, int, int]]:
        """Rows in a row that are all of the many kinds and of one process, or all not."""
        is_bulk = self.bulk.kind[start:stop] != BulkKind.OTHER
        differs = np.zeros(stop - start, np.bool_)
        run = self._run[start:stop]
        differs[1:] = (is_bulk[1:] != is_bulk[:-1]) | (run[1:] != run[:-1])
        for first, end in _between(differs):
            yield bool(is_bulk[first]), start + first, start + end

    def feed_each(self, lane: Lane, start: int, stop: int) -> None:
        """These rows, one by one."""
        part = self._batch.slice(start, stop - start)
        columns: list[list[Any]] = [column.to_pylist() for column in part.columns[KEY_COLUMNS:]]
        for values in zip(*columns, strict=True):
            lane.feed(LaneRow._make(values))


def goes_as_stretch(rows: int, *, is_bulk: bool) -> bool:
    """Whether a piece of so many rows is tried as a stretch of columns; if not, it is fed row by row."""
    return is_bulk and rows >= STRETCH_ROWS_MIN


def feed_lane(lane: Lane, columns: LaneColumns, start: int, stop: int) -> None:
    """Feeds the rows [start, stop) of a batch, all of this lane: in stretches where it can be, else one by one."""
    for is_bulk, first, end in columns.pieces(start, stop):
        if goes_as_stretch(end - first, is_bulk=is_bulk):
            _feed_bulk(lane, columns, _begun(lane, columns, first), end)
        else:
            columns.feed_each(lane, first, end)


def _begun(lane: Lane, columns: LaneColumns, at: int) -> int:
    """Where the rows go on once their process has begun: where no file has its start, its first row tells of it."""
    if columns.run(at) == lane.run:
        return at
    columns.feed_each(lane, at, at + 1)
    return at + 1


def _feed_bulk(lane: Lane, columns: LaneColumns, at: int, stop: int) -> None:
    # All of them at first; where something may be decided, a few at a time, and more again as they are taken whole.
    window, singly = stop - at, 1
    while stop - at >= STRETCH_ROWS_MIN:
        end = min(stop, at + window)
        taken = lane.skip(columns.bulk.at(slice(at, end)))
        at += taken
        if at == end:
            window *= 2
            continue
        # Something may be decided here. What follows soon is often of the same kind.
        singly = min(2 * singly, SINGLY_MAX) if taken < STRETCH_ROWS_MIN else SINGLY_MIN
        first, at = at, min(stop, at + singly)
        columns.feed_each(lane, first, at)
        window = max(STRETCH_ROWS_MIN, min(window // 2, 2 * taken))
    if at < stop:
        columns.feed_each(lane, at, stop)


def _between(differs: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """From where something differs from the row before to where it does again."""
    return itertools.pairwise([0, *np.flatnonzero(differs).tolist(), len(differs)])
