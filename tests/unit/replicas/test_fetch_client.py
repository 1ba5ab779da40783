"""What a follower asks its leader for: all of it at first and on a new connection, then what changed."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

from broker_sim.config import ReplicaSettings
from broker_sim.replicas.fetch_client import FetchClient
from broker_sim.replicas.types import FetchPartition
from controller.wire import protocol
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


def test_a_session_ends_with_its_connection() -> None:
    async def main() -> None:
        network, leader = SimulatedNetwork(random.Random(1)), Leader()
        listener = await network.view("leader").listen(LEADER.host, LEADER.port, leader.serve)
        metadata: Any = SimpleNamespace(endpoint=lambda broker_id: LEADER)
        client = FetchClient(
            BrokerId(2),
            BrokerId(1),
            "me",
            network=network.view("follower"),
            metadata=metadata,
            settings=ReplicaSettings(log_dirs=()),
        )
        for wanted in ({A: at(0), B: at(0)}, {A: at(0), B: at(0)}, {A: at(4), C: at(0)}, {A: at(4), C: at(0)}):
            assert await client.exchange(wanted, max_wait_ms=500) == {}
            await asyncio.sleep(1)
        assert leader.asked == [(0, 0, [0, 1], []), (7, 1, [], []), (7, 2, [0, 2], [1]), (0, 0, [0, 2], [])]
        client.close()
        await listener.close()

    run(main())
