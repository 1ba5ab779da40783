"""What a broker hears while it leads: settings, who is alive, what it wrote; and what is told when its rows end."""

from __future__ import annotations

from typing import Any

import pytest

from broker_sim.replay.compare import PATIENCE_MS
from broker_sim.replay.rows import LaneRow, Outcome
from broker_sim.replay.rules.lane import Lane
from tests.unit.replay.rules.lanes import LAG, LEADS, MIN_ISR, Told, announced, append, fed, fetch, said
from tests.unit.replay.rules.test_stretch import bulk

#: from here on nobody fetches
BOTH_FETCHED = (fetch(20, 2, 0, 0), fetch(20, 3, 0, 0))
TICKS: tuple[Told, ...] = tuple((ts, "tick", {}) for ts in range(500, 10_001, 500))
EXPAND, SHRINK = "isr_expand", "isr_shrink"


def of(outcomes: list[Outcome], *kinds: str) -> list[Outcome]:
    return [o for o in outcomes if o.kind in kinds]


def in_order(*rows: Told) -> list[Told]:
    return sorted(rows, key=lambda row: row[0])


def config(ts: int, key: str, value: str | None, **columns: Any) -> Told:
    return ts, "config", {"key": key, "value": value, **columns}


# -- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lag", "leaves"), [("3000", 3500), ("1000", 1500), ("400", 1000)])
def test_a_lag_that_is_set_while_it_leads_counts_from_then_on(lag: str, leaves: int) -> None:
    """The followers were caught up last at 20, the log grew at 30."""
    rows = in_order(LAG, LEADS, *BOTH_FETCHED, append(30, 1), config(600, "replica.lag.time.max.ms", lag), *TICKS)
    assert [o.ts for o in of(said(*rows), SHRINK)] == [leaves]


def test_each_change_of_the_members_that_acks_all_asks_for_is_told_once() -> None:
    """It is in force while the broker leads: of each leadership the first is told, too."""

    def asks(ts: int, value: str) -> Told:
        return config(ts, "min.insync.replicas", value)

    rows = in_order(
        asks(0, "2"), LEADS, asks(100, "2"), asks(200, "1"), asks(300, "9"), (400, "follower", {"epoch": 1}),
        asks(500, "2"), (600, "leader", {**LEADS[2], "epoch": 2}), (700, "leader", {**LEADS[2], "epoch": 3}),
    )  # fmt: skip
    told = [(o.ts, o.amount, o.epoch) for o in of(said(*rows), "min_isr")]
    assert told == [(10, 2, 0), (200, 1, 0), (300, 3, 0), (600, 2, 2)], "9 of 3 replicas are 3"


def test_what_acks_all_asks_for_while_it_leads_holds_the_high_watermark() -> None:
    alone: Told = (10, "leader", {**LEADS[2], "isr": [1]})
    needs = config(100, "min.insync.replicas", "2")
    for rows, stands_at in (((append(5000, 7),), 7), ((needs, append(5000, 7)), 0)):
        led = fed(LAG, alone, *rows).led
        assert led is not None and led.high_watermark == stands_at


def test_a_stall_is_judged_by_the_lag_that_was_in_force_when_it_ended() -> None:
    later = config(1600, "replica.lag.time.max.ms", "9000")
    ended = (append(30, 1), fetch(1500, 2, 1, 1), fetch(1500, 3, 1, 1))
    for rows in ((*ended, later), (*ended, later, (1700, "follower", {"epoch": 1}))):
        (stall,) = of(said(LAG, LEADS, *BOTH_FETCHED, *rows), "hw_stalled")
        assert (stall.left_ms, stall.joined_ms) == (30, 1500)


@pytest.mark.parametrize(
    ("lag", "late", "is_twin"),
    [
        ("1000", 500, True),
        ("1000", 501, False),
        ("100000", 2000, True),
        ("100000", 2001, False),
        ("2", 1, True),
        ("2", 2, False),
        ("1", 1, True),
        ("1", 2, False),
    ],
)
def test_twins_lie_no_further_apart_than_a_tick_from_the_next(lag: str, late: int, is_twin: bool) -> None:
    """Nor than two seconds: else it might be the one before."""
    at = 200_500
    written: Told = (at + late, SHRINK, {"epoch": 0, "replica": 3, "isr": [1, 2], "err": 0})
    rows = (config(0, "replica.lag.time.max.ms", lag), LEADS, *BOTH_FETCHED, append(30, 1), fetch(at, 2, 1, 1),
            (at, "tick", {}), written)  # fmt: skip
    kinds = sorted(o.kind for o in of(said(*rows), "matched", "missing", "spurious"))
    assert kinds == (["matched"] if is_twin else ["missing", "spurious"])


# -- who is alive -----------------------------------------------------------------------------------------------------


def own_view(ts: int, ev: str, replica: int | None) -> Told:
    return ts, ev, {"replica": replica}


def seen(ts: int, ev: str, replica: int, *, by_itself: bool) -> tuple[tuple[Told, ...], tuple[LaneRow, ...]]:
    """The same, as a row of the broker or of a controller."""
    return ((own_view(ts, ev, replica),), ()) if by_itself else ((), (announced(ts, ev, replica),))


#: what is seen of whom, when -> when replica 3, which fetches every 100 ms from 2000 on, is back
SEEN = [
    ("broker_down", 3, 1900, None),
    ("broker_down", 3, 2050, 2000),
    ("broker_up", 3, 1900, 2000),
    ("broker_down", 2, 1900, 2000),
    ("broker_down", 1, 1900, 2000),
]


@pytest.mark.parametrize("by_itself", [True, False])
@pytest.mark.parametrize(("ev", "replica", "ts", "back"), SEEN)
def test_who_is_dead_does_not_join_from_when_that_is_seen(
    ev: str, replica: int, ts: int, back: int | None, by_itself: bool
) -> None:
    rows, before = seen(ts, ev, replica, by_itself=by_itself)
    fetches = [fetch(at, 3, 1, 1) for at in range(2000, 3000, 100)]
    told = said(
        *in_order(LAG, LEADS, *BOTH_FETCHED, append(30, 1), fetch(40, 2, 1, 1), (1500, "tick", {}), *rows, *fetches),
        before=before,
    )
    assert [o.ts for o in of(told, SHRINK)] == [1500]
    assert [o.ts for o in of(told, EXPAND)] == ([] if back is None else [back])


@pytest.mark.parametrize("by_itself", [True, False])
def test_who_is_seen_again_joins_with_its_next_fetch(by_itself: bool) -> None:
    views = [seen(ts, ev, 3, by_itself=by_itself) for ts, ev in ((1600, "broker_down"), (2150, "broker_up"))]
    fetches = [fetch(at, 3, 1, 1) for at in range(2000, 3000, 100)]
    told = said(
        *in_order(LAG, LEADS, *BOTH_FETCHED, append(30, 1), fetch(40, 2, 1, 1), (1500, "tick", {}), *fetches,
                  *(row for rows, _ in views for row in rows)),
        before=tuple(row for _, rows in views for row in rows),
    )  # fmt: skip
    assert [o.ts for o in of(told, EXPAND)] == [2200]


@pytest.mark.parametrize("by_itself", [True, False])
@pytest.mark.parametrize(("ev", "replica", "is_down"), [("broker_down", 1, True), ("broker_down", 2, False),
                                                        ("broker_up", 1, False), ("broker_up", 2, False)])  # fmt: skip
@pytest.mark.parametrize("last", [30, 90])
def test_a_leader_is_down_when_its_own_session_has_ended(
    ev: str, replica: int, is_down: bool, last: int, by_itself: bool
) -> None:
    """Whether rows follow or none does."""
    rows, before = seen(60, ev, replica, by_itself=by_itself)
    told = said(*in_order(LAG, LEADS, *BOTH_FETCHED, append(last, 1), *rows), before=before)
    assert [o.ts for o in of(told, "leader_down")] == ([60] if is_down else [])


def test_who_leads_nothing_is_not_missed() -> None:
    for before in ((), (announced(60, "broker_down", 1),)):
        assert not of(said(LAG, (50, "broker_down", {"replica": 1}), before=before), "leader_down")


def test_of_nobody_nothing_is_seen() -> None:
    rows = (LAG, LEADS, *BOTH_FETCHED, own_view(25, "broker_down", None), append(30, 1), *TICKS, fetch(20_000, 3, 1, 1))
    assert len(of(said(*rows), EXPAND)) == 1


# -- what it says of itself -------------------------------------------------------------------------------------------


def test_an_epoch_is_held_once_whatever_a_later_row_of_it_says() -> None:
    """Where fetches tell who is in sync; and one that says nothing of its epoch or its ISR is none."""
    isr_of_one = {**LEADS[2], "isr": [1], "zk_version": 7}
    for columns in (isr_of_one, {**isr_of_one, "epoch": None}, {**LEADS[2], "epoch": 4, "isr": None}):
        led = fed(LAG, LEADS, *BOTH_FETCHED, append(30, 1), (40, "leader", columns)).led
        assert led is not None
        assert (led.isr, led.epoch, led.partition_epoch, led.epoch_start) == ((1, 2, 3), 0, 0, 0)


#: of rows that all tell of one shrink: when the broker wrote it, when its tick was -> does that belong together
@pytest.mark.parametrize("in_between", [[], [append(1400, 5), fetch(1401, 2, 5, 5)], [fetch(1401, 2, 5, 5)]])
@pytest.mark.parametrize("written", [1300, 1450, 1500, 1700])
def test_a_change_may_be_told_some_rows_before_or_after_its_cause(written: int, in_between: list[Told]) -> None:
    told: Told = (written, SHRINK, {"epoch": 0, "replica": 3, "isr": [1, 2], "err": 0})
    rows = (LAG, LEADS, *BOTH_FETCHED, append(30, 1), fetch(40, 2, 1, 1), *in_between, (1500, "tick", {}),
            append(1600, 7), told)  # fmt: skip
    outcomes = said(*in_order(*rows))
    assert [o.error_ms for o in of(outcomes, "matched")] == [written - 1500]
    assert not of(outcomes, "missing", "spurious")


def test_what_was_written_alone_is_told_once_it_has_waited_long_enough() -> None:
    """Not only at the end: a lane may be as long as a month. One row, or many that decide nothing, may follow."""
    written: Told = (100, SHRINK, {"epoch": 0, "replica": 3, "isr": [1, 2], "err": 0})
    for later, is_told in ((100 + PATIENCE_MS, False), (101 + PATIENCE_MS, True)):
        row = LaneRow(run=5, seq=99, ts=later, ev="append", leo=0)

        def one(lane: Lane, row: LaneRow = row) -> None:
            lane.feed(row)

        def many(lane: Lane, row: LaneRow = row) -> None:
            assert lane.skip(bulk([row])) == 1

        for goes_on in (one, many):
            lane = fed(LAG, LEADS, *BOTH_FETCHED, written)
            goes_on(lane)
            assert len(of(lane.outcomes, "missing")) == is_told


def test_the_high_watermarks_of_many_rows_are_compared_as_those_of_single_ones_are() -> None:
    """7 is written before the rows that raise it there, 5 after those that did, 6 never was."""
    single = (LAG, LEADS, *BOTH_FETCHED, append(30, 5), fetch(31, 2, 5, 5), fetch(32, 3, 5, 5), (33, "hw", {"hw": 7}))
    more = [(40, "hw", {"hw": 5}), append(41, 7), fetch(42, 2, 7, 7), fetch(43, 3, 7, 7), (44, "hw", {"hw": 6})]
    lane = fed(*single)
    rows = [LaneRow(run=5, seq=50 + i, ts=ts, ev=ev, **columns) for i, (ts, ev, columns) in enumerate(more)]
    assert lane.skip(bulk(rows)) == len(rows)
    lane.finish()
    counts = [[(o.amount, o.total) for o in of(outcomes, "hw")] for outcomes in (lane.outcomes, said(*single, *more))]
    assert counts == [[(2, 3)]] * 2


# -- the end of the rows ----------------------------------------------------------------------------------------------


def test_who_is_still_outside_at_the_end_is_named() -> None:
    rows = (LAG, LEADS, *BOTH_FETCHED, append(30, 1), fetch(40, 2, 1, 1), (1500, "tick", {}), fetch(1700, 3, 0, 1))
    (absence,) = of(said(*rows), "catch_up")
    assert (absence.replica, absence.left_ms, absence.left_by, absence.first_fetch_ms) == (3, 1500, "leader", 1700)
    assert (absence.joined_ms, absence.cu, absence.backlog_records) == (None, 20, 1)


@pytest.mark.parametrize("end", [(1800, "follower", {"epoch": 1}), (1800, "down", {})])
def test_of_whom_another_leader_lets_in_nothing_is_said_here(end: Told) -> None:
    rows = (LAG, LEADS, *BOTH_FETCHED, append(30, 1), fetch(40, 2, 1, 1), (1500, "tick", {}), fetch(1700, 3, 0, 1))
    assert not of(said(*rows, end), "catch_up")


def test_rows_that_only_a_leader_writes_are_counted_from_the_first_until_it_is_known_to_lead() -> None:
    """Those of requests with an error are none of a leader; after a leadership they are late, not unexplained."""
    refused = (25, "fetch", {"replica": 2, "offset": 0, "err": 6})
    rows = (append(20, 1), refused, fetch(30, 2, 1, 1), append(31, 2))
    for more in ((), (LEADS, (40, "follower", {"epoch": 1}), append(50, 3), fetch(51, 2, 1, 1))):
        (found,) = [o for o in said(LAG, MIN_ISR, *rows, *more) if o.change == "rows_without_leader"]
        assert (found.kind, found.ts, found.amount, found.epoch) == ("measure", 20, 3, -1)


def test_what_added_replicas_fetched_is_told_of_each_move_when_it_or_the_leadership_ends() -> None:
    def adds(ts: int, epoch: int, replica: int) -> Told:
        columns = {"epoch": epoch, "replicas": [1, 2, 3, replica], "adding": [replica], "zk_version": epoch}
        return ts, "leader", {**LEADS[2], **columns}

    def copies(ts: int, epoch: int, replica: int, size: int | None) -> Told:
        at, ev, columns = fetch(ts, replica, 0, 9)
        return at, ev, {**columns, "epoch": epoch, "bytes": size}

    first = (adds(50, 1, 4), copies(60, 1, 4, 70), copies(61, 1, 2, 500), copies(70, 1, 4, 5), copies(80, 1, 4, 0))
    done: Told = (90, "leader", {**LEADS[2], "epoch": 2, "zk_version": 2})
    second = (adds(100, 3, 5), copies(110, 3, 5, 8), copies(111, 3, 4, 9), copies(112, 3, 5, None))
    for end in ((), ((190, "leader", {**LEADS[2], "epoch": 4}),), ((190, "follower", {"epoch": 4}),)):
        copied = of(said(LAG, LEADS, append(20, 9), *first, done, *second, *end), "copied")
        assert [(o.ts, o.amount) for o in copied] == [(70, 75), (110, 8)]


# -- what it decided --------------------------------------------------------------------------------------------------


def test_a_removal_of_two_is_one_change_and_each_is_compared() -> None:
    writes = [
        (1510, SHRINK, {"replica": replica, "isr": [1], "err": None, **epoch})
        for replica, epoch in ((3, {"epoch": 0}), (2, {}), (None, {"epoch": 0}))
    ]
    outcomes = said(LAG, LEADS, BOTH_FETCHED[0], append(30, 1), (1500, "tick", {}), *writes)
    (shrink,) = of(outcomes, SHRINK)
    assert (shrink.replica, shrink.isr_old, shrink.isr, shrink.epoch) == (2, [1, 2, 3], [1], 0)
    assert shrink.cu == 20, "of the first"
    matched = [(o.kind, o.replica, o.epoch, o.error_ms) for o in of(outcomes, "matched", "missing", "spurious")]
    assert matched == [("matched", 3, 0, 10), ("matched", 2, 0, 10)], "who does not say of which epoch means this one"


def test_how_long_one_that_caught_up_outside_held_the_high_watermark() -> None:
    """The end of the example of isr-replay.md §4: 3 was at the end a while ago, and is not as far as the members."""
    out = (*BOTH_FETCHED, append(30, 1000), fetch(40, 2, 1000, 1000), (1500, "tick", {}))
    nears = (append(2000, 2000), fetch(2010, 2, 2000, 2000), fetch(2020, 3, 1500, 2000), append(2030, 2040),
             fetch(2040, 2, 2040, 2040), fetch(2045, 3, 2000, 2040))  # fmt: skip
    held = (append(2100, 2060), fetch(2130, 2, 2060, 2060), fetch(2160, 3, 2030, 2060), fetch(2200, 3, 2060, 2060))
    rows = (LAG, LEADS, *out, *nears, *held, append(2300, 2070), fetch(2400, 2, 2070, 2070))
    for until, held_ms in ((len(rows), 70), (len(rows) - 3, 30)):
        (measure,) = [o for o in said(*rows[:until]) if o.change == "hw_held_by_outsiders_ms"]
        assert (measure.amount, measure.kind) == (held_ms, "measure")
    assert not [o for o in said(LAG, LEADS, *out, *nears) if o.change == "hw_held_by_outsiders_ms"]
