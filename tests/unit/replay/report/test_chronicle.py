"""Who was away, and when, from what brokers and controllers wrote of themselves."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_sim.replay.chronicle import (
    SAME_INCIDENT_MS,
    Incident,
    IncidentKind,
    absences,
    conditions,
    fallen_behind,
    incidents,
    successions,
)
from broker_sim.replay.effects import with_effects
from broker_sim.replay.tables import worst_rows, write_rows
from controller.wire.trace import (
    BROKER_STATE_KEY,
    PAUSED_ALL,
    PAUSED_REPLICATION_KEY,
    PENDING_CONTROLLED_SHUTDOWN,
)

Row = dict[str, Any]


def run(broker: int, first: int, last: int, *, ended: bool = False, start: int | None = None) -> Row:
    started = first if start is None else start
    return {"broker": broker, "run": started, "first_ts": first, "last_ts": last, "ended": ended}


def sign(ts: int, broker: int, ev: str) -> Row:
    return {"ts": ts, "broker": broker, "ev": ev}


CASES: list[tuple[str, list[Row], list[Row], list[tuple[str, int, int | None]]]] = [
    ("nobody is away", [run(1, 0, 100)], [sign(0, 1, "broker_up")], []),
    ("killed, and started again", [run(1, 1, 50), run(1, 70, 100)], [], [("gone", 50, 70)]),
    ("stopped in order, and started", [run(1, 1, 50, ended=True), run(1, 70, 100)], [], [("stopped", 50, 70)]),
    ("stopped for good", [run(1, 1, 50, ended=True), run(2, 1, 90)], [], [("stopped", 50, None)]),
    ("all stopped: the recording ends", [run(1, 1, 50, ended=True), run(2, 1, 90, ended=True)], [], []),
    ("the last rows of all brokers are no ends", [run(1, 1, 50), run(2, 1, 60)], [], []),
    (
        "killed for good, as a controller saw",
        [run(1, 1, 50), run(2, 1, 90)],
        [sign(55, 1, "broker_down")],
        [("gone", 50, None)],
    ),
    (
        "the end of the session of a killed process is no second incident",
        [run(1, 1, 50), run(1, 70, 100)],
        [sign(60, 1, "broker_down"), sign(71, 1, "broker_up")],
        [("gone", 50, 70)],
    ),
    (
        "a session that ends while the process goes on",
        [run(1, 1, 900_000)],
        [sign(60, 1, "broker_down"), sign(71, 1, "broker_up")],
        [("session-lost", 60, 71)],
    ),
    (
        "where processes are not told apart: from the session's end, or its own last word, to any sign",
        [run(1, 1, 100, start=0)],
        [sign(10, 1, "broker_down"), sign(20, 1, "start"), sign(30, 1, "down"), sign(40, 1, "broker_up")],
        [("gone", 10, 20), ("stopped", 30, 40)],
    ),
]


@pytest.mark.parametrize(("processes", "signs", "expected"), [pytest.param(*c[1:], id=c[0]) for c in CASES])
def test_absences(processes: list[Row], signs: list[Row], expected: list[tuple[str, int, int | None]]) -> None:
    assert [(i.kind.value, i.from_ts, i.to_ts) for i in absences(processes, signs)] == expected


def dropped(replica: int, from_ts: int, to_ts: int | None, partitions: int = 2) -> Row:
    still_out = {} if to_ts is None else {"to_ts": to_ts}  # Spark leaves nulls out
    return {"replica": replica, "from_ts": from_ts, "partitions": partitions, **still_out}


def test_removals_that_follow_each_other_are_one_incident() -> None:
    rows = [dropped(2, 1_000, 5_000), dropped(2, 14_000, 16_000, 3), dropped(2, 60_000, None), dropped(3, 1_000, 2_000)]
    found = [(i.who, i.from_ts, i.to_ts, i.partitions) for i in fallen_behind(rows)]
    assert found == [(2, 1_000, 16_000, 5), (3, 1_000, 2_000, 2), (2, 60_000, None, 2)]


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60) | st.none()), min_size=1, max_size=6).map(
        lambda pieces: [(at * 1_000, None if takes is None else (at + takes) * 1_000) for at, takes in pieces]
    )
)
def test_an_incident_lasts_from_the_first_of_its_pieces_to_the_last_that_ends(
    pieces: list[tuple[int, int | None]],
) -> None:
    found = fallen_behind([dropped(2, from_ts, to_ts) for from_ts, to_ts in pieces])
    assert sum(one.partitions for one in found) == 2 * len(pieces)
    for one in found:
        own = [(a, b) for a, b in pieces if one.from_ts <= a and (one.to_ts is None or a <= one.to_ts)]
        ends = [b for _, b in own]
        assert one.from_ts == min(a for a, _ in own)
        assert one.to_ts == (None if None in ends else max(b for b in ends if b is not None))
    for before, after in pairwise(found):
        assert before.to_ts is not None and after.from_ts > before.to_ts + SAME_INCIDENT_MS


def test_leaders_that_drop_a_broker_which_is_away_tell_nothing_of_their_own() -> None:
    told = {
        "processes": [run(1, 1, 50), run(1, 70, 100)],
        "signs": [],
        "conditions": [paused(55, 3), paused(65, 3, None), paused(55, 4, "t"), paused(65, 4, None)],
        "terms": [],
        "deleted": [],
        "dropped": [dropped(1, 60, 90), dropped(2, 60, 90), dropped(3, 60, 90), dropped(4, 60, 90)],
    }
    expected = [("gone", 1), ("paused", 3), ("paused", 4), ("behind", 2), ("behind", 4)]
    assert [(i.kind.value, i.who) for i in incidents(told)] == expected


@pytest.mark.parametrize(
    ("dropped_at", "back_at", "expected"),
    [
        pytest.param(58_000, 90_000, [("gone", 58_000)], id="leaders missed it before its session ended"),
        pytest.param(58_000, None, [("gone", 58_000)], id="some replica never came back"),
        pytest.param(58_000, 59_000, [("behind", 58_000), ("gone", 60_000)], id="it was back before it went"),
        pytest.param(30_000, 90_000, [("behind", 30_000), ("gone", 60_000)], id="long before"),
    ],
)
def test_who_is_dropped_just_before_it_is_fenced_was_gone(
    dropped_at: int, back_at: int | None, expected: list[tuple[str, int]]
) -> None:
    signs = [sign(2, 3, "broker_up"), sign(60_000, 3, "broker_down"), sign(80_000, 3, "broker_up")]
    told: dict[str, list[Row]] = {name: [] for name in ("processes", "conditions", "terms", "deleted")}
    told |= {"signs": signs, "dropped": [dropped(3, dropped_at, back_at)]}
    assert [(i.kind.value, i.from_ts) for i in incidents(told)] == expected


def paused(ts: int, broker: int, value: str | None = PAUSED_ALL, *, start: int = 1, seq: int = 0) -> Row:
    over = {} if value is None else {"value": value}  # Spark leaves nulls out
    return {"ts": ts, "seq": seq, "broker": broker, "run": start, "key": PAUSED_REPLICATION_KEY, **over}


def leaving(ts: int, broker: int, *, start: int = 1) -> Row:
    value = PENDING_CONTROLLED_SHUTDOWN
    return {"ts": ts, "seq": 0, "broker": broker, "run": start, "key": BROKER_STATE_KEY, "value": value}


CONDITIONS: list[tuple[str, list[Row], list[Row], list[Row], list[tuple[str, int, int | None, str | None]]]] = [
    ("from a pause to its end", [paused(10, 1), paused(20, 1, None)], [run(1, 1, 90)], [], [("paused", 10, 20, None)]),
    ("to the end of the trace", [paused(10, 1, "t-0,u")], [run(1, 1, 90)], [], [("paused", 10, None, "t-0,u")]),
    (
        "another extent is another pause, the same one written again is not",
        [paused(10, 1, "t"), paused(12, 1, "t", seq=1), paused(15, 1, "t,u"), paused(20, 1, None)],
        [run(1, 1, 90)],
        [],
        [("paused", 10, 15, "t"), ("paused", 15, 20, "t,u")],
    ),
    (
        "rows of one ms are in the broker's order, and what they tell of between is no pause",
        [paused(10, 1, seq=2), paused(10, 1, None, seq=3), paused(5, 1, "t")],
        [run(1, 1, 90)],
        [],
        [("paused", 5, 10, "t")],
    ),
    (
        "a killed process is not paused any more, and the next one is when it says so",
        [paused(10, 1), paused(72, 1, start=70)],
        [run(1, 1, 50), run(1, 70, 100)],
        [],
        [("paused", 10, 50, None), ("paused", 72, None, None)],
    ),
    (
        "killed for good, as a controller saw",
        [paused(10, 1)],
        [run(1, 1, 50), run(2, 1, 90)],
        [sign(55, 1, "broker_down")],
        [("paused", 10, 50, None)],
    ),
    (
        "on its way out until its process ended",
        [leaving(40, 1)],
        [run(1, 1, 50, ended=True)],
        [],
        [("shutting-down", 40, 50, None)],
    ),
    ("the recording ends on its way out", [leaving(40, 1)], [run(1, 1, 50)], [], [("shutting-down", 40, None, None)]),
    (
        "where processes are not told apart, until it said that it ends",
        [leaving(40, 1, start=0)],
        [run(1, 1, 100, start=0)],
        [sign(30, 1, "start"), sign(45, 1, "down")],
        [("shutting-down", 40, 45, None)],
    ),
]


@pytest.mark.parametrize(
    ("written", "processes", "signs", "expected"), [pytest.param(*c[1:], id=c[0]) for c in CONDITIONS]
)
def test_conditions(written: list[Row], processes: list[Row], signs: list[Row], expected: list[Any]) -> None:
    found = conditions(written[::-1], processes, signs)
    assert [(i.kind.value, i.from_ts, i.to_ts, i.topic) for i in found] == expected


def test_the_first_controller_follows_nobody() -> None:
    first: Row = {"ts": 5, "broker": 901, "epoch": 1, "before": None, "before_ts": None}
    second = {"ts": 50, "broker": 902, "epoch": 2, "before": 901, "before_ts": 40}
    assert [(i.who, i.before, i.from_ts, i.to_ts) for i in successions([second, first])] == [(902, 901, 40, 50)]


def window(partition: int, leader: int, from_ts: int, took: int, kind: str = "offline") -> Row:
    of = {"topic": "t", "partition": partition, "window": kind, "leader": leader, "is_open": False}
    return {**of, "from_ts": from_ts, "to_ts": from_ts + took, "duration_ms": took}


def outside(partition: int, replica: int, left_ts: int, joined_ts: int | None, left_by: str = "controller") -> Row:
    of = {"topic": "t", "partition": partition, "replica": replica, "left_by": left_by}
    return {**of, "left_ts": left_ts, "joined_ts": joined_ts, "out_of_isr_ms": joined_ts and joined_ts - left_ts}


def test_effects_are_those_of_the_broker_and_the_time(tmp_path: Path) -> None:
    write_rows(tmp_path, "windows", [
        window(0, 3, 10_000, 4_200), window(1, 3, 10_050, 4_100), window(2, 1, 10_000, 9_000),
        window(3, 3, 90_000, 9_000), window(4, 3, 10_000, 9_000, "under_replicated"),
    ])  # fmt: skip
    write_rows(tmp_path, "catch_up", [
        outside(0, 3, 14_000, 20_000), outside(0, 3, 14_500, 21_000), outside(5, 3, 14_000, 19_000),
        outside(6, 2, 14_000, 30_000), outside(7, 3, 14_000, 40_000, "added"),
    ])  # fmt: skip
    gone = Incident(kind=IncidentKind.GONE, who=3, from_ts=10_000, to_ts=15_000)
    (row,) = with_effects(tmp_path, [gone], end_ts=100_000)
    assert row["offline"] == {"windows": 2, "partitions": 2, "longest_ms": 4_200, "open": 0}
    assert row["short"] == {"rows": 3, "since_ts": 9_000, "to_ts": 15_000, "partitions": 2, "until_ts": 21_000,
                            "longest_ms": 6_500, "open": 0}  # fmt: skip


def test_who_fell_behind_lacked_what_its_leaders_dropped(tmp_path: Path) -> None:
    write_rows(tmp_path, "catch_up", [
        outside(0, 3, 10_000, 20_000, "leader"), outside(0, 3, 14_500, None, "leader"),
        outside(1, 3, 14_000, 19_000, "controller"), outside(2, 3, 9_999, 19_000, "leader"),
    ])  # fmt: skip
    for kind in (IncidentKind.BEHIND, IncidentKind.PAUSED):
        behind = Incident(kind=kind, who=3, from_ts=10_000, to_ts=15_000)
        (row,) = with_effects(tmp_path, [behind], end_ts=100_000)
        assert row["short"] == {"rows": 2, "since_ts": 10_000, "to_ts": 15_000, "partitions": 1, "until_ts": 20_000,
                                "longest_ms": 10_000, "open": 1}  # fmt: skip


def test_the_worst_rows_are_those_with_the_greatest_values(tmp_path: Path) -> None:
    write_rows(tmp_path, "windows", [window(p, 1, 0, (p * 7) % 100) for p in range(100)])
    worst = worst_rows(tmp_path, "windows", by="duration_ms", limit=3)
    assert [row["duration_ms"] for row in worst] == [99, 98, 97]


def test_an_absence_begins_when_others_lost_the_broker_not_when_its_session_ended(tmp_path: Path) -> None:
    """As the two sources of a KRaft cluster tell it: log files when connections broke, the metadata log the fencing."""
    write_rows(tmp_path, "windows", [
        window(0, 3, 20_500, 4_100), window(1, 3, 20_600, 4_000), window(2, 1, 20_500, 4_100),
        window(3, 3, 5_000, 400_000),
    ])  # fmt: skip
    write_rows(tmp_path, "catch_up", [outside(0, 3, 24_600, 50_000)])
    before = Incident(kind=IncidentKind.GONE, who=3, from_ts=4_000, to_ts=10_000)
    gone = Incident(kind=IncidentKind.GONE, who=3, from_ts=24_600, to_ts=50_000)
    _, row = with_effects(tmp_path, [before, gone], end_ts=500_000)
    assert (row["from_ts"], row["to_ts"]) == (20_500, 50_000)
    assert row["offline"] == {"windows": 2, "partitions": 2, "longest_ms": 4_100, "open": 0}
    assert row["short"]["rows"] == 1


def test_a_broker_that_registers_for_the_first_time_was_not_away() -> None:
    def sign(ts: int, ev: str, key: str | None = None) -> Row:
        return {"ts": ts, "broker": 4, "ev": ev, "key": key}

    first = [sign(1, "broker_down", "registered"), sign(2, "broker_up")]
    assert absences([], first) == []
    again = [*first, sign(50, "broker_down"), sign(60, "broker_down", "registered"), sign(70, "broker_up")]
    assert [(i.from_ts, i.to_ts) for i in absences([], again)] == [(50, 70)]
    quick = [*first, sign(60, "broker_down", "registered"), sign(70, "broker_up")]
    assert [(i.from_ts, i.to_ts) for i in absences([], quick)] == [(60, 70)]
