"""`--fail-on`: what makes a rehearsal fail in a pipeline. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from controller.rehearse.answer import partitions
from controller.rehearse.clock import clock
from controller.rehearse.scenario import parse_ms


class FailOnError(ValueError):
    """A condition that does not exist. The message names those that do."""


Check = Callable[[Mapping[str, Any]], str | None]
_ETA: Final = re.compile(r"eta\s*>\s*(.+)")


def _trouble(name: str, words: str) -> Check:
    def check(summary: Mapping[str, Any]) -> str | None:
        count = summary["troubles"][name]["partitions"]
        return f"{partitions(count)} {words}" if count else None

    return check


def _unclean(summary: Mapping[str, Any]) -> str | None:
    count = summary["unclean_elections"]
    return f"{count:,} unclean election{'' if count == 1 else 's'}" if count else None


def _never_ends(summary: Mapping[str, Any]) -> str | None:
    return None if summary["is_over"] else "moves or catch-ups never end"


def _refused(summary: Mapping[str, Any]) -> str | None:
    size = summary["refused_bytes"]
    return f"{size / 1e6:.1f} MB of records refused" if size else None


def _lost(summary: Mapping[str, Any]) -> str | None:
    size = summary["lost_bytes"]
    return f"{size / 1e6:.1f} MB of acknowledged records lost" if size else None


def _at_risk(summary: Mapping[str, Any]) -> str | None:
    size = summary["at_risk_bytes"]
    return f"{size / 1e6:.1f} MB of records on one replica alone" if size else None


CONDITIONS: Final[Mapping[str, Check]] = {
    "offline": _trouble("offline", "offline"),
    "under-min-isr": _trouble("under_min_isr", "under min ISR"),
    "under-replicated": _trouble("under_replicated", "under-replicated"),
    "unclean": _unclean,
    "refused": _refused,
    "lost": _lost,
    "at-risk": _at_risk,
    "never-ends": _never_ends,
}


def _eta(limit_ms: int) -> Check:
    def check(summary: Mapping[str, Any]) -> str | None:
        end_ms = summary["moves_end_ms"]
        if end_ms is None:
            moved = summary["troubles"]["moving"]["partitions"]
            return "the moves do not end within the rehearsal" if moved else None
        return f"the moves end at {clock(end_ms)}, after {clock(limit_ms)}" if end_ms > limit_ms else None

    return check


def parse_conditions(text: str) -> tuple[Check, ...]:
    """`offline,eta>2h` as checks. Raises FailOnError."""
    return tuple(_condition(part.strip()) for part in text.split(","))


def _condition(text: str) -> Check:
    if text in CONDITIONS:
        return CONDITIONS[text]
    if found := _ETA.fullmatch(text):
        try:
            return _eta(parse_ms(found[1]))
        except ValueError as error:
            raise FailOnError(f"--fail-on {text}: {error}") from error
    raise FailOnError(f"--fail-on: {text!r} is not known; there are {', '.join(CONDITIONS)} and eta>TIME")


def failures(conditions: Sequence[Check], summary: Mapping[str, Any]) -> list[str]:
    """What went wrong of what was asked for, in the order of the conditions. `summary` is that of an `Outcome`."""
    return [reason for check in conditions if (reason := check(summary)) is not None]
