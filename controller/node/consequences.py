"""What an exception in a recipe costs: one table for all; nowhere else is `Exception` caught."""

from __future__ import annotations

from enum import Enum
from typing import Final

from controller.core.effects import ControllerMoved
from controller.wire.zk_operations import ZkSessionExpired


class EventLost(Exception):
    """The event that was to answer failed; nothing is known about what it did. The caller may try again."""


class Consequence(Enum):
    """What follows."""

    #: Office or session are gone and the core acts on it. Whoever waits is told so, as if the event had been preempted.
    RESIGN = "resign"
    #: A bug or a broken world: the event is lost, the next one is taken. Whoever waits learns of the failure.
    FAULT = "fault"


CONSEQUENCE: Final[dict[type[Exception], Consequence]] = {
    ControllerMoved: Consequence.RESIGN,
    ZkSessionExpired: Consequence.RESIGN,
}


def consequence_of(error: Exception) -> Consequence:
    """The row for this exception; FAULT without one."""
    return next((row for kind, row in CONSEQUENCE.items() if isinstance(error, kind)), Consequence.FAULT)
