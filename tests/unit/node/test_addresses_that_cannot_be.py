"""A broker that is registered under an address that cannot be keeps nobody from an answer."""

from __future__ import annotations

import asyncio
import random

import pytest

from controller.node.requests.groups_topic import GroupsTopic
from controller.wire.types import Broker, BrokerId, Endpoint
from controller.world.ports import Connection
from controller.world.real.net import TcpNetwork


class Network(TcpNetwork):
    """Remembers what it could not do."""

    def __init__(self) -> None:
        self.raised: list[type[Exception]] = []

    async def connect(self, host: str, port: int) -> Connection:
        try:
            return await super().connect(host, port)
        except Exception as error:
            self.raised.append(type(error))
            raise


@pytest.mark.parametrize(
    ("host", "port", "raised"),
    [
        ("127.0.0.1", 70_000, OSError),
        ("a" * 64 + ".b", 9092, OSError),
        ("127.0.0.1", 1, ConnectionRefusedError),
    ],
)
def test_a_broker_that_cannot_be_asked_for_the_groups_topic_is_left(
    host: str, port: int, raised: type[Exception]
) -> None:
    """The client that waits for a coordinator is told to ask again; then another broker may be drawn."""
    network = Network()
    broker = Broker(broker_id=BrokerId(1), endpoints=(Endpoint(host=host, port=port),))

    async def main() -> None:
        topic = GroupsTopic(network, "PLAINTEXT", random.Random(1))
        for _ in range(2):
            await topic.ask_for("g", [broker])

    asyncio.run(main())
    assert network.raised == [raised, raised]
