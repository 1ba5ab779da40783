"""Requests on one connection leave in the order in which they were asked, whole, however long one of them is."""

from __future__ import annotations

import asyncio

from controller.wire import protocol
from controller.wire.framing import FrameBuffer
from controller.wire.protocol import ApiKey
from controller.world.client import PIECE_BYTES, BrokerConnection, Disconnected


class SlowPeer:
    """A connection whose other end takes a piece at each turn, and never answers."""

    def __init__(self) -> None:
        self.sent = b""
        self.turns: list[asyncio.Future[None]] = []
        self.closed = asyncio.Event()
        self.peer = "peer"

    def send(self, data: bytes) -> None:
        self.sent += data

    async def drain(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.turns.append(turn)
        await turn

    async def recv(self) -> bytes:
        await self.closed.wait()
        return b""

    def close(self) -> None:
        self.closed.set()


def test_a_short_request_does_not_pass_those_that_wait_behind_a_long_one() -> None:
    async def main() -> None:
        peer = SlowPeer()
        connection = BrokerConnection(peer, "test")
        long = bytes(PIECE_BYTES + 1000)
        calls = [
            asyncio.ensure_future(connection.call(ApiKey.METADATA, 0, body))
            for body in (long, b"\0\0\0\0", b"\0\0\0\1\0\1a")
        ]
        while len(peer.turns) < 2 or not all(turn.done() for turn in peer.turns):
            await asyncio.sleep(0)
            for turn in peer.turns:
                if not turn.done():
                    turn.set_result(None)
        calls.append(asyncio.ensure_future(connection.call(ApiKey.METADATA, 0, b"\0\0\0\0")))
        for _ in range(10):
            await asyncio.sleep(0)
        frames = list(FrameBuffer().feed(peer.sent))
        assert [protocol.peek_header(frame)[2] for frame in frames] == [1, 2, 3, 4]
        connection.close()
        assert all(isinstance(found, Disconnected) for found in await asyncio.gather(*calls, return_exceptions=True))

    asyncio.run(main())
