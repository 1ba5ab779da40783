"""Fixtures: a cluster of brokers in a simulated world."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from controller.world.simulated.world import World, run_world
from tests.worlds.brokers import BrokerCluster, T


@pytest.fixture
def in_memory(tmp_path: Path) -> Callable[[Callable[[BrokerCluster], Coroutine[Any, Any, T]]], T]:
    """Runs a scenario with a cluster on virtual time."""

    runs = itertools.count()

    def run(scenario: Callable[[BrokerCluster], Coroutine[Any, Any, T]], seed: int = 7) -> T:
        async def play(world: World) -> T:
            return await scenario(BrokerCluster(world, tmp_path / str(next(runs))))

        return run_world(seed, play)

    return run
