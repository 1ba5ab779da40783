"""What a load measures: latencies, pauses of partitions, and what is missing at the end. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from controller.wire.types import TopicPartition
from controller.wire.whole import whole

#: Width of a bucket of latencies: 5 %.
_STEP: Final = math.log(1.05)
_LEAST_MS: Final = 0.05
#: A partition that gets a record each second has no pause before this.
PAUSE_S: Final = 1.0
#: Below this, records per second; up to these, keys, and producers, groups or consumers.
RATE_MAX: Final = 1e7
KEYS_MAX: Final = 10**9
THREADS_MAX: Final = 64


def parse_size(text: str) -> tuple[int, int]:
    """The least and the most bytes of a value. Raises: ValueError, which says what is expected."""
    low, _, high = text.partition("-")
    least, most = whole(low), whole(high or low)
    if least is None or most is None or most < least:
        raise ValueError(f"{text!r}: expected bytes such as 100 or 100-2000")
    return least, most


@dataclass(slots=True)
class Latencies:
    """How long acknowledgements took, in ms: counted in buckets of 5 %, whatever their number."""

    count: int = 0
    max_ms: float = 0.0
    _buckets: Counter[int] = field(default_factory=Counter)

    def add(self, latency_ms: float) -> None:
        """Counts one."""
        self.count += 1
        self.max_ms = max(self.max_ms, latency_ms)
        self._buckets[round(math.log(max(latency_ms, _LEAST_MS)) / _STEP)] += 1

    def quantile(self, share: float) -> float:
        """So many ms at most took that share (0 to 1) of them, within 5 %; 0 when there are none."""
        rank, passed = share * self.count, 0
        for bucket in sorted(self._buckets):
            passed += self._buckets[bucket]
            if passed >= rank:
                return min(math.exp(bucket * _STEP), self.max_ms)
        return 0.0


@dataclass(frozen=True, slots=True, order=True)
class Pause:
    """A stretch in which a partition acknowledged nothing. Seconds; `began_s` counts from the load's start."""

    length_s: float
    partition: TopicPartition
    began_s: float


@dataclass(slots=True)
class Pauses:
    """The longest stretch without an acknowledgement of each partition that was sent to, from begin to end of the load.

    A partition that neither acknowledged a record nor failed one has none: perhaps nothing was meant for it.
    """

    _last_s: dict[TopicPartition, float] = field(default_factory=dict)
    _longest: dict[TopicPartition, Pause] = field(default_factory=dict)

    def acknowledged(self, partition: TopicPartition, at_s: float) -> None:
        """A partition acknowledged a record at that time (seconds from the start, never falling)."""
        began_s = self._last_s.get(partition, 0.0)
        pause = Pause(length_s=at_s - began_s, partition=partition, began_s=began_s)
        if partition not in self._longest or pause > self._longest[partition]:
            self._longest[partition] = pause
        self._last_s[partition] = at_s

    def failed(self, partition: TopicPartition) -> None:
        """A record that was meant for that partition was given up on."""
        self._last_s.setdefault(partition, 0.0)

    def ended(self, at_s: float) -> None:
        """No record was made from that time on: who has acknowledged none since its last one has paused until then."""
        for partition, last_s in list(self._last_s.items()):
            if last_s < at_s:
                self.acknowledged(partition, at_s)

    def longest(self, least_s: float = PAUSE_S) -> list[Pause]:
        """One pause per partition, those of at least that length, the longest first."""
        return sorted((p for p in self._longest.values() if p.length_s >= least_s), reverse=True)


Ids = dict[TopicPartition, set[int]]


def missing(acknowledged: Mapping[TopicPartition, Iterable[int]], read: Mapping[TopicPartition, set[int]]) -> Ids:
    """The ids that were acknowledged by a partition and not read back from it; without partitions that miss none."""
    lost = {partition: set(ids) - read.get(partition, set()) for partition, ids in acknowledged.items()}
    return {partition: ids for partition, ids in lost.items() if ids}
