"""What counts as a number in a text."""

from __future__ import annotations

import pytest

from controller.wire.whole import whole

LARGEST = 2**63 - 1


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("30000", 30_000), ("007", 7), (str(LARGEST), LARGEST)])
def test_numbers(text: str, number: int) -> None:
    assert whole(text) == number


@pytest.mark.parametrize("text", [None, "", "-1", "1.5", " 1", "1_0", "²", "٣", str(LARGEST + 1), "9" * 5_000])
def test_what_is_none(text: str | None) -> None:
    assert whole(text) is None
