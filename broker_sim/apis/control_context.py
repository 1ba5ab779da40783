"""What handlers of control requests need of a broker, live (`context.BrokerContext`) or fluid (`broker_sim.fluid`)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Protocol

from broker_sim.metadata_cache import MetadataCache
from broker_sim.postponed import PostponedPartitions
from broker_sim.registration import ControllerKind, Registration
from controller.wire.control import LeaderAndIsrEntry, StopReplicaEntry
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, TopicPartition


class ControlledReplicas(Protocol):
    """The replicas of one broker as the controller moves them."""

    def leader_and_isr(self, entries: Sequence[LeaderAndIsrEntry]) -> dict[TopicPartition, ErrorCode]:
        """Leads and follows; how that went, by partition."""
        ...

    def stop_replica(self, entries: Sequence[StopReplicaEntry]) -> dict[TopicPartition, ErrorCode]:
        """Stops and deletes; how that went, by partition."""
        ...

    def is_here(self, topic_partition: TopicPartition) -> bool:
        """Whether it is hosted, or has a log."""
        ...

    def alive_brokers_changed(self) -> None:
        """The metadata names other live brokers."""
        ...


class TopicConfigs(Protocol):
    """The dynamic configs of topics that are hosted."""

    @property
    def known_topics(self) -> Collection[str]:
        """Those whose configs have been read."""
        ...

    async def load_topics(self, topics: Collection[str], *, throttled: Collection[str] = ()) -> Collection[str]:
        """Reads them, also where they are known, of those in `throttled` the throttles, too; returns those that cannot
        be read."""
        ...

    def forget_topics(self, topics: Iterable[str]) -> None:
        """They are gone."""
        ...


class GroupPartitions(Protocol):
    """Consumer groups, whose offsets of a deleted partition go."""

    def partitions_deleted(self, partitions: Collection[TopicPartition]) -> None:
        """They are gone."""
        ...


class ControlContext(Protocol):
    """The parts of a broker that control requests move."""

    controller_epoch: int

    @property
    def broker_id(self) -> BrokerId:
        """Its id."""
        ...

    @property
    def registration(self) -> Registration:
        """Its registration, for the broker epoch."""
        ...

    @property
    def controller_kind(self) -> ControllerKind:
        """Whether the controller is a broker, too."""
        ...

    @property
    def metadata(self) -> MetadataCache:
        """What it knows of the cluster."""
        ...

    @property
    def replicas(self) -> ControlledReplicas:
        """Its replicas."""
        ...

    @property
    def configs(self) -> TopicConfigs:
        """The configs in force."""
        ...

    @property
    def postponed(self) -> PostponedPartitions:
        """Partitions whose topic's configs could not be read."""
        ...

    @property
    def groups(self) -> GroupPartitions:
        """Its groups."""
        ...

    @property
    def control_lock(self) -> asyncio.Lock:
        """One control request at a time."""
        ...

    @property
    def log(self) -> Any:
        """Its log."""
        ...
