"""The stages made of processes: Kafka's brokers under Kafka's controller, or kwob's. Both with a real ZooKeeper."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from controller.world.real.net import TcpNetwork
from controller.world.real.zookeeper import KazooConnector
from tests.admin.official.normal_form import CONTROLLER
from tests.admin.official.stage import BROKERS, CONTROLLER_SETTINGS, RACKS, SETTINGS, WITHOUT_GROUPS, Stage
from tests.kafka.cluster import JVM, REAL_BROKER_SETTINGS, REAL_KAFKA, Cluster, Node, free_port

_SMALL = {
    name: REAL_BROKER_SETTINGS[name]
    for name in ("log.cleaner.dedupe.buffer.size", "log.cleaner.threads", "num.io.threads", "num.network.threads")
}


class Processes:
    """The brokers of a cluster; starting and killing blocks, as nothing else is to happen meanwhile."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def kill(self, broker: int) -> None:
        self._cluster.nodes[broker].kill()

    async def start(self, broker: int) -> None:
        self._cluster.start(broker)


@asynccontextmanager
async def processes(folder: Path, connect: str, kind: str, *, kafka: bool) -> AsyncIterator[Stage]:
    """Three brokers: Kafka's, or kwob's with its controller."""
    files = folder / "files"
    files.mkdir(parents=True)
    cluster = await asyncio.to_thread(Cluster, folder, connect)
    try:
        if not kafka:
            _controller(cluster)
            await asyncio.to_thread(cluster.start, CONTROLLER)
        for broker in BROKERS:
            settings = SETTINGS | ({"broker.rack": RACKS[kind][broker]} if broker in RACKS[kind] else {})
            (_kafka_broker if kafka else _kwob_broker)(cluster, broker, settings)
        await asyncio.gather(*(asyncio.to_thread(cluster.start, broker) for broker in BROKERS))
        session = await KazooConnector(connect).connect(on_watch=lambda _: None, on_expired=lambda: None)
        stage = Stage(
            TcpNetwork(),
            session,
            Processes(cluster),
            {b: ("127.0.0.1", cluster.nodes[b].port) for b in BROKERS},
            data=folder / "data",
            files=files,
            zookeeper=connect,
            extra_names={"/127.0.0.1": "<client>", connect: "<zookeeper>"},
        )
        await stage.open_curtain(groups=kind not in WITHOUT_GROUPS)
        yield stage
        await session.close()
    finally:
        await asyncio.to_thread(cluster.stop)


def _dirs(cluster: Cluster, broker: int) -> str:
    return ",".join(str(cluster.folder / "data" / f"broker-{broker}" / name) for name in ("logs", "more"))


def _kafka_broker(cluster: Cluster, broker: int, settings: Mapping[str, Any]) -> Node:
    port = free_port()
    overrides = [f"{name}={value}" for name, value in {**_SMALL, **settings}.items()]
    command = [str(REAL_KAFKA), "broker", str(broker), str(port), cluster.connect, _dirs(cluster, broker), *overrides]
    ready = rf"KafkaServer id={broker}\] started"
    return cluster.start_node(broker, port, command, ready, KAFKA_HEAP=f"-Xms64m -Xmx256m {JVM}")


def _kwob_broker(cluster: Cluster, broker: int, settings: Mapping[str, Any]) -> Node:
    port = free_port()
    rack = settings.get("broker.rack")
    command = [
        sys.executable, "-m", "broker_sim", "run", "--zookeeper", cluster.connect, "--broker-id", str(broker),
        "--listener", f"127.0.0.1:{port}", "--log-dirs", _dirs(cluster, broker),
        *(["--rack", rack] if rack else []), *_overrides(settings),
    ]  # fmt: skip
    return cluster.start_node(broker, port, command, r"broker\.started")


def _controller(cluster: Cluster) -> Node:
    port = free_port()
    command = [
        sys.executable, "-m", "controller", "run", "--zookeeper", cluster.connect,
        "--controller-id", str(CONTROLLER), "--listener", f"127.0.0.1:{port}", *_overrides(CONTROLLER_SETTINGS),
    ]  # fmt: skip
    return cluster.start_node(CONTROLLER, port, command, r"controller\.started")


def _overrides(settings: Mapping[str, Any]) -> list[str]:
    return [w for name, value in settings.items() if name != "broker.rack" for w in ("--override", f"{name}={value}")]
