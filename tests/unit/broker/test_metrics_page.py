"""The page of a broker on virtual time: an address that is taken, and what ends with the broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from broker_sim.broker import Broker, StartRefused
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
