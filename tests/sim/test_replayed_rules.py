"""What the replay says of a world is held to the world: silent for what follows, and not when a rule takes too much."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_sim.isr import LedPartition
from broker_sim.replay.compare import Comparison
from broker_sim.replay.rows import LaneRow, Outcome, OutcomeKind
from broker_sim.replay.rules.lane import Lane
from controller.sim.oracles import replayed_rules
from controller.sim.oracles.lanes import replayed
from controller.sim.oracles.replayed_rules import lanes_contradict
from controller.sim.oracles.traced import WatchedTrace
from controller.wire.trace import TraceEvent
from controller.wire.types import BrokerId, TopicPartition

pytestmark = pytest.mark.sim
TP = TopicPartition("t", 0)
LAG_MS = 1000


@pytest.fixture
def trace(tmp_path: Path) -> WatchedTrace:
    """Broker 1 leads `t-0`; 2 and 3 copy; 2 falls behind, is removed, and comes back; 3's removal is refused."""
    made = WatchedTrace(BrokerId(1), tmp_path, start_ms=0, seen=(), opened=[])
    made.start(0, settings={"replica.lag.time.max.ms": str(LAG_MS)})
    columns = {"epoch": 5, "leo": 10, "offset": 10, "hw": 10, "zk_version": 7}
    made.row(TraceEvent.LEADER, 0, TP, **columns, isr=[1, 2, 3], replicas=[1, 2, 3])
    fetch = {"epoch": 5, "leo": 11, "err": 0}
    made.append_row(100, TP, offset=10, leo=11, hw=10, epoch=5, size_bytes=9, moves_hw=False)
    for ts in (200, 700, 1200, 1700):
        made.row(TraceEvent.FETCH, ts, TP, **fetch, replica=3, offset=11)
        made.row(TraceEvent.TICK, ts + 300)
    made.append_row(2020, TP, offset=11, leo=12, hw=11, epoch=5, size_bytes=9, moves_hw=False)
    fetch["leo"] = 12
    made.row(TraceEvent.FETCH, 2040, TP, **fetch, replica=3, offset=12)
    made.row(TraceEvent.HW, 2040, TP, epoch=5, hw=12)
    changed = {"epoch": 5, "zk_version": 8, "isr": [1, 3]}
    made.row(TraceEvent.ISR_SHRINK, 1500, TP, **changed, replica=2, done=1510)
    made.row(TraceEvent.FETCH, 2100, TP, **fetch, replica=2, offset=12)
    made.row(TraceEvent.ISR_EXPAND, 2100, TP, **changed | {"isr": [1, 2, 3]}, replica=2, done=2110)
    made.row(TraceEvent.ISR_SHRINK, 2200, TP, **changed, replica=3, err=95, done=2210)
    return made


def test_what_follows_from_a_trace_is_not_complained_of(trace: WatchedTrace) -> None:
    assert list(lanes_contradict(replayed([trace]))) == []


def _without_watermark(patch: pytest.MonkeyPatch) -> None:
    lead = LedPartition.lead
    patch.setattr(LedPartition, "lead", lambda self, **about: lead(self, **{**about, "high_watermark": None}))


def _takes(patch: pytest.MonkeyPatch, event: TraceEvent, change: Callable[[Lane, LaneRow], LaneRow]) -> None:
    """The rules take rows of this kind for something else."""
    feed = Lane.feed

    def other(self: Lane, row: LaneRow) -> None:
        feed(self, change(self, row) if row.ev == event.value else row)

    patch.setattr(Lane, "feed", other)


def _of_any_epoch(lane: Lane, row: LaneRow) -> LaneRow:
    return row._replace(epoch=lane.led.epoch) if lane.led is not None else row


def _always_news(lane: Lane, row: LaneRow) -> LaneRow:
    return row._replace(epoch=lane.led.epoch + 1) if lane.led is not None else row


def _pairs_with_another(patch: pytest.MonkeyPatch) -> None:
    derived = Comparison.derived

    def other(self: Comparison, **about: Any) -> None:
        derived(self, **{**about, "ts": about["ts"] + 7})

    patch.setattr(Comparison, "derived", other)


def _does_not_see_what_a_fetch_shows(patch: pytest.MonkeyPatch) -> None:
    _takes(patch, TraceEvent.FETCH, lambda lane, row: row._replace(leo=lane.led.log_end_offset if lane.led else 0))


def _misses_what_was_refused(patch: pytest.MonkeyPatch) -> None:
    emitted = Comparison.emitted
    patch.setattr(Comparison, "emitted", lambda self, **about: emitted(self, **{**about, "err": 0}))


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (_without_watermark, "a leadership begins with (5, 0, [1, 2, 3])"),
        (lambda patch: _takes(patch, TraceEvent.FETCH, lambda _, row: row._replace(err=0)), "make another of"),
        (lambda patch: _takes(patch, TraceEvent.FETCH, _of_any_epoch), "make another of"),
        (lambda patch: _takes(patch, TraceEvent.FOLLOWER, _of_any_epoch), "make another of"),
        (lambda patch: _takes(patch, TraceEvent.LEADER, _always_news), "make another of"),
        (_pairs_with_another, "is paired with one that is not there"),
        (_does_not_see_what_a_fetch_shows, "a fetch does not show an append"),
        (_misses_what_was_refused, "isr_shrink of 3 at 2200 was refused, and counts as missing"),
    ],
)
def test_what_is_wrong_is_found(
    trace: WatchedTrace, damage: Callable[[pytest.MonkeyPatch], None], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replayed_rules, "IDLE_SHARE", 1.0)
    damage(monkeypatch)
    found = list(lanes_contradict(replayed([trace])))
    assert any(complaint in wrong for wrong in found), found


def test_two_changes_that_belong_together_are_paired(trace: WatchedTrace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Comparison, "_belong", lambda *_: False)
    found = list(lanes_contradict(replayed([trace])))
    assert any("are not paired" in wrong and OutcomeKind.SHRINK.value in wrong for wrong in found), found


def test_of_what_was_written_some_is_lost_some_late_and_some_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replayed_rules, "REFUSED_SHARE", 0.0)
    change = {"ev": TraceEvent.ISR_SHRINK.value, "replica": 2}
    rows = [{**change, "epoch": n, "ts": 1000 * n, "done": 1000 * n + 9} for n in range(40)]
    again = [{**change, "epoch": 99, "ts": 50_000 + n, "done": 50_000 + n} for n in range(2)]
    left = list(replayed_rules.without_some_changes([*rows, {"ev": TraceEvent.TICK.value, "ts": 45_000}, *again]))
    refused = [row for row in left if row.get("err") == 95]
    writes = [row for row in left if row.get("replica") == replayed_rules.NOBODY and row not in refused]
    late = [row for row in left if row.get("replica") == 2 and row["ts"] != 1000 * row["epoch"] and row["epoch"] < 40]
    assert refused
    assert all(row["replica"] == replayed_rules.NOBODY for row in refused)
    assert writes
    assert all(any(write["ts"] < row["ts"] <= write["done"] for write in writes) for row in late)
    assert len([row for row in left if row.get("replica") == 2]) < len(rows), "some are lost"
    assert [row["ts"] for row in left if row.get("epoch") == 99][:1] != [50_000], "of two alike the last is told"


def test_a_change_is_paired_with_the_nearest() -> None:
    about = {"epoch": 5, "replica": BrokerId(2), "change": OutcomeKind.EXPAND.value}
    derived = {"kind": OutcomeKind.EXPAND.value, "epoch": 5, "isr_old": [1], "isr": [1, 2]}
    outcomes = [
        *(Outcome(ts=ts, **derived) for ts in (1000, 9000)),
        Outcome(kind=OutcomeKind.MATCHED.value, ts=9010, error_ms=8010, **about),
        Outcome(kind=OutcomeKind.SPURIOUS.value, ts=9000, **about),
    ]
    assert list(replayed_rules.pairs_are_wrong([], outcomes)) == [
        "isr_expand of 2 at 9010 is paired 8010 ms away, not 9000"
    ]
    assert list(replayed_rules.pairs_are_wrong([], [*outcomes[:2], outcomes[2]._replace(error_ms=10)])) == []


def test_a_fetch_that_shows_an_append_moves_the_watermark_of_who_is_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else is in sync: with the append the watermark is at the end, before 2 has fetched up to there."""
    monkeypatch.setattr(replayed_rules, "IDLE_SHARE", 1.0)
    made = WatchedTrace(BrokerId(1), tmp_path, start_ms=0, seen=(), opened=[])
    made.start(0, settings={})
    columns = {"epoch": 5, "leo": 10, "offset": 10, "hw": 10, "zk_version": 7}
    made.row(TraceEvent.LEADER, 90_000, TP, **columns, isr=[1], replicas=[1, 2])
    made.row(TraceEvent.FETCH, 90_100, TP, epoch=5, leo=10, err=0, replica=2, offset=4)
    made.append_row(90_200, TP, offset=10, leo=11, hw=11, epoch=5, size_bytes=9, moves_hw=True)
    assert list(lanes_contradict(replayed([made]))) == []
    monkeypatch.setattr(Lane, "_append", lambda _, *about: _lengthen(*about))
    found = list(lanes_contradict(replayed([made])))
    assert any("the watermark is 10, not 11" in wrong for wrong in found), found


def _lengthen(led: LedPartition, leo: int, ts: int, size: int | None) -> None:
    """What a fetch shows, which tells no size, lengthens the log alone."""
    if size is not None:
        led.append(leo, ts)
    led.log_end_offset = leo


def test_what_was_refused_is_paired_in_its_epoch() -> None:
    about = {"epoch": 4, "replica": BrokerId(2), "change": OutcomeKind.SHRINK.value}
    derived = Outcome(kind=OutcomeKind.SHRINK.value, ts=1000, epoch=5, isr_old=[1, 2], isr=[1])
    refused = Outcome(kind=OutcomeKind.REFUSED.value, ts=1010, error_ms=10, **about)
    assert list(replayed_rules.pairs_are_wrong([], [derived, refused])) == [
        "isr_shrink of 2 at 1010, refused in epoch 4, is paired with one of another"
    ]
    assert list(replayed_rules.pairs_are_wrong([], [derived._replace(epoch=4), refused])) == []


@pytest.mark.parametrize(
    ("epoch", "expected"), [(4, ["isr_shrink of 2 at 9000 is paired 8000 ms away, not 3000"]), (5, [])]
)
def test_what_was_refused_is_paired_with_the_nearest_of_its_epoch(epoch: int, expected: list[str]) -> None:
    """At 3000 one was derived as well, of this epoch: what was refused then is the nearest where that is its own."""
    about = {"kind": OutcomeKind.REFUSED.value, "epoch": 4, "replica": BrokerId(2), "change": OutcomeKind.SHRINK.value}
    derived = Outcome(kind=OutcomeKind.SHRINK.value, ts=1000, epoch=4, isr_old=[1, 2], isr=[1])
    outcomes = [derived, derived._replace(ts=3000, epoch=epoch)]
    outcomes += [Outcome(ts=9000, error_ms=8000, **about), Outcome(ts=3000, **about)]
    assert list(replayed_rules.pairs_are_wrong([], outcomes)) == expected


def test_before_a_change_the_one_of_the_epoch_before_may_be_refused(
    trace: WatchedTrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replayed_rules, "REFUSED_SHARE", 1.0)
    row = {"ev": TraceEvent.ISR_SHRINK.value, "replica": 2, "epoch": 5, "ts": 1, "done": 2}
    assert next(replayed_rules.without_some_changes([row])) == row | {"epoch": 4, "err": 95}
    assert list(lanes_contradict(replayed([trace]))) == []
