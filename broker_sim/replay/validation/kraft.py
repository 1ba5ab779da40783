"""Recorded runs of KRaft clusters: the metadata log, and the log files alone, held against Kafka's own decoder.

A run is a folder with `truth.jsonl` (every version of every partition, as Kafka's decoder tells it), `metadata/` and
the log files of its nodes. Pure: values in, values out.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from broker_sim.replay.metadata_log.causes import BY_LEADERS, Cause
from broker_sim.replay.metadata_log.fold import Change, Kind

Row = dict[str, Any]
#: What of a version is compared: the truth's name -> that of a change.
_COMPARED: Final = {
    "ms": "ts",
    "leader": "leader",
    "leader_epoch": "leader_epoch",
    "partition_epoch": "partition_epoch",
    "isr": "isr",
    "replicas": "replicas",
    "adding": "adding",
    "removing": "removing",
}
_STATES: Final = ("isr_shrink", "isr_expand", "elect", "leader")
#: Clocks of nodes differ by less than this where a topic is created again.
_CLOCKS_DIFFER_MS: Final = 1_000
LEADERS_FOUND_MIN: Final = 0.98


@dataclass(frozen=True, slots=True, kw_only=True)
class KraftFigures:
    """One run."""

    run: str
    #: versions that were written, those told exactly from the metadata log, and those told that were not written
    versions: int
    exact: int
    invented: int
    #: changes of membership among them, and how many of these are exact
    changes: int
    exact_changes: int
    #: changes of membership that leaders made; found in the log files, exactly; known there to be the leader's
    by_leaders: int = 0
    found: int = 0
    known_changes: int = 0
    #: versions of which a line of a log tells otherwise than was written
    log_invented: int = 0


def is_kraft(line: str) -> bool:
    """Whether a line is of the truth of a KRaft cluster."""
    try:
        return "partition_epoch" in json.loads(line)
    except (ValueError, TypeError):
        return False


def kraft_figures(
    run: str, truth: Iterable[str], changes: Mapping[tuple[str, int], Sequence[Change]], logged: Iterable[Row] | None
) -> KraftFigures:
    """The figures of a run. `changes`: from the metadata log; `logged`: rows from the log files, if there are any."""
    written = {(r["topic"], r["partition"], r["offset"]): r for r in map(json.loads, truth)}
    of_log = {
        (*place, change.offset): change
        for place, of in changes.items()
        for change in of
        if change.event in (Kind.CREATED, Kind.CHANGED)
    }
    exact = {place for place, row in written.items() if place in of_log and _is(row, of_log[place])}
    moved = set(_membership(written))
    found = _found(of_log, logged) if logged is not None else (0, 0, 0, 0)
    return KraftFigures(
        run=run,
        versions=len(written),
        exact=len(exact),
        invented=len(of_log.keys() - written.keys()),
        changes=len(moved),
        exact_changes=len(moved & exact),
        by_leaders=found[0],
        found=found[1],
        known_changes=found[2],
        log_invented=found[3],
    )


def _is(row: Row, change: Change) -> bool:
    return all(getattr(change, ours) == row[name] for name, ours in _COMPARED.items())


def _membership(written: Mapping[tuple[str, int, int], Row]) -> Iterator[tuple[str, int, int]]:
    """Versions whose ISR has other members than the one before."""
    isr: dict[tuple[str, int], set[int]] = {}
    for place in sorted(written, key=lambda p: p[2]):
        row = written[place]
        if row["partition_epoch"] > 0 and isr[place[:2]] != set(row["isr"]):
            yield place
        isr[place[:2]] = set(row["isr"])


def _found(of_log: Mapping[tuple[str, int, int], Change], logged: Iterable[Row]) -> tuple[int, int, int, int]:
    versions: dict[tuple[str, int, int, int], Change] = {}
    created: dict[tuple[str, int], list[int]] = defaultdict(list)
    for (topic, partition, _), change in sorted(of_log.items(), key=lambda pair: pair[0][2]):
        if change.event == Kind.CREATED:
            created[topic, partition].append(change.ts)
        versions[topic, partition, len(created[topic, partition]), change.partition_epoch or 0] = change
    moved = {key for key, c in versions.items() if set(c.isr or ()) != set(c.isr_old or ())}
    leaders = {key for key in moved if versions[key].cause == Cause.LEADER}
    as_changes, as_states, invented = set(), set(), 0
    for row in logged:
        if row["ev"] not in _STATES or row.get("zk_version") is None or "isr" not in row or row.get("err"):
            continue
        age = bisect_right(created[row["topic"], row["partition"]], row["ts"] + _CLOCKS_DIFFER_MS)
        key = (row["topic"], row["partition"], age, row["zk_version"])
        if key not in versions or not _tells(row, versions[key]):
            invented += 1
        else:
            as_states.add(key)
            if row["ev"].startswith("isr_"):
                as_changes.add(key)
    invented += sum(versions[key].cause not in BY_LEADERS for key in as_changes)
    return len(leaders), len(leaders & as_states), len(leaders & as_changes), invented


def _tells(row: Row, change: Change) -> bool:
    leader = row["replica"] if row["ev"] == "elect" else row["broker"]
    same = (leader, row.get("epoch", -1)) == (change.leader, change.leader_epoch)
    return same and set(row["isr"]) == set(change.isr or ())


def broken_kraft_limits(runs: Sequence[KraftFigures]) -> Iterator[str]:
    """What is not as it must be, in words."""
    for f in runs:
        if f.exact != f.versions or f.invented:
            yield f"{f.run}: {f.exact} of {f.versions} versions exact from the metadata log, {f.invented} invented"
        if f.log_invented:
            yield f"{f.run}: {f.log_invented} invented from log files"
    leaders, found = sum(f.by_leaders for f in runs), sum(f.found for f in runs)
    if found < LEADERS_FOUND_MIN * leaders:
        yield f"from log files alone {found} of {leaders} changes by leaders, at least {LEADERS_FOUND_MIN:.0%}"


_HEAD: Final = """\
## KRaft clusters
Recordings of Kafka 4.1.0 under faults. The truth is what Kafka's own decoder says of the metadata log.

From the metadata log. *Versions*: of partitions. *Exact*: time, leader, epochs, ISR, replicas and moves are those
written. *Changes*: versions whose ISR has other members.

| run | versions | exact | invented | changes | exact |
|---|--:|--:|--:|--:|--:|"""
_LOGS: Final = """\
From `server.log`, `state-change.log` and `controller.log` alone, at their default levels. *By leaders*: changes of
membership that leaders made, by the causes that are inferred from the metadata log. *Found*: version, ISR, leader and
epoch are those written. *Known*: it is known, too, that the leader made it.

| run | by leaders | found | known | invented |
|---|--:|--:|--:|--:|"""


def kraft_section(runs: Sequence[KraftFigures]) -> Iterator[str]:
    """The figures as a section of a Markdown page, by lines; nothing where there are no runs."""
    if not runs:
        return
    yield from (_HEAD, *_table(runs, ("versions", "exact", "invented", "changes", "exact_changes")), "")
    logged = [run for run in runs if run.by_leaders]
    yield from (_LOGS, *_table(logged, ("by_leaders", "found", "known_changes", "log_invented")), "")


def _table(runs: Sequence[KraftFigures], columns: Sequence[str]) -> Iterator[str]:
    for name, of in (*((run.run, [run]) for run in runs), ("**all**", runs)):
        yield "| " + " | ".join([name, *(str(sum(getattr(f, column) for f in of)) for column in columns)]) + " |"
