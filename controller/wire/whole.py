"""Numbers in texts that anybody may have written, such as traces and logs. Pure."""

from __future__ import annotations

from typing import Final

#: Kafka's settings and times are signed 64-bit numbers.
_LONG_MAX: Final = 2**63 - 1


def whole(text: str | None) -> int | None:
    """A whole number from 0 on, of up to 63 bits; None for anything else, such as `²`, which is a digit to Python."""
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > len(str(_LONG_MAX)):
        return None
    number = int(text)
    return number if number <= _LONG_MAX else None
