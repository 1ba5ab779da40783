"""How long after an event a page is told of it, on virtual time: what the page's own waits add up to."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from controller.local import cluster_file
from controller.local.cluster_file import BrokerRow, ClusterRow, ControllerRow, write_cluster
from controller.ui.board import Board
from controller.world.simulated.loop import run as run_virtually

pytest.importorskip("starlette", reason="the extra `ui` is not installed: make setup")
from controller.ui import local_looks
from controller.ui.web import Site


class Reader:
    """A browser's side of the stream: what was sent, with the virtual time of each."""

    def __init__(self, site: Site) -> None:
        self._app = site.app()
        self.messages: list[tuple[float, dict[str, Any]]] = []

    async def read(self) -> None:
        """Until cancelled."""
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
            "path": "/api/stream", "raw_path": b"/api/stream", "query_string": b"", "root_path": "",
            "headers": [(b"host", b"h")], "client": ("h", 1), "server": ("h", 2),
        }  # fmt: skip
        await self._app(scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError("a browser says nothing more")

    async def _send(self, message: Any) -> None:
        body = message.get("body", b"")
        if body.startswith(b"data: "):
            self.messages.append((asyncio.get_running_loop().time(), json.loads(body[6:])))


@pytest.mark.parametrize("killed_at_s", [1.0, 1.05, 1.1, 1.19])
def test_a_page_is_told_of_a_kill_within_half_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at_s: float
) -> None:
    (tmp_path / "logs").mkdir()
    alive = {11, 12}
    monkeypatch.setattr(cluster_file, "is_running", alive.__contains__)
    brokers = [BrokerRow(id=n, pid=10 + n, rack="a", listener="h:1", log_dirs=[]) for n in (1, 2)]
    office = [ControllerRow(id=901, pid=None)]
    write_cluster(tmp_path, ClusterRow(bootstrap="h:1", zookeeper="h:2", controllers=office, brokers=brokers))

    async def scenario() -> list[tuple[float, dict[str, Any]]]:
        site = Site(board=Board(), hosts=frozenset({"h"}))
        reader = Reader(site)
        tasks = [
            asyncio.create_task(work) for work in (local_looks.LocalLooks(tmp_path, site.board).run(), reader.read())
        ]
        await asyncio.sleep(killed_at_s)
        alive.remove(12)
        await asyncio.sleep(2)
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        return reader.messages

    messages = run_virtually(scenario())
    seen = [at for at, rows in messages if rows.get("processes", {}).get("brokers", {}).get("2") is False]
    assert len(seen) == 1 and killed_at_s <= seen[0] <= killed_at_s + 0.5
