"""The whole system on virtual time with the admin tools as its client: real controllers, real brokers, real tools."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.admin.commands import configs, leader_election, log_dirs, reassign_partitions, topics
from controller.admin.toolkit.machine import Machine
from controller.wire.zk_operations import Create, Delete, SetData
from controller.world.ports import ZkSession
from controller.world.simulated.world import World, run_world
from tests.sim.cluster import BROKER_PORT, Cluster

TOOLS: dict[str, Callable[[Sequence[str], Machine], Awaitable[int]]] = {
    "topics": topics,
    "reassign-partitions": reassign_partitions,
    "leader-election": leader_election,
    "configs": configs,
    "log-dirs": log_dirs,
}


@dataclass(frozen=True)
class Ran:
    """What a tool left."""

    code: int
    out: str
    err: str

    @property
    def value(self) -> Any:
        return json.loads(self.out)


class System(Cluster):
    """A cluster with tools, a ZooKeeper client of its own, and a record of what was written to ZooKeeper."""

    _client: ZkSession | None = None

    async def tool(self, name: str, *argv: str) -> Ran:
        """Runs a tool of the table above against all brokers."""
        out, err = io.StringIO(), io.StringIO()
        machine = Machine(
            network=self.world.machine("client").network,
            clock=self.world.clock,
            chance=random.Random(11),
            out=out,
            err=err,
        )
        brokers = ",".join(f"broker-{number}:{BROKER_PORT}" for number in self.broker_ids)
        words = ["--bootstrap-server", brokers, *argv]
        code = await TOOLS[name](words, machine)
        return Ran(code, out.getvalue(), err.getvalue())

    async def ok(self, name: str, *argv: str) -> Ran:
        """The same, and it must succeed."""
        ran = await self.tool(name, *argv)
        assert ran.code == 0, (name, argv, ran.out, ran.err)
        return ran

    async def create(self, topic: str, assignment: str) -> None:
        """A topic by hand: `1:2,2:3`. Returns once all replicas are in sync."""
        await self.ok("topics", "--create", "--topic", topic, "--replica-assignment", assignment)
        await self.until(self.healthy, within_s=30, what=f"{topic} in sync")

    async def write(self, *ops: Create | SetData | Delete) -> list[Any]:
        """Writes to ZooKeeper as an operator's shell would."""
        if self._client is None:
            connector = self.world.machine("client").connector(session_timeout_ms=600_000)
            self._client = await connector.connect(on_watch=lambda event: None, on_expired=lambda: None)
        return await self._client.perform(list(ops))

    def put(self, path: str, value: Any) -> Create:
        return Create(path, json.dumps(value).encode())

    async def move(self, folder: Path, topic: str, partition: int, replicas: Sequence[int], *more: str) -> Ran:
        """Starts one reassignment by the tool."""
        return await self.tool("reassign-partitions", "--execute", *plan(folder, {(topic, partition): replicas}), *more)

    def replicas(self, topic: str, partition: int = 0) -> tuple[list[int], list[int], list[int]]:
        """Replicas, adding and removing ones of a partition, by ZooKeeper."""
        found = self.znode(f"/brokers/topics/{topic}")
        key = str(partition)
        lists = (found["partitions"], found.get("adding_replicas", {}), found.get("removing_replicas", {}))
        return tuple(list(one.get(key, [])) for one in lists)  # type: ignore[return-value]

    def settled(self, topic: str, replicas: Sequence[int], partition: int = 0) -> bool:
        """Whether a move has ended at these replicas."""
        return self.replicas(topic, partition) == (list(replicas), [], [])

    async def hold(self, *brokers: int) -> None:
        """Kills brokers, so that what needs them waits."""
        for broker in brokers:
            self.kill(broker)
        await self.until(lambda: not self.registered() & set(brokers), within_s=30, what="the dead are gone")

    def log_folders(self, broker: int) -> set[str]:
        """Names of the partition folders on a broker's disk."""
        root = self.folder / f"broker-{broker}"
        return {path.name for path in root.iterdir() if path.is_dir()} if root.exists() else set()


def plan(folder: Path, targets: dict[tuple[str, int], Sequence[int]], **more: Any) -> list[str]:
    """A reassignment file as an option."""
    rows = [{"topic": t, "partition": n, "replicas": list(r), **more} for (t, n), r in targets.items()]
    path = folder / "plan.json"
    path.write_text(json.dumps({"version": 1, "partitions": rows}))
    return ["--reassignment-json-file", str(path)]


def play(
    folder: Path, scenario: Callable[[System], Coroutine[Any, Any, None]], *, seed: int = 3, **shape: int
) -> System:
    """Runs a scenario on a system of this shape (`brokers`, `controllers`), which has been started."""

    async def run(world: World) -> System:
        system = System(world, folder / "system", **shape)
        with system.logging():
            try:
                await system.start()
                await scenario(system)
            finally:
                for number in (*system.brokers, *system.controllers):
                    system.kill(number)
        return system

    return run_world(seed, run)
