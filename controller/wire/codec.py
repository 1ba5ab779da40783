"""From a kio schema class to functions that read and write it, compiled once per class.

kio has the schemas, as dataclasses. Its own reader cannot be given bytes of a stranger: an array that claims 2^31
entries makes it reserve memory for them and abort the process, and it refuses tagged fields it does not know, which
Kafka skips. The readers made here check every count against the bytes that are left, so memory grows with the frame and
not with what the frame claims; the writers are several times as fast as kio's, which matters to a controller.

Read values are instances of a plain class per structure, with kio's field names as attributes; error codes are ints,
durations and times are ints of milliseconds. Written values are mappings of the same names. Pure.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import struct
import types
import typing
import uuid
from collections.abc import Callable
from typing import Any, Final

#: kafka_type -> (struct letter, bytes) for the types of fixed size.
_FIXED: Final = {
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "bool": ("?", 1),
    "float64": ("d", 8),
    "error_code": ("h", 2),
    "timedelta_i32": ("i", 4),
    "timedelta_i64": ("q", 8),
    "datetime_i64": ("q", 8),
}
_ZERO_UUID: Final = uuid.UUID(int=0)

Reader = Callable[[bytes, int], tuple[Any, int]]
Writer = Callable[[Any, Callable[[bytes], Any]], None]


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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    name: str
    kind: str  # a kafka_type, or "struct"
    array: bool
    nullable: bool
    tag: int | None
    default: Any  # plain: what is written when a mapping leaves the field out
    schema: Any  # of a "struct"

    @property
    def fixed(self) -> tuple[str, int] | None:
        return None if self.array or self.tag is not None else _FIXED.get(self.kind)


@functools.cache
def _fields(schema: Any) -> tuple[_Field, ...]:
    hints = typing.get_type_hints(schema)
    return tuple(_field(f, hints[f.name]) for f in dataclasses.fields(schema))


def _field(field: Any, hint: Any) -> _Field:
    inner, nullable = _without_none(hint)
    array = typing.get_origin(inner) is tuple
    if array:
        inner, _ = _without_none(typing.get_args(inner)[0])
    is_struct = dataclasses.is_dataclass(inner)
    kind = "struct" if is_struct else field.metadata["kafka_type"]
    return _Field(
        name=field.name,
        kind=kind,
        array=array,
        nullable=nullable,
        tag=field.metadata.get("tag"),
        default=_plain_default(field, kind, array=array, nullable=nullable),
        schema=inner if is_struct else None,
    )


def _without_none(hint: Any) -> tuple[Any, bool]:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return next(a for a in typing.get_args(hint) if a is not type(None)), True
    return hint, False


def _plain_default(field: Any, kind: str, *, array: bool, nullable: bool) -> Any:
    if field.default is not dataclasses.MISSING:
        return _as_plain_value(field.default)
    if kind == "datetime_i64" and nullable:
        return -1
    if nullable and kind != "uuid":
        return None
    if array:
        return ()
    empty = {"string": "", "bytes": b"", "records": b"", "bool": False, "float64": 0.0, "uuid": _ZERO_UUID}
    return {} if kind == "struct" else empty.get(kind, 0)


def _as_plain_value(default: Any) -> Any:
    if isinstance(default, datetime.timedelta):
        return round(default.total_seconds() * 1000)
    if isinstance(default, datetime.datetime):
        return round(default.timestamp() * 1000)
    return int(default) if isinstance(default, int) and not isinstance(default, bool) else default


@functools.cache
def min_size(schema: Any) -> int:
    """The fewest bytes an instance takes; a count of entries times this is what must still be there."""
    size = 1 if schema.__flexible__ else 0
    for field in _fields(schema):
        if field.tag is None:
            size += _min_field_size(field, flexible=schema.__flexible__)
    return max(size, 1)


def _min_field_size(field: _Field, *, flexible: bool) -> int:
    if field.array:
        return 1 if flexible else 4
    if field.kind in _FIXED:
        return _FIXED[field.kind][1]
    if field.kind == "struct":
        return 1 if field.nullable else min_size(field.schema)
    if field.kind == "uuid":
        return 16
    return 1 if flexible else (2 if field.kind == "string" else 4)


# -- reading -------------------------------------------------------------------------------------------------------


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


def read_text(data: bytes, at: int) -> tuple[str | None, int]:
    """A nullable string with an int16 length: (value, position after it)."""
    size = int.from_bytes(data[at : at + 2], "big", signed=True)
    at += 2
    if size < 0 or size > len(data) - at:
        if size == -1 and at <= len(data):
            return None, at
        raise Malformed(f"a string of {size} bytes is claimed at byte {at}, {len(data) - at} are left")
    return data[at : at + size].decode(), at + size


def _read_blob(data: bytes, at: int) -> tuple[bytes | None, int]:
    (size,) = struct.unpack_from(">i", data, at)
    at += 4
    if size == -1:
        return None, at
    return data[at : at + _size(size, data, at)], at + size


def _read_compact_blob(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = read_uvarint(data, at)
    if size == 0:
        return None, at
    return data[at : at + _size(size - 1, data, at)], at + size - 1


def _read_compact_text(data: bytes, at: int) -> tuple[str | None, int]:
    blob, at = _read_compact_blob(data, at)
    return (None if blob is None else blob.decode()), at


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


def _scalar_reader(field: _Field, *, flexible: bool) -> Reader:
    if field.kind in _FIXED:
        unpack = struct.Struct(">" + _FIXED[field.kind][0])
        return lambda data, at: (unpack.unpack_from(data, at)[0], at + unpack.size)
    if field.kind == "struct":
        return reader(field.schema)
    if field.kind == "uuid":
        return _read_uuid
    plain, compact = {"string": (read_text, _read_compact_text)}.get(field.kind, (_read_blob, _read_compact_blob))
    read: Reader = compact if flexible else plain
    return read if field.nullable and not field.array else _not_null(read, field.name)


def _array_reader(field: _Field, *, flexible: bool) -> Reader:
    fixed = _FIXED.get(field.kind)
    read_one = None if fixed else _scalar_reader(field, flexible=flexible)
    each = fixed[1] if fixed else min_size(field.schema) if field.kind == "struct" else 1

    def read(data: bytes, at: int) -> tuple[tuple[Any, ...] | None, int]:
        if flexible:
            count, at = read_uvarint(data, at)
            count -= 1
        else:
            (count,) = struct.unpack_from(">i", data, at)
            at += 4
        if count == -1:
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


def _field_reader(field: _Field, *, flexible: bool) -> Reader:
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

    It raises Malformed, struct.error, IndexError or UnicodeDecodeError for bytes that do not fit, and nothing else.
    """
    fields = _fields(schema)
    names = [f.name for f in fields]
    cls = type(schema.__name__, (Message,), {"__slots__": tuple(names), "__module__": __name__})
    space: dict[str, Any] = {"new": cls.__new__, "cls": cls, "skip": skip_tags, "uvarint": read_uvarint}
    lines = ["def read(data, at):", " m = new(cls)"]
    run: list[_Field] = []

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


def _read_tags_lines(fields: tuple[_Field, ...], lines: list[str], space: dict[str, Any]) -> None:
    tagged = {f.tag: f for f in fields if f.tag is not None}
    for field in tagged.values():
        space[f"d_{field.name}"] = None if field.kind == "struct" and not field.array else field.default
        lines.append(f" m.{field.name} = d_{field.name}")
    lines.append(" count = data[at]; at += 1")
    if not tagged:
        lines += [" if count:", "  count, at = uvarint(data, at - 1)", "  at = skip(data, at, count)"]
        return
    readers = {tag: (f.name, _field_reader(_as_plain(f), flexible=True)) for tag, f in tagged.items()}

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


def _as_plain(field: _Field) -> _Field:
    """A tagged field as it stands inside its tag, where absence is already told by the tag."""
    return dataclasses.replace(field, tag=None, nullable=field.nullable and field.kind != "struct")


# -- writing -------------------------------------------------------------------------------------------------------


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


def write_text(value: str | None) -> bytes:
    """A nullable string with an int16 length."""
    if value is None:
        return b"\xff\xff"
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def _write_blob(value: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if value is None else struct.pack(">i", len(value)) + value


def _write_compact_text(value: str | None) -> bytes:
    return _write_compact_blob(None if value is None else value.encode())


def _write_compact_blob(value: bytes | None) -> bytes:
    return b"\x00" if value is None else uvarint(len(value) + 1) + value


def _write_uuid(value: uuid.UUID | None) -> bytes:
    return (value or _ZERO_UUID).bytes


def _scalar_writer(field: _Field, *, flexible: bool) -> Writer:
    if field.kind == "struct":
        return writer(field.schema)
    encode: Callable[[Any], bytes]
    if field.kind in _FIXED:
        encode = struct.Struct(">" + _FIXED[field.kind][0]).pack
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


def _field_writer(field: _Field, *, flexible: bool) -> Writer:
    write_one = _scalar_writer(field, flexible=flexible)
    if field.kind == "struct" and field.nullable and not field.array:

        def write_nullable(value: Any, out: Callable[[bytes], Any]) -> None:
            out(b"\xff" if value is None else b"\x01")
            if value is not None:
                write_one(value, out)

        return write_nullable
    if not field.array:
        return write_one
    fixed = _FIXED.get(field.kind)

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
    untagged = [f for f in _fields(schema) if f.tag is None]
    tagged = [f for f in _fields(schema) if f.tag is not None]
    known = frozenset(f.name for f in _fields(schema))
    space: dict[str, Any] = {"known": known, "check": functools.partial(_check_names, schema, known)}
    lines = ["def write(values, out):", " if not values.keys() <= known: check(values)", " get = values.get"]
    run: list[_Field] = []

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


def _tags_writer(tagged: list[_Field]) -> Writer:
    writers = [(f, _field_writer(_as_plain(f), flexible=True)) for f in sorted(tagged, key=lambda f: f.tag or 0)]

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


def _check_names(schema: Any, known: frozenset[str], values: Any) -> None:
    elsewhere = _names_in_other_versions(schema)
    if wrong := sorted(values.keys() - known - elsewhere):
        raise ValueError(f"{schema.__name__} has no field {wrong}; it has {sorted(known | elsewhere)}")


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
    return frozenset(found)
