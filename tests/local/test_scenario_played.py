"""`kwob scenario` as a user runs it: a cluster of its own, load, a lost rack, a lost controller, and the verdict."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from controller.world.real.ports import free_ports

FILE = """
cluster:
  brokers: 3
  controllers: 2
  racks: [a, b, c]
  bootstrap_port: {port}
  zookeeper_port: {zookeeper}
  settings: {{replica.lag.time.max.ms: 4000, zookeeper.session.timeout.ms: 4000}}
topics:
  - {{topic: orders, partitions: 3, replication_factor: 3, configs: {{min.insync.replicas: 2}}}}
load:
  - {{topic: orders, rate: 100}}
faults:
  - {{at: 1s, for: 5s, fault: kill, rack: b}}
steps:
  - {{at: 2s, do: kill_controller, controller: active}}
  - {{at: 6s, do: wait, until: full-isr, timeout: 40s}}
  - {{do: wait, until: leader, topic: nosuch, timeout: 100ms}}
expect: {{missing: 0, acknowledged: {least}}}
"""


@pytest.mark.slow
def test_a_scenario_is_played_and_judged(tmp_path: Path) -> None:
    zookeeper, port = free_ports(2)
    (tmp_path / "f.yaml").write_text(FILE.format(port=port, zookeeper=zookeeper, least=100))
    command = [sys.executable, "-m", "controller.cli", "scenario", "f.yaml", "--data", "data", "--json"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=150, check=False)
    outcome = json.loads(ended.stdout)
    wrong = [row for row in outcome["statements"] if not row["holds"]]
    assert [row["statement"] for row in wrong] == ["kwob wait --until leader --topic nosuch --timeout 100ms"], ended
    assert ended.returncode == 1 and outcome["holds"] is False
    (load,) = outcome["loads"]
    assert load["missing"] == 0 and load["acknowledged"] > 100
    assert any("kill_controller" in row["statement"] or "controller kill" in row["statement"]
               for row in outcome["statements"])  # fmt: skip
