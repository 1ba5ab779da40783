"""Numbers of 64 bits, as Java adds them: a sum that leaves them goes on at their other end. Pure."""

from __future__ import annotations

from typing import Final

_EDGE: Final = 1 << 63


def as_long(value: int) -> int:
    """What Java makes of a sum that may have left 64 bits."""
    return value if -_EDGE <= value < _EDGE else (value + _EDGE) % (2 * _EDGE) - _EDGE
