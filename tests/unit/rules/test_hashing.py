"""Java's string hash, known answers."""

from __future__ import annotations

import pytest

from controller.rules.hashing import group_partition, java_hash, positive

LEAST = -2147483648


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", LEAST), ("\U0001f600", 1772899)],
)
def test_java_hash(text: str, expected: int) -> None:
    assert java_hash(text) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(0, 0), (7, 7), (-7, 7), (LEAST, 0), (LEAST + 1, 2147483647), (2147483647, 2147483647)]
)
def test_the_absolute_value_of_the_least_int_is_0(value: int, expected: int) -> None:
    assert positive(value) == expected


def test_a_group_whose_hash_has_no_absolute_value_is_on_partition_0() -> None:
    assert group_partition("polygenelubricants", 50) == 0
