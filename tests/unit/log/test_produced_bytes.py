"""What a leader takes and refuses, byte by byte: against rules that are written down a second time, plainly.

Source: Kafka 3.9 `ByteBufferLogInputStream`, `ProduceRequest.validateRecords`, `DefaultRecord.readPartiallyFrom`,
`LogValidator`.
"""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from broker_sim.log.produced import (
    MalformedRecords,
    Scan,
    check_request,
    is_transactional,
    scan_records,
)
from controller.wire.compression import Codec
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.records import (
    HEADER_BYTES,
    BatchHeader,
    Record,
    build_batch,
    parse_header,
)
from tests.worlds.logs import patched

NOW = 1_000_000
INVALID, UNREADABLE = ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR
CORRUPT = ErrorCode.CORRUPT_MESSAGE


# -- the records ------------------------------------------------------------------------------------------------------


class Refused(Exception):
    """With the code that a client gets, and the text where it is certain."""

    def __init__(self, code: ErrorCode, text: str = "") -> None:
        self.code, self.text = code, text


def number(data: bytes, at: int) -> tuple[int, int]:
    """A zig-zag number of at most ten bytes, and where it ends."""
    size = next((n for n, byte in enumerate(data[at : at + 10], 1) if byte < 0x80), None)
    if size is None:
        raise IndexError
    raw = sum((byte % 0x80) << 7 * n for n, byte in enumerate(data[at : at + size]))
    return (-(raw + 1) // 2 if raw % 2 else raw // 2), at + size


def one_record(record: bytes, index: int) -> tuple[int, int, int, int]:
    """Its time and its offset as they stand there, the sizes of key and value. What ends within a number has no certain
    text: its other bytes are those of the next record.
    """

    def field(at: int) -> tuple[int, int]:
        if at >= len(record):
            raise Refused(INVALID, "Found invalid record structure")
        return number(record, at)

    time, at = field(1)
    offset, at = field(at)
    key, at = field(at)
    value, at = field(at + max(key, 0))
    count, at = field(at + max(value, 0))
    if not 0 <= count <= len(record) - at:
        raise Refused(INVALID, f"Found invalid number of record headers {count}")
    for _ in range(count):
        name, at = field(at)
        if name < 0:
            raise Refused(INVALID, f"Invalid negative header key size {name}")
        content, at = field(at + name)
        at += max(content, 0)
    if at != len(record):
        raise Refused(INVALID, f"record {index} of {len(record)} bytes does not end where its fields do")
    return time, offset, key, value


def scanned(body: bytes, header: BatchHeader) -> Scan:
    scan, at = Scan(), 0
    for index in range(header.count):
        left = len(body) - at
        try:
            length, begin = number(body, at)
        except IndexError:
            text = "Incorrect declared batch size, premature EOF reached"
            raise Refused(INVALID, text) if left < 5 else Refused(UNREADABLE) from None
        if begin - at > 5:
            raise Refused(UNREADABLE, "the length of a record has more than five bytes")
        if not 0 <= length <= len(body) - begin:
            text = f"Invalid record size: expected {length} bytes, but {len(body) - begin} are left"
            raise Refused(INVALID, text)
        at = begin + length
        try:
            time, offset, key, value = one_record(body[begin:at], index)
        except IndexError:
            raise Refused(INVALID) from None
        scan.timestamps.append(header.max_timestamp if header.is_log_append_time else header.base_timestamp + time)
        scan.in_order = scan.in_order and offset == index
        scan.keyless += [index] if key < 0 else []
        scan.sizes.append((key, value))
    if at != len(body):
        raise Refused(INVALID, "Incorrect declared batch size, records still remaining in file")
    return scan


def outcome(body: bytes, header: BatchHeader, scan: Any) -> Any:
    try:
        return scan(body, header)
    except Refused as refused:
        return refused.code, refused.text
    except KafkaError as error:
        return error.code, str(error.message)


def assert_alike(body: bytes, header: BatchHeader) -> None:
    expected, found = outcome(body, header, scanned), outcome(body, header, scan_records)
    if isinstance(expected, tuple) and not expected[1] and isinstance(found, tuple):
        found = found[0], ""
    assert found == expected, body.hex()


SAMPLES = {
    "plain": [Record(n, NOW + n, b"k", b"v") for n in range(3)],
    "nothing in it": [Record(0, NOW, None, None), Record(1, NOW - 70, b"", b""), Record(2, NOW + 9_000, None, b"v")],
    "headers": [
        Record(0, NOW, b"k", b"v", (("a", b"1"), ("", None), ("b" * 70, b""))),
        Record(1, NOW, None, b"", (("c", b"2"),)),
    ],
    "long": [Record(0, NOW, b"k" * 63, b"v" * 64), Record(1, NOW, b"k" * 64, b"v" * 130)],
}  # fmt: skip


def variants(body: bytes) -> Iterator[bytes]:
    """A byte changed, left out or doubled, at each place; all beginnings; something behind."""
    yield from (body, body + b"\0", body + body)
    for at, byte in enumerate(body):
        others = (
            0,
            1,
            2,
            3,
            0x3F,
            0x7E,
            0x7F,
            0x80,
            0x81,
            0xFE,
            0xFF,
            byte ^ 1,
            byte ^ 2,
            (byte + 2) % 256,
            byte ^ 0x80,
        )
        yield from (body[:at] + bytes([other]) + body[at + 1 :] for other in others)
        yield from (body[:at], body[:at] + body[at + 1 :], body[: at + 1] + body[at:])


@pytest.mark.parametrize("name", SAMPLES)
def test_records_are_refused_by_their_form(name: str) -> None:
    batch = build_batch(SAMPLES[name])
    header, whole = parse_header(batch), batch[HEADER_BYTES:]
    for body in variants(whole):
        assert_alike(body, header)
    for count, attributes, size in itertools.product(range(5), (0, 8), range(len(whole) + 1)):
        assert_alike(whole[:size], header._replace(count=count, attributes=attributes))


def test_the_length_of_a_record_has_up_to_five_bytes() -> None:
    header = parse_header(build_batch(SAMPLES["plain"][:1]))
    for size, last, tail in itertools.product(range(12), (0, 1, 6, 0x0F, 0x7F), (0, 1, 3, 4, 5, 6, 9)):
        for filler in (0x80, 0xFF):
            assert_alike(bytes([filler] * size + [last]) + bytes(tail), header)
            assert_alike(bytes([filler] * size), header)
    padded = b"\x90\x80\x80\x80\x00" + build_batch(SAMPLES["plain"][:1])[HEADER_BYTES + 1 :]
    assert_alike(padded, header)
    assert scan_records(padded, header).sizes == [(1, 1)]


def long_form(value: int, extra: int) -> bytes:
    """A zig-zag number with so many bytes more than it needs."""
    raw, found = (2 * value if value >= 0 else -2 * value - 1), b""
    while raw > 0x7F or extra > 0:
        extra -= raw <= 0x7F
        found, raw = found + bytes([raw % 0x80 | 0x80]), raw >> 7
    return found + bytes([raw])


@pytest.mark.parametrize("extra", range(4))
def test_numbers_may_be_longer_than_they_need_to_be(extra: int) -> None:
    header = parse_header(build_batch(SAMPLES["plain"][:1]))
    values = {"time": (0, 1, -1, 64, -65, 9_000), "offset": (0, 1, -1), "key": (-1, 0, 1, 70), "value": (-1, 0, 2, 70)}
    for time, offset, key, value in itertools.product(*values.values()):
        for count, name in ((0, 0), (1, 0), (2, 1), (1, 64), (-1, 0), (1, -1), (70, 0)):
            pair = long_form(name, extra) + b"n" * max(name, 0) + long_form(-1, extra)
            fields = [long_form(number, extra) for number in (time, offset, key, value, count)]
            record = b"\0" + fields[0] + fields[1] + fields[2] + b"k" * max(key, 0) + fields[3] + b"v" * max(value, 0)
            record += fields[4] + pair * min(max(count, 0), 2)
            assert_alike(long_form(len(record), extra) + record, header)


def test_many_records() -> None:
    chance, batch = random.Random(1), build_batch([Record(n, NOW - n * n, b"k", None) for n in range(70)])
    header, body = parse_header(batch), batch[HEADER_BYTES:]
    assert scan_records(body, header).in_order
    for _ in range(150):
        at = chance.randrange(len(body))
        assert_alike(body[:at] + bytes([chance.randrange(256)]) + body[at + 1 :], header)


# -- the shape of a request -------------------------------------------------------------------------------------------


def shapes(data: bytes) -> list[tuple[int, int]]:
    found, at = [], 0
    while len(data) >= at + 12:
        length = int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        if length < 14:
            text = f"Record size {length} is less than the minimum record overhead (14)"
            raise Refused(CORRUPT, text)
        if len(data) < at + 17:
            break
        magic = struct.unpack_from(">b", data, at + 16)[0]
        if magic not in (0, 1, 2):
            raise Refused(CORRUPT, f"Invalid magic found in record: {magic}")
        if len(data) < at + 12 + length:
            break
        found.append((at, 12 + length))
        at += 12 + length
    return found


def requested(data: bytes, version: int) -> bytes:
    found, says = shapes(data), f"Produce requests with version {version}"
    if not found:
        raise Refused(INVALID, f"{says} must have at least one record batch per partition")
    if data[16] != 2:
        raise Refused(INVALID, f"{says} are only allowed to contain record batches with magic version 2")
    if data[22] % 8 == Codec.ZSTD.value and version < 7:
        text = f"{says} are not allowed to use ZStandard compression"
        raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, text)
    if len(found) > 1:
        raise Refused(INVALID, f"{says} are only allowed to contain exactly one record batch per partition")
    return data[: found[0][1]]


def of_request(data: bytes, version: int, check: Any) -> Any:
    try:
        return check(data, version)
    except Refused as refused:
        return refused.code, refused.text
    except KafkaError as error:
        assert isinstance(error, MalformedRecords) == (error.code is CORRUPT)
        return error.code, str(error.message)


def test_what_is_no_batch_of_its_version_is_refused() -> None:
    good = build_batch(SAMPLES["plain"])
    shaped = [patched(good, (16, ">b", magic)) for magic in (-1, 0, 1, 3, 127)]
    shaped += [patched(good, (8, ">i", length)) for length in (-1, 0, 13, 14, 15, 48, 49, 50, 1 << 30)]
    shaped += [patched(good, (21, ">h", codec)) for codec in (*range(8), 0x14, 0x104)]
    behind = [b"", b"x" * 11, b"\0" * 12, b"\0" * 16, good, good[:12], good[:16], good[:17], good[:-1], good + b"x"]
    for data in [good, *shaped]:
        for tail, version in itertools.product([*behind, shaped[0], shaped[8], good[:11] + b"\x0d"], (3, 6, 7, 8)):
            expected = of_request(data + tail, version, requested)
            assert of_request(data + tail, version, check_request) == expected, (data + tail).hex()
    for size in range(len(good)):
        for version in (6, 7):
            expected = of_request(good[:size], version, requested)
            assert of_request(good[:size], version, check_request) == expected
    assert check_request(good, 8) is good


@pytest.mark.parametrize("attributes", [0, 0x10, 0x20, 0x3F])
def test_the_first_batch_tells_whether_it_is_a_transactions(attributes: int) -> None:
    good = build_batch(SAMPLES["plain"])
    data = patched(good, (21, ">h", attributes))
    for taken in (data, data + good, data + good[:20]):
        assert is_transactional(taken) is bool(attributes & 0x10)
    assert not is_transactional(data[:-1])
    for length, size in ((48, 60), (49, 61)):
        assert is_transactional(patched(data, (8, ">i", length))[:size]) is (length == 49 and bool(attributes & 0x10))
