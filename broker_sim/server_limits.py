"""How much a broker takes from its peers: connections in all, by listener, by address and per second, and bytes of
requests. Who gets a connection is `connection_quotas`' affair.

Source: Kafka 3.9 `ConnectionQuotas`, `SimpleMemoryPool`, `SocketServer`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from broker_sim.config import BrokerSettings
from controller.rules.configs.broker import per_address_limits, split_listener_config
from controller.wire.framing import MAX_REQUEST_BYTES

UNLIMITED: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """What one listener may have of its own: `listener.name.<name>.max.connections` and so on; None: as the broker."""

    max_connections: int | None = None
    max_connection_creation_rate: int | None = None


_NO_LIMITS: Final = ListenerLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Under the properties' names. `idle_ms` -1 is no limit, nor are `queued_max_request_bytes` -1 and 0.

    `overrides`: address -> limit for connections from there, in the place of `max_connections_per_ip`. `listeners`:
    limits by name of the listener. `backlog`: connections of a listener that may wait for a slot. `address_of`: what a
    host's name stands for, in limits of single addresses.
    """

    max_request_bytes: int = MAX_REQUEST_BYTES
    max_connections: int = UNLIMITED
    max_connections_per_ip: int = UNLIMITED
    overrides: Mapping[str, int] = field(default_factory=dict)
    max_connection_creation_rate: int = UNLIMITED
    queued_max_request_bytes: int = -1
    idle_ms: int = 600_000
    listeners: Mapping[str, ListenerLimits] = field(default_factory=dict)
    backlog: int = 50
    address_of: Callable[[str], str] = str

    @classmethod
    def at_start(cls, settings: BrokerSettings, address_of: Callable[[str], str] = str) -> ServerLimits:
        """As the broker's own properties say. Raises ValueError for what is no number, OSError for an unknown host."""
        return cls(
            max_request_bytes=settings.socket_request_max_bytes,
            max_connections=settings.max_connections,
            max_connections_per_ip=settings.max_connections_per_ip,
            overrides=_by_address(settings.max_connections_per_ip_overrides, address_of),
            address_of=address_of,
            max_connection_creation_rate=settings.max_connection_creation_rate,
            queued_max_request_bytes=settings.queued_max_request_bytes,
            idle_ms=settings.connections_max_idle_ms,
            listeners=listener_limits(settings.given_values(), {}),
            backlog=settings.socket_listen_backlog_size,
        )

    def of(self, listener: str) -> ListenerLimits:
        """The limits of that listener alone."""
        return self.listeners.get(listener, _NO_LIMITS)

    def max_connections_of(self, listener: str) -> int:
        """How many that listener may have; as many as the broker where nothing is said."""
        own = self.of(listener).max_connections
        return self.max_connections if own is None else own

    def changed(self, values: Mapping[str, str]) -> ServerLimits:
        """With these dynamic broker configs; the others stay. Raises OSError for an unknown host."""
        changes: dict[str, Any] = {
            name: int(values[key])
            for name in ("max_connections", "max_connections_per_ip", "max_connection_creation_rate")
            if (key := name.replace("_", ".")) in values
        }
        if (text := values.get("max.connections.per.ip.overrides")) is not None:
            changes["overrides"] = _by_address(text, self.address_of)
        changes["listeners"] = listener_limits(values, self.listeners)
        return replace(self, **changes)


def _by_address(text: str, address_of: Callable[[str], str]) -> dict[str, int]:
    """The limits of single addresses; of a host that is named, of its first one (Kafka 3.9 `ConnectionQuotas`)."""
    return {address_of(host): limit for host, limit in per_address_limits(text).items()}


def listener_limits(values: Mapping[str, str], base: Mapping[str, ListenerLimits]) -> dict[str, ListenerLimits]:
    """`base`, changed by the properties of listeners among these. Raises ValueError for what is no number."""
    found = dict(base)
    for key, text in values.items():
        if (parts := split_listener_config(key)) is not None:
            name, limit = parts
            found[name] = replace(found.get(name, _NO_LIMITS), **{limit.replace(".", "_"): int(text)})
    return found


class RequestMemory:
    """Bytes of requests that are being read or served: at most `queued.max.request.bytes`, give or take a request.

    Who finds no room waits, in order, and its connection is not read meanwhile.
    """

    def __init__(self, limit: int) -> None:
        """`limit` -1 and 0: there is none. Source: Kafka 3.9 `SocketServer.memoryPool`."""
        self._limit, self._used = limit if limit > 0 else -1, 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def limit(self) -> int:
        """`queued.max.request.bytes`; negative: none."""
        return self._limit

    @property
    def used(self) -> int:
        """Bytes taken and not given back."""
        return self._used

    @property
    def _is_full(self) -> bool:
        return 0 < self._limit <= self._used

    def take_at_once(self, size: int) -> int:
        """As `take`, where there is room; 0 where there is none."""
        if self._is_full:
            return 0
        self._used += size
        return size

    async def take(self, size: int) -> int:
        """Waits for room, then takes `size` bytes; returns them, to be given back."""
        while self._is_full:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                self._pass_on(turn)
                raise
        self._used += size
        if not self._is_full:
            self._wake()  # one large request may have left room for many
        return size

    def _pass_on(self, turn: asyncio.Future[None]) -> None:
        """Who gave up waiting leaves its turn to the next."""
        if turn in self._waiting:
            self._waiting.remove(turn)
        elif not turn.cancelled():
            self._wake()

    def give(self, size: int) -> None:
        """Gives bytes back."""
        self._used -= size
        if size:
            self._wake()

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
