"""Kafka's requests and responses <-> bytes. kio brings the schemas, which `wire.codec` compiles.

Reading: bodies are structures with attributes under kio's names (the schema's names in snake_case; a field of
milliseconds loses its `_ms`); codes, durations and times are ints. Writing: bodies are plain mappings with the same
names; nested structures are sequences of mappings. What is left out gets the schema's default (else zero, empty, null),
what the version does not have is dropped, and a name that no version has is refused. So one handler serves all
versions of its API.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from functools import cache
from typing import Any, Final, NamedTuple

from controller.wire.codec import reader as codec_reader
from controller.wire.codec.error_codes import error_codes
from controller.wire.codec.kio_schemas import api_key_map, load_request_schema, load_response_schema
from controller.wire.codec.writer import write_text, writer
from controller.wire.errors import ErrorCode
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
    #: refused: all is PLAINTEXT
    SASL_HANDSHAKE = 17
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
    #: refused: all is PLAINTEXT
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    #: of KRaft's brokers; only the tools speak it
    DESCRIBE_QUORUM = 55
    DESCRIBE_CLUSTER = 60
    #: of groups of the protocol of KIP-848; only the tools speak it
    CONSUMER_GROUP_DESCRIBE = 69
    #: of KRaft's brokers; only the tools speak it
    DESCRIBE_TOPIC_PARTITIONS = 75


class ProtocolError(Exception):
    """Bytes that are not the message they claim to be. The message says which, and where decoding stopped."""


class UnsupportedRequest(ProtocolError):
    """An api key or version without a schema."""

    def __init__(self, api_key: int, api_version: int, correlation_id: int) -> None:
        super().__init__(f"api key {api_key} version {api_version} is not known")
        self.api_key, self.api_version, self.correlation_id = api_key, api_version, correlation_id


class Request(NamedTuple):
    """One decoded request: header fields and body."""

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


def decode_request(data: bytes, decode_body: Callable[[bytes], Any] | None = None) -> Request:
    """Decodes a request frame (without its size); `decode_body` makes the body of its bytes, None: as its schema says.

    Bytes behind the body are ignored, as Kafka does: librdkafka's Metadata v9 for all topics has one.
    Raises: UnsupportedRequest, for an unknown key or version; ProtocolError, for a body that does not parse.
    """
    api_key, api_version, correlation_id = peek_header(data)
    try:
        key, what, read_header, read_body = _request_readers(api_key, api_version)
    except (ValueError, RuntimeError) as error:
        raise UnsupportedRequest(api_key, api_version, correlation_id) from error
    client_id, at = _parse(read_header, data, 0, what)
    body = _parse(read_body, data, at, what)[0] if decode_body is None else decode_body(data[at:])
    return Request(key, api_version, correlation_id, client_id, body)


@cache
def _request_readers(api_key: int, api_version: int) -> tuple[ApiKey, _What, codec_reader.Reader, codec_reader.Reader]:
    """The key, what such a request is called, and what reads header and body. Raises ValueError or RuntimeError."""
    key = ApiKey(api_key)
    schema: Any = load_request_schema(api_key, api_version)
    return key, (key, api_version, "request"), _request_header_reader(schema), codec_reader.reader(schema)


def decode_response(api_key: int, api_version: int, data: bytes) -> tuple[int, Any]:
    """(correlation_id, body) of a response frame (without its size). Raises ProtocolError when it does not parse."""
    what, has_tags, read_body = _response_reader(api_key, api_version)
    at = _CORRELATION.size
    if len(data) < at:
        raise ProtocolError(f"{_named(what)} of {len(data)} bytes has no header")
    if has_tags:
        _, at = _parse(_read_tags, data, at, what)
    return _CORRELATION.unpack_from(data)[0], _parse(read_body, data, at, what)[0]


@cache
def _response_reader(api_key: int, api_version: int) -> tuple[_What, bool, codec_reader.Reader]:
    """What such an answer is called, whether tags follow its correlation id, and what reads its body."""
    schema: Any = load_response_schema(api_key, api_version)
    return (api_key, api_version, "response"), schema.__header_schema__.__version__ > 0, codec_reader.reader(schema)


def decode_request_body(api_key: int, api_version: int, data: bytes) -> Any:
    """The body of a request from its bytes alone. Raises ProtocolError when it does not parse."""
    reader = codec_reader.reader(load_request_schema(api_key, api_version))
    return _parse(reader, data, 0, (api_key, api_version, "request"))[0]


#: API key, version, and whether it is a request or a response: named only where something is wrong with it.
_What = tuple[int, int, str]


def _named(what: _What) -> str:
    return f"{ApiKey(what[0]).name} v{what[1]} {what[2]}"


def _parse(reader: codec_reader.Reader, data: bytes, at: int, what: _What) -> tuple[Any, int]:
    try:
        return reader(data, at)
    except (codec_reader.Malformed, struct.error, IndexError) as error:
        raise ProtocolError(f"{_named(what)} does not parse: {error}") from error


def _request_header_reader(schema: Any) -> codec_reader.Reader:
    """Reads the header after its fixed part; its client id keeps the old length even in flexible versions."""
    version = schema.__header_schema__.__version__

    def read(data: bytes, _: int) -> tuple[str | None, int]:
        client_id, at = codec_reader.read_text(data, _HEAD.size) if version > 0 else (None, _HEAD.size)
        return client_id, _read_tags(data, at)[1] if version > 1 else at

    return read


def _read_tags(data: bytes, at: int) -> tuple[None, int]:
    count, at = codec_reader.read_uvarint(data, at)
    return None, codec_reader.skip_tags(data, at, count)


def encode_request(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None, body: Mapping[str, Any] | bytes
) -> bytes:
    """A whole request frame. `body` is a mapping or the body's bytes, encoded before.

    Raises: ValueError for a name or value that does not fit the schema.
    """
    data = encode_body(api_key, api_version, body)
    return encode_request_head(api_key, api_version, correlation_id, client_id, len(data)) + data


def encode_request_head(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None, body_bytes: int
) -> bytes:
    """What goes before a body of that many bytes: the size of the frame, and the header."""
    schema: Any = load_request_schema(api_key, api_version)
    version = schema.__header_schema__.__version__
    header = _HEAD.pack(api_key, api_version, correlation_id)
    if version > 0:
        header += write_text(client_id)
    if version > 1:
        header += b"\x00"
    return (len(header) + body_bytes).to_bytes(4, "big", signed=True) + header


def encode_response(api_key: int, api_version: int, correlation_id: int, body: Mapping[str, Any] | bytes) -> bytes:
    """A whole response frame, as `encode_request`."""
    schema: Any = load_response_schema(api_key, api_version)
    tags = b"\x00" if schema.__header_schema__.__version__ > 0 else b""
    return frame(_CORRELATION.pack(correlation_id), tags, encode_body(api_key, api_version, body, response=True))


def unsupported_api_versions(correlation_id: int, first: int, last: int) -> bytes:
    """The answer to an ApiVersions of a version that is not offered: version 0's shape, with the range that is, so that
    the peer can ask again. Source: KIP-511; Kafka 3.9 `ApiVersionsRequest.getErrorResponse`."""
    entry = {"api_key": ApiKey.API_VERSIONS, "min_version": first, "max_version": last}
    body = {"error_code": ErrorCode.UNSUPPORTED_VERSION, "api_keys": [entry]}
    return encode_response(ApiKey.API_VERSIONS, 0, correlation_id, body)


def encode_body(api_key: int, api_version: int, body: Mapping[str, Any] | bytes, *, response: bool = False) -> bytes:
    """The bytes of a body alone, to be sent to several peers."""
    if isinstance(body, bytes):
        return body
    load: Any = load_response_schema if response else load_request_schema
    return _encode(load(api_key, api_version), body)


def build(api_key: int, api_version: int, values: Mapping[str, Any], *, response: bool = False) -> Any:
    """The structure that a reader of these values sees."""
    load: Any = load_response_schema if response else load_request_schema
    data = encode_body(api_key, api_version, values, response=response)
    return codec_reader.reader(load(api_key, api_version))(data, 0)[0]


def plain(value: Any) -> Any:
    """A read structure as dicts, lists, numbers and strings: for logs, `--json` and tests."""
    if isinstance(value, codec_reader.Message):
        return {name: plain(getattr(value, name)) for name in value.__slots__}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return value


def _encode(schema: Any, values: Mapping[str, Any]) -> bytes:
    parts: list[bytes] = []
    try:
        writer(schema)(values, parts.append)
    except (struct.error, AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"{schema.__name__} cannot be encoded: {error}") from error
    return b"".join(parts)


_API_NAMES: Final = {key: "".join(map(str.capitalize, name.split("_"))) for key, name in api_key_map.items()}


def api_name(api_key: int) -> str:
    """Kafka's name of an API, such as `LeaderAndIsr`; the number for an unknown one."""
    return _API_NAMES.get(api_key) or str(api_key)


def error_codes_of(api_key: int, api_version: int, body: Mapping[str, Any] | bytes) -> Iterable[int]:
    """The error codes of an answer, at all depths, with those that were left out; Kafka's `errorCounts`."""
    schema: Any = load_response_schema(api_key, api_version)
    find = error_codes(schema)
    if find is None:
        return ()
    return find(plain(codec_reader.reader(schema)(body, 0)[0]) if isinstance(body, bytes) else body)
