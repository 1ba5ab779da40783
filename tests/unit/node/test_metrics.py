"""The metrics page, read as Prometheus reads it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from controller.core.events import ControllerState
from controller.node.metrics import MetricsServer
from controller.node.timings import QUEUE_TIMES_FORGOTTEN_S, LoopGauges
from controller.wire import znodes
from controller.wire.times import Times
from controller.wire.types import BrokerId, ReplicaAssignment, TopicPartition
from controller.wire.zk_operations import Create
from controller.wire.znodes import TopicAssignment
from controller.world.metrics_page import process_collector

Play = Callable[..., list[Any]]
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
PORT = 9404
CONTROLLER, EVENTS = "kafka_controller_kafkacontroller", "kafka_controller_controllereventmanager"
STATS, CHANNELS = "kafka_controller_controllerstats", "kafka_controller_controllerchannelmanager"
GAUGES = [  # spec controller.md §4.4, and what they are with one broker and one topic that is not there
    ("activecontrollercount", 1),
    ("offlinepartitionscount", 0),
    ("preferredreplicaimbalancecount", 0),
    ("controllerstate", 0),
    ("globaltopiccount", 1),
    ("globalpartitioncount", 2),
    ("topicstodeletecount", 0),
    ("replicastodeletecount", 0),
    ("topicsineligibletodeletecount", 0),
    ("replicasineligibletodeletecount", 0),
    ("activebrokercount", 1),
    ("fencedbrokercount", 0),
    ("zkmigrationstate", 4),
]
TIMERS = [  # spec controller.md §4.3
    "controllerchange",
    "leaderelection",
    "topicchange",
    "topicdeletion",
    "partitionreassignment",
    "autoleaderbalance",
    "manualleaderbalance",
    "controlledshutdown",
    "isrchange",
    "leaderandisrresponsereceived",
    "logdirchange",
    "controllershutdown",
    "uncleanleaderelectionenable",
    "topicuncleanleaderelectionenable",
    "listpartitionreassignment",
]


SESSIONS = "kafka_server_sessionexpirelistener"


async def ask(cluster: Any, data: bytes) -> bytes:
    connection = await cluster.client.network.connect("controller", PORT)
    connection.send(data)
    answer = b""
    while received := await connection.recv():
        answer += received
    return answer


def parse(page: str) -> tuple[dict[str, str], Samples]:
    """(type of each family, samples)."""
    families = list(text_string_to_metric_families(page))
    samples = {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}
    assert len(samples) == sum(len(family.samples) for family in families), "a sample is there twice"
    return {family.name: family.type for family in families}, samples


async def scrape(cluster: Any) -> tuple[dict[str, str], Samples]:
    answer = await ask(cluster, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4")
    assert f"Content-Length: {len(body)}".encode() in head
    return parse(body.decode())


def one(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, tuple(sorted(labels.items()))]


def test_the_page_has_kafkas_metrics(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        metrics = MetricsServer(cluster.controller)
        await cluster.machine.run(metrics.listen(cluster.machine.network, "controller", PORT))
        assignment = {p: ReplicaAssignment(replicas=(BrokerId(1),)) for p in range(2)}
        content = znodes.TopicZNode.encode(znodes.TopicAssignment(partitions=assignment))
        await cluster.zk(Create("/brokers/topics/t", content))
        tp = TopicPartition("t", 1)
        state = cluster.controller.state
        await cluster.world.until(lambda: state.leadership(tp) is not None, within_s=10, what="the topic is there")
        await cluster.world.sleep(5)
        types, samples = await scrape(cluster)
        for name, value in GAUGES:
            assert (name, one(samples, f"{CONTROLLER}_{name}")) == (name, value)
            assert types[f"{CONTROLLER}_{name}"] == "gauge"
        for name in TIMERS:
            assert types[f"{STATS}_{name}rateandtimems"] == "summary"
            assert (f"{STATS}_{name}rateandtimems_count", ()) in samples, name
        assert one(samples, f"{STATS}_controllerchangerateandtimems_count") == 2
        assert one(samples, f"{STATS}_topicchangerateandtimems_count") == 1
        assert one(samples, f"{STATS}_topicchangerateandtimems", quantile="0.99") > 0
        assert one(samples, f"{STATS}_topicchangerateandtimems_sum") > 0
        assert (f"{STATS}_idlerateandtimems_count", ()) not in samples
        assert types[f"{STATS}_uncleanleaderelections"] == "counter"
        assert one(samples, f"{STATS}_uncleanleaderelections_total") == 0
        assert one(samples, f"{EVENTS}_eventqueuesize") == 0
        assert one(samples, f"{EVENTS}_eventqueuetimems_count") > 3
        assert (f"{EVENTS}_eventqueuetimems", (("quantile", "0.50"),)) in samples
        assert one(samples, f"{CHANNELS}_totalqueuesize") == 0
        assert one(samples, f"{CHANNELS}_queuesize", broker_id="1") == 0
        told = one(samples, f"{CHANNELS}_requestrateandqueuetimems_count", broker_id="1")
        assert told == one(samples, f"{CHANNELS}_requests_total", broker_id="1") > 1
        assert one(samples, f"{CHANNELS}_requestfailures_total", broker_id="1") == 0
        assert one(samples, "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms_count") > 5
        assert one(samples, f"{SESSIONS}_zookeepersyncconnects_total") == 1
        assert one(samples, f"{SESSIONS}_sessionstate", state="CONNECTED") == 1
        for name in ("disconnects", "authfailures", "readonlyconnects", "saslauthentications", "expires"):
            assert one(samples, f"{SESSIONS}_zookeeper{name}_total") == 0
        await metrics.close()

    play(scenario, brokers=1)


def test_what_waits_and_what_expires_is_shown(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        metrics = MetricsServer(cluster.controller)
        await cluster.machine.run(metrics.listen(cluster.machine.network, "controller", PORT))
        cluster.world.network.partition("controller", "broker-1")
        await cluster.register(2)
        await cluster.register(3)
        await cluster.world.sleep(1)
        _, samples = await scrape(cluster)
        assert one(samples, f"{CHANNELS}_totalqueuesize") == one(samples, f"{CHANNELS}_queuesize", broker_id="1") > 0
        assert one(samples, f"{CHANNELS}_requestfailures_total", broker_id="2") == 0
        cluster.world.zookeeper.expire_session(cluster.controller.zk.session_id)
        expired = cluster.controller.zk.gauges
        await cluster.world.until(lambda: expired.sessions == 2, within_s=60, what="a new session")
        _, samples = await scrape(cluster)
        assert one(samples, f"{SESSIONS}_zookeeperexpires_total") == 1
        assert one(samples, f"{SESSIONS}_zookeepersyncconnects_total") == 2
        assert one(samples, f"{SESSIONS}_zookeeperdisconnects_total") == 1
        await metrics.close()

    play(scenario, brokers=1)


def test_a_connection_that_is_lost_is_shown(play: Play) -> None:
    """Until it stands again the session is CONNECTING; it is the same one afterwards."""

    async def scenario(cluster: Any) -> None:
        zk, registry = cluster.controller.zk, MetricsServer(cluster.controller).registry

        def shown(name: str, **labels: str) -> float:
            return one(parse(generate_latest(registry).decode())[1], f"{SESSIONS}_{name}", **labels)

        cluster.world.zookeeper.disconnect(zk.session_id)
        assert shown("sessionstate", state="CONNECTING") == 1 and shown("sessionstate", state="CONNECTED") == 0
        assert shown("zookeeperdisconnects_total") == 1
        await cluster.world.until(lambda: zk.session_state == "CONNECTED", within_s=30, what="it is connected again")
        assert (shown("zookeepersyncconnects_total"), shown("zookeeperdisconnects_total")) == (2, 1)
        assert zk.gauges.sessions == 1

    play(scenario, brokers=0)


def test_a_scrape_costs_the_same_however_many_partitions_there_are(play: Play) -> None:
    calls: list[int] = []

    async def scenario(cluster: Any) -> None:
        registry = MetricsServer(cluster.controller).registry
        state = cluster.controller.state
        for topic, count in (("few", 10), ("many", 3_000)):
            assignment = ReplicaAssignment(replicas=(BrokerId(1),))
            state.topic_learnt(topic, TopicAssignment(partitions=dict.fromkeys(range(count), assignment)))
            state.deletion_queued((topic,))
            generate_latest(registry)
            calls.append(0)

            def count_call(_frame: object, event: str, _arg: object) -> None:
                calls[-1] += event in ("call", "c_call")

            sys.setprofile(count_call)
            try:
                generate_latest(registry)
            finally:
                sys.setprofile(None)

    play(scenario, brokers=1)
    assert calls[0] > 100
    assert abs(calls[1] - calls[0]) < 50, calls


@pytest.mark.parametrize(
    "request_bytes",
    [b"GET /etc/passwd HTTP/1.1\r\n\r\n", b"POST /metrics HTTP/1.1\r\n\r\n", b"\x00" * 9000, b"GET\r\n\r\n"],
)
def test_anything_else_is_not_found(play: Play, request_bytes: bytes) -> None:
    async def scenario(cluster: Any) -> None:
        metrics = MetricsServer(cluster.controller)
        await cluster.machine.run(metrics.listen(cluster.machine.network, "controller", PORT))
        assert (await ask(cluster, request_bytes)).startswith(b"HTTP/1.1 404")
        await metrics.close()

    play(scenario, brokers=0)


def test_a_process_shows_what_it_uses(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        page = generate_latest(MetricsServer(cluster.controller, [process_collector()]).registry).decode()
        if sys.platform == "linux":
            assert one(parse(page)[1], "process_cpu_seconds_total") > 0

    play(scenario, brokers=0)


def test_quantiles_are_of_the_last_ones_and_the_count_of_all() -> None:
    times = Times(kept=100)
    for ms in range(1_000):
        times.add(ms)
    assert (times.count, times.total) == (1_000, 499_500)
    assert times.quantiles()["0.50"] == 950 and times.quantiles()["0.99"] == 999
    for ms in range(500, 0, -1):
        times.add(ms)
    assert times.quantiles()["0.50"] == 51 and times.quantiles()["0.99"] == 100


def test_queue_times_are_forgotten_when_no_event_comes_for_long() -> None:
    gauges = LoopGauges(state=ControllerState.TOPIC_CHANGE)
    gauges.took(5.0, 1.0, 100.0)
    assert gauges.queue_quantiles(100.0 + QUEUE_TIMES_FORGOTTEN_S)["0.50"] == 5.0
    assert gauges.queue_quantiles(101.0 + QUEUE_TIMES_FORGOTTEN_S)["0.50"] == 0.0
    assert gauges.queue.count == 1
