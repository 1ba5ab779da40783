"""The replay held against what really happened: runs of a real Kafka, with the writes of its ZooKeeper as the truth.

A run is a folder with `truth.jsonl` (every write of the znodes that matter), a trace (`trace.jsonl.gz`) and the log
files of its brokers in folders of their own; any of the two may be missing. Three ways lead from there to the truth:
the trace through the rules, the log files at their default levels, the request logs through the rules. Pure: values
in, values out; `validation.job` runs the ways.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final, NamedTuple

from broker_sim.replay.validation.kraft import KraftFigures, broken_kraft_limits, kraft_section

#: A derived change and the write of it are at most so far apart; a write that is on its way defers another.
TOLERANCE_MS: Final = 2_000
#: What the figures must keep to.
SPURIOUS_MAX: Final = 8
MEDIAN_MAX_MS: Final = 5
P95_MAX_MS: Final = 60

SHRINK: Final = "isr_shrink"
EXPAND: Final = "isr_expand"


class Change(NamedTuple):
    """A replica left or joined the ISR of a partition."""

    topic: str
    partition: int
    kind: str
    replica: int
    ts: int


class State(NamedTuple):
    """A version of a partition's state znode."""

    isr: frozenset[int]
    leader: int
    leader_epoch: int


StateKey = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Truth:
    """What ZooKeeper's transaction log tells of a run."""

    changes: tuple[Change, ...]
    states: dict[StateKey, State]


def read_truth(lines: Iterable[str]) -> Truth:
    """The changes that leaders wrote, one per replica, and every version of every state.

    Raises: ValueError, for what is no truth of a run.
    """
    changes: list[Change] = []
    states: dict[StateKey, State] = {}
    isr: dict[tuple[str, int], list[int]] = {}
    for row in map(json.loads, lines):
        if row.get("kind") != "state" or row["op"] == "delete":
            continue
        where = (row["topic"], row["partition"])
        states[(*where, row["version"])] = State(frozenset(row["isr"]), row["leader"], row["leader_epoch"])
        if row["by"] == "leader":
            changes += _differences(where, isr.get(where, row["isr"]), row["isr"], row["ts"])
        isr[where] = row["isr"]
    return Truth(tuple(changes), states)


def _differences(where: tuple[str, int], old: Sequence[int], new: Sequence[int], ts: int) -> Iterator[Change]:
    for replica in sorted(set(old) ^ set(new)):
        yield Change(*where, SHRINK if replica in old else EXPAND, replica, ts)


def derived_changes(outcomes: Iterable[dict[str, Any]]) -> list[Change]:
    """The changes that the rules made, from outcomes of the kinds `isr_shrink` and `isr_expand`."""
    found: list[Change] = []
    for row in outcomes:
        if row["kind"] in (SHRINK, EXPAND):
            found += _differences((row["topic"], row["partition"]), row["isr_old"], row["isr"], row["ts"])
    return found


@dataclass(slots=True)
class Matched:
    """Truth against derived changes: time errors of pairs (ms, written minus derived), and what has no twin."""

    errors_ms: list[int] = field(default_factory=list)
    missing: list[Change] = field(default_factory=list)
    spurious: list[Change] = field(default_factory=list)


def match(truth: Iterable[Change], derived: Iterable[Change], *, refused: Iterable[Change] = ()) -> Matched:
    """Pairs each written change with the nearest derived one of the same replica and kind.

    What was derived and not written is spurious, unless the leader tried it, too, and was `refused`.
    """
    found, left = Matched(), _by_place(derived)
    for change in truth:
        near = left[change[:4]]
        best = min(near, key=lambda ts: abs(ts - change.ts), default=None)
        if best is None or abs(best - change.ts) > TOLERANCE_MS:
            found.missing.append(change)
            continue
        near.remove(best)
        found.errors_ms.append(change.ts - best)
    forgiven = _by_place(refused)
    for place, times in left.items():
        for ts in times:
            tried = [t for t in forgiven[place] if abs(t - ts) <= TOLERANCE_MS]
            if not tried:
                found.spurious.append(Change._make((*place, ts)))
    return found


def _by_place(changes: Iterable[Change]) -> dict[tuple[Any, ...], list[int]]:
    by_place: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for change in changes:
        by_place[change[:4]].append(change.ts)
    return by_place


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesFigures:
    """What the rules made of a run."""

    changes: int
    found: int
    spurious: int
    #: in order, so that equal figures are equal however the rows came
    errors_ms: tuple[int, ...]
    #: lastCaughtUpTimeMs, derived minus what the leader wrote, of those who were removed
    caught_up_errors_ms: tuple[int, ...] = ()
    hw_rows: int = 0
    hw_found: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StatesFigures:
    """What the log files alone told of the versions of states."""

    written: int
    exact: int
    extra: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageFigures:
    """Partitions whose leader was killed: how many, how many windows without a leader tell of them, and the errors."""

    killed: int
    found: int
    #: derived minus true, ms: of the begin (the kill) and of the end (the write of the next leader)
    begin_errors_ms: tuple[int, ...]
    end_errors_ms: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """One run; None where its files are missing."""

    run: str
    trace: RulesFigures | None = None
    requests: RulesFigures | None = None
    states: StatesFigures | None = None
    #: all files of the run at once, of whatever level, as one who has the folder would give them
    everything: RulesFigures | None = None
    #: ways to lay out the same files (`run_files`) by which other changes or outages came out
    otherwise: tuple[str, ...] = ()
    outages: OutageFigures | None = None
    #: a run of a KRaft cluster has these, and no others
    kraft: KraftFigures | None = None


def states_figures(truth: Truth, replayed: dict[StateKey, State]) -> StatesFigures:
    """Versions with exactly the ISR, leader and epoch that were written."""
    exact = sum(replayed.get(key) == state for key, state in truth.states.items())
    return StatesFigures(written=len(truth.states), exact=exact, extra=len(replayed.keys() - truth.states.keys()))


Outage = tuple[str, int, int, int]
#: A derived outage belongs to a true one that it overlaps, or misses by no more than this.
_NEAR_MS: Final = 2_000


def outages_of(states: Iterable[dict[str, Any]], kills: Iterable[tuple[int, int]]) -> list[Outage]:
    """True outages as topic, partition, begin, end: from the kill of a leader to the write of the next one.

    `states`: the truth's state writes in order; `kills`: time and broker. A leader that nobody follows is left out.
    """
    written = [row for row in states if row["kind"] == "state"]
    found = []
    for ts, broker in kills:
        leader: dict[tuple[str, int], int] = {}
        for row in written:
            place = (row["topic"], row["partition"])
            if row["ts"] > ts and leader.get(place) == broker and row["leader"] not in (broker, -1):
                found.append((*place, ts, row["ts"]))
            if row["ts"] <= ts or row["leader"] not in (broker, -1):
                leader[place] = row["leader"]
    return found


def outage_figures(truth: Iterable[Outage], windows: Iterable[dict[str, Any]]) -> OutageFigures:
    """Derived windows of the kind `offline` beside the true outages."""
    offline = [row for row in windows if row["window"] == "offline"]
    truth, pairs = list(truth), []
    for topic, partition, begin, end in truth:
        near = [
            row
            for row in offline
            if (row["topic"], row["partition"]) == (topic, partition)
            and row["from_ts"] <= end + _NEAR_MS
            and row["to_ts"] >= begin - _NEAR_MS
        ]
        if near:
            longest = max(near, key=lambda row: int(row["to_ts"] - row["from_ts"]))
            pairs.append((longest["from_ts"] - begin, longest["to_ts"] - end))
    return OutageFigures(
        killed=len(truth),
        found=len(pairs),
        begin_errors_ms=tuple(b for b, _ in pairs),
        end_errors_ms=tuple(e for _, e in pairs),
    )


def percentile(values: Sequence[int], share: float) -> int | None:
    """The value below which that share of the absolute values lies."""
    ordered = sorted(map(abs, values))
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def total(figures: Sequence[RulesFigures]) -> RulesFigures:
    """All runs together."""
    return RulesFigures(
        changes=sum(f.changes for f in figures),
        found=sum(f.found for f in figures),
        spurious=sum(f.spurious for f in figures),
        errors_ms=tuple(e for f in figures for e in f.errors_ms),
        caught_up_errors_ms=tuple(e for f in figures for e in f.caught_up_errors_ms),
        hw_rows=sum(f.hw_rows for f in figures),
        hw_found=sum(f.hw_found for f in figures),
    )


def broken_limits(runs: Sequence[RunFigures]) -> list[str]:
    """What is not as it must be, in words; nothing when all is."""
    broken: list[str] = []
    if traces := [run.trace for run in runs if run.trace is not None]:
        broken += _broken_rules(total(traces))
    requests = [run.requests for run in runs if run.requests is not None]
    broken += [f"from requests: {f.found} of {f.changes} changes found" for f in requests if f.found != f.changes]
    for run in runs:
        broken += [f"{run.run}: {words}" for words in _broken_by_mixing(run)]
        if (states := run.states) is not None and (states.exact != states.written or states.extra):
            broken.append(f"{run.run}: {states.exact} of {states.written} state writes exact, {states.extra} invented")
    return [*broken, *broken_kraft_limits([run.kraft for run in runs if run.kraft is not None])]


#: What may lie between a kill and the first broker that sees it, and between a write and its line.
OUTAGE_BEGIN_MAX_MS, OUTAGE_END_MAX_MS = 1_500, 500


def _broken_by_mixing(run: RunFigures) -> Iterator[str]:
    """All files at once must tell no less than the request logs, and invent no more."""
    if run.everything is not None and run.requests is not None:
        if run.everything.found < run.requests.found:
            yield f"from all files at once {run.everything.found} changes found, from requests {run.requests.found}"
        if run.everything.spurious > run.requests.spurious:
            yield f"all files at once: {run.everything.spurious} changes invented"
    for way in run.otherwise:
        yield f"from {way} other changes or outages come out than from the folder as it was recorded"
    if (of := run.outages) is not None:
        begin = max(map(abs, of.begin_errors_ms), default=0)
        end = max(map(abs, of.end_errors_ms), default=0)
        if of.found < of.killed:
            yield f"{of.found} of {of.killed} outages of killed leaders found"
        if begin > OUTAGE_BEGIN_MAX_MS or end > OUTAGE_END_MAX_MS:
            yield f"outages begin up to {begin} ms and end up to {end} ms off"


def _broken_rules(all_of: RulesFigures) -> Iterator[str]:
    error, p95 = percentile(all_of.errors_ms, 0.5), percentile(all_of.errors_ms, 0.95)
    if all_of.found != all_of.changes:
        yield f"{all_of.found} of {all_of.changes} changes found"
    if all_of.spurious > SPURIOUS_MAX:
        yield f"{all_of.spurious} spurious changes, at most {SPURIOUS_MAX}"
    if error is not None and p95 is not None and (error > MEDIAN_MAX_MS or p95 > P95_MAX_MS):
        yield f"time error median {error} ms, 95 % {p95} ms; at most {MEDIAN_MAX_MS} and {P95_MAX_MS}"
    if all_of.caught_up_errors_ms and median(all_of.caught_up_errors_ms) != 0:
        yield f"lastCaughtUpTimeMs: median error {median(all_of.caught_up_errors_ms)} ms"
    if all_of.hw_found != all_of.hw_rows:
        yield f"{all_of.hw_found} of {all_of.hw_rows} high watermarks"


# -- the page -----------------------------------------------------------------------------------------------------


def page(runs: Sequence[RunFigures]) -> str:
    """The figures as a Markdown page."""
    return "\n".join(
        [_HEAD, *_rules_table(runs), "", _STATES, *_states_table(runs), "", _REQUESTS, *_requests(runs), ""]
        + ([_MIXED, *_mixed(runs), ""] if any(run.everything for run in runs) else [])
        + list(kraft_section([run.kraft for run in runs if run.kraft is not None]))
    )


_HEAD: Final = """\
# The replay beside a real Kafka

Written by `python -m broker_sim.replay validate --runs DIR --page FILE`; a test holds the code to it. The runs are
recordings of Kafka 3.9.1 clusters in ZooKeeper mode under faults: stopped, throttled, killed and flapping followers,
reassignments, controller failovers, slow links. The truth is ZooKeeper's transaction log. KRaft clusters stand below.

## From traces, by the rules alone
No row that tells an ISR or a high watermark is looked at. *Changes*: replicas that leaders removed or admitted.
*Spurious*: derived, neither written nor tried. *Time*: write in ZooKeeper minus derived decision, absolute.
*Caught up*: `lastCaughtUpTimeMs` of removed replicas, derived minus what the leader logged, median.

| run | changes | found | spurious | time, median ms | 95 % | caught up ms | high watermarks | equal |
|---|--:|--:|--:|--:|--:|--:|--:|--:|"""
_STATES: Final = """\
## From log files at their default levels
`server.log`, `state-change.log`, `controller.log`. *Exact*: version, ISR, leader and leader epoch are those written.

| run | state writes | exact | invented |
|---|--:|--:|--:|"""
_REQUESTS: Final = """\
## From request logs, by the rules
`kafka.request.logger` at TRACE, beside the three files: fetches from requests and their sessions, appends from the
answers to producers, ticks computed. A request's arrival is known to 1 ms, so more wake-ups of a stopped leader are
told wrong.

| run | changes | found | spurious | time, median ms | 95 % |
|---|--:|--:|--:|--:|--:|"""


_MIXED: Final = """\
## From all files of a run at once
Every file of every broker, rotated, of all levels. *Outages*: partitions whose leader was killed. *Begin*: derived
minus the kill, *end*: derived minus the write of the next leader, ms, the worst.

| run | changes | found | spurious | outages | found | begin | end |
|---|--:|--:|--:|--:|--:|--:|--:|"""


def _mixed(runs: Sequence[RunFigures]) -> Iterator[str]:
    for run in runs:
        if (f := run.everything) is not None:
            of = run.outages or outage_figures((), ())
            worst = [max(errors, key=abs, default="–") for errors in (of.begin_errors_ms, of.end_errors_ms)]
            yield _row(run.run, f.changes, f.found, f.spurious, of.killed, of.found, *worst)


def _rules_table(runs: Sequence[RunFigures]) -> Iterator[str]:
    with_traces = [(run.run, run.trace) for run in runs if run.trace is not None]
    rows = [*with_traces, ("**all**", total([f for _, f in with_traces]))] if with_traces else []
    for name, f in rows:
        cu = f"{median(f.caught_up_errors_ms):g}" if f.caught_up_errors_ms else "–"
        yield _row(name, f.changes, f.found, f.spurious, *_times(f), cu, f.hw_rows, f.hw_found)


def _states_table(runs: Sequence[RunFigures]) -> Iterator[str]:
    with_states = [(run.run, run.states) for run in runs if run.states is not None]
    for name, states in with_states:
        yield _row(name, states.written, states.exact, states.extra)
    if with_states:
        yield _row("**all**", *(sum(getattr(s, of) for _, s in with_states) for of in ("written", "exact", "extra")))


def _requests(runs: Sequence[RunFigures]) -> Iterator[str]:
    with_requests = [(run.run, run.requests) for run in runs if run.requests is not None]
    rows = [*with_requests, ("**all**", total([f for _, f in with_requests]))] if with_requests else []
    for name, f in rows:
        yield _row(name, f.changes, f.found, f.spurious, *_times(f))


def _times(figures: RulesFigures) -> tuple[object, object]:
    median_ms, p95 = percentile(figures.errors_ms, 0.5), percentile(figures.errors_ms, 0.95)
    return ("–" if median_ms is None else median_ms, "–" if p95 is None else p95)


def _row(*cells: object) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"
