"""Numbers of bytes as a person writes them, in arguments and in files. Pure."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

#: No number of bytes is above it: Kafka's have 63 bits.
SIZE_MAX: Final = 2**63 - 1
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*((?:[kmgtp]i?)?b?)(?:/s)?", re.IGNORECASE)
_FACTORS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}


def parse_bytes(value: Any) -> float:
    """`50MB`, `1.5 GiB/s`, or a number of bytes. Raises ValueError, naming what is allowed; for `1Gb`, too: a link's
    speed in bits, of which eight are a byte."""
    found = None if isinstance(value, bool) else _SIZE.fullmatch(str(value).strip())
    if found is None:
        raise ValueError(f"{value!r} is no size; expected for example 50MB, 1.5GiB or a number of bytes")
    if found[2][:1].isupper() and found[2].endswith("b"):
        raise ValueError(f"{value!r}: Gb and Mb are bits; write it in bytes: 1Gb is 125MB")
    unit = found[2].lower()
    base: int = 1024 if "i" in unit else 1000
    size = Decimal(found[1]) * base ** _FACTORS[unit[:1].replace("b", "")]
    if size > SIZE_MAX:
        raise ValueError(f"{value!r} is more than {SIZE_MAX} bytes")
    return float(size)
