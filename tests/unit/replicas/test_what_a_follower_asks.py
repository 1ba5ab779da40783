"""Every request of a follower as it is on the wire, and what it makes of each answer; who answers too late."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from broker_sim.config import ReplicaSettings
from broker_sim.replicas.fetch_client import FetchClient, FetchRefused, LeaderUnreachable
from broker_sim.replicas.types import EpochEnd, FetchPartition, FetchResult
from controller.wire import protocol
from controller.wire.errors import ErrorCode
from controller.wire.framing import FrameBuffer
from controller.wire.types import BrokerId, Endpoint, TopicPartition
from controller.world.ports import Connection
from controller.world.simulated.loop import run
from controller.world.simulated.net import SimulatedNetwork

A, B, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 3)
LEADER = Endpoint(host="leader", port=9092)


class Scene:
    """A follower and a leader that answers from a list; None: not at all."""

    def __init__(self, **settings: Any) -> None:
        self.asked: list[Any] = []
        self.answers: list[Mapping[str, Any] | None] = []
        self.connections = 0
        self.endpoint: Endpoint | None = LEADER
        self._network = SimulatedNetwork(random.Random(1))
        metadata: Any = SimpleNamespace(endpoint=lambda broker_id: self.endpoint if broker_id == 1 else None)
        self.client = FetchClient(
            BrokerId(2), BrokerId(1), "broker-2-fetcher-0", network=self._network.view("follower"), metadata=metadata,
            settings=ReplicaSettings(
                log_dirs=(), replica_fetch_min_bytes=3, replica_fetch_response_max_bytes=777, **settings
            ),
        )  # fmt: skip

    async def __aenter__(self) -> Scene:
        self._listener = await self._network.view("leader").listen(LEADER.host, LEADER.port, self._serve)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.client.close()
        self.client.close()
        await self._listener.close()

    async def _serve(self, connection: Connection) -> None:
        self.connections += 1
        frames = FrameBuffer()
        while data := await connection.recv():
            for frame in frames.feed(data):
                request = protocol.decode_request(frame)
                self.asked.append(request)
                body = self.answers.pop(0)
                if body is not None:
                    head = request.api_key, request.api_version, request.correlation_id
                    connection.send(protocol.encode_response(*head, body))

    @property
    def last(self) -> tuple[str, int, str | None, Any]:
        """Which request, of which version, from whom; its body."""
        request = self.asked[-1]
        return request.api_key.name, request.api_version, request.client_id, protocol.plain(request.body)


def wanted(epoch: int = 4, **offsets: int) -> dict[TopicPartition, FetchPartition]:
    names = {"a": A, "b": B, "other": OTHER}
    return {names[name]: FetchPartition(offset, 100, epoch, 2) for name, offset in offsets.items()}


def row(number: int, offset: int) -> dict[str, int]:
    return {
        "partition": number, "current_leader_epoch": 4, "fetch_offset": offset, "log_start_offset": 2,
        "partition_max_bytes": 100,
    }  # fmt: skip


def test_a_fetch_and_what_is_read_of_its_answer() -> None:
    async def main() -> None:
        async with Scene() as scene:
            one = {
                "partition_index": 1, "error_code": 0, "high_watermark": 7, "last_stable_offset": 6,
                "log_start_offset": 5, "records": b"xyz",
            }  # fmt: skip
            two = {"partition_index": 3, "error_code": 6, "records": None}
            topics = [{"topic": "t", "partitions": [one]}, {"topic": "u", "partitions": [two]}]
            scene.answers = [{"session_id": 9, "responses": topics}]
            found = await scene.client.exchange(wanted(a=1, other=3, b=2), max_wait_ms=444)
            assert scene.last[:3] == ("FETCH", 11, "broker-2-fetcher-0")
            body = scene.last[3]
            assert {name: body[name] for name in ("replica_id", "max_wait", "min_bytes", "max_bytes")} == {
                "replica_id": 2, "max_wait": 444, "min_bytes": 3, "max_bytes": 777,
            }  # fmt: skip
            assert (body["session_id"], body["session_epoch"]) == (0, 0)
            assert [(t["topic"], list(t["partitions"])) for t in body["topics"]] == [
                ("t", [row(0, 1), row(1, 2)]), ("u", [row(3, 3)]),
            ]  # fmt: skip
            assert list(body["forgotten_topics_data"]) == []
            assert found[B] == FetchResult(ErrorCode.NONE, 7, 6, 5, b"xyz")
            assert (found[OTHER].error, found[OTHER].records) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")
            assert set(found) == {B, OTHER}

    run(main())


#: what the leader answers -> the session and its epoch of the next fetch, whether it has all partitions, and whether
#: the answer is an error
SESSIONS = [
    ({"session_id": 9}, (9, 3), False, False),
    ({"session_id": 0}, (0, 0), True, False),
    ({"session_id": 8}, (8, 3), False, False),
    ({"error_code": ErrorCode.FETCH_SESSION_ID_NOT_FOUND}, (0, 0), True, False),
    ({"error_code": ErrorCode.INVALID_FETCH_SESSION_EPOCH}, (9, 0), True, False),
    ({"error_code": ErrorCode.UNKNOWN_SERVER_ERROR}, (9, 0), True, True),
]


@pytest.mark.parametrize(("answer", "session", "is_full", "is_error"), SESSIONS)
def test_a_session_goes_on_or_ends(answer: Any, session: Any, is_full: bool, is_error: bool) -> None:
    async def main() -> None:
        async with Scene() as scene:
            scene.answers = [{"session_id": 9}, {"session_id": 9}, answer, {"session_id": 9}]
            for _ in range(2):
                assert await scene.client.exchange(wanted(a=1, b=2), max_wait_ms=1) == {}
            assert [(r.body.session_id, r.body.session_epoch, len(r.body.topics)) for r in scene.asked] == [
                (0, 0, 1), (9, 1, 0),
            ]  # fmt: skip
            if is_error:
                with pytest.raises(FetchRefused, match="UNKNOWN_SERVER_ERROR"):
                    await scene.client.exchange(wanted(a=1, other=2), max_wait_ms=1)
            else:
                assert await scene.client.exchange(wanted(a=1, other=2), max_wait_ms=1) == {}
            changed = scene.last[3]
            assert [(t["topic"], len(t["partitions"])) for t in changed["topics"]] == [("u", 1)]
            assert [(t["topic"], list(t["partitions"])) for t in changed["forgotten_topics_data"]] == [("t", [1])]
            await scene.client.exchange(wanted(a=1, other=2), max_wait_ms=1)
            body = scene.last[3]
            assert (body["session_id"], body["session_epoch"]) == session
            assert [t["topic"] for t in body["topics"]] == (["t", "u"] if is_full else [])
            assert list(body["forgotten_topics_data"]) == [] and scene.connections == 1

    run(main())


def test_epochs_and_offsets() -> None:
    async def main() -> None:
        async with Scene() as scene:
            ends = [
                {"topic": "t", "partitions": [{"partition": 0, "error_code": 0, "leader_epoch": 5, "end_offset": 8}]},
                {
                    "topic": "u",
                    "partitions": [{"partition": 3, "error_code": 74, "leader_epoch": -1, "end_offset": -1}],
                },
            ]
            offset = [{"partition_index": 0, "error_code": 0, "timestamp": -1, "offset": 77}]
            scene.answers = [{"topics": ends}, {"topics": [{"name": "t", "partitions": offset}]}, {"topics": []}]
            assert await scene.client.epoch_ends({A: (4, 6), OTHER: (5, 7)}) == {
                A: EpochEnd(leader_epoch=5, end_offset=8), OTHER: EpochEnd(error=ErrorCode.FENCED_LEADER_EPOCH),
            }  # fmt: skip
            asked = [("t", 0, 4, 6), ("u", 3, 5, 7)]
            topics = [
                {"topic": t, "partitions": ({"partition": p, "current_leader_epoch": current, "leader_epoch": epoch},)}
                for t, p, current, epoch in asked
            ]
            name, version, _, body = scene.last
            assert (name, version, body["replica_id"]) == ("OFFSET_FOR_LEADER_EPOCH", 3, 2)
            assert [{**topic, "partitions": tuple(topic["partitions"])} for topic in body["topics"]] == topics
            found = await scene.client.list_offset(A, current_leader_epoch=4, timestamp=-2)
            assert found == (ErrorCode.NONE, 77)
            name, version, _, body = scene.last
            assert (name, version, body["replica_id"]) == ("LIST_OFFSETS", 5, 2)
            (topic,) = body["topics"]
            (partition,) = topic["partitions"]
            fields = "partition_index", "current_leader_epoch", "timestamp"
            assert (topic["name"], *(partition[field] for field in fields)) == ("t", 0, 4, -2)
            found = await scene.client.list_offset(A, current_leader_epoch=4, timestamp=-2)
            assert found == (ErrorCode.UNKNOWN_SERVER_ERROR, -1)

    run(main())


def test_a_leader_that_does_not_answer_is_waited_for_so_long_and_asked_anew_over_another_connection() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with Scene(replica_socket_timeout_ms=40_000) as scene:
            scene.answers = [None, None, None, {"session_id": 9}]
            for ask in (
                lambda: scene.client.exchange(wanted(a=1), max_wait_ms=1),
                lambda: scene.client.epoch_ends({A: (4, 6)}),
                lambda: scene.client.list_offset(A, current_leader_epoch=4, timestamp=-2),
            ):
                began = loop.time()
                with pytest.raises(OSError):
                    await ask()
                assert loop.time() - began == pytest.approx(40, abs=0.02)
            await scene.client.exchange(wanted(a=1), max_wait_ms=1)
            assert scene.connections == 4
            scene.client.close()
            scene.endpoint = None
            with pytest.raises(LeaderUnreachable, match="broker 1 is not alive"):
                await scene.client.exchange(wanted(a=1), max_wait_ms=1)

    run(main())
