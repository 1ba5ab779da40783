"""Whether the replay derived every ISR change that the live leaders made, and nothing else. Pure.

The live side comes from the brokers' own log lines (`isr.shrink_decided`, `isr.expand_decided`), not from the trace:
what the replay read and what it is held to come from different places. Decisions are compared, because they are what
follows from the trace; whether ZooKeeper then took the write does not (a controller may have been faster, or the broker
may have been killed before the answer). A leader whose write was refused decides nothing more in that leader epoch; the
replay, which does not know of the refusal, may: that is counted apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from controller.wire import log_events as ev
from controller.wire.trace import TraceEvent

_KINDS = {ev.ISR_SHRINK_DECIDED: TraceEvent.ISR_SHRINK.value, ev.ISR_EXPAND_DECIDED: TraceEvent.ISR_EXPAND.value}


class Change(NamedTuple):
    """One change of an ISR by its leader. ISRs are sorted: their order tells nothing."""

    topic: str
    partition: int
    leader_epoch: int
    kind: str
    isr_old: tuple[int, ...]
    isr: tuple[int, ...]


class LedEpoch(NamedTuple):
    """A partition during one leader epoch."""

    topic: str
    partition: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What the leaders decided, and the epochs in which ZooKeeper refused one of their writes."""

    changes: tuple[Change, ...]
    refused: frozenset[LedEpoch] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Both sides, as multisets: what only one has is a difference."""

    agreed: int
    shrinks: int
    expands: int
    only_live: tuple[Change, ...]
    only_replayed: tuple[Change, ...]
    #: derived in an epoch after a refused write, where the leader itself had stopped deciding.
    after_refusal: int = 0

    @property
    def holds(self) -> bool:
        """Whether both sides are the same, and not empty."""
        return self.agreed > 0 and not self.only_live and not self.only_replayed


def compare(live: Live, replayed: Iterable[Change]) -> Comparison:
    """Holds the replay's changes against the live ones."""
    left, right = Counter(live.changes), Counter(replayed)
    agreed = left & right
    extra = sorted((right - left).elements())
    only_replayed = tuple(c for c in extra if LedEpoch(c.topic, c.partition, c.leader_epoch) not in live.refused)
    return Comparison(
        agreed=agreed.total(),
        shrinks=sum(n for change, n in agreed.items() if change.kind == TraceEvent.ISR_SHRINK.value),
        expands=sum(n for change, n in agreed.items() if change.kind == TraceEvent.ISR_EXPAND.value),
        only_live=tuple(sorted((left - right).elements())),
        only_replayed=only_replayed,
        after_refusal=len(extra) - len(only_replayed),
    )


def live_changes(log_rows: Iterable[Mapping[str, Any]]) -> Live:
    """The decisions and refusals among brokers' log lines."""
    changes: list[Change] = []
    refused: set[LedEpoch] = set()
    for row in log_rows:
        event = row.get("event")
        if event in _KINDS:
            changes.append(_change(row, _KINDS[event], row["leader_epoch"]))
        elif event == ev.ISR_WRITE_REFUSED and "leader_epoch" in row:
            refused.add(LedEpoch(row["topic"], row["partition"], row["leader_epoch"]))
    return Live(changes=tuple(changes), refused=frozenset(refused))


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
