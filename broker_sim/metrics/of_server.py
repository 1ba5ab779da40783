"""Metrics of what clients ask one broker, of its groups and of its ZooKeeper session.

Source: Kafka 3.9 `RequestMetrics`, `SocketServer`, `DelayedOperationPurgatory`, `FetchSessionCache`,
`GroupMetadataManager`, `ZooKeeperClient`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from operator import attrgetter
from typing import Final

from prometheus_client.core import Metric

from broker_sim.apis.context import BrokerContext
from broker_sim.config import LONG_MAX
from broker_sim.groups.values import GroupState
from broker_sim.metrics.families import (
    FETCH_SESSIONS,
    GROUPS,
    HANDLERS,
    PURGATORY,
    REQUESTS,
    SERVER,
    SESSIONS,
    SOCKETS,
    ZK_CLIENT,
    counter,
    counters,
    gauge,
    gauges,
    times,
)
from broker_sim.request_meters import RequestMeters
from broker_sim.server import SocketServer
from broker_sim.zk_client import ZkClient
from controller.wire.times import Times

#: Kafka's `BrokerState.RUNNING`.
_RUNNING: Final = 3
#: Kafka's name of a stage -> where it is kept, and what it is.
_STAGES: Final = {
    "requestqueuetimems": ("queue", "until a handler takes the request, in ms"),
    "localtimems": ("local", "while the handler works, in ms"),
    "remotetimems": ("remote", "while the handler waits for others, in ms"),
    "responsesendtimems": ("send", "until the answer is with the system, in ms"),
    "totaltimems": ("total", "from first to last, in ms"),
    "requestbytes": ("size_bytes", "size of requests"),
}
#: Stages that take no time here: an answer never queues, and no request is delayed by a quota.
_NO_STAGES: Final = ("responsequeuetimems", "throttletimems")
_STATES: Final = {
    GroupState.PREPARING_REBALANCE: "preparingrebalance",
    GroupState.COMPLETING_REBALANCE: "completingrebalance",
    GroupState.STABLE: "stable",
    GroupState.EMPTY: "empty",
    GroupState.DEAD: "dead",
}
#: Meters of `SessionExpireListener` that count what this client never does.
_NEVER: Final = ("zookeeperauthfailures", "zookeeperreadonlyconnects", "zookeepersaslauthentications")


def families(context: BrokerContext, server: SocketServer, zk: ZkClient, *, uptime_s: float) -> Iterator[Metric]:
    """All of them."""
    yield gauge(f"{SERVER}_brokerstate", "3: it runs", _RUNNING)
    yield from _of_requests(server.meters)
    idle = 1.0 - min(1.0, server.meters.local_s / uptime_s) if uptime_s > 0 else 1.0
    yield gauge(f"{HANDLERS}_requesthandleravgidle_percent", "share of the time without work for requests", idle)
    limit, used = server.memory.limit, server.memory.used
    left = limit - used if limit >= 0 else LONG_MAX
    yield gauge(f"{SOCKETS}_memorypoolavailable", "bytes left of queued.max.request.bytes", left)
    yield gauge(f"{SOCKETS}_memorypoolused", "bytes of requests being read or served", used if limit >= 0 else 0)
    yield from _of_waiting(context)
    yield from _of_groups(context)
    yield from _of_zookeeper(zk)


def _of_requests(meters: RequestMeters) -> Iterator[Metric]:
    requests = (((name, str(version)), number) for (name, version), number in meters.requests.items())
    yield counters(f"{REQUESTS}_requests", "requests served", ("request", "version"), requests)
    yield counters(f"{REQUESTS}_errors", "error codes in answers", ("request", "error"), meters.errors.items())
    of_name = sorted(meters.times.items())
    for name, (stage, text) in _STAGES.items():
        stage_of = attrgetter(stage)
        yield times(f"{REQUESTS}_{name}", text, (({"request": request}, stage_of(each)) for request, each in of_name))
    for name in _NO_STAGES:
        nothing = (({"request": request}, _zeros(each.total.count)) for request, each in of_name)
        yield times(f"{REQUESTS}_{name}", "takes no time here", nothing)


def _zeros(count: int) -> Times:
    times_of_nothing = Times(kept=1)
    times_of_nothing.add(0.0)
    times_of_nothing.count = count
    return times_of_nothing


def _of_waiting(context: BrokerContext) -> Iterator[Metric]:
    meters = context.replicas.table.meters
    waiting = [(("Fetch",), meters.waiting_fetch), (("Produce",), meters.waiting_produce)]
    yield gauges(f"{PURGATORY}_numdelayedoperations", "requests that wait", ("delayedOperation",), waiting)
    yield gauges(f"{PURGATORY}_purgatorysize", "requests that wait", ("delayedOperation",), waiting)
    sessions = context.sessions
    yield gauge(f"{FETCH_SESSIONS}_numincrementalfetchsessions", "fetch sessions", len(sessions))
    yield gauge(f"{FETCH_SESSIONS}_numincrementalfetchpartitionscached", "their partitions", sessions.partitions)
    yield counter(f"{FETCH_SESSIONS}_incrementalfetchsessionevictions", "sessions that gave way", sessions.evictions)


def _of_groups(context: BrokerContext) -> Iterator[Metric]:
    entries = context.groups.registry.entries()
    states = Counter(entry.group.state for entry in entries)
    yield gauge(f"{GROUPS}_numgroups", "groups that this broker coordinates", len(entries))
    yield gauge(f"{GROUPS}_numoffsets", "their offsets", sum(len(entry.offsets) for entry in entries))
    for state, name in _STATES.items():
        yield gauge(f"{GROUPS}_numgroups{name}", f"groups that are {state.name}", states[state])


def _of_zookeeper(zk: ZkClient) -> Iterator[Metric]:
    yield times(
        f"{ZK_CLIENT}_zookeeperrequestlatencyms", "how long calls of ZooKeeper took, in ms", [({}, zk.latency_ms)]
    )
    yield counter(f"{SESSIONS}_zookeepersyncconnects", "connections made", zk.connections)
    yield counter(f"{SESSIONS}_zookeeperdisconnects", "connections lost", zk.connections - int(zk.is_connected))
    yield counter(f"{SESSIONS}_zookeeperexpires", "sessions that expired", zk.expirations)
    for name in _NEVER:
        yield counter(f"{SESSIONS}_{name}", "this client does not authenticate or read only", 0)
