"""JSON files as Kafka's tools read them: the first value counts, and every refusal has Kafka's text.

Source: Kafka 3.9 `org.apache.kafka.server.util.Json`, `JsonValue`; spec admin.md §3.2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from controller.admin.cluster.failures import ToolFailure
from controller.admin.toolkit.console import compact

_T = TypeVar("_T")
#: Files of reassignments are read whole; a file above this is a mistake.
FILE_BYTES_MAX: Final = 256 * 1024 * 1024
_BLANKS: Final = " \t\r\n"


class JsonFailure(ToolFailure):
    """A file that is not the JSON it should be. `place` says where, on a line of its own, when that is known."""

    def __init__(
        self, message: str, java_class: str = "com.fasterxml.jackson.databind.JsonMappingException", place: str = ""
    ) -> None:
        super().__init__(message + place, java_class=java_class)
        self.place = place


class NotJson(JsonFailure):
    """Text that is not JSON at all; the message is in the words of Kafka's parser."""

    def __init__(self, message: str, place: str) -> None:
        super().__init__(message, "org.apache.kafka.server.common.AdminOperationException", place)


def read_file(path: str) -> str:
    """The text of a file. Raises ToolFailure (`Unable to read file PATH`)."""
    try:
        file = Path(path)
        if file.stat().st_size > FILE_BYTES_MAX:
            raise ToolFailure(f"Unable to read file {path}: larger than {FILE_BYTES_MAX} bytes")
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise ToolFailure(f"Unable to read file {path}", java_class="java.io.IOException") from error


def parse(text: str) -> Any:
    """The first JSON value of the text; what follows it is ignored. Blank text is None of JSON's values: `BLANK`.

    Raises: NotJson; JsonFailure for empty text.
    """
    if not text:
        raise JsonFailure(
            "The input string shouldn't be empty", "org.apache.kafka.server.common.AdminOperationException"
        )
    stripped = text.lstrip(_BLANKS)
    if not stripped:
        return BLANK
    try:
        value, _ = _DECODER.raw_decode(stripped)
    except (json.JSONDecodeError, RecursionError, _Constant) as error:
        raise _not_json(text, stripped, error) from error
    return value


class _Blank:
    """What a blank file holds."""


BLANK: Final = _Blank()


class _Constant(ValueError):
    """NaN or Infinity, which JSON does not have."""


def _refuse_constant(name: str) -> Any:
    raise _Constant(name)


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)


#: What Python's parser expected, in the words of Kafka's.
_EXPECTED: Final = {
    "Expecting ',' delimiter": "was expecting comma to separate {kind} entries",
    "Expecting ':' delimiter": "was expecting a colon to separate field name and value",
    "Expecting property name enclosed in double quotes": "was expecting double-quote to start field name",
    "Illegal trailing comma before end of object": "was expecting double-quote to start field name",
}
_A_VALUE: Final = "(JSON String, Number, Array, Object or token 'null', 'true' or 'false')"
_WORD: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


def _not_json(text: str, stripped: str, error: Exception) -> NotJson:
    if not isinstance(error, json.JSONDecodeError):
        return NotJson(f"Unexpected value: {error}", "")
    at = error.pos + len(text) - len(stripped)
    while at < len(text) and text[at] in _BLANKS:
        at += 1
    line = text.count("\n", 0, at) + 1
    place = f"\n at [line: {line}, column: {at - text.rfind(chr(10), 0, at)}]"
    if at >= len(text):
        return NotJson(f"Unexpected end-of-input: expected close marker for {_innermost(text)}", place)
    if word := _WORD.match(text, at):
        return NotJson(f"Unrecognized token '{word[0]}': was expecting {_A_VALUE}", place)
    expected = _EXPECTED.get(error.msg, f"expected a valid value {_A_VALUE}")
    return NotJson(
        f"Unexpected character ('{text[at]}' (code {ord(text[at])})): {expected.format(kind=_innermost(text[:at]))}",
        place,
    )


def _innermost(text: str) -> str:
    """What is open at the end of the text: Object or Array."""
    open_ones: list[str] = []
    for match in re.finditer(r'"(?:[^"\\]|\\.)*"?|[][{}]', text):
        if match[0] in "[{":
            open_ones.append(match[0])
        elif match[0] in "]}" and open_ones:
            open_ones.pop()
    return "Array" if open_ones and open_ones[-1] == "[" else "Object"


def show(value: Any) -> str:
    """A value as Kafka's messages print it."""
    return "" if isinstance(value, _Blank) else compact(value)


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


def array_of(value: Any, convert: Callable[[Any], _T]) -> list[_T]:
    """An array of such members. Raises JsonFailure."""
    return [convert(item) for item in as_array(value)]
