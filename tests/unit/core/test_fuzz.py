"""Whatever stands in a znode that the controller reads, whatever it is refused, and whenever: at any read or write.

No record that was acknowledged is lost, no recipe fails, the office is kept (or won again where it is the office's own
znode), what is sound goes on, and after the repair of the znode everything ends well.

A few examples in the plain run, many by name: `pytest -m slow tests/unit/core/test_fuzz.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds.damage import DAMAGES, Damage, Damaged
from tests.worlds.data import SCENES
from tests.worlds.fuzz import few, many, takes_long

FEW = few(60)
MANY = many(8_000)

#: what is done, in this order: mostly one thing, and where it is several they are cut together
SCRIPTS = st.lists(st.sampled_from(sorted(SCENES)), min_size=1, max_size=3, unique=True)


def play(scenes: list[str], damage: Damage, at_step: int, *, lasts: bool) -> None:
    """The damage comes just before the n-th read or write of these scenes."""
    world = Damaged(damage, at_step)
    for name in scenes:
        SCENES[name](world)
        world.go_on()
    world.inflict()  # where the scenes had fewer steps
    if lasts:
        world.sound_goes_on()
    world.repair()
    world.ends_well()


def check(limits: settings) -> Callable[[], None]:
    @limits
    @given(SCRIPTS, DAMAGES, st.integers(1, 40), st.booleans())
    def run(scenes: list[str], damage: Damage, at_step: int, lasts: Any) -> None:
        play(scenes, damage, at_step, lasts=lasts)

    return run


def test_znodes_at_any_step() -> None:
    check(FEW)()


@takes_long
def test_znodes_at_any_step_for_long() -> None:
    check(MANY)()
