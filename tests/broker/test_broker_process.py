"""The broker process: what it refuses to start with, faults from a file, and how it ends."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from controller.wire.fault_rows import PauseReplication, encode

pytestmark = pytest.mark.zk


def arguments(zk_connect: str, log_dir: Path, *more: str) -> list[str]:
    quick = ("--override", "controlled.shutdown.retry.backoff.ms=10", "--override", "zookeeper.session.timeout.ms=1000")
    return ["broker_sim", "run", "--zookeeper", zk_connect, "--log-dirs", str(log_dir), *quick, *more]


def refusal(*command: str) -> str:
    """What a broker that cannot start says; it must be one line besides the log."""
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    lines = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_it_says_why_it_cannot_start(zk_connect: str, tmp_path: Path, program: Any) -> None:
    first = program(*arguments(zk_connect, tmp_path / "a", "--broker-id", "1", "--listener", "127.0.0.1:0"))
    port = first.wait_for("broker.started")["port"]
    free = ("--listener", "127.0.0.1:0")
    assert "broker id 1 is taken" in refusal(*arguments(zk_connect, tmp_path / "b", "--broker-id", "1", *free))
    assert "in use by another process" in refusal(*arguments(zk_connect, tmp_path / "a", "--broker-id", "2", *free))
    used = ("--listener", f"127.0.0.1:{port}")
    assert f"cannot listen on 127.0.0.1:{port}" in refusal(
        *arguments(zk_connect, tmp_path / "c", "--broker-id", "2", *used)
    )
    assert first.stop() == 0


def test_it_says_that_zookeeper_does_not_answer(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        command = arguments(address, tmp_path, "--broker-id", "1", "--listener", "127.0.0.1:0")
        assert address in refusal(*command, "--override", "zookeeper.connection.timeout.ms=500")


def test_faults_follow_their_file_and_sigterm_stops_it_without_a_controller(
    zk_connect: str, tmp_path: Path, program: Any
) -> None:
    faults = tmp_path / "faults"
    broker = program(
        *arguments(zk_connect, tmp_path / "logs", "--broker-id", "1", "--listener", "127.0.0.1:0"),
        *("--fault-file", str(faults)),
    )
    broker.wait_for("broker.started")
    faults.write_text(encode([PauseReplication(broker=1)]))
    assert broker.wait_for("fault.started")["fault"] == "pause_replication"
    faults.write_text("nonsense")
    assert "line 1" in broker.wait_for("fault.file_refused")["reason"]
    faults.unlink()
    broker.wait_for("fault.ended")
    assert broker.stop() == 0
    assert (tmp_path / "logs" / ".kafka_cleanshutdown").exists()
