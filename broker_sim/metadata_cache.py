"""What the controller has told this broker of the cluster: live brokers, topics, leaders, who the controller is.

Empty until the first UpdateMetadata. Merging follows spec broker.md §8 (Kafka 3.9 `ZkMetadataCache`): live brokers are
replaced by every request, partitions are merged, a partition that is being deleted goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

from controller.wire.control import UpdateMetadataEntry, UpdateMetadataRequest
from controller.wire.types import Broker, BrokerId, Endpoint, TopicPartition


class MetadataCache:
    """The cluster as this broker knows it. Owned by the event loop; readers see whole updates only."""

    def __init__(self, *, inter_broker_listener: str = "PLAINTEXT") -> None:
        """`inter_broker_listener`: where brokers reach each other."""
        self._inter_broker_listener = inter_broker_listener
        self._brokers: dict[BrokerId, Broker] = {}
        self._controller: Broker | None = None
        self._controller_is_broker = False
        self._by_address: dict[tuple[str, int], Broker] = {}
        self._alive: frozenset[BrokerId] = frozenset()
        self._topics: dict[str, dict[int, UpdateMetadataEntry]] = {}
        self._controller_id: BrokerId | None = None
        self._changed = asyncio.Event()

    def update(self, request: UpdateMetadataRequest, *, controller_is_broker: bool) -> tuple[TopicPartition, ...]:
        """Takes a request that passed the epoch checks. Returns the partitions that are deleted, known or not.

        Not `controller_is_broker`: the controller that is among the live brokers is none of them.
        """
        self._controller_id = request.controller_id if request.controller_id >= 0 else None
        nodes = {broker.broker_id: broker for broker in request.live_brokers}
        self._controller = nodes.get(request.controller_id)
        self._controller_is_broker = controller_is_broker
        if not controller_is_broker:
            nodes.pop(request.controller_id, None)
        self._brokers = nodes
        self._alive = frozenset(self._brokers)
        self._by_address = {(e.host, e.port): b for b in request.live_brokers for e in b.endpoints}
        deleted = []
        for entry in request.partition_states:
            if entry.being_deleted:
                self._remove(entry.topic_partition)
                deleted.append(entry.topic_partition)
            else:
                topic, partition = entry.topic_partition
                self._topics.setdefault(topic, {})[partition] = entry
        self._changed.set()
        self._changed = asyncio.Event()
        return tuple(deleted)

    def _remove(self, tp: TopicPartition) -> None:
        partitions = self._topics.get(tp.topic, {})
        partitions.pop(tp.partition, None)
        if not partitions:
            self._topics.pop(tp.topic, None)

    def broker_at(self, host: str, port: int) -> Broker | None:
        """The live broker, or the controller, that listens at that address."""
        return self._by_address.get((host, port))

    async def wait_until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Waits, at most `timeout_s`, until `condition` holds after some update. Returns whether it does."""
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():
                    await self._changed.wait()
        except TimeoutError:
            return condition()
        return True

    @property
    def controller_id(self) -> BrokerId | None:
        """The controller that last sent an update; None when unknown."""
        return self._controller_id

    @property
    def controller_is_broker(self) -> bool:
        """Whether clients find the controller among the brokers: one of Kafka's holds the office."""
        return self._controller_is_broker

    @property
    def controller_endpoint(self) -> Endpoint | None:
        """Where the controller listens for brokers; None while it is unknown."""
        return self._controller.endpoint(self._inter_broker_listener) if self._controller is not None else None

    @property
    def brokers(self) -> Mapping[BrokerId, Broker]:
        """Live brokers by id, without a controller that is none."""
        return self._brokers

    def alive_brokers(self) -> frozenset[BrokerId]:
        """Ids of the live brokers of the last UpdateMetadata."""
        return self._alive

    def is_alive(self, broker_id: BrokerId) -> bool:
        """Whether the controller takes this broker for alive."""
        return broker_id in self._brokers

    def endpoint(self, broker_id: BrokerId, listener: str | None = None) -> Endpoint | None:
        """Where a live broker listens; None: it is not alive or lacks that listener (None: that between brokers)."""
        broker = self._brokers.get(broker_id)
        return broker.endpoint(listener or self._inter_broker_listener) if broker is not None else None

    @property
    def topics(self) -> tuple[str, ...]:
        """Names of all topics, sorted."""
        return tuple(sorted(self._topics))

    def partitions(self, topic: str) -> Mapping[int, UpdateMetadataEntry]:
        """The partitions of a topic by number; empty when the topic is unknown."""
        return self._topics.get(topic, {})

    def partition(self, tp: TopicPartition) -> UpdateMetadataEntry | None:
        """What is known of one partition."""
        return self.partitions(tp.topic).get(tp.partition)

    def knows(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition is in the cache."""
        return self.partition(topic_partition) is not None

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic in self.topics:
            for partition in sorted(self._topics[topic]):
                yield TopicPartition(topic, partition)
