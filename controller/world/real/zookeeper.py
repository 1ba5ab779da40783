"""ZooKeeper through kazoo, behind `ports.ZkConnector`.

Order is what kazoo does not bring, so its answers and watch events are taken where its connection thread reads them, go
through one queue, and enter the event loop in batches: a watch event always comes before the reply that shows the
change, as ZooKeeper promises. Watched reads are batched too: `setWatches`, which kazoo lacks, arms the watches and a
`multiRead` reads. After a reconnection it arms all watches again.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import structlog
from kazoo.client import KazooClient
from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionDropped,
    ConnectionLoss,
    SessionExpiredError,
)
from kazoo.protocol.states import KazooState

from controller.wire import log_events as ev
from controller.wire.zk_operations import (
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
from controller.world.large_requests import is_given_up, is_too_large, refusal
from controller.world.real import jute
from controller.world.real.armed_watches import ArmedWatches, Arming
from controller.world.real.inbox import Inbox
from controller.world.real.kazoo_connection import BatchingConnection, dispose, kazoo_logger, servers_of
from controller.world.real.units import Call, Unit, units_of

log = structlog.get_logger(__name__)

#: Requests that wait for their answers, where nothing else is said (Kafka's default is 10, of single operations). kazoo
#: wakes its thread with one byte per request, of which its socket pair holds about 270, so no setting can make it more
#: than the second number.
IN_FLIGHT_DEFAULT: Final = 100
IN_FLIGHT_MAX: Final = 200

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
    `requests_in_flight` is `zookeeper.max.in.flight.requests`: how many wait for their answers at most.
    Raises: ValueError, for hosts that cannot be.
    """

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout_ms: int = 18_000,
        connect_timeout_s: float = 18.0,
        requests_in_flight: int = IN_FLIGHT_DEFAULT,
    ) -> None:
        _, slash, path = hosts.partition("/")
        self._servers = servers_of(hosts)
        self._chroot = (slash + path).rstrip("/")
        self._session_timeout_ms = session_timeout_ms
        self._connect_timeout_s = connect_timeout_s
        self._requests_in_flight = min(requests_in_flight, IN_FLIGHT_MAX)

    async def connect(self, *, on_watch: Callable[[WatchEvent], None], on_expired: Callable[[], None]) -> KazooSession:
        """A new session; see `ports.ZkConnector.connect`. Raises ZkUnreachable."""
        session = KazooSession(
            self._client(), self._chroot, self._requests_in_flight, on_watch=on_watch, on_expired=on_expired
        )
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
            logger=kazoo_logger(),
        )


class KazooSession:
    """One session; see `ports.ZkSession`. Its methods belong to the event loop that created it.

    Two threads meet here: the loop's, which owns everything but `_watches`, and kazoo's connection thread, which runs
    `_Reply` and `_on_state`. `_fence` keeps a request of the time before a reconnection from overtaking lost ones.
    """

    def __init__(
        self,
        client: Any,
        chroot: str,
        requests_in_flight: int,
        *,
        on_watch: Callable[[WatchEvent], None],
        on_expired: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.client = client
        self._chroot = chroot
        self._on_watch = on_watch
        self._on_expired = on_expired
        self._calls: set[Call] = set()
        self._outbox: deque[Unit] = deque()
        self._lost: list[Unit] = []
        self._in_flight = 0
        self._in_flight_max = requests_in_flight
        self._multi_read: bool | None = None  # None: not known yet; the first one goes alone, as `_probe`
        self._probe: Unit | None = None
        self._ended = ""
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._session_id = 0
        self._inbox = Inbox(self._loop)
        self._fence = threading.Lock()
        self._connections = 0
        self._connection_seen = 0
        self._watches = ArmedWatches(chroot)
        self._linked = False
        client._connection = BatchingConnection(client, self._fire)
        client.add_listener(self._on_state)

    @property
    def session_id(self) -> int:
        """The id that `Stat.ephemeral_owner` shows."""
        return self._session_id

    @property
    def is_connected(self) -> bool:
        """Whether its connection stands."""
        return self._linked

    @property
    def connections(self) -> int:
        """How often it was connected."""
        return self._connections

    async def start(self) -> None:
        """Connects and creates the chroot. Waits for ever; the connector bounds it."""
        self.client.start_async()
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
        call = Call(len(ops), self._loop.create_future())
        self._calls.add(call)
        self._outbox.extend(units_of(call, ops))
        self._pump()
        return await call.future

    async def close(self) -> None:
        """Ends the session. Idempotent."""
        if self._ended:
            return
        self._end("the session was closed")
        await asyncio.shield(self._loop.run_in_executor(None, dispose, self.client))

    # On the loop.

    def _pump(self) -> None:
        while self._outbox and not self._ended and self._probe is None:
            unit = self._outbox[0]
            if is_too_large(unit.ops[0]):
                self._refused(self._outbox.popleft(), ZkCode.BAD_ARGUMENTS)
                continue
            if self._in_flight + unit.requests > self._in_flight_max and self._in_flight:
                return
            if len(unit.ops) > 1 and (self._multi_read is False or unit.requests > self._in_flight_max):
                self._outbox.popleft()
                self._outbox.extendleft(reversed(list(unit.singly())))
                continue
            if not self._submit(unit):
                return
            self._outbox.popleft()
            if len(unit.ops) > 1 and self._multi_read is None:
                self._probe = unit

    def _submit(self, unit: Unit) -> bool:
        """Hands a unit to kazoo; False when a new connection stands whose lost units are not back in the outbox yet."""
        reads = [op for op in unit.ops if isinstance(op, GetData)] if len(unit.ops) > 1 else []
        chroot, arming = self._chroot, None
        request = jute.encode_multi_read(reads, chroot) if reads else jute.encode(unit.ops[0], chroot)
        with self._fence:
            if self._connection_seen == 0 or self._connection_seen != self._connections:
                return False
            self._in_flight += unit.requests
            if reads and reads[0].watch:
                arming = self._watches.expect(reads)
                self.client._call(arming.request(), _ArmingReply(self, arming))
            self.client._call(request, _Reply(self, unit, arming))
        return True

    def _answered(self, unit: Unit, results: Sequence[ZkResult]) -> None:
        self._in_flight -= unit.requests
        if unit is self._probe:
            self._probe, self._multi_read = None, True
        if unit.call.settle(unit.first, results):
            self._calls.discard(unit.call)
        self._pump()

    def _batches_refused(self) -> None:
        self._multi_read = False

    def _refused(self, unit: Unit, code: ZkCode) -> None:
        log.error(ev.ZK_REQUEST_REFUSED, **refusal(unit.ops[0], unit.losses))
        if unit.call.settle(unit.first, [ZkResult(code)]):
            self._calls.discard(unit.call)

    def _connection_lost(self, unit: Unit) -> None:
        self._in_flight -= unit.requests
        unit.losses += 1
        if unit is self._probe:
            self._probe = None
        if not is_given_up(unit.ops[0], unit.losses):
            self._lost.append(unit)
            return
        self._refused(unit, ZkCode.CONNECTION_LOSS)

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
        self._loop.run_in_executor(None, dispose, self.client)
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
        self._linked = state == KazooState.CONNECTED
        if state == KazooState.CONNECTED:
            self._reconnected()
        elif state == KazooState.LOST:
            self.client._stopped.set()  # else kazoo would go on with a new session
            self._inbox.post(self._expired)
        else:
            log.warning(ev.ZK_CONNECTION_LOST, session_id=hex(self._session_id))

    def _reconnected(self) -> None:
        """Nothing was sent on the new connection yet: arm the watches first, and send lost units before new ones."""
        client = self.client
        with self._fence:
            self._connections += 1
            late = client._connection.begin(self._watches.requests(client.last_zxid))
        for reply in late:
            reply.set_exception(ConnectionLoss())
        self._inbox.post(self._connected, self._connections, client._session_id)

    def _fire(self, kind: int, path: str) -> None:
        if kind in _WATCH_KINDS and self._watches.disarm(_WATCH_KINDS[kind], path):
            self._inbox.post(self._watch_fired, WatchEvent(_WATCH_KINDS[kind], jute.relative(self._chroot, path)))


class _Reply:
    """Stands where kazoo expects an `AsyncResult`; called by its connection thread, once."""

    __slots__ = ("_arming", "_session", "_unit")

    def __init__(self, session: KazooSession, unit: Unit, arming: Arming | None) -> None:
        self._session = session
        self._unit: Unit | None = unit
        self._arming = arming

    def set(self, results: Sequence[ZkResult] | None = None) -> None:
        """The request was answered. None is kazoo's way to say that `exists` found nothing."""
        results = [ZkResult(ZkCode.NO_NODE)] if results is None else results
        unit, session = self._take(), self._session
        if unit is None:
            return
        if self._arming is not None and not self._arming.confirmed:  # never read without the watch
            session._inbox.post(session._connection_lost, unit)
            raise ConnectionDropped("reads were answered whose watches were not")
        if len(unit.ops) == 1:
            session._watches.arm(unit.ops[0], found=results[0].ok)
        session._inbox.post(session._answered, unit, results)

    def set_exception(self, error: Exception) -> None:
        """The request failed, or its connection did."""
        unit, session = self._take(), self._session
        if unit is None or isinstance(error, SessionExpiredError):
            return  # the state listener tells everybody
        if isinstance(error, ConnectionLoss | ConnectionClosedError | ConnectionDropped):
            session._inbox.post(session._connection_lost, unit)
        elif len(unit.ops) > 1:
            session._inbox.post(session._batches_refused)
            session._inbox.post(session._connection_lost, unit)
            raise ConnectionDropped("the server does not know multiRead")  # it ends the connection itself
        else:
            code = jute.code_of(getattr(error, "code", int(ZkCode.OTHER)))
            session._inbox.post(session._answered, unit, [ZkResult(code)])

    def _take(self) -> Unit | None:
        unit, self._unit = self._unit, None
        return unit


class _ArmingReply:
    """As `_Reply`, of the `setWatches` ahead of watched reads. When it fails, so does the connection: the reads behind
    it are sent again, with their watches."""

    __slots__ = ("_arming", "_session")

    def __init__(self, session: KazooSession, arming: Arming) -> None:
        self._session = session
        self._arming = arming

    def set(self, _results: object = None) -> None:
        """The watches are armed."""
        self._session._watches.confirm(self._arming)

    def set_exception(self, error: Exception) -> None:
        """The request failed, or its connection did."""
        session = self._session
        session._watches.withdraw(self._arming)
        if not isinstance(error, SessionExpiredError | ConnectionLoss | ConnectionClosedError | ConnectionDropped):
            session._inbox.post(session._batches_refused)
            raise ConnectionDropped(f"the server refuses setWatches: {error!r}")
