"""What worlds may have besides since they were first drawn: each from a stream of its own, so that a seed in which
nothing of it is on draws the world that it always drew, and others have theirs with more in it.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from controller.sim.shape import Shape

#: Names of the operations in `log_troubles`.
TROUBLES: Final = (
    *("deaf_broker", "fall_behind", "move_dirs_in_trouble", "deleted_and_back", "starved"),
    *("disk_fails_midway", "reborn_at_once"),
)
#: Shares of the worlds.
IN_TROUBLE, KEYED, PROBED = 0.45, 0.3, 0.3
#: Where logs are in trouble, housekeeping is soon, and nothing else is needed but dirs to move between.
SOON_MS: Final = 1500


def troubles_of(seed: int) -> list[str]:
    """The kinds of trouble with logs that a world has; mostly none."""
    chance = random.Random(f"{seed}/logs")
    return chance.sample(TROUBLES, chance.choice((1, 2, 3))) if chance.random() < IN_TROUBLE else []


def shape_of(seed: int, shape: Shape) -> Shape:
    """With what its troubles need, and its late clients."""
    chance = random.Random(f"{seed}/late clients")
    keyed, probed = int(chance.random() < KEYED), int(chance.random() < PROBED)
    troubles = troubles_of(seed)
    if troubles or keyed:
        shape = replace(shape, housekeeping_ms=SOON_MS)
    if "move_dirs_in_trouble" in troubles:
        shape = replace(shape, log_dirs=2, fetch_bytes=300)  # so that a copy takes several steps
    return replace(shape, keyed_producers=keyed, replica_probers=probed)


def steps_of(seed: int, count: int) -> list[tuple[int, int, float, str]]:
    """(number, place, seconds to wait, kind) of the steps that are put between `count` others, one after another; the
    others keep their numbers, and what they draw."""
    troubles, chance = troubles_of(seed), random.Random(f"{seed}/log steps")
    found: list[tuple[int, int, float, str]] = []
    if troubles and count:
        for number in range(count + 1, count + 1 + chance.choice((2, 3, 4))):
            kind, wait_s = chance.choice(troubles), chance.choice((0.2, 1.0, 2.0))
            found.append((number, chance.randint(0, count + len(found)), wait_s, kind))
    return found
