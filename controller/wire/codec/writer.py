"""Writers of messages, compiled once per kio schema class. Pure.

Written values are mappings of the schema's names; several times as fast as kio's writers, which build an entity first.
"""

from __future__ import annotations

import dataclasses
import functools
import struct
import typing
import uuid
from collections.abc import Callable
from typing import Any

from controller.wire.codec.schema import FIXED, ZERO_UUID, Field, fields_of, untagged

Writer = Callable[[Any, Callable[[bytes], Any]], None]


def uvarint(value: int) -> bytes:
    """An unsigned varint."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _utf8(text: str) -> bytes:
    """As Java writes it: `?` for half a character, such as a word of the command line that is no UTF-8 has."""
    return text.encode(errors="replace")


def write_text(value: str | None) -> bytes:
    """A nullable string with an int16 length."""
    if value is None:
        return b"\xff\xff"
    data = _utf8(value)
    return struct.pack(">h", len(data)) + data


def _write_blob(value: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if value is None else struct.pack(">i", len(value)) + value


def _write_compact_text(value: str | None) -> bytes:
    return _write_compact_blob(None if value is None else _utf8(value))


def _write_compact_blob(value: bytes | None) -> bytes:
    return b"\x00" if value is None else uvarint(len(value) + 1) + value


def _write_uuid(value: uuid.UUID | None) -> bytes:
    return (value or ZERO_UUID).bytes


def _scalar_writer(field: Field, *, flexible: bool) -> Writer:
    if field.kind == "struct":
        return writer(field.schema)
    encode: Callable[[Any], bytes]
    if field.kind in FIXED:
        encode = struct.Struct(">" + FIXED[field.kind][0]).pack
    elif field.kind == "uuid":
        encode = _write_uuid
    elif field.kind == "string":
        encode = _write_compact_text if flexible else write_text
    else:
        encode = _write_compact_blob if flexible else _write_blob
    may_be_null = (field.nullable and not field.array) or field.kind == "uuid"

    def write(value: Any, out: Callable[[bytes], Any]) -> None:
        if value is None and not may_be_null:
            raise ValueError(f"{field.name} must not be null")
        out(encode(value))

    return write


def _field_writer(field: Field, *, flexible: bool) -> Writer:
    write_one = _scalar_writer(field, flexible=flexible)
    if field.kind == "struct" and field.nullable and not field.array:

        def write_nullable(value: Any, out: Callable[[bytes], Any]) -> None:
            out(b"\xff" if value is None else b"\x01")
            if value is not None:
                write_one(value, out)

        return write_nullable
    if not field.array:
        return write_one
    fixed = FIXED.get(field.kind)

    def write_array(values: Any, out: Callable[[bytes], Any]) -> None:
        if values is None:
            if not field.nullable:
                raise ValueError(f"{field.name} must not be null")
            out(b"\x00" if flexible else b"\xff\xff\xff\xff")
            return
        out(uvarint(len(values) + 1) if flexible else struct.pack(">i", len(values)))
        if fixed:
            out(struct.pack(f">{len(values)}{fixed[0]}", *values))
            return
        for value in values:
            write_one(value, out)

    return write_array


@functools.cache
def writer(schema: Any) -> Writer:
    """A function that writes a mapping of the schema's names through `out`, a taker of bytes.

    It raises ValueError (names not in the schema, null where there must be none) or struct.error.
    """
    untagged = [f for f in fields_of(schema) if f.tag is None]
    tagged = [f for f in fields_of(schema) if f.tag is not None]
    field_names = frozenset(f.name for f in fields_of(schema))
    space: dict[str, Any] = {"known": field_names, "check": functools.partial(_check_names, schema, field_names)}
    lines = ["def write(values, out):", " if not values.keys() <= known: check(values)", " get = values.get"]
    run: list[Field] = []

    def flush() -> None:
        if run:
            space[f"p{len(space)}"] = struct.Struct(">" + "".join((f.fixed or ("", 0))[0] for f in run)).pack
            values = ", ".join(f"get({f.name!r}, {f.default!r})" for f in run)
            lines.append(f" out(p{len(space) - 1}({values}))")
            run.clear()

    for field in untagged:
        if field.fixed:
            run.append(field)
            continue
        flush()
        space[f"d{len(space)}"] = field.default
        space[f"w{len(space)}"] = _field_writer(field, flexible=schema.__flexible__)
        lines.append(f" w{len(space) - 1}(get({field.name!r}, d{len(space) - 2}), out)")
    flush()
    if schema.__flexible__:
        space["tags"] = _tags_writer(tagged)
        lines.append(" tags(values, out)" if tagged else " out(b'\\x00')")
    exec("\n".join(lines), space)
    return typing.cast(Writer, space["write"])


def _tags_writer(tagged: list[Field]) -> Writer:
    writers = [(f, _field_writer(untagged(f), flexible=True)) for f in sorted(tagged, key=lambda f: f.tag or 0)]

    def write(values: Any, out: Callable[[bytes], Any]) -> None:
        present = [(f, w) for f, w in writers if _is_worth_a_tag(values.get(f.name), f.default)]
        out(uvarint(len(present)))
        for field, write_one in present:
            parts: list[bytes] = []
            write_one(values[field.name], parts.append)
            data = b"".join(parts)
            out(uvarint(typing.cast(int, field.tag)) + uvarint(len(data)) + data)

    return write


def _is_worth_a_tag(value: Any, default: Any) -> bool:
    return value is not None and value != default and bool(value or default)


def _check_names(schema: Any, field_names: frozenset[str], values: Any) -> None:
    elsewhere = _names_in_other_versions(schema)
    if wrong := sorted(values.keys() - field_names - elsewhere):
        raise ValueError(f"{schema.__name__} has no field {wrong}; it has {sorted(field_names | elsewhere)}")


@functools.cache
def _names_in_other_versions(schema: Any) -> frozenset[str]:
    """Field names that the structure of this name has in other versions of its message."""
    package, _, module = schema.__module__.rpartition(".")
    message = package.rpartition(".")[0]
    found: set[str] = set()
    for version in range(20):
        try:
            entities = vars(__import__(f"{message}.v{version}.{module}", fromlist=["_"]))
        except ImportError:
            continue
        if dataclasses.is_dataclass(other := entities.get(schema.__name__)):
            found |= {f.name for f in dataclasses.fields(other)}
    # Versions that kio does not have are subclasses of its newest.
    for later in schema.__subclasses__():
        found |= {f.name for f in dataclasses.fields(later)}
    return frozenset(found)
