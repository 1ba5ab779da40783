"""What is worth a line, and how finely time is cut: shared by the aggregates, the words and the drawings."""

from __future__ import annotations

from typing import Final

#: A replica that needs longer than this to come back is worth a line.
SLOW_CATCH_UP_MS: Final = 10_000
#: Members that came closer to removal than this share of the lag.
NEAR_REMOVAL: Final = 0.2
DEFAULT_LAG_MS: Final = 30_000
#: Rows kept of every "worst" list.
WORST: Final = 12
#: Brokers in a list: all of a cluster that one would draw; else the ones with the most trouble.
BROKERS_MAX: Final = 60
#: The report's course of time in so many pieces.
BUCKETS: Final = 240
#: The worst of them are looked for among at most so many pieces of equal length, of a length that people count in.
PIECES_MAX: Final = 600
_LENGTHS_MS: Final = tuple(1000 * s for s in (10, 60, 300, 900, 3600, 6 * 3600, 86_400))


def piece_of(span_ms: int) -> int:
    """How long the pieces are in which the worst times are looked for, ms: the shortest length that fits."""
    return next((ms for ms in _LENGTHS_MS if span_ms // ms < PIECES_MAX), -(-span_ms // PIECES_MAX))
