"""Numbers of bytes as a person writes them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from controller.wire.sizes import SIZE_MAX, parse_bytes

SIZES: list[tuple[Any, float]] = [
    ("50MB", 50e6),
    ("1.5 GiB/s", 1.5 * 2**30),
    (17, 17),
    ("10k", 1e4),
    ("2TB", 2e12),
    ("1.5p", 1.5e15),
    ("1PiB", 2**50),
    ("64KiB", 65536),
    ("5B", 5),
    ("9b", 9),
    ("3mb", 3e6),
    ("0", 0),
    (SIZE_MAX, 2.0**63),
]


@pytest.mark.parametrize(("text", "size"), SIZES)
def test_sizes(text: Any, size: float) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["5i", "5ib", "5iB/s", "5 bk", "1e6", "-5MB", "MB", "", ".5", None, True])
def test_what_is_no_size(text: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{text!r} is no size; expected for example 50MB")):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["1Gb", "10 Gb/s", "100Mb", "8Kib", "1Pb"])
def test_bits_are_no_bytes(text: str) -> None:
    """A link's speed is said so; taken for bytes it would be eight links."""
    with pytest.raises(ValueError, match=re.escape(f"{text!r}: Gb and Mb are bits; write it in bytes: 1Gb is 125MB")):
        parse_bytes(text)


@pytest.mark.parametrize("text", [SIZE_MAX + 1, "9223372036854775807.1", "10000PB", "9" * 400])
def test_no_size_is_beyond_all_numbers(text: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{text!r} is more than 9223372036854775807 bytes")):
        parse_bytes(text)
