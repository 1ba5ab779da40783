"""What goes round and round: ISRs that change without an end, while nothing comes nearer to its end. Pure.

Where a link is too narrow for what clients write, followers fall behind, leave the ISR, catch up while producers are
refused, join it, and fall behind again: such a rehearsal is never quiet, and never over.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Final

#: As long nothing must have come nearer to its end.
LONG_MS: Final = 3_600_000
#: As often must ISRs have changed meanwhile.
OFTEN: Final = 20
#: Less than this part of what is left is no progress: looks are at any moment of a round.
_NEARER: Final = 0.999


class Rounds:
    """Told at each look what is so."""

    def __init__(self, *, long_ms: float = LONG_MS) -> None:
        self._long_ms = long_ms
        self._stage: Hashable = None
        self._least_bytes = math.inf
        self._since_ms = self._isr_changes = 0

    def goes_round(self, now_ms: int, stage: Hashable, *, left_bytes: float, isr_changes: int) -> bool:
        """Whether nothing comes nearer to its end any more.

        `stage`: what is another when something has begun or ended; `left_bytes`: what copies lack; `isr_changes`: how
        many there have been.
        """
        if stage != self._stage:
            self._stage, self._least_bytes = stage, math.inf
        if left_bytes < self._least_bytes * _NEARER:
            self._least_bytes, self._since_ms, self._isr_changes = left_bytes, now_ms, isr_changes
        return now_ms - self._since_ms >= self._long_ms and isr_changes - self._isr_changes >= OFTEN
