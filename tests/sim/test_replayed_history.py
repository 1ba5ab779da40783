"""What the replay makes of partitions over their lives is held to the rows: silent for what follows, and not else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_sim.replay.facts import FactRow
from broker_sim.replay.history import PartitionHistory
from broker_sim.replay.open_spans import OpenReassignment, OpenWindow
from controller.sim.oracles import replayed_history
from controller.sim.oracles.lanes import lanes_of, rows_by_broker
from controller.sim.oracles.replayed_history import folds_are_wrong, histories_contradict
from controller.sim.oracles.traced import WatchedTrace
from controller.wire.trace import TraceEvent
from controller.wire.types import BrokerId, TopicPartition

pytestmark = pytest.mark.sim
TP = TopicPartition("t", 0)


@pytest.fixture
def traces(tmp_path: Path) -> list[WatchedTrace]:
    """Broker 1 leads `t-0` and drops 2, which a move is to remove; then 3 leads, and ends the move. The clock of 1 is
    ahead: what it wrote last, it seems to have written in the time of 3. Another change it writes, nobody asked for."""
    first, second = (WatchedTrace(BrokerId(number), tmp_path, start_ms=0, seen=(), opened=[]) for number in (1, 3))
    for made in (first, second):
        made.start(0, settings={"replica.lag.time.max.ms": "100"})
    columns = {"leo": 10, "offset": 10, "hw": 10}
    moving = {"replicas": [3, 1, 2], "adding": [3], "removing": [2]}
    first.row(TraceEvent.LEADER, 0, TP, **columns, epoch=1, zk_version=1, isr=[1, 2], replicas=[1, 2])
    first.row(TraceEvent.LEADER, 50, TP, **columns, epoch=2, zk_version=2, isr=[1, 2], **moving)
    first.row(TraceEvent.TICK, 160)
    dropped = {"epoch": 2, "zk_version": 3, "isr_old": [1, 2], "isr": [1], "err": 0}
    first.row(TraceEvent.ISR_SHRINK, 160, TP, **dropped, replica=2, done=170)
    first.row(TraceEvent.FETCH, 200, TP, epoch=2, leo=10, err=0, replica=3, offset=10)
    added = {"epoch": 2, "zk_version": 4, "isr_old": [1], "isr": [1, 3], "err": 0}
    first.row(TraceEvent.ISR_EXPAND, 200, TP, **added, replica=3, done=210)
    first.row(TraceEvent.ISR_SHRINK, 520, TP, **dropped | {"zk_version": 5, "isr": [3]}, replica=1, done=530)
    first.row(TraceEvent.FOLLOWER, 540, TP, epoch=3, replica=3, offset=10, hw=10)
    first.row(TraceEvent.TICK, 600)
    second.row(TraceEvent.LEADER, 500, TP, **columns, epoch=3, zk_version=6, isr=[3, 1], replicas=[3, 1])
    return [first, second]


def complaints(traces: list[WatchedTrace]) -> list[str]:
    rows = rows_by_broker(traces)
    return list(histories_contradict(rows, list(lanes_of(rows))))


def test_what_follows_is_not_complained_of(traces: list[WatchedTrace]) -> None:
    assert complaints(traces) == []


def _takes_older_changes(patch: pytest.MonkeyPatch) -> None:
    feed, shrink = PartitionHistory.feed, TraceEvent.ISR_SHRINK.value

    def other(self: PartitionHistory, row: FactRow) -> None:
        feed(self, row._replace(epoch=None) if row.kind == shrink else row)

    patch.setattr(PartitionHistory, "feed", other)


def _of_all_replicas(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OpenReassignment, "target", property(lambda self: {*self.replicas}))


def _counts_too_late(patch: pytest.MonkeyPatch) -> None:
    count = OpenWindow.count

    def other(self: OpenWindow, ts: int, missing: int) -> None:
        self.missing = missing
        count(self, ts, missing)

    patch.setattr(OpenWindow, "count", other)


def _asks(name: str, old: str, new: str) -> Callable[[pytest.MonkeyPatch], Any]:
    question: str = getattr(replayed_history, name)
    assert old in question
    return lambda patch: patch.setattr(replayed_history, name, question.replace(old, new))


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (_takes_older_changes, "the ISR is (3,), the newest state has [1, 3]"),
        (_of_all_replicas, "could end at None, its target was in sync at 200"),
        (_counts_too_late, "lacks 0 ms of replicas, not 40"),
        (_asks("FACTS", "OR NOT has_recorded", "OR true"), "is a fact beside what was written"),
        (_asks("SHARED_ROWS", "AND (k.to_seq IS NULL OR t.seq < k.to_seq)", ""), "1 ticks are of a former leadership"),
    ],
)
def test_what_is_wrong_is_found(
    traces: list[WatchedTrace],
    damage: Callable[[pytest.MonkeyPatch], None],
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    damage(monkeypatch)
    found = complaints(traces)
    assert any(complaint in wrong for wrong in found), found


def test_who_joins_when_a_move_has_just_ended_was_not_waited_for() -> None:
    """In the same millisecond, but after it."""
    state = {"ts": 10, "kind": "leader", "leader": 1, "epoch": 2, "zk_version": 2, "isr": [1], "replicas": [1, 3]}
    facts = [
        FactRow(**state | {"ts": 0, "zk_version": 1, "isr": [1, 2], "replicas": [1, 3, 2]}, adding=[], removing=[2]),
        FactRow(**state, adding=[], removing=[]),
        FactRow(10, "isr_expand", leader=1, epoch=2, zk_version=3, replica=3, isr_old=[1], isr=[1, 3], cu=10),
    ]
    assert list(folds_are_wrong(facts)) == []
