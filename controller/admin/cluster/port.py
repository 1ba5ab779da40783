"""What a tool that works by brokers and by ZooKeeper asks and changes, and the two ways of doing it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol

from controller.admin.cluster.client import AdminClient
from controller.admin.cluster.failures import Refused, ToolFailure
from controller.admin.cluster.queries import (
    ConfigResourceType,
    Outcomes,
    TopicInfo,
    alter_configs,
    alter_reassignments,
    describe_topics,
    list_reassignments,
)
from controller.admin.cluster.znodes import NodeExists, Znodes
from controller.rules.placement import BrokerRack
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, ReplicaAssignment, TopicPartition
from controller.wire.znodes import ReassignPartitionsZNode

COMMAND_FAILED: Final = "org.apache.kafka.server.common.AdminCommandFailedException"

Targets = Mapping[TopicPartition, tuple[BrokerId, ...]]
Layout = dict[TopicPartition, tuple[BrokerId, ...]]
#: Per topic or broker: configs to set, or (None) to remove.
ConfigChanges = Mapping[str, Mapping[str, str | None]]


class Cluster(Protocol):
    """A cluster, asked in one of two ways. Refusals are `ToolFailure`, `Refused`, in the words of that way."""

    #: Whether replicas can be moved between log directories this way.
    moves_log_dirs: bool

    async def brokers(self) -> list[BrokerRack]:
        """The live brokers by id."""
        ...

    async def replicas(self, topics: Collection[str]) -> Layout:
        """The replicas of all partitions of those topics that there are, by topic and number."""
        ...

    async def replicas_to_move(self, topics: Sequence[str]) -> Layout:
        """As `replicas`. Raises Refused for a missing topic where this way does."""
        ...

    async def check_targets(self, targets: Targets) -> Layout:
        """The replicas as they are, of the targets at least. Raises for a partition or a broker that there is not."""
        ...

    async def running(self) -> dict[TopicPartition, ReplicaAssignment] | None:
        """The reassignments under way; None without any, empty where there are some and nobody can say which."""
        ...

    async def start(self, targets: Targets) -> Outcomes:
        """Starts reassignments. Refusals of single ones are returned."""
        ...

    async def change_topics(self, changes: ConfigChanges) -> bool:
        """Changes configs of topics. Whether anything may have changed."""
        ...

    async def change_brokers(self, changes: ConfigChanges) -> bool:
        """Changes dynamic configs of brokers. Whether anything may have changed."""
        ...


class ByBrokers:
    """By the Kafka protocol."""

    moves_log_dirs = True

    def __init__(self, admin: AdminClient) -> None:
        self.admin = admin

    async def brokers(self) -> list[BrokerRack]:
        """As `Cluster.brokers`."""
        return [BrokerRack(broker_id=n.broker_id, rack=n.rack) for n in (await self.admin.brokers()).values()]

    async def replicas(self, topics: Collection[str]) -> Layout:
        """As `Cluster.replicas`."""
        return _layout(await describe_topics(self.admin, set(topics)))

    async def replicas_to_move(self, topics: Sequence[str]) -> Layout:
        """As `Cluster.replicas_to_move`."""
        described = await describe_topics(self.admin, topics)
        for name in described:
            _existing(name, described[name])
        return _layout(described)

    async def check_targets(self, targets: Targets) -> Layout:
        """As `Cluster.check_targets`: of the targets."""
        unknown = sorted({r for replicas in targets.values() for r in replicas} - (await self.admin.brokers()).keys())
        if unknown:
            raise ToolFailure(f"Unknown broker id {unknown[0]}", java_class=COMMAND_FAILED)
        described = await describe_topics(self.admin, {p.topic for p in targets})
        layout = _layout(described)
        for partition in targets:
            _existing(partition.topic, described[partition.topic])
            if partition not in layout:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition: {partition}")
        return {partition: layout[partition] for partition in targets}

    async def running(self) -> dict[TopicPartition, ReplicaAssignment] | None:
        """As `Cluster.running`."""
        return await list_reassignments(self.admin) or None

    async def start(self, targets: Targets) -> Outcomes:
        """As `Cluster.start`."""
        return await alter_reassignments(self.admin, targets)

    async def change_topics(self, changes: ConfigChanges) -> bool:
        """As `Cluster.change_topics`."""
        await alter_configs(self.admin, ConfigResourceType.TOPIC, changes)
        return True

    async def change_brokers(self, changes: ConfigChanges) -> bool:
        """As `Cluster.change_brokers`."""
        await alter_configs(self.admin, ConfigResourceType.BROKER, changes)
        return True


def _existing(name: str, topic: TopicInfo | Refused) -> TopicInfo:
    if isinstance(topic, TopicInfo):
        return topic
    missing = topic.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    raise Refused(topic.code, f"Topic {name} not found.") if missing else topic


def _layout(described: Mapping[str, TopicInfo | Refused]) -> Layout:
    return {
        TopicPartition(topic.name, p.partition): p.replicas
        for topic in described.values()
        if isinstance(topic, TopicInfo)
        for p in topic.partitions
    }


class ByZnodes:
    """By the znodes of ZooKeeper, as Kafka 2.x's tools did. `zookeeper` is the text of the option."""

    moves_log_dirs = False

    def __init__(self, znodes: Znodes, zookeeper: str) -> None:
        self.znodes = znodes
        self.zookeeper = zookeeper

    async def brokers(self) -> list[BrokerRack]:
        """As `Cluster.brokers`."""
        return [BrokerRack(broker_id=b.broker_id, rack=b.rack) for b in await self.znodes.brokers()]

    async def replicas(self, topics: Collection[str]) -> Layout:
        """As `Cluster.replicas`."""
        return await self.znodes.replicas(topics)

    async def replicas_to_move(self, topics: Sequence[str]) -> Layout:
        """As `Cluster.replicas_to_move`: a missing topic is left out."""
        return await self.znodes.replicas(topics)

    async def check_targets(self, targets: Targets) -> Layout:
        """As `Cluster.check_targets`: of all partitions of these topics."""
        current = await self.znodes.replicas(p.topic for p in targets)
        missing = ", ".join(str(p) for p in targets if p not in current)
        if missing:
            raise _failed(f"The proposed assignment contains non-existent partitions: Set({missing})")
        live = {b.broker_id for b in await self.znodes.brokers()}
        unknown = sorted({r for replicas in targets.values() for r in replicas} - live)
        if unknown:
            raise _failed(f"The proposed assignment contains non-existent brokerIDs: {','.join(map(str, unknown))}")
        return current

    async def running(self) -> dict[TopicPartition, ReplicaAssignment] | None:
        """As `Cluster.running`."""
        targets = await self.znodes.reassigning()
        return None if targets is None else {p: ReplicaAssignment(replicas=r) for p, r in targets.items()}

    async def start(self, targets: Targets) -> Outcomes:
        """As `Cluster.start`: all or none, by the znode that asks for it."""
        try:
            await self.znodes.create(ReassignPartitionsZNode.path, ReassignPartitionsZNode.encode(targets))
        except NodeExists as error:
            listed = ", ".join(map(str, await self.znodes.reassigning() or {}))
            raise _failed(
                f"Partition reassignment currently in progress for Map({listed}). Aborting operation"
            ) from error
        return dict.fromkeys(targets)

    async def change_topics(self, changes: ConfigChanges) -> bool:
        """As `Cluster.change_topics`."""
        return any([await self.znodes.change_configs(f"topics/{topic}", c) for topic, c in changes.items()])

    async def change_brokers(self, changes: ConfigChanges) -> bool:
        """As `Cluster.change_brokers`."""
        return any([await self.znodes.change_configs(f"brokers/{broker}", c) for broker, c in changes.items()])


def _failed(message: str) -> ToolFailure:
    return ToolFailure(message, java_class=COMMAND_FAILED)
