"""What a leader takes of what a producer sends, and by which error it refuses the rest."""

from __future__ import annotations

import struct
import warnings
from dataclasses import replace
from typing import Any

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_sim.log.config import LogConfig
from broker_sim.log.produced import (
    MalformedRecords,
    Prepared,
    RejectedRecords,
    check_request,
    is_transactional,
    prepare,
)
from controller.wire.compression import Codec
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.records import HEADER_BYTES, Record, build_batch, build_values, check_crc, parse_header, records_of
from controller.wire.types import TopicPartition

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import MemoryRecordsBuilder

TP = TopicPartition("t", 0)
NOW = 1_000_000_000


def patched(data: bytes, offset: int, form: str, value: int, *, crc: bool = True) -> bytes:
    batch = bytearray(data)
    struct.pack_into(form, batch, offset, value)
    if crc and offset >= 21:
        struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))
    return bytes(batch)


GOOD = build_values([(b"k", b"v"), (b"k", b"w")], timestamp=NOW)


def made(data: bytes, now_ms: int = NOW, **config: Any) -> Prepared:
    return prepare(data, replace(LogConfig(), **config), TP, now_ms=now_ms)


def code_of(data: bytes, **config: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        made(check_request(data, 8), **config)
    return caught.value.code


INVALID, CORRUPT, UNREADABLE = ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR
REFUSED = [
    ("nothing", b"", INVALID),
    ("two batches", GOOD + GOOD, INVALID),
    ("a torn batch", GOOD[:-1], INVALID),
    ("an old format", patched(GOOD, 16, ">b", 1), INVALID),
    ("a format that is none", patched(GOOD, 16, ">b", 3), CORRUPT),
    ("a length below any record's", patched(GOOD, 8, ">i", 13), CORRUPT),
    ("a length below a batch's", patched(GOOD, 8, ">i", 40), CORRUPT),
    ("a checksum", patched(GOOD, 17, ">i", 1), CORRUPT),
    ("a base offset, before the checksum", patched(patched(GOOD, 0, ">q", 5), 17, ">i", 1), INVALID),
    ("another last offset", patched(GOOD, 23, ">i", 5), INVALID),
    ("a negative last offset", patched(GOOD, 23, ">i", -2), INVALID),
    ("a negative count", patched(GOOD, 57, ">i", -1), INVALID),
    ("a control batch", patched(GOOD, 21, ">h", 0x20), INVALID),
    ("a codec that is none", patched(GOOD, 21, ">h", 7), UNREADABLE),
    ("gzip that is none", patched(GOOD, 21, ">h", 1), UNREADABLE),
    ("a record of another length", patched(GOOD, 61, ">b", 3), INVALID),
    ("a record length that is no number", GOOD[:0] + patched(GOOD, 61, ">Q", 2**64 - 1), UNREADABLE),
    ("a producer without sequence", build_batch([Record(0, NOW, b"k", b"v")], producer_id=5), INVALID),
]


@pytest.mark.parametrize(("_", "data", "code"), REFUSED, ids=[row[0] for row in REFUSED])
def test_a_client_may_not_send(_: str, data: bytes, code: ErrorCode) -> None:
    assert code_of(data) is code


def test_bytes_that_are_no_batches_are_told_apart_from_batches_that_are_wrong() -> None:
    for data in (patched(GOOD, 16, ">b", -1), patched(GOOD, 8, ">i", -5)):
        with pytest.raises(MalformedRecords):
            is_transactional(data)
    assert is_transactional(patched(GOOD, 21, ">h", 0x10))
    assert not is_transactional(GOOD)
    assert not is_transactional(b"")


def test_torn_bytes_behind_the_batch_are_cut_off() -> None:
    assert check_request(GOOD + GOOD[:-1], 8) == GOOD
    assert check_request(GOOD + b"abc", 8) == GOOD


def test_old_clients_may_not_send_zstd() -> None:
    zstd = build_values([(None, b"v")], timestamp=1, codec=Codec.ZSTD)
    with pytest.raises(KafkaError, match="version 6") as caught:
        check_request(zstd, 6)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert check_request(zstd, 7) == zstd


def test_sizes_are_checked_before_the_checksum_and_the_segment_last() -> None:
    wrong = patched(GOOD, 17, ">i", 1)
    assert code_of(wrong, max_message_bytes=20) is ErrorCode.MESSAGE_TOO_LARGE
    assert code_of(GOOD, segment_bytes=20) is ErrorCode.RECORD_LIST_TOO_LARGE
    assert code_of(patched(GOOD, 23, ">i", 5), segment_bytes=20) is INVALID


def test_records_without_keys_are_named_one_by_one() -> None:
    data = build_values([(None, b"v"), (b"k", b"v"), (None, b"v"), (None, b"v"), (None, b"v")], timestamp=NOW)
    with pytest.raises(RejectedRecords, match="due to 4 record errors in total") as caught:
        made(data, cleanup_policy="compact,delete")
    assert [fault.batch_index for fault in caught.value.faults] == [0, 2, 3, 4]
    assert str(caught.value).count("RecordError(") == 3
    made(data)


def test_timestamps_out_of_range_are_named_one_by_one() -> None:
    data = build_batch([Record(n, t, None, b"v") for n, t in enumerate((NOW, NOW - 11, -1, NOW + 6))])
    with pytest.raises(RejectedRecords) as caught:
        made(data, message_timestamp_before_max_ms=10, message_timestamp_after_max_ms=5)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [fault.batch_index for fault in caught.value.faults] == [1, 3]
    assert caught.value.faults[0].message == (
        f"Timestamp {NOW - 11} of message with offset 1 is out of range. "
        f"The timestamp should be within [{NOW - 10}, {NOW + 5}]"
    )
    made(data, message_timestamp_before_max_ms=11, message_timestamp_after_max_ms=6)


def test_the_broker_stamps_where_the_topic_says_so() -> None:
    stamped = made(GOOD, NOW + 5, message_timestamp_type="LogAppendTime").batch
    check_crc(stamped, parse_header(stamped))
    assert [record.timestamp for record in records_of(stamped)] == [NOW + 5, NOW + 5]
    claims = patched(GOOD, 21, ">h", 0x08)
    assert code_of(claims, message_timestamp_type="LogAppendTime") is ErrorCode.INVALID_TIMESTAMP
    corrected = made(claims).header
    assert not corrected.is_log_append_time


@pytest.mark.parametrize("target", ["producer", "uncompressed", "gzip", "lz4"])
@pytest.mark.parametrize("source", [Codec.NONE, Codec.GZIP, Codec.SNAPPY])
def test_a_wrong_largest_timestamp_is_put_right(source: Codec, target: str) -> None:
    """To that of the newest record, wherever it stands; or to now, where the broker stamps them."""
    for times in ((NOW - 3, NOW, NOW - 5), (NOW, NOW - 1), (NOW - 1, NOW), (NOW,), (-1, -1), (-1, NOW)):
        records = [Record(n, time, b"k", b"v") for n, time in enumerate(times)]
        data = build_batch(records, codec=source)
        for claim in (7, 0, -1, NOW - 1, NOW + 1, 2**62):
            batch = made(patched(data, 35, ">q", claim), compression_type=target).batch
            check_crc(batch, parse_header(batch))
            assert (parse_header(batch).max_timestamp, records_of(batch)) == (max(times), records), claim
            stamps = {"message_timestamp_type": "LogAppendTime", "compression_type": target}
            stamped = made(patched(data, 35, ">q", claim), NOW + 9, **stamps).header
            assert (stamped.max_timestamp, stamped.is_log_append_time) == (NOW + 9, True), claim


@pytest.mark.parametrize("source", list(Codec))
def test_a_batch_passes_through_unless_the_topic_wants_another_codec(source: Codec) -> None:
    data = build_values([(b"k", b"v" * 50)] * 20, timestamp=NOW, codec=source)
    assert made(data).batch is data
    for name, target in (
        ("uncompressed", Codec.NONE),
        ("gzip", Codec.GZIP),
        ("snappy", Codec.SNAPPY),
        ("lz4", Codec.LZ4),
        ("zstd", Codec.ZSTD),
    ):
        kept = made(data, compression_type=name)
        assert kept.header.codec is target
        assert records_of(kept.batch) == records_of(data)
        check_crc(kept.batch, kept.header)
    small = build_values([(b"k", b"v" * 50)] * 20, timestamp=NOW, codec=Codec.GZIP)
    assert code_of(small, compression_type="uncompressed", max_message_bytes=500) is ErrorCode.MESSAGE_TOO_LARGE


def test_a_recompressed_batch_keeps_its_producer() -> None:
    data = build_batch([Record(0, NOW, b"k", b"v")], producer_id=7, producer_epoch=2, base_sequence=9)
    header = made(data, compression_type="lz4").header
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 9)


HEADERS = st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=5)), max_size=3).map(tuple)
RECORDS = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(0, 2**40),
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=200),
        HEADERS,
    ),
    min_size=1,
    max_size=5,
).map(lambda found: [replace(record, offset=n) for n, record in enumerate(found)])


@settings(max_examples=60)
@given(RECORDS, st.sampled_from(Codec))
def test_what_is_well_formed_passes(found: list[Record], codec: Codec) -> None:
    data = build_batch(found, codec=codec)
    assert made(check_request(data, 8)).batch is data


@settings(max_examples=30)
@given(RECORDS, st.sampled_from([0, 1, 2, 3, 4]))
def test_what_kafka_python_builds_passes(found: list[Record], codec: int) -> None:
    builder = MemoryRecordsBuilder(magic=2, compression_type=codec, batch_size=1 << 20)
    for record in found:
        builder.append(timestamp=record.timestamp, key=record.key, value=record.value, headers=list(record.headers))
    builder.close()
    batch = bytes(builder.buffer())
    assert made(check_request(batch, 8)).batch == batch


@settings(max_examples=200)
@given(st.data())
def test_whatever_the_records_are_the_answer_is_an_error_of_kafka_or_a_readable_batch(data: Any) -> None:
    """Bytes of the records are changed and the checksum is right: what passes must be readable by consumers."""
    batch = bytearray(build_batch([Record(n, NOW, b"key", b"value", (("h", b"x"),)) for n in range(3)]))
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(HEADER_BYTES, len(batch) - 1))] = data.draw(st.integers(0, 255))
    struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))
    try:
        kept = made(check_request(bytes(batch), 8))
    except KafkaError as error:
        assert error.code in (INVALID, UNREADABLE)
        return
    try:
        records_of(kept.batch)
    except KafkaError as error:
        assert "utf-8" in str(error)  # a header's name, which nobody but its reader decodes


@settings(max_examples=100)
@given(st.binary(max_size=120))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(KafkaError):
        made(check_request(data, 8))
