"""No background task of a program ends by a fault of its code: what disks, peers and ZooKeeper do has its own errors.

Source: `controller.world.supervisor`, which notes all of them and goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from controller.wire import log_events as ev

#: What nothing outside of the program brings about.
FAULTS: Final = (LookupError, TypeError, AttributeError, NameError, AssertionError, ValueError, ArithmeticError)


class Tasks:
    """Hang `event` on the log. `broken` collects."""

    def __init__(self) -> None:
        self.broken: list[str] = []

    def event(self, event: Mapping[str, Any]) -> None:
        """What a program logged."""
        if event.get("event") == ev.TASK_FAILED and isinstance(event.get("exc_info"), FAULTS):
            who = next((f"{kind} {event[key]}" for kind, key in _PROGRAMS.items() if key in event), "somebody")
            self.broken.append(f"{who}: the task {event['task']} ends with {event['reason']}")


_PROGRAMS: Final = {"broker": "broker_id", "controller": "controller_id"}
