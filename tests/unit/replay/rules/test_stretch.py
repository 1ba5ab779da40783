"""Stretches of columns do what the rules do row by row: same decisions, same state, whatever the rows are."""

from __future__ import annotations

import random
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from broker_sim.isr import PROFILES
from broker_sim.replay.rows import ALIVENESS_RUN, LaneRow, Outcome, OutcomeKind
from broker_sim.replay.rules.feeding import LaneFeeder
from broker_sim.replay.rules.lane import Lane
from broker_sim.replay.rules.stretch import ABSENT, BULK_KINDS, BulkRows
from controller.wire.types import BrokerId

LEADER, T0 = 1, 1_000_000
COLUMNS = ("ts", "epoch", "replica", "offset", "leo", "hw", "bytes", "err")


def bulk(rows: list[LaneRow]) -> BulkRows:
    def column(name: str) -> Any:
        values = [getattr(row, name) for row in rows]
        return np.array([ABSENT if v is None else v for v in values], np.int64)

    return BulkRows(np.array([BULK_KINDS[r.ev] for r in rows], np.int64), *(column(name) for name in COLUMNS))


def row_by_row(rows: list[LaneRow], profile: str) -> Lane:
    lane = Lane(broker=BrokerId(LEADER), profile=PROFILES[profile])
    for row in rows:
        lane.feed(row)
    return lane


def in_stretches(rows: list[LaneRow], profile: str, window: int) -> tuple[Lane, int]:
    """The same rows, as many as possible through `skip`; and how many that were."""
    lane, at, skipped = Lane(broker=BrokerId(LEADER), profile=PROFILES[profile]), 0, 0
    while at < len(rows):
        end = at
        while end < len(rows) and end - at < window and rows[end].ev in BULK_KINDS and rows[end].run == rows[at].run:
            end += 1
        taken = lane.skip(bulk(rows[at:end])) if end > at else 0
        assert taken <= end - at
        at, skipped = at + taken, skipped + taken
        if at < len(rows) and at < max(end, at + 1):
            lane.feed(rows[at])
            at += 1
    return lane, skipped


def said(lane: Lane) -> list[Outcome]:
    # When a change is given up, and where in the list it stands, depends on how far the rows were looked at.
    return sorted((o for o in lane.outcomes if o.kind != OutcomeKind.HW.value), key=repr)


def state(lane: Lane) -> dict[str, Any]:
    lane.settle()
    hidden = {"outcomes", "_comparison"}
    return {f.name: getattr(lane, f.name) for f in fields(lane) if f.name not in hidden}


def chaotic_rows(seed: int, *, computed_ticks: bool, length: int) -> list[LaneRow]:
    """Rows as a broker may write them, and some as none would: the rules have an answer to each."""
    chance = random.Random(seed)
    rows: list[LaneRow] = []
    ts, leo, seq, epoch = T0, 100, 0, 3
    ends = {2: 100, 3: 100, 4: 0}
    replicas = chance.choice(([1, 2, 3], [1, 2, 3, 4], [1, 2]))

    def add(ev: str, at: int | None = None, **columns: Any) -> None:
        nonlocal seq
        seq += 1
        rows.append(LaneRow(run=T0, seq=seq, ts=ts if at is None else at, ev=ev, **columns))

    for replica in range(2, 4):
        if chance.random() < 0.3:
            at = T0 + chance.randrange(20_000)
            ev = chance.choice(("broker_down", "broker_up"))
            rows.append(LaneRow(run=ALIVENESS_RUN, seq=at, ts=at, ev=ev, replica=replica))
    rows.sort(key=lambda r: r.ts)
    add("start", value=str(T0), run_ticks=0 if computed_ticks else 5, run_end=T0 + 10**9)
    add("config", key="replica.lag.time.max.ms", value="3000", of_topic=False)
    add("config", key="min.insync.replicas", value=str(chance.choice((1, 2))), of_topic=False)
    isr = [r for r in replicas if r != 4]
    adding = [4] if 4 in replicas else []
    add("leader", epoch=epoch, offset=leo, hw=chance.choice((leo, 90)), isr=isr, replicas=replicas, adding=adding)
    speed = {2: 1.0, 3: chance.choice((1.0, 0.3, 0.02)), 4: chance.choice((1.0, 0.5))}
    for _ in range(length):
        ts += chance.choice((0, 1, 1, 5, 40, 400))
        what = chance.random()
        if what < 0.35:
            leo += chance.randrange(1, 5)
            add("append", leo=leo, bytes=10)
        elif what < 0.9:
            r = chance.choice(replicas[1:])
            if chance.random() > speed[r]:
                continue
            fetched = chance.choice((leo, leo, chance.randint(min(ends[r], leo), leo)))
            err = 6 if chance.random() < 0.02 else chance.choice((0, None))
            implied = chance.random() < 0.1
            if implied:
                leo += 2
            known = chance.choice((epoch, epoch, None, epoch - 1 if chance.random() < 0.05 else epoch))
            add("fetch", replica=r, offset=fetched, leo=leo, epoch=known, err=err, bytes=7)
            ends[r] = fetched
        elif what < 0.94 and not computed_ticks:
            add("tick")
        elif what < 0.97:
            add("hw", hw=leo - chance.randrange(3))
        elif what < 0.975:
            add("append", leo=leo - 3)
        elif what < 0.98:
            add("fetch", replica=9, offset=leo, leo=leo, epoch=epoch)
        elif what < 0.983:
            epoch += 1
            add(
                "leader",
                epoch=epoch,
                offset=leo,
                isr=chance.sample(replicas, len(replicas) - 1),
                replicas=replicas,
            )
        elif what < 0.985:
            ts -= 30
    return rows


@example(
    seed=3534, computed_ticks=True, window=10_000, profile="P26"
)  # an added replica's last bytes before a stretch ends
@settings(max_examples=40, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    seed=st.integers(0, 1 << 32),
    computed_ticks=st.booleans(),
    window=st.sampled_from([3, 64, 10_000]),
    profile=st.sampled_from(list(PROFILES)),
)
def test_stretches_change_nothing(seed: int, computed_ticks: bool, window: int, profile: str) -> None:
    rows = chaotic_rows(seed, computed_ticks=computed_ticks, length=250)
    slow = row_by_row(rows, profile)
    fast, _ = in_stretches(rows, profile, window)
    assert state(fast) == state(slow)
    slow.finish()
    fast.finish()
    assert said(fast) == said(slow)


def test_most_rows_are_taken_in_stretches() -> None:
    """Only where something may be decided rows go one by one."""
    rows = chaotic_rows(11, computed_ticks=True, length=2_000)
    fast, skipped = in_stretches(rows, "P37", 512)
    decided = sum(o.kind in (OutcomeKind.SHRINK.value, OutcomeKind.EXPAND.value) for o in fast.outcomes)
    assert decided > 0
    assert skipped > 0.8 * len(rows)


def life_of_two_processes(seed: int) -> list[LaneRow]:
    """Where the seed is odd, the second one's first rows, which tell of its start, are in no file."""
    first, second = (chaotic_rows(seed + n, computed_ticks=True, length=200) for n in range(2))
    told = [row for row in second if row.run != ALIVENESS_RUN][4 * (seed % 2) :]
    after = first[-1].ts + 1 - T0
    first = [row if row.run_end is None else row._replace(run_end=first[-1].ts) for row in first]
    return [*first, *(row._replace(run=row.run + after, ts=row.ts + after) for row in told)]


@pytest.mark.parametrize("batch_rows", [9, 60, 100, 16_384])
def test_batches_may_be_cut_anywhere(batch_rows: int) -> None:
    lanes = {("t", p, LEADER): life_of_two_processes(p) for p in range(4)}
    assert any(row.ev == "leader" for rows in lanes.values() for row in rows[100:200]), "amid the many"
    values = [(*key, *row) for key, rows in lanes.items() for row in rows]
    names = ["topic", "partition", "broker", *LaneRow._fields]
    table = pa.Table.from_pylist([dict(zip(names, v, strict=True)) for v in values], schema=_schema(names))
    told: dict[Any, list[Outcome]] = {key: [] for key in lanes}
    feeder = LaneFeeder(PROFILES["P37"])
    for batch in table.to_batches(max_chunksize=batch_rows):
        for key, outcomes in feeder.feed(batch):
            told[key] += outcomes
            outcomes.clear()
    for key, outcomes in feeder.finish():
        told[key] += outcomes
    for key, rows in lanes.items():
        lane = row_by_row(rows, "P37")
        lane.finish()
        assert sorted((o for o in told[key] if o.kind != OutcomeKind.HW.value), key=repr) == said(lane)


def _schema(names: list[str]) -> pa.Schema:
    texts, lists = {"topic", "ev", "key", "value"}, {"isr", "replicas", "adding", "removing"}
    types = {n: pa.string() if n in texts else pa.list_(pa.int32()) if n in lists else pa.int64() for n in names}
    return pa.schema(list((types | {"of_topic": pa.bool_()}).items()))


def test_an_empty_batch_is_none() -> None:
    names = ["topic", "partition", "broker", *LaneRow._fields]
    empty = pa.RecordBatch.from_pylist([], schema=_schema(names))
    feeder = LaneFeeder(PROFILES["P37"])
    assert [*feeder.feed(empty), *feeder.finish()] == []


class EveryTick(Lane):
    """As slow as can be: each tick is computed, though it may find nothing."""

    def _tick_that_counts(self, due: int, until: int, period: int) -> int:
        self._tick(due)
        return due + period


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1 << 32), profile=st.sampled_from(list(PROFILES)), after=st.integers(0, 60_000))
def test_ticks_that_find_nothing_need_not_be_computed(seed: int, profile: str, after: int) -> None:
    """Silence follows each of the rows, and the rows themselves lie far apart."""
    rows = [row._replace(ts=T0 + (row.ts - T0) * 20) for row in chaotic_rows(seed, computed_ticks=True, length=60)]
    rows = [row._replace(run_end=rows[-1].ts + after) if row.run_end is not None else row for row in rows]
    outcomes = []
    for kind in (EveryTick, Lane):
        lane = kind(broker=BrokerId(LEADER), profile=PROFILES[profile])
        for row in rows:
            lane.feed(row)
        believed = state(lane)
        lane.finish()
        outcomes.append((believed, lane.outcomes))
    assert outcomes[0] == outcomes[1]
