"""TCP behind `ports.Network`, on asyncio's transports. Everything about real sockets lives here.

A connection is an `asyncio.Protocol` of its own rather than a pair of streams: `recv` hands out what has arrived
without copying it twice, and reading pauses while more than `READ_AHEAD_BYTES` wait to be taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import socket
from typing import Final

from controller.world.ports import Connection, Listener, ServeConnection

#: Bytes that may wait in one connection before reading from the socket pauses: a peer cannot grow the process.
READ_AHEAD_BYTES: Final = 1 << 20
#: Bytes that may wait to be sent before `drain` blocks.
WRITE_AHEAD_BYTES: Final = 1 << 20
#: Connections that wait to be accepted. Brokers and clients of a 200-broker cluster all reconnect at once.
LISTEN_BACKLOG: Final = 1024
#: How long `close` lets bytes that are already queued flow out to a peer that does not read.
CLOSE_LINGER_S: Final = 5.0
#: The last so many of the files that a process may open are not for connections but for its logs and its ZooKeeper.
#: An eighth of them where few are allowed.
RESERVED_FILES: Final = 256
PORT_MAX: Final = 0xFFFF
#: Turns of the loop from the accepting of a connection until who serves it knows of it: transport, protocol, task.
_TURNS_TO_BEGIN: Final = 3


class TcpNetwork:
    """IPv4 and IPv6 by TCP, without Nagle's delay."""

    async def connect(self, host: str, port: int) -> Connection:
        """Raises OSError when nobody listens, the name does not resolve, the peer cannot be reached, the address cannot
        be (as one that somebody registered), or only `RESERVED_FILES` are left.
        """
        if not 0 <= port <= PORT_MAX:  # of a name that resolves, the lower bits would count
            raise OSError(errno.EINVAL, f"{host!r}, port {port} is no address")
        try:
            _, protocol = await asyncio.get_running_loop().create_connection(TcpConnection, host, port)
        except ValueError as error:
            raise OSError(errno.EINVAL, f"{host!r}, port {port} is no address: {error}") from error
        if protocol.is_one_too_many:
            raise _no_more_files()
        return protocol

    async def listen(self, host: str, port: int, serve: ServeConnection) -> Listener:
        """Calls `serve` in a task of its own for each connection; see `ports.Network.listen`.

        One that comes while only `RESERVED_FILES` are left is closed at once, and the loop's exception handler is told,
        as when none is left. The address may be bound again at once after a restart (SO_REUSEADDR). Raises OSError
        when it cannot be bound. Who is cancelled meanwhile has bound nothing.
        """
        loop = asyncio.get_running_loop()
        serving: set[asyncio.Task[None]] = set()

        def accept() -> TcpConnection:
            return TcpConnection(serve, serving)

        server = await loop.create_server(
            accept, host, port, reuse_address=True, backlog=LISTEN_BACKLOG, start_serving=False
        )
        try:
            await server.start_serving()
        except BaseException:
            server.close()
            raise
        return TcpListener(server)

    def address_of(self, host: str) -> str:
        """The first address of a name, one of IPv4 where there is one, as Java's `InetAddress.getByName`. Waits for it.

        Raises OSError, also for what can be no name.
        """
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, ValueError) as error:
            raise OSError(errno.EINVAL, f"{host!r} has no address: {error}") from error
        return str(min(found, key=lambda each: each[0] != socket.AF_INET)[4][0])


class TcpListener:
    """A listening socket."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        name = server.sockets[0].getsockname()
        self._address: tuple[str, int] = (name[0], name[1])

    @property
    def address(self) -> tuple[str, int]:
        """Host and port really bound."""
        return self._address

    async def close(self) -> None:
        """Stops accepting. Connections live on (hence no `wait_closed`, which from Python 3.12 waits for them).

        What was accepted already becomes a connection first: asyncio loses the socket of one whose server is closed
        between its accepting and its beginning.
        """
        loop = asyncio.get_running_loop()
        for listening in self._server.sockets:
            loop.remove_reader(listening.fileno())
        try:
            for _ in range(_TURNS_TO_BEGIN):
                await asyncio.sleep(0)
        finally:
            for listening in self._server.sockets:
                _end_for_all(listening)
            self._server.close()


class TcpConnection(asyncio.Protocol):
    """One end of a TCP connection; see `ports.Connection`. One task at a time may be in `recv`."""

    def __init__(self, serve: ServeConnection | None = None, serving: set[asyncio.Task[None]] | None = None) -> None:
        self._serve = serve
        self._serving = serving
        self.transport: asyncio.Transport | None = None
        self._peer = "?"
        self.is_one_too_many = False
        self._received: list[bytes] = []
        self.received_bytes = 0
        self._reading_paused = False
        self._ended = False
        self._error: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None

    @property
    def peer(self) -> str:
        """The other end, as `host:port`."""
        return self._peer

    @property
    def is_open(self) -> bool:
        """As `ports.Connection.is_open`."""
        return not self._ended

    async def recv(self) -> bytes:
        """Some bytes, `b""` once the other end has closed. Raises ConnectionError on a broken stream."""
        while not self._received:
            if self._error is not None:
                raise _as_connection_error(self._error)
            if self._ended:
                return b""
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        chunk = self._take_all()
        self.received_bytes -= len(chunk)
        if self._reading_paused and self.received_bytes <= READ_AHEAD_BYTES // 2 and self.transport is not None:
            self._reading_paused = False
            self.transport.resume_reading()
        return chunk

    def send(self, data: bytes) -> None:
        """Queues bytes in order; bytes sent into a closed stream vanish."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    async def drain(self) -> None:
        """Waits until fewer than the high-water mark of bytes wait. Raises ConnectionError when the stream broke."""
        if self._writable is not None:
            await asyncio.shield(self._writable)
        if self._error is not None:
            raise _as_connection_error(self._error)
        if self.transport is None or self.transport.is_closing():
            raise ConnectionResetError(f"connection to {self._peer} is closed")

    def close(self) -> None:
        """Closes both directions; bytes already queued are still sent, for `CLOSE_LINGER_S` at most. Idempotent."""
        self._end(None)
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        transport.close()
        if transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(CLOSE_LINGER_S, transport.abort)

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the connection stands."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.is_one_too_many = _is_reserved(transport)
        if self.is_one_too_many:
            transport.abort()
            if self._serve is not None:
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "a connection was not accepted", "exception": _no_more_files()}
                )
            return
        transport.set_write_buffer_limits(high=WRITE_AHEAD_BYTES)
        _configure(transport)
        name = transport.get_extra_info("peername")
        if name:
            self._peer = f"[{name[0]}]:{name[1]}" if ":" in str(name[0]) else f"{name[0]}:{name[1]}"
        if self._serve is not None and self._serving is not None:
            task = asyncio.get_running_loop().create_task(self._serve_and_close(self._serve))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes came."""
        if self._ended:
            return
        self._received.append(data)
        self.received_bytes += len(data)
        if self.received_bytes > READ_AHEAD_BYTES and not self._reading_paused and self.transport is not None:
            self._reading_paused = True
            self.transport.pause_reading()
        _wake(self._reader)

    def eof_received(self) -> bool:
        """asyncio: the peer will send no more. The transport then closes: nobody here uses half-open streams."""
        self._end(None)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection is gone, by an error or by `close`."""
        if self.transport is not None:
            _end_for_all(self.transport.get_extra_info("socket"))
        self._end(exc)
        self.resume_writing()

    def pause_writing(self) -> None:
        """asyncio: the peer is slower than we are."""
        self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """asyncio: the peer has caught up, or is gone."""
        writable, self._writable = self._writable, None
        _wake(writable)

    async def _serve_and_close(self, serve: ServeConnection) -> None:
        try:
            await serve(self)
        finally:
            self.close()

    def _take_all(self) -> bytes:
        chunk = self._received[0] if len(self._received) == 1 else b"".join(self._received)
        self._received.clear()
        return chunk

    def _end(self, error: Exception | None) -> None:
        self._ended = True
        self._error = self._error or error
        _wake(self._reader)


def _configure(transport: asyncio.Transport) -> None:
    sock = transport.get_extra_info("socket")
    if sock is None:
        return
    with contextlib.suppress(OSError):  # a peer that is already gone
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _end_for_all(sock: socket.socket) -> None:
    """Ends what a socket stands for, before this process closes it: one that was forked meanwhile has it, too, and
    would keep a peer waiting, and the port taken."""
    with contextlib.suppress(OSError):  # it has ended already
        sock.shutdown(socket.SHUT_RDWR)


def _is_reserved(transport: asyncio.Transport) -> bool:
    """The number of a file is the lowest that is free, so it says how many are open."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return False
    return int(transport.get_extra_info("socket").fileno()) >= allowed - min(RESERVED_FILES, allowed // 8)


def _no_more_files() -> OSError:
    return OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


def _as_connection_error(error: Exception) -> ConnectionError:
    return error if isinstance(error, ConnectionError) else ConnectionResetError(str(error))
