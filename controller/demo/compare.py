"""Whether the replay derived every ISR change that the live leaders made, and nothing else. Pure.

The live side comes from the brokers' own log lines (`isr.shrunk`, `isr.expanded`), not from the trace: what the replay
read and what it is held to come from different places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from controller.wire import log_events as ev
from controller.wire.trace import TraceEvent

_KINDS = {ev.ISR_SHRUNK: TraceEvent.ISR_SHRINK.value, ev.ISR_EXPANDED: TraceEvent.ISR_EXPAND.value}


class Change(NamedTuple):
    """One change of an ISR by its leader. ISRs are sorted: their order tells nothing."""

    topic: str
    partition: int
    leader_epoch: int
    kind: str
    isr_old: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Both sides, as multisets: what only one has is a difference."""

    agreed: int
    shrinks: int
    expands: int
    only_live: tuple[Change, ...]
    only_replayed: tuple[Change, ...]

    @property
    def holds(self) -> bool:
        """Whether both sides are the same, and not empty."""
        return self.agreed > 0 and not self.only_live and not self.only_replayed


def compare(live: Iterable[Change], replayed: Iterable[Change]) -> Comparison:
    """Holds the replay's changes against the live ones."""
    left, right = Counter(live), Counter(replayed)
    agreed = left & right
    return Comparison(
        agreed=agreed.total(),
        shrinks=sum(n for change, n in agreed.items() if change.kind == TraceEvent.ISR_SHRINK.value),
        expands=sum(n for change, n in agreed.items() if change.kind == TraceEvent.ISR_EXPAND.value),
        only_live=tuple(sorted((left - right).elements())),
        only_replayed=tuple(sorted((right - left).elements())),
    )


def live_changes(log_rows: Iterable[Mapping[str, Any]]) -> list[Change]:
    """The ISR changes among a broker's log lines."""
    return [_change(row, _KINDS[row["event"]], row["leader_epoch"]) for row in log_rows if row.get("event") in _KINDS]


def replayed_changes(history_rows: Iterable[Mapping[str, Any]]) -> list[Change]:
    """The changes that the rules derived, among the rows of the table `isr_history`."""
    return [
        _change(row, row["event"], row["leader_epoch"])
        for row in history_rows
        if row["source"] == "replayed" and row["event"] in _KINDS.values()
    ]


def _change(row: Mapping[str, Any], kind: str, leader_epoch: int) -> Change:
    return Change(
        topic=row["topic"],
        partition=row["partition"],
        leader_epoch=leader_epoch,
        kind=kind,
        isr_old=tuple(sorted(row["isr_old"])),
        isr=tuple(sorted(row["isr"])),
    )
