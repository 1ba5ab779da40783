"""The time of day on the virtual loop."""

from __future__ import annotations

import asyncio
from typing import Final

#: Where simulated time begins, in ms since the epoch: 2021-01-01, so that runs are alike on every day.
START_MS: Final = 1_609_459_200_000


class SimulatedClock:
    """`ports.Clock` that moves with the loop. `skew_ms` is how far it is ahead."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, skew_ms: int = 0) -> None:
        self._loop = loop
        #: May be changed at any time: a clock that jumps.
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return START_MS + self.skew_ms + round(self._loop.time() * 1000)
