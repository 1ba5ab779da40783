"""The machine's clock behind `ports.Clock`."""

from __future__ import annotations

import time


class SystemClock:
    """Wall-clock time. It may jump when the machine's clock is set; durations are measured with `loop.time()`."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000
