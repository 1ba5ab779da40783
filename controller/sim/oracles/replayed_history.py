"""What the replay makes of a world beyond its lanes: what lanes share, the facts of each partition, its history.

The questions that the replay asks in SQL, and the fold of the facts, over the rows that brokers traced, against a plain
reading of these rows. Source: spec isr-replay.md §5, §6, §9.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from broker_sim.replay import schema
from broker_sim.replay.facts import FACT_ORDER, ISR_CHANGES, FactRow, WindowKind
from broker_sim.replay.history import PartitionHistory
from broker_sim.replay.open_spans import OpenReassignment
from broker_sim.replay.sql import run
from broker_sim.replay.sql.facts import FACTS
from broker_sim.replay.sql.lanes import SHARED_ROWS
from controller.sim.oracles.lanes import LEADER, Replayed, Row
from controller.wire.trace import TraceEvent
from controller.wire.types import BrokerId, TopicPartition

_TICK: Final = TraceEvent.TICK.value
_LEADS_NO_MORE: Final = frozenset({TraceEvent.FOLLOWER.value, TraceEvent.STOP.value})
#: Spark's names of types as Arrow's.
_TYPES: Final = {
    "string": pa.string(),
    "int": pa.int32(),
    "smallint": pa.int16(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "array<int>": pa.list_(pa.int32()),
}
_PROCESSES: Final = (
    "role string, broker int, run bigint, ticks bigint, bulk bigint, logged bigint, first_ts bigint, last_ts bigint"
)


def histories_contradict(rows: Mapping[BrokerId, Sequence[Row]], lanes: Sequence[Replayed]) -> Iterator[str]:
    """All that is wrong with what the replay makes of the brokers' rows, and of what came of their lanes."""
    of_trace = list(_not_many(rows))
    asked = {
        "trace": _table(schema.TRACE_DDL, of_trace),
        "processes": _table(_PROCESSES, _processes(of_trace)),
        "outcomes": _table(schema.OUTCOME_DDL, _outcomes(lanes)),
    }
    with run.tables(asked, Path()) as connection:
        shared = connection.execute(f"SELECT * FROM ({SHARED_ROWS}) WHERE ev = '{_TICK}'").to_arrow_table().to_pylist()
        facts = connection.execute(FACTS).to_arrow_table().to_pylist()
    yield from ticks_are_wrong(lanes, shared)
    by_partition = defaultdict[TopicPartition, list[FactRow]](list)
    for fact in facts:
        tp = TopicPartition(fact.pop("topic"), fact.pop("partition"))
        by_partition[tp].append(FactRow(**fact))
    yield from derived_beside_written(lanes, by_partition)
    for tp, own in sorted(by_partition.items()):
        yield from (f"replay: the history of {tp}: {what}" for what in folds_are_wrong(own))


def _not_many(rows: Mapping[BrokerId, Sequence[Row]]) -> Iterator[Row]:
    for broker, own in rows.items():
        for row in own:
            if row["ev"] not in schema.BULK_EVENTS:
                yield row | {"role": "broker", "broker": broker, "run": row["run"] + 1}


def _processes(of_trace: Iterable[Row]) -> Iterator[Row]:
    """Each life of a broker."""
    last = {(row["broker"], row["run"]): row["ts"] for row in of_trace}
    for (broker, life), ts in last.items():
        yield {"role": "broker", "broker": broker, "run": life, "ticks": 1, "bulk": 1, "logged": 0, "last_ts": ts}


def _outcomes(lanes: Iterable[Replayed]) -> Iterator[Row]:
    for one in lanes:
        for outcome in one.lane.outcomes:
            yield {"topic": one.tp.topic, "partition": one.tp.partition, "leader": one.broker} | outcome._asdict()


def _table(ddl: str, rows: Iterable[Row]) -> pa.Table:
    """What a row does not name is null."""
    columns = [column.replace("`", "").split() for column in ddl.split(",")]
    return pa.Table.from_pylist(list(rows), schema=pa.schema([(name, _TYPES[kind]) for name, kind in columns]))


def ticks_are_wrong(lanes: Iterable[Replayed], shared: Iterable[Row]) -> Iterator[str]:
    """A tick is of the partitions that its broker leads at that moment. §3.4."""
    found = defaultdict[tuple[TopicPartition, int], set[tuple[int, int]]](set)
    for row in shared:
        found[TopicPartition(row["topic"], row["partition"]), row["broker"]].add((row["run"] - 1, row["seq"]))
    for one in lanes:
        ticks, leading = set[tuple[int, int]](), -1
        for row, _ in one.rows:
            if row["ev"] == LEADER:
                leading = row["run"]
            elif row["ev"] in _LEADS_NO_MORE:
                leading = -1
            elif row["ev"] == _TICK and row["run"] == leading:
                ticks.add((leading, row["seq"]))
        if other := ticks ^ found[one.tp, one.broker]:
            yield f"replay: broker {one.broker}, {one.tp}: {len(other)} ticks are of a former leadership, or missing"


def derived_beside_written(
    lanes: Iterable[Replayed], facts: Mapping[TopicPartition, Sequence[FactRow]]
) -> Iterator[str]:
    """Where leaders wrote changes of an ISR, those that the rules derived are no facts beside them. §5."""
    written = {one.tp for one in lanes for row, _ in one.rows if row["ev"] in ISR_CHANGES and not row.get("err")}
    for tp in sorted(written):
        if derived := [fact for fact in facts.get(tp, ()) if fact.kind in ISR_CHANGES and fact.source == "replayed"]:
            yield f"replay: {tp}: {derived[0]} is a fact beside what was written"


def _in_order(fact: FactRow) -> tuple[Any, ...]:
    """As `steps.in_partitions` has them."""
    version = fact.zk_version
    return fact.ts, FACT_ORDER[fact.kind], -1 if fact.epoch is None else fact.epoch, version is None, version or 0


def folds_are_wrong(facts: Iterable[FactRow]) -> Iterator[str]:
    """Of one partition, as long as its topic is there. §5, §6."""
    fold = _Fold()
    for fact in sorted(facts, key=_in_order):
        fold.take(fact)
        if fold.history._is_deleted or fold.wrong:
            break
    fold.history.finish(fold.ts)
    yield from (*fold.wrong, *fold.moves_are_wrong(), *fold.windows_are_wrong())


def _going(history: PartitionHistory) -> OpenReassignment | None:
    move = history._reassignment
    return move if move is not None and move.finished is None else None


@dataclass(slots=True)
class _Fold:
    """A history, and beside it: the newest state that was told; how many replicas were missing, since when; each move,
    and when its target was first in sync. It is what the newest state says, whatever comes late, and what the rules
    derived from it: that a leader leads again in the same state does not tell that nothing was written since."""

    history: PartitionHistory = field(default_factory=PartitionHistory)
    ts: int = 0
    wrong: list[str] = field(default_factory=list)
    _newest: tuple[int, int, frozenset[int]] = (-1, -1, frozenset())
    _is_derived: bool = False
    _lacks: list[tuple[int, int]] = field(default_factory=list)
    _moves: dict[int, tuple[OpenReassignment, int | None]] = field(default_factory=dict)

    def take(self, fact: FactRow) -> None:
        """The next one."""
        history, self.ts = self.history, fact.ts
        going = _going(history)
        history.feed(fact)
        if fact.kind in ISR_CHANGES and fact.zk_version is None:
            self._is_derived = True
        elif fact.epoch is not None and fact.zk_version is not None and fact.isr is not None:
            if (fact.epoch, fact.zk_version) > self._newest[:2]:
                self._newest, self._is_derived = (fact.epoch, fact.zk_version, frozenset(fact.isr)), False
            if {*history._isr} != self._newest[2] and not (history._is_deleted or self._is_derived):
                newest = sorted(self._newest[2])
                self.wrong.append(f"after {fact} the ISR is {history._isr}, the newest state has {newest}")
        self._lacks.append((self.ts, max(0, len(history._replicas) - len(history._adding) - len(history._isr))))
        for move in (going, _going(history)):  # it may have ended with this very fact
            if move is not None:
                _, met = self._moves.get(id(move), (move, None))
                is_met = {*move.replicas} - {*move.removing} <= {*history._isr}
                self._moves[id(move)] = move, self.ts if met is None and is_met else met

    def moves_are_wrong(self) -> Iterator[str]:
        """A move may end once its target is in sync."""
        for move, met in self._moves.values():
            if move.condition != met:
                yield f"{move} could end at {move.condition}, its target was in sync at {met}"

    def windows_are_wrong(self) -> Iterator[str]:
        """A window lacks as many replicas as were missing, for as long."""
        times = [at for at, _ in self._lacks]
        for row in self.history.rows:
            if row.window != WindowKind.UNDER_REPLICATED.value or row.from_ts is None or row.to_ts is None:
                continue
            spans = zip(self._lacks, [*times[1:], self.ts], strict=True)
            missed = (lack * max(0, min(end, row.to_ts) - max(at, row.from_ts)) for (at, lack), end in spans)
            if row.deficit_ms != (lacked := sum(missed)):
                yield f"{row} lacks {row.deficit_ms} ms of replicas, not {lacked}"
