"""What a log remembers of idempotent producers, so that a batch sent twice is stored once. Pure.

Per producer id its epoch and the last five batches. `snapshots.py` writes it down, with the last batch of each.
Source: spec clients.md §3.1, Kafka 3.9 `ProducerStateManager`, `ProducerStateEntry`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.records import NO_PRODUCER_EPOCH, BatchHeader

KEPT_BATCHES: Final = 5
SEQUENCE_MASK: Final = 0x7FFFFFFF


class StoredBatch(NamedTuple):
    """One batch of a producer, as Kafka's snapshots describe it."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """The sequence of its first record, which wraps to 0 after 2147483647."""
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MASK

    @property
    def base_offset(self) -> int:
        """The offset of its first record."""
        return self.last_offset - self.offset_delta


@dataclass(slots=True, kw_only=True)
class Producer:
    """One producer id. `last_ms` is the newest timestamp of its last batch; the last two fields are transactions'."""

    epoch: int
    last_ms: int
    #: newest last
    batches: deque[StoredBatch] = field(default_factory=lambda: deque(maxlen=KEPT_BATCHES))
    coordinator_epoch: int = -1
    current_txn_first_offset: int = -1

    def is_kept(self, oldest_ms: int) -> bool:
        """Whether it wrote at or after that time, or has a transaction open (Kafka: `isProducerExpired`)."""
        return self.last_ms >= oldest_ms or self.current_txn_first_offset >= 0


class ProducerStates:
    """The producers of one log."""

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[tuple[int, Producer]]:
        """(producer id, its state)."""
        return iter(self._producers.items())

    def put(self, producer_id: int, producer: Producer) -> None:
        """A producer as a snapshot describes it."""
        self._producers[producer_id] = producer

    def duplicate_of(self, header: BatchHeader) -> int | None:
        """The offset under which this batch is stored already, None when it is new and may be appended.

        Raises: KafkaError with OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_PRODUCER_EPOCH.
        """
        entry = self._producers.get(header.producer_id) if header.producer_id >= 0 else None
        if entry is None:
            return None
        if header.producer_epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {entry.epoch}, not {header.producer_epoch}",
            )
        if header.producer_epoch > entry.epoch:
            self._expect(header, 0, entry)
            return None
        for batch in entry.batches:
            if (batch.first_sequence, batch.last_sequence) == (header.base_sequence, header.last_sequence):
                return batch.base_offset
        if entry.batches:
            self._expect(header, (entry.batches[-1].last_sequence + 1) & SEQUENCE_MASK, entry)
        else:
            self._expect(header, 0, entry)
        return None

    @staticmethod
    def _expect(header: BatchHeader, sequence: int, entry: Producer) -> None:
        """Who is known without an epoch may send any sequence. Source: `ProducerAppendInfo.checkSequence`."""
        if header.base_sequence != sequence and entry.epoch != NO_PRODUCER_EPOCH:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent sequence {header.base_sequence}, expected {sequence}",
            )

    def appended(self, header: BatchHeader) -> None:
        """The batch is in the log, at its base offset. A marker that ends a transaction has no sequence, but an epoch,
        which may be a new one; compaction may have left nothing of it."""
        is_marker = header.is_control and header.count > 0
        if header.producer_id < 0 or not (is_marker or header.base_sequence >= 0):
            return
        entry = self._producers.setdefault(header.producer_id, Producer(epoch=header.producer_epoch, last_ms=0))
        if entry.epoch != header.producer_epoch:  # a transaction stays open: a marker alone ends it
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.last_ms = header.max_timestamp
        if is_marker:
            entry.current_txn_first_offset = -1
            return
        entry.batches.append(
            StoredBatch(header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp)
        )

    def expire(self, before_ms: int) -> None:
        """Forgets producers that last wrote before that time, but for those with an open transaction."""
        self._producers = {p: entry for p, entry in self._producers.items() if entry.is_kept(before_ms)}

    def last_offsets(self) -> dict[int, int]:
        """The last offset that each producer wrote: compaction must keep the batch that holds it."""
        return {p: entry.batches[-1].last_offset for p, entry in self._producers.items() if entry.batches}
