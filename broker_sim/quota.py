"""Replication throttling: how fast bytes went, which partitions count, and whether the limit is passed. Pure.

Source: spec broker.md §15; Kafka 3.9 `ReplicationQuotaManager`, `SimpleRate`, `ConfigHandler`.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Final

from controller.wire.types import BrokerId, TopicPartition

_LIST: Final = re.compile(r"\d+:\d+(,\d+:\d+)*")
EVERY_REPLICA: Final = "*"


class SimpleRate:
    """Bytes per second over the retained samples.

    A sample lasts `window_ms` from its first event on; one that began `samples` windows ago no longer counts. The
    divisor is the time since the oldest retained sample began, at least one window.
    """

    def __init__(self, *, samples: int = 11, window_ms: int = 1_000) -> None:
        self._samples, self._window_ms = samples, window_ms
        #: (start, bytes), oldest first.
        self._windows: deque[tuple[int, int]] = deque()

    def record(self, size_bytes: int, now_ms: int) -> None:
        """So many bytes went now."""
        if self._windows and now_ms - self._windows[-1][0] < self._window_ms:
            start, before = self._windows.pop()
            self._windows.append((start, before + size_bytes))
        else:
            self._windows.append((now_ms, size_bytes))
        self._purge(now_ms)

    def rate(self, now_ms: int) -> float:
        """Bytes per second; 0 without a retained sample."""
        self._purge(now_ms)
        if not self._windows:
            return 0.0
        elapsed_ms = max(now_ms - self._windows[0][0], self._window_ms)
        return sum(size for _, size in self._windows) * 1000 / elapsed_ms

    def _purge(self, now_ms: int) -> None:
        while self._windows and now_ms - self._windows[0][0] >= self._samples * self._window_ms:
            self._windows.popleft()


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
