"""The metrics of a controller, named as jmx_exporter's usual rules (all lower case) name Kafka's MBeans.

A page costs the same however many partitions there are. Source: spec controller.md §4.3, §4.4; Kafka 3.9
`ControllerStats`, `ControllerEventManager`, `ControllerChannelManager`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from controller.core.events import ControllerState
from controller.node.process import Controller
from controller.node.zk_watches import SESSION_STATES
from controller.wire.times import Times
from controller.world.metrics_page import MetricsPage, add_times

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
        add_times(waited, {}, gauges.queue, gauges.queue_quantiles(self._now_s()))
        yield waited
        for state in ControllerState:
            if state not in _UNTIMED:
                name = _TIMER_NAMES.get(state, state.name.replace("_", "").lower())
                took = SummaryMetricFamily(f"{_STATS}_{name}rateandtimems", "events, and how long they took, in ms")
                add_times(took, {}, times := gauges.events.get(state, _NO_TIMES), times.quantiles())
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
            add_times(waited, {_BROKER[0]: label[0]}, gauges.queue, gauges.queue.quantiles())
            answered.add_metric(label, gauges.requests)
            failed.add_metric(label, gauges.failures)
        yield from (size, waited, answered, failed)

    def _zookeeper(self) -> Iterator[Metric]:
        gauges = self._controller.zk.gauges
        took = SummaryMetricFamily(f"{_ZK_CLIENT}_zookeeperrequestlatencyms", "how long calls of ZooKeeper took, in ms")
        add_times(took, {}, gauges.latency, gauges.latency.quantiles())
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


class MetricsServer(MetricsPage):
    """The page of a controller. `more` are collectors besides its own."""

    def __init__(self, controller: Controller, more: Iterable[Collector] = ()) -> None:
        super().__init__([ControllerCollector(controller, asyncio.get_running_loop().time), *more])
