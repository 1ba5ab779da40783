"""The tools on a kwob cluster of three racked brokers, over TCP; beside them Kafka's own tools, if they are there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from controller.world.real.embedded_zookeeper import EmbeddedZooKeeper

pytestmark = pytest.mark.zk
REAL_KAFKA = Path(__file__).resolve().parents[3] / "shared" / "tools" / "real-kafka"
#: How long a program may take to listen, and a cluster to settle.
START_LIMIT_S = 40.0


@dataclass(frozen=True)
class Cluster:
    bootstrap: str

    def run(self, tool: str, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "controller.cli", tool, "--bootstrap-server", self.bootstrap, *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=90, check=False)

    def listed_brokers(self) -> set[int]:
        """The ids that answer kwob log-dirs; the controller may be among them."""
        told = self.run("log-dirs", "--describe", "--json").stdout
        return {broker["broker"] for broker in json.loads(told or '{"brokers":[]}').get("brokers", ())}


def _wait_for(path: Path, pattern: str, program: subprocess.Popen[bytes]) -> list[str]:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        found = re.findall(pattern, path.read_text() if path.exists() else "")
        if found:
            return found
        assert program.poll() is None, path.read_text()
        time.sleep(0.1)
    raise AssertionError(f"no {pattern!r} in {path.read_text()}")


@pytest.fixture(scope="module")
def cluster(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    zk = ["--zookeeper", f"{zookeeper.address}/admin-tools"]
    programs: list[subprocess.Popen[bytes]] = []

    def start(name: str, *argv: str) -> tuple[Path, subprocess.Popen[bytes]]:
        log = folder / f"{name}.log"
        with log.open("wb") as out:
            program = subprocess.Popen([sys.executable, "-m", *argv], stdout=out, stderr=out)
        programs.append(program)
        return log, program

    try:
        common = (*zk, "--listener", "127.0.0.1:0")
        # The last broker has nobody to hand its partitions to, asks three times, and is not waited for in between.
        soon = ("--override", "controlled.shutdown.retry.backoff.ms=100")
        log, program = start("controller", "controller", "run", *common, "--controller-id", "901")
        _wait_for(log, r"controller\.started", program)
        ports = []
        for broker, rack in ((1, "a"), (2, "b"), (3, "c")):
            words = ("--broker-id", str(broker), "--rack", rack, "--log-dirs", str(folder / f"data-{broker}"), *soon)
            log, program = start(f"broker-{broker}", "broker_sim", "run", *common, *words)
            _wait_for(log, r"broker\.started", program)
            ports += re.findall(r"127\.0\.0\.1\D{1,20}(\d{4,5})", log.read_text())[:1]
        found = Cluster(f"127.0.0.1:{ports[0]}")
        _until(lambda: found.listed_brokers() >= {1, 2, 3})
        yield found
    finally:
        for program in reversed(programs):
            program.terminate()
        for program in programs:
            try:
                program.wait(20)
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait()


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while not holds():
        assert time.monotonic() < deadline, "the cluster did not get there in time"
        time.sleep(0.2)


def test_create_describe_and_delete(cluster: Cluster) -> None:
    created = cluster.run("topics", "--create", "--topic", "racked", "--partitions", "3", "--replication-factor", "3")
    assert (created.returncode, created.stdout) == (0, "Created topic racked.\n"), created.stderr
    described = json.loads(cluster.run("topics", "--describe", "--topic", "racked", "--json").stdout)["topics"][0]
    assert [sorted(p["replicas"]) for p in described["partitions"]] == [[1, 2, 3]] * 3
    assert {p["leader"] for p in described["partitions"]} == {1, 2, 3}
    again = cluster.run("topics", "--create", "--topic", "racked")
    assert (again.returncode, again.stdout) == (
        1,
        "Error while executing topic command : Topic 'racked' already exists.\n",
    )
    assert cluster.run("topics", "--delete", "--topic", "racked").returncode == 0
    _until(lambda: "racked" not in cluster.run("topics", "--list").stdout)


def test_a_reassignment_from_plan_to_cleared_throttles(cluster: Cluster, tmp_path: Path) -> None:
    assert cluster.run("topics", "--create", "--topic", "foo", "--replica-assignment", "1:2,2:3").returncode == 0
    (tmp_path / "topics.json").write_text('{"topics":[{"topic":"foo"}]}')
    planned = cluster.run(
        "reassign-partitions", "--generate", "--broker-list", "1,3",
        "--topics-to-move-json-file", str(tmp_path / "topics.json"),
    )  # fmt: skip
    plan = planned.stdout.splitlines()[4]
    assert all(set(row["replicas"]) == {1, 3} for row in json.loads(plan)["partitions"])
    file = tmp_path / "plan.json"
    file.write_text(plan)
    option = ("--reassignment-json-file", str(file))
    executed = cluster.run("reassign-partitions", "--execute", "--throttle", "1000000", *option)
    assert executed.stdout.endswith("Successfully started partition reassignments for foo-0,foo-1\n"), executed.stderr
    _until(lambda: "No partition" in cluster.run("reassign-partitions", "--list").stdout)
    verified = cluster.run("reassign-partitions", "--verify", *option)
    assert verified.stdout == (
        "Status of partition reassignment:\n"
        "Reassignment of partition foo-0 is completed.\nReassignment of partition foo-1 is completed.\n\n"
        "Clearing broker-level throttles on brokers 1,2,3\nClearing topic-level throttles on topic foo\n"
    )
    assert cluster.run("configs", "--describe", "--topic", "foo").stdout == "Dynamic configs for topic foo are:\n"


def test_elections_offsets_and_log_dirs(cluster: Cluster) -> None:
    assert cluster.run("topics", "--create", "--topic", "bar", "--replica-assignment", "3:1").returncode == 0
    elected = cluster.run("leader-election", "--election-type", "preferred", "--topic", "bar", "--partition", "0")
    assert elected.stdout == "Valid replica already elected for partitions bar-0\n"
    assert cluster.run("get-offsets", "--topic", "bar").stdout == "bar:0:0\n"
    dirs = json.loads(cluster.run("log-dirs", "--describe", "--topic-list", "bar", "--json").stdout)
    holders = [b["broker"] for b in dirs["brokers"] if any(d["partitions"] for d in b["logDirs"])]
    assert holders == [1, 3]


@pytest.mark.kafka
@pytest.mark.skipif(not REAL_KAFKA.exists(), reason="Kafka's own tools are not beside this checkout")
@pytest.mark.parametrize(
    "words",
    [
        ("topics", "--describe", "--topic", "same"),
        ("topics", "--list"),
        ("configs", "--describe", "--topic", "same", "--all"),
        ("reassign-partitions", "--list"),
        ("get-offsets",),
    ],
    ids=lambda words: " ".join(words),
)
def test_kafkas_own_tools_print_the_same(cluster: Cluster, words: tuple[str, ...]) -> None:
    cluster.run("topics", "--create", "--topic", "same", "--replica-assignment", "1:2", "--if-not-exists")
    argv = [str(REAL_KAFKA), words[0], "--bootstrap-server", cluster.bootstrap, *words[1:]]
    real = subprocess.run(
        argv, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "KAFKA_HEAP": "-Xmx128m"}
    )
    ours = cluster.run(*words)
    assert (ours.returncode, ours.stdout) == (real.returncode, real.stdout), real.stderr
