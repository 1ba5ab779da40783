"""What brokers trace replays to the ISR changes that they wrote: the rules of the replay, over the files of a world.

Only this oracle reads the files, so it alone sees what the writer collapses or leaves out. A lane is what one broker
wrote about one partition, over all its lives. Source: spec isr-replay.md §3, §7.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from broker_sim.replay.rows import LaneRow, Outcome, OutcomeKind
from broker_sim.replay.rules.lane import Lane
from broker_sim.trace import TraceWriter
from controller.wire.trace import STOP_KEEP, TraceEvent
from controller.wire.types import BrokerId, TopicPartition

Row = dict[str, Any]
_FIELDS: Final = frozenset(LaneRow._fields)
#: an ISR write: when it was decided, and when it returned
_Write = tuple[int, int]
#: a fetch at which the leader's high watermark was lower than that of the rules: leader epoch, when, when theirs
#: first was higher than what the leader's is now
_Lower = tuple[int, int, int]
_CHANGES: Final = {OutcomeKind.SHRINK.value, OutcomeKind.EXPAND.value}


def changes_do_not_follow(traces: Iterable[TraceWriter]) -> Iterator[str]:
    """Each membership change or high watermark that a leader wrote and its rows do not explain.

    `traces`: of all lives, oldest first.

    The other way round is no violation: a rule may want what ZooKeeper, cut off or slow, did not let a leader write.
    Where it wanted that while a write was on its way, it is elsewhere for the rest of that leader epoch (§3.5). So it
    is where its high watermark rose with that write, which it takes for done at once, and the leader's did not: a
    follower that fetched while the write was on its way holds it back, as one that is caught up (§3.6). That of the
    rules may rise again before the next fetch, or with it; neither ever falls, so it counts when that of the
    rules was first above where the leader's is now. Nor is what follows a stop that keeps a leader's replica: it leads
    on until it is told more, for the trace it has ended.
    """
    for (broker, tp), outcome, is_elsewhere in _outcomes(rows_by_broker(traces)):
        if outcome.kind == OutcomeKind.MISSING.value and not is_elsewhere:
            change = f"{outcome.change} of {outcome.replica} in {tp} at {outcome.ts}"
            yield f"replay: nothing in its trace explains broker {broker}'s {change}"
        elif outcome.kind == OutcomeKind.HW.value and outcome.amount != outcome.total:
            count = (outcome.total or 0) - (outcome.amount or 0)
            yield f"replay: {count} of {outcome.total} high watermarks of {tp} at broker {broker} are others"


def rows_by_broker(traces: Iterable[TraceWriter]) -> dict[BrokerId, list[Row]]:
    """All rows of each broker, in the order in which it wrote them; `run` counts its lives."""
    rows: defaultdict[BrokerId, list[Row]] = defaultdict(list)
    for life, trace in enumerate(traces):
        trace.flush_runs()
        if trace.path is not None:
            with trace.path.open() as lines:
                rows[trace.broker] += [{**json.loads(line), "run": life} for line in lines]
    return rows


def _outcomes(rows: Mapping[BrokerId, list[Row]]) -> Iterator[tuple[tuple[BrokerId, TopicPartition], Outcome, bool]]:
    for broker, own in rows.items():
        partitions = {TopicPartition(row["topic"], row["partition"]) for row in own if "partition" in row}
        for tp in sorted(partitions):
            lane, writes, lower = Lane(broker=broker), list[_Write](), list[_Lower]()
            rises, stopped = _Rises(), dict[int, int]()
            for row in own:
                if not concerns(row, tp):
                    continue
                if row["ev"] == TraceEvent.STOP.value and row.get("value") == STOP_KEEP and lane.led is not None:
                    stopped[lane.led.epoch] = row["ts"]
                lane.feed(lane_row(row))
                if "done" in row and row["ev"] in _CHANGES:
                    writes.append((row["ts"], row["done"]))
                rises.take(None if lane.led is None else lane.led.high_watermark, row["ts"])
                counts = row["ev"] == TraceEvent.FETCH.value and not row.get("err") and "hw" in row
                if counts and (rose := rises.first_above(row["hw"])) is not None:
                    lower.append((row["epoch"], row["ts"], rose))
            lane.finish()
            apart = stopped | _apart(lane.outcomes, writes, lower)
            for outcome in lane.outcomes:
                yield (broker, tp), outcome, apart.get(outcome.epoch, outcome.ts + 1) <= outcome.ts


class _Rises:
    """How the high watermark of the rules rose in one leadership, and when."""

    def __init__(self) -> None:
        self._values: list[int] = []
        self._times: list[int] = []

    def take(self, value: int | None, ts: int) -> None:
        """Where it is now; None while nobody leads here."""
        if value is None or (self._values and value < self._values[-1]):
            self._values, self._times = [], []
        if value is not None and (not self._values or value > self._values[-1]):
            self._values.append(value)
            self._times.append(ts)

    def first_above(self, value: int) -> int | None:
        """Since when it is higher than that; None: it is not."""
        nth = bisect_right(self._values, value)
        return self._times[nth] if nth < len(self._times) else None


def _apart(outcomes: Iterable[Outcome], writes: Sequence[_Write], lower: Iterable[_Lower]) -> dict[int, int]:
    """Leader epoch -> when the rules first changed the ISR while the leader, which waited for a write, could not; or
    when the leader's high watermark was first seen lower after a write with which that of the rules had risen above it.

    `writes`: when each was decided, and when it returned; those of a partition come one after the other.
    """
    apart: dict[int, int] = {}
    decided, returned = zip(*sorted(writes), strict=True) if writes else ((), ())
    for outcome in outcomes:
        nth = bisect_left(decided, outcome.ts) - 1
        if outcome.kind in _CHANGES and nth >= 0 and outcome.ts < returned[nth]:
            apart[outcome.epoch] = min(outcome.ts, apart.get(outcome.epoch, outcome.ts))
    seen = sorted({ts for _, ts, _ in lower})
    for epoch, ts, rose in lower:
        nth = bisect_right(decided, rose) - 1
        if nth >= 0 and rose < returned[nth] <= ts and seen[bisect_left(seen, decided[nth])] < returned[nth]:
            apart[epoch] = min(ts, apart.get(epoch, ts))
    return apart


def concerns(row: Row, tp: TopicPartition) -> bool:
    """Whether it is of this partition, or of more than one."""
    return bool(row.get("topic", tp.topic) == tp.topic and row.get("partition", tp.partition) == tp.partition)


def lane_row(row: Row) -> LaneRow:
    """As the rules take it."""
    of_topic = "topic" in row and "partition" not in row
    return LaneRow(of_topic=of_topic, **{name: value for name, value in row.items() if name in _FIELDS})
