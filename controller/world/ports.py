"""What is passed in: time of day, network and ZooKeeper, as Protocols. `real` and `simulated` stand behind them.

The event loop itself is the port for timers: code here and above uses `asyncio.sleep`, `loop.time()` and tasks, and the
simulator runs it on a loop whose time is virtual. Chance is a `random.Random` that the caller seeds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from controller.wire.zk_operations import WatchEvent, ZkOp, ZkResult


class Clock(Protocol):
    """The time of day."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...


class Connection(Protocol):
    """One end of an ordered, reliable byte stream."""

    @property
    def peer(self) -> str:
        """The other end, as `host:port`, for logs."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether it was not closed, and the other end is not known to be gone."""
        ...

    async def recv(self) -> bytes:
        """Some bytes, at least one; `b""` once the other end has closed. Raises ConnectionError on a broken stream."""
        ...

    def send(self, data: bytes) -> None:
        """Queues bytes in order. Never blocks; bytes sent into a closed stream vanish."""
        ...

    async def drain(self) -> None:
        """Waits until the other side takes bytes again. Raises ConnectionError when the stream broke."""
        ...

    def close(self) -> None:
        """Closes both directions at once. Idempotent."""
        ...


class Listener(Protocol):
    """A bound, listening address."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port really bound (port 0 asks for a free one)."""
        ...

    async def close(self) -> None:
        """Stops accepting; connections that exist live on."""
        ...


ServeConnection = Callable[[Connection], Awaitable[None]]


class Network(Protocol):
    """TCP, or something like it."""

    async def connect(self, host: str, port: int) -> Connection:
        """Raises OSError when nobody listens, the peer cannot be reached, or there can be no such address."""
        ...

    async def listen(self, host: str, port: int, serve: ServeConnection) -> Listener:
        """Calls `serve` in a task of its own for each connection, and closes the connection when it returns.

        Raises OSError when the address cannot be bound.
        """
        ...

    def address_of(self, host: str) -> str:
        """The address that a name stands for, as peers have it. Raises OSError, which names the name."""
        ...


class ZkOperations(Protocol):
    """What performs operations: a session, or the client of a program, which may wait over the end of a session."""

    async def perform(self, ops: Sequence[ZkOp]) -> list[ZkResult]:
        """One result each, at the same index. May raise ZkSessionExpired."""
        ...


class ZkSession(Protocol):
    """One ZooKeeper session. It ends once and for all; a new one comes from the connector."""

    @property
    def session_id(self) -> int:
        """The id that `Stat.ephemeral_owner` shows."""
        ...

    @property
    def is_connected(self) -> bool:
        """Whether its connection stands."""
        ...

    @property
    def connections(self) -> int:
        """How often it was connected."""
        ...

    async def perform(self, ops: Sequence[ZkOp]) -> list[ZkResult]:
        """Performs all operations, pipelined, in order; one result each, at the same index.

        A lost connection is waited for and the unanswered operations are sent again, so a write may be answered by
        NODE_EXISTS, BAD_VERSION or NO_NODE although its first attempt worked. Never raises for a result code.
        Raises ZkSessionExpired once the session is gone (also while waiting).
        """
        ...

    async def close(self) -> None:
        """Ends the session: its ephemeral znodes vanish. Idempotent."""
        ...


class ZkConnector(Protocol):
    """Opens sessions."""

    async def connect(self, *, on_watch: Callable[[WatchEvent], None], on_expired: Callable[[], None]) -> ZkSession:
        """A new session. The callbacks run on the event loop: `on_watch` once per fired watch, in ZooKeeper's order;
        `on_expired` once, when the session expired (not after `close`).

        Raises ZkUnreachable when no server answers within the connector's time limit.
        """
        ...
