"""A stage of KRaft: a controller and three brokers of a real Kafka 4.1, without ZooKeeper.

What other stages read from znodes is asked of brokers here; a scenario that writes znodes cannot be played on it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from controller.wire.protocol import ApiKey
from controller.world.real.net import TcpNetwork
from tests.admin.official.stage import BROKERS, RACKS, SETTINGS, WITHOUT_GROUPS, Stage
from tests.kafka.cluster import JVM, REAL_BROKER_SETTINGS, REAL_KAFKA, free_port

VERSION: Final = "4.1.0"
_CONTROLLER: Final = 100
_START_S: Final = 120.0
_OWN: Final = {
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.election.timeout.ms": "500",
    "transaction.state.log.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "group.coordinator.threads": "1",
    "metadata.max.idle.interval.ms": "50",  # how often `caught_up` sees the metadata log grow
}
#: Of the settings of other stages, those that Kafka 4.1 does not know.
_GONE: Final = ("zookeeper.session.timeout.ms",)
_SMALL: Final = ("log.cleaner.dedupe.buffer.size", "log.cleaner.threads", "num.io.threads", "num.network.threads")


class Nodes:
    """The processes; starting and killing blocks, as nothing else is to happen meanwhile."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder, self.kind = folder, kind
        self.ports = {node: free_port() for node in (_CONTROLLER, *BROKERS)}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def launch(self, node: int) -> None:
        roles = "controller" if node == _CONTROLLER else "broker"
        dirs = ",".join(str(self.folder / "data" / f"broker-{node}" / name) for name in ("logs", "more"))
        own = _OWN | {n: str(REAL_BROKER_SETTINGS[n]) for n in _SMALL}
        settings = {n: v for n, v in (SETTINGS | own).items() if n not in _GONE}
        if node in RACKS[self.kind]:
            settings["broker.rack"] = RACKS[self.kind][node]
        quorum = f"{_CONTROLLER}@127.0.0.1:{self.ports[_CONTROLLER]}"
        command = [str(REAL_KAFKA), "kraft", str(node), roles, str(self.ports[node]), quorum, dirs]
        environment = {**os.environ, "KAFKA_VERSION": VERSION, "KAFKA_HEAP": f"-Xms64m -Xmx256m {JVM}"}
        with (self.folder / f"node-{node}.log").open("ab") as out:
            self._processes[node] = subprocess.Popen(
                [*command, *(f"{n}={v}" for n, v in settings.items())],
                stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=environment, start_new_session=True,
            )  # fmt: skip

    async def kill(self, node: int) -> None:
        process = self._processes.pop(node)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    async def start(self, node: int) -> None:
        self.launch(node)

    async def stop(self) -> None:
        for node in list(self._processes):
            await self.kill(node)


class KraftStage(Stage):
    """As `Stage`, by questions to brokers alone."""

    async def nodes(self) -> set[int]:
        """The brokers that are not fenced, as any of them says; none while nobody answers."""
        for broker in sorted(set(self.addresses) - self.down):
            try:
                body = {"topics": [], "allow_auto_topic_creation": False}
                answer = await self.call(broker, ApiKey.METADATA, 5, body)
                return {int(b.node_id) for b in answer.brokers}
            except OSError:
                continue
        return set()

    async def children(self, path: str) -> list[str]:
        """Of the znodes that stages look at, those of brokers; there are no others."""
        return sorted(map(str, await self.nodes())) if path == "/brokers/ids" else []

    async def read(self, path: str) -> Any:
        """Of a partition's state the leader; nothing of anything else."""
        state = re.fullmatch(r"/brokers/topics/(.+)/partitions/(\d+)/state", path)
        if state is None:
            return None
        body = {"topics": [{"name": state[1]}], "allow_auto_topic_creation": False}
        answer = await self.call(min(set(self.addresses) - self.down), ApiKey.METADATA, 5, body)
        leaders = {p.partition_index: p.leader_id for t in answer.topics for p in t.partitions}
        return {"leader": leaders[int(state[2])]}

    async def write(self, path: str, text: str | None) -> None:
        raise AssertionError(f"there is no {path} without ZooKeeper")

    async def znodes(self) -> dict[str, Any]:
        return {}

    async def caught_up(self) -> None:
        """Until every live broker has asked for what comes after the next record of the metadata log: what was in it
        before, the broker has read, and had the time between two records to act by it."""
        live, end = set(self.addresses) - self.down, None

        async def caught_up() -> bool:
            nonlocal end
            body = {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}
            partition = (await self.call(min(live), ApiKey.DESCRIBE_QUORUM, 0, body)).topics[0].partitions[0]
            if end is None:
                end = partition.high_watermark
            ends = {row.replica_id: row.log_end_offset for row in partition.observers}
            return all(ends.get(broker, 0) > end for broker in live)

        await self.until("the brokers know the metadata", caught_up)

    async def settle(self, *, moving: bool = False) -> None:
        """Until all live brokers say the same: replicas that live are in sync and led, nothing moves."""

        async def settled() -> bool:
            live = sorted(set(self.addresses) - self.down)
            views = []
            for broker in live:
                try:
                    body: dict[str, Any] = {"topics": None, "allow_auto_topic_creation": False}
                    answer = await self.call(broker, ApiKey.METADATA, 5, body)
                except OSError:
                    return False
                views.append(
                    {
                        (t.name, p.partition_index): (p.leader_id, tuple(sorted(p.isr_nodes)), tuple(p.replica_nodes))
                        for t in answer.topics
                        for p in t.partitions
                    }
                )
                if {b.node_id for b in answer.brokers} != set(live):
                    return False
            if any(view != views[0] for view in views):
                return False
            well = all(
                (leader in live and set(replicas) & set(live) <= set(isr)) or not set(replicas) & set(live)
                for leader, isr, replicas in views[0].values()
            )
            if moving:
                return True
            listed = await self.call(live[0], ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"timeout": 5000, "topics": None})
            return well and not listed.topics and all([await self._is_in_place(broker) for broker in live])

        await self.until("the cluster settles", settled)

    async def clear(self) -> None:
        """Topics, groups and dynamic configs go; brokers that are down start."""
        await self.clear_groups()
        await self.settle()
        one = min(self.addresses)
        answer = await self.call(one, ApiKey.METADATA, 5, {"topics": None, "allow_auto_topic_creation": False})
        if names := [t.name for t in answer.topics if not t.name.startswith("__")]:
            await self.call(one, ApiKey.DELETE_TOPICS, 4, {"topic_names": names, "timeout": 30_000})
        for name in ("", *map(str, self.addresses)):
            owner = int(name) if name else one
            resource = {"resource_type": 4, "resource_name": name, "configuration_keys": None}
            described = await self.call(owner, ApiKey.DESCRIBE_CONFIGS, 1, {"resources": [resource]})
            source = 2 if name else 3
            own = [c.name for r in described.results for c in r.configs if c.config_source == source]
            if own:
                configs = [{"name": n, "config_operation": 1, "value": None} for n in own]
                body = {"resources": [{"resource_type": 4, "resource_name": name, "configs": configs}]}
                await self.call(owner, ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, body | {"validate_only": False})
        await self.settle()


@asynccontextmanager
async def kraft(folder: Path, kind: str = "plain") -> AsyncIterator[KraftStage]:
    """The stage, settled."""
    (folder / "files").mkdir(parents=True)
    nodes = Nodes(folder, kind)
    try:
        for node in (_CONTROLLER, *BROKERS):
            nodes.launch(node)
        stage = KraftStage(
            TcpNetwork(), None, nodes, {b: ("127.0.0.1", nodes.ports[b]) for b in BROKERS},
            data=folder / "data", files=folder / "files", extra_names={"/127.0.0.1": "<client>"},
        )  # fmt: skip

        async def up() -> bool:
            return await stage.nodes() == set(BROKERS)

        await stage.until("the brokers are there", up, _START_S)
        await stage.open_curtain(groups=kind not in WITHOUT_GROUPS)
        yield stage
    finally:
        await nodes.stop()
