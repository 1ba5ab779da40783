"""A plain count beside the quotas: silent while they hold when they must, and not when they hold at another time."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from broker_sim.replicas.quota import ReplicationQuota
from controller.sim.oracles.quota_rates import ASKED_S, QuotaRates, WatchedQuota
from controller.wire.trace import TraceEvent
from controller.wire.types import BrokerId, TopicPartition

pytestmark = pytest.mark.sim
TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
BOUND = 100


class Clock:
    """A broker's clock."""

    def __init__(self) -> None:
        self.ms, self.skew_ms = 1_000_000, 0

    def now_ms(self) -> int:
        return self.ms


def _quota(broken: list[str], clock: Clock) -> WatchedQuota:
    inner = ReplicationQuota(BrokerId(1))
    inner.bound = BOUND
    return WatchedQuota(inner, "the leader 1", clock, broken)


def test_a_quota_that_keeps_its_bound_is_not_complained_of() -> None:
    broken, clock = list[str](), Clock()
    quota, given = _quota(broken, clock), 0
    for _ in range(400):
        if not quota.is_exceeded(clock.ms):
            quota.record(90, clock.ms)
            given += 90
        clock.ms += 100
    assert broken == [] and given == pytest.approx(BOUND * 40, rel=0.3)


def test_a_quota_that_holds_too_late_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    broken, clock = list[str](), Clock()
    quota = _quota(broken, clock)
    monkeypatch.setattr(ReplicationQuota, "is_exceeded", lambda self, now_ms: self.rate(now_ms) > 2 * BOUND)
    for _ in range(200):
        if not quota.is_exceeded(clock.ms):
            quota.record(90, clock.ms)
        clock.ms += 100
    assert "a throttle is not in force: the leader 1, between" in broken[0]


def test_a_quota_that_is_asked_at_another_time_is_found() -> None:
    broken, clock = list[str](), Clock()
    quota = _quota(broken, clock)
    for _ in range(20):
        quota.record(50, clock.ms)
        clock.ms += 1_000
    assert not quota.is_exceeded(clock.ms) and broken == []
    quota.is_exceeded(clock.ms - 60_000)
    assert "a throttle is in force: the leader 1" in broken[0]


class Scene:
    """Broker 2 follows broker 1 in `t`, which is throttled on 2, and in a topic that is not."""

    def __init__(self) -> None:
        self.now_s, self.lags = 1.0, {TP: 0, OTHER: 0}
        self.led = SimpleNamespace(isr=(BrokerId(1), BrokerId(2)))
        tables = {n: self._table(n) for n in (1, 2)}
        fetchers = SimpleNamespace(fetchers={(BrokerId(1), 0): SimpleNamespace(lags=self.lags.items())})
        world = SimpleNamespace(loop=SimpleNamespace(time=lambda: self.now_s), is_disturbed=False)
        brokers = {n: SimpleNamespace(replicas=SimpleNamespace(table=tables[n], fetchers=fetchers)) for n in (1, 2)}
        clock = SimpleNamespace(clock=Clock())
        self.cluster: Any = SimpleNamespace(
            world=world,
            brokers=brokers,
            machine=lambda _: clock,
            paused=set(),
            disks={},
            shape=SimpleNamespace(fetchers=1),
        )
        self.rates = QuotaRates(self.cluster)

    def _table(self, number: int) -> Any:
        quotas = [ReplicationQuota(BrokerId(number)) for _ in range(2)]
        quotas[1].set_throttled("t", "*")
        partitions = {tp: SimpleNamespace(led=self.led if number == 1 else None) for tp in (TP, OTHER)}
        return SimpleNamespace(leader_quota=quotas[0], follower_quota=quotas[1], partitions=partitions)

    def fetch(self, tp: TopicPartition, offset: int, size: int = 0, *, throttled: bool = False) -> list[str]:
        columns = {"err": 0, "replica": 2, "offset": offset, "leo": 9, "bytes": size, "throttled": throttled}
        self.rates.row(BrokerId(1), TraceEvent.FETCH, 0, tp, columns)
        self.now_s += 0.5
        return self.rates.broken

    @property
    def partition(self) -> Any:
        """The leader's replica of the other partition."""
        return self.cluster.brokers[1].replicas.table.partitions[OTHER]

    @property
    def quota(self) -> Any:
        return self.cluster.brokers[2].replicas.table.follower_quota


def test_a_member_that_is_held_back_is_found() -> None:
    scene = Scene()
    assert scene.fetch(TP, 5) == []
    assert "the leader 1 holds back 2, in the ISR of t-0" in scene.fetch(TP, 5, throttled=True)[0]


def test_a_follower_that_does_not_count_what_it_got_is_found() -> None:
    scene = Scene()
    for offset in range(5):
        assert scene.fetch(TP, offset, 70) == []
        scene.quota.record(70, 0)
    for offset in range(5, 9):
        scene.fetch(TP, offset, 70)
    assert "the follower 2 counted" in scene.rates.broken[0]


def test_what_a_follower_has_dropped_does_not_count() -> None:
    """It begins anew while an answer is on its way: what came late with it is told with the next row of its offset."""
    scene = Scene()
    for offset in range(4):
        scene.fetch(TP, offset, 70)
        scene.quota.record(70, 0)
    scene.fetch(TP, 4)
    scene.fetch(TP, 4, 70 + 700)
    scene.quota.record(70, 0)
    assert scene.fetch(TP, 5, 70) == []


def test_a_follower_that_does_not_ask_for_what_is_in_sync_is_found() -> None:
    scene = Scene()
    assert scene.fetch(OTHER, 5) == []
    scene.lags[OTHER] = 3
    for _ in range(int(2 * ASKED_S) + 2):
        assert scene.fetch(TP, 5) == []
    scene.lags[OTHER] = 0
    assert "has not asked 1 for t-1" in scene.fetch(TP, 5)[0]


def _not_led(scene: Scene) -> None:
    scene.partition.led = None


def _led_anew(scene: Scene) -> None:
    scene.partition.led = SimpleNamespace(isr=(BrokerId(1), BrokerId(2)))


def _deleted(scene: Scene) -> None:
    del scene.cluster.brokers[1].replicas.table.partitions[OTHER]


@pytest.mark.parametrize("happens", [_not_led, _led_anew, _deleted])
def test_a_leader_that_leads_it_no_longer_does_not_tell_who_asks(happens: Callable[[Scene], None]) -> None:
    """A follower that did not hear of it asks on, and its lag stays what it was."""
    scene = Scene()
    assert scene.fetch(OTHER, 5) == []
    happens(scene)
    for _ in range(int(2 * ASKED_S) + 3):
        assert scene.fetch(TP, 5) == []
