"""Record batches: both ways with real clients' code, every flipped bit noticed, what clients may not send refused."""

from __future__ import annotations

import gzip
import random
import warnings
from dataclasses import replace
from typing import Any

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.wire.compression import Codec, compress, decompress
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.records import (
    CorruptBatch,
    Record,
    batches,
    build_batch,
    build_values,
    check_crc,
    empty_batch,
    iterate,
    parse_header,
    place,
    rebuilt_batch,
    records_of,
    stamp,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import MemoryRecords, MemoryRecordsBuilder

#: What snappy-java begins with: its magic, its version, and the oldest version that can read it.
XERIAL_HEADER = b"\x82SNAPPY\0" + b"\0\0\0\1" * 2
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3).map(tuple)
RECORDS = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        timestamp=st.integers(0, 1 << 45),
        key=st.none() | st.binary(max_size=20),
        value=st.none() | st.binary(max_size=200),
        headers=HEADERS,
    ),
    min_size=1,
    max_size=6,
).map(lambda found: [Record(i, r.timestamp, r.key, r.value, r.headers) for i, r in enumerate(found)])


@settings(max_examples=60)
@given(RECORDS, st.sampled_from(Codec))
def test_what_is_built_is_read_back(records: Any, codec: Any) -> None:
    batch = build_batch(records, codec=codec)
    header = parse_header(batch)
    check_crc(batch, header)
    assert (header.size, header.count, header.codec) == (len(batch), len(records), codec)
    assert records_of(batch) == records


@settings(max_examples=40)
@given(RECORDS, st.sampled_from([0, 1, 2, 3, 4]))
def test_kafka_python_reads_what_we_build_and_we_read_what_it_builds(records: Any, codec: Any) -> None:
    ours = build_batch(records, codec=Codec(codec))
    theirs = list(MemoryRecords(ours).next_batch())
    assert [(r.offset, r.timestamp, r.key, r.value) for r in theirs] == [
        (r.offset, r.timestamp, r.key, r.value) for r in records
    ]
    builder = MemoryRecordsBuilder(magic=2, compression_type=codec, batch_size=1 << 20)
    for record in records:
        builder.append(timestamp=record.timestamp, key=record.key, value=record.value, headers=list(record.headers))
    builder.close()
    batch = bytes(builder.buffer())
    check_crc(batch, parse_header(batch))
    assert records_of(batch) == records


@settings(max_examples=150)
@given(st.data())
def test_any_flipped_bit_after_the_magic_is_noticed(data: Any) -> None:
    batch = bytearray(build_values([(b"k", b"value"), (None, b"w")], timestamp=7))
    at = data.draw(st.integers(16, len(batch) - 1))
    batch[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptBatch):
        check_crc(bytes(batch), parse_header(bytes(batch)))


@pytest.mark.parametrize("rest", [b"", bytes(40), b"\x1f\x8b\x08" + bytes(15), gzip.compress(b"", mtime=0)])
@pytest.mark.parametrize("members", [[b"one"], [b"one", b"two"], [b"", b"one" * 99_999, b"", b"three"]])
def test_gzip_is_read_to_its_last_member(members: list[bytes], rest: bytes) -> None:
    """Java's `GZIPInputStream` reads members that follow each other as one; what is none ends it without a word."""
    data, whole = b"".join(map(gzip.compress, members)) + rest, b"".join(members)
    assert decompress(Codec.GZIP, data, limit=len(whole)) == whole
    with pytest.raises(KafkaError, match=f"more than {len(whole) - 1} bytes"):
        decompress(Codec.GZIP, data, limit=len(whole) - 1)


@pytest.mark.parametrize("cut", [1, 8, 9])
def test_a_later_member_of_gzip_that_is_cut_off_is_corrupt(cut: int) -> None:
    with pytest.raises(KafkaError, match="does not decompress"):
        decompress(Codec.GZIP, (gzip.compress(b"one") + gzip.compress(bytes(range(99))))[:-cut])


@pytest.mark.parametrize("codec", [c for c in Codec if c is not Codec.NONE])
def test_what_is_cut_off_is_not_called_too_large(codec: Codec) -> None:
    whole = compress(codec, random.Random(1).randbytes(100_000))
    with pytest.raises(KafkaError, match=f"^{codec.name.lower()} data does not decompress: (?!more than)") as refused:
        decompress(codec, whole[: len(whole) // 2])
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


@settings(max_examples=100)
@given(st.sampled_from([c for c in Codec if c is not Codec.NONE]), st.binary(max_size=60))
def test_arbitrary_bytes_decompress_or_are_corrupt(codec: Any, data: Any) -> None:
    try:
        decompress(codec, data)
    except KafkaError as error:
        assert error.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("size", [2, 1_000, 32 * 1024, 32 * 1024 + 1, 64 * 1024, 100_000, 300_000])
@pytest.mark.parametrize("codec", [c for c in Codec if c is not Codec.NONE])
def test_few_bytes_do_not_become_very_many(codec: Any, size: int) -> None:
    """The limit is one for all that comes of them, in however many blocks."""
    packed = compress(codec, bytes(size))
    assert decompress(codec, packed, limit=size) == bytes(size)
    for limit in {1, size // 2, size - 1}:
        with pytest.raises(KafkaError, match=f"more than {limit} bytes") as refused:
            decompress(codec, packed, limit=limit)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


@settings(max_examples=60)
@given(st.lists(st.binary(max_size=90), min_size=1, max_size=8))
def test_snappy_blocks_of_any_size_are_read_and_count_together(pieces: Any) -> None:
    """Other clients cut the data into other blocks."""
    blocks = [bytes(cramjam.snappy.compress_raw(piece)) for piece in pieces]
    framed = XERIAL_HEADER + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)
    data = b"".join(pieces)
    assert decompress(Codec.SNAPPY, framed, limit=len(data)) == data
    if data:
        with pytest.raises(KafkaError, match="more than "):
            decompress(Codec.SNAPPY, framed, limit=len(data) - 1)


#: The flag byte of an LZ4 frame has this bit where its blocks do not rest on each other.
INDEPENDENT_BLOCKS = 0x20


def test_lz4_blocks_are_independent_as_kafkas_reader_wants_them() -> None:
    assert compress(Codec.LZ4, bytes(300_000))[4] & INDEPENDENT_BLOCKS


@pytest.mark.parametrize("codec", [c for c in Codec if c is not Codec.NONE])
def test_data_of_any_size_comes_back_up_to_the_limit_and_not_when_cut_off(codec: Any) -> None:
    for data in (b"", b"x", bytes(1_000_000), random.Random(1).randbytes(300_000)):
        packed = compress(codec, data)
        assert decompress(codec, packed, limit=max(1, len(data))) == data
        if data:
            with pytest.raises(KafkaError) as refused:
                decompress(codec, packed[:-1])
            assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


def test_placing_a_batch_keeps_its_checksum() -> None:
    batch = place(build_values([(None, b"v")] * 3, timestamp=1), base_offset=41, partition_leader_epoch=9)
    header = parse_header(batch)
    check_crc(batch, header)
    assert (header.base_offset, header.last_offset, header.next_offset) == (41, 43, 44)
    assert header.partition_leader_epoch == 9
    assert [r.offset for r in iterate(batch)] == [41, 42, 43]


def test_stamping_a_batch_gives_all_records_the_brokers_time() -> None:
    batch = stamp(build_values([(None, b"v")] * 2, timestamp=1), 99)
    check_crc(batch, parse_header(batch))
    assert [r.timestamp for r in records_of(batch)] == [99, 99]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("horizon", [None, 7])
@pytest.mark.parametrize("is_append_time", [False, True], ids=["the producer's time", "the broker's time"])
def test_what_compaction_leaves_of_a_batch_can_be_read_and_is_at_its_place(
    codec: Codec, horizon: int | None, is_append_time: bool
) -> None:
    """Emptied or rebuilt, and again: what the batch says of its place, its producer and its time stays. Without records
    there is nothing that is compressed, and no tombstone that has a time to go."""
    found = [Record(40 + n, 100 - n, b"k%d" % n, None if n else b"v") for n in range(3)]
    batch = build_batch(
        found, codec=codec, partition_leader_epoch=9, producer_id=5, producer_epoch=2, base_sequence=11
    )  # fmt: skip
    if is_append_time:
        batch, found = stamp(batch, 200), [replace(record, timestamp=200) for record in found]
    before = parse_header(batch)
    fewer = rebuilt_batch(before, found[1:], delete_horizon_ms=horizon)
    emptied, emptied_later = empty_batch(before), empty_batch(parse_header(fewer))
    for left, records, latest in ((fewer, found[1:], 99), (emptied, [], 100), (emptied_later, [], 99)):
        header = parse_header(left)
        check_crc(left, header)
        assert records_of(left) == list(iterate(left)) == records
        assert (header.size, header.count) == (len(left), len(records))
        assert header.codec is (codec if records else Codec.NONE)
        assert header.delete_horizon_ms == (horizon if records else None)
        assert header.is_log_append_time is is_append_time
        kept = (
            "base_offset",
            "last_offset",
            "partition_leader_epoch",
            "producer_id",
            "producer_epoch",
            "last_sequence",
        )
        assert [getattr(header, name) for name in kept] == [getattr(before, name) for name in kept]
        assert header.max_timestamp == (200 if is_append_time else latest)


GOOD = build_values([(None, b"v")], timestamp=1)


def test_batches_stops_at_a_torn_end() -> None:
    found = batches(GOOD + GOOD[:-3])
    assert next(found)[0] == 0
    with pytest.raises(CorruptBatch):
        next(found)
