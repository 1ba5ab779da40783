"""Times of a rehearsal in words. Pure."""

from __future__ import annotations


def clock(at_ms: int) -> str:
    """`00:16:40`, `1d 02:10:00`, or `12.3 s` within the first minute: how long after the begin."""
    if at_ms < 60_000:
        return f"{at_ms / 1000:.1f} s"
    minutes, seconds = divmod(round(at_ms / 1000), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return (f"{days}d " if days else "") + f"{hours:02}:{minutes:02}:{seconds:02}"
