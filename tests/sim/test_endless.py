"""A world whose program never waits again ends, with the place where it spins."""

from __future__ import annotations

import signal
from functools import partial

import pytest

from controller.sim import play as play_module
from controller.sim.endless import noticed
from controller.sim.plan import draw_plan
from controller.sim.play import KINDS, Play, play

pytestmark = pytest.mark.sim
SMALL = ["steps=1", "brokers=2", "controllers=1", "partitions=1"]


class Spins(Play):
    async def begin(self) -> None:
        await super().begin()
        self.cluster.world.machine("broker-1").start(self.spin())

    async def spin(self) -> None:
        while True:
            self.cluster.numbers()


def test_a_program_that_never_waits_fails_its_world_and_not_those_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = draw_plan(3, KINDS, SMALL)
    assert play(plan).broken == []  # what a world imports would take most of the limit
    monkeypatch.setattr(play_module, "noticed", partial(noticed, cpu_s=0.5))
    broken = play(plan, course=Spins).broken
    assert len(broken) == 1 and broken[0].startswith("no virtual time passes any more, at ")
    assert "Spins.spin" in broken[0]
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)
    assert play(plan).broken == []


def test_time_that_passes_slowly_is_no_standstill() -> None:
    spent, moments = 0, iter(range(1_000_000))
    with noticed(lambda: next(moments), cpu_s=0.02):
        while spent < 2_000_000:
            spent += 1
