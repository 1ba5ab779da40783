"""The oracle over trace files: silent for what the rules explain, and not for anything else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from controller.sim.oracles.lanes import replayed
from controller.sim.oracles.replayed import changes_do_not_follow
from controller.sim.oracles.traced import WatchedTrace
from controller.wire.trace import TraceEvent
from controller.wire.types import BrokerId, TopicPartition

pytestmark = pytest.mark.sim
TP = TopicPartition("t", 0)
LAG_MS = 1000


class Life:
    """Broker 1 leads `t-0`, with 10 records and broker 2 as its follower, in one life of its process."""

    def __init__(self, folder: Path, start_ms: int = 0, replicas: Sequence[int] = (1, 2)) -> None:
        self.trace = WatchedTrace(BrokerId(1), folder / str(start_ms), start_ms=start_ms, seen=(), opened=[])
        self.trace.start(start_ms, settings={"replica.lag.time.max.ms": str(LAG_MS)})
        columns = {"epoch": 5, "leo": 10, "offset": 10, "hw": 10, "zk_version": 7}
        self.trace.row(TraceEvent.LEADER, start_ms, TP, **columns, isr=list(replicas), replicas=list(replicas))

    def ticks(self, *times: int) -> None:
        for ts in times:
            self.trace.row(TraceEvent.TICK, ts)

    def writes(self, event: TraceEvent, ts: int, isr: list[int], *, replica: int = 2, done: int | None = None) -> None:
        self.trace.row(event, ts, TP, epoch=5, replica=replica, isr=isr, zk_version=8, done=done)


def test_a_removal_that_is_due_is_explained(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.ticks(500, 1000, 1500)
    life.writes(TraceEvent.ISR_SHRINK, 1500, [1])
    assert list(changes_do_not_follow(replayed([life.trace]))) == []


def test_a_removal_that_is_not_due_is_found(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.ticks(500)
    life.writes(TraceEvent.ISR_SHRINK, 500, [1])
    (found,) = changes_do_not_follow(replayed([life.trace]))
    assert found == "replay: nothing in its trace explains broker 1's isr_shrink of 2 in t-0 at 500"


@pytest.mark.parametrize(("value", "found"), [("keep", 0), ("delete", 1)])
def test_a_leader_that_is_stopped_and_keeps_its_replica_leads_on(tmp_path: Path, value: str, found: int) -> None:
    life = Life(tmp_path)
    life.ticks(500)
    life.trace.row(TraceEvent.STOP, 600, TP, epoch=5, value=value)
    life.ticks(1000, 1500)
    life.writes(TraceEvent.ISR_SHRINK, 1500, [1])
    assert len(list(changes_do_not_follow(replayed([life.trace])))) == found


def test_a_return_without_a_fetch_is_found_in_a_later_life_too(tmp_path: Path) -> None:
    first, second = Life(tmp_path / "1"), Life(tmp_path / "2", 5000)
    second.ticks(6500)
    second.writes(TraceEvent.ISR_SHRINK, 6500, [1])
    second.writes(TraceEvent.ISR_EXPAND, 6600, [1, 2])
    (found,) = changes_do_not_follow(replayed([first.trace, second.trace]))
    assert "isr_expand of 2" in found


def test_a_high_watermark_that_nothing_moved_is_found(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.trace.append_row(100, TP, offset=10, leo=12, hw=10, epoch=5, size_bytes=9, moves_hw=False)
    life.trace.row(TraceEvent.HW, 200, TP, epoch=5, hw=12)
    assert any("high watermarks of t-0 at broker 1" in wrong for wrong in changes_do_not_follow(replayed([life.trace])))


@pytest.mark.parametrize(("done", "found"), [(2400, 1), (3000, 0)])
def test_what_follows_a_change_that_had_to_wait_for_a_write_is_not_judged(
    tmp_path: Path, done: int, found: int
) -> None:
    """The removal of 2 takes until `done`; 3 would leave at 2500, if the leader could, and 3 comes back without it."""
    life = Life(tmp_path, replicas=(1, 2, 3))
    life.trace.append_row(100, TP, offset=10, leo=11, hw=10, epoch=5, size_bytes=9, moves_hw=False)
    life.ticks(500, 1000)
    life.trace.row(TraceEvent.FETCH, 1400, TP, epoch=5, replica=3, offset=11, leo=11, err=0)
    life.ticks(1500)
    life.trace.append_row(1600, TP, offset=11, leo=12, hw=10, epoch=5, size_bytes=9, moves_hw=False)
    life.ticks(2500)
    life.writes(TraceEvent.ISR_SHRINK, 1500, [1, 3], done=done)
    life.writes(TraceEvent.ISR_EXPAND, 3600, [1, 2, 3])
    assert len(list(changes_do_not_follow(replayed([life.trace])))) == found


@pytest.mark.parametrize(("set_back", "found"), [((300,), 0), ((), 1), ((700,), 1)])
def test_what_follows_it_is_not_judged_though_the_clock_was_set_back(
    tmp_path: Path, set_back: Sequence[int], found: int
) -> None:
    """As above; 2 comes back at 600 by a clock that was set back since to 300, or to 700, or not at all."""
    life = Life(tmp_path, replicas=(1, 2, 3))
    life.trace.append_row(100, TP, offset=10, leo=11, hw=10, epoch=5, size_bytes=9, moves_hw=False)
    life.ticks(500, 1000)
    life.trace.row(TraceEvent.FETCH, 1400, TP, epoch=5, replica=3, offset=11, leo=11, err=0)
    life.ticks(1500)
    life.trace.append_row(1600, TP, offset=11, leo=12, hw=10, epoch=5, size_bytes=9, moves_hw=False)
    life.ticks(2500, *set_back)
    life.writes(TraceEvent.ISR_SHRINK, 1500, [1, 3], done=3000)
    life.writes(TraceEvent.ISR_EXPAND, 600, [1, 2, 3])
    assert len(list(changes_do_not_follow(replayed([life.trace])))) == found


@pytest.mark.parametrize(
    ("done", "hw", "found"),
    [(1700, 11, 0), (1550, 11, 1), (1700, 12, 1)],
    ids=["held back", "no fetch while the write was on its way", "it rose"],
)
def test_what_follows_a_high_watermark_that_a_fetch_held_back_is_not_judged(
    tmp_path: Path, done: int, hw: int, found: int
) -> None:
    """The removal of 2 and 3 takes until `done`. 2, which fetched at 1600 as one that was caught up at 900, joins at
    11; the rules, for which the removal was done at 1500, have a high watermark of 12."""
    life = Life(tmp_path, replicas=(1, 2, 3))
    fetch = {"epoch": 5, "replica": 2, "err": 0}
    life.trace.append_row(100, TP, offset=10, leo=11, hw=10, epoch=5, size_bytes=9, moves_hw=False)
    life.ticks(500)
    life.trace.row(TraceEvent.FETCH, 900, TP, **fetch, offset=10, leo=11, hw=10)
    life.ticks(1000)
    life.trace.append_row(1400, TP, offset=11, leo=12, hw=10, epoch=5, size_bytes=9, moves_hw=False)
    life.ticks(1500)
    life.trace.row(TraceEvent.FETCH, 1600, TP, **fetch, offset=11, leo=12, hw=10)
    life.writes(TraceEvent.ISR_SHRINK, 1500, [1, 3], done=done)
    life.writes(TraceEvent.ISR_SHRINK, 1500, [1], replica=3, done=done)
    life.trace.row(TraceEvent.FETCH, 1800, TP, **fetch, offset=11, leo=12, hw=hw)
    life.writes(TraceEvent.ISR_EXPAND, 1800, [1, 2])
    assert len(list(changes_do_not_follow(replayed([life.trace])))) == found


@pytest.mark.parametrize(("fetched", "found"), [(1600, 0), (1750, 1)], ids=["held back", "a fetch after the write"])
def test_a_high_watermark_that_rose_again_with_the_fetch_is_apart_since_it_was_first_higher(
    tmp_path: Path, fetched: int, found: int
) -> None:
    """The removal of 2 takes until 1700. 2, which fetched while that was on its way as one that was caught up at 900,
    joins at 12, when it no longer holds the high watermark of the rules back: theirs, 13 since 1500, becomes 15."""
    life = Life(tmp_path)
    fetch = {"epoch": 5, "replica": 2, "err": 0}
    life.trace.append_row(100, TP, offset=10, leo=11, hw=10, epoch=5, size_bytes=9, moves_hw=False)
    life.ticks(500)
    life.trace.row(TraceEvent.FETCH, 900, TP, **fetch, offset=10, leo=11, hw=10)
    life.ticks(1000)
    life.trace.append_row(1400, TP, offset=11, leo=13, hw=10, epoch=5, size_bytes=9, moves_hw=False)
    life.ticks(1500)
    if fetched < 1700:
        life.trace.row(TraceEvent.FETCH, fetched, TP, **fetch, offset=11, leo=13, hw=11)
    life.writes(TraceEvent.ISR_SHRINK, 1500, [1], done=1700)
    if fetched > 1700:
        life.trace.row(TraceEvent.FETCH, fetched, TP, **fetch, offset=11, leo=13, hw=11)
    life.trace.append_row(1800, TP, offset=13, leo=15, hw=11, epoch=5, size_bytes=9, moves_hw=False)
    life.trace.row(TraceEvent.FETCH, 2400, TP, **fetch, offset=12, leo=15, hw=12)
    life.writes(TraceEvent.ISR_EXPAND, 2400, [1, 2], done=2450)
    assert len(list(changes_do_not_follow(replayed([life.trace])))) == found
