"""A ZooKeeper that takes a connection and drops it, or lets it wait, as one that starts, loses its quorum, or refuses a
request: kazoo's thread and the event loop never wait for each other, and a session that is closed ends."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, BinaryIO, Final

import pytest
from kazoo.handlers.threading import SequentialThreadingHandler

from controller.wire.zk_operations import SetData, ZkCode, ZkUnreachable
from controller.world.real.zookeeper import IN_FLIGHT_MAX, KazooConnector, KazooSession

LIMIT_S: Final = 20.0
_INT: Final = struct.Struct(">i")
_HEADER: Final = struct.Struct(">ii")
_CONNECTED: Final = struct.pack(">iiqi", 0, 6_000, 7, 16) + b"p" * 16 + b"\0"
_SET_DATA, _CLOSE = 5, -11
_STAT: Final = b"\0" * 68
#: Where the data of a write to `/a` begin in its frame.
_DATA: Final = _HEADER.size + _INT.size + len("/a") + _INT.size


class Server:
    """Answers each connection's handshake when `greets` lets it, and drops those whose number is in `drops` once so
    many of their writes are done, in the middle of an answer; all the others' writes are. Its threads end with the
    test."""

    def __init__(self, drops: Mapping[int, int]) -> None:
        self.drops = drops
        #: Of each connection what was written, in order.
        self.done: list[list[bytes]] = []
        self.greets = threading.Semaphore(0)
        self.greeted = 0
        self.asked = threading.Semaphore(0)
        self.closed = threading.Event()
        self._last: socket.socket
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = "{}:{}".format(*self._listening.getsockname())
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._last = connection
            with connection, connection.makefile("rb") as file, contextlib.suppress(OSError):
                self._converse(connection, file)

    def _converse(self, connection: socket.socket, file: BinaryIO) -> None:
        self._frame(file)
        self.asked.release()
        self.greets.acquire()
        self.greeted += 1
        connection.sendall(_INT.pack(len(_CONNECTED)) + _CONNECTED)
        self.done.append([])
        while len(self.done[-1]) != self.drops.get(self.greeted) and (frame := self._frame(file)):
            xid, kind = _HEADER.unpack_from(frame)
            if kind == _CLOSE:
                self.closed.set()
            elif kind == _SET_DATA:
                self.done[-1].append(frame[_DATA : -_INT.size])
            reply = struct.pack(">iqi", xid, 1, 0) + (_STAT if kind == _SET_DATA else b"")
            connection.sendall(_INT.pack(len(reply)) + reply)
            if kind == _CLOSE:
                return
        connection.sendall(_INT.pack(100) + b"the begin of an answer")
        connection.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def _frame(file: BinaryIO) -> bytes:
        size = file.read(_INT.size)
        return file.read(_INT.unpack(size)[0]) if len(size) == _INT.size else b""

    async def is_asked(self) -> None:
        """Waits for the next handshake."""
        assert await asyncio.to_thread(self.asked.acquire, timeout=LIMIT_S)

    def stop(self) -> None:
        """Drops what it has."""
        self._listening.close()
        self.greets.release(100)
        with contextlib.suppress(OSError):
            self._last.shutdown(socket.SHUT_RDWR)


def run(play: Callable[[Server], Coroutine[Any, Any, None]], *, drops: Mapping[int, int]) -> Server:
    """Plays it on an event loop in a thread of its own, as a loop that stands still ends no test."""
    server, ended = Server(drops), threading.Event()

    async def main() -> None:
        await play(server)
        ended.set()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    server.stop()
    assert ended.is_set(), "the event loop stands still, or kazoo's thread does"
    return server


async def connected(server: Server) -> KazooSession:
    """A session, on its first connection."""
    connector = KazooConnector(server.address, session_timeout_ms=6_000, requests_in_flight=IN_FLIGHT_MAX)
    server.greets.release()
    session = await connector.connect(on_watch=lambda event: None, on_expired=lambda: None)
    await server.is_asked()
    return session


@pytest.mark.parametrize("padding", [b"", b"x" * 10_000], ids=["small", "large"])
def test_what_waits_while_connections_are_dropped_is_done_at_last_in_the_order_in_which_it_was_asked_for(
    padding: bytes,
) -> None:
    numbers = itertools.count()

    def asked() -> list[SetData]:
        return [SetData("/a", b"%06d" % next(numbers) + padding) for _ in range(2 * IN_FLIGHT_MAX)]

    async def play(server: Server) -> None:
        session, calls = await connected(server), []
        for _ in server.drops:  # the one that was just dropped, then those after it
            await server.is_asked()
            calls.append(asyncio.ensure_future(session.perform(asked())))
            await asyncio.sleep(0)  # so much is handed to kazoo while there is no connection
            server.greets.release()
        done = [result.code for results in await asyncio.gather(*calls) for result in results]
        assert done == [ZkCode.OK] * len(server.drops) * 2 * IN_FLIGHT_MAX
        await session.close()

    server = run(play, drops={1: 0, 2: 0, 3: 7, 4: 0, 5: 1})
    assert server.closed.is_set()
    assert all(done == sorted(done) for done in server.done)
    assert {data for done in server.done for data in done} == {b"%06d" % n + padding for n in range(next(numbers))}


def greets_when_told_to_stop(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next handshake is answered once kazoo knows that the session is to end, and before it waits for that."""
    stop = SequentialThreadingHandler.stop

    def greet_and_stop(handler: SequentialThreadingHandler) -> None:
        server.greets.release()
        stop(handler)

    monkeypatch.setattr(SequentialThreadingHandler, "stop", greet_and_stop)


def test_a_session_ends_that_is_closed_while_it_connects_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(server: Server) -> None:
        session = await connected(server)
        await server.is_asked()
        greets_when_told_to_stop(server, monkeypatch)
        await session.close()

    assert run(play, drops={1: 0}).closed.is_set()


def test_a_session_ends_that_comes_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of an ensemble that finds its quorum late. Who asked for it goes on, and may ask for another."""

    async def play(server: Server) -> None:
        connector = KazooConnector(server.address, session_timeout_ms=6_000, connect_timeout_s=0.5)
        connecting = asyncio.ensure_future(connector.connect(on_watch=lambda event: None, on_expired=lambda: None))
        await server.is_asked()
        greets_when_told_to_stop(server, monkeypatch)
        with pytest.raises(ZkUnreachable):
            await connecting

    assert run(play, drops={}).closed.is_set()
