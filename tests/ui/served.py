"""A page that is really served, on a thread of its own, and how to ask it."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the extra `ui` is not installed: make setup")
from controller.ui.serving import PageServer
from controller.ui.web import Site


@dataclass
class Served:
    """A site at an address; `run` does something on its event loop."""

    site: Site
    port: int
    loop: asyncio.AbstractEventLoop

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def run(self, work: Any, *arguments: Any) -> None:
        """Calls it on the page's loop, and returns once that is done."""
        done = threading.Event()
        self.loop.call_soon_threadsafe(lambda: (work(*arguments), done.set()))
        assert done.wait(10)

    def ask(
        self, path: str, *, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> tuple[int, str, dict[str, str]]:
        """(status, body, headers)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, {"host": self.host, **named})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text, {name.lower(): value for name, value in answer.getheaders()}


@contextmanager
def served(site: Site, port: int = 0) -> Iterator[Served]:
    """Serves it until the block ends; the hosts of the site are those of the real port."""
    listener = socket.create_server(("127.0.0.1", port))
    port = listener.getsockname()[1]
    site = replace(site, hosts=frozenset({f"127.0.0.1:{port}"}))
    server, loops = PageServer(site), list[asyncio.AbstractEventLoop]()
    ready = threading.Event()

    async def work() -> None:
        loops.append(asyncio.get_running_loop())
        ready.set()
        await server.serve(sockets=[listener])

    thread = threading.Thread(target=lambda: asyncio.run(work()), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield Served(site, port, loops[0])
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()
