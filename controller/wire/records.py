"""Record batches, magic 2: headers without decoding records, checks, the two fields a broker sets, and building.

A log stores and moves whole batches as bytes; only lookups by time, client checks and internal topics look
inside.
Source: spec clients.md §2, Kafka 3.9 `DefaultRecordBatch`, `DefaultRecord`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import crc32c

from controller.wire.compression import Codec, compress, decompress
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.longs import as_long

#: baseOffset, batchLength, partitionLeaderEpoch, magic, crc, attributes, lastOffsetDelta, baseTimestamp, maxTimestamp,
#: producerId, producerEpoch, baseSequence, record count.
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = _HEADER.size
#: baseOffset and batchLength, which the length itself does not count.
LOG_OVERHEAD: Final = 12
_CRC_AT: Final = 17
_CRC_FROM: Final = 21
_ATTRIBUTES_TO_MAX_TIMESTAMP: Final = struct.Struct(">hiqq")
_PLACE: Final = struct.Struct(">q")
_EPOCH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
MAGIC: Final = 2
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1

_CODEC_MASK: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_DELETE_HORIZON: Final = 0x40


class CorruptBatch(KafkaError):
    """Bytes that are no intact batch: short, wrong length, wrong magic or wrong checksum."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class InvalidRecord(KafkaError):
    """A batch that is intact but says what a client may not say."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


class BatchHeader(NamedTuple):
    """The 61 bytes before the records. `size` is the whole batch in bytes, header included."""

    base_offset: int
    size: int
    partition_leader_epoch: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # of records: nobody counts the fields

    @property
    def last_offset(self) -> int:
        """Offset of the last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """How the records are compressed. Raises CorruptBatch for a number that is no codec."""
        try:
            return Codec(self.attributes & _CODEC_MASK)
        except ValueError as error:
            raise CorruptBatch(f"compression type {self.attributes & _CODEC_MASK} does not exist") from error

    @property
    def is_log_append_time(self) -> bool:
        """Whether the broker's clock stamped the records."""
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Whether a transaction wrote it."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether it is a marker, not data."""
        return bool(self.attributes & _CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the tombstones in it may go, None before its first compaction; stored as its base timestamp."""
        return self.base_timestamp if self.attributes & _DELETE_HORIZON else None

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, with Kafka's wrap to 0 after 2147483647."""
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class Record:
    """One record, absolute in offset and time."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def read_header(data: bytes | memoryview, at: int = 0) -> BatchHeader:
    """The header at `at` as it stands, unchecked; there must be `HEADER_BYTES`."""
    offset, length, epoch, _, crc, attributes, delta, base_ts, max_ts, pid, pepoch, sequence, count = (
        _HEADER.unpack_from(data, at)
    )
    return BatchHeader(
        offset, length + LOG_OVERHEAD, epoch, crc, attributes, delta, base_ts, max_ts, pid, pepoch, sequence, count
    )


def parse_header(data: bytes | memoryview, at: int = 0) -> BatchHeader:
    """The header at `at`. Checks lengths and magic, not the checksum, and not that the whole batch is there.

    Raises: CorruptBatch.
    """
    if len(data) - at < HEADER_BYTES:
        raise CorruptBatch(f"{len(data) - at} bytes are less than a batch header of {HEADER_BYTES}")
    offset, length, epoch, magic, crc, attributes, delta, base_ts, max_ts, pid, pepoch, sequence, count = (
        _HEADER.unpack_from(data, at)
    )
    if magic != MAGIC:
        raise CorruptBatch(f"magic {magic} is not {MAGIC}")
    if length < HEADER_BYTES - LOG_OVERHEAD:
        raise CorruptBatch(f"batch length {length} is less than {HEADER_BYTES - LOG_OVERHEAD}")
    if delta < 0 or count < 0:
        raise CorruptBatch(f"last offset delta {delta} or record count {count} is negative")
    return BatchHeader(
        offset, length + LOG_OVERHEAD, epoch, crc, attributes, delta, base_ts, max_ts, pid, pepoch, sequence, count
    )


def check_crc(data: bytes | memoryview, header: BatchHeader, at: int = 0) -> None:
    """Raises CorruptBatch when the batch at `at` is not all there or its checksum is another."""
    if len(data) - at < header.size:
        raise CorruptBatch(f"batch of {header.size} bytes has only {len(data) - at}")
    computed = crc32c.crc32c(data[at + _CRC_FROM : at + header.size])
    if computed != header.crc:
        raise CorruptBatch(f"stored checksum {header.crc:#010x} of the batch is not the computed {computed:#010x}")


def batches(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch in a run of whole batches. Raises CorruptBatch where it is none."""
    at = 0
    while at < len(data):
        header = parse_header(data, at)
        if len(data) - at < header.size:
            raise CorruptBatch(f"batch of {header.size} bytes has only {len(data) - at}")
        yield at, header
        at += header.size


def place(batch: bytes, *, base_offset: int, partition_leader_epoch: int) -> bytes:
    """The batch at its place in a log. Neither field is under the checksum."""
    return _PLACE.pack(base_offset) + batch[8:LOG_OVERHEAD] + _EPOCH.pack(partition_leader_epoch) + batch[_CRC_AT - 1 :]


def stamp(batch: bytes, timestamp: int) -> bytes:
    """The batch with LogAppendTime `timestamp`, and so with a new checksum."""
    return with_timestamp(batch, timestamp, is_append_time=True)


def with_timestamp(batch: bytes, max_timestamp: int, *, is_append_time: bool) -> bytes:
    """The batch with this kind of timestamp and this largest one; the same bytes where both are so already."""
    attributes, delta, base_ts, old = _ATTRIBUTES_TO_MAX_TIMESTAMP.unpack_from(batch, _CRC_FROM)
    with_type = attributes | _LOG_APPEND_TIME if is_append_time else attributes & ~_LOG_APPEND_TIME
    if (with_type, max_timestamp) == (attributes, old):
        return batch
    head = _ATTRIBUTES_TO_MAX_TIMESTAMP.pack(with_type, delta, base_ts, max_timestamp)
    body = head + batch[_CRC_FROM + _ATTRIBUTES_TO_MAX_TIMESTAMP.size :]
    return batch[:_CRC_AT] + _CRC.pack(crc32c.crc32c(body)) + body


def records_of(batch: bytes) -> list[Record]:
    """Decodes the records of one batch, decompressed where needed. Absolute offsets and timestamps.

    Raises: CorruptBatch when the records do not parse; InvalidRecord when they contradict the header.
    """
    header = parse_header(batch)
    if len(batch) < header.size:
        raise CorruptBatch(f"batch of {header.size} bytes has only {len(batch)}")
    body = decompress(header.codec, batch[HEADER_BYTES : header.size])
    found: list[Record] = []
    at = 0
    try:
        for _ in range(header.count):
            record, at = _read_record(body, at, header)
            found.append(record)
    except (IndexError, UnicodeDecodeError) as error:
        raise CorruptBatch(f"record {len(found)} of {header.count} does not parse: {error}") from error
    if at != len(body):
        raise InvalidRecord(f"{len(body) - at} bytes are left after the last of {header.count} records")
    return found


def iterate(data: bytes) -> Iterator[Record]:
    """All records of a run of whole batches, control batches left out. Raises as `batches` and `records_of`."""
    for at, header in batches(data):
        if not header.is_control:
            yield from records_of(data[at : at + header.size])


def _read_record(body: bytes, at: int, header: BatchHeader) -> tuple[Record, int]:
    length, at = read_varint(body, at)
    end = at + length
    if length < 0 or end > len(body):
        raise IndexError(f"length {length} leaves the batch")
    at += 1
    timestamp_delta, at = read_varint(body, at)
    offset_delta, at = read_varint(body, at)
    key, at = _read_bytes(body, at, end)
    value, at = _read_bytes(body, at, end)
    header_count, at = read_varint(body, at)
    if not 0 <= header_count <= end - at:
        raise IndexError(f"{header_count} headers in {end - at} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(header_count):
        name, at = _read_bytes(body, at, end)
        content, at = _read_bytes(body, at, end)
        headers.append(((name or b"").decode(), content))
    if at != end:
        raise IndexError(f"length {length} is {end - at} bytes too long")
    timestamp = header.max_timestamp if header.is_log_append_time else as_long(header.base_timestamp + timestamp_delta)
    return Record(header.base_offset + offset_delta, timestamp, key, value, tuple(headers)), at


def _read_bytes(body: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = read_varint(body, at)
    if length < 0:
        return None, at
    if at + length > end:
        raise IndexError(f"field of {length} bytes leaves its record")
    return body[at : at + length], at + length


def read_varint(body: bytes, at: int) -> tuple[int, int]:
    """A zig-zag varint of up to 64 bits. Raises IndexError at the end of the bytes."""
    raw = shift = 0
    while True:
        byte = body[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
        if shift > 63:
            raise IndexError("varint of more than 10 bytes")


def _varint(value: int) -> bytes:
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def _field(content: bytes | None) -> bytes:
    return _varint(-1) if content is None else _varint(len(content)) + content


def _encode_record(record: Record, *, base_offset: int, base_timestamp: int) -> bytes:
    body = b"".join(
        (
            b"\x00",
            _varint(record.timestamp - base_timestamp),
            _varint(record.offset - base_offset),
            _field(record.key),
            _field(record.value),
            _varint(len(record.headers)),
            *(_field(name.encode()) + _field(content) for name, content in record.headers),
        )
    )
    return _varint(len(body)) + body


def build_batch(
    records: Sequence[Record],
    *,
    codec: Codec = Codec.NONE,
    partition_leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """One batch of these records, whose offsets must rise; the first is the base offset.

    Raises: ValueError for no records.
    """
    if not records:
        raise ValueError("a batch needs at least one record")
    first, last = records[0], records[-1]
    encoded = b"".join(_encode_record(r, base_offset=first.offset, base_timestamp=first.timestamp) for r in records)
    return _assemble(
        compress(codec, encoded),
        (
            codec.value,
            last.offset - first.offset,
            first.timestamp,
            max(r.timestamp for r in records),
            producer_id,
            producer_epoch,
            base_sequence,
            len(records),
        ),
        base_offset=first.offset,
        partition_leader_epoch=partition_leader_epoch,
    )


def rebuilt_batch(header: BatchHeader, kept: Sequence[Record], *, delete_horizon_ms: int | None) -> bytes:
    """The batch of that header with only these of its records, and its offsets, producer and codec as they were."""
    flags = header.attributes & ~_DELETE_HORIZON
    base_timestamp = kept[0].timestamp
    if delete_horizon_ms is not None:
        flags, base_timestamp = flags | _DELETE_HORIZON, delete_horizon_ms
    encoded = b"".join(_encode_record(r, base_offset=header.base_offset, base_timestamp=base_timestamp) for r in kept)
    return _assemble(
        compress(header.codec, encoded),
        (
            flags,
            header.last_offset_delta,
            base_timestamp,
            max(r.timestamp for r in kept),
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            len(kept),
        ),
        base_offset=header.base_offset,
        partition_leader_epoch=header.partition_leader_epoch,
    )


def empty_batch(header: BatchHeader) -> bytes:
    """The batch of that header without records: what is left of a producer's last batch, for its sequence."""
    return _assemble(
        b"",
        (
            header.attributes & ~(_CODEC_MASK | _DELETE_HORIZON),
            header.last_offset_delta,
            NO_TIMESTAMP,
            header.max_timestamp,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            0,
        ),
        base_offset=header.base_offset,
        partition_leader_epoch=header.partition_leader_epoch,
    )


_CHECKED: Final = struct.Struct(">hiqqqhii")
_UNCHECKED: Final = struct.Struct(">qiibI")


def _assemble(body: bytes, fields: tuple[int, ...], *, base_offset: int, partition_leader_epoch: int) -> bytes:
    checked = _CHECKED.pack(*fields) + body
    length = HEADER_BYTES - LOG_OVERHEAD + len(body)
    return _UNCHECKED.pack(base_offset, length, partition_leader_epoch, MAGIC, crc32c.crc32c(checked)) + checked


def build_values(
    pairs: Iterable[tuple[bytes | None, bytes | None]], *, timestamp: int, codec: Codec = Codec.NONE
) -> bytes:
    """One batch of keys and values, all with one timestamp, offsets from 0: what a producer sends."""
    return build_batch(
        [Record(offset, timestamp, key, value) for offset, (key, value) in enumerate(pairs)], codec=codec
    )
