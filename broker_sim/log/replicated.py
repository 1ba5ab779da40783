"""What a follower takes of the bytes that a leader sent. Pure. (`produced.py`: what a leader takes of a client.)"""

from __future__ import annotations

from controller.wire import records
from controller.wire.records import BatchHeader


def whole_batches(data: bytes) -> list[tuple[BatchHeader, bytes]]:
    """The batches, each intact; a torn last one is left out (the leader may have cut the answer).

    Raises: CorruptBatch.
    """
    taken: list[tuple[BatchHeader, bytes]] = []
    at = 0
    while len(data) - at >= records.HEADER_BYTES:
        header = records.parse_header(data, at)
        if len(data) - at < header.size:
            break
        records.check_crc(data, header, at)
        taken.append((header, data[at : at + header.size]))
        at += header.size
    return taken
