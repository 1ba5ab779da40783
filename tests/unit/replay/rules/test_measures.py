"""What is measured over columns, against a look at one row after the other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker_sim.isr import PROFILES
from broker_sim.replay.rows import Measure, Outcome, OutcomeKind
from broker_sim.replay.rules.measures import Delays, Measures
from controller.wire.types import BrokerId

LIMIT_MS = 5
TWO, THREE = BrokerId(2), BrokerId(3)


def partition(leo: int, hw: int, *, member_at: int = 0, is_frozen: bool = False) -> Any:
    """Replica 2 is a member and has so much, replica 3 is outside and has nothing."""
    followers = {TWO: SimpleNamespace(log_end_offset=member_at), THREE: SimpleNamespace(log_end_offset=0)}
    return SimpleNamespace(
        epoch=7, log_end_offset=leo, high_watermark=hw, lag_time_max_ms=LIMIT_MS, isr=(BrokerId(1), TWO),
        followers=followers, profile=PROFILES["P37"], is_under_min_isr=is_frozen,
    )  # fmt: skip


#: how long after the row before, how much longer the log is, how much of what is missing becomes visible (of 4), and
#: whether what was collected is measured then
rows = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from([0, 0, 1, 3]), st.sampled_from([0, 0, 0, 1, 3, 4]), st.booleans()),
    max_size=25,
)


@settings(max_examples=40)
@given(st.integers(0, 2), rows, st.integers(0, 9))
@example(0, [(1, 1, 0, False), (LIMIT_MS, 0, 4, False)], 0)
@example(0, [(1, 1, 0, False), (LIMIT_MS + 1, 0, 4, False)], 0)
@example(2, [(1, 1, 1, True), (LIMIT_MS, 0, 0, True), (LIMIT_MS, 3, 4, True)], 9)
def test_stalls_and_waits_are_those_of_one_row_after_the_other(
    behind: int, steps: list[tuple[int, int, int, bool]], stays: int
) -> None:
    """A stall lasts from when something waits to the next rise, and counts if it is longer than the limit."""
    outcomes: list[Outcome] = []
    measures = Measures(outcomes)
    ts, leo, hw = 100, 10 + behind, 10
    measures.led(partition(leo, hw), ts, took_over=True)
    since = ts if behind else None
    stalls: list[tuple[int, int]] = []
    unacked: list[tuple[int, int]] = []
    waits: list[int] = []
    for after, longer, seen, is_settled in steps:
        ts, leo = ts + after, leo + longer
        rise = (leo - hw) * seen // 4
        hw += rise
        measures.stepped(partition(leo, hw), ts)
        if is_settled:
            measures.settle(partition(leo, hw))
        if longer:
            unacked.append((leo, ts))
        waits += [ts - at for end, at in unacked if end <= hw]
        unacked = [(end, at) for end, at in unacked if end > hw]
        if rise:
            if since is not None:
                stalls.append((since, ts))
            since = ts if leo > hw else None
        elif longer and since is None:
            since = ts
    ts += stays
    measures.stopped(partition(leo, hw), ts)
    if since is not None:
        stalls.append((since, ts))
    found = [(o.left_ms, o.joined_ms, o.epoch) for o in outcomes if o.kind == OutcomeKind.HW_STALLED.value]
    assert found == [(*stall, 7) for stall in stalls if stall[1] - stall[0] > LIMIT_MS]
    acks = [o for o in outcomes if o.change == Measure.ACK_LATENCY.value]
    assert [(o.total, o.worst) for o in acks] == ([(len(waits), max(waits))] if waits else [])


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 9), st.integers(8, 12), st.integers(8, 12), st.booleans(), st.booleans(), st.booleans()
        )
    ),
    st.integers(0, 9),
)
def test_outsiders_hold_what_the_members_all_have(
    looks: list[tuple[int, int, int, bool, bool, bool]], stays: int
) -> None:
    """From each append or fetch to the next. Where too few members are in sync nobody else holds it."""
    outcomes: list[Outcome] = []
    measures = Measures(outcomes)
    ts, held_ms, is_held = 100, 0, False
    for after, leo, member_at, is_frozen, all_inside, is_settled in looks:
        ts += after
        held_ms += after * is_held
        led = partition(leo, 9, member_at=member_at, is_frozen=is_frozen)
        if all_inside:
            measures.all_inside(ts)
        else:
            measures.judged(led, ts)
        is_held = not all_inside and not is_frozen and leo > 9 and member_at > 9
        if is_settled:
            measures.settle(led)
    measures.stopped(partition(9, 9), ts + stays)
    held_ms += stays * is_held
    found = [o.amount for o in outcomes if o.change == Measure.HW_HELD_BY_OUTSIDERS.value]
    assert found == ([held_ms] if held_ms else [])


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(0, 2_000) | st.integers(0, 10**9))), st.sampled_from([0.05, 0.5, 0.95, 1.0]))
@example([[10**9]], 0.5)
@example([[1, 2], [3, 4]], 0.5)
def test_a_quantile_is_that_of_all_delays_to_a_quarter(parts: list[list[int]], share: float) -> None:
    delays = Delays()
    for part in parts:
        delays.add(np.array(part, np.int64))
    everything = sorted(delay for part in parts for delay in part)
    assert (delays.count, delays.worst) == (len(everything), max(everything, default=0))
    if everything:
        exact = everything[max(0, int(np.ceil(share * len(everything) - 1e-9)) - 1)]
        assert exact <= delays.quantile(share) <= max(delays.worst if exact > 4e7 else exact * 1.26 + 1, 1)
    else:
        assert delays.quantile(share) == 0


@settings(max_examples=40)
@given(st.lists(st.lists(st.tuples(st.sampled_from([TWO, THREE]), st.integers(-5, 5)), max_size=3), max_size=6))
def test_of_what_was_left_to_each_member_the_least_is_told(judged: list[list[tuple[BrokerId, int]]]) -> None:
    outcomes: list[Outcome] = []
    measures = Measures(outcomes)
    for left in judged:
        measures.headroom(left)
    measures.stopped(partition(9, 9), 100)
    least = {
        replica: min(ms for row in judged for r, ms in row if r == replica) for row in judged for replica, _ in row
    }
    assert [(o.replica, o.amount, o.ts, o.change) for o in outcomes] == [
        (replica, ms, 100, Measure.LAG_HEADROOM.value) for replica, ms in sorted(least.items())
    ]


def test_what_a_sitting_leader_hears_from_the_controller_can_end_a_stall() -> None:
    """A member that held the high watermark is taken out of the ISR: it rises with the LeaderAndIsr itself."""
    outcomes: list[Outcome] = []
    measures = Measures(outcomes)
    measures.led(partition(12, 10), 100, took_over=True)
    measures.settle(partition(12, 10))
    measures.led(partition(12, 12), 200, took_over=False)
    measures.stopped(partition(12, 12), 300)
    assert [(o.left_ms, o.joined_ms) for o in outcomes] == [(100, 200)]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 900)), max_size=6),
    st.integers(0, 6),
    st.integers(-1, 9),
    st.none() | st.integers(0, 9),
)
@settings(max_examples=60)
def test_what_came_in_and_what_records_weigh_is_by_what_appends_tell(
    appends: list[tuple[int, int | None]], left_after: int, away_ms: int, behind: int | None
) -> None:
    """An append of which the bytes are not known adds none; where nothing tells of bytes, neither is known."""
    measures = Measures([])
    before = 0
    for number, (records, size) in enumerate(appends):
        if number == left_after:
            before = measures.bytes_appended
        measures.appended(partition(9, 9), records=records, size=size)
    sizes = [size or 0 for _, size in appends]
    records, total = sum(count for count, _ in appends), sum(sizes)
    assert measures.bytes_appended == total
    since = total - before
    assert measures.ingress(100, 100 + away_ms, before) == (since * 1000 / away_ms if away_ms > 0 and total else None)
    is_known = behind is not None and records and total
    assert measures.size_of(behind) == (round((behind or 0) * total / records) if is_known else None)
