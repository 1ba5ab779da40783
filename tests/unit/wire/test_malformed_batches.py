"""Batches that are not what they claim to be: each lie is refused as a corrupt batch or an invalid record, and a batch
is read by its own bounds wherever it lies in a run of others."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from itertools import pairwise

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.wire.records import (
    HEADER_BYTES,
    CorruptBatch,
    InvalidRecord,
    Record,
    batches,
    build_batch,
    build_values,
    check_crc,
    iterate,
    parse_header,
    read_header,
    records_of,
    stamp,
    with_timestamp,
)

#: Where fields of a header are, and how they are packed. Source: spec clients.md §2.
PLACES = {
    "base_offset": (0, ">q"), "length": (8, ">i"), "partition_leader_epoch": (12, ">i"), "magic": (16, ">b"),
    "attributes": (21, ">h"), "last_offset_delta": (23, ">i"), "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"), "producer_id": (43, ">q"), "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"), "count": (57, ">i"),
}  # fmt: skip


def saying(batch: bytes, *, body: bytes | None = None, **fields: int) -> bytes:
    """The batch with these fields, this body and the checksum of what it then is."""
    said = bytearray(batch if body is None else batch[:HEADER_BYTES] + body)
    if body is not None:
        struct.pack_into(">i", said, 8, len(said) - 12)
    for name, value in fields.items():
        at, form = PLACES[name]
        struct.pack_into(form, said, at, value)
    struct.pack_into(">I", said, 17, crc32c.crc32c(bytes(said[21:])))
    return bytes(said)


ONE = build_values([(b"k", b"value")], timestamp=7)


@pytest.mark.parametrize("size", [0, 1, 60])
@pytest.mark.parametrize("before", [0, 70])
def test_what_is_shorter_than_a_header_is_corrupt(size: int, before: int) -> None:
    with pytest.raises(CorruptBatch):
        parse_header(bytes(before) + ONE[:size], before)


HEADERS_THAT_LIE = [
    ("an older magic", {"magic": 1}),
    ("a newer magic", {"magic": 3}),
    ("a length below that of a header", {"length": 48}),
    ("a length of nothing", {"length": 0}),
    ("a negative length", {"length": -1}),
    ("its last offset before its first", {"last_offset_delta": -1}),
    ("a negative number of records", {"count": -1}),
]


@pytest.mark.parametrize("fields", [pytest.param(fields, id=name) for name, fields in HEADERS_THAT_LIE])
def test_a_header_that_no_batch_has_is_corrupt(fields: dict[str, int]) -> None:
    with pytest.raises(CorruptBatch):
        parse_header(saying(ONE, **fields))
    with pytest.raises(CorruptBatch):
        records_of(saying(ONE, **fields))


def test_the_smallest_header_is_one() -> None:
    header = parse_header(saying(ONE, body=b"", count=0))
    assert (header.size, header.count, header.last_offset) == (HEADER_BYTES, 0, 0)


def run_of_batches(sizes: Sequence[int]) -> tuple[bytes, list[bytes]]:
    found, offset = [], 0
    for size in sizes:
        records = [Record(offset + n, 1000 - n, None, bytes(size)) for n in range(size)]
        found.append(build_batch(records, partition_leader_epoch=size))
        offset += size
    return b"".join(found), found


@settings(max_examples=40)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_in_a_run_each_batch_is_read_by_its_own_bounds(sizes: list[int], data: st.DataObject) -> None:
    """However the run is torn: the batches before the tear are found, then the tear is; a marker's records are none."""
    run, apart = run_of_batches(sizes)
    marker = data.draw(st.integers(0, len(apart) - 1))
    apart[marker] = saying(apart[marker], attributes=0x20)
    run = b"".join(apart)
    places = [sum(map(len, apart[:n])) for n in range(len(apart) + 1)]
    assert list(batches(run)) == [(at, parse_header(one)) for at, one in zip(places, apart, strict=False)]
    for at, header in batches(run):
        assert read_header(run, at) == header
        check_crc(run, header, at)
        check_crc(memoryview(run), header, at)
    assert list(iterate(run)) == [r for n, one in enumerate(apart) if n != marker for r in records_of(one)]
    assert records_of(run) == records_of(apart[0]), "what follows a batch is not its own"
    cut = data.draw(st.integers(0, len(run)))
    found = []
    with nullcontext() if cut in places else pytest.raises(CorruptBatch):
        for at, _ in batches(run[:cut]):
            found.append(at)  # what is found before the tear counts
    assert found == [at for at, end in pairwise(places) if end <= cut]


@settings(max_examples=30)
@given(st.integers(0, 2), st.integers(1, 90))
def test_a_batch_that_is_not_all_there_is_corrupt(before: int, missing: int) -> None:
    run, apart = run_of_batches((2,) * (before + 1))
    at = len(run) - len(apart[-1])
    header, torn = parse_header(run, at), run[: max(at + HEADER_BYTES, len(run) - missing)]
    with pytest.raises(CorruptBatch, match="has only"):
        check_crc(torn, header, at)
    with pytest.raises(CorruptBatch, match="has only"):
        records_of(torn[at:])


def varint(value: int) -> bytes:
    """Zig-zag. Source: Protocol Buffers, `sint64`."""
    raw, out = (value << 1) if value >= 0 else (-value << 1) - 1, b""
    while raw >= 128:
        raw, out = raw // 128, out + bytes((raw % 128 + 128,))
    return out + bytes((raw,))


def record(*fields: int | bytes, length: int | None = None, rest: bytes = b"") -> bytes:
    """A record of these fields after its attributes, which says that it has that length."""
    content = b"\0" + b"".join(f if isinstance(f, bytes) else varint(f) for f in fields) + rest
    return varint(len(content) if length is None else length) + content


#: timestamp delta, offset delta, key, value, number of headers
PLAIN = (0, 0, 1, b"k", 1, b"v", 0)
RECORDS_THAT_LIE = [
    ("no bytes at all", b"", 1),
    ("a negative length", record(*PLAIN, length=-1), 1),
    ("a length of nothing", record(*PLAIN, length=0), 1),
    ("one byte more than the batch holds", record(*PLAIN, length=9), 1),
    ("one byte less than its fields take", record(*PLAIN, length=7) + b"\0", 1),
    ("one byte that is no field", record(*PLAIN, rest=b"\0"), 1),
    ("one record less than the header counts", record(*PLAIN), 2),
    ("a key that leaves the batch", record(0, 0, 99, b"k", 1, b"v", 0), 1),
    ("a value that leaves the batch", record(0, 0, 1, b"k", 9, b"v", 0), 1),
    ("a value that goes on in the next record", record(0, 0, -1, 9, b"v", 0) + record(*PLAIN), 2),
    ("a negative number of headers", record(0, 0, -1, -1, -1), 1),
    ("more headers than bytes", record(0, 0, -1, -1, 3, rest=b"\0\0") + record(*PLAIN) * 9, 10),
    ("very many headers", record(0, 0, -1, -1, 2**31 - 1), 1),
    ("a header whose name leaves the record", record(0, 0, -1, -1, 1, 9, b"h", 0) + record(*PLAIN), 2),
    ("a header whose value leaves the record", record(0, 0, -1, -1, 1, 1, b"h", 9) + record(*PLAIN), 2),
    ("a header whose name is no text", record(0, 0, -1, -1, 1, 1, b"\xff", 0), 1),
    ("a varint that does not end", record(b"\xff" * 9), 1),
    ("a varint of eleven bytes", record(b"\x80" * 10 + b"\0", *PLAIN[1:]), 1),
]


@pytest.mark.parametrize(("body", "count"), [pytest.param(*row[1:], id=row[0]) for row in RECORDS_THAT_LIE])
def test_a_record_that_is_not_as_long_as_it_says_is_corrupt(body: bytes, count: int) -> None:
    with pytest.raises(CorruptBatch):
        records_of(saying(ONE, body=body, count=count))


def test_records_that_the_header_does_not_count_are_invalid() -> None:
    for body, count in ((record(*PLAIN), 0), (record(*PLAIN) * 2, 1), (record(*PLAIN) + b"\0", 1)):
        with pytest.raises(InvalidRecord):
            records_of(saying(ONE, body=body, count=count))


def test_records_at_the_edge_of_what_may_be_are_read() -> None:
    for fields, key, value, headers in (
        ((0, 0, 0, 0, 0), b"", b"", ()),
        ((0, 0, -1, -1, 0), None, None, ()),
        ((0, 0, -7, -7, 0), None, None, ()),
        ((0, 0, -1, -1, 1, 0, 0), None, None, (("", b""),)),
        ((0, 0, -1, -1, 2, 1, b"h", -1, 0, -1), None, None, (("h", None), ("", None))),
    ):
        assert records_of(saying(ONE, body=record(*fields))) == [Record(0, 7, key, value, headers)]


@settings(max_examples=150)
@given(st.data())
def test_whatever_a_body_holds_it_is_read_or_refused(data: st.DataObject) -> None:
    """One byte of a sound body changed, and the checksum with it."""
    body = bytearray(run_of_batches((3,))[1][0][HEADER_BYTES:])
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    count = data.draw(st.integers(0, 4))
    with suppress(CorruptBatch, InvalidRecord):
        assert len(records_of(saying(ONE, body=bytes(body), count=count))) == count


@settings(max_examples=60)
@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1))
def test_any_distance_in_time_and_offset_is_read(time: int, offset: int) -> None:
    """Times wrap as Java's longs do."""
    (read,) = records_of(saying(ONE, body=record(time, offset, *PLAIN[2:])))
    assert (read.offset, read.timestamp) == (offset, (7 + time + 2**63) % 2**64 - 2**63)


@pytest.mark.parametrize("number", [5, 6, 7])
def test_a_codec_that_is_none_is_corrupt(number: int) -> None:
    header = parse_header(saying(ONE, attributes=number))
    with pytest.raises(CorruptBatch):
        _ = header.codec


FLAGS = {"is_log_append_time": 0x08, "is_transactional": 0x10, "is_control": 0x20, "delete_horizon_ms": 0x40}


@pytest.mark.parametrize("name", FLAGS)
def test_each_flag_says_one_thing(name: str) -> None:
    for attributes in (0, FLAGS[name], 0x7F, 0x7F & ~FLAGS[name]):
        header = parse_header(saying(ONE, attributes=attributes))
        assert getattr(header, name) in ((True, 7) if attributes & FLAGS[name] else (False, None))


@pytest.mark.parametrize(
    ("base_sequence", "delta", "last"),
    [(0, 0, 0), (5, 3, 8), (2**31 - 2, 1, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 1, 9, 8), (2**31 - 4, 9, 5)],
)
def test_sequences_go_on_at_zero_after_the_largest(base_sequence: int, delta: int, last: int) -> None:
    """Source: Kafka 3.9 `DefaultRecordBatch.incrementSequence`."""
    header = parse_header(saying(ONE, base_sequence=base_sequence, last_offset_delta=delta))
    assert header.last_sequence == last


@pytest.mark.parametrize("is_append_time", [False, True])
@pytest.mark.parametrize("attributes", range(0, 0x80, 8))
def test_a_kind_of_timestamp_leaves_all_else(attributes: int, is_append_time: bool) -> None:
    batch = saying(ONE, attributes=attributes, producer_id=9, last_offset_delta=4)
    for latest in (7, 99):
        stamped = with_timestamp(batch, latest, is_append_time=is_append_time)
        check_crc(stamped, parse_header(stamped))
        kind = attributes | 0x08 if is_append_time else attributes & ~0x08
        assert stamped == saying(batch, attributes=kind, max_timestamp=latest)
    assert with_timestamp(stamped, 99, is_append_time=is_append_time) is stamped, "no bytes are copied for nothing"
    assert stamp(batch, 99) == with_timestamp(batch, 99, is_append_time=True)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2**41)), min_size=1, max_size=5),
    st.integers(0, 2**40),
    st.fixed_dictionaries(
        {
            "partition_leader_epoch": st.integers(-1, 2**31 - 1),
            "producer_id": st.integers(-1, 2**63 - 1),
            "producer_epoch": st.integers(-1, 2**15 - 1),
            "base_sequence": st.integers(-1, 2**31 - 1),
        }
    ),
)
def test_a_header_says_what_the_batch_was_built_of(
    gaps: list[tuple[int, int]], base_offset: int, fields: dict[str, int]
) -> None:
    """Offsets may have gaps, as compaction leaves them; the largest time may be any record's."""
    records = []
    for gap, time in gaps:
        base_offset += gap + 1
        records.append(Record(base_offset, time, None, b""))
    batch = build_batch(records, **fields)
    header = parse_header(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (
        records[0].offset, records[-1].offset, records[-1].offset + 1,
    )  # fmt: skip
    assert (header.base_timestamp, header.max_timestamp) == (gaps[0][1], max(time for _, time in gaps))
    assert {name: getattr(header, name) for name in fields} == fields
    assert records_of(batch) == records
