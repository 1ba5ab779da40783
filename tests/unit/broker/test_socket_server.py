"""A socket server and handlers of one's own: how requests end, whose requests faults strike, when peers are served."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from broker_sim.faults.board import FaultBoard
from broker_sim.server import Answer, Api, ApiTable, Call, CloseConnection, SocketServer
from broker_sim.server_limits import ServerLimits
from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode
from controller.wire.fault_rows import parse_row
from controller.wire.framing import FrameBuffer
from controller.wire.protocol import ApiKey, ProtocolError, decode_response, encode_request
from controller.wire.types import BrokerId
from controller.world.simulated.world import World, run_world

Handle = Callable[[Call], Awaitable[Answer]]


async def serving(world: World, apis: ApiTable, limits: ServerLimits | None = None) -> FaultBoard:
    """A server at `broker:1`; the faults that it is subject to."""
    machine, log = world.machine("broker"), structlog.get_logger()
    faults = FaultBoard(BrokerId(1), world.chance, clock=machine.clock, log=log)
    server = SocketServer(apis, limits=limits or ServerLimits(), faults=faults, log=log)
    await server.listen(machine.network, "broker", 1, listener="EX")
    server.serve_requests()
    return faults


async def asked(world: World, key: ApiKey, version: int, body: Any, client_id: str = "", on: Any = None) -> str:
    """What comes of a request: an answer or an error, nothing within a minute, or the end of its connection."""
    connection = on or await world.machine("peer").network.connect("broker", 1)
    connection.send(encode_request(key, version, 1, client_id, body))
    frames = FrameBuffer()
    try:
        async with asyncio.timeout(60):
            while data := await connection.recv():
                for frame in frames.feed(data):
                    code = getattr(decode_response(key, version, frame)[1], "error_code", 0)
                    return f"error {ErrorCode(code).name}" if code else "answer"
    except TimeoutError:
        return "nothing"
    return "end"


#: what a handler raises or returns -> what the peer sees of it
ENDS: list[tuple[str, Exception | Answer, str]] = [
    ("an answer", {}, "answer"),
    ("no answer", None, "nothing"),
    ("what Kafka answers by closing", CloseConnection("so it is"), "end"),
    ("a body that does not parse further", ProtocolError("no"), "end"),
    ("a file that cannot be read", OSError(5, "Input/output error"), "end"),
    ("an error in the code", RuntimeError("oh"), "end"),
    ("an answer that this version has no room for", {"api_keys": "none"}, "end"),
]


@pytest.mark.parametrize(("_", "outcome", "expected"), ENDS, ids=[each[0] for each in ENDS])
def test_each_request_has_one_end_which_concerns_its_connection_alone(
    _: str, outcome: Exception | Answer, expected: str
) -> None:
    async def play(world: World) -> None:
        async def handle(call: Call) -> Answer:
            if call.request.client_id != "special":
                return {}
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        await serving(world, {ApiKey.API_VERSIONS: Api(handle=handle, versions=(0, 0))})
        one, other = [await world.machine("peer").network.connect("broker", 1) for _ in range(2)]
        for connection in (one, other):
            assert await asked(world, ApiKey.API_VERSIONS, 0, {}, on=connection) == "answer"
        assert await asked(world, ApiKey.API_VERSIONS, 0, {}, "special", one) == expected
        again = "end" if expected == "end" else "answer"
        for connection, what in ((one, again), (other, "answer")):
            assert await asked(world, ApiKey.API_VERSIONS, 0, {}, on=connection) == what

    with capture_logs() as logs:
        run_world(7, play)
    failed = [(line["api"], line["version"], line["client_id"]) for line in logs if line["event"] == ev.REQUEST_FAILED]
    is_bug = isinstance(outcome, RuntimeError) or outcome == {"api_keys": "none"}
    assert failed == ([("API_VERSIONS", 0, "special")] if is_bug else [])


#: requests that say who sends them: the API, a version, the body's other fields, and where it says so
SENDERS: list[tuple[ApiKey, int, dict[str, Any], str]] = [
    (ApiKey.FETCH, 7, {"max_wait": 0, "min_bytes": 0, "max_bytes": 1, "topics": []}, "replica_id"),
    (ApiKey.CONTROLLED_SHUTDOWN, 1, {}, "broker_id"),
    (ApiKey.STOP_REPLICA, 0, {"controller_epoch": 1, "delete_partitions": False, "ungrouped_partitions": []},
     "controller_id"),
]  # fmt: skip


#: what a fault does, what comes of a request that it strikes
STRUCK = {"drop": "end", "error": "error NOT_CONTROLLER", "delay": "answer"}


@pytest.mark.parametrize("action", STRUCK)
@pytest.mark.parametrize(("key", "version", "fields", "name"), SENDERS, ids=[row[3] for row in SENDERS])
def test_a_fault_strikes_the_requests_of_whom_it_names(
    key: ApiKey, version: int, fields: dict[str, Any], name: str, action: str
) -> None:
    """-1 is that of a client, whom no row names by a number. An error is answered when the request is carried out."""

    async def play(world: World) -> None:
        carried_out: list[int] = []

        async def handle(call: Call) -> Answer:
            carried_out.append(getattr(call.body, name))
            return {}

        faults = await serving(world, {key: Api(handle=handle, versions=(version, version))})
        code = {"error": {"error_code": "NOT_CONTROLLER"}, "delay": {"delay_ms": 500}}.get(action, {})
        api = "".join(part.title() for part in key.name.split("_"))
        for sender in (None, 0, 3):
            faults.replace([parse_row({"fault": "api", "api": api, "action": action, "sender": sender, **code})])
            for who in (-1, 0, 3):
                is_struck = sender is None or who == sender
                carried_out.clear()
                begun_s = world.loop.time()
                ends = await asked(world, key, version, {**fields, name: who})
                expected = STRUCK[action] if is_struck else "answer"
                assert (ends, carried_out) == (expected, [] if expected == "end" else [who])
                took_s = 0.5 if is_struck and action == "delay" else 0
                assert world.loop.time() - begun_s == pytest.approx(took_s, abs=0.05)

    run_world(7, play)


def test_peers_that_come_faster_than_they_may_are_served_one_after_another() -> None:
    async def play(world: World) -> None:
        async def handle(_: Call) -> Answer:
            return {}

        apis = {ApiKey.API_VERSIONS: Api(handle=handle, versions=(0, 0))}
        await serving(world, apis, ServerLimits(max_connection_creation_rate=2))
        begun_s, times = world.loop.time(), list[float]()

        async def ask() -> None:
            assert await asked(world, ApiKey.API_VERSIONS, 0, {}) == "answer"
            times.append(world.loop.time() - begun_s)

        await asyncio.gather(*(ask() for _ in range(5)))
        assert times == pytest.approx([0, 0, 0.5, 1, 1.5], abs=0.05)

    run_world(7, play)
