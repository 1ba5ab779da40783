"""Whatever ends `kwob sim run`, its processes end with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.handles import processes_of, until

#: For a start, on a machine that does much else.
LIMIT_S = 120.0


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_a_run_that_is_ended_leaves_nobody(number: signal.Signals, tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = "sim run --set steps=1 --workers 2 --seeds 0..99999"
    argv = [sys.executable, "-m", "controller.cli", *command.split()]
    with log.open("wb") as output:
        process = subprocess.Popen(argv, stdout=output, stderr=output, start_new_session=True)
    try:
        until("both play", lambda: len(processes_of(process.pid)) >= 3, LIMIT_S)
        os.kill(process.pid, number)
        assert process.wait(LIMIT_S) != 0
        until("nobody is left", lambda: processes_of(process.pid) == [], LIMIT_S)
        told = log.read_text()
        assert ("worlds, 0 with a violation" in told) is (number == signal.SIGINT), told
        assert ("ended by Ctrl-C" in told) is (number == signal.SIGINT), told
        if number != signal.SIGKILL:  # who starts just then says that nobody is there to tell it what to do
            assert "Traceback" not in told and "leaked" not in told, told
    finally:
        for left in processes_of(process.pid):
            os.kill(int(left), signal.SIGKILL)
