"""A page of Prometheus metrics over HTTP: what controllers and brokers serve at `/metrics`.

Read-only. A page is rendered family by family with turns of the event loop between, so that a long one delays nobody.
Names follow jmx_exporter's usual rules for Kafka's MBeans, all lower case; docs/metrics.md has the table.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from controller.wire.times import Times
from controller.world.ports import Connection, Listener, Network

_REQUEST_BYTES_MAX: Final = 8_192
_REQUEST_S: Final = 10.0
_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def add_times(
    family: Metric, labels: Mapping[str, str], times: Times, quantiles: Mapping[str, float] | None = None
) -> None:
    """The samples of a timer or histogram. Kafka's have no sum; with it, a mean over any span can be had."""
    for quantile, value in (times.quantiles() if quantiles is None else quantiles).items():
        family.add_sample(family.name, {**labels, "quantile": quantile}, round(value, 3))
    family.add_sample(f"{family.name}_count", dict(labels), times.count)
    family.add_sample(f"{family.name}_sum", dict(labels), round(times.total, 3))


def process_collector() -> Collector:
    """CPU, memory and open files of this process (`process_*`), where the system tells them."""
    return ProcessCollector(registry=None)


@dataclass(frozen=True, slots=True)
class _One:
    """A family alone, as `generate_latest` takes it."""

    family: Metric

    def collect(self) -> Iterable[Metric]:
        return (self.family,)


class MetricsPage:
    """Serves what these collectors have at `/metrics`; everything else is 404."""

    def __init__(self, collectors: Iterable[Collector]) -> None:
        self.registry = CollectorRegistry()
        for collector in collectors:
            self.registry.register(collector)
        self._listener: Listener | None = None
        self._one_at_a_time = asyncio.Lock()

    async def listen(self, network: Network, host: str, port: int) -> tuple[str, int]:
        """Binds the address and returns what was bound. Raises OSError, which names the address."""
        try:
            self._listener = await network.listen(host, port, self._serve)
        except OSError as error:
            raise OSError(f"cannot serve metrics on {host}:{port}: {error.strerror or error}") from error
        return self._listener.address

    @property
    def address(self) -> str | None:
        """`host:port`, once it listens."""
        return None if self._listener is None else "{}:{}".format(*self._listener.address)

    async def close(self) -> None:
        """Stops listening. Idempotent."""
        if self._listener is not None:
            await self._listener.close()

    async def _serve(self, connection: Connection) -> None:
        """One request per connection; a slow or wordy peer is closed."""
        try:
            async with asyncio.timeout(_REQUEST_S):
                head = b""
                while b"\r\n\r\n" not in head and len(head) < _REQUEST_BYTES_MAX:
                    data = await connection.recv()
                    if not data:
                        return
                    head += data
                connection.send(await self._response(head))
                await connection.drain()
        except (OSError, TimeoutError):
            return

    async def _response(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        path = words[1].split(b"?")[0] if len(words) == 3 else b""
        if words[0] != b"GET" or path not in (b"/metrics", b"/"):
            return _http("404 Not Found", b"try /metrics\n")
        async with self._one_at_a_time:
            return _http("200 OK", await self.render())

    async def render(self) -> bytes:
        """The page as it is now."""
        parts = []
        for family in self.registry.collect():
            parts.append(generate_latest(_One(family)))
            await asyncio.sleep(0)
        return b"".join(parts)


def _http(status: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {_CONTENT_TYPE}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
