"""A replica moves between the log dirs of a broker as an operator asks for it: by the tool, with a limit."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tests.worlds.programs import Program, until_served

pytestmark = pytest.mark.zk
LIMIT_S = 90.0


def kwob(bootstrap: str, tool: str, *words: str) -> str:
    """What a tool prints."""
    argv = [sys.executable, "-m", "controller.cli", tool, "--bootstrap-server", bootstrap, *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def places(bootstrap: str, topic: str) -> dict[str, list[dict[str, Any]]]:
    """The logs of a topic by log dir, as the tool tells."""
    told = json.loads(kwob(bootstrap, "log-dirs", "--describe", "--topic-list", topic, "--json"))
    return {d["logDir"]: d["partitions"] for broker in told["brokers"] for d in broker["logDirs"]}


def write(bootstrap: str, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value=value)
    assert producer.flush(LIMIT_S) == 0


def read(bootstrap: str, topic: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "r", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        found: list[str] = []
        deadline = time.monotonic() + LIMIT_S
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count}"
            found += [m.value().decode() for m in consumer.consume(500, timeout=0.5) if m.error() is None]
        return found
    finally:
        consumer.close()


def test_the_reassignment_tool_moves_a_replica_to_another_dir(
    zk_connect: str, tmp_path: Path, program: Callable[..., Program]
) -> None:
    program("controller", "run", "--zookeeper", zk_connect, "--controller-id", "100", "--listener", "127.0.0.1:0")
    dirs = [str(tmp_path / "first"), str(tmp_path / "second")]
    broker = program(
        "broker_sim", "run", "--zookeeper", zk_connect, "--broker-id", "1", "--listener", "127.0.0.1:0",
        "--log-dirs", ",".join(dirs), "--override", "log.segment.delete.delay.ms=0",
        "--override", "controlled.shutdown.retry.backoff.ms=10",
    )  # fmt: skip
    port = broker.wait_for("broker.started")["port"]
    until_served({1: port})
    bootstrap = f"127.0.0.1:{port}"
    kwob(bootstrap, "topics", "--create", "--topic", "moving", "--partitions", "1", "--replication-factor", "1")
    values = [f"{number} " + "x" * 200 for number in range(1_000)]
    write(bootstrap, "moving", values)
    before = places(bootstrap, "moving")
    (source,) = [path for path, found in before.items() if found]
    (target,) = [path for path in before if path != source]
    assert {source, target} == set(dirs)
    plan = tmp_path / "plan.json"
    row = {"topic": "moving", "partition": 0, "replicas": [1], "log_dirs": [target]}
    plan.write_text(json.dumps({"version": 1, "partitions": [row]}))
    how = ("--reassignment-json-file", str(plan))
    told = kwob(bootstrap, "reassign-partitions", *how, "--execute", "--replica-alter-log-dirs-throttle", "60000")
    assert f"Successfully started moving log directory to {target} for replica moving-0 with broker 1" in told
    more = [f"while it moves {number}" for number in range(100)]
    write(bootstrap, "moving", more)
    deadline = time.monotonic() + LIMIT_S
    finished = "Reassignment of replica moving-0-1 completed successfully."
    while finished not in (told := kwob(bootstrap, "reassign-partitions", *how, "--verify")):
        assert time.monotonic() < deadline, told
        threading.Event().wait(0.2)
    assert broker.wait_for("log.moved")["log_dir"] == target
    assert [path for path, found in places(bootstrap, "moving").items() if found] == [target]
    assert read(bootstrap, "moving", 1_100) == values + more
    assert not list(Path(source).glob("moving-0*"))
    assert (Path(target) / "moving-0").is_dir()
