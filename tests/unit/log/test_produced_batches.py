"""What a leader makes of one batch: counts, codecs, keys and times, each combination against plain rules.

Source: Kafka 3.9 `LogValidator`.
"""

from __future__ import annotations

import itertools
import struct
from dataclasses import replace
from typing import Any

import pytest

from broker_sim.log.config import LogConfig
from broker_sim.log.produced import RecordFault, RejectedRecords, prepare
from controller.wire.compression import Codec
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.records import Record, build_batch, check_crc, parse_header, records_of, stamp
from controller.wire.types import TopicPartition
from tests.worlds.logs import patched

TP, NOW = TopicPartition("t", 0), 1_000_000
INVALID, UNREADABLE = ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR
CORRUPT, TOO_LARGE = ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE
TWO = build_batch([Record(n, NOW + n, b"k", b"v") for n in range(2)])


# -- the batch --------------------------------------------------------------------------------------------------------


def made(data: bytes, **config: Any) -> Any:
    return prepare(data, replace(LogConfig(), **config), TP, now_ms=NOW)


def refusal(data: bytes, **config: Any) -> tuple[ErrorCode, str]:
    with pytest.raises(KafkaError) as caught:
        made(data, **config)
    return ErrorCode(caught.value.code), str(caught.value.message)


def counted(delta: int, count: int, attributes: int, producer: int, sequence: int) -> str:
    """Why a batch that holds two records is refused; empty where it is not."""
    where = "in topic partition t-0"
    if delta < 0:
        return f"Batch has an invalid offset range: [0, {delta}] {where}"
    if count <= 0:
        return f"Invalid reported count for record batch: {count} {where}"
    if delta + 1 != count:
        return f"Inconsistent batch offset range [0, {delta}] and count of records {count} {where}"
    if attributes & 0x20:
        return f"Clients are not allowed to write control records {where}"
    if producer >= 0 > sequence:
        return f"Invalid sequence number {sequence} in record batch with producerId {producer} {where}"
    if count < 2:
        return "Incorrect declared batch size, records still remaining in file"
    return "" if count == 2 else "Incorrect declared batch size, premature EOF reached"


def test_counts_and_producers_are_checked_in_their_order() -> None:
    fields = ((-2, -1, 0, 1, 2), (-1, 0, 1, 2, 3), (0, 0x20), (-1, 0, 5), (-1, 0, 1))
    for delta, count, attributes, producer, sequence in itertools.product(*fields):
        data = patched(
            TWO,
            (23, ">i", delta),
            (57, ">i", count),
            (21, ">h", attributes),
            (43, ">q", producer),
            (53, ">i", sequence),
        )
        if text := counted(delta, count, attributes, producer, sequence):
            assert refusal(data) == (INVALID, text)
        else:
            assert made(data).batch == data
    for base in (-1, 1, 1 << 40, 255):
        text = f"The baseOffset of the record batch should be 0, but it is {base}"
        assert refusal(struct.pack(">q", base) + TWO[8:]) == (INVALID, text)
    assert refusal(TWO[:60]) == (CORRUPT, "60 bytes are less than a batch header of 61")


@pytest.mark.parametrize("target", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("source", list(Codec))
def test_what_a_topic_makes_of_a_batch(source: Codec, target: str) -> None:
    wanted = {"producer": source, "uncompressed": Codec.NONE}.get(target) or Codec[target.upper()]
    found = [Record(n, NOW + 5 - n, b"k" * 20, b"v" * 20, (("h", b"x"),)) for n in range(3)]
    data = build_batch(found, codec=source, producer_id=7, producer_epoch=2, base_sequence=9)
    for stamps in (False, True):
        changes = {"compression_type": target, **({"message_timestamp_type": "LogAppendTime"} if stamps else {})}
        kept = made(data, **changes)
        check_crc(kept.batch, kept.header)
        assert kept.header == parse_header(kept.batch) and kept.header.codec is wanted
        assert (kept.header.is_log_append_time, kept.header.max_timestamp) == (stamps, NOW if stamps else NOW + 5)
        assert records_of(kept.batch) == [replace(r, timestamp=NOW) if stamps else r for r in found]
        producer = kept.header.producer_id, kept.header.producer_epoch, kept.header.base_sequence
        assert (*producer, kept.header.base_offset, kept.header.last_offset) == (7, 2, 9, 0, 2)
        size = len(kept.batch)
        assert (kept.batch is data) is (wanted is source and not stamps)
        if wanted is source:
            assert kept.batch == (stamp(data, NOW) if stamps else data)
        limit = max(size, len(data))
        assert made(data, max_message_bytes=limit, **changes) == made(data, segment_bytes=size, **changes) == kept
        assert refusal(data, max_message_bytes=limit - 1, **changes) == (
            TOO_LARGE, f"batch of {limit} bytes is above max.message.bytes {limit - 1}"
        )  # fmt: skip
        code, text = refusal(data, segment_bytes=size - 1, **changes)
        assert (code, f" {size} bytes in append to partition t-0" in text) == (ErrorCode.RECORD_LIST_TOO_LARGE, True)


@pytest.mark.parametrize("source", list(Codec))
def test_records_whose_offsets_are_out_of_order(source: Codec) -> None:
    """Kafka takes them where it need not look; it numbers them anew where it writes them anew."""
    found = [Record(n, NOW, b"%d" % n, b"v") for n in (0, 2, 1)]
    data = patched(build_batch(found, codec=source), (23, ">i", 2))
    if source is Codec.NONE:
        assert made(data).batch is data
    else:
        assert refusal(data) == (UNREADABLE, "offsets within a compressed batch are not in order")
    other = "gzip" if source is not Codec.GZIP else "lz4"
    keys = [(r.offset, r.key) for r in records_of(made(data, compression_type=other).batch)]
    assert keys == [(0, b"0"), (1, b"2"), (2, b"1")]


@pytest.mark.parametrize("source", list(Codec))
def test_what_may_not_be_written_anew_is_taken_where_it_need_not_be(source: Codec) -> None:
    """A time before 1970, whose newest is -1, and a producer without an epoch: tried with Kafka 3.9.1."""
    other = "gzip" if source is not Codec.GZIP else "lz4"
    for at, epoch, text in ((-2, 3, "Invalid negative timestamp -2"), (NOW, -1, "Invalid negative producer epoch")):
        found = [Record(n, at, b"k", b"v") for n in range(2)]
        data = build_batch(found, codec=source, producer_id=7, producer_epoch=epoch, base_sequence=9)
        assert refusal(data, compression_type=other) == (UNREADABLE, text)
        assert refusal(data, compression_type=other, message_timestamp_type="LogAppendTime") == (UNREADABLE, text)
        header = made(data).header
        assert (header.max_timestamp, header.base_timestamp, header.producer_epoch) == (max(at, -1), at, epoch)
    mixed = build_batch([Record(0, -1, b"k", b"v")], codec=source, producer_epoch=-1)
    assert made(mixed, compression_type=other).header.max_timestamp == -1


# -- keys and times ---------------------------------------------------------------------------------------------------

BEFORE, AFTER = 10, 5
TIMES = (NOW - 11, NOW - 10, NOW, NOW + 5, NOW + 6, -1)


def faults_of(found: list[Record], *, compacted: bool) -> tuple[dict[int, str], bool]:
    """The text for each record that is refused; and whether any is for its time."""
    faults, by_time = {}, False
    for n, record in enumerate(found):
        if compacted and record.key is None:
            faults[n] = "Compacted topic cannot accept message without key in topic partition t-0"
        elif record.timestamp != -1 and not NOW - BEFORE <= record.timestamp <= NOW + AFTER:
            by_time, faults[n] = True, (
                f"Timestamp {record.timestamp} of message with offset {n} is out of range. The timestamp should be "
                f"within [{NOW - BEFORE}, {NOW + AFTER}]"
            )  # fmt: skip
    return faults, by_time


def test_keys_and_times_are_refused_record_by_record() -> None:
    kinds = list(itertools.product((None, b"k"), TIMES))
    batches = [
        [Record(n, at, key, b"v") for n, (key, at) in enumerate(pair)] for pair in itertools.product(kinds, kinds)
    ]
    batches += [[Record(n, NOW, None, b"v") for n in range(size)] for size in (3, 4, 6)]
    limits = {"message_timestamp_before_max_ms": BEFORE, "message_timestamp_after_max_ms": AFTER}
    for found, policy in itertools.product(batches, ("delete", "compact")):
        data, (faults, by_time) = build_batch(found), faults_of(found, compacted=policy == "compact")
        if not faults:
            assert records_of(made(data, cleanup_policy=policy, **limits).batch) == found
            continue
        with pytest.raises(RejectedRecords) as caught:
            made(data, cleanup_policy=policy, **limits)
        assert caught.value.code is (ErrorCode.INVALID_TIMESTAMP if by_time else INVALID)
        assert caught.value.faults == tuple(RecordFault(n, text) for n, text in faults.items())
        shown = ", ".join(f"RecordError(batchIndex={n}, message='{text}')" for n, text in list(faults.items())[:3])
        assert caught.value.message == (
            "One or more records have been rejected due to invalid timestamp" if by_time else
            f"One or more records have been rejected due to {len(faults)} record errors in total, and only showing "
            f"the first three errors at most: [{shown}]"
        )  # fmt: skip


def test_limits_that_leave_64_bits_are_told_as_java_prints_them() -> None:
    data = patched(build_batch([Record(0, 0, b"k", b"v")]), (27, ">q", -(1 << 63)))
    with pytest.raises(RejectedRecords) as caught:
        made(data)
    high = struct.unpack(">q", struct.pack(">Q", NOW + (1 << 63) - 1))[0]
    low = NOW - (1 << 63) + 1
    assert caught.value.faults[0].message.endswith(f"within [{low}, {high}]")
    with pytest.raises(RejectedRecords) as caught:
        prepare(build_batch([Record(0, 6, b"k", b"v")]), LogConfig(message_timestamp_after_max_ms=7), TP, now_ms=-2)
    assert caught.value.faults[0].message.endswith(f"within [{(1 << 63) - 1}, 5]")


#: what the topic wants -> whether the records' own times count
ANYHOW = [({}, True), ({"compression_type": "gzip"}, True), ({"message_timestamp_type": "LogAppendTime"}, False),
          ({"message_timestamp_type": "LogAppendTime", "compression_type": "gzip"}, False)]  # fmt: skip


@pytest.mark.parametrize(("config", "counts"), ANYHOW)
@pytest.mark.parametrize("base", [(1 << 63) - 1, -(1 << 63)])
def test_a_time_that_leaves_64_bits_is_what_java_makes_of_it(config: dict[str, Any], counts: bool, base: int) -> None:
    """A base at the edge, and a record one further on: a peer may send what no clock says."""
    step = 1 if base > 0 else -1
    data = patched(build_batch([Record(0, NOW, b"k", b"v"), Record(1, NOW + step, b"k", b"v")]),
                   (27, ">q", base), (35, ">q", base))  # fmt: skip
    times = [record.timestamp for record in records_of(data)]
    assert times == [base, -base - 1]
    if counts:
        assert refusal(data, **config)[0] is ErrorCode.INVALID_TIMESTAMP
    elif "compression_type" in config:
        assert refusal(data, **config) == (UNREADABLE, f"Invalid negative timestamp {-(1 << 63)}")
    else:
        batch = made(data, **config).batch
        assert [record.timestamp for record in records_of(batch)] == [NOW, NOW]
        check_crc(batch, parse_header(batch))


def test_a_producer_may_not_set_the_kind_of_timestamp() -> None:
    found = [Record(0, NOW, b"key", None), Record(1, NOW, None, b"value"), Record(2, NOW, b"", b"")]
    data = patched(build_batch(found), (21, ">h", 8), (35, ">q", NOW + 1))
    with pytest.raises(RejectedRecords) as caught:
        made(data, message_timestamp_type="LogAppendTime")
    assert (caught.value.code, [f.batch_index for f in caught.value.faults]) == (ErrorCode.INVALID_TIMESTAMP, [0, 1, 2])
    for fault, (key, value) in zip(caught.value.faults, ((3, 0), (0, 5), (0, 0)), strict=True):
        assert fault.message == (
            f"Invalid timestamp type in message DefaultRecord(offset={fault.batch_index}, timestamp={NOW + 1}, "
            f"key={key} bytes, value={value} bytes). Producer should not set timestamp type to LogAppendTime."
        )
    assert made(data).header.max_timestamp == NOW + 1
