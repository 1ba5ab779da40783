"""All changes of a sweep in one pass: each batch of sorted lane rows goes to a `SweptLane` per change. Pure; Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from broker_sim.isr import PROFILES, Profile
from broker_sim.replay.grouped import ArrowBatches, ArrowStep
from broker_sim.replay.rules.feeding import LaneColumns, LaneKey, feed_lane
from broker_sim.replay.rules.stretch import BulkKind
from broker_sim.replay.what_if.asked import FETCH_RATE, Change
from broker_sim.replay.what_if.fetch_rate import FetchRateLane
from broker_sim.replay.what_if.lanes import Figures, SweptLane
from controller.wire.types import BrokerId

#: Of one lane under one change: its figures, or (with a `replica`) one episode.
FIGURES: Final = tuple(Figures.__dataclass_fields__)
SWEPT_COLUMNS: Final = ("key", "value", "replica", "from_ts", "to_ts", *FIGURES)
_TYPES: Final = dict.fromkeys(("phase_unknown", "rules_off", "bytes_unknown"), "boolean") | {
    "expected_shrinks": "double"
}
SWEPT_DDL: Final = "topic string, partition int, leader int, `key` string, value bigint, replica int, " + ", ".join(
    f"{name} {_TYPES.get(name, 'bigint')}" for name in SWEPT_COLUMNS[3:]
)
_NO_FIGURES: Final = (None,) * len(FIGURES)


class SweepFeeder:
    """Feeds batches, sorted by (topic, partition, broker, run, seq), to the lanes of all changes. Gives `SWEPT_DDL`."""

    def __init__(self, profile: Profile, changes: Sequence[Change], *, end_ts: int) -> None:
        self._changes, self._of_profile, self._end_ts = tuple(changes), profile, end_ts
        self._lanes: list[SweptLane | FetchRateLane] = []
        self._lane_key: LaneKey | None = None

    def sweep(self, batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
        """What is known after the rows of this batch."""
        if not batch.num_rows:
            return
        columns = LaneColumns(batch)
        for start, stop in columns.lanes():
            key = columns.key(start)
            if key != self._lane_key:
                yield from self.done()
                self._begin(key)
            ticks = columns.bulk.ts[start:stop][columns.bulk.kind[start:stop] == BulkKind.TICK]
            for lane in self._lanes:
                lane.look_ahead(ticks)
                feed_lane(lane, columns, start, stop)
                yield from self._episodes(lane)

    def _begin(self, key: LaneKey) -> None:
        self._lane_key = key
        self._lanes = [
            (FetchRateLane if c.key == FETCH_RATE else SweptLane)(
                broker=BrokerId(key[2]), profile=self._of_profile, change=c
            )
            for c in self._changes
        ]

    def _episodes(self, lane: SweptLane | FetchRateLane) -> Iterator[tuple[Any, ...]]:
        assert self._lane_key is not None
        for episode in lane.episodes:
            yield (*self._lane_key, lane.change.key, lane.change.value, *episode, *_NO_FIGURES)
        lane.episodes.clear()

    def done(self) -> Iterator[tuple[Any, ...]]:
        """No row of the present lane will come."""
        for lane in self._lanes:
            lane.finish_at(self._end_ts)
            yield from self._episodes(lane)
            assert self._lane_key is not None
            figures = (getattr(lane.figures, name) for name in FIGURES)
            yield (*self._lane_key, lane.change.key, lane.change.value, None, None, None, *figures)
        self._lanes, self._lane_key = [], None


def sweep_lanes(profile: str, changes: Sequence[Change], schema: pa.Schema, *, end_ts: int) -> ArrowStep:
    """Rows of lanes, as `grouped.replay_lanes` takes them, to rows of `SWEPT_DDL` (`schema`)."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        out = ArrowBatches(schema)
        feeder = SweepFeeder(PROFILES[profile], changes, end_ts=end_ts)
        for batch in batches:
            out.extend(feeder.sweep(batch))
            yield from out.full()
        out.extend(feeder.done())
        yield from out.rest()

    return step
