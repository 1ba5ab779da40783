"""What is worth a line, and how finely time is cut: shared by the aggregates, the words and the drawings."""

from __future__ import annotations

from typing import Final

#: A replica that needs longer than this to come back is worth a line.
SLOW_CATCH_UP_MS: Final = 10_000
#: Members that came closer to removal than this share of the lag.
NEAR_REMOVAL: Final = 0.2
DEFAULT_LAG_MS: Final = 30_000
#: The report's course of time in so many pieces.
BUCKETS: Final = 240
