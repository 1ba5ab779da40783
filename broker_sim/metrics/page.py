"""The metrics page of one broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from broker_sim.apis.context import BrokerContext
from broker_sim.metrics import of_replicas, of_server
from broker_sim.server import SocketServer
from broker_sim.zk_client import ZkClient
from controller.world.metrics_page import MetricsPage, process_collector


class BrokerCollector(Collector):
    """The families of one broker; made when it starts."""

    def __init__(self, context: BrokerContext, server: SocketServer, zk: ZkClient) -> None:
        self._context, self._server, self._zk = context, server, zk
        self._clock_s = asyncio.get_running_loop().time
        self._started_s = self._clock_s()

    def collect(self) -> Iterable[Metric]:
        """All families, as they are now."""
        yield from of_replicas.families(self._context.replicas)
        yield from of_server.families(self._context, self._server, self._zk, uptime_s=self._clock_s() - self._started_s)


def broker_page(context: BrokerContext, server: SocketServer, zk: ZkClient) -> MetricsPage:
    """What the broker serves, with the process it is in."""
    return MetricsPage([BrokerCollector(context, server, zk), process_collector()])
