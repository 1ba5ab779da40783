"""A plain count of throttled bytes: silent while a quota holds, and not when it lets pass what it must not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker_sim.replicas.quota import ReplicationQuota
from controller.sim.oracles.quotas import ELAPSED_S, Quotas
from controller.wire.trace import TraceEvent
from controller.wire.types import BrokerId, TopicPartition

pytestmark = pytest.mark.sim
TP = TopicPartition("t", 0)
BOUND = 100


class Scene:
    """Broker 1 leads `t-0`, alone in its ISR; broker 2 copies from it. `throttled` names who has a throttle."""

    def __init__(self, *throttled: int) -> None:
        self.now_s = 0.0
        self.led = SimpleNamespace(isr=(BrokerId(1),))
        cluster: Any = SimpleNamespace(
            world=SimpleNamespace(loop=SimpleNamespace(time=lambda: self.now_s)),
            machine=lambda number: SimpleNamespace(clock=SimpleNamespace(skew_ms=0)),
            brokers={number: self._broker(number, number in throttled) for number in (1, 2)},
        )
        self.quotas = Quotas(cluster)

    def _broker(self, number: int, is_throttled: bool) -> Any:
        both = [ReplicationQuota(BrokerId(number)) for _ in range(2)]
        for quota in both if is_throttled else ():
            quota.bound = BOUND
            quota.set_throttled("t", "*")
        partitions = {TP: SimpleNamespace(led=self.led if number == 1 else None)}
        table = SimpleNamespace(leader_quota=both[0], follower_quota=both[1], partitions=partitions)
        return SimpleNamespace(replicas=SimpleNamespace(table=table))

    def fetches(self, *sizes: int, every_s: float = 0.1, throttled: bool = False) -> list[str]:
        for size in sizes:
            columns = {"err": 0, "replica": 2, "offset": 5, "leo": 90, "bytes": size, "throttled": throttled}
            self.quotas.row(BrokerId(1), TraceEvent.FETCH, 0, TP, columns)
            self.now_s += every_s
        return self.quotas.broken


MUCH = int(BOUND * ELAPSED_S) + 1


def test_one_answer_may_be_more_than_the_bound() -> None:
    scene = Scene(1)
    assert scene.fetches(0, MUCH, 0, 0) == []
    assert scene.quotas.bites == 2


def test_a_leader_that_goes_on_giving_is_found() -> None:
    assert "the leader 1 lets 7 bytes of t-0 pass" in Scene(1).fetches(0, MUCH, 7)[0]


def test_what_an_answer_that_was_held_back_brings_from_before_is_forgiven() -> None:
    scene = Scene(1)
    scene.fetches(0, MUCH)
    assert scene.fetches(7, throttled=True) == []


def test_what_a_follower_got_before_it_was_held_back_for_long_went_then() -> None:
    """It waited for its answer at the leader, and tells of it with its next fetch."""
    scene = Scene(1)
    scene.fetches(0, every_s=11.0)
    assert scene.fetches(MUCH, 7) == []
    assert "the leader 1 lets 7 bytes of t-0 pass" in scene.fetches(MUCH, 7)[0]


def test_a_member_of_the_isr_is_not_held_back() -> None:
    scene = Scene(1)
    scene.led.isr = (BrokerId(1), BrokerId(2))
    assert scene.fetches(0, MUCH, 7) == []


def test_a_follower_that_goes_on_asking_is_found_when_nothing_is_under_way_any_more() -> None:
    scene = Scene(2)
    assert scene.fetches(0, MUCH, 7, every_s=0.4) == []
    assert "the follower 2 lets 7 bytes of t-0 pass" in scene.fetches(*[7] * 9, every_s=0.4)[0]


def test_long_ago_does_not_count() -> None:
    scene = Scene(1)
    scene.fetches(0, MUCH)
    scene.now_s += 20
    assert scene.fetches(7, 7) == []
