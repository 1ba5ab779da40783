"""Who gets a connection: slots in all, by listener and by address, in the order in which the peers came.

A listener without a slot takes no more: in Kafka its acceptor stands still and peers wait in the socket's backlog, here
they are accepted and not read. As many as a backlog holds may wait, more are closed. The listener between brokers,
where there are others, is protected: it has slots as long as its own limit allows, and a client goes in its place.
Source: Kafka 3.9 `ConnectionQuotas` (`waitForConnectionSlot`, `connectionSlotAvailable`, `maxConnectionsExceeded`).
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import Final

from broker_sim.server_limits import UNLIMITED, ServerLimits

#: Connections that may come at once before the rate counts: those of one second.
_BURST_S: Final = 1.0


class NoConnection(Exception):
    """A peer that is sent away. The message names the limit."""


class ConnectionQuotas:
    """The connections that are open. Every `enter` that returned is followed by one `leave`."""

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._protected: str | None = None
        self._by_host: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._rate = ConnectionRate()
        self._rates: dict[str, ConnectionRate] = {}

    def protect(self, listener: str) -> None:
        """This listener takes connections above `max.connections`, too."""
        self._protected = listener

    def is_protected(self, listener: str) -> bool:
        """Whether it is that one."""
        return listener == self._protected

    def change(self, limits: ServerLimits) -> None:
        """From now on these count. Connections above them stay, except those that `excess` counts."""
        self._limits = limits
        self._admit()

    @property
    def excess(self) -> int:
        """How many connections of listeners that are not protected must be closed."""
        return max(0, self._by_listener.total() - self._limits.max_connections)

    async def enter(self, listener: str, host: str) -> None:
        """Returns once the peer has a slot. Raises NoConnection."""
        queue = self._waiting.setdefault(listener, deque())
        if not queue and self._has_slot(listener):
            self._by_listener[listener] += 1
        else:
            await self._wait(listener, queue)
        here = self._limits.overrides.get(host, self._limits.max_connections_per_ip)
        if self._by_host[host] >= here:
            self._give(listener)
            raise NoConnection(f"max.connections.per.ip {here} reached by {host}")
        self._by_host[host] += 1

    def leave(self, listener: str, host: str) -> None:
        """The connection has ended; who waits longest may have its slot."""
        self._by_host[host] -= 1
        if self._by_host[host] <= 0:
            del self._by_host[host]
        self._give(listener)

    def delay_s(self, listener: str, now_s: float) -> float:
        """How long the connection that has just entered waits for `max.connection.creation.rate`; counts it.

        The broker's rate neither holds up nor counts those of the protected listener: other brokers that come back
        leave it to the clients. Source: Kafka 3.9 `ConnectionQuotas.recordConnectionAndGetThrottleTimeMs`.
        """
        own = self._limits.of(listener).max_connection_creation_rate
        of_all = of_listener = 0.0
        if not self.is_protected(listener):
            of_all = self._rate.delay_s(now_s, self._limits.max_connection_creation_rate)
        if own is not None:
            of_listener = self._rates.setdefault(listener, ConnectionRate()).delay_s(now_s, own)
        return max(of_listener, of_all)

    def _has_slot(self, listener: str) -> bool:
        if self._by_listener[listener] >= self._limits.max_connections_of(listener):
            return False
        return self.is_protected(listener) or self._by_listener.total() < self._limits.max_connections

    async def _wait(self, listener: str, queue: deque[asyncio.Future[None]]) -> None:
        if len(queue) >= self._limits.backlog:
            raise NoConnection(f"{self._reached(listener)} and {len(queue)} connections wait")
        slot = asyncio.get_running_loop().create_future()
        queue.append(slot)
        try:
            await slot
        except asyncio.CancelledError:
            if not slot.cancelled():
                self._give(listener)
            elif slot in queue:
                queue.remove(slot)
            raise

    def _reached(self, listener: str) -> str:
        own = self._limits.of(listener).max_connections
        if own is not None and self._by_listener[listener] >= own:
            return f"listener.name.{listener.lower()}.max.connections {own} reached"
        return f"max.connections {self._limits.max_connections} reached"

    def _give(self, listener: str) -> None:
        self._by_listener[listener] -= 1
        self._admit()

    def _admit(self) -> None:
        for listener, queue in self._waiting.items():
            while queue and self._has_slot(listener):
                slot = queue.popleft()
                if not slot.cancelled():
                    self._by_listener[listener] += 1
                    slot.set_result(None)


class ConnectionRate:
    """Connections per second, counted."""

    def __init__(self) -> None:
        self._next_at = 0.0

    def delay_s(self, now_s: float, rate: int) -> float:
        """How long the connection that comes now must wait at that rate; counts it."""
        if rate >= UNLIMITED:
            return 0.0
        self._next_at = max(self._next_at, now_s) + 1 / max(rate, 1)
        return max(self._next_at - now_s - _BURST_S, 0.0)
