"""What ZooKeeper says about the cluster: read as a whole, as a value. Statements are held to it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from controller.wire.types import Broker, BrokerId, Endpoint, LeaderAndIsr, ReplicaAssignment, TopicPartition
from controller.wire.zk_operations import GetChildren, GetData, ZkReadOp, ZkResult, found_or_missing
from controller.wire.znodes import (
    BrokerIdsZNode,
    BrokerIdZNode,
    ControllerEpochZNode,
    ControllerZNode,
    TopicPartitionStateZNode,
    TopicsZNode,
    TopicZNode,
)
from controller.world.ports import ZkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTruth:
    """One partition: its replicas, and its leader and ISR where the controller has written them."""

    assignment: ReplicaAssignment
    state: LeaderAndIsr | None

    @property
    def isr(self) -> frozenset[BrokerId]:
        """The in-sync replicas, none before the controller has written them."""
        return frozenset(self.state.isr) if self.state else frozenset()

    @property
    def leader(self) -> BrokerId | None:
        """The leader, None if there is none."""
        return self.state.leader if self.state else None

    @property
    def is_whole(self) -> bool:
        """Whether a replica of the ISR leads, and every replica is in the ISR."""
        return self.leader in self.isr and self.isr == frozenset(self.assignment.replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The cluster at one moment (within a few milliseconds: reads of several znodes are not atomic)."""

    controller: BrokerId | None
    controller_epoch: int
    brokers: dict[BrokerId, Broker]
    partitions: dict[TopicPartition, PartitionTruth] = field(default_factory=dict)

    @property
    def topics(self) -> frozenset[str]:
        """All topics with partitions."""
        return frozenset(tp.topic for tp in self.partitions)

    def of(self, topics: Iterable[str]) -> dict[TopicPartition, PartitionTruth]:
        """The partitions of these topics."""
        names = frozenset(topics)
        return {tp: partition for tp, partition in self.partitions.items() if tp.topic in names}

    def only(self, topics: Iterable[str]) -> Truth:
        """The same with the partitions of these topics alone."""
        return replace(self, partitions=self.of(topics))

    def not_whole(self) -> list[TopicPartition]:
        """Partitions without a leader in their ISR or without a full ISR, sorted."""
        return sorted(tp for tp, partition in self.partitions.items() if not partition.is_whole)


def truth_of(metadata: Any, brokers: Collection[BrokerId]) -> Truth:
    """The cluster as one broker's answer to Metadata tells it: without the controller's epoch. `brokers`: those that
    hold replicas, which a controller that is a process of its own does not."""
    return Truth(
        controller=BrokerId(metadata.controller_id) if metadata.controller_id >= 0 else None,
        controller_epoch=0,
        brokers={
            BrokerId(node.node_id): Broker(
                broker_id=BrokerId(node.node_id),
                endpoints=(Endpoint(host=node.host, port=node.port),),
                rack=getattr(node, "rack", None),
            )
            for node in metadata.brokers
            if node.node_id in brokers
        },
        partitions={
            TopicPartition(topic.name, p.partition_index): PartitionTruth(
                assignment=ReplicaAssignment(replicas=tuple(map(BrokerId, p.replica_nodes))),
                state=LeaderAndIsr(
                    leader=BrokerId(p.leader_id) if p.leader_id >= 0 else None,
                    leader_epoch=p.leader_epoch,
                    isr=tuple(map(BrokerId, p.isr_nodes)),
                ),
            )
            for topic in metadata.topics
            for p in topic.partitions
        },
    )


async def read_truth(zk: ZkSession) -> Truth:
    """Reads everything that is needed, in three rounds. Raises: ZkSessionExpired, ZkRefused."""
    controller, epoch, ids, topics = await _read(
        zk,
        [
            GetData(ControllerZNode.path),
            GetData(ControllerEpochZNode.path),
            GetChildren(BrokerIdsZNode.path),
            GetChildren(TopicsZNode.path),
        ],
    )
    broker_ids = BrokerIdsZNode.ids(ids.children)
    names = sorted(topics.children)
    found = await _read(
        zk,
        [GetData(BrokerIdZNode.path(broker_id)) for broker_id in broker_ids]
        + [GetData(TopicZNode.path(name)) for name in names],
    )
    assignments = _assignments(names, found[len(broker_ids) :])
    states = await _read(zk, [GetData(TopicPartitionStateZNode.path(tp)) for tp in assignments])
    return Truth(
        controller=ControllerZNode.decode(controller.data) if controller.ok else None,
        controller_epoch=ControllerEpochZNode.decode(epoch.data) if epoch.ok else 0,
        brokers={
            broker_id: BrokerIdZNode.decode(broker_id, result.data, result.stat.czxid if result.stat else -1)
            for broker_id, result in zip(broker_ids, found, strict=False)
            if result.ok
        },
        partitions={
            tp: PartitionTruth(assignment=assignment, state=_state(result))
            for (tp, assignment), result in zip(assignments.items(), states, strict=True)
        },
    )


async def _read(zk: ZkSession, ops: Sequence[ZkReadOp]) -> list[ZkResult]:
    return found_or_missing(ops, await zk.perform(ops))


def _assignments(topics: list[str], found: list[ZkResult]) -> dict[TopicPartition, ReplicaAssignment]:
    return {
        TopicPartition(topic, partition): assignment
        for topic, result in zip(topics, found, strict=True)
        if result.ok
        for partition, assignment in sorted(TopicZNode.decode(result.data).partitions.items())
    }


def _state(result: ZkResult) -> LeaderAndIsr | None:
    return TopicPartitionStateZNode.decode(result.data, result.stat.version) if result.ok and result.stat else None


@dataclass(slots=True)
class EpochHistory:
    """Every epoch seen, in the order of seeing: none may fall. `falls` are those that did, as sentences."""

    falls: list[str] = field(default_factory=list)
    looks: int = 0
    _controller_epoch: int = 0
    _leader_epochs: dict[TopicPartition, int] = field(default_factory=dict)

    def note(self, truth: Truth) -> None:
        """Takes another look in. Topics that were deleted are forgotten, as a new one of that name starts at 0."""
        self.looks += 1
        if truth.controller_epoch < self._controller_epoch:
            self.falls.append(f"controller epoch {self._controller_epoch} -> {truth.controller_epoch}")
        self._controller_epoch = truth.controller_epoch
        seen = {tp: p.state.leader_epoch for tp, p in truth.partitions.items() if p.state is not None}
        for tp, epoch in seen.items():
            if epoch < self._leader_epochs.get(tp, 0):
                self.falls.append(f"leader epoch of {tp} {self._leader_epochs[tp]} -> {epoch}")
        self._leader_epochs = seen
