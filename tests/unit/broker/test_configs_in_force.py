"""What of the config znodes is in force at a broker, whatever was there before: drawn changes, one after another."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any, cast

import pytest
import structlog

from broker_sim.config_store import (
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    ConfigStore,
    DynamicConfigs,
)
from broker_sim.zk_client import ZkClient
from controller.wire.types import BrokerId
from controller.wire.zk_operations import Create, Exists, GetChildren, GetData, SetData, ZkOp, ZkResult
from controller.wire.znodes import ConfigChangesZNode, ConfigEntityZNode
from controller.world.simulated.clock import SimulatedClock
from controller.world.simulated.loop import run
from controller.world.simulated.znode_tree import ZnodeTree
from controller.world.supervisor import Supervisor

LISTS = ("", "*", "0:1", "0:1,1:2", "1:1", "no list")
RATES: list[str | None] = [None, "0", "1000"]
RETENTIONS = (None, "1000", "many")


class Znodes:
    """ZooKeeper with its config znodes."""

    def __init__(self) -> None:
        self.tree, self.watches = ZnodeTree(), list[Any]()
        for path in ("/config", "/config/topics", "/config/brokers", ConfigChangesZNode.path):
            self.write(Create(path))

    def write(self, op: Any) -> ZkResult:
        return self.tree.write(op, session=1, now_ms=0).result

    async def perform(self, ops: list[ZkOp]) -> list[ZkResult]:
        return [
            self.tree.read(op) if isinstance(op, (GetData | GetChildren | Exists)) else self.write(op) for op in ops
        ]

    async def perform_one(self, op: ZkOp) -> ZkResult:
        return (await self.perform([op]))[0]

    def watch(self, path: str, handler: Any) -> None:
        self.watches.append(handler)

    def put(self, entity: str, configs: Mapping[str, str]) -> None:
        """Written and announced."""
        path, data = ConfigEntityZNode.path(entity), ConfigEntityZNode.encode(configs)
        if not self.write(SetData(path, data)).ok:
            self.write(Create(path, data))
        self.write(Create(ConfigChangesZNode.sequence_path, ConfigChangesZNode.encode(entity), sequence=True))
        for handler in self.watches:
            handler(None)


class Target:
    """What is in force."""

    def __init__(self) -> None:
        self.topics: dict[str, Mapping[str, str]] = {}
        self.throttled: dict[str, tuple[str, str]] = {}
        self.leader_rate: int | None = -1
        self.retentions: set[str | None] = set()

    def set_topic_config(self, topic: str, overrides: Mapping[str, str]) -> None:
        self.topics[topic] = overrides

    def set_throttled_replicas(self, topic: str, leader: str, follower: str) -> None:
        if "no list" in (leader, follower):
            raise ValueError("no list")
        self.throttled[topic] = leader, follower

    def set_throttle_rates(self, *, leader: int | None = None, **_: int | None) -> None:
        self.leader_rate = leader

    def set_broker_config(self, values: Mapping[str, str]) -> None:
        self.retentions.add(values.get("log.retention.ms"))


@pytest.mark.parametrize("seed", range(6))
def test_what_was_written_last_is_in_force_as_far_as_it_can_be(seed: int) -> None:
    """An emptied list ends a throttle, and an absent rate is none. What cannot be leaves what was."""
    chance = Random(seed)

    async def scenario() -> None:
        znodes, target, log = Znodes(), Target(), structlog.get_logger()
        zk, supervisor = cast(ZkClient, znodes), Supervisor(log)
        clock = SimulatedClock(asyncio.get_running_loop())
        configs = DynamicConfigs(BrokerId(1), ConfigStore(zk), zk, target, clock=clock, supervisor=supervisor, log=log)
        await configs.load_broker()
        await configs.start()
        levels: dict[str, dict[str, str]] = {"<default>": {}, "1": {}}
        retention: dict[str, str] = {}
        throttled: dict[str, tuple[str, str]] = {}
        for _ in range(30):
            target.retentions.clear()
            if chance.random() < 0.4:
                level, rate, kept = chance.choice(["<default>", "1"]), chance.choice(RATES), chance.choice(["5", "6"])
                levels[level] = {"log.retention.ms": kept} | ({} if rate is None else {LEADER_RATE: rate})
                znodes.put(f"brokers/{level}", levels[level])
            else:
                topic, value = chance.choice("tu"), chance.choice(RETENTIONS)
                lists = {LEADER_REPLICAS: chance.choice(LISTS), FOLLOWER_REPLICAS: chance.choice(LISTS)}
                named = {name: text for name, text in lists.items() if text or chance.random() < 0.5}
                znodes.put(f"topics/{topic}", named | ({} if value is None else {"retention.ms": value}))
                if value != "many" and "no list" not in lists.values():
                    retention[topic], throttled[topic] = value or "", (lists[LEADER_REPLICAS], lists[FOLLOWER_REPLICAS])
            await asyncio.sleep(1)
            merged = levels["<default>"] | levels["1"]
            assert target.throttled == throttled
            rate = merged.get(LEADER_RATE)
            assert target.leader_rate == (None if rate is None else int(rate))
            assert target.retentions <= {merged.get("log.retention.ms")}, "at no time a part of it"
            inherited = merged.get("log.retention.ms", "")
            found = {t: c.get("retention.ms", "") for t, c in target.topics.items()}
            assert found == {t: own or inherited for t, own in retention.items()}
        await configs.stop()

    run(scenario())
