"""Who starts a task of asyncio: the supervisor, so that nobody's end goes unnoticed; and few who await theirs."""

from __future__ import annotations

import ast
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


def tasks_started(tree: ast.Module) -> list[int]:
    """The lines that start a task."""
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [(call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", ""), call.lineno) for call in calls]
    return sorted(line for name, line in named if name in STARTERS)
