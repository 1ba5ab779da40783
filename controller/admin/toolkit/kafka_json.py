"""JSON files as Kafka's tools read them: the first value counts, and every refusal has Kafka's text.

Source: Kafka 3.9 `org.apache.kafka.server.util.Json`, `JsonValue`; spec admin.md §3.2.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from controller.admin.cluster.failures import ToolFailure
from controller.admin.toolkit.jackson import NUMBER_MAX, complaint
from controller.rules.configs.doubles import double_text

_T = TypeVar("_T")
#: Files of reassignments are read whole; a file above this is a mistake.
FILE_BYTES_MAX: Final = 256 * 1024 * 1024
_BLANKS: Final = " \t\r\n"
_EMPTY: Final = "The input string shouldn't be empty\n at [Source: UNKNOWN; byte offset: #UNKNOWN]"
_OPERATION: Final = "org.apache.kafka.server.common.AdminOperationException"


class JsonFailure(ToolFailure):
    """A file that is not the JSON it should be."""

    def __init__(self, message: str, java_class: str = "com.fasterxml.jackson.databind.JsonMappingException") -> None:
        super().__init__(message, java_class=java_class)


class NotJson(JsonFailure):
    """Text that is not JSON at all; the message is that of Kafka's parser, with the place on a line of its own."""


def read_file(path: str) -> str:
    """The text of a file, with U+FFFD for what is no UTF-8, as in Java. Raises ToolFailure (`Unable to read file`)."""
    try:
        file = Path(path)
        if file.stat().st_size > FILE_BYTES_MAX:
            raise ToolFailure(f"Unable to read file {path}: larger than {FILE_BYTES_MAX} bytes")
        return file.read_bytes().decode(errors="replace")
    except (OSError, ValueError) as error:
        raise ToolFailure(f"Unable to read file {path}", java_class="java.io.IOException") from error


def parse(text: str, *, newer: bool = False) -> Any:
    """The first JSON value of the text; what follows it is ignored. Blank text is None of JSON's values: `BLANK`.

    `newer`: faults in the words of 4.1. Raises: NotJson; JsonFailure for empty text.
    """
    if not text:
        raise JsonFailure(_EMPTY, _OPERATION)
    stripped = text.lstrip(_BLANKS)
    if not stripped:
        return BLANK
    try:
        value, _ = _DECODER.raw_decode(stripped)
    except (ValueError, RecursionError) as error:
        raise NotJson(complaint(text, newer=newer) or f"Unexpected value: {error}", _OPERATION) from error
    if isinstance(value, int | float) and (fault := complaint(text, newer=newer)) is not None:
        raise NotJson(fault, _OPERATION)  # a number alone, which Kafka's parser wants apart from what follows
    return value


class _Blank:
    """What a blank file holds."""


BLANK: Final = _Blank()


def _refuse_constant(name: str) -> Any:
    """NaN or Infinity, which JSON does not have."""
    raise ValueError(name)


def _number(text: str, convert: Callable[[str], Any]) -> Any:
    """Of thousands of digits Python makes no number, and Kafka's parser none of more than it allows."""
    if len(text) > NUMBER_MAX and sum(map(str.isdigit, text.lstrip("-0"))) > NUMBER_MAX:
        raise ValueError("a number of too many digits")
    return convert(text)


_DECODER: Final = json.JSONDecoder(
    parse_constant=_refuse_constant,
    parse_int=partial(_number, convert=int),
    parse_float=partial(_number, convert=float),
)


def show(value: Any) -> str:
    """A value as Kafka's messages print it."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{show(name)}:{show(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{','.join(map(show, value))}]"
    if isinstance(value, float):
        return double_text(value) if math.isfinite(value) else f'"{double_text(value)}"'
    return "" if isinstance(value, _Blank) else json.dumps(value, ensure_ascii=False)


def as_object(value: Any) -> dict[str, Any]:
    """Raises JsonFailure unless it is an object."""
    if not isinstance(value, dict):
        raise JsonFailure(f"Expected JSON object, received {show(value)}")
    return value


def as_array(value: Any) -> list[Any]:
    """Raises JsonFailure unless it is an array."""
    if not isinstance(value, list):
        raise JsonFailure(f"Expected JSON array, received {show(value)}")
    return value


def as_integer(value: Any) -> int:
    """Raises JsonFailure unless it is a whole number that fits Java's int."""
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**31) <= value < 2**31:
        raise JsonFailure(f"Expected `Integer` value, received {show(value)}")
    return value


def as_string(value: Any) -> str:
    """Raises JsonFailure unless it is a string."""
    if not isinstance(value, str):
        raise JsonFailure(f"Expected `String` value, received {show(value)}")
    return value


def member(value: dict[str, Any], name: str) -> Any:
    """A member that must be there. Raises JsonFailure."""
    if name not in value:
        raise JsonFailure(f"No such field exists: `{name}`")
    return value[name]


def array_of(value: Any, convert: Callable[[Any], _T], complaint: str) -> list[_T]:
    """An array of such members. Raises JsonFailure, in the words that are passed in: `{value}` is what is there."""
    if not isinstance(value, list):
        raise JsonFailure(complaint.format(value=show(value)))
    return [convert(item) for item in value]
