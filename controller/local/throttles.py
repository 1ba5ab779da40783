"""Throttles that were forgotten, as `kwob status` lists them: read from ZooKeeper."""

from __future__ import annotations

import contextlib

from pydantic import BaseModel, ConfigDict

from controller.admin.reassignment.forgotten_throttles import forgotten
from controller.wire.config_znodes import ConfigEntityZNode
from controller.wire.types import TopicPartition
from controller.wire.zk_operations import GetChildren, GetData, ZkOp
from controller.wire.znode_json import ZnodeError
from controller.wire.znodes import ReassignPartitionsZNode, TopicsZNode, TopicZNode
from controller.world.ports import ZkSession


class ThrottleRow(BaseModel):
    """A throttle that limits replication although nothing is being moved, and the command that removes it."""

    model_config = ConfigDict(extra="forbid")
    entity: str
    name: str
    value: str
    remove: str


async def forgotten_throttles(session: ZkSession, bootstrap: str) -> list[ThrottleRow]:
    """The throttles in ZooKeeper that no running reassignment needs. Raises: ZkSessionExpired."""
    brokers, topics, asked = await session.perform(
        [GetChildren("/config/brokers"), GetChildren(TopicsZNode.path), GetData(ReassignPartitionsZNode.path)]
    )
    names = sorted(topics.children)
    ids = sorted(brokers.children)
    ops: list[ZkOp] = [GetData(ConfigEntityZNode.path(f"brokers/{name}")) for name in ids]
    ops += [GetData(ConfigEntityZNode.topic(name)) for name in names]
    ops += [GetData(TopicZNode.path(name)) for name in names]
    rows = await session.perform(ops) if ops else []
    configs = [ConfigEntityZNode.decode(row.data) if row.ok else {} for row in rows[: len(ids) + len(names)]]
    moving = {
        TopicPartition(name, number)
        for name, row in zip(names, rows[len(ids) + len(names) :], strict=True)
        for number, a in TopicZNode.decode(row.data).partitions.items()
        if a.is_being_reassigned
    }
    with contextlib.suppress(ZnodeError):
        moving |= set(ReassignPartitionsZNode.decode(asked.data)) if asked.ok else set()
    by_broker = dict(zip(ids, configs[: len(ids)], strict=True))
    by_topic = dict(zip(names, configs[len(ids) :], strict=True))
    return [
        ThrottleRow(entity=t.entity, name=t.name, value=t.value, remove=t.remove)
        for t in forgotten(by_broker, by_topic, moving, bootstrap)
    ]
