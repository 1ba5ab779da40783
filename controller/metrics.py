"""Prometheus metrics over HTTP, named as the usual jmx_exporter rules name Kafka's MBeans.

Read-only and small: one page, rendered from the gauges at the time of asking. Source: spec controller.md §4.3, §4.4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from controller.core.events import ControllerState
from controller.process import Controller
from controller.wire.ports import Connection, Listener, Network

_REQUEST_BYTES_MAX: Final = 8_192
_REQUEST_S: Final = 10.0
_QUANTILES: Final = (0.5, 0.95, 0.99)
#: `ControllerStats` timers with a historic name (spec §4.3).
_TIMER_NAMES: Final = {
    ControllerState.BROKER_CHANGE: "leaderelection",
    ControllerState.ALTER_PARTITION_REASSIGNMENT: "partitionreassignment",
}
_UNTIMED: Final = frozenset({ControllerState.IDLE, ControllerState.UPDATE_METADATA_RESPONSE_RECEIVED})


def render(controller: Controller) -> str:
    """The metrics page."""
    lines: list[str] = []
    gauges = {**controller.state.gauges(), "ControllerState": controller.loop.gauges.state.value}
    for name, value in gauges.items():
        _metric(lines, f"kafka_controller_kafkacontroller_{name.lower()}", "gauge", [("", value)])
    _metric(
        lines, "kafka_controller_controllereventmanager_eventqueuesize", "gauge", [("", controller.loop.queue_size)]
    )
    times = sorted(controller.loop.gauges.queue_ms)
    quantiles = [(f'{{quantile="{q}"}}', times[min(len(times) - 1, int(q * len(times)))]) for q in _QUANTILES if times]
    _metric(lines, "kafka_controller_controllereventmanager_eventqueuetimems", "summary", quantiles)
    lines.extend(_timers(controller))
    stats = "kafka_controller_controllerstats"
    _metric(lines, f"{stats}_uncleanleaderelections_total", "counter", [("", controller.state.unclean_elections)])
    channels = controller.channels.gauges()
    prefix = "kafka_controller_controllerchannelmanager"
    _metric(lines, f"{prefix}_totalqueuesize", "gauge", [("", sum(c.queue_size for c in channels.values()))])
    by_broker = [(f'{{broker_id="{broker}"}}', gauge) for broker, gauge in channels.items()]
    _metric(lines, f"{prefix}_queuesize", "gauge", [(label, g.queue_size) for label, g in by_broker])
    _metric(lines, f"{prefix}_requests_total", "counter", [(label, g.requests) for label, g in by_broker])
    _metric(lines, f"{prefix}_requestfailures_total", "counter", [(label, g.failures) for label, g in by_broker])
    _metric(lines, f"{prefix}_requestandqueuetimems_total", "counter", [(label, g.total_ms) for label, g in by_broker])
    return "\n".join(lines) + "\n"


def _timers(controller: Controller) -> Iterator[str]:
    gauges = controller.loop.gauges
    for state in ControllerState:
        if state in _UNTIMED:
            continue
        name = _TIMER_NAMES.get(state, state.name.replace("_", "").lower())
        lines: list[str] = []
        prefix = f"kafka_controller_controllerstats_{name}rateandtimems"
        _metric(lines, f"{prefix}_count", "counter", [("", gauges.events.get(state, 0))])
        _metric(lines, f"{prefix}_sum", "counter", [("", round(gauges.process_ms.get(state, 0.0), 3))])
        yield from lines


def _metric(lines: list[str], name: str, kind: str, samples: list[tuple[str, float]]) -> None:
    lines.append(f"# TYPE {name} {kind}")
    lines.extend(f"{name}{label} {value}" for label, value in samples)


class MetricsServer:
    """Serves the page at `/metrics`; everything else is 404."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._listener: Listener | None = None

    async def listen(self, network: Network, host: str, port: int) -> tuple[str, int]:
        """Binds the address and returns what was bound. Raises OSError."""
        self._listener = await network.listen(host, port, self._serve)
        return self._listener.address

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
                connection.send(self._response(head))
                await connection.drain()
        except (OSError, TimeoutError):
            return

    def _response(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        path = words[1].split(b"?")[0] if len(words) == 3 else b""
        if words[0] != b"GET" or path not in (b"/metrics", b"/"):
            return _http("404 Not Found", "try /metrics\n")
        return _http("200 OK", render(self._controller))


def _http(status: str, text: str) -> bytes:
    body = text.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
