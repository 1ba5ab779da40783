"""The plain version of the ISR's rules: rows of a leader in, complaints out; none for a sound leader."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest

from controller.sim.history import StateWritten
from controller.sim.oracles.traced import Traced
from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode
from controller.wire.trace import TraceEvent
from controller.wire.types import BrokerId, TopicPartition

pytestmark = pytest.mark.sim
TP = TopicPartition("t", 0)
LAG_MS = 1000


class Scene:
    """Broker 1 leads `t-0` with followers 2 and 3; `isr` is what ZooKeeper says."""

    def __init__(self, isr: tuple[int, ...] = (1, 2, 3), min_isr: int = 1) -> None:
        self.led = SimpleNamespace(pending=None, epoch=5)
        self.replica = SimpleNamespace(led=self.led, hw=0)
        table = SimpleNamespace(partitions={TP: self.replica})
        self.broker = SimpleNamespace(replicas=SimpleNamespace(table=table))
        self.brokers = {1: self.broker}
        self.loop_s = 0.0
        cluster: Any = SimpleNamespace(
            settings={"replica.lag.time.max.ms": str(LAG_MS)},
            brokers=self.brokers,
            deletable=set(),
            shape=SimpleNamespace(min_insync_replicas=min_isr),
            world=SimpleNamespace(loop=SimpleNamespace(time=lambda: self.loop_s)),
        )
        written = StateWritten(1, 7, 1, 5, 1, isr)
        self.history: Any = SimpleNamespace(
            states=defaultdict(list, {TP: [written]}),
            lost=set(),
            damaged=set(),
            configured=defaultdict(set),
            announced=lambda topic, partition, key: key[0] < 90,
        )
        self.traced = Traced(cluster, self.history)

    def row(self, event: TraceEvent, ts: int, *, broker: int = 1, **columns: Any) -> None:
        self.traced.row(BrokerId(broker), event, ts, None if event is TraceEvent.TICK else TP, columns)

    def leads(self, *, hw: int = 10, isr: tuple[int, ...] = (1, 2, 3), version: int = 7, broker: int = 1) -> None:
        columns = {"epoch": 5, "leo": 10, "hw": hw, "isr": isr, "replicas": (1, 2, 3), "zk_version": version}
        self.row(TraceEvent.LEADER, 0, broker=broker, **columns)

    def fetch(self, ts: int, replica: int, offset: int, hw: int = 10, err: int = 0) -> None:
        self.row(TraceEvent.FETCH, ts, replica=replica, offset=offset, err=err, hw=hw)

    def append(self, ts: int, leo: int, hw: int = 10) -> None:
        self.row(TraceEvent.APPEND, ts, leo=leo, hw=hw)

    def decides(self, name: str, replicas: list[int], isr: list[int], hw: int = 10) -> None:
        place = {"broker_id": 1, "topic": "t", "partition": 0}
        self.traced.event({"event": name, **place, "replicas": replicas, "isr": isr, "hw": hw})


def all_is_well(scene: Scene) -> None:
    scene.leads()
    for replica in (2, 3):
        scene.fetch(10, replica, 10)
    scene.append(20, 12)
    for replica, hw in ((2, 10), (3, 12)):
        scene.fetch(30, replica, 12, hw)
    scene.row(TraceEvent.TICK, 5000)
    for replica in (2, 3):
        scene.fetch(5900, replica, 12, 12)
    scene.append(6000, 13, 12)
    scene.fetch(6500, 2, 13, 12)
    scene.row(TraceEvent.TICK, 6900)
    scene.row(TraceEvent.TICK, 7100)
    scene.decides(ev.ISR_SHRINK_DECIDED, [3], [1, 2], 12)
    scene.row(TraceEvent.ISR_SHRINK, 7100, err=0, zk_version=8, epoch=5, isr=(1, 2))
    scene.history.states[TP].append(StateWritten(1, 8, 1, 5, 1, (1, 2)))
    scene.fetch(7200, 3, 13, 13)
    scene.decides(ev.ISR_EXPAND_DECIDED, [3], [1, 2, 3], 13)


def a_laggard_stays(scene: Scene) -> None:
    scene.leads()
    scene.append(20, 12)
    scene.row(TraceEvent.TICK, 1500)
    scene.row(TraceEvent.TICK, 2000)


def one_of_two_laggards_stays(scene: Scene) -> None:
    scene.leads()
    scene.append(20, 12)
    scene.row(TraceEvent.TICK, 1500)
    scene.decides(ev.ISR_SHRINK_DECIDED, [3], [1, 2])


def a_follower_that_only_fetches_is_no_member(scene: Scene) -> None:
    scene.leads()
    for ts in range(100, 2000, 100):
        scene.append(ts, 10 + ts)
        for replica in (2, 3):
            scene.fetch(ts + 50, replica, 10 + (200 if replica == 3 else ts))
    scene.row(TraceEvent.TICK, 2000)
    scene.fetch(2001, 2, 2000)


def who_is_at_the_end_leaves(scene: Scene) -> None:
    scene.leads()
    scene.fetch(10, 2, 10)
    scene.row(TraceEvent.TICK, 5000)
    scene.decides(ev.ISR_SHRINK_DECIDED, [2, 3], [1])


def a_follower_joins_below_the_watermark(scene: Scene) -> None:
    scene.leads(isr=(1, 2))
    scene.fetch(10, 3, 9)
    scene.decides(ev.ISR_EXPAND_DECIDED, [3], [1, 2, 3])


def a_follower_joins_below_the_epochs_start(scene: Scene) -> None:
    scene.leads(hw=4, isr=(1, 2))
    scene.fetch(10, 3, 9, 4)
    scene.decides(ev.ISR_EXPAND_DECIDED, [3], [1, 2, 3], 4)


def the_watermark_passes_a_member(scene: Scene) -> None:
    scene.leads()
    scene.append(20, 12)
    scene.fetch(30, 2, 12, 12)


def the_watermark_falls(scene: Scene) -> None:
    scene.leads()
    scene.append(20, 12, 9)


def the_watermark_is_forgotten(scene: Scene) -> None:
    scene.traced.looked_at(1, scene.broker, TP, 8)
    scene.leads(hw=3)


def a_term_that_nobody_wrote(scene: Scene) -> None:
    scene.leads(version=99)


def an_isr_that_nobody_wrote(scene: Scene) -> None:
    scene.leads()
    scene.row(TraceEvent.ISR_SHRINK, 1500, err=0, zk_version=99, epoch=5, isr=(1,))


def acknowledged_above_the_watermark(scene: Scene) -> None:
    scene.leads()
    scene.replica.hw = 10
    scene.traced.acknowledged(1, TP, 11, 0.0)


def acknowledged_by_too_few(scene: Scene) -> None:
    scene.leads(isr=(1,))
    scene.loop_s = 9.0
    scene.replica.hw = 11
    scene.traced.acknowledged(1, TP, 11, 8.0)


def stored_with_too_few(scene: Scene) -> None:
    scene.leads(isr=(1,))
    scene.loop_s = 9.0
    scene.traced.answered(1, TP, ErrorCode.NOT_ENOUGH_REPLICAS, 8.0)
    assert not scene.traced.broken
    scene.traced.answered(1, TP, ErrorCode.REQUEST_TIMED_OUT, 8.0)


def who_was_whole_leaves_too_soon(scene: Scene) -> None:
    scene.leads()
    scene.fetch(600, 2, 10)
    scene.append(700, 12)
    scene.row(TraceEvent.TICK, 1500)
    scene.decides(ev.ISR_SHRINK_DECIDED, [2, 3], [1])


BROKEN = [
    (stored_with_too_few, "stored what it had to refuse"),
    (who_was_whole_leaves_too_soon, "drops 2 of t-0 at 1500, whole at 600"),
    (a_laggard_stays, "a laggard stays"),
    (one_of_two_laggards_stays, "not [2]"),
    (a_follower_that_only_fetches_is_no_member, "does not drop [3]"),
    (who_is_at_the_end_leaves, "drops 2 of t-0, which is at its end"),
    (a_follower_joins_below_the_watermark, "into the ISR of t-0 at offset 9"),
    (a_follower_joins_below_the_epochs_start, "the epoch starts at 10"),
    (the_watermark_passes_a_member, "ISR member 3 has fetched up to -1"),
    (the_watermark_falls, "falls from 10 to 9"),
    (the_watermark_is_forgotten, "it had 8"),
    (a_term_that_nobody_wrote, "a term that nobody wrote"),
    (an_isr_that_nobody_wrote, "an ISR that nobody wrote"),
    (acknowledged_above_the_watermark, "its watermark is 10"),
    (acknowledged_by_too_few, "2 are needed"),
]


def test_a_sound_leader_is_not_blamed() -> None:
    scene = Scene()
    all_is_well(scene)
    assert not scene.traced.broken
    assert scene.traced.rows > 10


@pytest.mark.parametrize(("story", "complaint"), BROKEN, ids=[story.__name__ for story, _ in BROKEN])
def test_what_breaks_a_rule_is_seen(story: Any, complaint: str) -> None:
    scene = Scene(min_isr=2)
    story(scene)
    assert any(complaint in line for line in scene.traced.broken), scene.traced.broken


@pytest.mark.parametrize("looked_first", [True, False])
def test_a_followers_watermark_falls_to_that_with_which_its_leader_begins(looked_first: bool) -> None:
    """2 has 8 from an earlier time, 1 begins to lead with 3; then 2 leads with 3."""
    scene = Scene()
    scene.brokers[2] = scene.broker
    steps = [lambda: scene.traced.looked_at(2, scene.broker, TP, 8), lambda: scene.leads(hw=3)]
    for step in steps if looked_first else reversed(steps):
        step()
    scene.leads(hw=3, broker=2)
    assert not scene.traced.broken
    scene.traced.looked_at(2, scene.broker, TP, 8)
    scene.leads(hw=3, broker=2)
    assert any("it had 8" in line for line in scene.traced.broken), "a leader's own does not fall"


def test_enough_at_the_time_of_the_answer_is_enough() -> None:
    """The ISR shrank after the request was sent, or the topic has a setting of its own: nothing is known."""
    for change in ("shrank since", "configured"):
        scene = Scene(min_isr=2)
        scene.loop_s = 9.0
        scene.leads(isr=(1,))
        scene.replica.hw = 11
        if change == "configured":
            scene.history.configured["t"].add("min.insync.replicas")
        scene.traced.acknowledged(1, TP, 11, 10.0 if change == "configured" else 8.0)
        assert not scene.traced.broken, change
