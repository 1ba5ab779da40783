"""A session of the ZooKeeper in memory: its client's half, its server's half, and the link between them.

While the link stands the session is kept alive (heartbeats are implied); once it breaks the server counts down the
session timeout and the client, when it can, connects again and sends what is unanswered once more.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import structlog

from controller.wire import log_events as ev
from controller.wire.zk_operations import Multi, WatchEvent, ZkCode, ZkOp, ZkResult, ZkSessionExpired, ZkWriteOp
from controller.world.large_requests import bytes_of, is_given_up, is_too_large, refusal

log = structlog.get_logger(__name__)

#: Operations that travel in one message at most; how many is drawn, so that clients interleave.
MESSAGE_OPS_MAX: Final = 64
#: A client whose link broke tries again after a time drawn from here (seconds).
RECONNECT_S: Final = (0.02, 0.5)


@dataclass(frozen=True, slots=True)
class _Reply:
    number: int
    result: ZkResult


@dataclass(slots=True)
class _Call:
    """One `perform`."""

    results: list[ZkResult | None]
    missing: int
    future: asyncio.Future[list[ZkResult]]


@dataclass(slots=True)
class _Pending:
    """An operation (with absolute paths) that is not answered yet, and with how many connections it was lost."""

    call: _Call
    index: int
    op: ZkOp
    losses: int = 0


class Server(Protocol):
    """What a session asks of its server; see `zookeeper.SimulatedZooKeeper`."""

    link_loss: float
    chance: random.Random
    running: bool
    request_bytes_max: int

    def reachable(self, machine: str) -> bool:
        """Whether a process on that machine gets an answer."""
        ...

    def holds_answers(self, machine: str) -> bool:
        """Whether what it is sent waits."""
        ...

    def lives(self, session: SimulatedSession) -> bool:
        """Whether the server takes the session for alive."""
        ...

    def forget_client(self, session: SimulatedSession) -> None:
        """Its client knows that the session has ended, or is dead itself."""
        ...

    def delay(self) -> float:
        """How long the next message takes, in seconds."""
        ...

    def perform(self, session: SimulatedSession, op: ZkOp) -> ZkResult:
        """Does it, for that session, with all that it fires."""
        ...

    def end(self, session: SimulatedSession) -> None:
        """The session is over."""
        ...


class SimulatedSession:
    """One session; see `ports.ZkSession`. What `ports` does not name is for the server alone."""

    def __init__(
        self,
        server: Server,
        session_id: int,
        machine: str,
        chroot: str,
        timeout_s: float,
        *,
        on_watch: Callable[[WatchEvent], None],
        on_expired: Callable[[], None],
    ) -> None:
        self.machine = machine
        self._server = server
        self._session_id = session_id
        self._chroot = chroot
        self._timeout_s = timeout_s
        self._on_watch = on_watch
        self._on_expired = on_expired
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._unanswered: dict[int, _Pending] = {}
        self._numbers = itertools.count()
        self._ended = ""
        self._dead = False
        self._connections = 1
        self._link = 1  # 0 while there is none; each new one has a new number
        self._links = itertools.count(2)
        self._arrivals = {"server": 0.0, "client": 0.0}
        self._to_client: list[_Reply | WatchEvent] = []
        self._untold: deque[WatchEvent] = deque()
        self._ageing: asyncio.TimerHandle | None = None
        self._reconnecting: asyncio.TimerHandle | None = None

    @property
    def session_id(self) -> int:
        """The id that `Stat.ephemeral_owner` shows."""
        return self._session_id

    @property
    def is_connected(self) -> bool:
        """Whether its connection stands."""
        return self._link != 0

    @property
    def connections(self) -> int:
        """How often it was connected."""
        return self._connections

    async def perform(self, ops: Sequence[ZkOp]) -> list[ZkResult]:
        """See `ports.ZkSession.perform`."""
        if self._ended:
            raise ZkSessionExpired(self._ended)
        if not ops:
            return []
        call = _Call([None] * len(ops), len(ops), self._loop.create_future())
        pending = {next(self._numbers): _Pending(call, index, _moved(op, self._chroot)) for index, op in enumerate(ops)}
        self._unanswered.update(pending)
        for number in [number for number, one in pending.items() if is_too_large(one.op)]:
            self._refuse(number, ZkCode.BAD_ARGUMENTS)
            del pending[number]
        self._send(list(pending))
        return await call.future

    async def close(self) -> None:
        """Ends the session; without a link the server finds out by the timeout. Idempotent."""
        if self._ended:
            return
        self._finish("the session was closed")
        if self._link:
            link = self._link
            await asyncio.sleep(self._server.delay())
            if link == self._link:
                self._server.end(self)
            await asyncio.sleep(self._server.delay())

    # The client's half.

    def _send(self, numbers: Sequence[int]) -> None:
        first = 0
        while self._link and first < len(numbers):
            count = self._server.chance.randint(1, MESSAGE_OPS_MAX)
            self._travel("server", self._receive, self._link, numbers[first : first + count])
            first += count

    def _travel(self, to: str, arrive: Callable[..., None], *args: Any) -> None:
        """Delivers after a delay, never before what was sent earlier the same way."""
        self._arrivals[to] = max(self._arrivals[to], self._loop.time() + self._server.delay())
        self._loop.call_at(self._arrivals[to], arrive, *args, context=contextvars.Context())

    def _deliver(self, link: int, messages: Sequence[_Reply | WatchEvent]) -> None:
        if link != self._link:
            return
        for message in messages:
            if isinstance(message, WatchEvent):
                self._untold.popleft()
                if not self._ended:
                    event = WatchEvent(message.kind, message.path[len(self._chroot) :] or "/")
                    self._loop.call_soon(self._on_watch, event, context=self._context)
            else:
                self._settle(message)

    def _settle(self, reply: _Reply) -> None:
        pending = self._unanswered.pop(reply.number, None)
        if pending is None:
            return
        call = pending.call
        call.results[pending.index] = _without(reply.result, self._chroot)
        call.missing -= 1
        if call.missing == 0 and not call.future.done():
            call.future.set_result([result for result in call.results if result is not None])

    def _finish(self, reason: str) -> None:
        self._ended = reason
        self._server.forget_client(self)
        for pending in self._unanswered.values():
            if not pending.call.future.done():
                pending.call.future.set_exception(ZkSessionExpired(reason))
        self._unanswered.clear()

    def _expired(self) -> None:
        if not self._ended and not self._dead:
            self._finish("the ZooKeeper session expired")
            self._loop.call_soon(self._on_expired, context=self._context)

    # The link.

    def break_link(self) -> None:
        """Whatever is under way, either way, is lost."""
        if self._link:
            self._link = 0
            self._to_client.clear()
            self._give_up_what_is_too_large()
            self.age()
            self.reconnect_soon()

    def _give_up_what_is_too_large(self) -> None:
        for number, pending in list(self._unanswered.items()):
            pending.losses += 1
            if is_given_up(pending.op, pending.losses):
                self._refuse(number, ZkCode.CONNECTION_LOSS)

    def _refuse(self, number: int, code: ZkCode) -> None:
        """A request that is too large is answered here."""
        pending = self._unanswered[number]
        log.error(ev.ZK_REQUEST_REFUSED, **refusal(pending.op, pending.losses))
        self._settle(_Reply(number, ZkResult(code)))

    def reconnect_soon(self) -> None:
        """The client connects again after a while, where it can."""
        if self._link or self._dead or self._reconnecting or not self._server.reachable(self.machine):
            return
        delay = self._server.chance.uniform(*RECONNECT_S)
        self._reconnecting = self._loop.call_later(delay, self._reconnect, context=contextvars.Context())

    def _reconnect(self) -> None:
        self._reconnecting = None
        if self._dead or not self._server.reachable(self.machine):
            return
        if not self._server.lives(self):
            self._expired()
            return
        if self._ended:
            return
        self.stop_ageing()
        self._link = next(self._links)
        self._connections += 1
        if self._untold:
            self._travel("client", self._deliver, self._link, list(self._untold))
        self._send(list(self._unanswered))

    def die(self) -> None:
        """The client's process is gone: nobody keeps the session alive."""
        self._dead = True
        self._link = 0
        self._server.forget_client(self)
        self.age()

    # The server's half.

    def _receive(self, link: int, numbers: Sequence[int]) -> None:
        if link != self._link:
            return
        chance = self._server.chance
        lost = self._server.link_loss > 0 and chance.random() < self._server.link_loss
        if lost and chance.random() < 0.5:
            self.break_link()
            return
        for number in numbers:
            pending = self._unanswered.get(number)
            if pending is not None and bytes_of(pending.op) > self._server.request_bytes_max:
                self.break_link()
                return
            if pending is not None:
                result = self._server.perform(self, pending.op)  # first: what it fires flushes the list
                self._to_client.append(_Reply(number, result))
        if lost:
            self.break_link()
        else:
            self.flush()

    def fired(self, event: WatchEvent) -> None:
        """A watch fired. It goes before every later reply, and again over the next link if this one breaks."""
        self._untold.append(event)
        if self._link:
            self._to_client.append(event)
            self.flush()

    def flush(self) -> None:
        """Sends what there is for the client, unless the server holds it back."""
        if self._link and self._to_client and not self._server.holds_answers(self.machine):
            self._travel("client", self._deliver, self._link, self._to_client)
            self._to_client = []

    def age(self) -> None:
        """Nobody keeps the session alive any more: it has its timeout left."""
        if self._ageing is None and not self._link and self._server.running:
            self._ageing = self._loop.call_later(self._timeout_s, self._time_out, context=contextvars.Context())

    def stop_ageing(self) -> None:
        """Somebody keeps it alive again, or nobody may count its time."""
        if self._ageing is not None:
            self._ageing.cancel()
            self._ageing = None

    def _time_out(self) -> None:
        self._ageing = None
        self._server.end(self)
        self.reconnect_soon()

    def expire(self) -> None:
        """The server ended the session while the link stands."""
        if self._link:
            self._link = 0
            self._loop.call_later(self._server.delay(), self._expired, context=contextvars.Context())
        else:
            self.reconnect_soon()


def _moved(op: ZkOp, chroot: str) -> ZkOp:
    """The operation with absolute paths."""
    if not chroot:
        return op
    if isinstance(op, Multi):
        return Multi(tuple(_moved_write(one, chroot) for one in op.ops))
    return replace(op, path=chroot if op.path == "/" else chroot + op.path)


def _moved_write(op: ZkWriteOp, chroot: str) -> ZkWriteOp:
    return replace(op, path=chroot if op.path == "/" else chroot + op.path)


def _without(result: ZkResult, chroot: str) -> ZkResult:
    """The result with paths below the chroot."""
    if not chroot or not (result.path or result.results):
        return result
    path = result.path[len(chroot) :] or "/" if result.path else ""
    return result._replace(path=path, results=tuple(_without(one, chroot) for one in result.results))
