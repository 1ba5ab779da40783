"""The ways of a validation without Spark: the same pure steps, put together with sorts and dictionaries.

For runs that fit in memory, in a process of its own: seven recorded runs take about a minute, most of it rules. What
Spark adds (partitioning, order, batches) is held against this by the tests of the job.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

from broker_sim.isr import PROFILES
from broker_sim.replay.errors import ReplayRefused, reading
from broker_sim.replay.facts import FACT_EVENTS, FACT_ORDER, FACT_OUTCOMES, ISR_CHANGES, STOP_FACTS, FactRow
from broker_sim.replay.history import PartitionHistory
from broker_sim.replay.logs.facts import CLUSTER, OF_CLUSTER, OF_SESSIONS, Fact, What
from broker_sim.replay.logs.files import FileKind, LogFile, is_packed
from broker_sim.replay.logs.kinds_of_brokers import Marks, brokers_of
from broker_sim.replay.logs.reader import LogReader, Place, kept_pattern
from broker_sim.replay.logs.request_lines import Sessions
from broker_sim.replay.logs.ticks import Ticks
from broker_sim.replay.logs.waiting_rows import EMITTED
from broker_sim.replay.logs.weave import Weave
from broker_sim.replay.rows import ALIVENESS_RUN, LaneRow
from broker_sim.replay.rules.lane import Lane
from broker_sim.replay.schema import REQUIRED
from broker_sim.replay.validation.figures import State, StateKey
from controller.wire.types import BrokerId

_LANE_FIELDS: Final = frozenset(LaneRow._fields)
_FACT_FIELDS: Final = frozenset(FactRow._fields)
_ALIVENESS: Final = ("broker_up", "broker_down")
_OF_CONTROLLER: Final = (*_ALIVENESS, "assign", "elect", "delete", "controller")
_STATES: Final = ("isr_shrink", "isr_expand", "elect", "leader")
#: A computed check comes after what arrived in its ms.
_TICK_US: Final = 999

Row = dict[str, Any]


def rows_of_trace(file: Path) -> list[Row]:
    """The rows of a packed trace. Raises: ReplayRefused, where one is none."""
    with reading(file), gzip.open(file, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    for number, row in enumerate(rows, 1):
        if not _is_row(row):
            raise ReplayRefused(f"{file} cannot be read: line {number} is no row of a trace")
    return rows


def _is_row(row: Any) -> bool:
    needed = REQUIRED.get(str(row.get("ev"))) if isinstance(row, dict) else None
    return needed is not None and all(row.get(name) is not None for name in ("seq", "ts", "broker", *needed))


def rows_of_logs(files: Iterable[LogFile], zone: ZoneInfo) -> list[Row]:
    """Log files as trace rows; a row's nulls are absent."""
    facts = [fact for file in files if file.kind is FileKind.LOG for fact in _facts(file, zone)]
    marks = Marks()
    for fact in facts:
        marks.take(fact)
    brokers = brokers_of(marks.seen())
    groups: dict[tuple[Any, ...], list[Fact]] = defaultdict(list)
    woven = (f for f in facts if f.what not in (*OF_SESSIONS, What.ANSWERED))
    for fact in (*woven, *_fetches(facts), *_ticks(facts)):
        of_broker = None if fact.partition is not None else CLUSTER if fact.what in OF_CLUSTER else fact.broker
        groups[fact.topic, fact.partition, of_broker].append(fact)
    rows: list[Row] = []
    for group in groups.values():
        weave = Weave(brokers.unsaid, brokers.every, brokers.starts)
        for fact in sorted(group, key=lambda f: (f.at_us, f.file or "", f.line or 0, f.sub)):
            weave.feed(fact)
        weave.finish()
        rows += (_without_nulls(dict(zip(EMITTED, row, strict=True))) for row in weave.rows)
    return rows


def _without_nulls(row: Row) -> Row:
    return {name: value for name, value in row.items() if value is not None}


def _facts(file: LogFile, zone: ZoneInfo) -> Iterator[Fact]:
    reader, kept, number = LogReader(zone, file.broker), re.compile(kept_pattern(zone)), 0
    opener: Any = gzip.open if is_packed(file.path) else open
    with reading(file.path), opener(file.path, "rt", encoding="utf-8", errors="replace") as lines:
        for number, text in enumerate(lines):
            line = text.rstrip("\r\n")
            if kept.search(line):
                yield from reader.feed(line, Place(str(file.path), number))
    yield from reader.finish(Place(str(file.path), number))


def _fetches(facts: list[Fact]) -> Iterator[Fact]:
    by_session: dict[tuple[int | None, int | None], list[Fact]] = defaultdict(list)
    for fact in facts:
        if fact.what in OF_SESSIONS:
            by_session[fact.broker, fact.session].append(fact)
    for of_session in by_session.values():
        sessions = Sessions()
        for fact in sorted(of_session, key=lambda f: (f.at_us, f.correlation or 0, f.file or "", f.sub)):
            yield from sessions.feed(fact)
        yield from sessions.finish()


def _ticks(facts: list[Fact]) -> Iterator[Fact]:
    by_broker: dict[int | None, Ticks] = defaultdict(Ticks)
    for fact in sorted(facts, key=lambda f: f.at_us):
        by_broker[fact.broker].feed(fact)
    for broker, ticks in by_broker.items():
        for ms in ticks.times():
            yield Fact(broker, ms * 1000 + _TICK_US, What.TICK, ts=ms)


def states_of(rows: Iterable[Row]) -> dict[StateKey, State]:
    """Every version of a state that a row tells of; one about which rows disagree is left out."""
    by_key: dict[StateKey, set[State]] = defaultdict(set)
    for row in rows:
        if row["ev"] in _STATES and row.get("zk_version") is not None and row.get("isr") and not row.get("err"):
            leader = row["replica"] if row["ev"] == "elect" else row["broker"]
            key = (row["topic"], row["partition"], row["zk_version"])
            by_key[key].add(State(frozenset(row["isr"]), leader, row.get("epoch", -1)))
    return {key: min(states) for key, states in by_key.items() if len(states) == 1}


def outcomes_of(rows: list[Row], profile: str) -> Iterator[Row]:
    """The outcomes of the rules over every lane, with topic, partition and `leader`, the broker of the lane."""
    of_lane: dict[tuple[int, str, int], list[Row]] = defaultdict(list)
    of_broker: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        if row["ev"] in _OF_CONTROLLER and not row.get("run"):
            continue
        if "partition" in row:
            of_lane[row["broker"], row["topic"], row["partition"]].append(row)
        else:
            of_broker[row["broker"]].append(row)
    seen = sorted((row for row in rows if row["ev"] in _ALIVENESS and not row.get("run")), key=lambda row: row["ts"])
    processes = _processes(rows)
    for (broker, topic, partition), own in of_lane.items():
        shared = [row for row in of_broker[broker] if row.get("topic") in (None, topic)]
        has_own_view = any(row.get("run") for row in own)
        others = [row for row in seen if not has_own_view or row.get("replica") == broker]
        lane = Lane(broker=BrokerId(broker), profile=PROFILES[profile])
        for lane_row in _lane_rows(others, [*own, *shared], processes):
            lane.feed(lane_row)
        lane.finish()
        for outcome in lane.outcomes:
            yield {"topic": topic, "partition": partition, "leader": broker, **outcome._asdict()}


def _processes(rows: list[Row]) -> dict[tuple[int, int], tuple[int, int]]:
    """Of each process whose file tells when it started: how many ticks it wrote, and its last row's time."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for row in rows:
        if row.get("run"):
            key = (row["broker"], row["run"])
            ticks, last_ts = found.get(key, (0, 0))
            found[key] = ticks + (row["ev"] == "tick"), max(last_ts, row["ts"])
    return found


def _lane_rows(
    seen: list[Row], rows: list[Row], processes: dict[tuple[int, int], tuple[int, int]]
) -> Iterator[LaneRow]:
    for row in seen:
        of_row: dict[str, Any] = {name: row.get(name) for name in ("ts", "ev", "replica", "done")}
        yield LaneRow(run=ALIVENESS_RUN, seq=row["ts"], **of_row)
    for row in sorted(rows, key=lambda row: (row.get("run", 0), row["seq"])):
        columns = {name: value for name, value in row.items() if name in _LANE_FIELDS and name != "run"}
        run = row.get("run", 0)
        if row["ev"] == "start" and run:
            columns["run_ticks"], columns["run_end"] = processes[row["broker"], run]
        yield LaneRow(run=run, of_topic="topic" in row, **columns)


def histories_of(rows: list[Row], outcomes: Iterable[Row]) -> Iterator[Row]:
    """The derived rows (`facts.DerivedRow`) of every partition, with topic and partition."""
    facts: dict[tuple[str, int], list[FactRow]] = defaultdict(list)
    for row in rows:
        if "partition" in row and (fact := _fact_of_row(row)) is not None:
            facts[row["topic"], row["partition"]].append(fact)
    changed = {key for key, of_partition in facts.items() if any(f.kind in ISR_CHANGES for f in of_partition)}
    for row in outcomes:
        key = (row["topic"], row["partition"])
        if row["kind"] in FACT_OUTCOMES or (row["kind"] in ISR_CHANGES and key not in changed):
            facts[key].append(FactRow(**{n: v for n, v in row.items() if n in _FACT_FIELDS}, source="replayed"))
    end_ts = max((row["ts"] for row in rows), default=0)
    for (topic, partition), of_partition in facts.items():
        history = PartitionHistory()
        for fact in sorted(of_partition, key=_place):
            history.feed(fact)
        history.finish(end_ts)
        for derived in history.rows:
            yield {"topic": topic, "partition": partition, **derived._asdict()}


def _fact_of_row(row: Row) -> FactRow | None:
    kind = STOP_FACTS.get(row.get("value", "")) if row["ev"] == "stop" else row["ev"]
    if kind is None or (row["ev"] not in (*FACT_EVENTS, "stop", *ISR_CHANGES)) or row.get("err"):
        return None
    columns = {name: value for name, value in row.items() if name in _FACT_FIELDS}
    by_broker = row["ev"] in ("leader", "stop", *ISR_CHANGES)
    return FactRow(kind=kind, leader=row["broker"] if by_broker else None, source=row.get("src"), **columns)


def _place(fact: FactRow) -> tuple[int, int, int, int]:
    order, version = FACT_ORDER[fact.kind], fact.zk_version
    epoch = -1 if fact.epoch is None else fact.epoch
    return fact.ts, order, epoch, int(1e9) if version is None else version
