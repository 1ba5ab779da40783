"""The way out of a broker: whom it asks, how often, and when it may go. Source: spec broker.md §4.1."""

from __future__ import annotations

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
#: The connection is closed instead of an answer; no controller is known.
BREAKS, NOBODY = "breaks", "nobody"
BACKOFF_S = 5.0


class Controllers:
    """Answers attempt after attempt from a list; each answer is (controller that is asked, what it says)."""

    def __init__(self, world: World, answers: list[tuple[int, Any]]) -> None:
        self.world, self.answers = world, answers
        self.asked: list[tuple[int, Any]] = []
        self.connections = 0

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
                connection.send(protocol.encode_response(ApiKey.CONTROLLED_SHUTDOWN, 3, request.correlation_id, answer))


CASES = [
    ("granted at once", [(1, GRANTED)], True, 0, 1),
    ("partitions are left, then granted", [(1, LEFT), (1, GRANTED)], True, 1, 1),
    ("the controller has moved", [(1, NOT_CONTROLLER), (2, GRANTED)], True, 1, 2),
    ("the connection breaks", [(1, BREAKS), (1, GRANTED)], True, 1, 2),
    ("nobody is known at first", [(0, NOBODY), (1, GRANTED)], True, 1, 1),
    ("never, and no wait after the last attempt", [(1, LEFT), (1, LEFT), (1, LEFT)], False, 2, 1),
]


@pytest.mark.parametrize(("_", "answers", "goes", "waits", "connections"), CASES, ids=[case[0] for case in CASES])
def test_attempts(_: str, answers: list[tuple[int, Any]], goes: bool, waits: int, connections: int) -> None:
    async def scenario(world: World) -> None:
        controllers = Controllers(world, list(answers))
        for number in (1, 2):
            await controllers.listen(number)
        epochs = iter(range(40, 50))
        shutdown = ControlledShutdown(
            BrokerId(7),
            lambda: next(epochs),
            metadata=controllers,
            network=world.machine("broker").network,
            settings=BrokerSettings(),
            log=structlog.get_logger(),
        )
        before = world.loop.time()
        assert await shutdown.run() is goes
        assert world.loop.time() - before == pytest.approx(waits * BACKOFF_S, abs=1)
        assert len(controllers.asked) == len(answers)
        asked = [epoch for _, epoch in controllers.asked if epoch is not None]
        assert asked == list(range(40, 40 + len(asked))), "each attempt has the epoch of its time"
        assert controllers.connections == connections

    with capture_logs() as logs:
        run_world(1, scenario)
    refused = [line for line in logs if line["event"] == "broker.shutdown_refused"]
    assert [line["attempts_left"] for line in refused] == [2, 1, 0][: len(refused)]
    assert all(line["reason"] for line in refused)
    assert len(refused) == len(answers) - goes
