"""Lanes under another setting, against the closed form of isr-replay.md §9.1 and against lanes as recorded."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_sim.isr import PROFILES
from broker_sim.replay.rows import LaneRow
from broker_sim.replay.rules.lane import Lane
from broker_sim.replay.what_if.asked import LAG, MIN_ISR, Change
from broker_sim.replay.what_if.lanes import STALL_MS, SweptLane
from broker_sim.replay.what_if.sweep import SWEPT_COLUMNS, SweepFeeder
from controller.wire.types import BrokerId

T0: Final = 1_000_000
_LISTS = ("isr", "replicas", "adding", "removing")
_WORDS = ("ev", "key", "value")
_SCHEMA = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("broker", pa.int32())]
    + [
        (n, pa.list_(pa.int32()) if n in _LISTS else pa.string() if n in _WORDS else pa.int64())
        for n in LaneRow._fields
    ]
)


def swept(rows: Sequence[LaneRow], change: Change, *, end: int, in_batches: int = 0) -> dict[str, Any]:
    """The figures of one lane; `in_batches` > 0: as columns, so many rows at a time, as Spark gives them."""
    if in_batches:
        feeder = SweepFeeder(PROFILES["P37"], [change], end_ts=end)
        told: list[tuple[Any, ...]] = []
        columns = [("t", 0, 1, *row._replace(of_topic=None)) for row in rows]
        for at in range(0, len(columns), in_batches):
            part = zip(*columns[at : at + in_batches], strict=True)
            arrays = [pa.array(list(c), type=f.type) for c, f in zip(part, _SCHEMA, strict=True)]
            told.extend(feeder.sweep(pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)))
        told.extend(feeder.done())
        figures = dict(zip(("topic", "partition", "leader", *SWEPT_COLUMNS), told[-1], strict=True))
        assert figures.pop("replica") is None
        return {k: figures[k] for k in figures if k not in ("topic", "partition", "leader", "key", "value")}
    lane = SweptLane(broker=BrokerId(1), change=change)
    lane.look_ahead(np.array([row.ts for row in rows if row.ev == "tick"], np.int64))
    for row in rows:
        lane.feed(row)
    lane.finish_at(end)
    figures = {name: getattr(lane.figures, name) for name in lane.figures.__dataclass_fields__}
    return {"from_ts": None, "to_ts": None, **figures}


class Writer:
    def __init__(self, *, phase: int = T0, recorded_lag: int = 30_000, replicas: Sequence[int] = (1, 3)) -> None:
        self.rows: list[LaneRow] = []
        self.leo = 0
        self.add("start", T0, value=str(phase), run_ticks=5, run_end=T0 + 2_000_000)
        self.add("config", T0, key="replica.lag.time.max.ms", value=str(recorded_lag))
        ids = list(replicas)
        self.add("leader", T0, epoch=0, offset=0, hw=0, isr=ids, replicas=ids, adding=[], removing=[], zk_version=0)

    def add(self, ev: str, ts: int, **columns: Any) -> None:
        self.rows.append(LaneRow(run=T0, seq=len(self.rows), ts=ts, ev=ev, **columns))

    def append(self, ts: int) -> None:
        self.leo += 1
        self.add("append", ts, leo=self.leo, bytes=100)

    def fetch(self, ts: int, replica: int = 3) -> None:
        self.add("fetch", ts, replica=replica, offset=self.leo, leo=self.leo, epoch=0, err=0)


def removed_at(*, c: int, a: int, e: int, lag: int, t0: int) -> int | None:
    """§9.1: the first tick after c + lag, and not before a, on the grid, if it comes before e."""
    period = lag // 2
    due = max(c + lag + 1, a)
    tick = t0 + -(-(due - t0) // period) * period
    return tick if tick < e else None


episodes = st.lists(
    st.tuples(st.integers(1, 90_000), st.integers(0, 1000)).map(lambda d: (d[0], d[0] * d[1] // 1001)),
    min_size=1,
    max_size=12,
)


@settings(max_examples=50, deadline=None)
@given(episodes, st.integers(200, 60_000), st.integers(0, 40_000), st.sampled_from((0, 3, 50)), st.booleans())
def test_the_closed_form(
    gaps: list[tuple[int, int]], lag: int, phase: int, in_batches: int, has_recorded_ticks: bool
) -> None:
    """A follower is silent again and again; while it is, one append comes. Recorded ticks change nothing."""
    t0 = T0 - phase
    trace = Writer(phase=t0)
    c = T0 + 1
    trace.fetch(c)
    removals, out_ms, detections = 0, 0, []
    for length, append_after in gaps:
        a, e = c + append_after, c + length
        trace.append(a)
        trace.fetch(e)
        if (tick := removed_at(c=c, a=a, e=e, lag=lag, t0=t0)) is not None:
            removals, out_ms = removals + 1, out_ms + e - tick
            detections.append(tick - c)
        c = e
    if has_recorded_ticks:
        for tick in range(t0 + 15_000 * (1 + phase // 15_000), c, 15_000):
            trace.add("tick", tick + tick % 3)
        trace.rows[3:] = sorted(trace.rows[3:], key=lambda row: row.ts)
    found = swept(trace.rows, Change(LAG, lag), end=c, in_batches=in_batches)
    assert found["shrinks"] == found["expands"] == found["flaps"] == removals
    assert found["under_replicated_ms"] == out_ms
    assert (found["detections"], found["detection_ms"]) == (removals, sum(detections))
    assert found["detection_max_ms"] == max(detections, default=0)
    assert not found["phase_unknown"]


def test_a_stuck_follower_blocks_acks_all_for_between_lag_and_one_and_a_half_of_it() -> None:
    for lag in (2_000, 9_000, 30_000):
        trace = Writer()
        trace.fetch(T0 + 700)
        trace.append(T0 + 701)
        trace.append(T0 + 200_000)
        found = swept(trace.rows, Change(LAG, lag), end=T0 + 200_000)
        assert lag - 1 < found["hw_stall_max_ms"] <= lag * 3 // 2
        assert found["hw_stalls"] == 1 and found["hw_stalled_ms"] == found["hw_stall_max_ms"]


def test_a_short_stall_counts_although_nobody_was_removed() -> None:
    trace = Writer()
    trace.fetch(T0 + 1)
    trace.append(T0 + 10)
    for ts in range(T0 + 100, T0 + 10 + 3 * STALL_MS, 50):
        trace.append(ts)
    trace.fetch(T0 + 10 + 3 * STALL_MS)
    for batches in (0, 1000):
        found = swept(trace.rows, Change(LAG, 30_000), end=T0 + 9_999, in_batches=batches)
        assert (found["shrinks"], found["hw_stalls"], found["hw_stalled_ms"]) == (0, 1, 3 * STALL_MS)


def stopped_for_a_minute() -> tuple[Writer, int]:
    """The leader; and when it goes on."""
    trace = Writer(recorded_lag=10_000)
    trace.fetch(T0 + 1)
    for k in range(1, 5):
        trace.append(T0 + k * 5_000 - 300)
        trace.fetch(T0 + k * 5_000 - 100)
        trace.add("tick", T0 + k * 5_000)
    trace.append(T0 + 20_100)
    return trace, T0 + 82_003


@pytest.mark.parametrize("lag", [2_000, 3_000, 7_000, 10_000, 30_000])
@pytest.mark.parametrize("batches", [0, 1000])
def test_behind_a_stop_the_ticks_that_were_missed_run_at_once_and_then_on_their_grid_again(
    lag: int, batches: int
) -> None:
    """Whoever did not fetch until then is out; and once more, when it is back and silent."""
    trace, woke = stopped_for_a_minute()
    trace.add("tick", woke)
    back, end = woke + 40, T0 + 150_000
    trace.fetch(back)
    trace.append(back + 10)
    for k in range(17, 30):
        trace.add("tick", T0 + k * 5_000)
    trace.fetch(end)
    found = swept(trace.rows, Change(LAG, lag), end=end, in_batches=batches)
    again = removed_at(c=back, a=back + 10, e=end, lag=lag, t0=T0)
    assert again is not None
    waited = [woke - (T0 + 19_900), again - back]
    assert (found["shrinks"], found["expands"], found["detection_ms"]) == (2, 2, sum(waited))
    assert found["under_replicated_ms"] == back - woke + end - again


def test_each_removal_is_an_episode_until_the_replica_is_back() -> None:
    trace = Writer()
    trace.fetch(T0 + 1)
    trace.append(T0 + 2)
    trace.fetch(T0 + 20_000)
    trace.append(T0 + 20_001)
    lane = SweptLane(broker=BrokerId(1), change=Change(LAG, 10_000))
    for row in trace.rows:
        lane.feed(row)
    lane.finish_at(T0 + 60_000)
    assert lane.episodes == [(3, T0 + 15_000, T0 + 20_000), (3, T0 + 35_000, None)]
    assert (lane.figures.shrinks, lane.figures.expands, lane.figures.flaps) == (2, 1, 1)


def test_ticks_wait_while_the_process_is_stopped() -> None:
    """The leader is stopped for a minute: no tick runs meanwhile, whatever its period would be."""
    trace, woke = stopped_for_a_minute()
    # What had waited in its sockets: the fetch first, then the ticks that were missed, then an append.
    trace.fetch(woke - 2)
    for k in range(12):
        trace.add("tick", woke + k // 6)
    trace.append(woke + 4)
    trace.fetch(woke + 9)
    for lag in (2_000, 4_000, 10_000, 30_000):
        for batches in (0, 7, 1000):
            found = swept(trace.rows, Change(LAG, lag), end=woke + 10, in_batches=batches)
            # Batches that end within the stop hide the tick that tells of it.
            if batches != 7:
                assert (lag, found["shrinks"]) == (lag, 0)


def test_without_the_start_of_the_process_the_phase_is_that_of_the_first_tick() -> None:
    trace = Writer()
    trace.rows[0] = trace.rows[0]._replace(value=None)
    trace.fetch(T0 + 10)
    trace.append(T0 + 20)
    trace.add("tick", T0 + 4_321)
    trace.append(T0 + 40_000)
    found = swept(trace.rows, Change(LAG, 10_000), end=T0 + 40_000)
    assert found["phase_unknown"] and found["shrinks"] == 1
    assert found["detection_max_ms"] == 4_321 + 2 * 5_000 - 10


@pytest.mark.parametrize(("minimum", "under_ms"), [(1, 0), (2, 10_000), (3, 10_000)])
def test_another_minimum(minimum: int, under_ms: int) -> None:
    """Replica 3 is out for 10 s. Since 3.7 the minimum is at most the number of replicas: 3 means 2 here."""
    trace = Writer(recorded_lag=10_000)
    trace.fetch(T0 + 1)
    trace.append(T0 + 2)
    for k in range(1, 4):
        trace.add("tick", T0 + k * 5_000)
    trace.append(T0 + 18_000)
    trace.fetch(T0 + 25_000)
    found = swept(trace.rows, Change(MIN_ISR, minimum), end=T0 + 30_000)
    assert (found["shrinks"], found["under_replicated_ms"]) == (1, 10_000)
    assert (found["under_min_isr_ms"], found["under_min_isr"]) == (under_ms, int(under_ms > 0))
    # Frozen while below: what was appended at 2 ms waits for the return, not for the removal.
    assert found["hw_stall_max_ms"] == (24_998 if under_ms else 14_998)


def test_as_recorded_nothing_is_different() -> None:
    trace = Writer(recorded_lag=10_000)
    trace.fetch(T0 + 1)
    trace.append(T0 + 2)
    for k in range(1, 9):
        trace.add("tick", T0 + k * 5_000 + 3)
    trace.fetch(T0 + 41_000)
    told = Lane(broker=BrokerId(1))
    for row in trace.rows:
        told.feed(row)
    for change in (Change(LAG), Change(MIN_ISR)):
        found = swept(trace.rows, change, end=T0 + 41_000)
        assert found["shrinks"] == sum(o.kind == "isr_shrink" for o in told.outcomes) == 1
        assert found["detection_max_ms"] == 10_003 - 1


RUNS: Final = Path(__file__).parents[5] / "shared" / "data" / "isr"
#: one for every run of tests, the others with `-m slow`
REAL = [
    "kill-and-restarts",
    *(pytest.param(run, marks=pytest.mark.slow) for run in ("throttled-follower", "pause-default-lag", "slow-links")),
]


@pytest.mark.parametrize("run", REAL)
def test_a_real_cluster_with_its_own_lag_does_what_it_did(run: str) -> None:
    from tests.unit.replay.rules.test_real_runs import lanes  # the joins that the Spark job does

    trace = RUNS / run / "trace.jsonl.gz"
    if not trace.exists():
        pytest.skip("the recorded runs of a real cluster are not beside the repository (../shared/data/isr)")
    with gzip.open(trace, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    lags = {r["value"] for r in rows if r["ev"] == "config" and r.get("key") == LAG and r.get("value")}
    assert len(lags) == 1
    own, twice = Change(LAG, int(lags.pop())), Change(LAG, 10**9)
    sums = dict.fromkeys((Change(LAG), own, twice), 0)
    for lane_rows, broker in lanes(rows):
        listed = list(lane_rows)
        for change in sums:
            lane = SweptLane(broker=BrokerId(broker), change=change)
            lane.look_ahead(np.array([row.ts for row in listed if row.ev == "tick"], np.int64))
            for row in listed:
                lane.feed(row)
            lane.finish_at(max(r["ts"] for r in rows))
            sums[change] += lane.figures.shrinks
    assert sums[Change(LAG)] == sums[own]
    assert (sums[own] > 0) == (run != "kill-and-restarts"), "where brokers were killed no leader removed anyone"
    assert sums[twice] == 0
