"""Readers of messages, compiled once per kio schema class. Pure.

kio has the schemas, as dataclasses. Its own reader cannot be given bytes of a stranger: an array that claims 2^31
entries makes it reserve memory for them and abort the process, and it refuses tagged fields it does not know, which
Kafka skips. The readers made here check every count against the bytes that are left, so memory grows with the frame and
not with what the frame claims.

Read values are instances of a plain class per structure, with kio's field names as attributes; error codes are ints,
durations and times are ints of milliseconds.
"""

from __future__ import annotations

import functools
import struct
import typing
import uuid
from collections.abc import Callable
from typing import Any

from controller.wire.codec.schema import FIXED, Field, fields_of, min_size, untagged

Reader = Callable[[bytes, int], tuple[Any, int]]


class Malformed(ValueError):
    """Bytes that are not what the schema says. The message says what was wrong and at which byte."""


class Message:
    """Base of the read structures: attributes by the schema's names, equality and repr by value."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(getattr(self, n) == getattr(other, n) for n in self.__slots__)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in self.__slots__))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({fields})"


def read_uvarint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned varint of at most 5 bytes: (value, position after it)."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 28:
            raise Malformed(f"varint longer than 5 bytes before byte {at}")


def _size(size: int, data: bytes, at: int) -> int:
    if size < 0 or size > len(data) - at:
        raise Malformed(f"{size} bytes are claimed at byte {at}, {len(data) - at} are left")
    return size


def _count(count: int, each: int, data: bytes, at: int) -> int:
    if count < 0 or count * each > len(data) - at:
        raise Malformed(f"{count} entries are claimed at byte {at}, where {len(data) - at} bytes are left")
    return count


def _text(data: bytes) -> str:
    """What is no UTF-8 becomes U+FFFD, as in Java: client ids and metadata of commits are whatever a program sends."""
    return data.decode("utf-8", "replace")


def read_text(data: bytes, at: int) -> tuple[str | None, int]:
    """A nullable string with an int16 length, below 0 for null: (value, position after it)."""
    size = int.from_bytes(data[at : at + 2], "big", signed=True)
    at += 2
    if size < 0 or size > len(data) - at:
        if size < 0 and at <= len(data):
            return None, at
        raise Malformed(f"a string of {size} bytes is claimed at byte {at}, {len(data) - at} are left")
    return _text(data[at : at + size]), at + size


def _read_blob(data: bytes, at: int) -> tuple[bytes | None, int]:
    (size,) = struct.unpack_from(">i", data, at)
    at += 4
    if size < 0:
        return None, at
    return data[at : at + _size(size, data, at)], at + size


def _read_compact_blob(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = read_uvarint(data, at)
    if size == 0:
        return None, at
    return data[at : at + _size(size - 1, data, at)], at + size - 1


def _read_compact_text(data: bytes, at: int) -> tuple[str | None, int]:
    blob, at = _read_compact_blob(data, at)
    return (None if blob is None else _text(blob)), at


def _read_uuid(data: bytes, at: int) -> tuple[uuid.UUID, int]:
    return uuid.UUID(bytes=data[at : at + _size(16, data, at)]), at + 16


def skip_tags(data: bytes, at: int, count: int) -> int:
    """The position after `count` tagged fields that nobody here knows."""
    for _ in range(_count(count, 2, data, at)):
        _, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        at += _size(size, data, at)
    return at


def _not_null(read: Reader, what: str) -> Reader:
    def checked(data: bytes, at: int) -> tuple[Any, int]:
        value, end = read(data, at)
        if value is None:
            raise Malformed(f"{what} at byte {at} must not be null")
        return value, end

    return checked


def _scalar_reader(field: Field, *, flexible: bool) -> Reader:
    if field.kind in FIXED:
        unpack = struct.Struct(">" + FIXED[field.kind][0])
        return lambda data, at: (unpack.unpack_from(data, at)[0], at + unpack.size)
    if field.kind == "struct":
        return reader(field.schema)
    if field.kind == "uuid":
        return _read_uuid
    plain, compact = {"string": (read_text, _read_compact_text)}.get(field.kind, (_read_blob, _read_compact_blob))
    read: Reader = compact if flexible else plain
    return read if field.nullable and not field.array else _not_null(read, field.name)


def _array_reader(field: Field, *, flexible: bool) -> Reader:
    fixed = FIXED.get(field.kind)
    read_one = None if fixed else _scalar_reader(field, flexible=flexible)
    each = fixed[1] if fixed else min_size(field.schema) if field.kind == "struct" else 1

    def read(data: bytes, at: int) -> tuple[tuple[Any, ...] | None, int]:
        if flexible:
            count, at = read_uvarint(data, at)
            count -= 1
        else:
            (count,) = struct.unpack_from(">i", data, at)
            at += 4
        if count < 0:
            if not field.nullable:
                raise Malformed(f"{field.name} at byte {at} must not be null")
            return None, at
        _count(count, each, data, at)
        if fixed:
            return struct.unpack_from(f">{count}{fixed[0]}", data, at), at + count * fixed[1]
        values = []
        assert read_one is not None
        for _ in range(count):
            value, at = read_one(data, at)
            values.append(value)
        return tuple(values), at

    return read


def _field_reader(field: Field, *, flexible: bool) -> Reader:
    if field.array:
        return _array_reader(field, flexible=flexible)
    read = _scalar_reader(field, flexible=flexible)
    if field.kind != "struct" or not field.nullable:
        return read

    def nullable(data: bytes, at: int) -> tuple[Any, int]:
        (marker,) = struct.unpack_from(">b", data, at)
        return (None, at + 1) if marker < 0 else read(data, at + 1)

    return nullable


@functools.cache
def reader(schema: Any) -> Reader:
    """A function from bytes and a position to (structure, position after it).

    It raises Malformed, struct.error or IndexError for bytes that do not fit, and nothing else.
    """
    fields = fields_of(schema)
    names = [f.name for f in fields]
    cls = type(schema.__name__, (Message,), {"__slots__": tuple(names), "__module__": __name__})
    space: dict[str, Any] = {"new": cls.__new__, "cls": cls, "skip": skip_tags, "uvarint": read_uvarint}
    lines = ["def read(data, at):", " m = new(cls)"]
    run: list[Field] = []

    def flush() -> None:
        if run:
            unpack = struct.Struct(">" + "".join((f.fixed or ("", 0))[0] for f in run))
            space[f"u{len(space)}"] = unpack.unpack_from
            lines.append(
                f" {', '.join('m.' + f.name for f in run)}, = u{len(space) - 1}(data, at); at += {unpack.size}"
            )
            run.clear()

    for field in fields:
        if field.tag is not None:
            continue
        if field.fixed:
            run.append(field)
            continue
        flush()
        space[f"r{len(space)}"] = _field_reader(field, flexible=schema.__flexible__)
        lines.append(f" m.{field.name}, at = r{len(space) - 1}(data, at)")
    flush()
    if schema.__flexible__:
        _read_tags_lines(fields, lines, space)
    lines.append(" return m, at")
    exec("\n".join(lines), space)
    return typing.cast(Reader, space["read"])


def _read_tags_lines(fields: tuple[Field, ...], lines: list[str], space: dict[str, Any]) -> None:
    tagged = {f.tag: f for f in fields if f.tag is not None}
    for field in tagged.values():
        space[f"d_{field.name}"] = None if field.kind == "struct" and not field.array else field.default
        lines.append(f" m.{field.name} = d_{field.name}")
    lines.append(" count = data[at]; at += 1")
    if not tagged:
        lines += [" if count:", "  count, at = uvarint(data, at - 1)", "  at = skip(data, at, count)"]
        return
    readers = {tag: (f.name, _field_reader(untagged(f), flexible=True)) for tag, f in tagged.items()}

    def read_tags(message: Any, data: bytes, at: int, count: int) -> int:
        for _ in range(_count(count, 2, data, at)):
            tag, at = read_uvarint(data, at)
            size, at = read_uvarint(data, at)
            end = at + _size(size, data, at)
            if tag in readers:
                name, read = readers[tag]
                value, at = read(data, at)
                if at != end:
                    raise Malformed(f"tagged field {name} does not end at byte {end}")
                setattr(message, name, value)
            at = end
        return at

    space["read_tags"] = read_tags
    lines += [" if count:", "  count, at = uvarint(data, at - 1)", "  at = read_tags(m, data, at, count)"]
