"""The real controller and real brokers on virtual time: one seed, one run; and nothing breaks that must not."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from controller.sim.many import play_seed
from controller.sim.plan import plan_of
from controller.sim.play import play as play_plan

from .cluster import Cluster, play

pytestmark = pytest.mark.sim


async def a_broker_dies(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.create_topic("t", [(1, 2, 3), (2, 3, 1), (3, 1, 2)])
    cluster.world.machine("client").start(cluster.keep_producing("t", 3))
    await cluster.until(cluster.healthy, within_s=30, what="a healthy topic")
    await cluster.sleep(5)
    cluster.kill(2)
    await cluster.until(
        lambda: all(cluster.state("t", n)["leader"] in (1, 3) for n in range(3)), within_s=30, what="new leaders"
    )
    assert cluster.registered() == {1, 3}
    assert all(2 not in cluster.state("t", n)["isr"] for n in range(3))
    await cluster.sleep(10)
    await cluster.heal()
    await cluster.sleep(60)
    assert [cluster.state("t", n)["leader"] for n in range(3)] == [1, 2, 3], "the preferred leaders lead again"
    await cluster.check_nothing_acknowledged_is_lost()
    assert sum(map(len, cluster.acked.values())) > 100
    assert cluster.invariants.checked >= 10


def test_one_seed_gives_the_same_output_twice(tmp_path: Path) -> None:
    first, second, other = (play(seed, tmp_path / str(n), a_broker_dies) for n, seed in enumerate((8123, 8123, 1)))
    assert first.lines, "the programs log"
    assert first.lines == second.lines
    assert first.acked == second.acked
    assert first.world.network.transcript == second.world.network.transcript, "every byte at the same time"
    assert first.world.network.transcript != other.world.network.transcript


#: Worlds that found something, each with its story. They are plans, so they stay what they are when seeds draw more.
STORIES = json.loads((Path(__file__).parent / "stories.json").read_text(encoding="utf-8"))
#: Always played, as drawn.
FIXED = (0, 1, 3)
#: Other seeds at each run: their number is the day's. A failure names its seed; its plan then belongs to the stories.
FRESH = tuple(date.today().toordinal() * 1000 + number for number in range(4))
SEEDS = (*FIXED, *FRESH)


def story_of(number: int, row: dict[str, Any]) -> Any:
    """As a parameter. Each day plays an eighth of them, `make test-long` the others."""
    is_of_today = (number + date.today().toordinal()) % 8 == 0
    marks = () if is_of_today else (pytest.mark.long,)
    return pytest.param(row, id=f"{row['seed']} {row['story']}", marks=marks)


def test_whatever_fails_everything_holds(seed: int) -> None:
    outcome = play_seed(seed)
    print(f"seed {seed}: {outcome.virtual_s:.0f} virtual seconds, {outcome.records} records")
    assert not outcome.broken, "\n".join([*outcome.taken, *outcome.broken, f"again: kwob sim repeat {seed}"])


def test_a_world_leaves_no_file_open() -> None:
    """Thousands are played in one process."""
    before = len(list(Path("/dev/fd").iterdir()))
    play_seed(FIXED[0], ["steps=1"])
    assert len(list(Path("/dev/fd").iterdir())) <= before


@pytest.mark.parametrize("story", [story_of(number, row) for number, row in enumerate(STORIES)])
def test_what_once_failed_holds(story: dict[str, Any]) -> None:
    outcome = play_plan(plan_of(story))
    assert not outcome.broken, "\n".join([*outcome.taken, *outcome.broken])
