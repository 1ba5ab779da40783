"""Numbers of type DOUBLE as Java reads and writes them. Pure.

Source: `Double.valueOf(String)` (but for numbers in hexadecimal, which nobody writes), `Double.toString(double)`.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final

#: Python reads much more: `nan`, `inf`, `1_000`, digits of other scripts.
_DOUBLE: Final = re.compile(r"([+-]?)(?:(NaN|Infinity)|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?)")
#: Numbers from here to there are written without an exponent.
_PLAIN: Final = (1e-3, 1e7)


def parse_double(text: str) -> float:
    """Raises ValueError, for what is no double in Java."""
    match = _DOUBLE.fullmatch(text)
    if match is None:
        raise ValueError("Not a number of type DOUBLE")
    sign, word, digits = match.groups()
    return float(f"{sign}{word or digits}")


def double_text(value: float) -> str:
    """`0.5`, `1.0`, `1.0E7`, `Infinity`."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "-Infinity" if value < 0 else "Infinity"
    if value == 0 or _PLAIN[0] <= abs(value) < _PLAIN[1]:
        return repr(value)
    shortest = Decimal(repr(value))
    digits = "".join(map(str, shortest.as_tuple().digits)).rstrip("0")
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{shortest.adjusted()}"
