"""What machines of a simulated world have, for tests of that world."""

from __future__ import annotations

from controller.wire.zk_operations import WatchEvent
from controller.world.simulated.world import Machine
from controller.world.simulated.zk_session import SimulatedSession


async def session_of(machine: Machine, *, timeout_ms: int = 6_000) -> tuple[SimulatedSession, list[str]]:
    """A session of that machine, and what it hears: the paths of its watches, and `expired`."""
    seen: list[str] = []

    def on_watch(event: WatchEvent) -> None:
        seen.append(event.path)

    connector = machine.connector(session_timeout_ms=timeout_ms)
    return await connector.connect(on_watch=on_watch, on_expired=lambda: seen.append("expired")), seen
