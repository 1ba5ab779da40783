"""Configs as a broker writes them: there, then announced, whatever another hand does meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from broker_sim.config_store import ConfigStore
from broker_sim.zk_client import ZkClient
from controller.wire.zk_operations import Create, Delete, GetChildren, GetData, SetData, ZkResult
from controller.wire.znodes import ConfigChangesZNode, ConfigEntityZNode
from controller.world.simulated.znode_tree import ZnodeTree

ENTITY = "topics/t"
PATH = ConfigEntityZNode.path(ENTITY)
THEIRS, OURS = ({"retention.ms": "1"}, {"segment.bytes": "5000"})


class Znodes:
    """ZooKeeper, and another hand that creates or removes the configs before the n-th step of whoever asks."""

    def __init__(self, at_step: int, *, is_there: bool) -> None:
        self.tree, self.at_step, self.steps = ZnodeTree(), at_step, 0
        self.announced_with: list[bytes | None] = []
        for path in ("/config", "/config/topics", ConfigChangesZNode.path):
            self.write(Create(path))
        if is_there:
            self.write(Create(PATH, ConfigEntityZNode.encode(THEIRS)))

    def write(self, op: Any) -> ZkResult:
        return self.tree.write(op, session=1, now_ms=0).result

    def read(self) -> bytes | None:
        return self.tree.read(GetData(PATH)).data

    async def perform_one(self, op: Create | SetData) -> ZkResult:
        self.steps += 1
        if self.steps == self.at_step:
            there = self.tree.read(GetData(PATH)).ok
            self.write(Delete(PATH) if there else Create(PATH, ConfigEntityZNode.encode(THEIRS)))
        if op.path == ConfigChangesZNode.sequence_path:
            self.announced_with.append(self.read())
        return self.write(op)


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("at_step", range(4))
def test_what_is_written_is_there_and_then_announced_once(at_step: int, is_there: bool) -> None:
    znodes = Znodes(at_step, is_there=is_there)
    asyncio.run(ConfigStore(cast(ZkClient, znodes)).write(ENTITY, OURS))
    (notice,) = znodes.tree.read(GetChildren(ConfigChangesZNode.path)).children
    assert ConfigChangesZNode.decode(znodes.tree.read(GetData(f"{ConfigChangesZNode.path}/{notice}")).data) == ENTITY
    ours = ConfigEntityZNode.encode(OURS)
    is_removed_last = at_step == znodes.steps and znodes.read() is None
    assert znodes.announced_with == [None if is_removed_last else ours]
    assert znodes.read() == (None if is_removed_last else ours)
