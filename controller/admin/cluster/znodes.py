"""The znodes that Kafka 2.x's tools read and wrote, as functions over a session. Source: spec admin.md §2.11."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

from controller.wire.types import Broker, BrokerId, LeaderAndIsr, TopicPartition
from controller.wire.zk_operations import (
    Create,
    GetChildren,
    GetData,
    SetData,
    ZkCode,
    ZkOp,
    ZkReadOp,
    ZkRefused,
    ZkResult,
    found_or_missing,
)
from controller.wire.znode_json import dump
from controller.wire.znodes import (
    BrokerIdsZNode,
    BrokerIdZNode,
    ConfigChangesZNode,
    ConfigEntityZNode,
    DeleteTopicsTopicZNode,
    DeleteTopicsZNode,
    ReassignPartitionsZNode,
    TopicAssignment,
    TopicPartitionStateZNode,
    TopicsZNode,
    TopicZNode,
    ZnodeError,
)
from controller.world.ports import ZkSession

Replicas = Mapping[int, tuple[BrokerId, ...]]


class NodeExists(Exception):
    """The znode to be created is there."""


class Znodes:
    """A session with the questions and changes of the tools. Each may raise ZkRefused, with the znode and the code."""

    def __init__(self, session: ZkSession, *, topic_version: int) -> None:
        """`topic_version` is that of the topic znodes that are created."""
        self._session = session
        self._topic_version = topic_version

    async def _one(self, op: ZkOp) -> ZkResult:
        [result] = await self._session.perform([op])
        return result

    async def _look(self, op: ZkReadOp) -> ZkResult:
        [result] = found_or_missing([op], [await self._one(op)])
        return result

    async def read(self, path: str) -> bytes | None:
        """The data; None where there is no znode."""
        node = await self._look(GetData(path))
        return (node.data or b"") if node.ok else None

    async def children(self, path: str) -> list[str]:
        """Sorted; none where there is no znode."""
        return sorted((await self._look(GetChildren(path))).children)

    async def create(self, path: str, data: bytes | None, *, sequence: bool = False) -> None:
        """Creates it with its parents. Raises NodeExists."""
        made = await self._one(Create(path, data, sequence=sequence))
        if made.code is ZkCode.NO_NODE:
            parent = path.rpartition("/")[0]
            with contextlib.suppress(NodeExists):
                await self.create(parent, None)
            made = await self._one(Create(path, data, sequence=sequence))
        if made.code is ZkCode.NODE_EXISTS:
            raise NodeExists(path)
        if not made.ok:
            raise ZkRefused(path, made.code)

    async def put(self, path: str, data: bytes) -> None:
        """Sets it, or creates it."""
        changed = await self._one(SetData(path, data))
        if changed.code is ZkCode.NO_NODE:
            await self.create(path, data)
        elif not changed.ok:
            raise ZkRefused(path, changed.code)

    # Topics.

    async def topics(self) -> list[str]:
        """All names, sorted."""
        return await self.children(TopicsZNode.path)

    async def assignment(self, topic: str) -> TopicAssignment | None:
        """None for a topic that there is not."""
        data = await self.read(TopicZNode.path(topic))
        return None if data is None else TopicZNode.decode(data)

    async def write_assignment(self, topic: str, replicas: Replicas, before: TopicAssignment | None = None) -> None:
        """Creates a topic, or (`before`) replaces what it was. Raises NodeExists."""
        value: dict[str, Any] = {"version": 1, "partitions": {str(p): list(r) for p, r in sorted(replicas.items())}}
        if before is not None and before.topic_id is not None:
            value = {"partitions": value["partitions"], "topic_id": before.topic_id, "adding_replicas": {}}
            value |= {"removing_replicas": {}, "version": 3}
        elif self._topic_version >= 2:
            value |= {"version": self._topic_version, "adding_replicas": {}, "removing_replicas": {}}
        if before is None:
            await self.create(TopicZNode.path(topic), dump(value))
        else:
            await self.put(TopicZNode.path(topic), dump(value))

    async def state(self, partition: TopicPartition) -> LeaderAndIsr | None:
        """Leader and ISR; None before there is one."""
        return TopicPartitionStateZNode.decode(await self.read(TopicPartitionStateZNode.path(partition)), 0)

    async def marked(self) -> list[str]:
        """The topics marked for deletion."""
        return await self.children(DeleteTopicsZNode.path)

    async def mark(self, topic: str) -> None:
        """Marks a topic for deletion. Raises NodeExists."""
        await self.create(DeleteTopicsTopicZNode.path(topic), None)

    # Brokers and configs.

    async def brokers(self) -> list[Broker]:
        """The registered brokers by id."""
        registered = []
        for broker_id in BrokerIdsZNode.ids(await self.children(BrokerIdsZNode.path)):
            data = await self.read(BrokerIdZNode.path(broker_id))
            if data is not None:
                registered.append(BrokerIdZNode.decode(broker_id, data))
        return registered

    async def configs(self, entity_path: str) -> dict[str, str]:
        """The configs of `topics/T` or `brokers/N`, in their order."""
        return ConfigEntityZNode.decode(await self.read(ConfigEntityZNode.path(entity_path)))

    async def write_configs(self, entity_path: str, configs: Mapping[str, str], *, notify: bool = True) -> None:
        """Writes them, and the notice without which no broker looks."""
        await self.put(ConfigEntityZNode.path(entity_path), ConfigEntityZNode.encode(configs))
        if notify:
            await self.create(ConfigChangesZNode.sequence_path, ConfigChangesZNode.encode(entity_path), sequence=True)

    async def change_configs(self, entity_path: str, changes: Mapping[str, str | None]) -> bool:
        """Sets configs, or (None) removes them; nothing is written when nothing changes. Whether it was."""
        before = await self.configs(entity_path)
        after = {k: v for k, v in (before | dict(changes)).items() if v is not None}
        if after == before:
            return False
        await self.write_configs(entity_path, after)
        return True

    # Reassignments.

    async def reassigning(self) -> dict[TopicPartition, tuple[BrokerId, ...]] | None:
        """What `/admin/reassign_partitions` asks for; None without that znode, empty when it does not parse."""
        data = await self.read(ReassignPartitionsZNode.path)
        if data is None:
            return None
        try:
            return ReassignPartitionsZNode.decode(data)
        except ZnodeError:
            return {}

    async def replicas(self, topics: Iterable[str]) -> dict[TopicPartition, tuple[BrokerId, ...]]:
        """The replicas of all partitions of these topics, of those that there are."""
        layout = {}
        for topic in sorted(set(topics)):
            assignment = await self.assignment(topic)
            for number, replicas in sorted(assignment.partitions.items() if assignment else ()):
                layout[TopicPartition(topic, number)] = tuple(replicas.replicas)
        return layout
