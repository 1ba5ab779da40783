"""Clients of Kafka's own brokers whose only connection is the one to a controller."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from controller.node.requests.groups_topic import LIMIT_S, GroupsTopic
from controller.sim.programs import FIRST_CONTROLLER
from controller.wire.errors import ErrorCode
from controller.wire.framing import FrameBuffer
from controller.wire.protocol import ApiKey, Request, decode_request, encode_response
from controller.wire.types import Broker, BrokerId, Endpoint
from controller.world.ports import Connection
from controller.world.simulated.world import World, run_world
from tests.sim.cluster import Cluster, play

GROUPS = "__consumer_offsets"


async def find(cluster: Cluster) -> tuple[int, int]:
    """(error code, node) of a group's coordinator, asked of the controller."""
    body = {"key": "my-group", "key_type": 0}
    found = await cluster.call(FIRST_CONTROLLER, ApiKey.FIND_COORDINATOR, 2, body)
    return found.error_code, found.node_id


def test_who_asks_only_the_controller_gets_a_coordinator(tmp_path: Path) -> None:
    """A broker makes the topic, by its own number of partitions."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.until(lambda: cluster.registered() == {1, 2, 3}, within_s=30, what="all brokers")
        assert await find(cluster) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
        await cluster.until(cluster.healthy, within_s=30, what="the topic has leaders")
        placed = cluster.znode(f"/brokers/topics/{GROUPS}")["partitions"]
        assert len(placed) == cluster.brokers[1].context.settings.offsets_topic_num_partitions
        error, node = await find(cluster)
        assert error == ErrorCode.NONE and node in (1, 2, 3)

    play(4, tmp_path, scenario)


def test_a_broker_that_does_not_answer_keeps_nobody_waiting_for_long(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.until(lambda: cluster.registered() == {1, 2, 3}, within_s=30, what="all brokers")
        for number in (1, 2, 3):
            cluster.pause(number)
        before = cluster.world.clock.now_ms()
        assert (await find(cluster))[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert cluster.world.clock.now_ms() - before <= 6_000
        for number in (1, 2, 3):
            cluster.resume(number)
        for _ in range(60):
            if (await find(cluster))[0] == ErrorCode.NONE:
                return
            await cluster.sleep(1)
        raise AssertionError("no coordinator within a minute")

    play(5, tmp_path, scenario)


Answer = Callable[[Request], bytes | None]


class Brokers:
    """One broker that answers as it is said, and what it sees of who asks it."""

    def __init__(self, world: World, answer: Answer) -> None:
        self.world, self.answer = world, answer
        self.keys: list[str] = []
        self.opened = self.closed = 0
        self.topic = GroupsTopic(world.machine("controller").network, "INSIDE", Random(1))
        endpoints = Endpoint(host="out", port=1, listener="OUTSIDE"), Endpoint(host="b", port=9092, listener="INSIDE")
        self.broker = Broker(broker_id=BrokerId(1), endpoints=endpoints)

    async def serve(self, connection: Connection) -> None:
        self.opened += 1
        frames = FrameBuffer()
        while data := await connection.recv():
            for frame in frames.feed(data):
                request = decode_request(frame)
                self.keys.append(request.body.key)
                if (answer := self.answer(request)) is not None:
                    connection.send(answer)
        self.closed += 1

    async def asks(self, *brokers: Broker) -> float:
        """How long it took."""
        began = self.world.clock.now_ms()
        await self.world.machine("controller").run(self.topic.ask_for("g", brokers))
        return (self.world.clock.now_ms() - began) / 1_000


def says_yes(request: Request) -> bytes:
    body = {"error_code": 0, "node_id": 1, "host": "b", "port": 1}
    return encode_response(request.api_key, request.api_version, request.correlation_id, body)


#: what a broker answers -> how long is it waited for, at least and at most
ANSWERS: list[tuple[str, Answer, float, float]] = [
    ("yes", says_yes, 0, 1),
    ("half an answer", lambda request: struct.pack(">iih", 6, request.correlation_id, 0), 0, LIMIT_S),
    ("an answer to another question", lambda request: struct.pack(">ii", 4, request.correlation_id + 1), 0, LIMIT_S),
    ("nothing", lambda _: None, LIMIT_S, LIMIT_S + 0.1),
]


@pytest.mark.parametrize(("answer", "least", "most"), [row[1:] for row in ANSWERS], ids=[row[0] for row in ANSWERS])
def test_a_broker_is_asked_once_at_a_time_and_left_then(answer: Answer, least: float, most: float) -> None:
    async def main(world: World) -> None:
        brokers = Brokers(world, answer)
        await world.machine("b").network.listen("b", 9092, brokers.serve)
        for times in (1, 2):
            first = asyncio.ensure_future(brokers.asks(brokers.broker))
            await asyncio.sleep(0)
            assert await brokers.asks(brokers.broker) == 0, "one question is under way"
            assert least <= await first <= most
            await world.sleep(1)
            assert (brokers.keys, brokers.opened, brokers.closed) == (["g"] * times, times, times)

    run_world(1, main)


def test_who_cannot_be_asked_is_left_to_the_next_question() -> None:
    async def main(world: World) -> None:
        brokers = Brokers(world, says_yes)
        unreached = replace(brokers.broker, endpoints=brokers.broker.endpoints[:1])
        for those in ((), (unreached,), (brokers.broker,)):  # the last one does not listen yet
            assert await brokers.asks(*those) <= LIMIT_S
        world.partition("controller", "b")
        assert await brokers.asks(brokers.broker) <= LIMIT_S + 0.1
        world.heal()
        await world.machine("b").network.listen("b", 9092, brokers.serve)
        await brokers.asks(unreached, brokers.broker)
        assert brokers.keys == ["g"]

    run_world(1, main)
