"""One record of `__cluster_metadata`, from bytes to its fields. Pure; any bytes end in a value or in one of two errors.

A value is an unsigned varint frame version (1), an unsigned varint api key, an unsigned varint version, then the record
in flexible encoding (`schemas`). Source: apache/kafka `MetadataRecordSerde`, KIP-482, KIP-631.
"""

from __future__ import annotations

import struct
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final, NamedTuple

from broker_sim.replay.metadata_log.schemas import CONTROL_SCHEMAS, SCHEMAS, Field, Schema

FRAME_VERSION: Final = 1
_UUID_BYTES: Final = 16
_VARINT_BYTES_MAX: Final = 5

Fields = dict[str, Any]


class UnknownRecord(ValueError):
    """A frame, record or version that this program has no schema of: written by a later Kafka."""


class MalformedRecord(ValueError):
    """Bytes that do not follow the schema which they name."""


class Decoded(NamedTuple):
    """A record: what it is, in which version, and its fields by the names of Kafka's schema."""

    api_key: int
    version: int
    name: str
    fields: Fields


def decode(value: bytes) -> Decoded:
    """The record in `value`, which must be all of it.

    A topic's or incarnation's id is told as Kafka prints it (base64 without padding). Fields that are left out have
    their default; tagged fields that are not known are skipped, as Kafka does.

    Raises: UnknownRecord, MalformedRecord.
    """
    frame, at = _uvarint(value, 0)
    if frame != FRAME_VERSION:
        raise UnknownRecord(f"frame version {frame}")
    api_key, at = _uvarint(value, at)
    version, at = _uvarint(value, at)
    schema = SCHEMAS.get(api_key)
    if schema is None:
        raise UnknownRecord(f"record {api_key} version {version}")
    if version > schema.latest:
        raise UnknownRecord(f"{schema.name} version {version}, known up to {schema.latest}")
    fields, at = _read(value, at, api_key, version)
    if at != len(value):
        raise MalformedRecord(f"{schema.name}: {len(value) - at} bytes are left over")
    return Decoded(api_key, version, schema.name, fields)


def decode_control(key: bytes | None, value: bytes | None) -> tuple[int, Fields]:
    """The type of a control record, and its fields as far as they are needed; none for a type that is not.

    Raises: MalformedRecord.
    """
    if key is None or len(key) < 4:
        raise MalformedRecord("a control record's key has 4 bytes")
    kind = int.from_bytes(key[2:4], "big")
    if kind not in CONTROL_SCHEMAS:
        return kind, {}
    fields: Fields = {}
    at = 0
    for field in CONTROL_SCHEMAS[kind].fields:
        fields[field.name], at = _guarded(_READERS[str(field.type)], value or b"", at)
    return kind, fields


# -- records ------------------------------------------------------------------------------------------------------


class _Plan(NamedTuple):
    """A schema in one version: what is read in order, what by tag, and what those left out are."""

    name: str
    plain: tuple[tuple[str, Callable[[bytes, int], tuple[Any, int]]], ...]
    tagged: dict[int, tuple[str, Callable[[bytes, int], tuple[Any, int]]]]
    defaults: Fields


@cache
def _plan(api_key: int, version: int) -> _Plan:
    return _plan_of(SCHEMAS[api_key], version)


def _plan_of(schema: Schema, version: int) -> _Plan:
    there = [field for field in schema.fields if version >= field.since]
    plain = tuple((field.name, _reader(field, version)) for field in there if field.tag is None)
    tagged = {field.tag: (field.name, _reader(field, version)) for field in there if field.tag is not None}
    defaults = {field.name: field.default for field in schema.fields if field.tag is not None or version < field.since}
    return _Plan(schema.name, plain, tagged, defaults)


def _read(data: bytes, at: int, api_key: int, version: int) -> tuple[Fields, int]:
    plan = _plan(api_key, version)
    try:
        return _guarded(lambda d, a: _read_fields(d, a, plan), data, at)
    except MalformedRecord as error:
        raise MalformedRecord(f"{plan.name} version {version}: {error}") from error


def _guarded(read: Callable[[bytes, int], tuple[Any, int]], data: bytes, at: int) -> tuple[Any, int]:
    try:
        return read(data, at)
    except (IndexError, struct.error) as error:
        raise MalformedRecord(f"it ends early: {error}") from error
    except UnicodeDecodeError as error:
        raise MalformedRecord(f"a string is no UTF-8: {error}") from error


def _read_fields(data: bytes, at: int, plan: _Plan) -> tuple[Fields, int]:
    fields = dict(plan.defaults)
    for name, read in plan.plain:
        fields[name], at = read(data, at)
    count, at = _uvarint(data, at)
    for _ in range(count):
        tag, at = _uvarint(data, at)
        size, at = _uvarint(data, at)
        end = at + size
        if end > len(data):
            raise MalformedRecord(f"tagged field {tag} of {size} bytes leaves the record")
        if tag in plan.tagged:
            name, read = plan.tagged[tag]
            fields[name], at = read(data, at)
            if at != end:
                raise MalformedRecord(f"{name} has {size} bytes, not those of its content")
        at = end
    return fields, at


# -- fields -------------------------------------------------------------------------------------------------------


def _reader(field: Field, version: int) -> Callable[[bytes, int], tuple[Any, int]]:
    if isinstance(field.type, tuple):
        one = _struct_reader(field.name, field.type, version)
        return _array_reader(one, nullable=field.nullable)
    if field.type.startswith("[]"):
        return _array_reader(_READERS[field.type[2:]], nullable=field.nullable)
    if field.type in ("string", "bytes"):
        return _text_reader(is_text=field.type == "string", nullable=field.nullable)
    return _READERS[field.type]


def _struct_reader(name: str, fields: Iterable[Field], version: int) -> Callable[[bytes, int], tuple[Any, int]]:
    plan = _plan_of(Schema(name, version, tuple(fields)), version)
    return lambda data, at: _read_fields(data, at, plan)


def _array_reader(
    one: Callable[[bytes, int], tuple[Any, int]], *, nullable: bool
) -> Callable[[bytes, int], tuple[Any, int]]:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        count, at = _uvarint(data, at)
        if count == 0:
            if not nullable:
                raise MalformedRecord("an array is null that may not be")
            return None, at
        if count - 1 > len(data) - at:  # each element has a byte at the least
            raise MalformedRecord(f"an array of {count - 1} leaves the record")
        found = []
        for _ in range(count - 1):
            value, at = one(data, at)
            found.append(value)
        return found, at

    return read


def _text_reader(*, is_text: bool, nullable: bool) -> Callable[[bytes, int], tuple[Any, int]]:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        size, at = _uvarint(data, at)
        if size == 0:
            if not nullable:
                raise MalformedRecord("a string is null that may not be")
            return None, at
        end = at + size - 1
        if end > len(data):
            raise MalformedRecord(f"a string of {size - 1} bytes leaves the record")
        content = data[at:end]
        return (content.decode() if is_text else content), end

    return read


def _uvarint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for _ in range(_VARINT_BYTES_MAX):
        if at >= len(data):
            raise MalformedRecord("it ends within a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise MalformedRecord(f"a number has more than {_VARINT_BYTES_MAX} bytes")


def _uuid(data: bytes, at: int) -> tuple[str, int]:
    content = data[at : at + _UUID_BYTES]
    if len(content) < _UUID_BYTES:
        raise MalformedRecord("it ends within an id")
    return urlsafe_b64encode(content).rstrip(b"=").decode(), at + _UUID_BYTES


def _fixed(layout: str) -> Callable[[bytes, int], tuple[Any, int]]:
    packed = struct.Struct(layout)
    return lambda data, at: (packed.unpack_from(data, at)[0], at + packed.size)


_READERS: Final[dict[str, Callable[[bytes, int], tuple[Any, int]]]] = {
    "bool": _fixed(">?"),
    "int8": _fixed(">b"),
    "int16": _fixed(">h"),
    "uint16": _fixed(">H"),
    "int32": _fixed(">i"),
    "int64": _fixed(">q"),
    "float64": _fixed(">d"),
    "uuid": _uuid,
    "string": _text_reader(is_text=True, nullable=False),
    "bytes": _text_reader(is_text=False, nullable=False),
}
