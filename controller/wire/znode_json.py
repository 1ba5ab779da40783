"""JSON of znodes: written byte by byte as Kafka does, read with suspicion. Shared by the znode modules."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from controller.wire.types import BrokerId


class ZnodeError(ValueError):
    """The content of a znode that must be right is not. The message names the znode and what is wrong."""


_ENCODE: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_DECODE: Final = json.JSONDecoder().decode
#: What reading unchecked JSON values raises when they have another shape than expected.
MISSHAPEN: Final = (KeyError, TypeError, ValueError, AttributeError, IndexError)


_INTEGERS: Final = frozenset({int})
#: Most documents hold no number as long as this, so none that Jackson's Int would refuse.
_LONG_NUMBER: Final = re.compile(rb"\d{10}")
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1


class _LongNumber(int):
    """A number that is no Java int: no integer here either (`number`), but written again as it stood."""


def _java_int(text: str) -> int:
    value = int(text)
    return value if _INT_MIN <= value <= _INT_MAX else _LongNumber(value)


_DECODE_LONG: Final = json.JSONDecoder(parse_int=_java_int).decode


#: The escape of half of a character; most of them are followed by that of the other half.
_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F]")
#: So much of a document that is wrong is shown.
_SHOWN_BYTES: Final = 200


def dump(value: Any) -> bytes:
    """As Jackson writes by default: UTF-8, no whitespace, keys in the order given."""
    return _ENCODE(value).encode()


def load(data: bytes | None) -> Any:
    """The JSON value, or None when there is none. Half a character, which UTF-8 does not have, is a question mark."""
    if not data:
        return None
    try:
        value = (_DECODE_LONG if _LONG_NUMBER.search(data) else _DECODE)(data.decode())
        return _without_halves(value) if _HALF.search(data) else value
    except (ValueError, RecursionError):
        return None


def _without_halves(value: Any) -> Any:
    """As Java writes such a string (`String.getBytes`)."""
    match value:
        case str():
            return value.encode(errors="replace").decode()
        case list():
            return [_without_halves(each) for each in value]
        case dict():
            return {_without_halves(name): _without_halves(each) for name, each in value.items()}
    return value


def flaw(data: bytes | None, error: Exception) -> str:
    """What is wrong with a document, in words, when reading it as an object raised that error of `MISSHAPEN`; with the
    beginning of the document."""
    if not data:
        return "it is empty"
    shown = repr(data[:_SHOWN_BYTES]) + ("..." if len(data) > _SHOWN_BYTES else "")
    if not isinstance(load(data), dict):
        return f"it is no JSON object: {shown}"
    return f"{f'it has no {error}' if isinstance(error, KeyError) else error}; it holds {shown}"


def number(value: Any) -> int:
    """A JSON integer, as Jackson reads an Int: no booleans, no fractions, no strings, nothing beyond 32 bits."""
    if type(value) is not int:
        raise TypeError(f"{value!r} is {'beyond 32 bits' if isinstance(value, _LongNumber) else 'no integer'}")
    return value


def broker_ids(values: Any) -> tuple[BrokerId, ...]:
    """A JSON list of integers. Raises TypeError for anything else."""
    if type(values) is not list:
        raise TypeError(f"{values!r} is no list")
    if not _INTEGERS.issuperset(map(type, values)):
        raise TypeError(f"{values!r} does not hold integers alone")
    return tuple(values)
