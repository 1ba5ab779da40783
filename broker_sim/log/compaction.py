"""What compaction makes of a batch: the newest record of each key stays, offsets and producers stay as they were. Pure.

Source: Kafka 3.9 `Cleaner.cleanInto`, `Cleaner.shouldRetainRecord`, `MemoryRecords.filterTo`; KIP-534 for tombstones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from controller.wire import records
from controller.wire.records import BatchHeader, Record

#: What a key costs in Kafka's map: its MD5 digest and an offset.
ENTRY_BYTES: Final = 24


class OffsetMap:
    """The newest offset of each key in the part of a log that is not compacted yet.

    It takes `max_keys` keys; keys are held as digests, as in Kafka, so that their length does not matter.
    """

    def __init__(self, max_keys: int) -> None:
        self._max_keys = max_keys
        self._offsets: dict[bytes, int] = {}
        #: what is at or below this offset is known
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> bool:
        """The key was written at `offset`, the largest so far. False, nothing done, when there is no room for it."""
        digest = _digest(key)
        if len(self._offsets) >= self._max_keys and digest not in self._offsets:
            return False
        self._offsets[digest] = offset
        return True

    def put_batch(self, batch: bytes, header: BatchHeader, start: int) -> bool:
        """All records of a batch from offset `start` on. False when the map is full: the batch is not known then."""
        if not header.is_control:
            for record in records.records_of(batch):
                if record.key is not None and record.offset >= start and not self.put(record.key, record.offset):
                    return False
        self.latest_offset = max(self.latest_offset, header.last_offset)
        return True

    def newest(self, key: bytes) -> int:
        """The newest offset of a key, -1 when it was not written."""
        return self._offsets.get(_digest(key), -1)


def _digest(key: bytes) -> bytes:
    return hashlib.md5(key, usedforsecurity=False).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What decides about a record: the map, the time, and the last offset of each producer that is still known."""

    newest: OffsetMap
    now_ms: int
    delete_retention_ms: int
    last_offsets: Mapping[int, int] = field(default_factory=dict)

    def keeps(self, record: Record, header: BatchHeader) -> bool:
        """Whether a record stays: not known to be old, and no tombstone whose time is over."""
        if record.offset > self.newest.latest_offset:
            return True
        if record.key is None or record.offset < self.newest.newest(record.key):
            return False
        horizon = header.delete_horizon_ms
        return record.value is not None or horizon is None or self.now_ms < horizon


def compacted(batch: bytes, header: BatchHeader, retention: Retention) -> bytes | None:
    """The batch as it stays: as it is, with fewer records, without records, or not at all (None).

    Base offset, last offset, epoch and producer stay as they were. A batch with tombstones gets the time at which they
    may go, when it is compacted for the first time. A batch without records stays only as the last one of its producer.
    """
    if header.is_control:
        return batch
    found = records.records_of(batch)
    kept = [record for record in found if retention.keeps(record, header)]
    if not kept:
        is_last = header.producer_id >= 0 and retention.last_offsets.get(header.producer_id) == header.last_offset
        return records.empty_batch(header) if is_last else None
    horizon = header.delete_horizon_ms
    if horizon is None and any(record.value is None for record in kept):
        horizon = retention.now_ms + retention.delete_retention_ms
    if len(kept) == len(found) and horizon == header.delete_horizon_ms:
        return batch
    return records.rebuilt_batch(header, kept, delete_horizon_ms=horizon)
