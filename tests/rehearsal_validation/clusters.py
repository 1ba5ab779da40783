"""The live clusters of the validation: real Kafka in both modes, and kwob, four brokers each, as child processes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from kazoo.exceptions import NoNodeError

from controller.world.real.embedded_zookeeper import EmbeddedZooKeeper
from tests.kafka.cluster import JVM, REAL_KAFKA, Cluster, Node, free_port, until
from tests.rehearsal_validation.runs import BROKERS

SETTINGS: Final[dict[str, Any]] = {
    "replica.lag.time.max.ms": 10_000,
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
}
_ONLY_ZOOKEEPER: Final = ("zookeeper.session.timeout.ms",)
_CONTROLLER: Final = 100


@dataclass(frozen=True, slots=True)
class Replicas:
    """One partition, as the cluster says."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


Look = dict[tuple[str, int], Replicas]


class Live(Protocol):
    """A live cluster: its brokers by id, and what it says of its partitions."""

    nodes: dict[int, Node]

    @property
    def bootstrap(self) -> str:
        """The brokers that run."""
        ...

    def live(self) -> set[int]:
        """Brokers that are registered, and not fenced."""
        ...

    def look(self) -> Look:
        """All partitions now. May raise while a broker goes down."""
        ...


class WithZooKeeper(Cluster):
    """Real or simulated brokers on a ZooKeeper; what it says is what the znodes say."""

    def live(self) -> set[int]:
        """The registered brokers; none before the first one made the znodes."""
        try:
            return super().live()
        except NoNodeError:
            return set()

    def look(self) -> Look:
        """From the topics' and states' znodes."""
        return {
            (topic, number): Replicas(row.leader, row.replicas, row.isr)
            for topic in self.zk.get_children("/brokers/topics")
            for number, row in self.partitions(topic).items()
        }


class Kraft:
    """One controller and the brokers, of Kafka 4.1; what it says is in Metadata, which follows the log at once."""

    def __init__(self, folder: Path, version: str) -> None:
        self.nodes: dict[int, Node] = {}
        self.folder = folder
        quorum = f"{_CONTROLLER}@127.0.0.1:{free_port()}"
        for node in (_CONTROLLER, *BROKERS):
            role = "controller" if node == _CONTROLLER else "broker"
            data = folder / f"broker-{node}" / "logs"
            given = {n: v for n, v in SETTINGS.items() if n not in _ONLY_ZOOKEEPER}
            port = free_port()
            self.nodes[node] = Node(
                node,
                port,
                [str(REAL_KAFKA), "kraft", str(node), role, str(port), quorum, str(data)]
                + [f"{name}={value}" for name, value in given.items()],
                "",
                folder / f"node-{node}.log",
                {"KAFKA_VERSION": version, "KAFKA_HEAP": f"-Xms64m -Xmx320m {JVM}"},
            )
        self._admin: AdminClient | None = None

    @property
    def bootstrap(self) -> str:
        """The brokers that run."""
        return ",".join(f"127.0.0.1:{n.port}" for i, n in self.nodes.items() if i != _CONTROLLER and n.alive)

    def _metadata(self) -> Any:
        if self._admin is None:
            everyone = ",".join(f"127.0.0.1:{self.nodes[b].port}" for b in BROKERS)
            self._admin = AdminClient({"bootstrap.servers": everyone, "log_level": 0, "reconnect.backoff.max.ms": 500})
        return self._admin.list_topics(timeout=2)

    def live(self) -> set[int]:
        """As Metadata lists them: those that are not fenced."""
        try:
            return set(self._metadata().brokers)
        except KafkaException:
            return set()

    def look(self) -> Look:
        """From Metadata."""
        return {
            (name, number): Replicas(row.leader, tuple(row.replicas), tuple(sorted(row.isrs)))
            for name, topic in self._metadata().topics.items()
            for number, row in topic.partitions.items()
        }

    def stop(self) -> None:
        """Kills everything."""
        for node in self.nodes.values():
            if node.alive:
                node.kill()


@contextmanager
def live(kind: str, folder: Path) -> Iterator[Live]:
    """A cluster of that kind, all its brokers up. It ends with the block."""
    folder.mkdir(parents=True)
    if kind.startswith("kafka-4"):
        kraft = Kraft(folder, kind.removeprefix("kafka-"))
        try:
            for node in kraft.nodes.values():
                node.start()
            _until_up(kraft)
            yield kraft
        finally:
            kraft.stop()
        return
    zookeeper = EmbeddedZooKeeper(folder / "zookeeper")
    with ExitStack() as ends:
        ends.callback(lambda: asyncio.run(zookeeper.stop()))
        asyncio.run(zookeeper.start())
        cluster = WithZooKeeper(folder, f"{zookeeper.address}/kafka")
        ends.callback(cluster.stop)
        for broker in BROKERS:
            (cluster.simulated_broker if kind == "kwob" else cluster.real_broker)(
                broker, **{name.replace(".", "_"): value for name, value in SETTINGS.items()}
            ).ready = ""
        if kind == "kwob":
            cluster.controller(_CONTROLLER, auto_leader_rebalance_enable="false").start()
        cluster.start(*BROKERS)
        _until_up(cluster)
        yield cluster


def _until_up(cluster: Live) -> None:
    until("all brokers are up", lambda: cluster.live() >= set(BROKERS))


def end(node: Node, *, kill: bool) -> None:
    """SIGKILL, or SIGTERM and its controlled shutdown; returns when the process has ended."""
    if kill:
        node.kill()
        return
    with suppress(ProcessLookupError):
        os.kill(node.process.pid if node.process is not None else 0, signal.SIGTERM)
    assert node.process is not None
    node.process.wait(90)
