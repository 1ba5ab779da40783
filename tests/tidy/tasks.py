"""Who starts a task of asyncio: the supervisor, so that nobody's end goes unnoticed; and few who await theirs."""

from __future__ import annotations

from typing import Final

STARTERS: Final = frozenset({"create_task", "ensure_future", "TaskGroup"})
#: Whoever starts tasks without the supervisor -> how their end is noticed.
NOTICED: Final = {
    "controller.world.supervisor": "it is the supervisor",
    "controller.world.client": "the reader's end fails whoever waits for an answer",
    "controller.world.real.net": "a connection that is served: its end closes it, and what it raises is logged",
    "controller.node.run": "awaited at once",
    "broker_sim.run": "awaited at once",
    "broker_sim.host": "awaited at once",
}
