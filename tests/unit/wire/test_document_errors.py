"""What is wrong with a document, and where."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from controller.wire.document_errors import NotYaml, first_error, read


class Slow(BaseModel):
    do: Literal["slow"]
    stop: int


class Stop(BaseModel):
    do: Literal["stop"]


EVENT = TypeAdapter[Slow | Stop](Annotated[Slow | Stop, Field(discriminator="do")])


def test_a_part_that_is_called_as_a_kind_is_of_the_document() -> None:
    """Pydantic puts the kind, and that alone, before the place."""
    with pytest.raises(ValidationError) as found:
        EVENT.validate_python({"do": "slow", "stop": "soon"})
    expected = (("stop",), "stop: expected a whole number, not 'soon'")
    assert first_error(found.value, hidden=("slow", "stop")) == expected


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ("a: 1\nb: 2\na: 3", 3, "a"),
        ("rows:\n- {x: 1}\n- {x: 1, y: 2,\n   x: 3}", 4, "x"),
        ("a:\n  b:\n    1: x\n    1: y", 4, "1"),
        ('{"a": {"b": 1,\n"b": 1}}', 2, "b"),
    ],
    ids=["at the top", "in a row", "below, a number", "as JSON"],
)
def test_a_key_that_is_there_twice_is_refused_wherever_it_is(text: str, line: int, key: str) -> None:
    with pytest.raises(NotYaml, match=f"^f.yaml, line {line}: not YAML: '{key}' is there twice$"):
        read(text, "f.yaml")


def test_the_same_key_of_other_mappings_and_what_another_mapping_lends_are_no_second_one() -> None:
    text = "base: &base {a: 1, b: 2}\nrows: [{a: 1}, {a: 2}]\nown: {<<: *base, b: 3}"
    assert read(text, "f.yaml") == {"base": {"a": 1, "b": 2}, "rows": [{"a": 1}, {"a": 2}], "own": {"a": 1, "b": 3}}


@pytest.mark.parametrize("text", ["a: 1\nb: [2020-01-01,\n  2026-13-45]", "a: &it\n- *it\n- 2026-13-45"])
def test_what_looks_like_a_value_and_is_none_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(NotYaml, match=r"^f.yaml, line 3: month must be in 1..12; text may stand in quotes$"):
        read(text, "f.yaml")


def test_times_with_colons_are_texts_and_other_numbers_are_numbers() -> None:
    text = "[1:30, 1:30:00, 01:30, 1:30.5, -2:00, 10, 1_000, 0x10, 1.5, .inf]"
    times = ["1:30", "1:30:00", "01:30", "1:30.5", "-2:00"]
    assert read(text, "f.yaml") == [*times, 10, 1000, 16, 1.5, float("inf")]
