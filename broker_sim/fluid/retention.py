"""What retention deletes: at each check a leader and its followers lose what is beyond the partition's limit. Pure.

A log is bounded by `retention.bytes`, and by what producers write within `retention.ms` at the rate of the cluster
file; a log that was longer already is kept as long as it was. Segments are taken for small.
Source: Kafka 3.9 `LogManager.cleanupLogs`, `UnifiedLog.deleteOldSegments`; a follower that finds its place deleted
begins at the leader's first offset (`AbstractFetcherThread.fetchOffsetAndTruncate`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from broker_sim.fluid.copies import Copy, Stream
from controller.wire.types import BrokerId, TopicPartition

_HOUR_MS: Final = 3_600_000
_DEFAULT_MS: Final = 168 * _HOUR_MS


def limit_bytes(topic: Mapping[str, str], broker: Mapping[str, str], *, size: float, in_bytes_per_s: float) -> float:
    """How large a log gets: `topic` and `broker` are settings under Kafka's names, of that topic and of all brokers."""
    if "delete" not in topic.get("cleanup.policy", broker.get("log.cleanup.policy", "delete")):
        return math.inf
    hours_ms = float(broker.get("log.retention.hours", _DEFAULT_MS / _HOUR_MS)) * _HOUR_MS
    minutes = broker.get("log.retention.minutes")
    fallback_ms = hours_ms if minutes is None else float(minutes) * 60_000
    ms = float(topic.get("retention.ms", broker.get("log.retention.ms", fallback_ms)))
    most = float(topic.get("retention.bytes", broker.get("log.retention.bytes", -1)))
    by_time = in_bytes_per_s * ms / 1000 if ms >= 0 and in_bytes_per_s > 0 else math.inf
    return max(size, min(by_time, most if most >= 0 else math.inf))


class Retention:
    """Where each replica's log begins. `free(broker, size)` is called with what a broker's disks have less."""

    def __init__(self, free: Callable[[BrokerId, float], None]) -> None:
        self._free = free
        self.limits: dict[TopicPartition, float] = {}
        self._starts: dict[tuple[TopicPartition, BrokerId], float] = {}

    def start(self, topic_partition: TopicPartition, broker: BrokerId) -> float:
        """The first byte that it has."""
        return self._starts.get((topic_partition, broker), 0.0)

    def check(self, streams: Iterable[Stream], now_s: float) -> list[Copy]:
        """Deletes what is beyond the limits; returns the copies whose place was deleted, which must `follow` anew."""
        lost = []
        for stream in streams:
            start = stream.end(now_s) - self.limits.get(stream.topic_partition, math.inf)
            if start > 0 and start > self.start(stream.topic_partition, stream.leader):
                self._begin_at(stream.topic_partition, stream.leader, start, math.inf)
                for copy in stream.copies.values():
                    if copy.where(now_s) < start:
                        lost.append(copy)
                    else:
                        self._begin_at(stream.topic_partition, copy.follower, start, math.inf)
        return lost

    def attach(self, copy: Copy, leader: BrokerId) -> None:
        """It begins to copy: what its leader has deleted it deletes, too."""
        start = self.start(copy.topic_partition, leader)
        if start > self.start(copy.topic_partition, copy.follower):
            self._begin_at(copy.topic_partition, copy.follower, start, copy.position)
            copy.position = max(copy.position, start)

    def forget(self, topic_partition: TopicPartition, broker: BrokerId) -> float:
        """The replica is deleted; returns where it began."""
        return self._starts.pop((topic_partition, broker), 0.0)

    def _begin_at(self, topic_partition: TopicPartition, broker: BrokerId, start: float, position: float) -> None:
        freed = min(start, position) - self.start(topic_partition, broker)
        self._starts[topic_partition, broker] = start
        self._free(broker, max(0.0, freed))
