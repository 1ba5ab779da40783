"""How much a broker takes from its peers: connections in all, by address and per second, and bytes of requests.

Source: Kafka 3.9 `ConnectionQuotas`, `SimpleMemoryPool`, `SocketServer`.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from controller.wire.configs.broker import per_address_limits
from controller.wire.framing import MAX_REQUEST_BYTES

UNLIMITED: Final = 2**31 - 1
#: Connections that may come at once before the rate counts: those of one second.
_BURST_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Under the properties' names. `idle_ms` and `queued_max_request_bytes` -1 are no limit.

    `overrides`: address -> limit for connections from there, in the place of `max_connections_per_ip`.
    """

    max_request_bytes: int = MAX_REQUEST_BYTES
    max_connections: int = UNLIMITED
    max_connections_per_ip: int = UNLIMITED
    overrides: Mapping[str, int] = field(default_factory=dict)
    max_connection_creation_rate: int = UNLIMITED
    queued_max_request_bytes: int = -1
    idle_ms: int = 600_000

    def changed(self, values: Mapping[str, str]) -> ServerLimits:
        """With these dynamic broker configs; the others stay."""
        changes: dict[str, Any] = {
            name: int(values[key])
            for name in ("max_connections", "max_connections_per_ip", "max_connection_creation_rate")
            if (key := name.replace("_", ".")) in values
        }
        if (text := values.get("max.connections.per.ip.overrides")) is not None:
            changes["overrides"] = per_address_limits(text)
        return replace(self, **changes)


class ConnectionCounts:
    """The connections that are open, by address."""

    def __init__(self) -> None:
        self._by_host: Counter[str] = Counter()
        self._next_at = 0.0

    def is_full(self, limits: ServerLimits) -> bool:
        """Whether as many are open as may be in all."""
        return self._by_host.total() >= limits.max_connections

    def refusal(self, host: str, limits: ServerLimits, *, is_protected: bool = False) -> str | None:
        """Why one more connection from there is too many; None when it is not. `is_protected`: only by its address."""
        if self.is_full(limits) and not is_protected:
            return f"max.connections {limits.max_connections} reached"
        here = limits.overrides.get(host, limits.max_connections_per_ip)
        if self._by_host[host] >= here:
            return f"max.connections.per.ip {here} reached by {host}"
        return None

    def opened(self, host: str) -> None:
        """One more from there."""
        self._by_host[host] += 1

    def closed(self, host: str) -> None:
        """One less from there."""
        self._by_host[host] -= 1
        if self._by_host[host] <= 0:
            del self._by_host[host]

    def delay_s(self, now_s: float, limits: ServerLimits) -> float:
        """How long the connection that comes now must wait for `max.connection.creation.rate`; counts it."""
        rate = limits.max_connection_creation_rate
        if rate >= UNLIMITED:
            return 0.0
        self._next_at = max(self._next_at, now_s) + 1 / max(rate, 1)
        return max(self._next_at - now_s - _BURST_S, 0.0)


class RequestMemory:
    """Bytes of requests that are being read or served: at most `queued.max.request.bytes`, give or take a request.

    Who finds no room waits, in order, and its connection is not read meanwhile.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._used = limit, 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def used(self) -> int:
        """Bytes taken and not given back."""
        return self._used

    async def take(self, size: int) -> int:
        """Waits for room, then takes `size` bytes; returns them, to be given back."""
        while self._limit >= 0 and self._used >= max(self._limit, 1):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                self._pass_on(turn)
                raise
        self._used += size
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
