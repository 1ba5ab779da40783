"""What an exception in a recipe costs. The one judge: whoever catches asks here what follows.

Whoever waits for an answer gets one in each case: the event's own (`step.preempted`), or, for a fault, a failure.

Source: spec controller.md §2.3, §4.1; Kafka 3.9 `ControllerEventProcessor`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from controller.core.effects import ControllerMoved, ZkReadFailed
from controller.wire.zk_operations import ZkSessionExpired


class Verdict(Enum):
    """What follows."""

    #: Another controller was elected: the office is given up. Whoever waits is answered as if the event were dropped.
    RESIGN = "resign"
    #: The session is gone, so nothing can be done until `Expire`, which follows. Whoever waits is answered likewise.
    DROP = "drop"
    #: Something cannot be read: nothing may be concluded, so it is tried again after a while.
    REPEAT = "repeat"
    #: A bug or a broken world: it is logged and counted, the event is lost, the next one is taken.
    FAULT = "fault"


_VERDICTS: Final[dict[type[Exception], Verdict]] = {
    ControllerMoved: Verdict.RESIGN,
    ZkSessionExpired: Verdict.DROP,
    ZkReadFailed: Verdict.REPEAT,
}


def judge(error: Exception) -> Verdict:
    """What follows from this exception; FAULT for one that nobody expects."""
    return next((verdict for kind, verdict in _VERDICTS.items() if isinstance(error, kind)), Verdict.FAULT)
