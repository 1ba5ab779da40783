"""Our tools on a real KRaft cluster, Kafka 4.1: three nodes, each broker and controller. Its words, rules and copy."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from controller.world.real.ports import free_ports
from tests.local.conftest import Up

from .cluster import JVM, REAL_KAFKA, REPOSITORY, Node, free_port, until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

VERSION = "4.1.0"
SETTINGS = {
    "broker.session.timeout.ms": 6_000,
    "replica.lag.time.max.ms": 4_000,
    "offsets.topic.num.partitions": 4,
    "offsets.topic.replication.factor": 3,
    "auto.create.topics.enable": "false",
    "num.io.threads": 2,
    "num.network.threads": 1,
    "log.cleaner.dedupe.buffer.size": 2 << 20,
}


@dataclass
class Kraft:
    """Three nodes, each broker and controller, in racks of their own."""

    folder: Path
    nodes: dict[int, Node] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{node.port}" for node in self.nodes.values() if node.alive)

    def start(self) -> None:
        ports = {node: free_port() for node in (1, 2, 3)}
        quorum = ",".join(f"{node}@127.0.0.1:{free_port()}" for node in ports)
        for node, port in ports.items():
            given = [f"{name}={value}" for name, value in {**SETTINGS, "broker.rack": "abc"[node - 1]}.items()]
            words = [str(REAL_KAFKA), "kraft", str(node), "broker,controller", str(port), quorum]
            self.nodes[node] = Node(
                node_id=node,
                port=port,
                command=[*words, str(self.folder / f"data-{node}"), *given],
                ready="",
                log=self.folder / f"out-{node}.log",
                environment={"KAFKA_VERSION": VERSION, "KAFKA_HEAP": f"-Xms64m -Xmx300m {JVM}"},
            )
            self.nodes[node].start()
        until("all brokers are unfenced", lambda: self.ours("topics", "--list")[0] == 0 and self._whole())

    def _whole(self) -> bool:
        status, _ = self.ours("topics", "--describe", "--json")
        return status == 0 and len(self.snapshot("probe", "--overwrite")["brokers"]) == 3

    def kafkas(self, tool: str, *words: str) -> str:
        """What Kafka's own tool prints."""
        done = subprocess.run(
            [str(REAL_KAFKA), tool, "--bootstrap-server", self.bootstrap, *words],
            capture_output=True, text=True, timeout=120, env={**os.environ, "KAFKA_VERSION": VERSION}, check=False,
        )  # fmt: skip
        return done.stdout

    def ours(self, tool: str, *words: str) -> tuple[int, str]:
        """Exit code and output of our tool."""
        done = subprocess.run(
            [sys.executable, "-m", "controller.cli", tool, "--bootstrap-server", self.bootstrap, *words],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout

    def snapshot(self, name: str, *words: str) -> Any:
        status, _ = self.ours("snapshot", "-o", str(self.folder / f"{name}.yaml"), *words)
        return yaml.safe_load((self.folder / f"{name}.yaml").read_text()) if status == 0 else {"brokers": []}

    def produce(self, topic: str, partition: int, records: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "logger": _quiet()})
        for number in range(records):
            producer.produce(topic, os.urandom(1000), key=str(number), partition=partition)
            producer.poll(0)
        assert not producer.flush(60)

    def stop(self) -> None:
        for node in self.nodes.values():
            node.kill()


def _quiet() -> Any:
    import logging

    logger = logging.getLogger("quiet")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger


@pytest.fixture(scope="module")
def kraft(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kraft]:
    cluster = Kraft(tmp_path_factory.mktemp("kraft"))
    try:
        cluster.start()
        for topic, partitions, factor in (("orders", 3, 3), ("small", 2, 2)):
            words = ("--create", "--topic", topic, "--partitions", str(partitions), "--replication-factor", str(factor))
            assert cluster.ours("topics", *words, "--config", "min.insync.replicas=1")[0] == 0
        cluster.produce("orders", 0, 2_000)
        cluster.produce("small", 1, 500)
        yield cluster
    finally:
        cluster.stop()


def test_describe_prints_what_kafkas_tool_prints(kraft: Kraft) -> None:
    for words in (("--list",), ("--describe", "--topic", "orders"), ("--describe", "--topic", "small")):
        assert kraft.ours("topics", *words)[1] == kraft.kafkas("topics", *words)
    # Kafka's own tool has topics in the order of a hash.
    assert sorted(kraft.ours("topics", "--describe")[1].splitlines()) == sorted(
        kraft.kafkas("topics", "--describe").splitlines()
    )


def test_a_snapshot_has_its_shape_and_a_live_copy_has_the_same(kraft: Kraft, tmp_path: Path) -> None:
    shape = kraft.snapshot("cluster", "--for", "2s")
    assert (shape["mode"], {b["id"]: b["rack"] for b in shape["brokers"]}) == ("kraft", {1: "a", 2: "b", 3: "c"})
    assert shape["topics"]["orders"]["configs"] == {"min.insync.replicas": "1"}
    assert shape["topics"]["orders"]["partitions"][0]["bytes"] > 2_000_000
    assert all(d["capacity_bytes"] for b in shape["brokers"] for d in b["log_dirs"])

    first, _, _, zookeeper = free_ports(4)
    ports = ("--zookeeper-port", str(zookeeper), "--bootstrap-port", str(first))
    up = Up(tmp_path / "copy", "--like", str(kraft.folder / "cluster.yaml"), "--scale", "1", *ports)
    try:
        up.wait_for("ready;")
        bootstrap = up.wait_for("bootstrap ").split()[1]
        words = [sys.executable, "-m", "controller.cli", "snapshot", "--bootstrap-server", bootstrap]
        subprocess.run([*words, "-o", str(tmp_path / "copy.yaml")], check=True, capture_output=True, timeout=60)
    finally:
        up.interrupt()
    copy = yaml.safe_load((tmp_path / "copy.yaml").read_text())
    print(yaml.safe_dump({"kraft": shape, "copy": copy}, default_flow_style=None, width=150))
    assert [(b["id"], b["rack"]) for b in copy["brokers"]] == [(b["id"], b["rack"]) for b in shape["brokers"]]
    for name in ("orders", "small"):
        ours, theirs = copy["topics"][name], shape["topics"][name]
        assert ours["configs"] == theirs["configs"]
        assert [p["replicas"] for p in ours["partitions"]] == [p["replicas"] for p in theirs["partitions"]]
        for mine, other in zip(ours["partitions"], theirs["partitions"], strict=True):
            assert mine.get("bytes", 0) == pytest.approx(other.get("bytes", 0), rel=0.1)


def test_the_plan_of_a_move_names_kraft_steps(kraft: Kraft, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "small", "partition": 0, "replicas": [1, 2]}]}))
    status, out = kraft.ours("reassign-partitions", "--execute", "--dry-run", "--reassignment-json-file", str(plan))
    assert status == 0
    assert "metadata log" in out or "nothing" in out
    assert "/brokers/topics" not in out and "LeaderAndIsr" not in out


def test_what_readme_types_says_what_a_plan_will_do(kraft: Kraft, tmp_path: Path) -> None:
    """Its three commands, as they are there, but for the port and the time that rates are watched."""
    readme = (REPOSITORY / "README.md").read_text()
    lines = re.findall(r"^    kwob ((?:snapshot|rehearse) .*)$", readme, re.MULTILINE)
    assert [line.split()[0] for line in lines] == ["snapshot", "rehearse", "rehearse"]
    (move,) = re.findall(r"`(\{cluster: .*\})`", readme)
    (tmp_path / "move.yaml").write_text(move)
    assert kraft.ours("topics", "--create", "--topic", "moved", "--replica-assignment", "1:2,2:1")[0] == 0
    for partition in (0, 1):
        kraft.produce("moved", partition, 20_000)
    targets = [{"topic": "moved", "partition": n, "replicas": [3, 1]} for n in (0, 1)]
    (tmp_path / "plan.json").write_text(json.dumps({"version": 1, "partitions": targets}))
    for line in lines:
        words = line.replace("localhost:9092", kraft.bootstrap).replace("60s", "2s").split()
        command = [sys.executable, "-m", "controller.cli", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stderr
        print(done.stdout)
    last = done.stdout
    assert re.search(r"The move ends at \S+( s)? and peaks at \d+% of broker [123]'s link, at ", last)
    assert re.search(r"A loss of rack [abc] at its worst moment, .*, takes 0 partitions offline and 0 under", last)
    assert re.search("^rack [abc] ", last, re.MULTILINE) and (tmp_path / "sweep" / "rehearsal.html").exists()


def test_why_tells_of_fencing_and_of_the_controllers_lag(kraft: Kraft) -> None:
    status, out = kraft.ours("why", "orders")
    assert (status, "nothing is wrong" in out) == (0, True)
    kraft.nodes[3].kill()
    until("broker 3 is fenced", lambda: "fenced" in kraft.ours("why", "orders")[1], 60)
    until("the controller is behind", lambda: "records behind" in kraft.ours("why", "orders")[1], 60)
    status, out = kraft.ours("why", "orders")
    assert status == 3
    assert "broker 3" in out and "fenced" in out and "znode" not in out and "ZooKeeper" not in out
    assert "controller 3" in out and "records behind" in out
