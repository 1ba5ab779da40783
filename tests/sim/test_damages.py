"""Operations that damage znodes, or hit hard moments: each acts, and a sound cluster comes through."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from controller.sim.closing import no_coordinator
from controller.sim.plan import Plan, Step
from controller.sim.play import play
from controller.sim.shape import Shape
from controller.sim.steps.foreign import FOREIGN
from controller.sim.steps.moments import MOMENTS
from controller.sim.steps.twists import TWISTS

pytestmark = [pytest.mark.sim, pytest.mark.long]
SHAPE = Shape(brokers=3, controllers=2, partitions=2, idempotent_producers=1, lag_time_max_ms=1000)


@pytest.mark.parametrize("kind", sorted({**FOREIGN, **MOMENTS, **TWISTS}))
def test_a_sound_cluster_comes_through(kind: str) -> None:
    steps = Step(1, 1.0, "create_topic"), Step(2, 2.0, "create_topic"), Step(3, 2.0, kind), Step(4, 9.0, kind)
    shape = replace(SHAPE, brokers=4, log_dirs=2) if kind in TWISTS else SHAPE
    outcome = play(Plan(seed=5, shape=shape, weights={}, steps=steps))
    assert outcome.broken == []
    assert any(kind in line and "nothing to act on" not in line for line in outcome.taken), outcome.taken


def test_a_controller_that_never_knows_a_coordinator_is_found() -> None:
    codes = [15, 15, 0]

    async def ask(*_: object) -> Any:
        return SimpleNamespace(error_code=codes.pop(0) if codes else 15)

    async def sleep(_: float) -> None:
        pass

    cluster: Any = SimpleNamespace(ask_controller=ask, world=SimpleNamespace(sleep=sleep))
    assert asyncio.run(no_coordinator(cluster)) == []
    assert "gets no coordinator, but error 15" in asyncio.run(no_coordinator(cluster))[0]
