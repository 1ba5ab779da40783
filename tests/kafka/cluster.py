"""A cluster of real and simulated brokers under Kafka's controller or this one, and Kafka's unmodified tools on it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from controller.world.real.ports import free_ports

REPOSITORY = Path(__file__).resolve().parents[2]
REAL_KAFKA = Path(os.environ.get("KWOB_REAL_KAFKA", REPOSITORY.parent / "shared" / "tools" / "real-kafka"))
#: How long a program may take to start, and a cluster to settle, on a busy machine.
LIMIT_S = 180.0
SESSION_TIMEOUT_MS = 6_000
#: A small Java: many of them share a machine.
JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss512k"
REAL_BROKER_SETTINGS = {
    "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
    "controlled.shutdown.retry.backoff.ms": 500,
    "replica.lag.time.max.ms": 10_000,
    "offsets.topic.num.partitions": 8,
    "offsets.topic.replication.factor": 3,
    "group.initial.rebalance.delay.ms": 0,
    "log.cleaner.dedupe.buffer.size": 2 << 20,
    "log.cleaner.threads": 1,
    "num.io.threads": 2,
    "num.network.threads": 1,
    "background.threads": 2,
    "num.recovery.threads.per.data.dir": 1,
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "log.initial.task.delay.ms": 1_000,
    "log.segment.delete.delay.ms": 500,
}
SIMULATED_BROKER_SETTINGS = {
    name: REAL_BROKER_SETTINGS[name]
    for name in (
        "zookeeper.session.timeout.ms",
        "controlled.shutdown.retry.backoff.ms",
        "replica.lag.time.max.ms",
        "offsets.topic.num.partitions",
        "offsets.topic.replication.factor",
        "group.initial.rebalance.delay.ms",
        "auto.create.topics.enable",
        "log.segment.delete.delay.ms",
    )
}
CONTROLLER_SETTINGS = {
    "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
}


def missing() -> str | None:
    """Why no real Kafka can be started here."""
    if not REAL_KAFKA.exists():
        return f"real Kafka is started by {REAL_KAFKA}, which is not there; KWOB_REAL_KAFKA may name another place"
    absent = [program for program in ("java", "mvn") if shutil.which(program) is None]
    return f"a real Kafka needs {' and '.join(absent)} on PATH" if absent else None


def until(what: str, holds: Callable[[], Any], limit_s: float = LIMIT_S) -> Any:
    """Polls until it holds, and returns what it gave; fails with `what` after the limit."""
    deadline = time.monotonic() + limit_s
    while not (found := holds()):
        if time.monotonic() > deadline:
            pytest.fail(f"not within {limit_s:g} s: {what}", pytrace=True)
        time.sleep(0.1)
    return found


def free_port() -> int:
    """One that stays free until its node listens, and while the node is down: Kafka's own brokers connect meanwhile."""
    return free_ports(1)[0]


@dataclass(frozen=True)
class Partition:
    """As ZooKeeper holds it or as a tool prints it; the ISR is sorted, since its order says nothing."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass
class Node:
    """A program of the cluster, which can end and start again with the same data and port."""

    node_id: int
    port: int
    command: Sequence[str]
    ready: str
    log: Path
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns once the program is ready."""
        offset = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                self.command,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **self.environment},
                cwd=REPOSITORY,
            )

        def is_ready() -> bool:
            assert self.process is not None
            text = self.text(offset)
            assert self.process.poll() is None, f"node {self.node_id} ended:\n{text[-3000:]}"
            return re.search(self.ready, text) is not None

        until(f"node {self.node_id} starts; see {self.log}", is_ready)

    def text(self, offset: int = 0) -> str:
        """What it logged, from a byte on."""
        with self.log.open("rb") as log:
            log.seek(offset)
            return log.read().decode(errors="replace")

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self, limit_s: float = 60.0) -> int:
        """SIGTERM, which is a controlled shutdown for a broker; the exit status."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(limit_s)


class Cluster:
    """Nodes on one ZooKeeper chroot."""

    def __init__(self, folder: Path, connect: str) -> None:
        self.folder = folder
        self.connect = connect
        self.nodes: dict[int, Node] = {}
        server, _, chroot = connect.partition("/")
        with_root = KazooClient(server)
        with_root.start()
        with_root.ensure_path(chroot)
        with_root.stop()
        with_root.close()
        self.zk = KazooClient(connect)
        self.zk.start()

    # -- programs ----------------------------------------------------------------------------------------------------

    def real_broker(self, node_id: int, **settings: Any) -> Node:
        """Kafka's own broker, and so a candidate for the controller's office. Not started."""
        port = free_port()
        given = {**REAL_BROKER_SETTINGS, **{name.replace("_", "."): value for name, value in settings.items()}}
        overrides = [f"{name}={value}" for name, value in given.items()]
        command = [
            str(REAL_KAFKA),
            "broker",
            str(node_id),
            str(port),
            self.connect,
            str(self.data(node_id)),
            *overrides,
        ]
        return self.start_node(
            node_id, port, command, rf"KafkaServer id={node_id}\] started", KAFKA_HEAP=f"-Xms64m -Xmx256m {JVM}"
        )

    def simulated_broker(self, node_id: int, **settings: Any) -> Node:
        """One of ours. Not started."""
        port = free_port()
        given = {**SIMULATED_BROKER_SETTINGS, **{name.replace("_", "."): value for name, value in settings.items()}}
        command = [
            sys.executable, "-m", "broker_sim", "run", "--zookeeper", self.connect, "--broker-id", str(node_id),
            "--listener", f"127.0.0.1:{port}", "--log-dirs", str(self.data(node_id)),
        ]  # fmt: skip
        command += [word for name, value in given.items() for word in ("--override", f"{name}={value}")]
        return self.start_node(node_id, port, command, r"broker\.started")

    def controller(self, node_id: int, **settings: Any) -> Node:
        """Our controller. Not started."""
        port = free_port()
        given = {**CONTROLLER_SETTINGS, **{name.replace("_", "."): value for name, value in settings.items()}}
        command = [
            sys.executable, "-m", "controller", "run", "--zookeeper", self.connect, "--controller-id", str(node_id),
            "--listener", f"127.0.0.1:{port}",
        ]  # fmt: skip
        command += [word for name, value in given.items() for word in ("--override", f"{name}={value}")]
        return self.start_node(node_id, port, command, r"controller\.started")

    def start_node(self, node_id: int, port: int, command: list[str], ready: str, **environment: str) -> Node:
        log = self.folder / f"node-{node_id}.log"
        self.nodes[node_id] = Node(node_id, port, command, ready, log, environment)
        return self.nodes[node_id]

    def data(self, node_id: int) -> Path:
        """The log directory of a broker."""
        return self.folder / f"broker-{node_id}" / "logs"

    def start(self, *node_ids: int) -> None:
        """Starts them, one after the other: a machine is slow with several Javas at once."""
        for node_id in node_ids:
            self.nodes[node_id].start()

    def kill(self, node_id: int) -> None:
        """SIGKILL; returns once ZooKeeper has noticed."""
        self.nodes[node_id].kill()
        until(f"ZooKeeper forgets broker {node_id}", lambda: node_id not in self.live())

    def stop(self) -> None:
        """Kills everything."""
        for node in self.nodes.values():
            if node.alive:
                node.signal(signal.SIGCONT)
                node.kill()
        self.zk.stop()
        self.zk.close()

    # -- what ZooKeeper says -----------------------------------------------------------------------------------------

    def read(self, path: str) -> Any:
        """The JSON of a znode; None where there is none."""
        try:
            return json.loads(self.zk.get(path)[0])
        except NoNodeError:
            return None

    def live(self) -> set[int]:
        """The registered brokers."""
        return {int(name) for name in self.zk.get_children("/brokers/ids")}

    def active_controller(self) -> int | None:
        found = self.read("/controller")
        return None if found is None else int(found["brokerid"])

    def partitions(self, topic: str) -> dict[int, Partition]:
        """A topic as ZooKeeper holds it; without partitions that have no state yet."""
        assigned = self.read(f"/brokers/topics/{topic}") or {"partitions": {}}
        found = {}
        for number, replicas in sorted(assigned["partitions"].items()):
            state = self.read(f"/brokers/topics/{topic}/partitions/{number}/state")
            if state is not None:
                isr = tuple(sorted(state["isr"]))
                found[int(number)] = Partition(state["leader"], tuple(replicas), isr)
        return found

    def until_in_sync(self, *topics: str, among: set[int] | None = None) -> None:
        """Waits until each partition has a leader and all its replicas (those `among`) in the ISR."""

        def settled(topic: str) -> bool:
            rows = self.partitions(topic).values()
            wanted = (set(r.replicas) & (among if among is not None else set(r.replicas)) for r in rows)
            return bool(rows) and all(
                set(row.isr) == ids and row.leader in ids for row, ids in zip(rows, wanted, strict=True)
            )

        for topic in topics:
            until(f"{topic} in sync: {self.partitions(topic)}", lambda topic=topic: settled(topic))

    # -- Kafka's tools -----------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """The brokers that run."""
        return ",".join(f"127.0.0.1:{node.port}" for node in self.nodes.values() if node.alive)

    def tool(self, name: str, *words: str, bootstrap: str | None = None, stdin: str | None = None) -> str:
        """What a tool of Kafka's prints; fails unless it succeeds."""
        ended = self.try_tool(name, *words, bootstrap=bootstrap, stdin=stdin)
        assert ended.returncode == 0, f"{name} {words}: {ended.stdout}{ended.stderr}"
        return ended.stdout

    def try_tool(
        self, name: str, *words: str, bootstrap: str | None = None, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        return run_tool(name, "--bootstrap-server", bootstrap or self.bootstrap, *words, stdin=stdin)

    def describe(self, topic: str, **how: str) -> dict[int, Partition]:
        """What `kafka-topics --describe` prints."""
        row = re.compile(r"Partition: (\d+)\tLeader: (\S+)\tReplicas: (\S+)\tIsr: (\S*)")
        found = {}
        for number, leader, replicas, isr in row.findall(self.tool("topics", "--describe", "--topic", topic, **how)):
            leader_id = -1 if leader == "none" else int(leader)
            found[int(number)] = Partition(leader_id, _ids(replicas), tuple(sorted(_ids(isr))))
        return found

    def create(self, topic: str, *words: str) -> None:
        """By kafka-topics; returns once all replicas are in sync."""
        assert self.tool("topics", "--create", "--topic", topic, *words) == f"Created topic {topic}.\n"
        self.until_in_sync(topic)

    def reassign(self, plan: dict[str, Sequence[Sequence[int]]], *words: str) -> Path:
        """`kafka-reassign-partitions --execute`; the file for `--verify`."""
        rows = [
            {"topic": topic, "partition": number, "replicas": list(replicas)}
            for topic, targets in plan.items()
            for number, replicas in enumerate(targets)
        ]
        return self._reassign(rows, *words)

    def reassign_one(self, topic: str, partition: int, replicas: Sequence[int]) -> Path:
        """As `reassign`, of one partition."""
        return self._reassign([{"topic": topic, "partition": partition, "replicas": list(replicas)}])

    def _reassign(self, rows: list[dict[str, Any]], *words: str) -> Path:
        file = self.folder / f"plan-{len(list(self.folder.glob('plan-*')))}.json"
        file.write_text(json.dumps({"version": 1, "partitions": rows}))
        printed = self.tool("reassign-partitions", "--execute", "--reassignment-json-file", str(file), *words)
        assert "Successfully started partition reassignment" in printed
        return file

    def elect_preferred(self, topic: str) -> str:
        """`kafka-leader-election` for all partitions of a topic; what it prints."""
        rows = [{"topic": topic, "partition": number} for number in self.partitions(topic)]
        file = self.folder / "election.json"
        file.write_text(json.dumps({"partitions": rows}))
        return self.tool("leader-election", "--election-type", "preferred", "--path-to-json-file", str(file))

    def until_reassigned(self, file: Path) -> str:
        """Waits until no reassignment runs; what `--verify` prints then."""

        def done() -> bool:
            plan = json.loads(file.read_text())["partitions"]
            nodes = [self.read(f"/brokers/topics/{topic}") for topic in {row["topic"] for row in plan}]
            return not any(node.get("adding_replicas") or node.get("removing_replicas") for node in nodes)

        until("the reassignment ends", done)
        return self.tool("reassign-partitions", "--verify", "--reassignment-json-file", str(file))


def run_tool(name: str, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """A tool of Kafka's, as it is."""
    return subprocess.run(
        [str(REAL_KAFKA), name, *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "KAFKA_HEAP": f"-Xmx128m {JVM}"},
    )


def _ids(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(",") if word)
