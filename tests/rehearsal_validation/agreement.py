"""What was seen on a live cluster beside what a rehearsal of the same thing says. Pure but for reading the records.

Times of a move count from the moment the first partition began to move, those of a loss or a restart from the moment
it was done. How long a broker's process takes to start and to end is given to the rehearsal, as it was measured: it
is the machine's, and no rule of Kafka decides it.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from controller.rehearse.ledger import Trouble
from controller.rehearse.outcome import Outcome
from controller.rehearse.run import rehearse
from controller.rehearse.scenario import Scenario
from controller.rehearse.scenario_file import load
from tests.rehearsal_validation.record import RECORDED
from tests.rehearsal_validation.runs import RUNS, Run

#: A prediction holds that is off by no more than the larger of these.
PART: Final = 0.10
LEAST_MS: Final = 2_000
#: What one direction of a broker's link lets through on the machine where it was recorded, all brokers on it.
LINK: Final = "60MB"

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Figures:
    """When each partition had moved, how long each was under-replicated, when all was over, and where preferred leaders
    were elected, when each was led by its own again, ms."""

    moved: Mapping[Partition, float]
    under: Mapping[Partition, float]
    end: float
    led: Mapping[Partition, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of one run."""

    kind: str
    run: str
    figure: str
    real_ms: float
    rehearsed_ms: float

    @property
    def off_ms(self) -> float:
        """How far off."""
        return self.rehearsed_ms - self.real_ms

    @property
    def holds(self) -> bool:
        """Whether it is within what is aimed at."""
        return self.is_within(1.0)

    def is_within(self, times: float) -> bool:
        """Whether it is off by no more than so many times what is aimed at."""
        return abs(self.off_ms) <= times * max(PART * self.real_ms, LEAST_MS)


@dataclass(frozen=True, slots=True)
class Recording:
    """One file of `recorded`."""

    kind: str
    run: Run
    cluster: dict[str, Any]
    notes: list[list[Any]]
    changes: list[list[Any]]
    end_ms: int
    at: str

    def when(self, what: str) -> int:
        """The time of the first note of it, ms."""
        return next(int(at_ms) for at_ms, note in self.notes if note == what)

    def between(self, first: str, last: str) -> list[int]:
        """The times from each note that begins with `first` to the next that begins with `last`, ms."""
        found, since = [], None
        for at_ms, what in self.notes:
            if what.startswith(first):
                since = at_ms
            elif what.startswith(last) and since is not None:
                found.append(at_ms - since)
                since = None
        return found


def recordings(folder: Path = RECORDED) -> list[Recording]:
    """All that is recorded, in the order of the runs."""
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    by_name = {run.name: run for run in RUNS}
    return [
        Recording(
            kind=d["kind"],
            run=by_name[d["run"]],
            cluster=d["cluster"],
            notes=d["notes"],
            changes=d["changes"],
            end_ms=d["end_ms"],
            at=d["at"],
        )
        for d in sorted(found.values(), key=lambda d: (d["kind"], list(by_name).index(d["run"])))
    ]


def real(recording: Recording) -> Figures:
    """What was seen."""
    begin = {(t, p): tuple(replicas) for _, t, p, _, replicas, _ in reversed(recording.changes)}
    wanted = {key: len(replicas) for key, replicas in begin.items()}
    moving_from: dict[Partition, float] = {}
    moved: dict[Partition, float] = {}
    under_since: dict[Partition, float] = {}
    under: dict[Partition, float] = dict.fromkeys(begin, 0.0)
    last_whole = 0.0
    for at_ms, topic, partition, _, replicas, isr in recording.changes:
        key = (topic, partition)
        if len(replicas) > wanted[key]:
            moving_from.setdefault(key, at_ms)
        elif key in moving_from:
            moved.setdefault(key, at_ms)
        if len(isr) < wanted[key]:
            under_since.setdefault(key, at_ms)
        elif key in under_since:
            under[key] += at_ms - under_since.pop(key)
            last_whole = at_ms
    base = min(moving_from.values(), default=0.0)
    moved = {key: at_ms - base for key, at_ms in moved.items()}
    leaders = [
        (at_ms - base, (topic, partition), leader) for at_ms, topic, partition, leader, _, _ in recording.changes
    ]
    return Figures(moved, under, max(moved.values(), default=last_whole), _led_again(recording.run, leaders))


def _led_again(run: Run, leaders: Iterable[tuple[float, Partition, int | None]]) -> dict[Partition, float]:
    """When the preferred leader of each partition led it again, of those that somebody else has led."""
    away: set[Partition] = set()
    again: dict[Partition, float] = {}
    for at_ms, (topic, partition), leader in leaders if run.elects else ():
        if topic not in run.targets:
            continue
        if leader != run.targets[topic][partition][0]:
            away.add((topic, partition))
        elif (topic, partition) in away:
            again[topic, partition] = at_ms
            away.discard((topic, partition))
    return again


def scenario(recording: Recording) -> Scenario:
    """The rehearsal of what was done."""
    run = recording.run
    event: dict[str, Any] = {"at": 0, **run.event}
    if run.targets:
        event["partitions"] = [
            {"topic": topic, "partition": number, "replicas": list(replicas)}
            for topic, targets in run.targets.items()
            for number, replicas in enumerate(targets)
        ]
    began_ms = min(
        (
            at_ms
            for at_ms, topic, number, _, replicas, _ in recording.changes
            if topic in run.targets and len(replicas) > len(run.topics[topic].replicas[number])
        ),
        default=0,
    )
    events = [event]
    if run.meanwhile is not None:
        events.append({**run.meanwhile, "at": (recording.when("killed") - began_ms) / 1000})
    if run.elects:
        events.append({"at": (recording.when("electing") - began_ms) / 1000, "do": "elect_preferred"})
    document: dict[str, Any] = {
        "name": run.name,
        "cluster": recording.cluster,
        "limits": {"link": LINK},
        # kwob's brokers answer with whole batches; Kafka's cut the last one
        "batch_bytes": run.batch if recording.kind.startswith("kafka") else 0,
        "events": events,
    }
    for key, first, last in (("broker_start", "started", "registered"), ("broker_stop", "stopping", "stopped")):
        if times := recording.between(first, last):
            document[key] = statistics.mean(times) / 1000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{recording.kind}-{run.name}.yaml"
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return load(path)


@cache
def _outcome(kind: str, run: str) -> Outcome:
    return rehearse(next(scenario(r) for r in recordings() if (r.kind, r.run.name) == (kind, run)))


def rehearsed(recording: Recording) -> Figures:
    """What a rehearsal says."""
    return figures_of(_outcome(recording.kind, recording.run.name), recording.run)


def figures_of(outcome: Outcome, run: Run) -> Figures:
    """The figures of a rehearsal."""
    windows = [(w.topic_partition, w.trouble, w.from_ms, w.to_ms or outcome.end_ms) for w in outcome.windows]
    moves = [w for w in windows if w[1] is Trouble.MOVING]
    base = min((from_ms for _, _, from_ms, _ in moves), default=0)
    moved = {(tp.topic, tp.partition): float(to_ms - base) for tp, _, _, to_ms in moves}
    under: dict[Partition, float] = {}
    last_whole = 0
    for tp, trouble, from_ms, to_ms in windows:
        if trouble is Trouble.UNDER_REPLICATED:
            key = (tp.topic, tp.partition)
            under[key] = under.get(key, 0.0) + to_ms - from_ms
            last_whole = max(last_whole, to_ms)
    leaders = [
        (float(c.at_ms - base), (c.topic_partition.topic, c.topic_partition.partition), c.leader)
        for c in outcome.changes
    ]
    return Figures(moved, under, max(moved.values(), default=float(last_whole)), _led_again(run, leaders))


def compare(recording: Recording) -> Iterator[Row]:
    """Each figure of a recorded run beside what was seen."""
    yield from pairs(recording, real(recording), rehearsed(recording))


def pairs(recording: Recording, seen: Figures, ours: Figures) -> Iterator[Row]:
    """Each figure, seen and rehearsed."""

    def row(figure: str, real_ms: float, rehearsed_ms: float) -> Row:
        return Row(recording.kind, recording.run.name, figure, real_ms, rehearsed_ms)

    yield row("end", seen.end, ours.end)
    for (topic, partition), at_ms in sorted(seen.moved.items()):
        yield row(f"{topic}-{partition} has moved", at_ms, ours.moved.get((topic, partition), 0.0))
    for (topic, partition), ms in sorted(seen.under.items()):
        predicted = ours.under.get((topic, partition), 0.0)
        if ms or predicted:
            yield row(f"{topic}-{partition} under-replicated", ms, predicted)
    for (topic, partition), at_ms in sorted(seen.led.items()):
        yield row(f"{topic}-{partition} led as preferred", at_ms, ours.led.get((topic, partition), 0.0))
