"""The broker's ZooKeeper client: one session at a time, a new one when it expires, watches that find their handler.

Everything that the broker says to ZooKeeper goes through `perform`, which waits over lost sessions as Kafka's client
does. What is said is elsewhere: `registration`, `replicas.isr_writer`, `config_store`, `topic_creation`.
Source: Kafka 3.9 `KafkaZkClient`, `ZooKeeperClient`; spec broker.md §2.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

from controller.wire import log_events as ev
from controller.wire.times import Times
from controller.wire.zk_operations import WatchEvent, ZkOp, ZkResult, ZkSessionExpired
from controller.world.ports import ZkConnector, ZkSession
from controller.world.supervisor import Supervisor

#: Pause between attempts to open a new session after one has expired.
RECONNECT_BACKOFF_S: Final = 1.0

WatchHandler = Callable[[WatchEvent], None]
SessionHandler = Callable[[], Awaitable[None]]


class ZkClient:
    """Opened once, closed once. Sessions come and go in between."""

    def __init__(self, connector: ZkConnector, *, supervisor: Supervisor | None = None, log: Any) -> None:
        self._connector, self._log = connector, log
        self._supervisor = supervisor if supervisor is not None else Supervisor(log)
        self.session: ZkSession | None = None
        self._previous_session_id = 0
        self._connected = asyncio.Event()
        self._watchers: dict[str, WatchHandler] = {}
        self._new_session_handlers: list[SessionHandler] = []
        self._reopening: asyncio.Task[None] | None = None
        self._closed = False
        self.latency_ms = Times()
        self.expirations = 0
        self._past_connections = 0

    @property
    def connections(self) -> int:
        """How often a connection was made, for all sessions."""
        return self._past_connections + (self.session.connections if self.session is not None else 0)

    @property
    def is_connected(self) -> bool:
        """Whether there is a session with a connection now."""
        return self.session is not None and self.session.is_connected

    async def open(self) -> None:
        """Opens the first session. Raises ZkUnreachable."""
        await self._open_session()

    async def _open_session(self) -> None:
        opened: list[ZkSession] = []
        session = await self._connector.connect(
            on_watch=self._dispatch, on_expired=lambda: self._expired(opened[0] if opened else None)
        )
        opened.append(session)
        self.session = session
        self._connected.set()
        self._log.info(ev.ZK_CONNECTED, session_id=f"{session.session_id:#x}")

    @property
    def session_id(self) -> int:
        """The id of the current session, 0 when there is none."""
        return self.session.session_id if self.session is not None else 0

    @property
    def previous_session_id(self) -> int:
        """The id of the session that expired last, 0 if none has."""
        return self._previous_session_id

    def watch(self, path: str, handler: WatchHandler) -> None:
        """From now on `handler` gets the watches that fire at `path`. Setting them is the reader's business."""
        self._watchers[path] = handler

    def on_new_session(self, handler: SessionHandler) -> None:
        """`handler` is awaited in each session after the first, in the order of these calls (re-register, re-read),
        also where one before it fails. Source: Kafka 3.9 `ZooKeeperClient.callAfterInitializingSession`."""
        self._new_session_handlers.append(handler)

    async def perform(self, ops: Sequence[ZkOp]) -> list[ZkResult]:
        """Performs the operations; waits and repeats them when the session expires meanwhile.

        As with a lost connection, a write may then be answered by NODE_EXISTS, BAD_VERSION or NO_NODE although an
        earlier attempt worked.
        """
        while True:
            await self._connected.wait()
            if (session := self.session) is None:
                continue  # it has ended since whoever waited was woken
            started_s = asyncio.get_running_loop().time()
            try:
                results = await session.perform(ops)
                self.latency_ms.add((asyncio.get_running_loop().time() - started_s) * 1000)
                return results
            except ZkSessionExpired:
                self._expired(session)

    async def perform_one(self, op: ZkOp) -> ZkResult:
        """`perform` of one operation."""
        (result,) = await self.perform([op])
        return result

    async def close(self) -> None:
        """Ends the session: the registration vanishes. Idempotent."""
        self._closed = True
        self._connected.clear()
        await self._cancel_reopening()
        if self.session is not None:
            await self.session.close()
            self.session = None

    async def expire(self) -> None:
        """Ends the session as if it had expired (a fault): the registration vanishes, a new session is opened."""
        session = self.session
        if session is not None and not self._closed:
            await session.close()
            self._expired(session)

    def abandoned_session(self) -> ZkSession | None:
        """The session that `abandon` lets go of."""
        return self.session

    async def abandon(self) -> None:
        """Lets go of the session without ending it, as a killed process does: it lives until it times out.

        Only the real process's end stops the heartbeats of a real session.
        """
        self._closed = True
        await self._cancel_reopening()
        self.session = None
        self._connected.clear()

    async def _cancel_reopening(self) -> None:
        if self._reopening is not None:
            self._reopening.cancel()
            await asyncio.gather(self._reopening, return_exceptions=True)

    def _dispatch(self, event: WatchEvent) -> None:
        handler = self._watchers.get(event.path)
        if handler is not None and not self._closed:
            handler(event)

    def _expired(self, session: ZkSession | None) -> None:
        """Once per session, from whoever notices first."""
        if self._closed or session is not self.session or self.session is None:
            return
        self._previous_session_id = self.session.session_id
        self._past_connections = self.connections
        self.expirations += 1
        self._log.warning(ev.ZK_SESSION_EXPIRED, session_id=f"{self._previous_session_id:#x}")
        self.session = None
        self._connected.clear()
        previous = self._reopening
        self._reopening = self._supervisor.once("session-renewal", partial(self._reopen, previous))

    async def _reopen(self, previous: asyncio.Task[None] | None) -> None:
        if previous is not None:
            previous.cancel()
            await asyncio.gather(previous, return_exceptions=True)
        while True:
            try:
                await self._open_session()
                break
            except Exception as error:  # as no descriptor or no thread left for it, which may pass, too
                self._log.warning(ev.ZK_RECONNECT_FAILED, reason=str(error) or repr(error))
                await asyncio.sleep(RECONNECT_BACKOFF_S)
        for handler in self._new_session_handlers:
            await self._supervisor.step("session-renewal", handler)
