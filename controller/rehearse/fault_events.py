"""Rows of `docs/faults.md` as a rehearsal's events, and why those that are none cannot be rehearsed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from controller.rehearse.scenario import ScenarioError

#: fault -> the event, and column -> column of the event.
_EVENTS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "kill": ("kill", {}),
    "stop": ("stop", {}),
    "pause_replication": ("pause_replication", {"topic": "topic", "partition": "partition"}),
    "cut_link": ("cut_link", {"peer": "peer"}),
    "slow_disk": ("slow", {"bytes_per_second": "disk"}),
    "slow_link": ("slow", {"bytes_per_second": "link"}),
    "expire_session": ("expire_session", {}),
}
#: Columns of every row.
_SHARED: Final = ("at", "for", "broker", "rack")
#: fault -> why it cannot be rehearsed, and what may be instead.
REFUSED: Final[Mapping[str, str]] = {
    "api": "a rehearsal's clients and followers are rates and send no requests that could be dropped or refused",
    "fail_log_dir": "a cluster file does not say which partitions are in which directory; `kill` the broker instead, "
    "as the failure of its last directory does",
}
#: fault, column -> why that column cannot be rehearsed.
_REFUSED_COLUMNS: Final[Mapping[tuple[str, str], str]] = {
    ("slow_disk", "log_dir"): "a rehearsal's broker has one disk, of all its directories; leave it out",
    ("slow_link", "peer"): "a rehearsal's link is that of a broker to all others; leave it out",
    **{
        (fault, column): "a rehearsal knows rates, not turns; give bytes_per_second"
        for fault in ("slow_disk", "slow_link")
        for column in ("delay_ms", "jitter_ms")
    },
}


def fault_event(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The row of the event that a fault's row is. Raises ScenarioError."""
    kind = row.get("fault")
    if kind is None:
        raise ScenarioError(f"{where}: `fault` is missing, its kind; there are {', '.join(_EVENTS)}")
    if not isinstance(kind, str) or kind not in _EVENTS:
        why = f": {REFUSED[kind]}" if isinstance(kind, str) and kind in REFUSED else ""
        raise ScenarioError(
            f"{where}: fault {kind!r} cannot be rehearsed{why}; those that can are {', '.join(_EVENTS)}"
        )
    do, columns = _EVENTS[kind]
    event: dict[str, Any] = {"do": do}
    for name, value in row.items():
        if (kind, name) in _REFUSED_COLUMNS:
            raise ScenarioError(f"{where}: fault {kind!r}: {name} cannot be rehearsed: {_REFUSED_COLUMNS[kind, name]}")
        if name not in ("fault", *_SHARED, *columns):
            allowed = ", ".join((*_SHARED, *columns))
            raise ScenarioError(f"{where}: fault {kind!r}: {name} is not known; there are {allowed}")
        if name != "fault":
            event[columns.get(name, name)] = value
    return event
