"""A segment or snapshot of the metadata log: its whole batches, in pieces that can be decoded apart, and its records.

Nothing here is fatal. What is not whole (a torn tail, a batch with another checksum, a record of no known schema) is
told as a `Problem`, and the rest goes on. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from broker_sim.replay.metadata_log.decode import (
    Decoded,
    Fields,
    MalformedRecord,
    UnknownRecord,
    decode,
    decode_control,
)
from broker_sim.replay.metadata_log.schemas import LEADER_CHANGE, SNAPSHOT_FOOTER, SNAPSHOT_HEADER
from controller.wire.errors import KafkaError
from controller.wire.records import HEADER_BYTES, BatchHeader, CorruptBatch, check_crc, parse_header, records_of

#: A piece has about so many bytes; a batch is never cut.
PIECE_BYTES: Final = 4 * 1024 * 1024
#: Kafka fetches and writes batches of the metadata log up to this size.
BATCH_BYTES_MAX: Final = 64 * 1024 * 1024

#: Why something could not be used.
TORN: Final = "torn"
CORRUPT: Final = "corrupt_batch"
UNKNOWN_RECORD: Final = "unknown_record"
MALFORMED: Final = "malformed_record"


class Problem(NamedTuple):
    """What could not be used: where it begins in the file, why, and in words; of a record also its offset."""

    at: int
    reason: str
    text: str
    offset: int | None = None


class Piece(NamedTuple):
    """Whole batches that follow each other without a gap: their bytes, offsets and append times."""

    start: int
    end: int
    first_offset: int
    next_offset: int
    first_ts: int
    last_ts: int


class Walked(NamedTuple):
    """A file's whole batches and what is not; for a snapshot, what its header and footer tell."""

    pieces: tuple[Piece, ...]
    problems: tuple[Problem, ...]
    #: a snapshot: append time of the last record in it; None where it has no header
    contains_until: int | None = None
    has_footer: bool = False


def walk(data: bytes | memoryview) -> Walked:
    """Every batch of a file, checked but not decoded. A batch with another checksum is left out; a tail that is no
    whole batch ends the file.
    """
    pieces: list[Piece] = []
    problems: list[Problem] = []
    contains_until: int | None = None
    has_footer = False
    at = 0
    while at < len(data):
        header = _header_at(data, at, problems)
        if header is None:
            break
        try:
            check_crc(data, header, at)
        except CorruptBatch as error:
            problems.append(Problem(at, CORRUPT, f"offsets {header.base_offset} to {header.last_offset}: {error}"))
            at += header.size
            continue
        if header.is_control:
            for kind, fields in _control_records(bytes(data[at : at + header.size])):
                contains_until = fields["lastContainedLogTimestamp"] if kind == SNAPSHOT_HEADER else contains_until
                has_footer = has_footer or kind == SNAPSHOT_FOOTER
        _add(pieces, header, at)
        at += header.size
    return Walked(tuple(pieces), tuple(problems), contains_until, has_footer)


def _header_at(data: bytes | memoryview, at: int, problems: list[Problem]) -> BatchHeader | None:
    left = len(data) - at
    if left >= HEADER_BYTES and not any(data[at : at + HEADER_BYTES]):
        return None  # a file that was given its size before it was filled
    try:
        header = parse_header(data, at)
        if header.size > BATCH_BYTES_MAX:
            raise CorruptBatch(f"batch of {header.size} bytes")
    except CorruptBatch as error:
        problems.append(Problem(at, TORN, f"{left} bytes at the end are no batch: {error}"))
        return None
    if left < header.size:
        problems.append(Problem(at, TORN, f"the last batch has {left} of its {header.size} bytes"))
        return None
    return header


def _add(pieces: list[Piece], header: BatchHeader, at: int) -> None:
    last = pieces[-1] if pieces else None
    follows = last is not None and last.end == at and last.next_offset == header.base_offset
    if last is not None and follows and at + header.size - last.start <= PIECE_BYTES:
        pieces[-1] = last._replace(end=at + header.size, next_offset=header.next_offset, last_ts=header.max_timestamp)
    else:
        end, ts = at + header.size, header.max_timestamp
        pieces.append(Piece(at, end, header.base_offset, header.next_offset, ts, ts))


def _control_records(batch: bytes) -> Iterator[tuple[int, Fields]]:
    try:
        for record in records_of(batch):
            yield decode_control(record.key, record.value)
    except (KafkaError, MalformedRecord):
        return  # told when the piece is decoded


class Found(NamedTuple):
    """A record and where it stands. `ts` is the append time, ms on the active controller's clock; `epoch` its epoch."""

    offset: int
    ts: int
    epoch: int
    record: Decoded


def found_in(data: bytes) -> Iterator[Found | Problem]:
    """The records of a run of whole batches; control records that tell who leads as records, the others not at all."""
    at = 0
    while at < len(data):
        header = parse_header(data, at)
        yield from _of_batch(data[at : at + header.size], header, at)
        at += header.size


def _of_batch(batch: bytes, header: BatchHeader, at: int) -> Iterator[Found | Problem]:
    try:
        found = records_of(batch)
    except KafkaError as error:
        text = f"offsets {header.base_offset} to {header.last_offset}: {error}"
        yield Problem(at, CORRUPT, text, header.base_offset)
        return
    for record in found:
        try:
            if header.is_control:
                kind, fields = decode_control(record.key, record.value)
                if kind != LEADER_CHANGE:
                    continue
                decoded = Decoded(CONTROL, kind, "LeaderChangeMessage", fields)
            else:
                decoded = decode(record.value or b"")
        except UnknownRecord as error:
            yield Problem(at, UNKNOWN_RECORD, str(error), record.offset)
        except MalformedRecord as error:
            yield Problem(at, MALFORMED, f"offset {record.offset}: {error}", record.offset)
        else:
            yield Found(record.offset, record.timestamp, header.partition_leader_epoch, decoded)


#: `api_key` of a control record; its type stands in the place of the version.
CONTROL: Final = -1
