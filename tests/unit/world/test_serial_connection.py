"""Connections, of one task or of several: each answer is that of its request, and whatever else comes ends it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from controller.wire import protocol
from controller.wire.framing import FrameBuffer, frame
from controller.wire.protocol import ApiKey
from controller.world import client
from controller.world.client import PIECE_BYTES, BrokerConnection, Disconnected, SerialConnection
from controller.world.ports import Connection
from controller.world.simulated.loop import run
from controller.world.simulated.net import SimulatedNetwork

ASKED = ApiKey.FETCH, 11, {"session_id": 7}


def answer(correlation_id: int, session_id: int = 7) -> bytes:
    return protocol.encode_response(ApiKey.FETCH, 11, correlation_id, {"session_id": session_id})


def play(
    serve: Callable[[Connection], Awaitable[None]],
    ask: Callable[[Any], Awaitable[None]],
    kind: type[SerialConnection] | type[BrokerConnection] = SerialConnection,
) -> None:
    async def main() -> None:
        network = SimulatedNetwork(random.Random(1))
        listener = await network.view("b").listen("b", 9092, serve)
        connection = await kind.open(network.view("a"), "b", 9092, client_id="me")
        await ask(connection)
        connection.close()
        await listener.close()

    run(main())


async def serve_all(connection: Connection) -> None:
    frames = FrameBuffer()
    while data := await connection.recv():
        for request in frames.feed(data):
            number = protocol.decode_request(request).correlation_id
            connection.send(answer(number, session_id=100 + number))


def test_each_call_gets_the_answer_to_its_request() -> None:
    async def ask(connection: SerialConnection) -> None:
        for number in (1, 2, 3):
            assert (await connection.call(*ASKED)).session_id == 100 + number
        assert connection.is_open and connection.waits_for is None

    play(serve_all, ask)


@pytest.mark.parametrize("kind", [SerialConnection, BrokerConnection])
def test_correlation_ids_begin_anew_after_the_last_one(
    kind: type[SerialConnection] | type[BrokerConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have 32 bits and a sign."""
    assert client._LAST_CORRELATION_ID == 2**31 - 1
    monkeypatch.setattr(client, "_LAST_CORRELATION_ID", 2)

    async def ask(connection: SerialConnection | BrokerConnection) -> None:
        assert [(await connection.call(*ASKED)).session_id - 100 for _ in range(5)] == [1, 2, 1, 2, 1]

    play(serve_all, ask, kind)


@pytest.mark.parametrize("kind", [SerialConnection, BrokerConnection])
@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        pytest.param(answer(2), "answer to request 2, which is not waiting", id="an answer to another request"),
        pytest.param(answer(3) + answer(1), "answer to request 3, which is not waiting", id="two answers"),
        pytest.param(frame(b"\0\0\0\1short"), "does not parse", id="what does not parse"),
        pytest.param(b"\xff\xff\xff\xff", "frame of -1 bytes", id="no frame"),
        pytest.param(b"", "closed the connection", id="the end of the stream"),
    ],
)
def test_what_is_no_answer_ends_the_connection(
    kind: type[SerialConnection] | type[BrokerConnection], sent: bytes, reason: str
) -> None:
    async def serve(connection: Connection) -> None:
        await connection.recv()
        connection.send(sent)

    async def ask(connection: SerialConnection | BrokerConnection) -> None:
        with pytest.raises(Disconnected, match=reason):
            await connection.call(*ASKED)
        assert not connection.is_open
        with pytest.raises(Disconnected, match="is closed"):
            await connection.call(*ASKED)

    play(serve, ask, kind)


def test_an_answer_too_many_ends_the_connection_behind_that_of_the_call() -> None:
    """Who has one task knows at once that the answer may be another's."""

    async def serve(connection: Connection) -> None:
        await connection.recv()
        connection.send(answer(1) + answer(2))

    async def ask(connection: SerialConnection) -> None:
        with pytest.raises(Disconnected):
            await connection.call(*ASKED)
        assert not connection.is_open

    async def ask_as_many(connection: BrokerConnection) -> None:
        assert (await connection.call(*ASKED)).session_id == 7
        await asyncio.sleep(0)
        assert not connection.is_open

    play(serve, ask)
    play(serve, ask_as_many, BrokerConnection)


def test_a_peer_that_goes_between_two_calls_is_noticed_before_the_next() -> None:
    async def serve(connection: Connection) -> None:
        await connection.recv()
        connection.send(answer(1))

    async def ask(connection: SerialConnection) -> None:
        await connection.call(*ASKED)
        await asyncio.sleep(1)
        assert not connection.is_open

    play(serve, ask)


@pytest.mark.parametrize("kind", [SerialConnection, BrokerConnection])
def test_no_answer_in_time_ends_it(kind: type[SerialConnection] | type[BrokerConnection]) -> None:
    """Later answers could not be told from this one's; the peer sees the end of the stream."""
    ended: list[float] = []

    async def serve(connection: Connection) -> None:
        while await connection.recv():
            pass
        ended.append(asyncio.get_running_loop().time())

    async def ask(connection: SerialConnection | BrokerConnection) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(TimeoutError):
            await connection.call(*ASKED, timeout_s=3.0)
        assert loop.time() - began == pytest.approx(3.0, abs=0.01)
        await asyncio.sleep(1)
        assert not connection.is_open and ended == [pytest.approx(began + 3.0, abs=0.1)]

    play(serve, ask, kind)


class Late:
    """A connection whose answer arrives though it was closed meanwhile, as on a slow link."""

    peer, is_open = "late", True

    def __init__(self) -> None:
        self.arrives = asyncio.Event()

    def send(self, data: bytes) -> None:
        """It is never full."""

    async def drain(self) -> None:
        """It is never full."""

    async def recv(self) -> bytes:
        await self.arrives.wait()
        return answer(1)

    def close(self) -> None:
        self.arrives.set()


def test_closing_it_ends_the_call_even_if_the_answer_comes_then() -> None:
    async def main() -> None:
        connection = SerialConnection(Late(), "me")
        call = asyncio.ensure_future(connection.call(*ASKED))
        await asyncio.sleep(0)
        assert connection.waits_for == 1
        connection.close()
        with pytest.raises(Disconnected):
            await call

    run(main())


def test_a_long_request_waits_piece_by_piece_for_a_peer_that_does_not_read() -> None:
    class Full(Late):
        sent = b""

        def send(self, data: bytes) -> None:
            self.sent += data

        async def drain(self) -> None:
            await self.arrives.wait()

    async def main() -> None:
        peer = Full()
        call = asyncio.ensure_future(SerialConnection(peer, "me").call(ApiKey.FETCH, 11, bytes(3 * PIECE_BYTES)))
        await asyncio.sleep(10)
        assert len(peer.sent) == PIECE_BYTES
        peer.arrives.set()
        assert (await call).session_id == 7 and len(peer.sent) > 3 * PIECE_BYTES

    run(main())
