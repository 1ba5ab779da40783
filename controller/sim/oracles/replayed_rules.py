"""What the replay says of a world is held to the world itself: how leaders begin, who is paired with whom, what counts.

The rows that brokers traced go through the rules of the replay once as they are, once with rows among them that change
nothing, and once as a trace tells them of which some changes are lost or late. Source: spec isr-replay.md §3, §5 to §7.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

from broker_sim.replay.rows import LaneRow, Outcome, OutcomeKind
from broker_sim.replay.rules.lane import Lane
from controller.sim.oracles.lanes import (
    CHANGES,
    FETCH,
    LEADER,
    Replayed,
    Row,
    TracedRow,
    lane_row,
    lanes_of,
    rows_by_broker,
)
from controller.sim.oracles.replayed import changes_do_not_follow
from controller.sim.oracles.traced import WatchedTrace
from controller.wire.trace import TraceEvent
from controller.wire.types import BrokerId

APPEND: Final = TraceEvent.APPEND.value
#: Rows after which the follower that fetched last may do so again.
_KEEPS_WHO_FETCHED: Final = frozenset({APPEND, TraceEvent.HW.value, TraceEvent.TICK.value})
_ENDS_A_TERM: Final = frozenset(
    each.value for each in (TraceEvent.FOLLOWER, TraceEvent.STOP, TraceEvent.DOWN, TraceEvent.START)
)
#: The share of rows after which something is put that changes nothing.
IDLE_SHARE: Final = 0.2
#: The share of changes before which the same is told of the epoch before, and was refused.
REFUSED_SHARE: Final = 0.3
FAR: Final = 1_000_000
#: No replica.
NOBODY: Final = 999_999


class _Change(NamedTuple):
    """Of one replica; `until`: when a write that was on its way when it was decided had returned."""

    ts: int
    epoch: int
    replica: int | None
    kind: str | None
    until: int = 0


def unexplained(traces: Iterable[WatchedTrace]) -> list[str]:
    """All that is wrong with what brokers traced. `traces`: of all lives, oldest first."""
    rows = rows_by_broker(traces)
    lanes = list(lanes_of(rows))
    wrong = [*changes_do_not_follow(lanes), *lanes_contradict(lanes)]
    if find_spec("duckdb") is not None:
        from controller.sim.oracles.replayed_history import histories_contradict

        wrong += histories_contradict(rows, lanes)
    return wrong


def lanes_contradict(lanes: Iterable[Replayed]) -> Iterator[str]:
    """All that is wrong with what the rules make of each lane."""
    for one in lanes:
        name, rows = f"replay: broker {one.broker}, {one.tp}", [row for row, _ in one.rows]
        for what in (*one.wrong_starts, *pairs_are_wrong(rows, one.lane.outcomes)):
            yield f"{name}: {what}"
        yield from (f"{name}: {what}" for what in _shown_otherwise(one.rows, one.broker))
        yield from (f"{name}: {what}" for what in _changed_by_idle_rows(one))
        yield from (f"{name}, some of it lost: {what}" for what in _paired_wrongly_without_some(one.rows, one.broker))


def _outcomes(rows: Iterable[LaneRow], broker: BrokerId) -> list[Outcome]:
    """What the rules make of a lane's rows."""
    lane = Lane(broker=broker)
    for row in rows:
        lane.feed(row)
    lane.finish()
    return lane.outcomes


# -- pairs ---------------------------------------------------------------------------------------------------------


def pairs_are_wrong(rows: Sequence[Row], outcomes: Sequence[Outcome]) -> Iterator[str]:
    """A change that was written is paired with the same change of the same replica; two of which each is without a twin
    do not belong together; what was refused is not missing, and belongs to its leader epoch alone. §7."""
    written = [row for row in rows if row["ev"] in CHANGES]
    refused = {(row["ts"], row["replica"], row["ev"]) for row in written if row.get("err")}
    accepted = {(row["ts"], row["replica"], row["ev"]) for row in written if not row.get("err")}
    writes = [(row["ts"], row["done"]) for row in written if row.get("done") is not None]
    derived = {
        (o.ts, o.kind, r, o.epoch)
        for o in outcomes
        if o.kind in CHANGES
        for r in {*(o.isr_old or ())} ^ {*(o.isr or ())}
    }
    of_any_epoch = {key[:3] for key in derived}
    spurious = [o for o in outcomes if o.kind == OutcomeKind.SPURIOUS.value]
    given_up = [o for o in outcomes if o.kind == OutcomeKind.REFUSED.value and o.error_ms is None]
    alone = [*spurious, *(o for o in given_up if (o.ts, o.change, o.replica, o.epoch) in derived)]
    for o in outcomes:
        if o.kind in (OutcomeKind.MATCHED.value, OutcomeKind.REFUSED.value) and o.error_ms is not None:
            twin = o.ts - o.error_ms, o.change, o.replica
            if twin not in of_any_epoch:
                yield f"{o.change} of {o.replica} at {o.ts} is paired with one that is not there: {o.error_ms} ms away"
            elif o.kind == OutcomeKind.REFUSED.value and (*twin, o.epoch) not in derived:
                yield f"{o.change} of {o.replica} at {o.ts}, refused in epoch {o.epoch}, is paired with one of another"
            if nearer := next((other for other in alone if _is_nearer(o, other)), None):
                yield f"{o.change} of {o.replica} at {o.ts} is paired {o.error_ms} ms away, not {nearer.ts}"
        elif o.kind == OutcomeKind.MISSING.value:
            key = o.ts, o.replica, o.change
            if key in refused - accepted:
                yield f"{o.change} of {o.replica} at {o.ts} was refused, and counts as missing"
    lag_ms = next((int(row["value"]) for row in rows if row.get("key") == "replica.lag.time.max.ms"), 30_000)
    missing = [_Change(o.ts, o.epoch, o.replica, o.change) for o in outcomes if o.kind == OutcomeKind.MISSING.value]
    for o in spurious:
        until = max((done for ts, done in writes if ts <= o.ts <= done), default=o.ts)
        unpaired = _Change(o.ts, o.epoch, o.replica, o.change, until)
        for change in missing:
            if _belong(change, unpaired, tolerance_ms=min(2_000, lag_ms // 2)):
                yield f"{change} and {unpaired} are not paired"


def _is_nearer(o: Outcome, other: Outcome) -> bool:
    """Whether a change that was derived and has no twin is nearer to what was written than the one it is paired with;
    both had been derived by then."""
    is_same = (o.replica, o.change, o.epoch) == (other.replica, other.change, other.epoch)
    error_ms = o.error_ms or 0
    return is_same and other.ts <= o.ts and 0 < o.ts - other.ts < error_ms


def _paired_wrongly_without_some(rows: Sequence[TracedRow], broker: BrokerId) -> Iterator[str]:
    if any(row["ev"] in CHANGES for row, _ in rows):
        left = list(without_some_changes([row for row, _ in rows]))
        as_taken = {id(row): taken for row, taken in rows}  # those that stay what they were
        yield from pairs_are_wrong(left, _outcomes([as_taken.get(id(row)) or lane_row(row) for row in left], broker))


def without_some_changes(rows: Sequence[Row]) -> Iterator[Row]:
    """The rows; some changes that were written are not told (of several alike only the last one is), others were
    written later, when a write that was on its way had returned; and some that nothing asks for were refused, or those
    of the epoch before, which is told late. §3.5."""
    chance, of_before, later = random.Random(len(rows) + 1), random.Random(len(rows) + 2), list[Row]()
    written = Counter((row.get("epoch"), row.get("replica"), row["ev"]) for row in rows)
    for row in rows:
        while later and later[0]["ts"] <= row["ts"]:
            yield later.pop(0)
        if row["ev"] not in CHANGES or row.get("done") is None:
            yield row
            continue
        if of_before.random() < REFUSED_SHARE:
            yield {**row, "epoch": row["epoch"] - 1, "err": 95}
        key = row.get("epoch"), row.get("replica"), row["ev"]
        written[key] -= 1
        match "lost" if written[key] else chance.choice(("lost", "late", "refused", "told")):
            case "late":
                by_ms = chance.choice((3_000, 6_000))
                other = {**row, "replica": NOBODY, "ts": row["ts"] - 50, "done": row["ts"] + by_ms, "err": 0}
                at = {"ts": row["ts"] + by_ms, "done": row["done"] + by_ms}
                later = sorted([*later, {**other}, {**row, **at}], key=lambda each: each["ts"])
            case "refused":
                yield row
                yield {**row, "replica": NOBODY, "err": 95}
            case "told":
                yield row
    yield from later


def _belong(written: _Change, derived: _Change, *, tolerance_ms: int) -> bool:
    """Near each other, or near the end of a write for which the one that was derived had to wait. §3.5."""
    is_same = (written.epoch, written.replica, written.kind) == (derived.epoch, derived.replica, derived.kind)
    return is_same and derived.ts - tolerance_ms <= written.ts <= derived.until + tolerance_ms


# -- what tells the same -------------------------------------------------------------------------------------------


def _shown_otherwise(rows: Sequence[TracedRow], broker: BrokerId) -> Iterator[str]:
    """Where a fetch tells of the log's end that an append has just made, the append need not be told. §3.3."""
    with_all, without_some = with_fetches(rows)
    if len(with_all) == len(without_some):
        return  # nothing is left out
    (of_all, marks), (of_some, marks_shown) = (_followed(rows, broker) for rows in (with_all, without_some))
    what = "a fetch does not show an append"
    if of_all != of_some:
        pairs = zip(of_all, of_some, strict=False)
        yield f"{what}: {next((p for p in pairs if p[0] != p[1]), [len(of_all), len(of_some)])}"
    if row := next((row for row in without_some if marks[id(row)] != marks_shown[id(row)]), None):
        yield f"{what}: after {row} the watermark is {marks_shown[id(row)]}, not {marks[id(row)]}"


def _followed(rows: Iterable[LaneRow], broker: BrokerId) -> tuple[list[Outcome], dict[int, int | None]]:
    """Changes of the ISR, and what became of high watermarks; row (its id) -> the high watermark after it, None where
    the broker does not lead."""
    lane, marks = Lane(broker=broker), dict[int, int | None]()
    for row in rows:
        lane.feed(row)
        marks[id(row)] = lane.led.high_watermark if lane.led is not None else None
    lane.finish()
    return [o for o in lane.outcomes if o.kind in CHANGES or o.kind == OutcomeKind.HW.value], marks


def with_fetches(rows: Sequence[TracedRow]) -> tuple[list[LaneRow], list[LaneRow]]:
    """The rows; after some appends the follower that fetched last does so again, from where it was. And the same rows
    without these appends."""
    chance, last = random.Random(len(rows)), None
    with_all, without_some = list[LaneRow](), list[LaneRow]()
    for row, as_taken in rows:
        kind = row["ev"]
        with_all.append(as_taken)
        if kind == APPEND and last is not None and chance.random() < IDLE_SHARE:
            again = {name: last[name] for name in ("ev", "epoch", "replica", "offset")}
            shown = lane_row({name: row[name] for name in ("run", "seq", "ts", "leo")} | again | {"err": 0})
            with_all.append(shown)
            without_some.append(shown)
            continue
        without_some.append(as_taken)
        if kind == FETCH and not row.get("err"):
            last = row
        elif kind not in _KEEPS_WHO_FETCHED:
            last = None
    return with_all, without_some


# -- what changes nothing ------------------------------------------------------------------------------------------


def _changed_by_idle_rows(one: Replayed) -> Iterator[str]:
    rows = with_idle_rows(one.rows, one.broker)
    if len(rows) == len(one.rows):
        return
    idle, outcomes = _outcomes(rows, one.broker), one.lane.outcomes
    if idle != outcomes:
        pairs = zip(outcomes, idle, strict=False)
        first = next((pair for pair in pairs if pair[0] != pair[1]), (len(outcomes), len(idle)))
        yield f"rows that change nothing make another of {first[0]}: {first[1]}"


def with_idle_rows(rows: Sequence[TracedRow], broker: BrokerId) -> list[LaneRow]:
    """The rows, and after some of them one that changes nothing: a LeaderAndIsr or a fetch of an epoch that is not the
    leader's, or no news, a fetch with an error, an older epoch's end. §3.1, §3.3."""
    chance, leader, found = random.Random(len(rows)), None, list[LaneRow]()
    for row, as_taken in rows:
        found.append(as_taken)
        if row["ev"] == LEADER:
            leader = row if leader is None or row["epoch"] > leader["epoch"] else leader
        elif row["ev"] in _ENDS_A_TERM:
            leader = None
        if leader is not None and chance.random() < IDLE_SHARE:
            idle = chance.choice(_idle_rows(leader, row, broker))
            found.append(lane_row({"run": row["run"], "seq": row["seq"], "ts": row["ts"], **idle}))
    return found


def _idle_rows(leader: Mapping[str, Any], row: Mapping[str, Any], broker: BrokerId) -> list[Row]:
    """`leader`: the row with which the present term began."""
    epoch = leader["epoch"]
    again = {name: leader[name] for name in ("isr", "replicas", "zk_version")} | {"ev": TraceEvent.LEADER.value}
    other = next((replica for replica in leader["replicas"] if replica != broker), broker)
    fetch = {"ev": TraceEvent.FETCH.value, "replica": other, "offset": row.get("leo", 0), "leo": FAR, "epoch": epoch}
    return [
        again | {"epoch": epoch, "offset": FAR, "leo": FAR, "hw": 0},
        again | {"epoch": epoch - 1, "offset": 0, "leo": 0, "hw": 0, "isr": leader["isr"][:1]},
        fetch | {"err": 74},
        fetch | {"err": 0, "epoch": epoch - 1},
        fetch | {"err": 0, "epoch": epoch + 1},
        {"ev": TraceEvent.FOLLOWER.value, "epoch": epoch - 1},
    ]
