"""A clock for deadlines, which nobody sets."""

from __future__ import annotations

import asyncio

from controller.world.ports import Clock


class SteadyClock:
    """`ports.Clock` that goes on evenly when the machine's clock is set: the time of day when it was first asked, and
    what the event loop has counted since. Source: Kafka's `SystemTimer` on `Time.hiResClockMs`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_ms: int | None = None

    def now_ms(self) -> int:
        """Milliseconds since the epoch, as first seen. Raises: RuntimeError, outside of an event loop."""
        loop_ms = round(asyncio.get_running_loop().time() * 1000)
        if self._ahead_ms is None:
            self._ahead_ms = self._clock.now_ms() - loop_ms
        return self._ahead_ms + loop_ms
