"""One connection to a broker as a client sees it: requests out, answers in, matched by correlation id.

Everything that asks a broker or a controller something goes through here: followers, the controlled shutdown, the
admin tools. Runs on any `ports.Network`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Mapping
from typing import Any, Final

from controller.wire import protocol
from controller.wire.framing import FrameBuffer, FrameError
from controller.world.limits import WaitLimit, answer_within
from controller.world.ports import Connection, Network

#: Frames above this are sent piece by piece: what a broker that does not read may cost.
PIECE_BYTES: Final = 64 * 1024
_LAST_CORRELATION_ID: Final = 2**31 - 1


class Disconnected(ConnectionError):
    """The peer closed the connection, or sent what is no answer, before it answered."""


class BrokerConnection:
    """An open connection. `call` may be used by several tasks at once; a broker answers in the order of the requests.

    Not reusable after `close` or a `Disconnected`; `is_open` tells.
    """

    def __init__(self, connection: Connection, client_id: str) -> None:
        self._connection = connection
        self._client_id = client_id
        self._correlation = itertools.count()
        self._writing = asyncio.Lock()
        self._senders = 0  # calls whose bytes are not all sent
        self._waiting: dict[int, tuple[int, int, asyncio.Future[Any]]] = {}
        self._reader = asyncio.ensure_future(self._read())

    @classmethod
    async def open(
        cls, network: Network, host: str, port: int, *, client_id: str, timeout_s: float = 30.0
    ) -> BrokerConnection:
        """Connects. Raises OSError when that fails, TimeoutError when it takes longer than `timeout_s`."""
        async with asyncio.timeout(timeout_s):
            return cls(await network.connect(host, port), client_id)

    @property
    def is_open(self) -> bool:
        """Whether requests can still be sent."""
        return not self._reader.done()

    async def call(
        self,
        api_key: int,
        api_version: int,
        body: Mapping[str, Any] | bytes | tuple[bytes, ...],
        *,
        timeout_s: float = 30.0,
    ) -> Any:
        """Sends a request and returns the body of its answer (a kio entity; see `protocol`).

        A body in parts is never put together: what many peers get alike exists once, however slowly they read.

        Raises: Disconnected, when the connection is or gets closed, as after bytes that are no answer; TimeoutError
        after `timeout_s` (the connection is then closed, because later answers could no longer be told from this
        one's).
        """
        if not self.is_open:
            raise Disconnected(f"connection to {self._connection.peer} is closed")
        correlation_id = next(self._correlation) % _LAST_CORRELATION_ID + 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = (api_key, api_version, answer)
        try:
            about = api_key, api_version, correlation_id, self._client_id
            if isinstance(body, tuple):
                parts = protocol.encode_request_head(*about, sum(map(len, body))), *body
            else:
                parts = (protocol.encode_request(*about, body),)
            if self._senders == 0 and sum(map(len, parts)) <= PIECE_BYTES:
                self._connection.send(b"".join(parts))
                return await answer_within(answer, timeout_s)
            async with asyncio.timeout(timeout_s):
                await self._send(*parts)
                return await answer
        except TimeoutError:
            self.close()
            raise
        finally:
            self._waiting.pop(correlation_id, None)

    async def _send(self, *parts: bytes) -> None:
        """One frame at a time. A long one goes in pieces, each behind what the peer has taken. Raises: OSError."""
        self._senders += 1
        try:
            async with self._writing:
                await self._send_pieces(parts)
        finally:
            self._senders -= 1

    async def _send_pieces(self, parts: tuple[bytes, ...]) -> None:
        if sum(map(len, parts)) <= PIECE_BYTES:
            self._connection.send(b"".join(parts))
            return
        try:
            await _send_in_pieces(self._connection, parts)
        except BaseException:
            self.close()  # half a frame was sent: nothing may follow it
            raise

    def close(self) -> None:
        """Closes; calls that wait raise Disconnected. Idempotent."""
        self._connection.close()
        self._reader.cancel()
        self._fail(Disconnected(f"connection to {self._connection.peer} was closed"))

    async def _read(self) -> None:
        frames = FrameBuffer()
        failure: Exception = Disconnected(f"{self._connection.peer} closed the connection")
        try:
            while data := await self._connection.recv():
                for answer in frames.feed(data):
                    self._settle(answer)
        except (OSError, FrameError, protocol.ProtocolError) as error:
            failure = Disconnected(f"{self._connection.peer}: {error}")
        finally:
            self._connection.close()
            self._fail(failure)

    def _settle(self, answer: bytes) -> None:
        correlation_id = int.from_bytes(answer[:4], "big", signed=True)
        if correlation_id not in self._waiting:
            raise protocol.ProtocolError(f"answer to request {correlation_id}, which is not waiting")
        api_key, api_version, future = self._waiting[correlation_id]
        _, body = protocol.decode_response(api_key, api_version, answer)
        if not future.done():
            future.set_result(body)

    def _fail(self, error: Exception) -> None:
        for _, _, future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # who waited may be gone by now


class SerialConnection:
    """An open connection of the task that opens it, which asks one thing at a time and reads the answers itself.

    Brokers keep one per leader that they follow, which is most of what many brokers are made of: this one has no task
    beside, no timer of each request and no table of those under way (docs/scale.md).
    Not reusable after `close`, or after a call that raised; `is_open` tells.
    """

    __slots__ = ("_client_id", "_connection", "_correlation_id", "_frames", "_is_closed", "_limit", "waits_for")

    def __init__(self, connection: Connection, client_id: str) -> None:
        self._connection, self._client_id = connection, client_id
        self._frames, self._limit = FrameBuffer(), WaitLimit(None)
        self._correlation_id, self._is_closed = 0, False
        #: the number of the request that waits for its answer
        self.waits_for: int | None = None

    @classmethod
    async def open(
        cls, network: Network, host: str, port: int, *, client_id: str, timeout_s: float = 30.0
    ) -> SerialConnection:
        """Connects. Raises OSError when that fails, TimeoutError when it takes longer than `timeout_s`."""
        async with asyncio.timeout(timeout_s):
            return cls(await network.connect(host, port), client_id)

    @property
    def is_open(self) -> bool:
        """Whether requests can still be sent."""
        return not self._is_closed and self._connection.is_open

    def close(self) -> None:
        """Closes; a call under way raises Disconnected. Idempotent."""
        self._is_closed = True
        self._limit.close()
        self._connection.close()

    async def call(
        self, api_key: int, api_version: int, body: Mapping[str, Any] | bytes, *, timeout_s: float = 30.0
    ) -> Any:
        """As `BrokerConnection.call`, and whatever it raises the connection is closed then."""
        if not self.is_open:
            raise Disconnected(f"connection to {self._connection.peer} is closed")
        self._correlation_id = self._correlation_id % _LAST_CORRELATION_ID + 1
        request = protocol.encode_request(api_key, api_version, self._correlation_id, self._client_id, body)
        self._limit.change(timeout_s)
        self.waits_for = self._correlation_id
        try:
            with self._limit:
                if len(request) <= PIECE_BYTES:
                    self._connection.send(request)
                else:
                    await _send_in_pieces(self._connection, (request,))
                while not (frames := self._taken(await self._connection.recv())):
                    pass
            self.waits_for = None
            return self._decoded(api_key, api_version, frames)
        except (FrameError, protocol.ProtocolError) as error:
            self.close()
            raise Disconnected(f"{self._connection.peer}: {error}") from error
        except BaseException:
            self.close()
            raise

    def _taken(self, data: bytes) -> list[bytes]:
        """The frames that these bytes complete. Raises Disconnected at the end of the stream."""
        if self._is_closed:
            raise Disconnected(f"connection to {self._connection.peer} was closed")
        if not data:
            raise Disconnected(f"{self._connection.peer} closed the connection")
        return list(self._frames.feed(data))

    def _decoded(self, api_key: int, api_version: int, frames: list[bytes]) -> Any:
        correlation_id, body = protocol.decode_response(api_key, api_version, frames[0])
        if correlation_id != self._correlation_id or len(frames) > 1:
            raise protocol.ProtocolError(f"answer to request {correlation_id}, which is not waiting")
        return body


async def _send_in_pieces(connection: Connection, parts: Iterable[bytes]) -> None:
    """Each piece behind what the peer has taken. Raises: OSError."""
    for part in parts:
        for at in range(0, len(part), PIECE_BYTES):
            connection.send(part[at : at + PIECE_BYTES])
            await connection.drain()
