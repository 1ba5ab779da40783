"""What worlds may have besides since they were first drawn: each from streams of its own, so that a seed in which
nothing of it is on draws the world that it always drew, and others have theirs with more in it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from controller.sim.foreign import FOREIGN
from controller.sim.moments import MOMENTS
from controller.sim.shape import Shape
from controller.sim.winding import WINDING

if TYPE_CHECKING:
    from controller.sim.plan import Step

#: All kinds of steps that are drawn here.
LATE: Final = {**WINDING, **FOREIGN, **MOMENTS}
#: Seconds before such a step.
WAITS_S: Final = (0.2, 0.5, 1.0, 2.0, 4.0)
#: Of all worlds, the share in which a kind of winding way is on.
WINDING_SHARE: Final = 0.4
#: How many steps of what others damage, and of moments that are hard to hit, a world gets.
DAMAGES: Final = (0, 0, 1, 2, 3)
#: The share of worlds whose controllers wait 2 s for the answer to a request, not 30.
IMPATIENT: Final = 0.2


def shape_of(seed: int, shape: Shape) -> Shape:
    """With what its late steps need, late settings, and its late clients."""
    if random.Random(f"{seed}/impatient").random() < IMPATIENT:
        shape = replace(shape, request_timeout_ms=2000)
    return shape


def steps_of(seed: int, steps: Sequence[Step]) -> tuple[Step, ...]:
    """With the late ones, at the end; the others keep their numbers, and what they draw."""
    if not steps:
        return ()
    drawn = enumerate((*_winding(seed), *_damaging(seed)), start=len(steps) + 1)
    late = (replace(steps[0], number=number, wait_s=wait_s, kind=kind) for number, (wait_s, kind) in drawn)
    return (*steps, *late)


def _winding(seed: int) -> Iterator[tuple[float, str]]:
    chance = random.Random(f"{seed}/winding")
    kinds = [kind for kind in WINDING if chance.random() < WINDING_SHARE]
    for _ in range(chance.choice((1, 2, 3)) if kinds else 0):
        yield chance.choice(WAITS_S), chance.choice(kinds)


def _damaging(seed: int) -> Iterator[tuple[float, str]]:
    chance = random.Random(f"{seed}/damaging")
    kinds = [*FOREIGN, *MOMENTS]
    for _ in range(chance.choice(DAMAGES)):
        yield chance.choice(WAITS_S), chance.choice(kinds)
