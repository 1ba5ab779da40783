"""ZooKeeper through kazoo, behind `ports.ZkConnector`. Everything about kazoo lives here.

kazoo brings the connection: host list, handshake, heartbeats, reconnection. Order is what it does not bring, so its
answers and watch events are taken where its connection thread reads them, go through one queue, and enter the event
loop in batches: a watch event always comes before the reply that shows the change, as ZooKeeper promises.
After a reconnection the watches are armed again by `setWatches`, which kazoo lacks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import structlog
from kazoo.client import KazooClient
from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionDropped,
    ConnectionLoss,
    KazooException,
    SessionExpiredError,
)
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.states import KazooState

from controller.wire import log_events as ev
from controller.wire.real import jute
from controller.wire.real.armed_watches import ArmedWatches
from controller.wire.real.inbox import Inbox
from controller.wire.zk import (
    Create,
    Exists,
    GetData,
    WatchEvent,
    WatchKind,
    ZkCode,
    ZkOp,
    ZkResult,
    ZkSessionExpired,
    ZkUnreachable,
)

log = structlog.get_logger(__name__)

#: Requests that wait for their answers. kazoo wakes its thread with one byte per request through a socket pair that
#: blocks when about 270 such bytes wait, so this must stay well below.
IN_FLIGHT_MAX: Final = 100
#: Reads in one `multiRead`. Measured: 100 to 1000 are equally fast; small ones keep a reply of large znodes small.
MULTI_READ_OPS: Final = 200
#: A reply larger than this is taken for garbage and the connection is dropped. Kafka reads 4 MiB per znode
#: (`jute.maxbuffer`); a `multiRead` brings several.
REPLY_BYTES_MAX: Final = 64 << 20
#: Sent at most, and read at most, in one go.
SEND_BYTES: Final = 256 * 1024
RECEIVE_BYTES: Final = 256 * 1024

_XID_MAX: Final = 2**31 - 1
_LENGTH: Final = struct.Struct(">i")
_XID_AND_TYPE: Final = struct.Struct(">ii")
_WATCH_KINDS: Final = {
    1: WatchKind.CREATED,
    2: WatchKind.DELETED,
    3: WatchKind.DATA_CHANGED,
    4: WatchKind.CHILDREN_CHANGED,
}
#: First wait before the next attempt to connect, doubled up to the second number. kazoo draws the jitter.
_RECONNECT_S: Final = (0.05, 1.0)


class KazooConnector:
    """Opens sessions; see `ports.ZkConnector`.

    `hosts` is Kafka's `zookeeper.connect`: `host:port[,host:port...][/chroot]`. A missing chroot is created.
    `session_timeout_ms` is what is asked for; the server may allow less or more. `connect_timeout_s` bounds `connect`.
    """

    def __init__(self, hosts: str, *, session_timeout_ms: int = 18_000, connect_timeout_s: float = 18.0) -> None:
        servers, slash, path = hosts.partition("/")
        if not servers.strip():
            raise ValueError(f"zookeeper.connect {hosts!r} names no server; expected host:port[,host:port...][/chroot]")
        self._servers = servers
        self._chroot = (slash + path).rstrip("/")
        self._session_timeout_ms = session_timeout_ms
        self._connect_timeout_s = connect_timeout_s

    async def connect(self, *, on_watch: Callable[[WatchEvent], None], on_expired: Callable[[], None]) -> KazooSession:
        """A new session; see `ports.ZkConnector.connect`. Raises ZkUnreachable."""
        session = KazooSession(self._client(), self._chroot, on_watch=on_watch, on_expired=on_expired)
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                await session.start()
        except (TimeoutError, ZkSessionExpired) as error:
            await session.close()
            raise ZkUnreachable(
                f"no ZooKeeper server answered at {self._servers} within {self._connect_timeout_s:g} s; "
                "check zookeeper.connect and that the servers run"
            ) from error
        except BaseException:
            await session.close()
            raise
        return session

    def _client(self) -> Any:
        first_s, max_s = _RECONNECT_S
        return KazooClient(
            hosts=self._servers,
            timeout=self._session_timeout_ms / 1000,
            connection_retry={"max_tries": -1, "delay": first_s, "backoff": 2, "max_delay": max_s},
            logger=_kazoo_logger(),
        )


class _Call:
    """One `perform`: results by index, and the future that waits for the last."""

    __slots__ = ("future", "missing", "results")

    def __init__(self, count: int, future: asyncio.Future[list[ZkResult]]) -> None:
        self.results: list[ZkResult | None] = [None] * count
        self.missing = count
        self.future = future

    def settle(self, first: int, results: Sequence[ZkResult]) -> bool:
        """Takes results from index `first` on; True once none is missing."""
        self.results[first : first + len(results)] = results
        self.missing -= len(results)
        if self.missing == 0 and not self.future.done():
            self.future.set_result([result for result in self.results if result is not None])
        return self.missing == 0

    def fail(self, reason: str) -> None:
        """Ends the wait: the session is gone."""
        if not self.future.done():
            self.future.set_exception(ZkSessionExpired(reason))


class _Unit:
    """What travels in one request: one operation, or a run of reads. It is sent again after a lost connection."""

    __slots__ = ("call", "first", "ops")

    def __init__(self, call: _Call, first: int, ops: Sequence[ZkOp]) -> None:
        self.call = call
        self.first = first
        self.ops = ops

    def singly(self) -> Iterator[_Unit]:
        """The same operations, one per request."""
        return (_Unit(self.call, self.first + index, (op,)) for index, op in enumerate(self.ops))


class KazooSession:
    """One session; see `ports.ZkSession`. Its methods belong to the event loop that created it.

    Two threads meet here: the loop's, which owns everything but `_watches`, and kazoo's connection thread, which runs
    `_Reply` and `_on_state`. `_fence` keeps a request of the time before a reconnection from overtaking lost ones.
    """

    def __init__(
        self, client: Any, chroot: str, *, on_watch: Callable[[WatchEvent], None], on_expired: Callable[[], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._client = client
        self._chroot = chroot
        self._on_watch = on_watch
        self._on_expired = on_expired
        self._calls: set[_Call] = set()
        self._outbox: deque[_Unit] = deque()
        self._lost: list[_Unit] = []
        self._in_flight = 0
        self._multi_read: bool | None = None  # None: not known yet; the first one goes alone, as `_probe`
        self._probe: _Unit | None = None
        self._ended = ""
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._session_id = 0
        self._inbox = Inbox(self._loop)
        self._fence = threading.Lock()
        self._connections = 0
        self._connection_seen = 0
        self._watches = ArmedWatches(chroot)
        client._connection = _Connection(client, self._fire)
        client.add_listener(self._on_state)

    @property
    def session_id(self) -> int:
        """The id that `Stat.ephemeral_owner` shows."""
        return self._session_id

    async def start(self) -> None:
        """Connects and creates the chroot. Waits for ever; the connector bounds it."""
        self._client.start_async()
        await self._started
        log.info(ev.ZK_CONNECTED, session_id=hex(self._session_id), chroot=self._chroot)
        if self._chroot and not (await self.perform([Exists("/")]))[0].ok:
            await self._create_chroot()

    async def perform(self, ops: Sequence[ZkOp]) -> list[ZkResult]:
        """See `ports.ZkSession.perform`."""
        if self._ended:
            raise ZkSessionExpired(self._ended)
        if not ops:
            return []
        call = _Call(len(ops), self._loop.create_future())
        self._calls.add(call)
        self._outbox.extend(self._units(call, ops))
        self._pump()
        return await call.future

    async def close(self) -> None:
        """Ends the session. Idempotent."""
        if self._ended:
            return
        self._end("the session was closed")
        await asyncio.shield(self._loop.run_in_executor(None, _dispose, self._client))

    # On the loop.

    def _units(self, call: _Call, ops: Sequence[ZkOp]) -> Iterator[_Unit]:
        """Runs of unwatched reads become one unit each, up to the limit; everything else is a unit of its own."""
        first = 0
        while first < len(ops):
            end = first + 1
            while end < len(ops) and end - first < MULTI_READ_OPS and _batchable(ops[first]) and _batchable(ops[end]):
                end += 1
            yield _Unit(call, first, ops[first:end])
            first = end

    def _pump(self) -> None:
        while self._outbox and self._in_flight < IN_FLIGHT_MAX and not self._ended and self._probe is None:
            unit = self._outbox[0]
            if len(unit.ops) > 1 and self._multi_read is False:
                self._outbox.popleft()
                self._outbox.extendleft(reversed(list(unit.singly())))
                continue
            if not self._submit(unit):
                return
            self._outbox.popleft()
            if len(unit.ops) > 1 and self._multi_read is None:
                self._probe = unit

    def _submit(self, unit: _Unit) -> bool:
        """Hands a unit to kazoo; False when a new connection stands whose lost units are not back in the outbox yet."""
        reads = [op for op in unit.ops if isinstance(op, GetData)] if len(unit.ops) > 1 else []
        chroot = self._chroot
        request = jute.encode_multi_read(reads, chroot) if reads else jute.encode(unit.ops[0], chroot)
        with self._fence:
            if self._connection_seen == 0 or self._connection_seen != self._connections:
                return False
            self._in_flight += 1
            self._client._call(request, _Reply(self, unit))
        return True

    def _answered(self, unit: _Unit, results: Sequence[ZkResult]) -> None:
        self._in_flight -= 1
        if unit is self._probe:
            self._probe, self._multi_read = None, True
        if unit.call.settle(unit.first, results):
            self._calls.discard(unit.call)
        self._pump()

    def _multi_read_refused(self, unit: _Unit) -> None:
        self._multi_read = False
        self._connection_lost(unit)

    def _connection_lost(self, unit: _Unit) -> None:
        self._in_flight -= 1
        self._lost.append(unit)
        if unit is self._probe:
            self._probe = None

    def _connected(self, connection: int, session_id: int) -> None:
        self._outbox.extendleft(reversed(self._lost))
        self._lost.clear()
        self._connection_seen = connection
        self._session_id = session_id
        if not self._started.done():
            self._started.set_result(None)
        self._pump()

    def _expired(self) -> None:
        if self._ended:
            return
        log.warning(ev.ZK_SESSION_EXPIRED, session_id=hex(self._session_id))
        self._end("the ZooKeeper session expired")
        self._loop.run_in_executor(None, _dispose, self._client)
        self._on_expired()

    def _end(self, reason: str) -> None:
        self._ended = reason
        self._outbox.clear()
        self._lost.clear()
        for call in self._calls:
            call.fail(reason)
        self._calls.clear()
        if not self._started.done():
            self._started.set_exception(ZkSessionExpired(reason))
            self._started.exception()  # nobody waits any more when `connect` timed out

    def _watch_fired(self, event: WatchEvent) -> None:
        if not self._ended:
            self._on_watch(event)

    async def _create_chroot(self) -> None:
        chroot, self._chroot = self._chroot, ""
        try:
            parts = chroot.strip("/").split("/")
            paths = ["/" + "/".join(parts[: depth + 1]) for depth in range(len(parts))]
            results = await self.perform([Create(path) for path in paths])
        finally:
            self._chroot = chroot
        bad = [result.code for result in results if result.code not in (ZkCode.OK, ZkCode.NODE_EXISTS)]
        if bad:
            raise ZkUnreachable(f"the chroot {chroot} of zookeeper.connect cannot be created: {bad[0].name}")

    # On kazoo's connection thread.

    def _on_state(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._reconnected()
        elif state == KazooState.LOST:
            self._client._stopped.set()  # else kazoo would go on with a new session
            self._inbox.post(self._expired)
        else:
            log.warning(ev.ZK_CONNECTION_LOST, session_id=hex(self._session_id))

    def _reconnected(self) -> None:
        """Nothing was sent on the new connection yet: arm the watches first, and send lost units before new ones."""
        client = self._client
        with self._fence:
            self._connections += 1
            late = list(client._queue)
            client._queue.clear()
            if self._watches:
                client._queue.append((self._watches.request(client.last_zxid), _Ignored()))
                client._connection._write_sock.send(b"\0")
        for _, reply in late:
            reply.set_exception(ConnectionLoss())
        self._inbox.post(self._connected, self._connections, client._session_id)

    def _fire(self, kind: int, path: str) -> None:
        if kind in _WATCH_KINDS:
            self._watches.disarm(_WATCH_KINDS[kind], path)
            self._inbox.post(self._watch_fired, WatchEvent(_WATCH_KINDS[kind], jute.relative(self._chroot, path)))


class _Reply:
    """Stands where kazoo expects an `AsyncResult`; called by its connection thread, once."""

    __slots__ = ("_session", "_unit")

    def __init__(self, session: KazooSession, unit: _Unit) -> None:
        self._session = session
        self._unit: _Unit | None = unit

    def set(self, results: Sequence[ZkResult] | None = None) -> None:
        """The request was answered. None is kazoo's way to say that `exists` found nothing."""
        results = [ZkResult(ZkCode.NO_NODE)] if results is None else results
        unit = self._take()
        if unit is not None:
            if len(unit.ops) == 1:
                self._session._watches.arm(unit.ops[0], found=results[0].ok)
            self._session._inbox.post(self._session._answered, unit, results)

    def set_exception(self, error: Exception) -> None:
        """The request failed, or its connection did."""
        unit, session = self._take(), self._session
        if unit is None or isinstance(error, SessionExpiredError):
            return  # the state listener tells everybody
        if isinstance(error, ConnectionLoss | ConnectionClosedError | ConnectionDropped):
            session._inbox.post(session._connection_lost, unit)
        elif len(unit.ops) > 1:
            session._inbox.post(session._multi_read_refused, unit)
            raise ConnectionDropped("the server does not know multiRead")  # it ends the connection itself
        else:
            code = jute.code_of(getattr(error, "code", int(ZkCode.OTHER)))
            session._inbox.post(session._answered, unit, [ZkResult(code)])

    def _take(self) -> _Unit | None:
        unit, self._unit = self._unit, None
        return unit


class _Ignored:
    """The reply of a request nobody waits for."""

    def set(self, _results: object = None) -> None: ...

    def set_exception(self, _error: Exception) -> None: ...


class _Connection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's connection, made to read and write many requests at a time and to hand over watch events where it
    reads them. kazoo itself asks the kernel about five times per request, each time with a new epoll object."""

    _xid: int

    def __init__(self, client: Any, fire: Callable[[int, str], None]) -> None:
        super().__init__(client, client._conn_retry.copy(), logger=client.logger)
        self._fire = fire
        self._buffer = bytearray()
        self._at = 0

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        self._buffer.clear()
        self._at = 0
        timeouts: tuple[float, float] = super()._connect(host, hostip, port)
        return timeouts

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        """Sends what is queued, up to a limit: kazoo would send one."""
        client, parts, size = self.client, [], 0
        while client._queue and size < SEND_BYTES:
            request, reply = client._queue.popleft()
            self._xid = self._xid % _XID_MAX + 1
            client._pending.append((request, reply, self._xid))
            body = _XID_AND_TYPE.pack(self._xid, request.type) + request.serialize()
            parts.append(_LENGTH.pack(len(body)) + body)
            size += len(body)
        self._read_sock.recv(max(1, len(parts)))  # one byte per request woke this thread
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


class _ToStructlog(logging.Handler):
    """kazoo's warnings as log events of ours."""

    def emit(self, record: logging.LogRecord) -> None:
        log.warning(ev.ZK_CLIENT_WARNED, message=record.getMessage())


def _kazoo_logger() -> logging.Logger:
    logger = logging.Logger("kazoo", logging.WARNING)  # detached: nobody else's settings apply
    logger.addHandler(_ToStructlog())
    return logger


def _batchable(op: ZkOp) -> bool:
    return isinstance(op, GetData) and not op.watch


def _dispose(client: Any) -> None:
    """Ends kazoo's threads and sockets. Blocks, until the server acknowledged the end of the session if it can."""
    with contextlib.suppress(KazooException):
        client.stop()
        client._safe_close()
    if client._connection.connection_stopped.is_set():
        client._connection.close()
