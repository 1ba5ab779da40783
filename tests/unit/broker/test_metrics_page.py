"""The page of a broker on virtual time: an address that is taken, and what ends with the broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from broker_sim.broker import Broker, StartRefused
from broker_sim.metrics.families import SESSIONS
from broker_sim.metrics.of_server import families
from tests.broker_metrics.pages import samples

Play = Callable[..., Any]
ADDRESS = ("broker-1", 9404)


def with_page(broker: Broker) -> Broker:
    broker.identity = replace(broker.identity, metrics=ADDRESS)
    return broker


def test_its_page_is_there_from_start_to_end(in_memory: Play) -> None:
    async def scenario(cluster: Any) -> None:
        broker = with_page(cluster.make(1))
        await cluster.in_broker(1, broker.start())
        connection = await cluster.client.network.connect(*ADDRESS)
        connection.send(b"GET /metrics HTTP/1.1\r\n\r\n")
        answer = b""
        while data := await connection.recv():
            answer += data
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert samples(body.decode())["kafka_server_kafkaserver_brokerstate", frozenset()] == 3
        await cluster.in_broker(1, broker.stop(controlled=False))
        with pytest.raises(OSError):
            await cluster.client.network.connect(*ADDRESS)

    in_memory(scenario)


def test_an_address_that_is_taken_is_named_and_nothing_stays_open(in_memory: Play) -> None:
    async def scenario(cluster: Any) -> None:
        async def deaf(connection: Any) -> None:
            return None

        await cluster.machine(1).network.listen(*ADDRESS, deaf)
        broker = with_page(cluster.make(1))
        with pytest.raises(StartRefused, match=r"cannot serve metrics on broker-1:9404"):
            await cluster.in_broker(1, broker.start())
        with pytest.raises(OSError):
            await cluster.client.network.connect("broker-1", 9092)

    in_memory(scenario)


#: what happens to the link with ZooKeeper, the seconds that pass then -> connections made, lost, sessions expired
LINK: list[tuple[str, float, tuple[int, int, int]]] = [
    ("", 0, (1, 0, 0)),
    ("disconnect session", 0, (1, 1, 0)),
    ("", 1, (2, 1, 0)),
    ("disconnect session", 0, (2, 2, 0)),
    ("", 1, (3, 2, 0)),
    ("expire_session session", 0, (3, 3, 0)),
    ("", 1, (4, 3, 1)),
    ("stop", 0, (4, 4, 1)),
    ("", 60, (4, 4, 1)),
    ("start", 1, (5, 4, 1)),
    ("cut machine", 0, (5, 5, 1)),
    ("", 60, (5, 5, 1)),
    ("heal machine", 0, (5, 5, 1)),
    ("", 3, (6, 5, 2)),
]


def test_connections_with_zookeeper_are_counted_when_they_are_made_and_when_they_are_lost(in_memory: Play) -> None:
    async def scenario(cluster: Any) -> None:
        broker, zookeeper = await cluster.start(1), cluster.world.zookeeper
        for number, (event, seconds, counts) in enumerate(LINK):
            verb, _, what = event.partition(" ")
            named = {"session": broker.zk.session_id, "machine": "broker-1"}
            if verb:
                getattr(zookeeper, verb)(*([named[what]] if what else []))
            await cluster.world.sleep(seconds)
            shown = families(broker.context, broker.server, broker.zk, uptime_s=1.0)
            values = {sample.name: sample.value for family in shown for sample in family.samples}
            meters = ("syncconnects", "disconnects", "expires")
            assert tuple(values[f"{SESSIONS}_zookeeper{meter}_total"] for meter in meters) == counts, LINK[: number + 1]

    in_memory(scenario)
