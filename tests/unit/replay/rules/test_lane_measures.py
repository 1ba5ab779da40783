"""What a lane measures beside the ISR, and what it says where nothing tells of fetches."""

from __future__ import annotations

import random
from typing import Any

import pytest

from broker_sim.replay.rows import ALIVENESS_RUN, RULES_OFF, LaneRow, Outcome
from broker_sim.replay.rules.lane import Lane
from controller.wire.types import BrokerId
from tests.unit.replay.rules.lanes import LAG, LEADS, MIN_ISR, Told, announced, append, fed, fetch, said


def measured(outcomes: list[Outcome], measure: str) -> list[tuple[int | None, ...]]:
    return [(o.replica, o.amount, o.total, o.worst) for o in outcomes if o.change == measure]


def test_how_long_acks_all_had_to_wait() -> None:
    outcomes = said(
        LAG, LEADS, fetch(11, 2, 0, 0), fetch(11, 3, 0, 0), append(20, 1), append(30, 2),
        fetch(35, 2, 2, 2), fetch(40, 3, 1, 2), fetch(60, 3, 2, 2),
    )  # fmt: skip
    # 20 and 30 ms; a median is exact to its class, which ends at 23.
    assert measured(outcomes, "ack_latency_ms") == [(None, 23, 2, 30)]


def test_what_was_cut_is_not_waited_for_any_more() -> None:
    """Of three appends the last two are cut; what is written in their place waits from when it was written."""
    outcomes = said(
        LAG, LEADS, fetch(11, 2, 0, 0), fetch(11, 3, 0, 0), append(20, 10), append(21, 20), append(22, 30),
        append(600, 10), append(610, 30), fetch(620, 2, 30, 30), fetch(620, 3, 30, 30),
    )  # fmt: skip
    ((_, median, count, worst),) = measured(outcomes, "ack_latency_ms")
    assert (count, worst) == (2, 600), "the first append, and the one that took the place of the others"
    assert median is not None and median <= 12


def test_a_high_watermark_that_stands_still() -> None:
    outcomes = said(
        LAG, LEADS, fetch(11, 2, 0, 0), fetch(11, 3, 0, 0), append(20, 1), fetch(21, 2, 1, 1), append(500, 2),
        fetch(501, 2, 2, 2), fetch(2000, 3, 2, 2), append(3000, 3), fetch(3001, 2, 3, 3), fetch(3002, 3, 3, 3),
    )  # fmt: skip
    assert [(o.left_ms, o.joined_ms) for o in outcomes if o.kind == "hw_stalled"] == [(20, 2000)]


def test_how_close_a_member_came_to_being_removed() -> None:
    outcomes = said(LAG, LEADS, append(20, 1), (600, "tick", {}), (900, "tick", {}), fetch(950, 2, 1, 1))
    assert measured(outcomes, "lag_headroom_ms") == [(2, 110, None, None), (3, 110, None, None)]


def test_how_far_a_replica_outside_has_copied_and_what_it_missed() -> None:
    outcomes = said(
        LAG, LEADS, fetch(11, 2, 0, 0), append(20, 10), fetch(21, 2, 10, 10), (1500, "tick", {}),
        fetch(1600, 2, 10, 10), fetch(2000, 3, 0, 10), fetch(2100, 3, 4, 10), fetch(3100, 3, 8, 10),
        fetch(3200, 3, 10, 10),
    )  # fmt: skip
    progress = [(o.ts, o.left_ms, o.amount, o.total) for o in outcomes if o.kind == "progress"]
    assert progress[0] == (2000, 0, 0, 10) and (3100, 0, 8, 10) in progress
    (back,) = [o for o in outcomes if o.kind == "catch_up"]
    assert (back.backlog_records, back.backlog_bytes) == (10, 100)


def test_what_came_in_is_that_of_the_absence_alone() -> None:
    """A thousand appends before replica 3 fell behind say nothing of what it must keep up with."""
    load = [append(20 + i, i + 1) for i in range(1000)]
    outcomes = said(
        LAG, LEADS, fetch(11, 2, 0, 0), *load, fetch(1100, 2, 1000, 1000), (1500, "tick", {}), append(2000, 1001),
        fetch(2100, 2, 1001, 1001), append(3000, 1002), fetch(3001, 2, 1002, 1002), fetch(3499, 3, 0, 1002),
        fetch(3500, 3, 1002, 1002),
    )  # fmt: skip
    (back,) = [o for o in outcomes if o.kind == "catch_up"]
    assert (back.left_ms, back.joined_ms, back.ingress_bytes_per_second) == (1500, 3500, 100.0)


def test_rows_before_any_leader_are_counted() -> None:
    outcomes = said(LAG, append(20, 1), fetch(30, 2, 1, 1), LEADS)
    assert measured(outcomes, "rows_without_leader") == [(None, 2, None, None)]


@pytest.mark.parametrize(("cu", "between"), [(77, (77, 77)), (None, (3500, 4000))])
def test_without_fetches_the_isr_is_the_written_one(cu: int | None, between: tuple[int, int]) -> None:
    """Nothing is removed though nobody fetches, and a removal that leaders wrote has bounds (before 3.6)."""
    off = LaneRow(run=ALIVENESS_RUN, seq=-1, ts=0, ev=RULES_OFF)
    start: Told = (1, "start", {"value": "1", "run_ticks": 0, "run_end": 9000})
    shrink = {"epoch": 0, "replica": 3, "isr": [1, 2], "err": 0, "cu": cu}
    expand = {"epoch": 0, "replica": 3, "isr": [1, 2, 3], "err": 0}
    outcomes = said(start, LAG, LEADS, (5000, "isr_shrink", shrink), (7000, "isr_expand", expand), before=(off,))
    kinds = {o.kind for o in outcomes}
    assert not kinds & {"isr_shrink", "isr_expand", "missing", "spurious", "matched"}
    (back,) = [o for o in outcomes if o.kind == "catch_up"]
    assert (back.left_ms, back.joined_ms, back.first_fetch_ms) == (5000, 7000, None)
    assert (back.cu_min, back.cu_max) == between


def test_without_fetches_nothing_tells_that_the_high_watermark_stood_still() -> None:
    behind: Told = (LEADS[0], "leader", {**LEADS[2], "offset": 9, "hw": 3})
    again: Told = (90_000, "leader", {**LEADS[2], "epoch": 1, "offset": 12, "hw": 12})
    off = LaneRow(run=ALIVENESS_RUN, seq=-1, ts=0, ev=RULES_OFF)
    stalls = [[o for o in said(LAG, behind, again, before=before) if o.kind == "hw_stalled"] for before in ((), (off,))]
    assert [len(found) for found in stalls] == [1, 0]


def test_a_leader_is_down_from_when_it_died_not_from_when_its_session_ended() -> None:
    gone = LaneRow(run=ALIVENESS_RUN, seq=900, ts=900, ev="broker_down", replica=1, done=400)
    outcomes = said(LAG, LEADS, fetch(11, 2, 0, 0), (1_000, "hw", {"hw": 0}), before=(gone,))
    assert [o.ts for o in outcomes if o.kind == "leader_down"] == [400]


def test_a_controllers_change_within_an_epoch_takes_a_member_out_until_it_is_back() -> None:
    """In KRaft the leader's epoch stays when a follower is fenced."""
    off = LaneRow(run=ALIVENESS_RUN, seq=-1, ts=0, ev=RULES_OFF)
    fenced: Told = (500, "leader", {**LEADS[2], "isr": [1, 2], "zk_version": 1})
    older: Told = (600, "leader", {**LEADS[2], "isr": [1], "zk_version": 0})
    back: Told = (900, "isr_expand", {"replica": 3, "epoch": 0, "isr": [1, 2, 3], "err": 0})
    (told,) = [o for o in said(LAG, LEADS, fenced, older, back, before=(off,)) if o.kind == "catch_up"]
    assert (told.replica, told.left_ms, told.left_by, told.joined_ms) == (3, 500, "controller", 900)


def a_term(chance: random.Random, epoch: int, start: int, ends: str) -> list[Told]:
    """A leadership, from when the broker hears of it to when it hears of its end."""
    ts, leo = start, chance.randrange(50)
    columns: dict[str, Any] = {"epoch": epoch, "offset": leo, "hw": chance.randint(0, leo), "zk_version": epoch}
    isr = chance.choice(([1], [1, 2], [1, 2, 3]))
    adding = chance.choice(([], [4]))
    term: list[Told] = [(ts, "leader", {**columns, "isr": isr, "replicas": [1, 2, 3, *adding], "adding": adding})]
    for _ in range(60):
        ts += chance.choice((1, 5, 40, 400))
        if (what := chance.random()) < 0.3:
            leo += chance.randrange(1, 5)
            term.append(append(ts, leo))
        elif what < 0.8:
            at, ev, fetched = fetch(ts, chance.choice((2, 2, 3, 4)), chance.randint(max(0, leo - 9), leo), leo)
            term.append((at, ev, {**fetched, "epoch": epoch, "bytes": 7}))
        else:
            term.append((ts, "tick", {}))
    return [*term, (ts + 1, ends, {"epoch": epoch})]


@pytest.mark.parametrize("ends", ["follower", "stop"])
@pytest.mark.parametrize("seed", range(25))
def test_each_leadership_is_told_as_if_there_had_been_no_other(seed: int, ends: str) -> None:
    chance = random.Random(seed)
    first = a_term(chance, 3, 10, ends)
    second = a_term(chance, chance.choice((4, 7)), first[-1][0] + 100_000, ends)
    kinds = {"spurious", "refused", "hw"}  # a change is given up when a later row comes, if any does

    def all_but(outcomes: list[Outcome]) -> list[str]:
        return sorted(repr(o) for o in outcomes if o.kind not in kinds)

    alone = [all_but(said(LAG, MIN_ISR, *term)) for term in (first, second)]
    assert all_but(said(LAG, MIN_ISR, *first, *second)) == sorted([*alone[0], *alone[1]])
    assert alone[1]


#: what is heard while the broker leads in epoch 3 -> whether it leads still
ENDS = [
    ("follower", 2, True),
    ("follower", 3, False),
    ("follower", 4, False),
    ("follower", None, False),
    ("stop", 2, True),
    ("stop", 3, False),
    ("stop", 4, False),
    ("stop", None, False),
    ("leader", 2, True),
    ("leader", 4, True),
    ("down", None, False),
    ("start", None, False),
]


@pytest.mark.parametrize(("ev", "epoch", "leads"), ENDS)
def test_what_is_of_an_older_epoch_ends_no_leadership(ev: str, epoch: int | None, leads: bool) -> None:
    lane = Lane(broker=BrokerId(1))
    told: tuple[Told, ...] = (
        (10, "leader", {**LEADS[2], "epoch": 3}),
        (20, ev, {"epoch": epoch, "isr": [1], "replicas": [1, 2, 3], "offset": 0}),
    )
    for seq, (ts, name, columns) in enumerate(told):
        lane.feed(LaneRow(run=5, seq=seq, ts=ts, ev=name, **columns))
    assert (lane.led is not None) is leads
    assert lane.led is None or lane.led.epoch == max(3, epoch or 0)


@pytest.mark.parametrize(("run", "leads"), [(5, True), (9, False)])
def test_another_process_leads_nothing_though_its_start_is_not_heard_of(run: int, leads: bool) -> None:
    lane = fed(LAG, LEADS, fetch(11, 2, 0, 0), append(20, 1))
    lane.feed(LaneRow(run=run, seq=9, ts=5_000, ev="append", leo=2, bytes=100))
    assert (lane.led is not None) is leads
    assert [o.ts for o in lane.outcomes if o.kind == "leader_down"] == ([] if leads else [20]), "the last heard of it"


@pytest.mark.parametrize(("runs", "is_let_in"), [((5, 9), True), ((0, 0), False)], ids=["known", "not known"])
def test_a_new_process_has_its_own_view_of_who_lives(runs: tuple[int, int], is_let_in: bool) -> None:
    """It takes nobody for dead whom it was not told of; rows of which no process is known go on with what was."""
    lane = Lane(broker=BrokerId(1))
    lane.feed(announced(500, "broker_down", 3))
    leads_again = {**LEADS[2], "epoch": 1, "isr": [1, 2], "zk_version": 1}
    first = (LAG, LEADS, fetch(11, 2, 0, 0), fetch(510, 2, 0, 0))
    second: tuple[Told, ...] = (
        (600, "start", {"run_ticks": 1}), LAG, (610, "leader", leads_again), fetch(620, 3, 0, 0),
    )  # fmt: skip
    for run, rows in zip(runs, (first, second), strict=True):
        for ts, ev, columns in rows:
            lane.feed(LaneRow(run=run, seq=ts, ts=max(ts, 600 if rows is second else 0), ev=ev, **columns))
    lane.feed(LaneRow(run=runs[1], seq=630, ts=630, ev="fetch", replica=3, offset=0, leo=0, err=0, epoch=1))
    assert lane.led is not None and (3 in lane.led.isr) is is_let_in
