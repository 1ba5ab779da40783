"""`kwob up` as a process of its own, as a user runs it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controller.world.real.ports import free_ports

LIMIT_S = 60


class Up:
    """A running `kwob up` on a data folder. What it prints is in `said`."""

    def __init__(self, data: Path, *more: str) -> None:
        self.data = data
        self.said: list[str] = []
        self._news = threading.Condition()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "controller.cli", "up", "--data", str(data), *more],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=data.parent, start_new_session=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                with self._news:
                    self.said.append(line.rstrip("\n"))
                    self._news.notify_all()

    def wait_for(self, words: str, *, limit_s: float = LIMIT_S) -> str:
        """The first line with these words; fails with all lines when it does not come."""

        def found() -> str | None:
            return next((line for line in self.said if words in line), None)

        with self._news:
            self._news.wait_for(lambda: found() is not None or self._process.poll() is not None, limit_s)
        if found() is None:
            self._reader.join(1)
        line = found()
        assert line is not None, f"{words!r} is not in:\n" + "\n".join(self.said)
        return line

    def pid_of(self, name: str) -> int:
        """The process of a child."""
        pid: int = json.loads((self.data / "processes.json").read_text())[name][0]
        return pid

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(LIMIT_S)

    def interrupt(self) -> int:
        """Ctrl-C. Returns its exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        code = self._process.wait(LIMIT_S)
        self._reader.join(LIMIT_S)
        return code


@pytest.fixture
def start_up() -> Iterator[Callable[..., Up]]:
    """Starts one on free ports, with two brokers; ended with the test, whatever happened."""
    started: list[Up] = []
    first, _, zookeeper_port = free_ports(3)

    def start(data: Path, *more: str) -> Up:
        ports = ["--bootstrap-port", str(first), "--zookeeper-port", str(zookeeper_port)]
        brokers = [] if {"--brokers", "--like"} & set(more) else ["--brokers", "2"]
        started.append(Up(data, *brokers, *ports, *more))
        return started[-1]

    yield start
    for up in started:
        up.interrupt()
