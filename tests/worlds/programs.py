"""Programs as processes, whose log lines can be waited for."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from queue import Empty, Queue
from typing import Any

import pytest

from controller.wire.protocol import ApiKey, ProtocolError
from controller.world.client import BrokerConnection
from controller.world.real.net import TcpNetwork

START_LIMIT_S = 60.0


class Program:
    """A child process whose log lines (JSON on stderr) can be waited for."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", *arguments], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        self.lines: list[str] = []
        self._events: Queue[dict[str, Any] | None] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            try:
                self._events.put(json.loads(line))
            except ValueError:
                continue
        self._events.put(None)

    def wait_for(self, event: str) -> dict[str, Any]:
        """The next line with this event; fails with the last lines when the process ends or is too slow."""
        while True:
            try:
                line = self._events.get(timeout=START_LIMIT_S)
            except Empty:
                line = None
            if line is None:
                pytest.fail(f"no {event}; the last lines were:\n{''.join(self.lines[-20:])}", pytrace=False)
            if line["event"] == event:
                return line

    def stop(self) -> int:
        """SIGTERM, then SIGKILL; the exit status."""
        self.process.terminate()
        try:
            status = self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self._reader.join(timeout=5)
        if self.process.stderr is not None and not self._reader.is_alive():
            self.process.stderr.close()
        return status


def until_served(ports: Mapping[int, int]) -> None:
    """Waits until each of these brokers (port by id) lists all of them: librdkafka does not ask again for some minutes
    after an answer without brokers, which is what a broker gives that no controller has told anything, and a broker
    that has just joined may list fewer than there are.
    """
    deadline = time.monotonic() + START_LIMIT_S
    waiting = dict(ports)
    while waiting:
        assert time.monotonic() < deadline, f"not served in time: {waiting}"
        waiting = {broker: port for broker, port in waiting.items() if asyncio.run(_listed(port)) != set(ports)}


async def _listed(port: int) -> set[int]:
    """The brokers that the one at this port lists; none if it does not answer."""
    try:
        connection = await BrokerConnection.open(TcpNetwork(), "127.0.0.1", port, client_id="test", timeout_s=5)
    except (OSError, TimeoutError):
        return set()
    try:
        answer = await connection.call(ApiKey.METADATA, 1, {"topics": []}, timeout_s=5)
    except (OSError, TimeoutError, ProtocolError):
        return set()
    finally:
        connection.close()
    return {int(broker.node_id) for broker in answer.brokers}
