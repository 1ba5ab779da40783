"""The way out of a broker: whom it asks, how often, and when it may go. Source: spec broker.md §4.1."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from broker_sim.config import BrokerSettings
from broker_sim.shutdown import ControlledShutdown
from controller.wire import protocol
from controller.wire.errors import ErrorCode
from controller.wire.framing import FrameBuffer
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, Endpoint
from controller.world.simulated.world import World, run_world

GRANTED: dict[str, Any] = {"error_code": 0, "remaining_partitions": []}
LEFT: dict[str, Any] = {"error_code": 0, "remaining_partitions": [{"topic_name": "t", "partition_index": 0}]}
NOT_CONTROLLER: dict[str, Any] = {"error_code": int(ErrorCode.STALE_CONTROLLER_EPOCH), "remaining_partitions": []}
#: The connection is closed instead of an answer; there is no answer; no controller is known.
BREAKS, SILENT, NOBODY = "breaks", "silent", "nobody"
BACKOFF_S = 5.0
#: Other times than anybody takes of itself: how long a connection, and an answer, is waited for.
CONNECT_S, ANSWER_S = 20.0, 31.0
SETTINGS = BrokerSettings(request_timeout_ms=31_000, controller_socket_timeout_ms=20_000)


class Controllers:
    """Answers attempt after attempt from a list; each answer is (controller that is asked, what it says)."""

    def __init__(self, world: World, answers: list[tuple[int, Any]]) -> None:
        self.world, self.answers = world, answers
        self.asked: list[tuple[int, Any]] = []
        self.connections, self.open, self.most_open = 0, 0, 0

    @property
    def controller_id(self) -> BrokerId | None:
        return None if self.answers[0][1] is NOBODY else BrokerId(self.answers[0][0])

    @property
    def controller_endpoint(self) -> Endpoint | None:
        number, answer = self._now()
        return None if answer is NOBODY else Endpoint(host=f"controller-{number}", port=1)

    def _now(self) -> tuple[int, Any]:
        if self.answers[0][1] is NOBODY:
            self.asked.append((0, None))
            return self.answers.pop(0)
        return self.answers[0]

    async def listen(self, number: int) -> None:
        network = self.world.machine(f"controller-{number}").network
        await network.listen(f"controller-{number}", 1, lambda connection: self.serve(number, connection))

    async def serve(self, number: int, connection: Any) -> None:
        self.connections += 1
        self.open += 1
        self.most_open = max(self.open, self.most_open)
        try:
            await self.answer_all(number, connection)
        finally:
            self.open -= 1

    async def answer_all(self, number: int, connection: Any) -> None:
        frames = FrameBuffer()
        while data := await connection.recv():
            for frame in frames.feed(data):
                request = protocol.decode_request(frame)
                assert (request.api_key, request.api_version) == (ApiKey.CONTROLLED_SHUTDOWN, 3)
                assert (request.client_id, request.body.broker_id) == ("7", 7)
                self.asked.append((number, request.body.broker_epoch))
                _, answer = self.answers.pop(0)
                if answer is BREAKS:
                    connection.close()
                    return
                if answer is not SILENT:
                    frame = protocol.encode_response(ApiKey.CONTROLLED_SHUTDOWN, 3, request.correlation_id, answer)
                    connection.send(frame)


CASES = [
    ("granted at once", [(1, GRANTED)], True, 0, 1),
    ("partitions are left, then granted", [(1, LEFT), (1, GRANTED)], True, 1, 1),
    ("the controller has moved", [(1, NOT_CONTROLLER), (2, GRANTED)], True, 1, 2),
    ("the connection breaks", [(1, BREAKS), (1, GRANTED)], True, 1, 2),
    ("there is no answer", [(1, SILENT), (1, GRANTED)], True, 1, 2),
    ("nobody is known at first", [(0, NOBODY), (1, GRANTED)], True, 1, 1),
    ("never, and no wait after the last attempt", [(1, LEFT), (1, LEFT), (1, LEFT)], False, 2, 1),
]


def shutdown_of(controllers: Any, epoch: Callable[[], int], network: Any) -> ControlledShutdown:
    return ControlledShutdown(
        BrokerId(7),
        epoch,
        metadata=controllers,
        network=network,
        settings=SETTINGS,
        log=structlog.get_logger(),
    )


@pytest.mark.parametrize(("_", "answers", "goes", "waits", "connections"), CASES, ids=[case[0] for case in CASES])
def test_attempts(_: str, answers: list[tuple[int, Any]], goes: bool, waits: int, connections: int) -> None:
    async def scenario(world: World) -> None:
        controllers = Controllers(world, list(answers))
        for number in (1, 2):
            await controllers.listen(number)
        epochs = iter(range(40, 50))
        shutdown = shutdown_of(controllers, lambda: next(epochs), world.machine("broker").network)
        before, silent = world.loop.time(), [answer for _, answer in answers].count(SILENT)
        assert await shutdown.run() is goes
        assert world.loop.time() - before == pytest.approx(waits * BACKOFF_S + silent * ANSWER_S, abs=0.5)
        assert len(controllers.asked) == len(answers)
        asked = [epoch for _, epoch in controllers.asked if epoch is not None]
        assert asked == list(range(40, 40 + len(asked))), "each attempt has the epoch of its time"
        await world.sleep(1)
        opened = (controllers.connections, controllers.most_open, controllers.open)
        assert opened == (connections, min(connections, 1), 0), "one after the other, and none stays"

    with capture_logs() as logs:
        run_world(1, scenario)
    refused = [line for line in logs if line["event"] == "broker.shutdown_refused"]
    assert [line["attempts_left"] for line in refused] == [2, 1, 0][: len(refused)]
    assert all(line["reason"].rpartition(": ")[2] for line in refused), "each says why"
    assert len(refused) == len(answers) - goes


def test_a_controller_that_is_not_reached_is_given_up_each_time_after_the_time_of_a_connection() -> None:
    async def scenario(world: World) -> None:
        async def connect(*_: Any) -> Any:
            await asyncio.Event().wait()

        controllers, before = Controllers(world, [(1, GRANTED)]), world.loop.time()
        assert not await shutdown_of(controllers, lambda: 40, SimpleNamespace(connect=connect)).run()
        assert world.loop.time() - before == pytest.approx(3 * CONNECT_S + 2 * BACKOFF_S, abs=0.5)

    run_world(1, scenario)
