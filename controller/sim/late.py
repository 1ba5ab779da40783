"""What worlds may have besides since they were first drawn: each from streams of its own, so that a seed in which
nothing of it is on draws the world that it always drew, and others have theirs with more in it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

from controller.sim.foreign import FOREIGN
from controller.sim.log_troubles import LOG_TROUBLES
from controller.sim.moments import MOMENTS
from controller.sim.shape import Shape
from controller.sim.tooled import TOOLS
from controller.sim.twists import TWISTS
from controller.sim.winding import WINDING

#: All kinds of steps that are drawn here.
LATE: Final = {**LOG_TROUBLES, **WINDING, **TOOLS, **FOREIGN, **MOMENTS, **TWISTS}
#: Seconds before such a step.
WAITS_S: Final = (0.2, 0.5, 1.0, 2.0, 4.0)
#: Of all worlds, the share in which a kind of winding way, or the tool that moves replicas, is on.
WINDING_SHARE: Final = 0.4
#: How many steps of what others damage, and of moments that are hard to hit, a world gets.
DAMAGES: Final = (0, 0, 1, 2, 3)
#: The share of worlds with twists: an office or a move that goes wrong at one given step.
TWISTED: Final = 0.3
#: The share of worlds whose controllers wait 2 s for the answer to a request, not 30.
IMPATIENT: Final = 0.2
#: Shares of the worlds whose logs get into trouble, with a producer of a compacted topic, with a prober of replicas.
IN_TROUBLE, KEYED, PROBED = 0.45, 0.3, 0.3
#: The share of worlds with a crowd, and how many it has.
CROWDED: Final = 0.4
CROWDS: Final = (3, 4, 6)
#: Where logs are in trouble, housekeeping is soon.
SOON_MS: Final = 1500


def shape_of(seed: int, shape: Shape) -> Shape:
    """With what its late steps need, late settings, and its late clients."""
    if random.Random(f"{seed}/impatient").random() < IMPATIENT:
        shape = replace(shape, request_timeout_ms=2000)
    crowd = random.Random(f"{seed}/crowd")
    if crowd.random() < CROWDED:
        shape = replace(shape, crowd=crowd.choice(CROWDS))
    chance = random.Random(f"{seed}/late clients")
    keyed, probed = int(chance.random() < KEYED), int(chance.random() < PROBED)
    troubles = troubles_of(seed)
    if troubles or keyed:
        shape = replace(shape, housekeeping_ms=SOON_MS)
    if "move_dirs_in_trouble" in troubles:
        shape = replace(shape, log_dirs=2, fetch_bytes=300)  # so that a copy takes several steps
    return replace(shape, keyed_producers=keyed, replica_probers=probed)


def steps_of(seed: int, count: int) -> list[tuple[int, int, float, str]]:
    """(number, place, seconds to wait, kind) of the steps put to `count` others, one after another: troubles of
    logs in between, the rest at the end; of each sort no more than of the others. These keep their numbers, and what
    they draw."""
    chance, found = random.Random(f"{seed}/places"), list[tuple[int, int, float, str]]()
    for wait_s, kind in islice(_troubling(seed), count):
        found.append((count + len(found) + 1, chance.randint(0, count + len(found)), wait_s, kind))
    for wait_s, kind in (
        *islice(_winding(seed), count),
        *islice(_damaging(seed), count),
        *islice(_twisting(seed), count),
    ):
        found.append((count + len(found) + 1, count + len(found), wait_s, kind))
    return found


def troubles_of(seed: int) -> list[str]:
    """The kinds of trouble with logs that a world has."""
    chance = random.Random(f"{seed}/logs")
    return chance.sample(list(LOG_TROUBLES), chance.choice((1, 2, 3))) if chance.random() < IN_TROUBLE else []


def _troubling(seed: int) -> Iterator[tuple[float, str]]:
    chance, kinds = random.Random(f"{seed}/log steps"), troubles_of(seed)
    for _ in range(chance.choice((2, 3, 4)) if kinds else 0):
        yield chance.choice(WAITS_S), chance.choice(kinds)


def _winding(seed: int) -> Iterator[tuple[float, str]]:
    chance = random.Random(f"{seed}/winding")
    kinds = [kind for kind in (*WINDING, *TOOLS) if chance.random() < WINDING_SHARE]
    for _ in range(chance.choice((1, 2, 3)) if kinds else 0):
        yield chance.choice(WAITS_S), chance.choice(kinds)


def _damaging(seed: int) -> Iterator[tuple[float, str]]:
    chance, kinds = random.Random(f"{seed}/damaging"), [*FOREIGN, *MOMENTS]
    for _ in range(chance.choice(DAMAGES)):
        yield chance.choice(WAITS_S), chance.choice(kinds)


def _twisting(seed: int) -> Iterator[tuple[float, str]]:
    chance = random.Random(f"{seed}/twisting")
    for _ in range(chance.choice((1, 2)) if chance.random() < TWISTED else 0):
        yield chance.choice(WAITS_S), chance.choice(list(TWISTS))
