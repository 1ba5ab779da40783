"""What a follower asks its leader for: all of it at first and on a new connection, then what changed."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from broker_sim.config import ReplicaSettings
from broker_sim.replicas.fetch_client import FetchClient
from broker_sim.replicas.types import FetchPartition
from controller.wire import protocol
from controller.wire.errors import ErrorCode
from controller.wire.framing import FrameBuffer
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, Endpoint, TopicPartition
from controller.world.ports import Connection
from controller.world.simulated.loop import run
from controller.world.simulated.net import SimulatedNetwork

A, B, C = (TopicPartition("t", number) for number in range(3))
LEADER = Endpoint(host="leader", port=9092)


def at(offset: int) -> FetchPartition:
    return FetchPartition(fetch_offset=offset, max_bytes=100)


class Leader:
    """Answers each fetch with session 7 and nothing new; every third one is the last of its connection."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, list[int], list[int]]] = []

    async def serve(self, connection: Connection) -> None:
        frames = FrameBuffer()
        while data := await connection.recv():
            for frame in frames.feed(data):
                request = protocol.decode_request(frame)
                body = request.body
                named = [p.partition for topic in body.topics for p in topic.partitions]
                forgotten = [p for topic in body.forgotten_topics_data for p in topic.partitions]
                self.asked.append((body.session_id, body.session_epoch, named, forgotten))
                connection.send(protocol.encode_response(ApiKey.FETCH, 11, request.correlation_id, {"session_id": 7}))
                if len(self.asked) % 3 == 0:
                    return


def a_client(network: SimulatedNetwork) -> FetchClient:
    metadata: Any = SimpleNamespace(endpoint=lambda broker_id: LEADER)
    return FetchClient(
        BrokerId(2),
        BrokerId(1),
        "me",
        network=network.view("follower"),
        metadata=metadata,
        settings=ReplicaSettings(log_dirs=()),
    )


def test_a_session_ends_with_its_connection() -> None:
    async def main() -> None:
        network, leader = SimulatedNetwork(random.Random(1)), Leader()
        listener = await network.view("leader").listen(LEADER.host, LEADER.port, leader.serve)
        client = a_client(network)
        for wanted in ({A: at(0), B: at(0)}, {A: at(0), B: at(0)}, {A: at(4), C: at(0)}, {A: at(4), C: at(0)}):
            assert await client.exchange(wanted, max_wait_ms=500) == {}
            await asyncio.sleep(1)
        assert leader.asked == [(0, 0, [0, 1], []), (7, 1, [], []), (7, 2, [0, 2], [1]), (0, 0, [0, 2], [])]
        client.close()
        await listener.close()

    run(main())


class Forgetful:
    """A leader with one session, which it sometimes refuses or drops; now and then it has no place for one."""

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.epoch = chance, 0
        #: partition -> offset, as its session has them; None: there is none
        self.session: dict[TopicPartition, int] | None = None
        self.asked_for: dict[TopicPartition, int] = {}

    def answer(self, body: Any) -> dict[str, Any]:
        named = {TopicPartition(t.topic, p.partition): p.fetch_offset for t in body.topics for p in t.partitions}
        if body.session_epoch == 0:
            self.session, self.epoch = named, 1
        elif self.session is None:
            return {"error_code": ErrorCode.FETCH_SESSION_ID_NOT_FOUND}
        elif body.session_epoch != self.epoch:
            return {"error_code": ErrorCode.INVALID_FETCH_SESSION_EPOCH}
        else:
            self.epoch += 1
            self.session |= named
            for topic in body.forgotten_topics_data:
                for number in topic.partitions:
                    del self.session[TopicPartition(topic.topic, number)]
        self.asked_for = dict(self.session)
        if self.chance.random() < 0.2:
            self.session = None
            return {"session_id": 0 if self.chance.random() < 0.5 else 7}
        return {"session_id": 7}

    async def serve(self, connection: Connection) -> None:
        frames = FrameBuffer()
        while data := await connection.recv():
            for frame in frames.feed(data):
                request = protocol.decode_request(frame)
                answer = self.answer(request.body)
                connection.send(protocol.encode_response(ApiKey.FETCH, 11, request.correlation_id, answer))
                if self.chance.random() < 0.1:
                    return


@pytest.mark.parametrize("seed", range(5))
def test_a_leader_reads_what_is_wanted_now_whatever_became_of_the_session(seed: int) -> None:
    """Partitions come, go and move on; a refused session costs one fetch, and the next one is whole."""

    async def main() -> None:
        chance = random.Random(seed)
        network, leader = SimulatedNetwork(random.Random(1)), Forgetful(chance)
        listener = await network.view("leader").listen(LEADER.host, LEADER.port, leader.serve)
        client = a_client(network)
        wanted, refused = {A: at(0)}, False
        for number in range(200):
            if chance.random() < 0.7:
                wanted = {tp: at(chance.choice((0, number))) for tp in chance.sample((A, B, C), chance.randint(1, 3))}
            leader.asked_for = {}
            assert await client.exchange(wanted, max_wait_ms=500) == {}
            if leader.asked_for or refused:
                assert leader.asked_for == {tp: partition.fetch_offset for tp, partition in wanted.items()}
            refused = not leader.asked_for
            await asyncio.sleep(1)
        client.close()
        await listener.close()

    run(main())
