"""Messages: every version of every API is built, written and read; what does not fit is refused with its name."""

from __future__ import annotations

import dataclasses
import datetime
import io
import struct
import types
import typing
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_writer

from controller.wire import protocol
from controller.wire.codec import reader as codec_reader
from controller.wire.protocol import ApiKey, ProtocolError, UnsupportedRequest

#: The ranges of spec broker.md §1.2 (Kafka 2.6), which is what the programs offer or send.
VERSIONS = {
    ApiKey.PRODUCE: 8, ApiKey.FETCH: 11, ApiKey.LIST_OFFSETS: 5, ApiKey.METADATA: 9, ApiKey.LEADER_AND_ISR: 4,
    ApiKey.STOP_REPLICA: 3, ApiKey.UPDATE_METADATA: 6, ApiKey.CONTROLLED_SHUTDOWN: 3, ApiKey.OFFSET_COMMIT: 8,
    ApiKey.OFFSET_FETCH: 7, ApiKey.FIND_COORDINATOR: 3, ApiKey.JOIN_GROUP: 7, ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 4, ApiKey.SYNC_GROUP: 5, ApiKey.DESCRIBE_GROUPS: 5, ApiKey.LIST_GROUPS: 4,
    ApiKey.API_VERSIONS: 3, ApiKey.CREATE_TOPICS: 5, ApiKey.DELETE_TOPICS: 4, ApiKey.DELETE_RECORDS: 2,
    ApiKey.INIT_PRODUCER_ID: 3, ApiKey.OFFSET_FOR_LEADER_EPOCH: 3, ApiKey.DESCRIBE_CONFIGS: 3,
    ApiKey.ALTER_CONFIGS: 1, ApiKey.ALTER_REPLICA_LOG_DIRS: 1, ApiKey.DESCRIBE_LOG_DIRS: 2,
    ApiKey.CREATE_PARTITIONS: 2, ApiKey.DELETE_GROUPS: 2, ApiKey.ELECT_LEADERS: 2,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1, ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: 0, ApiKey.OFFSET_DELETE: 0, ApiKey.DESCRIBE_CLUSTER: 0,
}  # fmt: skip


@pytest.mark.parametrize("api_key", VERSIONS, ids=lambda key: key.name)
def test_every_version_is_written_and_read_back(api_key: ApiKey) -> None:
    for version in range(VERSIONS[api_key] + 1):
        try:
            data = protocol.encode_request(api_key, version, 7, "me", {})
        except RuntimeError:
            continue  # kio has no schema of versions that Kafka 4 dropped
        request = protocol.decode_request(data[4:])
        assert (request.api_key, request.api_version, request.correlation_id) == (api_key, version, 7)
        answer = protocol.encode_response(api_key, version, 7, {})
        assert protocol.decode_response(api_key, version, answer[4:])[0] == 7


def test_a_version_that_is_newer_than_the_library_reads_what_kafka_sends() -> None:
    """ConsumerGroupDescribe 1: a byte at the end of each member tells which protocol it speaks (KIP-1099)."""
    member = b"\2m\0\0" + b"\0\0\0\6" + b"\2c\3/h" + b"\1\0" + b"\1\0" * 2 + b"\1" + b"\0"
    group = b"\0\0\0" + b"\2g" + b"\7Stable" + b"\0\0\0\7" * 2 + b"\2u" + b"\2" + member + b"\x80\0\0\0" + b"\0"
    _, answer = protocol.decode_response(
        ApiKey.CONSUMER_GROUP_DESCRIBE, 1, b"\0\0\0\7" + b"\0" + b"\0\0\0\0" + b"\2" + group + b"\0"
    )
    described = answer.groups[0]
    assert [(m.member_id, m.member_epoch, m.client_host, m.member_type) for m in described.members] == [
        ("m", 6, "/h", 1)
    ]
    asked = protocol.encode_request(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, 7, "me", {"group_ids": ["g"]})
    assert asked[4:] == b"\0\x45\0\1\0\0\0\7\0\2me\0" + b"\2\2g" + b"\0" + b"\0"
    older = protocol.build(
        ApiKey.CONSUMER_GROUP_DESCRIBE, 0, {"groups": [{"members": [{"member_type": 1}]}]}, response=True
    )
    assert not hasattr(older.groups[0].members[0], "member_type")


def test_left_out_fields_get_the_default_of_the_schema() -> None:
    fetch = protocol.build(ApiKey.FETCH, 11, {"max_wait": 500})
    assert (fetch.replica_id, fetch.max_bytes, fetch.session_epoch) == (-1, 2147483647, -1)
    assert fetch.max_wait == 500


def test_a_field_of_another_version_is_dropped() -> None:
    fields = {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "offline_replicas": [1]}]}]}
    old = protocol.build(ApiKey.METADATA, 1, fields, response=True)
    assert not hasattr(old.topics[0].partitions[0], "offline_replicas")
    new = protocol.build(ApiKey.METADATA, 9, fields, response=True)
    assert new.topics[0].partitions[0].offline_replicas == (1,)


def test_a_field_of_no_version_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"MetadataResponse has no field \['broker'\]"):
        protocol.build(ApiKey.METADATA, 9, {"broker": []}, response=True)


def test_a_value_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="FetchRequest cannot be encoded"):
        protocol.encode_body(ApiKey.FETCH, 11, {"min_bytes": 2**40})


def test_api_versions_answers_have_the_old_header() -> None:
    answer = protocol.encode_response(ApiKey.API_VERSIONS, 3, 9, {"error_code": 35})
    assert struct.unpack_from(">iih", answer) == (len(answer) - 4, 9, 35)


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        pytest.param(b"", ProtocolError, "has no header", id="nothing"),
        pytest.param(b"\x00\x03\x00", ProtocolError, "has no header", id="half a header"),
        pytest.param(struct.pack(">hhi", 999, 0, 1), UnsupportedRequest, "api key 999", id="an unknown api key"),
        pytest.param(struct.pack(">hhi", 3, 99, 1), UnsupportedRequest, "version 99", id="an unknown version"),
        pytest.param(struct.pack(">hhih", 3, 1, 1, -1), ProtocolError, "METADATA v1", id="a body that ends early"),
    ],
)
def test_what_is_no_request_is_refused(data: bytes, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        protocol.decode_request(data)


def test_bytes_left_over_are_ignored_as_kafka_does() -> None:
    data = protocol.encode_request(ApiKey.METADATA, 1, 1, None, {"topics": None})[4:] + b"?"
    assert protocol.decode_request(data).body.topics is None


@settings(max_examples=100)
@given(st.sampled_from(sorted(VERSIONS)), st.binary(max_size=64))
def test_garbage_is_refused_and_never_crashes(api_key: ApiKey, garbage: bytes) -> None:
    data = struct.pack(">hhih", api_key, VERSIONS[api_key], 1, -1) + garbage
    try:
        protocol.decode_request(data)
    except ProtocolError as error:
        assert ApiKey(api_key).name in str(error) or "not known" in str(error)


@pytest.mark.parametrize("api_key", VERSIONS, ids=lambda key: key.name)
def test_bytes_are_those_of_kio(api_key: ApiKey) -> None:
    """kio's own writer is the oracle: what was read by our reader from its bytes gives its bytes again."""
    for version in range(VERSIONS[api_key] + 1):
        for load, response in ((load_request_schema, False), (load_response_schema, True)):
            try:
                schema = load(api_key, version)
            except RuntimeError:
                continue
            expected = io.BytesIO()
            entity_writer(schema)(expected, example(schema))
            read, end = codec_reader.reader(schema)(expected.getvalue(), 0)
            assert end == len(expected.getvalue())
            body = protocol.plain(read)
            assert protocol.encode_body(api_key, version, body, response=response) == expected.getvalue()


def example(schema: Any) -> Any:
    """An instance with something in every field that may hold something."""
    values: dict[str, Any] = {}
    hints = typing.get_type_hints(schema)
    for field in dataclasses.fields(schema):
        if "tag" in field.metadata:
            continue
        inner = hints[field.name]
        if isinstance(inner, types.UnionType):
            inner = next(a for a in typing.get_args(inner) if a is not type(None))
        if typing.get_origin(inner) is tuple:
            item = typing.get_args(inner)[0]
            values[field.name] = (example_value(item, field), example_value(item, field))
        else:
            values[field.name] = example_value(inner, field)
    return schema(**values)


def example_value(kind: Any, field: Any) -> Any:
    if dataclasses.is_dataclass(kind):
        return example(kind)
    return {
        "string": "näme", "bytes": b"\x00bytes", "records": b"records" * 30, "bool": True, "uuid": uuid.UUID(int=7),
        "error_code": KioErrorCode(3), "float64": 1.5, "datetime_i64": datetime.datetime.fromtimestamp(5, datetime.UTC),
        "timedelta_i32": datetime.timedelta(milliseconds=1500), "timedelta_i64": datetime.timedelta(milliseconds=1500),
    }.get(field.metadata["kafka_type"], 77)  # fmt: skip


HOSTILE = [
    ("an array of 2^31 - 1 entries", ApiKey.METADATA, 1, struct.pack(">i", 2**31 - 1)),
    ("a compact array of 2^32 entries", ApiKey.METADATA, 9, b"\x00" + b"\xff\xff\xff\xff\x0f" + b"\x00" * 90),
    ("more entries than bytes", ApiKey.METADATA, 1, struct.pack(">i", 60) + b"\x00" * 59),
    ("a negative array length", ApiKey.LIST_OFFSETS, 1, struct.pack(">ii", -1, -7)),
    ("a null array where none may be", ApiKey.LIST_OFFSETS, 1, struct.pack(">ii", -1, -1)),
    ("a blob of 2^31 - 1 bytes", ApiKey.PRODUCE, 3, struct.pack(">hhiihsiii", -1, 1, 5, 1, 1, b"t", 1, 0, 2**31 - 1)),
    ("a varint that does not end", ApiKey.METADATA, 9, b"\x00" + b"\xff" * 9),
    ("a tag that is longer than the frame", ApiKey.METADATA, 9, b"\x01\x05\x7f"),
]


@pytest.mark.parametrize(("api_key", "version", "rest"), [pytest.param(*row[1:], id=row[0]) for row in HOSTILE])
def test_claims_that_the_frame_does_not_hold_are_refused(api_key: ApiKey, version: int, rest: bytes) -> None:
    with pytest.raises(ProtocolError, match=f"{api_key.name} v{version} request does not parse"):
        protocol.decode_request(struct.pack(">hhih", api_key, version, 1, -1) + rest)


@pytest.mark.parametrize("version", [7, 9])
def test_text_that_is_no_utf8_is_read_as_java_reads_it(version: int) -> None:
    names = struct.pack(">ih", 1, 3) if version < 9 else b"\x00\x02\x04"
    end = bytes(3) if version < 9 else bytes(5)
    head = struct.pack(">hhih", ApiKey.METADATA, version, 1, 4) + b"caf\xe9"
    request = protocol.decode_request(head + names + b"t\xfft" + end)
    assert (request.client_id, request.body.topics[0].name) == ("caf\ufffd", "t\ufffdt")


@pytest.mark.parametrize("size", [-1, -2, -(2**15)])
def test_any_length_below_zero_is_null(size: int) -> None:
    """Source: Kafka 3.9 `MessageDataGenerator`, `RequestHeader`."""
    head = struct.pack(">hhih", ApiKey.METADATA, 1, 1, size)
    request = protocol.decode_request(head + struct.pack(">i", size))
    assert (request.client_id, request.body.topics) == (None, None)
    join = struct.pack(">h1sih1sh1sih1si", 1, b"g", 9, 1, b"m", 1, b"p", 1, 1, b"n", size)
    with pytest.raises(ProtocolError):
        protocol.decode_request(struct.pack(">hhih", ApiKey.JOIN_GROUP, 0, 1, -1) + join)


def test_tagged_fields_that_nobody_knows_are_skipped() -> None:
    data = protocol.encode_request(ApiKey.METADATA, 9, 1, "me", {"topics": None})[4:]
    assert data.endswith(b"\x00")
    request = protocol.decode_request(data[:-1] + b"\x02\x07\x03abc\x08\x00")
    assert request.body == protocol.decode_request(data).body


def test_half_a_character_is_written_as_java_writes_it() -> None:
    for version in (8, 9):  # of strings with a length of two bytes, and of compact ones
        body = {"topics": [{"name": "a\ud800"}], "allow_auto_topic_creation": False}
        assert b"a?" in protocol.encode_body(ApiKey.METADATA, version, body)
