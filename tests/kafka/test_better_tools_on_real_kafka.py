"""What kwob's tools add to Kafka's, against Kafka 3.9.1 itself: brokers, controller, and a ZooKeeper that is left."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .cluster import Cluster, until

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def kafka(new_cluster: Callable[[], Cluster]) -> Cluster:
    made = new_cluster()
    made.real_broker(1)
    made.real_broker(2)
    made.start(1, 2)
    return made


def kwob(*argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "controller.cli", *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def why(cluster: Cluster, target: str, *, zookeeper: bool = True) -> tuple[int, list[dict[str, Any]]]:
    addresses = ["--bootstrap-server", cluster.bootstrap or "127.0.0.1:1"]
    addresses += ["--zookeeper", cluster.connect] if zookeeper else []
    ran = kwob("why", target, "--json", *addresses)
    return ran.returncode, json.loads(ran.stdout)["findings"]


def test_layouts_plans_and_reasons(kafka: Cluster, tmp_path: Path) -> None:
    bootstrap = ("--bootstrap-server", kafka.bootstrap)
    counts = ("--partitions", "2", "--replication-factor", "2")
    made = kwob("topics", *bootstrap, "--create", "--topic", "t", *counts, "--explain")
    assert made.returncode == 0 and "partitions 0 to 1: placed when the topic was created" in made.stdout, made.stdout
    kafka.until_in_sync("t")
    rows = [{"topic": "t", "partition": 0, "replicas": list(reversed(kafka.partitions("t")[0].replicas))}]
    (tmp_path / "plan.json").write_text(json.dumps({"version": 1, "partitions": rows}))
    file = ("--reassignment-json-file", str(tmp_path / "plan.json"))
    dry = kwob("reassign-partitions", *bootstrap, "--execute", "--dry-run", "--json", *file)
    told = json.loads(dry.stdout)["dry_run"]
    assert told["bytes_total"] == 0 and told["partitions"][0]["steps"][0].endswith("nothing is copied: done at once")
    assert why(kafka, "t") == (0, [])

    kafka.kill(2)
    for zookeeper in (True, False):
        until("the ISR shrinks", lambda: all(p.isr == (1,) for p in kafka.partitions("t").values()))
        code, found = why(kafka, "t-1", zookeeper=zookeeper)
        assert (code, [f["trouble"] for f in found]) == (3, ["under-replicated"])
        assert found[0]["because"] == ["broker 2 is not alive: it is not registered"]
    assert kwob("topics", *bootstrap, "--delete", "--topic", "t").returncode == 0
    until("deletion waits", lambda: kafka.zk.exists("/admin/delete_topics/t"))
    code, found = why(kafka, "t")
    assert (code, [f["trouble"] for f in found]) == (3, ["stuck in deletion"])
    assert "broker 2 holds replicas and is not alive; deletion waits for it" in found[0]["because"]

    kafka.kill(1)
    code, found = why(kafka, "t")
    assert (code, [f["trouble"] for f in found]) == (3, ["no controller", "stuck in deletion"])
