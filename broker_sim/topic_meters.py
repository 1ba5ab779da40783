"""What a broker counts of records: per topic and in all, as Kafka's `BrokerTopicStats`. Pure.

A topic has a meter once something was counted of it. Source: Kafka 3.9 `BrokerTopicMetrics`, `ReplicaManager`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field


@dataclass(slots=True)
class TopicMeter:
    """Counts since the start: records and bytes of clients, and requests per partition that they name."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    total_produce_requests: int = 0
    failed_produce_requests: int = 0
    total_fetch_requests: int = 0
    failed_fetch_requests: int = 0


@dataclass(slots=True)
class TopicMeters:
    """Of all topics, of each one, and of what brokers copy from each other."""

    all: TopicMeter = field(default_factory=TopicMeter)
    topics: dict[str, TopicMeter] = field(default_factory=dict)
    replication_bytes_in: int = 0
    replication_bytes_out: int = 0
    reassignment_bytes_in: int = 0
    reassignment_bytes_out: int = 0
    #: requests that wait for replicas, resp. for records
    waiting_produce: int = 0
    waiting_fetch: int = 0

    def of(self, topic: str) -> tuple[TopicMeter, TopicMeter]:
        """(that of the topic, that of all)."""
        meter = self.topics.get(topic)
        if meter is None:
            meter = self.topics[topic] = TopicMeter()
        return meter, self.all

    def asked(self, topic: str) -> None:
        """A fetch names a partition of the topic, and its log is looked at."""
        meter, every = self.of(topic)
        meter.total_fetch_requests += 1
        every.total_fetch_requests += 1

    def appended(self, topic: str, *, messages: int, size_bytes: int) -> None:
        """A batch of a client is in the log."""
        for meter in self.of(topic):
            meter.messages_in += messages
            meter.bytes_in += size_bytes

    def copied_in(self, size_bytes: int, *, is_reassigned: bool) -> None:
        """A follower here took so much; `is_reassigned`: because a reassignment adds it."""
        self.replication_bytes_in += size_bytes
        self.reassignment_bytes_in += size_bytes if is_reassigned else 0

    def copied_out(self, size_bytes: int, *, is_reassigned: bool) -> None:
        """A follower elsewhere was given so much."""
        self.replication_bytes_out += size_bytes
        self.reassignment_bytes_out += size_bytes if is_reassigned else 0

    def keep(self, topics: Collection[str]) -> None:
        """Drops the meters of topics that are not among these, as Kafka does when it hosts them no longer."""
        for topic in [topic for topic in self.topics if topic not in topics]:
            del self.topics[topic]
