"""The rows that brokers traced, lane by lane, and what the rules of the replay make of them, once for all who ask.

A lane is what one broker wrote about one partition, over all its lives. Source: spec isr-replay.md §3, §7.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from broker_sim.replay.rows import LaneRow, OutcomeKind
from broker_sim.replay.rules.lane import Lane
from controller.sim.oracles.traced import WatchedTrace
from controller.wire.trace import STOP_KEEP, TraceEvent
from controller.wire.types import BrokerId, TopicPartition

Row = dict[str, Any]
_FIELDS: Final = frozenset(LaneRow._fields)
#: The kinds of rows that tell of a change of the ISR: of outcomes, too.
CHANGES: Final = frozenset({OutcomeKind.SHRINK.value, OutcomeKind.EXPAND.value})
#: Those that are always written at the moment that they tell of, unlike changes of the ISR, and fetches that are alike.
_MOMENTS: Final = frozenset({TraceEvent.LEADER.value, TraceEvent.TICK.value})
#: `ev` of rows, as text: they are many.
LEADER: Final = TraceEvent.LEADER.value
FETCH: Final = TraceEvent.FETCH.value
_STOP: Final = TraceEvent.STOP.value


class TracedRow(NamedTuple):
    """A row as the broker wrote it, and as the rules take it."""

    row: Row
    lane_row: LaneRow


class Write(NamedTuple):
    """An ISR write: when it was decided, and when it returned."""

    ts: int
    done: int


class Lower(NamedTuple):
    """A fetch at which the leader's high watermark was lower than that of the rules; `rose`: when theirs first was
    higher than what the leader's is now."""

    epoch: int
    ts: int
    rose: int


class SetBack(NamedTuple):
    """A clock was set back, in that leader epoch."""

    epoch: int
    before: int
    after: int


@dataclass(slots=True)
class Replayed:
    """One lane, and what came of it: `lane` has taken all rows, and is finished."""

    broker: BrokerId
    tp: TopicPartition
    rows: Sequence[TracedRow]
    lane: Lane
    writes: list[Write] = field(default_factory=list)
    lower: list[Lower] = field(default_factory=list)
    set_back: list[SetBack] = field(default_factory=list)
    #: leader epoch -> when it was stopped, and kept its replica
    stopped: dict[int, int] = field(default_factory=dict)
    #: each leadership that does not begin as its row says
    wrong_starts: list[str] = field(default_factory=list)


def replayed(traces: Iterable[WatchedTrace]) -> Iterator[Replayed]:
    """Each lane through the rules. `traces`: of all lives, oldest first."""
    return lanes_of(rows_by_broker(traces))


def lanes_of(rows: Mapping[BrokerId, Sequence[Row]]) -> Iterator[Replayed]:
    """As `replayed`, of rows from `rows_by_broker`."""
    for broker, own in rows.items():
        for tp, of_lane in _by_partition(own):
            yield _fed(broker, tp, of_lane)


def lane_row(row: Row) -> LaneRow:
    """As the rules take it."""
    of_topic = "topic" in row and "partition" not in row
    return LaneRow(of_topic=of_topic, **{name: value for name, value in row.items() if name in _FIELDS})


def rows_by_broker(traces: Iterable[WatchedTrace]) -> dict[BrokerId, list[Row]]:
    """All rows of each broker, in the order in which it wrote them; `run` counts its lives. `traces`: of all lives,
    oldest first."""
    rows: defaultdict[BrokerId, list[Row]] = defaultdict(list)
    for life, trace in enumerate(traces):
        rows[trace.broker] += [row | {"run": life} for row in trace.rows()]
    return rows


def _by_partition(rows: Sequence[Row]) -> list[tuple[TopicPartition, list[TracedRow]]]:
    """The rows of each partition, among them those of its topic and of the broker."""
    partitions = sorted({TopicPartition(row["topic"], row["partition"]) for row in rows if "partition" in row})
    found: dict[TopicPartition, list[TracedRow]] = {tp: [] for tp in partitions}
    for row in rows:
        one = TracedRow(row, lane_row(row))
        if "partition" in row:
            found[TopicPartition(row["topic"], row["partition"])].append(one)
        else:
            for tp in partitions:
                if row.get("topic", tp.topic) == tp.topic:
                    found[tp].append(one)
    return list(found.items())


def _fed(broker: BrokerId, tp: TopicPartition, rows: Sequence[TracedRow]) -> Replayed:
    """The lane of these rows, and what is to be known of it that only shows between two of them."""
    lane = Lane(broker=broker)
    one, rises, now = Replayed(broker, tp, rows, lane), _Rises(), 0
    for row, as_taken in rows:
        kind, led_before = row["ev"], lane.led
        if kind in _MOMENTS and row["ts"] < now:
            if led_before is not None:
                one.set_back.append(SetBack(led_before.epoch, now, row["ts"]))
            now = row["ts"]
        now = max(now, row["ts"])
        if kind == _STOP and row.get("value") == STOP_KEEP and led_before is not None:
            one.stopped[led_before.epoch] = row["ts"]
        lane.feed(as_taken)
        if kind == LEADER and led_before is None and lane.led is not None:
            # §3.1
            begins = lane.led.epoch, lane.led.high_watermark, list(lane.led.isr)
            if begins != (row["epoch"], row["hw"], row["isr"]) and len(row["isr"]) > 1:
                one.wrong_starts.append(f"a leadership begins with {begins}, its row is {row}")
        elif kind in CHANGES and "done" in row:
            one.writes.append(Write(row["ts"], row["done"]))
        rises.take(None if lane.led is None else lane.led.high_watermark, row["ts"])
        counts = kind == FETCH and not row.get("err") and "hw" in row
        if counts and (rose := rises.first_above(row["hw"])) is not None:
            one.lower.append(Lower(row["epoch"], row["ts"], rose))
    lane.finish()
    return one


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
