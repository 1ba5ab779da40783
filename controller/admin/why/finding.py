"""What is found wrong: with what, why, and what to type next. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Trouble(Enum):
    """What can be wrong, in the order in which it is told."""

    NO_CONTROLLER = "no controller"
    QUORUM = "controllers behind"
    DAMAGED = "damaged in ZooKeeper"
    SILENT = "no answer"
    DELETION = "stuck in deletion"
    OFFLINE = "offline"
    UNDER_MIN_ISR = "under min ISR"
    UNDER_REPLICATED = "under-replicated"
    REASSIGNMENT = "in reassignment"
    NOT_PREFERRED = "not led by its preferred leader"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong: with what, why (facts, one a line), and the next commands to type."""

    trouble: Trouble
    subject: str
    summary: str
    because: tuple[str, ...] = ()
    next: tuple[str, ...] = ()
