"""Several rows about the same thing: each counts what it sees, and the slowest decides."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from controller.wire.protocol import ApiKey
from controller.world.simulated.world import World, run_world
from tests.unit.faults.test_in_force import board_of, row


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_each_row_counts_the_requests_that_another_one_hits(order: tuple[int, int]) -> None:
    rows = [row("api", api="Fetch", action="drop", every=2), row("api", api="Fetch", action="delay", delay_ms=5, nth=3)]

    async def scenario(world: World) -> list[Any]:
        board = board_of(world)
        board.replace([rows[n] for n in order])
        return [board.strike(ApiKey.FETCH) for _ in range(6)]

    every, third = rows
    assert run_world(1, scenario) == [None, every, third, every, None, every]


@pytest.mark.parametrize("delays", [*itertools.permutations((100, 300, 200))])
def test_of_slow_disks_the_slowest_decides(delays: tuple[int, ...]) -> None:
    async def scenario(world: World) -> float:
        board = board_of(world)
        board.replace([row("slow_disk", log_dir=None if n else "a", delay_ms=ms) for n, ms in enumerate(delays)])
        return board.disk_wait_s("a", 1)

    assert run_world(1, scenario) == pytest.approx(0.3)
