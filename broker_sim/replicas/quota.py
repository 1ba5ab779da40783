"""Replication throttling: how fast bytes went, which partitions count, and whether the limit is passed. Pure.

Source: spec broker.md §15; Kafka 3.9 `ReplicationQuotaManager`, `SimpleRate`, `ConfigHandler`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from controller.wire.types import BrokerId, TopicPartition

_LIST: Final = re.compile(r"\d+:\d+(,\d+:\d+)*")
EVERY_REPLICA: Final = "*"


@dataclass(slots=True)
class _Sample:
    """Bytes from `start_ms` on; `last_ms` is its newest event."""

    start_ms: int
    last_ms: int
    size_bytes: int = 0


class SimpleRate:
    """Bytes per second over the retained samples.

    A sample takes events for `window_ms` from its start on. One whose last event is `samples` windows ago is emptied
    and starts anew, now: what was quiet counts as time, up to that long. The divisor is the time since the oldest
    sample began, at least one window. Asking starts the clock as an event does.
    Source: Kafka 3.9 `SampledStat` (a ring of `samples` + 1 samples), `SimpleRate`.
    """

    def __init__(self, *, samples: int = 11, window_ms: int = 1_000) -> None:
        self._count, self._window_ms = samples + 1, window_ms
        self._expire_ms = samples * window_ms
        self._ring: list[_Sample] = []
        self._current = 0

    def record(self, size_bytes: int, now_ms: int) -> None:
        """So many bytes went now."""
        sample = self._sample(now_ms)
        if now_ms - sample.start_ms >= self._window_ms:
            sample = self._advance(now_ms)
        sample.size_bytes += size_bytes
        sample.last_ms = now_ms

    def rate(self, now_ms: int) -> float:
        """Bytes per second."""
        self._sample(now_ms)
        for sample in self._ring:
            if now_ms - sample.last_ms >= self._expire_ms:
                sample.start_ms, sample.last_ms, sample.size_bytes = now_ms, now_ms, 0
        elapsed_ms = max(now_ms - min(sample.start_ms for sample in self._ring), self._window_ms)
        return sum(sample.size_bytes for sample in self._ring) * 1000 / elapsed_ms

    def _sample(self, now_ms: int) -> _Sample:
        if not self._ring:
            self._ring.append(_Sample(now_ms, now_ms))
        return self._ring[self._current]

    def _advance(self, now_ms: int) -> _Sample:
        self._current = (self._current + 1) % self._count
        fresh = _Sample(now_ms, now_ms)
        if self._current == len(self._ring):
            self._ring.append(fresh)
        else:
            self._ring[self._current] = fresh
        return fresh


def parse_throttled_replicas(text: str, broker_id: BrokerId) -> frozenset[int] | None:
    """The partitions of a topic that are throttled on this broker; None means all of them (`*`).

    Raises: ValueError for anything but `p:b,p:b,...`, `*` or nothing.
    """
    if text.strip() == EVERY_REPLICA:
        return None
    if not text.strip():
        return frozenset()
    if not _LIST.fullmatch(text.strip()):
        raise ValueError(f"{text!r} is not a list of partition:broker pairs, * or empty")
    pairs = (entry.split(":") for entry in text.strip().split(","))
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == broker_id)


class ReplicationQuota:
    """The throttle of one role (leader, follower, alter-log-dirs) on one broker; without a bound it never bites."""

    def __init__(self, broker_id: BrokerId, *, samples: int = 11, window_ms: int = 1_000) -> None:
        self._broker_id = broker_id
        self._rate = SimpleRate(samples=samples, window_ms=window_ms)
        self._throttled: dict[str, frozenset[int] | None] = {}
        self.bound: int | None = None

    def set_throttled(self, topic: str, text: str) -> None:
        """The throttled replicas of a topic, as in its config. Raises ValueError, nothing changed."""
        partitions = parse_throttled_replicas(text, self._broker_id)
        if partitions is not None and not partitions:
            self._throttled.pop(topic, None)
        else:
            self._throttled[topic] = partitions

    def is_throttled(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition's bytes count here."""
        partitions = self._throttled.get(topic_partition.topic, frozenset())
        return partitions is None or topic_partition.partition in partitions

    def record(self, size_bytes: int, now_ms: int) -> None:
        """So many bytes of throttled partitions went."""
        if size_bytes:
            self._rate.record(size_bytes, now_ms)

    def is_exceeded(self, now_ms: int) -> bool:
        """Whether the rate is above the bound."""
        return self.bound is not None and self._rate.rate(now_ms) > self.bound

    def rate(self, now_ms: int) -> float:
        """Bytes per second."""
        return self._rate.rate(now_ms)
