"""Steps of the kinds that came last: a stream of their own draws them, and they end the list, so that a seed's other
steps stay what they are."""

from __future__ import annotations

import random
from typing import Final

from controller.sim.foreign import FOREIGN
from controller.sim.moments import MOMENTS

LATE: Final = {**FOREIGN, **MOMENTS}
#: How many of them a world gets.
COUNTS: Final = (0, 0, 1, 2, 3)
WAITS_S: Final = (0.1, 1.0, 2.0, 4.0)
#: Their numbers begin above it.
AFTER: Final = 1000


def draw_late(seed: int) -> list[tuple[int, float, str]]:
    """(number, seconds to wait before it, kind) of each."""
    chance = random.Random(f"{seed}/late")
    names = list(LATE)
    count = chance.choice(COUNTS)
    return [(AFTER + n, chance.choice(WAITS_S), chance.choice(names)) for n in range(1, count + 1)]
