"""Kafka's requests and responses <-> bytes. The only module that knows kio.

Reading: bodies are kio entities, read by attribute under kio's names (the schema's names in snake_case; a field of
milliseconds loses its `_ms` and is a timedelta: pass it to `ms`). Writing: bodies are plain mappings with the same
names, numbers for codes, milliseconds for durations; nested structures are sequences of mappings. `build` fills what is
left out with the schema's default (else zero, empty, null), drops what the version does not have, and refuses a name
that no version has. So one handler serves all versions of its API.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import io
import struct
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.constants import EntityType

from controller.wire.framing import frame


class ApiKey(IntEnum):
    """The requests that this cluster speaks. Source: spec broker.md §1.2."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60


class ProtocolError(Exception):
    """Bytes that are not the message they claim to be. The message says which, and where decoding stopped."""


class UnsupportedRequest(ProtocolError):
    """An api key or version without a schema."""

    def __init__(self, api_key: int, api_version: int, correlation_id: int) -> None:
        super().__init__(f"api key {api_key} version {api_version} is not known")
        self.api_key, self.api_version, self.correlation_id = api_key, api_version, correlation_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One decoded request: header fields and body (a kio entity)."""

    api_key: ApiKey
    api_version: int
    correlation_id: int
    client_id: str | None
    body: Any


_HEAD: Final = struct.Struct(">hhi")
_CORRELATION: Final = struct.Struct(">i")


def peek_header(data: bytes) -> tuple[int, int, int]:
    """(api_key, api_version, correlation_id) of a request frame. Raises ProtocolError when it is too short."""
    if len(data) < _HEAD.size:
        raise ProtocolError(f"request of {len(data)} bytes has no header; it needs at least {_HEAD.size}")
    api_key, api_version, correlation_id = _HEAD.unpack_from(data)
    return api_key, api_version, correlation_id


def decode_request(data: bytes) -> Request:
    """Decodes a request frame (without its size).

    Raises: UnsupportedRequest, for an unknown key or version; ProtocolError, for a body that does not parse or that
    leaves bytes over.
    """
    api_key, api_version, correlation_id = peek_header(data)
    try:
        key = ApiKey(api_key)
        schema: Any = load_request_schema(api_key, api_version)
    except (ValueError, RuntimeError) as error:
        raise UnsupportedRequest(api_key, api_version, correlation_id) from error
    header, at = _read(schema.__header_schema__, data, 0, f"{key.name} v{api_version} header")
    body, end = _read(schema, data, at, f"{key.name} v{api_version} request")
    if end != len(data):
        raise ProtocolError(f"{key.name} v{api_version} request: {len(data) - end} bytes left over")
    return Request(
        api_key=key,
        api_version=api_version,
        correlation_id=correlation_id,
        client_id=getattr(header, "client_id", None),
        body=body,
    )


def decode_response(api_key: int, api_version: int, data: bytes) -> tuple[int, Any]:
    """(correlation_id, body) of a response frame (without its size). Raises ProtocolError when it does not parse."""
    schema: Any = load_response_schema(api_key, api_version)
    what = f"{ApiKey(api_key).name} v{api_version} response"
    header, at = _read(schema.__header_schema__, data, 0, what)
    body, _ = _read(schema, data, at, what)
    return header.correlation_id, body


def _read(schema: Any, data: bytes, at: int, what: str) -> tuple[Any, int]:
    try:
        value, size = entity_reader(schema)(data, at)
    except (SerialError, ValueError, TypeError, KeyError, OverflowError, struct.error) as error:
        # KeyError: kio knows no way past a tagged field that the schema does not name.
        raise ProtocolError(f"{what} does not parse after byte {at}: {error}") from error
    return value, at + size


def encode_request(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None, body: Mapping[str, Any] | bytes
) -> bytes:
    """A whole request frame. `body` is a mapping (see `build`) or the body's bytes, encoded before.

    Raises: ValueError for a name or value that does not fit the schema.
    """
    schema: Any = load_request_schema(api_key, api_version)
    header_schema = schema.__header_schema__
    fields = {
        "request_api_key": api_key,
        "request_api_version": api_version,
        "correlation_id": correlation_id,
        "client_id": client_id,
    }
    return frame(_encode(_builder(header_schema)(fields)), encode_body(api_key, api_version, body, EntityType.request))


def encode_response(api_key: int, api_version: int, correlation_id: int, body: Mapping[str, Any] | bytes) -> bytes:
    """A whole response frame, as `encode_request`."""
    schema: Any = load_response_schema(api_key, api_version)
    header = _CORRELATION.pack(correlation_id)
    if schema.__header_schema__.__version__ > 0:
        header += b"\x00"
    return frame(header, encode_body(api_key, api_version, body, EntityType.response))


def encode_body(
    api_key: int, api_version: int, body: Mapping[str, Any] | bytes, entity_type: EntityType = EntityType.request
) -> bytes:
    """The bytes of a body alone, to be sent to several peers."""
    if isinstance(body, bytes):
        return body
    return _encode(build(api_key, api_version, body, response=entity_type is EntityType.response))


def build(api_key: int, api_version: int, values: Mapping[str, Any], *, response: bool = False) -> Any:
    """The kio entity with these values; see the module's docstring for names, defaults and refusals."""
    load: Any = load_response_schema if response else load_request_schema
    return _builder(load(api_key, api_version))(values)


def ms(duration: datetime.timedelta | int) -> int:
    """A duration as read from a message, in milliseconds."""
    if isinstance(duration, int):
        return duration
    return round(duration.total_seconds() * 1000)


def plain(value: Any) -> Any:
    """A kio entity as dicts, lists, numbers and strings (milliseconds for durations): for logs, `--json` and tests."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, datetime.timedelta):
        return ms(value)
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    return value


def _encode(entity: Any) -> bytes:
    buffer = io.BytesIO()
    try:
        entity_writer(type(entity))(buffer, entity)
    except (struct.error, OverflowError, TypeError, SerialError) as error:
        raise ValueError(f"{type(entity).__name__} cannot be encoded: {error}") from error
    return buffer.getvalue()


@functools.cache
def _builder(schema: Any) -> Callable[[Mapping[str, Any]], Any]:
    """Compiles, once per schema class, the way from plain values to the entity."""
    hints = typing.get_type_hints(schema)
    converters: dict[str, Callable[[Any], Any]] = {}
    defaults: dict[str, Any] = {}
    for field in dataclasses.fields(schema):
        hint, kind = hints[field.name], field.metadata.get("kafka_type")
        converters[field.name] = _converter(hint, kind)
        defaults[field.name] = _default(field, hint, kind)
    elsewhere = _names_in_other_versions(schema)
    known = frozenset(converters)

    def make(values: Mapping[str, Any]) -> Any:
        unknown = values.keys() - known
        if unknown and (wrong := unknown - elsewhere):
            raise ValueError(f"{schema.__name__} has no field {sorted(wrong)}; it has {sorted(known | elsewhere)}")
        return schema(
            **{
                name: convert(values[name]) if name in values else defaults[name]
                for name, convert in converters.items()
            }
        )

    return make


def _inner(hint: Any) -> tuple[Any, bool]:
    """(the type without `| None`, whether it had it)."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        args = [a for a in typing.get_args(hint) if a is not type(None)]
        return args[0], True
    return hint, False


def _converter(hint: Any, kind: str | None) -> Callable[[Any], Any]:
    inner, nullable = _inner(hint)
    convert = _plain_converter(inner, kind)
    return (lambda value: None if value is None else convert(value)) if nullable else convert


def _plain_converter(inner: Any, kind: str | None) -> Callable[[Any], Any]:
    if typing.get_origin(inner) is tuple:
        item = _converter(typing.get_args(inner)[0], kind)
        return lambda values: tuple(item(v) for v in values)
    if dataclasses.is_dataclass(inner):
        structure: Any = inner
        return lambda value: _builder(structure)(value)
    match kind:
        case "error_code":
            return lambda value: KioErrorCode(int(value))
        case "timedelta_i32" | "timedelta_i64":
            return lambda value: datetime.timedelta(milliseconds=value)
        case "datetime_i64":
            return lambda value: datetime.datetime.fromtimestamp(value / 1000, datetime.UTC)
    return lambda value: value


def _default(field: Any, hint: Any, kind: str | None) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    inner, nullable = _inner(hint)
    if nullable:
        return None
    if typing.get_origin(inner) is tuple:
        return ()
    if dataclasses.is_dataclass(inner):
        structure: Any = inner
        return _builder(structure)({})
    match kind:
        case "error_code":
            return KioErrorCode(0)
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta()
        case "string":
            return ""
        case "bytes" | "records":
            return b""
        case "bool":
            return False
        case "float64":
            return 0.0
    return 0


def _names_in_other_versions(schema: Any) -> frozenset[str]:
    """Field names that the structure of this name has in other versions of its message."""
    if schema.__type__ is EntityType.header:
        return frozenset({"client_id", "request_api_key", "request_api_version"})
    name = schema.__module__.split(".")[2]
    found: set[str] = set()
    for version in schema_name_map[name]:
        found |= _fields_by_structure(name, version, schema.__module__.rsplit(".", 1)[1]).get(schema.__name__, set())
    return frozenset(found)


@functools.cache
def _fields_by_structure(name: str, version: int, module: str) -> dict[str, set[str]]:
    entities = vars(__import__(f"kio.schema.{name}.v{version}.{module}", fromlist=["_"]))
    return {
        key: {f.name for f in dataclasses.fields(value)}
        for key, value in entities.items()
        if isinstance(value, type) and dataclasses.is_dataclass(value)
    }


def api_name(api_key: int) -> str:
    """Kafka's name of an API, such as `LeaderAndIsr`; the number for an unknown one."""
    name = api_key_map.get(api_key)
    return "".join(part.capitalize() for part in name.split("_")) if name else str(api_key)


Body = Mapping[str, Any]
Struct = dict[str, Any]
Structs = Sequence[Struct]
