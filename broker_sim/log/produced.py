"""What a leader makes of the bytes that a producer sent: refused for Kafka's reasons in their order, or to append.

Two steps, as in Kafka. `check_request` looks at the shape of the bytes before it is known where they go;
`prepare` looks at the one batch with the topic's settings: sizes, checksum, counts, every record, timestamps. It
changes what a broker changes: the codec (`compression.type`), the largest timestamp, the kind of timestamp.
Source: Kafka 3.9 `ByteBufferLogInputStream`, `ProduceRequest.validateRecords`, `UnifiedLog.analyzeAndValidateRecords`,
`LogValidator`, `DefaultRecord`; spec clients.md §2, §3.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

from broker_sim.log.config import LogConfig
from controller.wire import records
from controller.wire.compression import Codec, decompress
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.longs import as_long
from controller.wire.records import BatchHeader, CorruptBatch, InvalidRecord
from controller.wire.types import TopicPartition

#: `LegacyRecord.RECORD_OVERHEAD_V0`: less than any format's record.
_LEAST_SIZE: Final = 14
#: Up to and with the magic.
_HEAD_TO_MAGIC: Final = 17
_SIZE: Final = struct.Struct(">i")
_OLDEST_WITH_ZSTD: Final = 7
#: Errors of records that the summary names.
_SHOWN: Final = 3
#: The codec that a topic's `compression.type` asks for; `producer` leaves the sender's.
_TARGETS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class MalformedRecords(CorruptBatch):
    """Bytes that fail the whole request, not only their partition: they cannot even be told apart as batches."""


class UnreadableRecords(KafkaError):
    """Records that cannot be decoded at all. Kafka has no code for it and answers UNKNOWN_SERVER_ERROR."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)


@dataclass(frozen=True, slots=True)
class RecordFault:
    """One record that is refused, by its place in the batch."""

    batch_index: int
    message: str


class RejectedRecords(KafkaError):
    """Single records are refused, and with them the batch: INVALID_TIMESTAMP or INVALID_RECORD."""

    def __init__(self, faults: tuple[RecordFault, ...], *, by_time: bool) -> None:
        if by_time:
            message = "One or more records have been rejected due to invalid timestamp"
        else:
            shown = ", ".join(
                f"RecordError(batchIndex={f.batch_index}, message='{f.message}')" for f in faults[:_SHOWN]
            )
            message = (
                f"One or more records have been rejected due to {len(faults)} record errors in total, and only showing "
                f"the first three errors at most: [{shown}]"
            )
        super().__init__(ErrorCode.INVALID_TIMESTAMP if by_time else ErrorCode.INVALID_RECORD, message)
        self.faults = faults


# -- the shape of the bytes ------------------------------------------------------------------------------------------


def _whole_batches(data: bytes) -> list[tuple[int, int]]:
    """(position, size) of the batches that are all there; what is torn at the end does not count.

    Raises: MalformedRecords, for a size or a magic that no batch has.
    """
    found, at = [], 0
    while len(data) - at >= records.LOG_OVERHEAD:
        (length,) = _SIZE.unpack_from(data, at + 8)
        if length < _LEAST_SIZE:
            raise MalformedRecords(
                f"Record size {length} is less than the minimum record overhead ({_LEAST_SIZE})",
            )
        if len(data) - at < _HEAD_TO_MAGIC:
            break
        magic = int.from_bytes(data[at + 16 : at + 17], "big", signed=True)
        if not 0 <= magic <= records.MAGIC:
            raise MalformedRecords(f"Invalid magic found in record: {magic}")
        size = length + records.LOG_OVERHEAD
        if len(data) - at < size:
            break
        found.append((at, size))
        at += size
    return found


def is_transactional(data: bytes) -> bool:
    """Whether the first batch belongs to a transaction. Raises MalformedRecords."""
    first = next(iter(_whole_batches(data)), None)
    return first is not None and first[1] >= records.HEADER_BYTES and records.read_header(data).is_transactional


def check_request(data: bytes, version: int) -> bytes:
    """The one batch that a Produce of this version carries, without torn bytes behind it.

    Raises: KafkaError with INVALID_RECORD or UNSUPPORTED_COMPRESSION_TYPE; MalformedRecords.
    """
    found = _whole_batches(data)
    allowed = f"Produce requests with version {version}"
    if not found:
        raise InvalidRecord(f"{allowed} must have at least one record batch per partition")
    if data[16] != records.MAGIC:
        raise InvalidRecord(f"{allowed} are only allowed to contain record batches with magic version 2")
    size = found[0][1]
    is_zstd = size > 22 and data[22] & 0x07 == Codec.ZSTD.value
    if is_zstd and version < _OLDEST_WITH_ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"{allowed} are not allowed to use ZStandard compression"
        )
    if len(found) > 1:
        raise InvalidRecord(f"{allowed} are only allowed to contain exactly one record batch per partition")
    return data if len(data) == size else data[:size]


# -- the batch -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prepared:
    """A batch to be placed at the end of the log, and its header."""

    batch: bytes
    header: BatchHeader


def prepare(data: bytes, config: LogConfig, topic_partition: TopicPartition, *, now_ms: int) -> Prepared:
    """The batch of a client as the log will keep it, at base offset 0.

    Raises: KafkaError with INVALID_RECORD, MESSAGE_TOO_LARGE, CORRUPT_MESSAGE, INVALID_TIMESTAMP, RECORD_LIST_TOO_LARGE
    or UNKNOWN_SERVER_ERROR (records that cannot be decoded).
    """
    header = _checked_header(data, config)
    _check_counts(header, topic_partition)
    source = _codec(header)
    target = _TARGETS.get(config.compression_type, source)
    body = _body(data, header, source)
    scan = scan_records(body, header)
    _check_records(scan, header, config, topic_partition, now_ms=now_ms)
    stamp = now_ms if config.is_log_append_time else None
    if source is not target:
        batch = _recompressed(data, header, target, stamp)
        if len(batch) > config.max_message_bytes:
            raise _too_large(len(batch), config)
    elif source is not Codec.NONE and not scan.in_order:
        raise UnreadableRecords("offsets within a compressed batch are not in order")
    else:
        newest = max(scan.max_timestamp, records.NO_TIMESTAMP) if stamp is None else stamp
        batch = records.with_timestamp(data, newest, is_append_time=stamp is not None)
    if len(batch) > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"Message batch size is {len(batch)} bytes in append to partition {topic_partition}, which exceeds the "
            f"maximum configured segment size of {config.segment_bytes}.",
        )
    return Prepared(batch, records.parse_header(batch))


def _too_large(size: int, config: LogConfig) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"batch of {size} bytes is above max.message.bytes {config.max_message_bytes}",
    )


def _checked_header(data: bytes, config: LogConfig) -> BatchHeader:
    """In Kafka's order: base offset, size, checksum."""
    base_offset = int.from_bytes(data[:8], "big", signed=True)
    if base_offset != 0:
        raise InvalidRecord(f"The baseOffset of the record batch should be 0, but it is {base_offset}")
    if len(data) > config.max_message_bytes:
        raise _too_large(len(data), config)
    if len(data) < records.HEADER_BYTES:
        raise CorruptBatch(f"{len(data)} bytes are less than a batch header of {records.HEADER_BYTES}")
    header = records.read_header(data)
    records.check_crc(data, header)
    return header


def _check_counts(header: BatchHeader, topic_partition: TopicPartition) -> None:
    """`LogValidator.validateBatch`."""
    where = f"in topic partition {topic_partition}"
    if header.last_offset_delta + 1 <= 0:
        raise InvalidRecord(f"Batch has an invalid offset range: [0, {header.last_offset_delta}] {where}")
    if header.count <= 0:
        raise InvalidRecord(f"Invalid reported count for record batch: {header.count} {where}")
    if header.last_offset_delta + 1 != header.count:
        raise InvalidRecord(
            f"Inconsistent batch offset range [0, {header.last_offset_delta}] and count of records "
            f"{header.count} {where}"
        )
    if header.is_control:
        raise InvalidRecord(f"Clients are not allowed to write control records {where}")
    if header.producer_id > records.NO_PRODUCER_ID and header.base_sequence < 0:
        raise InvalidRecord(
            f"Invalid sequence number {header.base_sequence} in record batch with producerId "
            f"{header.producer_id} {where}"
        )


def _codec(header: BatchHeader) -> Codec:
    try:
        return header.codec
    except CorruptBatch as error:
        raise UnreadableRecords(str(error)) from error


def _body(data: bytes, header: BatchHeader, codec: Codec) -> bytes:
    try:
        return decompress(codec, data[records.HEADER_BYTES : header.size])
    except KafkaError as error:
        raise UnreadableRecords(str(error)) from error


def _recompressed(data: bytes, header: BatchHeader, target: Codec, stamp: int | None) -> bytes:
    """The same records under another codec; offsets are counted anew. Raises: UnreadableRecords, for what is stored
    only where it need not be written anew. Source: Kafka 3.9 `MemoryRecordsBuilder`, which throws."""
    if header.producer_id != records.NO_PRODUCER_ID and header.producer_epoch == records.NO_PRODUCER_EPOCH:
        raise UnreadableRecords("Invalid negative producer epoch")
    decoded = list(records.records_of(data))
    if (oldest := min(record.timestamp for record in decoded)) < records.NO_TIMESTAMP:
        raise UnreadableRecords(f"Invalid negative timestamp {oldest}")
    rebuilt = records.build_batch(
        [records.Record(n, r.timestamp, r.key, r.value, r.headers) for n, r in enumerate(decoded)],
        codec=target,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    return rebuilt if stamp is None else records.stamp(rebuilt, stamp)


# -- the records -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Scan:
    """What a walk over the records found, without decoding keys and values."""

    timestamps: list[int] = field(default_factory=list)
    in_order: bool = True
    #: places of the records without a key
    keyless: list[int] = field(default_factory=list)
    #: (key bytes, value bytes) of each record, -1 for none
    sizes: list[tuple[int, int]] = field(default_factory=list)

    @property
    def max_timestamp(self) -> int:
        """The newest record's."""
        return max(self.timestamps, default=records.NO_TIMESTAMP)


def scan_records(body: bytes, header: BatchHeader) -> Scan:
    """Walks over `header.count` records, which must fill `body`.

    Raises: InvalidRecord, for records that contradict the header or their own lengths; UnreadableRecords, for a length
    that is no number.
    """
    scan, at, end_of_body = Scan(), 0, len(body)
    fixed = header.max_timestamp if header.is_log_append_time else None
    for index in range(header.count):
        length, at = _record_length(body, at)
        end = at + length
        if length < 0 or end > end_of_body:
            raise InvalidRecord(f"Invalid record size: expected {length} bytes, but {end_of_body - at} are left")
        at = _walk(body, at + 1, end, scan, index, header.base_timestamp, fixed)
        if at != end:
            raise InvalidRecord(f"record {index} of {length} bytes does not end where its fields do")
    if at != end_of_body:
        raise InvalidRecord("Incorrect declared batch size, records still remaining in file")
    if scan.timestamps and any(edge != as_long(edge) for edge in (min(scan.timestamps), scan.max_timestamp)):
        scan.timestamps = list(map(as_long, scan.timestamps))
    return scan


def _walk(body: bytes, at: int, end: int, scan: Scan, index: int, base_timestamp: int, fixed: int | None) -> int:
    """One record behind its length and attributes; returns where it ends. Numbers of one byte are read in place."""
    try:
        delta, at = (body[at] >> 1, at + 1) if body[at] < 0x80 and not body[at] & 1 else _varint(body, at, end)
        scan.timestamps.append(base_timestamp + delta if fixed is None else fixed)
        offset_delta, at = (body[at] >> 1, at + 1) if body[at] < 0x80 and not body[at] & 1 else _varint(body, at, end)
        if offset_delta != index:
            scan.in_order = False
        key_size, at = _varint(body, at, end)
        if key_size < 0:
            scan.keyless.append(index)
        else:
            at += key_size
        value_size, at = _varint(body, at, end)
        at += max(value_size, 0)
        scan.sizes.append((key_size, value_size))
        if at == end - 1 and not body[at]:
            return end  # no headers
        return _skip_headers(body, at, end)
    except IndexError as error:
        raise InvalidRecord("Found invalid record structure") from error


def _skip_headers(body: bytes, at: int, end: int) -> int:
    header_count, at = _varint(body, at, end)
    if not 0 <= header_count <= max(end - at, 0):
        raise InvalidRecord(f"Found invalid number of record headers {header_count}")
    for _ in range(header_count):
        size, at = _varint(body, at, end)
        if size < 0:
            raise InvalidRecord(f"Invalid negative header key size {size}")
        at += size
        size, at = _varint(body, at, end)
        at += max(size, 0)
    return at


def _varint(body: bytes, at: int, end: int) -> tuple[int, int]:
    """A zig-zag number that begins before `end`. Raises IndexError."""
    if at >= end:
        raise IndexError("the record ends before its fields do")
    byte = body[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    second = body[at + 1]
    if second < 0x80:
        raw = byte & 0x7F | second << 7
        return (raw >> 1) ^ -(raw & 1), at + 2
    return records.read_varint(body, at)


def _record_length(body: bytes, at: int) -> tuple[int, int]:
    if at >= len(body):
        raise InvalidRecord("Incorrect declared batch size, premature EOF reached")
    if body[at] < 0x80:
        return (body[at] >> 1) ^ -(body[at] & 1), at + 1
    try:
        length, after = records.read_varint(body, at)
    except IndexError as error:
        if len(body) - at < 5:
            raise InvalidRecord("Incorrect declared batch size, premature EOF reached") from error
        raise UnreadableRecords(f"the length of a record is no number: {error}") from error
    if after - at > 5:
        raise UnreadableRecords("the length of a record has more than five bytes")
    return length, after


def _check_records(
    scan: Scan, header: BatchHeader, config: LogConfig, topic_partition: TopicPartition, *, now_ms: int
) -> None:
    """Keys and timestamps, all records of them (`LogValidator.validateRecord`). Raises RejectedRecords."""
    faults: dict[int, str] = {}
    if config.is_compacted:
        text = f"Compacted topic cannot accept message without key in topic partition {topic_partition}"
        faults = dict.fromkeys(scan.keyless, text)
    bad_times = _bad_times(scan, header, config, now_ms)
    by_time = any(index not in faults for index in bad_times)
    faults = bad_times | faults
    if faults:
        raise RejectedRecords(tuple(RecordFault(n, faults[n]) for n in sorted(faults)), by_time=by_time)


def _bad_times(scan: Scan, header: BatchHeader, config: LogConfig, now_ms: int) -> dict[int, str]:
    if config.is_log_append_time:
        if not header.is_log_append_time:
            return {}
        return {n: _text_of_append_time(n, t, *scan.sizes[n]) for n, t in enumerate(scan.timestamps)}
    low, high = now_ms - config.message_timestamp_before_max_ms, now_ms + config.message_timestamp_after_max_ms
    if not scan.timestamps or (low <= min(scan.timestamps) and max(scan.timestamps) <= high):
        return {}
    return {
        n: f"Timestamp {t} of message with offset {n} is out of range. The timestamp should be within "
        f"[{as_long(low)}, {as_long(high)}]"
        for n, t in enumerate(scan.timestamps)
        if t != records.NO_TIMESTAMP and not low <= t <= high
    }


def _text_of_append_time(index: int, timestamp: int, key_size: int, value_size: int) -> str:
    record = (
        f"DefaultRecord(offset={index}, timestamp={timestamp}, key={max(key_size, 0)} bytes, "
        f"value={max(value_size, 0)} bytes)"
    )
    return f"Invalid timestamp type in message {record}. Producer should not set timestamp type to LogAppendTime."
