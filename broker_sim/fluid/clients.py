"""What producers and consumers would write and read of each partition, and what of it they can.

A rate is what the cluster file says, times the factor of the moment (a day's curve, a burst). Producers of a partition
without a leader write nothing; with acks=all they write nothing while it is under its min ISR either. What they could
not write is counted as refused: a real producer would wait and then give up, or catch up later; neither is modelled.
What lasts no longer than the pause before a retry, as when one leader hands over to the next, refuses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from controller.wire.types import TopicPartition

#: `retry.backoff.ms` of Kafka's producers.
RETRY_S: Final = 0.1


@dataclass(slots=True)
class Demand:
    """One partition's clients. `is_open`: it can be written to now; since it cannot, they lacked `lacked_bytes`."""

    in_bytes_per_s: float = 0.0
    out_bytes_per_s: float = 0.0
    factor: float = 1.0
    is_open: bool = False
    has_leader: bool = False
    since_s: float = 0.0
    lacked_bytes: float = 0.0
    lacked_s: float = 0.0
    refused_bytes: float = 0.0
    refused_s: float = 0.0

    @property
    def refused(self) -> tuple[float, float]:
        """Bytes, and for how many seconds."""
        lasts = self.lacked_s > RETRY_S
        more_bytes, more_s = (self.lacked_bytes, self.lacked_s) if lasts else (0.0, 0.0)
        return self.refused_bytes + more_bytes, self.refused_s + more_s


class Clients:
    """The demand for every partition. `apply` is called with a partition whose flow has changed."""

    def __init__(self, now_s: Callable[[], float], apply: Callable[[TopicPartition, float, float], None]) -> None:
        self._now_s, self._apply = now_s, apply
        self._demands: dict[TopicPartition, Demand] = {}

    def expect(self, topic_partition: TopicPartition, *, in_bytes_per_s: float, out_bytes_per_s: float) -> None:
        """Its clients want to write and read so much."""
        self._demands[topic_partition] = Demand(in_bytes_per_s, out_bytes_per_s, since_s=self._now_s())

    def begin(self) -> None:
        """What was refused until now does not count."""
        for demand in self._demands.values():
            demand.refused_bytes = demand.refused_s = demand.lacked_bytes = demand.lacked_s = 0.0
            demand.since_s = self._now_s()

    def demand(self, topic_partition: TopicPartition) -> Demand:
        """What is wanted of a partition; nothing of one that nobody named."""
        return self._demands.setdefault(topic_partition, Demand(since_s=self._now_s()))

    def flow(self, topic_partition: TopicPartition) -> tuple[float, float]:
        """Bytes per second that are written and read now."""
        demand = self.demand(topic_partition)
        return (
            demand.in_bytes_per_s * demand.factor if demand.is_open else 0.0,
            demand.out_bytes_per_s * demand.factor if demand.has_leader else 0.0,
        )

    def open(self, topic_partition: TopicPartition, *, has_leader: bool, is_open: bool) -> tuple[float, float]:
        """The partition has a leader or has none, and may be written to or not, from now on. Returns its flow."""
        demand = self.demand(topic_partition)
        self._settle(demand)
        demand.has_leader, demand.is_open = has_leader, is_open and has_leader
        if demand.is_open:
            demand.refused_bytes, demand.refused_s = demand.refused
            demand.lacked_bytes = demand.lacked_s = 0.0
        return self.flow(topic_partition)

    def scale(self, factor: float, topics: Iterable[str] | None = None) -> None:
        """All rates, or those of these topics, are so many times what was given."""
        names = None if topics is None else set(topics)
        for topic_partition, demand in self._demands.items():
            if names is None or topic_partition.topic in names:
                self._settle(demand)
                demand.factor = factor
                self._apply(topic_partition, *self.flow(topic_partition))

    def refused(self) -> dict[TopicPartition, tuple[float, float]]:
        """Of each partition that refused something until now: bytes, and for how many seconds."""
        for demand in self._demands.values():
            self._settle(demand)
        return {tp: demand.refused for tp, demand in self._demands.items() if demand.refused != (0.0, 0.0)}

    def _settle(self, demand: Demand) -> None:
        now_s = self._now_s()
        rate = demand.in_bytes_per_s * demand.factor
        if not demand.is_open and rate > 0:
            demand.lacked_bytes += rate * (now_s - demand.since_s)
            demand.lacked_s += now_s - demand.since_s
        demand.since_s = now_s
