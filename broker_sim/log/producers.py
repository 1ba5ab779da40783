"""What a log remembers of idempotent producers, so that a batch sent twice is stored once.

Per producer id its epoch and the last five batches; rebuilt from the batches when a log is loaded.
Source: spec clients.md §3.1, Kafka 3.9 `ProducerStateManager`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from broker_sim.log.records import BatchHeader
from controller.wire.errors import ErrorCode, KafkaError

KEPT_BATCHES: Final = 5
_SEQUENCE_MASK: Final = 0x7FFFFFFF


@dataclass(slots=True)
class _Producer:
    epoch: int
    last_ms: int
    #: (first sequence, last sequence, base offset), newest last.
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=KEPT_BATCHES))


class ProducerStates:
    """The producers of one log."""

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}

    def duplicate_of(self, header: BatchHeader) -> int | None:
        """The offset under which this batch is stored already, None when it is new and may be appended.

        Raises: KafkaError with OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_PRODUCER_EPOCH.
        """
        known = self._producers.get(header.producer_id) if header.producer_id >= 0 else None
        if known is None:
            return None
        if header.producer_epoch < known.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {known.epoch}, not {header.producer_epoch}",
            )
        if header.producer_epoch > known.epoch:
            self._expect(header, 0)
            return None
        span = (header.base_sequence, header.last_sequence)
        for first, last, offset in known.batches:
            if (first, last) == span:
                return offset
        if known.batches:
            self._expect(header, (known.batches[-1][1] + 1) & _SEQUENCE_MASK)
        return None

    @staticmethod
    def _expect(header: BatchHeader, sequence: int) -> None:
        if header.base_sequence != sequence:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent sequence {header.base_sequence}, expected {sequence}",
            )

    def appended(self, header: BatchHeader, now_ms: int) -> None:
        """The batch is in the log, at its base offset."""
        if header.producer_id < 0 or header.base_sequence < 0:
            return
        known = self._producers.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch:
            known = self._producers[header.producer_id] = _Producer(header.producer_epoch, now_ms)
        known.last_ms = now_ms
        known.batches.append((header.base_sequence, header.last_sequence, header.base_offset))

    def truncated(self, offset: int) -> None:
        """What was stored at or after `offset` is gone."""
        for producer_id, known in list(self._producers.items()):
            kept = [b for b in known.batches if b[2] < offset]
            if not kept:
                del self._producers[producer_id]
            elif len(kept) != len(known.batches):
                known.batches = deque(kept, maxlen=KEPT_BATCHES)

    def expire(self, before_ms: int) -> None:
        """Forgets producers that last wrote before that time."""
        self._producers = {p: known for p, known in self._producers.items() if known.last_ms >= before_ms}
