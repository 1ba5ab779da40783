"""Prometheus metrics over HTTP, named as jmx_exporter's usual rules (all lower case) name Kafka's MBeans.

Read-only: a page is rendered by prometheus_client from the gauges as they are when it is asked for, and costs the same
however many partitions there are. Source: spec controller.md §4.3, §4.4; Kafka 3.9 `ControllerStats`,
`ControllerEventManager`, `ControllerChannelManager`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from controller.core.events import ControllerState
from controller.node.process import Controller
from controller.node.timings import Times
from controller.node.zk_watches import SESSION_STATES
from controller.world.ports import Connection, Listener, Network

_REQUEST_BYTES_MAX: Final = 8_192
_REQUEST_S: Final = 10.0
_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
#: `ControllerStats` timers with a historic name (spec §4.3).
_TIMER_NAMES: Final = {
    ControllerState.BROKER_CHANGE: "leaderelection",
    ControllerState.ALTER_PARTITION_REASSIGNMENT: "partitionreassignment",
}
_UNTIMED: Final = frozenset({ControllerState.IDLE, ControllerState.UPDATE_METADATA_RESPONSE_RECEIVED})

_KAFKA_CONTROLLER: Final = "kafka_controller_kafkacontroller"
_EVENT_MANAGER: Final = "kafka_controller_controllereventmanager"
_STATS: Final = "kafka_controller_controllerstats"
_CHANNELS: Final = "kafka_controller_controllerchannelmanager"
_SESSIONS: Final = "kafka_server_sessionexpirelistener"
_ZK_CLIENT: Final = "kafka_server_zookeeperclientmetrics"
_BROKER: Final = ("broker_id",)
#: Meters of `SessionExpireListener` that count what this client never does.
_NEVER: Final = ("zookeeperauthfailures", "zookeeperreadonlyconnects", "zookeepersaslauthentications")


class ControllerCollector(Collector):
    """The families of one controller. `now_s` is the clock of its event loop."""

    def __init__(self, controller: Controller, now_s: Callable[[], float]) -> None:
        self._controller = controller
        self._now_s = now_s

    def collect(self) -> Iterable[Metric]:
        """All families, as they are now."""
        yield from self._gauges()
        yield from self._events()
        yield from self._channels()
        yield from self._zookeeper()

    def _gauges(self) -> Iterator[Metric]:
        controller = self._controller
        for name, value in controller.state.gauges().items():
            yield GaugeMetricFamily(f"{_KAFKA_CONTROLLER}_{name.lower()}", f"Kafka's {name}", value)
        state = controller.loop.gauges.state
        yield GaugeMetricFamily(
            f"{_KAFKA_CONTROLLER}_controllerstate", "what is being processed, as Kafka numbers it", state.value
        )

    def _events(self) -> Iterator[Metric]:
        loop = self._controller.loop
        gauges = loop.gauges
        yield GaugeMetricFamily(f"{_EVENT_MANAGER}_eventqueuesize", "events that wait", loop.queue_size)
        waited = SummaryMetricFamily(f"{_EVENT_MANAGER}_eventqueuetimems", "how long events waited, in ms")
        _add_times(waited, {}, gauges.queue, gauges.queue_quantiles(self._now_s()))
        yield waited
        for state in ControllerState:
            if state not in _UNTIMED:
                name = _TIMER_NAMES.get(state, state.name.replace("_", "").lower())
                took = SummaryMetricFamily(f"{_STATS}_{name}rateandtimems", "events, and how long they took, in ms")
                _add_times(took, {}, times := gauges.events.get(state, _NO_TIMES), times.quantiles())
                yield took
        yield CounterMetricFamily(
            f"{_STATS}_uncleanleaderelections",
            "leaders elected from outside of the ISR",
            self._controller.state.unclean_elections,
        )
        yield CounterMetricFamily(f"{_EVENT_MANAGER}_faults", "events lost to an error", gauges.faults)

    def _channels(self) -> Iterator[Metric]:
        channels = self._controller.channels.gauges()
        total = sum(gauges.queue_size for gauges in channels.values())
        yield GaugeMetricFamily(f"{_CHANNELS}_totalqueuesize", "requests that wait, for all brokers", total)
        size = GaugeMetricFamily(f"{_CHANNELS}_queuesize", "requests that wait for this broker", labels=_BROKER)
        waited = SummaryMetricFamily(
            f"{_CHANNELS}_requestrateandqueuetimems", "requests, and how long they waited, in ms", labels=_BROKER
        )
        answered = CounterMetricFamily(f"{_CHANNELS}_requests", "requests answered", labels=_BROKER)
        failed = CounterMetricFamily(f"{_CHANNELS}_requestfailures", "attempts that failed", labels=_BROKER)
        for broker_id, gauges in channels.items():
            label = (str(broker_id),)
            size.add_metric(label, gauges.queue_size)
            _add_times(waited, {_BROKER[0]: label[0]}, gauges.queue, gauges.queue.quantiles())
            answered.add_metric(label, gauges.requests)
            failed.add_metric(label, gauges.failures)
        yield from (size, waited, answered, failed)

    def _zookeeper(self) -> Iterator[Metric]:
        gauges = self._controller.zk.gauges
        took = SummaryMetricFamily(f"{_ZK_CLIENT}_zookeeperrequestlatencyms", "how long calls of ZooKeeper took, in ms")
        _add_times(took, {}, gauges.latency, gauges.latency.quantiles())
        yield took
        zk = self._controller.zk
        now, connected = zk.session_state, zk.connections
        state = GaugeMetricFamily(f"{_SESSIONS}_sessionstate", "1 for the state that it is in", labels=("state",))
        for name in SESSION_STATES:
            state.add_metric((name,), now == name)
        yield state
        lost = connected - (now == SESSION_STATES[0])
        yield CounterMetricFamily(f"{_SESSIONS}_zookeepersyncconnects", "connections made", connected)
        yield CounterMetricFamily(f"{_SESSIONS}_zookeeperdisconnects", "connections lost", lost)
        yield CounterMetricFamily(f"{_SESSIONS}_zookeeperexpires", "sessions that expired", gauges.expirations)
        for name in _NEVER:
            yield CounterMetricFamily(f"{_SESSIONS}_{name}", "this client does not authenticate or read only", 0)


_NO_TIMES: Final = Times()


def _add_times(family: Metric, labels: dict[str, str], times: Times, quantiles: dict[float, float]) -> None:
    """The samples of a timer. Kafka's timers have no sum; with it, a mean over any span can be had."""
    for quantile, ms in quantiles.items():
        family.add_sample(family.name, {**labels, "quantile": str(quantile)}, round(ms, 3))
    family.add_sample(f"{family.name}_count", labels, times.count)
    family.add_sample(f"{family.name}_sum", labels, round(times.total_ms, 3))


def process_collector() -> Collector:
    """CPU, memory and open files of this process (`process_*`), where the system tells them."""
    return ProcessCollector(registry=None)


class MetricsServer:
    """Serves the page at `/metrics`; everything else is 404. `more` are collectors besides the controller's own."""

    def __init__(self, controller: Controller, more: Iterable[Collector] = ()) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(ControllerCollector(controller, asyncio.get_running_loop().time))
        for collector in more:
            self.registry.register(collector)
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
            return _http("404 Not Found", b"try /metrics\n")
        return _http("200 OK", generate_latest(self.registry))


def _http(status: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {_CONTENT_TYPE}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
