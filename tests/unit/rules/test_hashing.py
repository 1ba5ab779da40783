"""Java's string hash, and the order of Scala's maps: known answers."""

from __future__ import annotations

from itertools import permutations

import pytest

from controller.rules.hashing import group_partition, java_hash, positive, scala_order

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


#: What a coordinator of Kafka 3.9.1 chose where each protocol had one vote.
FIRST = {
    "roundrobin": ["sticky roundrobin", "roundrobin a b", "BB v1 roundrobin", "a sticky roundrobin"],
    "cooperative-sticky": [
        "BB cooperative-sticky",
        "v1 cooperative-sticky zz",
        "range cooperative-sticky compatible b",
    ],
    "eager": ["Aa b eager", "range eager", "sticky BB range eager", "v1 eager zz", "compatible eager"],
    "sessioned": ["cooperative-sticky sessioned eager"],
    "compatible": ["sticky compatible", "compatible sessioned"],
    "sticky": ["a sticky zz Aa"],
    "Aa": ["v1 Aa b", "compatible range v1 Aa", "sticky Aa"],
    "a": ["range a", "zz a", "sticky b a"],
    "b": ["b sessioned BB Aa", "range sessioned zz b"],
    "v1": ["v1 sticky range"],
}


@pytest.mark.parametrize(("first", "names"), [(first, names) for first, rows in FIRST.items() for names in rows])
def test_what_comes_first_in_a_map_of_scala(first: str, names: str) -> None:
    for given in permutations(names.split()):
        assert scala_order(given, java_hash)[0] == first


def test_names_that_share_places_come_after_those_that_do_not_and_equal_hashes_as_they_are_given() -> None:
    names = [f"n{number}" for number in range(300)]
    found = scala_order(names, java_hash)
    assert sorted(found) == sorted(names) and found == scala_order(names[::-1], java_hash)
    assert scala_order([], java_hash) == []
    assert [scala_order(pair, java_hash) for pair in (["Aa", "BB"], ["BB", "Aa"])] == [["Aa", "BB"], ["BB", "Aa"]]
