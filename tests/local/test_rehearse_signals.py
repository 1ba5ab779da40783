"""Ctrl-C and SIGTERM while commands of a rehearsal work: nothing is written, nobody is left, and one line says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.handles import processes_of, until
from tests.worlds.rehearsals import GB, brokers, topic, write

#: Far more than a test waits for.
MOVES = [{"topic": "t", "partition": n, "replicas": [n % 6 + 1, (n + 3) % 6 + 1]} for n in range(60)]
#: For a start, on a machine that does much else.
LIMIT_S = 120.0
COMMANDS = {
    "rehearse": ["rehearse"],
    "sweep": ["rehearse", "sweep", "--each", "seed=1..100", "--workers", "2"],
    "plan": ["plan", "--workers", "2"],
}


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_command_that_is_ended_leaves_nothing(words: list[str], number: signal.Signals, tmp_path: Path) -> None:
    replicas = [[n % 6 + 1, (n + 1) % 6 + 1] for n in range(60)]
    path = write(
        tmp_path,
        cluster={"brokers": brokers(6), "topics": {"t": topic(*replicas, bytes=GB, in_bytes_per_s=1e4)}},
        events=[{"do": "reassign", "throttle": "2MB", "partitions": MOVES}, {"do": "curve", "factors": [1, 2]}],
        end="1d" if words[0] == "plan" else "31d",  # one that begins with a whole rehearsal, alone
    )
    argv = [sys.executable, "-m", "controller.cli", *words, str(path), "--out", str(tmp_path / "out")]
    log = tmp_path / "log"
    is_alone = words == ["rehearse"]
    if is_alone:
        argv += ["--trace-dir", str(tmp_path / "traces")]
    with log.open("wb") as output:
        process = subprocess.Popen(argv, stdout=output, stderr=output, start_new_session=True)
    try:
        if is_alone:
            until("it plays", lambda: any((tmp_path / "traces").glob("*")), LIMIT_S)
        else:
            until("it has workers", lambda: len(processes_of(process.pid)) > 1, LIMIT_S)
        os.killpg(process.pid, number)
        assert process.wait(60) == 130
        until("nobody is left", lambda: not processes_of(process.pid))
    finally:
        for left in processes_of(process.pid):
            os.kill(int(left), signal.SIGKILL)
    name = "rehearse sweep" if "sweep" in words else words[0]
    assert log.read_text().splitlines() == [f"kwob {name}: ended by Ctrl-C; nothing was written"]
    assert {found.name for found in tmp_path.iterdir()} <= {"scenario.yaml", "log", "traces"}


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes in /proc")
def test_workers_end_with_a_sweep_that_is_killed(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        cluster={"brokers": brokers(6), "topics": {"t": topic([1, 2], bytes=GB)}},
        events=[{"do": "reassign", "throttle": "2MB", "partitions": MOVES[:1]}],
    )
    argv = [sys.executable, "-m", "controller.cli", *COMMANDS["sweep"], str(path), "--out", str(tmp_path / "out")]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        until("it has workers", lambda: len(processes_of(process.pid)) > 2, LIMIT_S)
        process.kill()
        process.wait(60)
        until("nobody is left", lambda: not processes_of(process.pid), LIMIT_S)
    finally:
        for left in processes_of(process.pid):
            os.kill(int(left), signal.SIGKILL)
    assert not (tmp_path / "out").exists()
