"""A ZooKeeper in memory behind `ports.ZkConnector`: sessions that time out, ordered replies and watches, lost links.

This is the server, and what a process connects with; `zk_session` holds both halves of a session.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Final

from controller.wire.zk_operations import (
    Create,
    Exists,
    GetChildren,
    GetData,
    WatchEvent,
    ZkCode,
    ZkOp,
    ZkResult,
    ZkUnreachable,
)
from controller.world.large_requests import JUTE_MAXBUFFER
from controller.world.ports import Clock
from controller.world.simulated.net import Latency
from controller.world.simulated.zk_session import SimulatedSession
from controller.world.simulated.znode_tree import WatchTable, ZnodeTree, ancestors_of

_FIRST_SESSION: Final = 0x100000000000000


class SimulatedZooKeeper:
    """The server. `on_commit` is called after each change with what it fired; checkers look at `tree` there."""

    def __init__(self, chance: random.Random, clock: Clock, *, latency: Latency | None = None) -> None:
        self.tree = ZnodeTree()
        self.on_commit: list[Callable[[Sequence[WatchEvent]], None]] = []
        #: Called after each operation, with the session, the operation and its result.
        self.on_operation: list[Callable[[SimulatedSession, ZkOp, ZkResult], None]] = []
        #: Chance that a message ends its connection: half of them before it is processed, half before the reply.
        self.link_loss = 0.0
        #: A larger request ends its connection (`jute.maxbuffer`).
        self.request_bytes_max = JUTE_MAXBUFFER
        self.chance = chance
        self.running = True
        self._clock = clock
        self._latency = self._usual_latency = latency or Latency()
        self.watches = WatchTable()
        self._sessions: dict[int, SimulatedSession] = {}  # those that live
        self._clients: dict[int, SimulatedSession] = {}  # those whose client has not seen their end yet
        self._ids = itertools.count(_FIRST_SESSION)
        self._cut: set[str] = set()
        self._kept_waiting: set[str] = set()
        self._changed = asyncio.Event()

    def connector(
        self, machine: str, *, chroot: str = "", session_timeout_ms: int = 18_000, connect_timeout_s: float = 18.0
    ) -> SimulatedConnector:
        """What a process on that machine connects with."""
        return SimulatedConnector(self, machine, chroot, session_timeout_ms, connect_timeout_s)

    @property
    def sessions(self) -> dict[int, str]:
        """Sessions that the server knows, with the machine of each."""
        return {number: session.machine for number, session in self._sessions.items()}

    @property
    def connected(self) -> dict[int, str]:
        """Sessions that a client keeps alive, with the machine of each; those that it has begun to close are none."""
        found = {number: session for number, session in self._sessions.items() if number in self._clients}
        return {number: session.machine for number, session in found.items() if session.is_connected}

    # Faults.

    def expire_session(self, session_id: int) -> None:
        """The server ends the session now: its ephemeral znodes go, its client is told."""
        session = self._sessions.get(session_id)
        if session is not None:
            self.end(session)
            session.expire()

    def expire_sessions_of(self, machine: str) -> None:
        """The same of all sessions of a machine."""
        for session_id, name in sorted(self.sessions.items()):
            if name == machine:
                self.expire_session(session_id)

    def disconnect(self, session_id: int) -> None:
        """Breaks the session's connection: what is under way is lost, the client connects again."""
        session = self._sessions.get(session_id)
        if session is not None:
            session.break_link()

    def cut(self, machine: str) -> None:
        """A partition between the machine and the server."""
        self._cut.add(machine)
        self._break_links(machine)

    def hold_answers(self, machine: str) -> None:
        """What the machine asks for is done, and nothing reaches it: answers and watches wait, in their order. For
        less than a client waits before it takes its link for broken, which is two thirds of its session timeout."""
        self._kept_waiting.add(machine)

    def let_answers_go(self, machine: str) -> None:
        """What waited for the machine goes to it."""
        self._kept_waiting.discard(machine)
        for session in list(self._sessions.values()):
            if session.machine == machine:
                session.flush()

    def heal(self, machine: str | None = None) -> None:
        """Ends the partition of a machine, or all."""
        self._cut -= {machine} if machine else set(self._cut)
        for name in sorted({machine} if machine else self._kept_waiting):
            self.let_answers_go(name)
        self._notify()

    def kill(self, machine: str) -> None:
        """The process on the machine dies without closing its sessions: they time out."""
        for session in list(self._sessions.values()):
            if session.machine == machine:
                session.die()

    def stop(self) -> None:
        """The server stops answering. Sessions do not age meanwhile, as after a restart of the real one."""
        self.running = False
        for session in list(self._sessions.values()):
            session.break_link()
            session.stop_ageing()

    def start(self) -> None:
        """The server answers again; sessions that nobody resumes time out from now on."""
        self.running = True
        for session in list(self._sessions.values()):
            session.age()
        self._notify()

    @property
    def is_disturbed(self) -> bool:
        """Whether it is stopped, slow, lossy, or somebody is cut off from it."""
        is_cut = bool(self._cut or self._kept_waiting or self.link_loss)
        return not self.running or is_cut or self._latency is not self._usual_latency

    # For sessions (`zk_session.Server`).

    def reachable(self, machine: str) -> bool:
        """Whether a process on that machine gets an answer."""
        return self.running and machine not in self._cut

    def holds_answers(self, machine: str) -> bool:
        """Whether what it is sent waits."""
        return machine in self._kept_waiting

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        for session in list(self._clients.values()):
            session.reconnect_soon()

    def _break_links(self, machine: str) -> None:
        for session in list(self._sessions.values()):
            if session.machine == machine:
                session.break_link()

    def slow(self, latency: Latency | None) -> None:
        """Another delay of each message; None for the usual one."""
        self._latency = latency or self._usual_latency

    def lives(self, session: SimulatedSession) -> bool:
        """Whether the server takes the session for alive."""
        return self._sessions.get(session.session_id) is session

    def forget_client(self, session: SimulatedSession) -> None:
        """Its client knows that the session has ended, or is dead itself."""
        self._clients.pop(session.session_id, None)

    def delay(self) -> float:
        """How long the next message takes, in seconds."""
        return self._latency.draw(self.chance)

    def perform(self, session: SimulatedSession, op: ZkOp) -> ZkResult:
        """Does it, for that session, with all that it fires."""
        result = self._apply(session, op)
        for observer in self.on_operation:
            observer(session, op, result)
        return result

    def _apply(self, session: SimulatedSession, op: ZkOp) -> ZkResult:
        if isinstance(op, GetData | Exists | GetChildren):
            result = self.tree.read(op)
            if result.code in (ZkCode.OK, ZkCode.NO_NODE):  # what is refused arms nothing
                self.watches.arm(op, session.session_id, found=result.ok)
            return result
        written = self.tree.write(op, session=session.session_id, now_ms=self._clock.now_ms())
        self._commit(written.fires)
        return written.result

    def _commit(self, fires: Sequence[WatchEvent]) -> None:
        for session_id, event in self.watches.fire(fires):
            self._sessions[session_id].fired(event)
        if fires:
            for observer in self.on_commit:
                observer(fires)

    def end(self, session: SimulatedSession) -> None:
        """The session is over: its ephemeral znodes and its watches go. Idempotent."""
        if self._sessions.pop(session.session_id, None) is not None:
            self.watches.forget(session.session_id)
            self._commit(self.tree.end_session(session.session_id, now_ms=self._clock.now_ms()))


class SimulatedConnector:
    """`ports.ZkConnector` for one machine."""

    def __init__(
        self,
        server: SimulatedZooKeeper,
        machine: str,
        chroot: str,
        session_timeout_ms: int,
        connect_timeout_s: float,
    ) -> None:
        self._server = server
        self._machine = machine
        self._chroot = chroot.rstrip("/")
        self._session_timeout_ms = session_timeout_ms
        self._connect_timeout_s = connect_timeout_s

    async def connect(
        self, *, on_watch: Callable[[WatchEvent], None], on_expired: Callable[[], None]
    ) -> SimulatedSession:
        """See `ports.ZkConnector.connect`."""
        server = self._server
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                while not server.reachable(self._machine):
                    await server._changed.wait()
                await asyncio.sleep(server.delay() + server.delay())
        except TimeoutError:
            raise ZkUnreachable(f"{self._machine}: the simulated ZooKeeper does not answer") from None
        session = SimulatedSession(
            server,
            next(server._ids),
            self._machine,
            self._chroot,
            self._session_timeout_ms / 1000,
            on_watch=on_watch,
            on_expired=on_expired,
        )
        server._sessions[session.session_id] = server._clients[session.session_id] = session
        for path in ancestors_of(self._chroot) if self._chroot else ():
            if server.tree.get(path) is None:
                server.perform(session, Create(path))
        return session
