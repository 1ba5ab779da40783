"""kazoo's connection, made to read and write many requests at a time; and how kazoo logs and ends.

kazoo brings the connection: host list, handshake, heartbeats, reconnection. What is here replaces how it moves bytes.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
from collections.abc import Callable, Iterable
from typing import Any, Final

import structlog
from kazoo.exceptions import ConnectionDropped, KazooException
from kazoo.hosts import collect_hosts
from kazoo.protocol.connection import ConnectionHandler

from controller.wire import log_events as ev
from controller.world.real import jute

log = structlog.get_logger(__name__)

#: A reply larger than this is taken for garbage and the connection is dropped. Kafka reads 4 MiB per znode
#: (`jute.maxbuffer`); a `multiRead` of topics brings `units.TOPIC_READ_OPS` of them.
REPLY_BYTES_MAX: Final = 144 << 20
#: Sent at most, and read at most, in one go.
SEND_BYTES: Final = 256 * 1024
RECEIVE_BYTES: Final = 256 * 1024
#: More than the rings that fit into a pair of sockets (Linux: 278).
_RUNG_BYTES: Final = 4_096
_RING: Final = b"\0"

_XID_MAX: Final = 2**31 - 1
_LENGTH: Final = struct.Struct(">i")
_XID_AND_TYPE: Final = struct.Struct(">ii")


class _Bell:
    """Wakes kazoo's thread, in the place of the socket into which kazoo writes a byte for each request. It never waits:
    while there is no connection nobody reads, and who waited would hold what the thread needs to make the next one.
    Where no byte fits, enough of them wait there."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        sock.setblocking(False)

    def send(self, data: bytes) -> None:
        """Rings. Raises: OSError, once closed."""
        with contextlib.suppress(BlockingIOError):
            self._sock.send(data)

    def close(self) -> None:
        """Idempotent."""
        self._sock.close()


class BatchingConnection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    """Reads and writes many requests at a time, and hands over watch events where it reads them: `fire` gets the type
    number and the absolute path. kazoo itself asks the kernel about five times per request, each time with a new epoll
    object."""

    _xid: int

    def __init__(self, client: Any, fire: Callable[[int, str], None]) -> None:
        super().__init__(client, client._conn_retry.copy(), logger=client.logger)
        self._fire = fire
        self._buffer = bytearray()
        self._at = 0

    def start(self) -> None:
        """As kazoo's, with a bell that never waits."""
        if self.connection_closed.is_set():
            self._read_sock, write_sock = socket.socketpair()
            self._write_sock = _Bell(write_sock)
            self.connection_closed.clear()
        super().start()

    def begin(self, first: Iterable[jute.Request]) -> list[Any]:
        """A connection stands, on which these are to be sent first. Returns the replies of what waits to be sent. The
        end of the session, whose reply nobody gets, is sent all the same: kazoo's thread ends with it, and is waited
        for."""
        queue = self.client._queue
        waiting = [queue.popleft() for _ in range(len(queue))]  # another thread may add the end of the session
        queue.extend((request, Ignored()) for request in first)
        queue.extend(each for each in waiting if each[1] is None)
        if queue:
            self._write_sock.send(_RING)
        return [reply for _, reply in waiting if reply is not None]

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        self._buffer.clear()
        self._at = 0
        timeouts: tuple[float, float] = super()._connect(host, hostip, port)
        return timeouts

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        """Sends what is queued, up to a limit: kazoo would send one. Who rings has put a request into the queue before,
        so nothing is forgotten that is not looked for yet."""
        self._read_sock.recv(_RUNG_BYTES)
        client, parts, size = self.client, [], 0
        while client._queue and size < SEND_BYTES:
            request, reply = client._queue.popleft()
            self._xid = self._xid % _XID_MAX + 1
            client._pending.append((request, reply, self._xid))
            body = _XID_AND_TYPE.pack(self._xid, request.type) + request.serialize()
            parts.append(_LENGTH.pack(len(body)) + body)
            size += len(body)
        if client._queue:
            self._write_sock.send(_RING)
        if parts:
            self._write(b"".join(parts), connect_timeout)

    def _read_socket(self, read_timeout: float) -> Any:
        """Takes the replies that have arrived: kazoo would take one."""
        while True:
            closed = super()._read_socket(read_timeout)
            if closed is not None or not self._whole_frame():
                return closed

    def _whole_frame(self) -> bool:
        waiting = len(self._buffer) - self._at
        return waiting >= _LENGTH.size and waiting - _LENGTH.size >= _LENGTH.unpack_from(self._buffer, self._at)[0]

    def _read(self, length: int, timeout: float) -> bytes:
        if not 0 <= length <= REPLY_BYTES_MAX:
            raise ConnectionDropped(f"reply of {length} bytes; at most {REPLY_BYTES_MAX} are read")
        while len(self._buffer) - self._at < length:
            self._receive(timeout)
        start, self._at = self._at, self._at + length
        found = bytes(memoryview(self._buffer)[start : self._at])
        if self._at == len(self._buffer) or self._at > RECEIVE_BYTES:
            del self._buffer[: self._at]
            self._at = 0
        return found

    def _receive(self, timeout: float) -> None:
        with self._socket_error_handling():
            if not self.handler.select([self._socket], [], [], timeout)[0]:
                raise self.handler.timeout_exception("socket time-out during read")
            chunk = self._socket.recv(RECEIVE_BYTES)
        if not chunk:
            raise ConnectionDropped("the server closed the connection")
        self._buffer += chunk

    def _read_watch_event(self, buffer: bytes, offset: int) -> None:
        self._fire(*jute.decode_watch_event(buffer, offset))


def servers_of(hosts: str) -> str:
    """The servers of a `zookeeper.connect`, as kazoo takes them: what is empty between commas does not count (ZooKeeper
    3.9 `ConnectStringParser`). Raises: ValueError, when there is none, or one without an address."""
    expected = "expected host:port[,host:port...][/chroot]"
    servers = ",".join(filter(None, map(str.strip, hosts.partition("/")[0].split(","))))
    if not servers:
        raise ValueError(f"zookeeper.connect {hosts!r} names no server; {expected}")
    try:
        collect_hosts(servers)
    except ValueError as error:
        raise ValueError(f"zookeeper.connect {hosts!r} has no address of a server: {error}; {expected}") from error
    return servers


class Ignored:
    """The reply of a request nobody waits for."""

    def set(self, _results: object = None) -> None:
        """It was answered."""

    def set_exception(self, _error: Exception) -> None:
        """It failed, or its connection did."""


class _ToStructlog(logging.Handler):
    """kazoo's warnings as log events of ours."""

    def emit(self, record: logging.LogRecord) -> None:
        log.warning(ev.ZK_CLIENT_WARNED, message=record.getMessage())


def kazoo_logger() -> logging.Logger:
    """A logger for kazoo that ends in ours."""
    logger = logging.Logger("kazoo", logging.WARNING)  # detached: nobody else's settings apply
    logger.addHandler(_ToStructlog())
    return logger


def dispose(client: Any) -> None:
    """Ends kazoo's threads and sockets. Blocks, until the server acknowledged the end of the session if it can."""
    with contextlib.suppress(KazooException):
        client.stop()
        client._safe_close()
    if client._connection.connection_stopped.is_set():
        client._connection.close()
