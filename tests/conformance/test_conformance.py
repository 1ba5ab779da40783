"""The controller against recordings of a real Kafka 3.9 controller: same requests, same znodes, same answers.

The scenarios and their player live outside of this repository, in `../shared/conformance` or where `KWOB_CONFORMANCE`
says; they start a real ZooKeeper of Kafka's. Run with `pytest -m kafka tests/conformance`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from controller.world.real.ports import free_ports

REPOSITORY = Path(__file__).resolve().parents[2]
CONFORMANCE = Path(os.environ.get("KWOB_CONFORMANCE", REPOSITORY.parent / "shared" / "conformance"))
COMMAND = (
    f"{sys.executable} -m controller run --zookeeper {{zk}} --controller-id {{id}} --listener 127.0.0.1:{{port}} "
    "--config {config}"
)
#: Semantically the same only, and why (docs/benchmark.md).
BATCHED = {"reassign_by_znode": "its two moves are announced in one LeaderAndIsr per broker; Kafka sends one each"}
ROW = re.compile(r"^(\w+) +\| +(\w+) +\| +(\w+)$", re.MULTILINE)


@pytest.mark.kafka
@pytest.mark.timeout(1800)
def test_every_scenario_is_the_same(tmp_path: Path) -> None:
    if not (CONFORMANCE / "run.py").exists():
        pytest.skip(f"there is no conformance player at {CONFORMANCE}; set KWOB_CONFORMANCE")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("the player starts Kafka's own ZooKeeper, which needs java on PATH or JAVA_HOME")
    port_base = free_ports(50)[0]
    played = subprocess.run(
        [sys.executable, "run.py", "check", "--scratch", str(tmp_path), "--port-base", str(port_base),
         "--controller-command", COMMAND],
        cwd=CONFORMANCE,
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    verdicts = {name: (strict, semantic) for name, strict, semantic in ROW.findall(played.stdout) if name != "name"}
    assert verdicts, played.stdout + played.stderr
    different = {
        name: verdict
        for name, verdict in verdicts.items()
        if verdict != ("same", "same") and not (name in BATCHED and verdict[1] == "same")
    }
    assert not different, played.stdout
