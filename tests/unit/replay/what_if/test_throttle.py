"""The fluid model of throttled copies: the formula of §9.2 where it has one, and what must hold always."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_sim.replay.what_if.asked import FOLLOWER_RATE, LEADER_RATE, THROTTLE, Change
from broker_sim.replay.what_if.copies import CopyRow, EtaRow, etas
from broker_sim.replay.what_if.throttle import (
    FETCH_BYTES,
    RESPONSE_BYTES,
    UNLIMITED,
    Copy,
    Rates,
    durations,
    smallest_rates,
)
from controller.wire.types import BrokerId

MB = 1_000_000


def copy(leader: int = 1, follower: int = 4, backlog: float = 100 * MB, ingress: float = 0, **more: Any) -> Copy:
    ids = {"leader": BrokerId(leader), "follower": BrokerId(follower)}
    return Copy(**ids, backlog=backlog, ingress=ingress, **{"start": 0.0, **more})


def leader_rate(rate: float) -> Rates:
    return Rates(leader_default=rate)


CASES = [  # copies, rates -> seconds
    ("one copy: B / (f - w)", [copy(ingress=2 * MB)], leader_rate(10 * MB), [12.5]),
    ("as much comes in as may be copied: never", [copy(ingress=10 * MB)], leader_rate(10 * MB), [None]),
    ("members of the ISR take their share first", [copy(ingress=MB, in_sync_followers=2)], leader_rate(13 * MB), [10]),
    ("two share equally", [copy(), copy(follower=5)], leader_rate(10 * MB), [20, 20]),
    ("the small one is done first, then the other has all", [copy(backlog=20 * MB), copy(follower=5)],
     leader_rate(10 * MB), [4, 12]),
    ("two leaders, one follower: the follower's throttle", [copy(), copy(leader=2)], Rates(follower_default=10 * MB),
     [20, 20]),
    ("what one cannot use goes to the other", [copy(fetch_rate=2 * MB), copy(follower=5)], leader_rate(10 * MB),
     [50, 12.5]),
    ("a broker that is not named has the default", [copy(), copy(leader=2, follower=5)],
     Rates(leader={BrokerId(1): 10.0 * MB}, leader_default=50 * MB), [10, 2]),
    ("one that starts later shares from then on", [copy(), copy(follower=5, start=5.0, backlog=25 * MB)],
     leader_rate(10 * MB), [12.5, 5.0]),
    ("one that has caught up goes on to count", [copy(backlog=10 * MB, ingress=MB), copy(follower=5)],
     leader_rate(10 * MB), [2.5, 2.5 + 87.5 / 9]),
    ("room that another leaves lets it finish",
     [copy(backlog=40 * MB), copy(follower=5, ingress=5 * MB, backlog=10 * MB)],
     leader_rate(10 * MB), [8, 10]),
    ("nothing to copy", [copy(backlog=0)], leader_rate(10), [0]),
    ("rate 0: never", [copy()], leader_rate(0), [None]),
    ("capacity of the follower", [copy(), copy(leader=2)], Rates(capacity={BrokerId(4): 40.0 * MB}), [5, 5]),
    ("responses of a leader to a follower", [copy(), copy()],
     Rates(responses={(BrokerId(1), BrokerId(4)): 20.0 * MB}), [10, 10]),
    ("no bound at all", [copy()], Rates(), [0]),
    ("nobody copies", [], Rates(), []),
]  # fmt: skip


@pytest.mark.parametrize(("copies", "rates", "seconds"), [pytest.param(*case[1:], id=case[0]) for case in CASES])
def test_durations(copies: list[Copy], rates: Rates, seconds: list[float | None]) -> None:
    assert durations(copies, rates) == [None if s is None else pytest.approx(s, abs=1e-6) for s in seconds]


some_copies = st.lists(
    st.builds(
        copy,
        leader=st.integers(1, 3),
        follower=st.integers(4, 6),
        backlog=st.integers(1, 10**9).map(float),
        ingress=st.integers(0, 10**6).map(float),
        start=st.integers(0, 100).map(float),
        in_sync_followers=st.integers(0, 2),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(some_copies, st.integers(1, 10**7))
def test_just_above_the_smallest_rate_all_finish_and_at_half_of_it_not(copies: list[Copy], extra: int) -> None:
    leaders, followers = smallest_rates(copies)
    enough = Rates(
        leader={b: float(rate + extra) for b, rate in leaders.items()},
        follower={b: float(rate + extra) for b, rate in followers.items()},
    )
    assert None not in durations(copies, enough)
    busiest = max(leaders, key=lambda b: leaders[b])
    load = sum(c.ingress for c in copies if c.leader == busiest)
    if load > 2:
        half = Rates(leader={busiest: load / 2 - 1}, leader_default=UNLIMITED)
        forever = [c for c in copies if c.leader == busiest and c.ingress > load / 2]
        assert all(
            d is None for c, d in zip(copies, durations(copies, half), strict=True) if c in forever and c.backlog > 0
        )


@settings(max_examples=50, deadline=None)
@given(some_copies, st.integers(1, 10**8), st.integers(1, 10))
def test_no_throttle_is_ever_beaten(copies: list[Copy], rate: int, times: int) -> None:
    """No copy alone can be faster than the whole rate; where all finish, more rate never turns a time into never.

    Where some do not, one may: a copy that more rate brings into the ISR counts with all it takes from then on.
    """
    slow, fast = durations(copies, leader_rate(rate)), durations(copies, leader_rate(rate * times))
    for one, at_rate in zip(copies, slow, strict=True):
        if at_rate is not None:
            assert at_rate * (rate - one.ingress) >= one.backlog * (1 - 1e-6)
    if None not in slow:
        assert None not in fast


def test_one_that_joins_takes_what_another_had() -> None:
    """At 373 bytes/s the first copy falls back and shares; at twice that it joins, and leaves too little."""
    copies = [copy(backlog=1.0, ingress=560.0), copy(backlog=100.0, ingress=186.4, start=1.0)]
    assert durations(copies, leader_rate(373)) == [None, pytest.approx(1000, rel=1e-3)]
    assert durations(copies, leader_rate(746)) == [pytest.approx(1 / 186), None]


ROW = CopyRow(
    topic="orders", partition=3, leader=1, follower=4, start_ts=1000, recorded_ms=9_000, backlog_bytes=100 * MB,
    ingress_bytes_per_second=2.0 * MB, in_sync_followers=1, round_trip_ms=100, is_throttled=True,
    leader_rate=20 * MB, follower_rate=20 * MB, fetch_bytes=50 * MB, response_bytes=50 * MB,
)  # fmt: skip


def rows_of(scope: str, told: list[EtaRow]) -> list[EtaRow]:
    return [row for row in told if row.scope == scope]


def test_the_rows_of_the_table() -> None:
    told = list(etas([ROW], [Change(THROTTLE, 1 * MB), Change(THROTTLE, 14 * MB)]))
    assert [(r.value, r.eta_ms, r.never) for r in rows_of("copy", told)] == [
        (None, 9_000, 0), (1 * MB, None, 1), (14 * MB, 10_000, 0),
    ]  # fmt: skip
    assert [(r.value, r.eta_ms, r.never, r.smallest_rate) for r in rows_of("all", told)] == [
        (None, 9_000, 0, 4 * MB + 1), (1 * MB, None, 1, 4 * MB + 1), (14 * MB, 10_000, 0, 4 * MB + 1),
    ]  # fmt: skip
    assert [(r.broker, r.smallest_rate) for r in rows_of("broker", told)] == [(1, 4 * MB + 1), (4, 2 * MB + 1)]
    assert rows_of("copy", told)[1].limits == ["capacity_unknown", "overshoot"]


def test_a_leaders_rate_alone_leaves_the_followers_as_it_was() -> None:
    told = list(etas([ROW], [Change(LEADER_RATE, 500 * MB)]))
    # 20 MB/s as recorded at the follower, less 2 that come in
    assert rows_of("copy", told)[1].eta_ms == round(1000 * 100 / 18)


@pytest.mark.parametrize(("later_ms", "smallest", "eta"), [(10_000, 8 * MB + 1, None), (70_000, 4 * MB + 1, 10_000)])
def test_only_copies_that_meet_share(later_ms: int, smallest: int, eta: int | None) -> None:
    """At 14 MB/s two that meet take longer than one alone."""
    second = ROW._replace(partition=4, start_ts=ROW.start_ts + later_ms)
    told = list(etas([ROW, second], [Change(THROTTLE, 14 * MB)]))
    assert rows_of("all", told)[1].smallest_rate == smallest
    assert (rows_of("all", told)[1].eta_ms == 10_000) == (eta is not None)


@pytest.mark.parametrize(("long_ms", "meet"), [(9_000, 2), (30_000, 2), (40_000, 3), (200_000, 3), (None, 3)], ids=str)
def test_who_copies_long_is_met_by_all_that_come_meanwhile(long_ms: int | None, meet: int) -> None:
    """A second that is done soon, and a third 100 s after the first: it meets whoever is not done for a minute."""
    first = ROW._replace(recorded_ms=long_ms)
    second = ROW._replace(partition=4, start_ts=ROW.start_ts + 1_000, recorded_ms=1_000)
    third = ROW._replace(partition=5, start_ts=ROW.start_ts + 100_000, recorded_ms=1_000)
    for rows in ([first, second, third], [third, second, first]):
        told = list(etas(rows, [Change(THROTTLE, 14 * MB)]))
        assert rows_of("all", told)[1].smallest_rate == meet * 4 * MB + 1


@pytest.mark.parametrize("fetched", [None, 0, 100 * MB])
def test_a_copy_that_lacked_nothing_takes_no_time_whatever_it_fetched(fetched: int | None) -> None:
    """What it fetched is what came in meanwhile: it tells of the size where nothing else does."""
    row = ROW._replace(backlog_bytes=0, copied_bytes=fetched, ingress_bytes_per_second=0.0)
    (_, changed) = rows_of("copy", list(etas([row], [Change(THROTTLE, MB)])))
    assert (changed.eta_ms, changed.never, changed.backlog_bytes) == (0, 0, 0)


def test_a_copy_of_unknown_size_has_no_answer_and_is_no_never() -> None:
    unknown = ROW._replace(backlog_bytes=None, copied_bytes=None, partition=4)
    told = [r for r in etas([ROW, unknown], [Change(THROTTLE, 14 * MB)]) if r.value is not None]
    (of_unknown,) = (r for r in told if r.partition == 4)
    assert (of_unknown.eta_ms, of_unknown.never) == (None, 0)
    assert of_unknown.limits is not None and "bytes_unknown" in of_unknown.limits


#: what differs from `ROW`, and what is asked -> MB/s by which the copy gains ground
GAINS: list[tuple[dict[str, Any], Change, float]] = [
    ({}, Change(THROTTLE, 14 * MB), 10),
    ({"in_sync_followers": None}, Change(THROTTLE, 14 * MB), 12),
    ({"in_sync_followers": 3}, Change(THROTTLE, 14 * MB), 6),
    ({"ingress_bytes_per_second": None}, Change(THROTTLE, 14 * MB), 14),
    ({"backlog_bytes": None, "copied_bytes": 100 * MB}, Change(THROTTLE, 14 * MB), 10),
    ({"copied_bytes": 7}, Change(THROTTLE, 14 * MB), 10),
    ({"fetch_bytes": 2 * MB}, Change(THROTTLE, 400 * MB), 18),
    ({"response_bytes": 2 * MB}, Change(THROTTLE, 400 * MB), 18),
    ({"capacity": 20.0 * MB}, Change(THROTTLE, 400 * MB), 18),
    ({"fetch_bytes": None}, Change(THROTTLE, 400 * MB), FETCH_BYTES * 10 / MB - 2),
    ({"response_bytes": None}, Change(THROTTLE, 400 * MB), RESPONSE_BYTES * 10 / MB - 2),
    ({"round_trip_ms": None, "fetch_bytes": 1, "response_bytes": 1}, Change(THROTTLE, 400 * MB), 396),
    ({"round_trip_ms": 0, "fetch_bytes": 1, "response_bytes": 1}, Change(THROTTLE, 400 * MB), 396),
    ({}, Change(LEADER_RATE, 14 * MB), 10),
    ({"follower_rate": 8 * MB}, Change(LEADER_RATE, 14 * MB), 6),
    ({"follower_rate": None}, Change(LEADER_RATE, 400 * MB), 396),
    ({"leader_rate": 8 * MB}, Change(FOLLOWER_RATE, 400 * MB), 4),
    ({"leader_rate": None}, Change(FOLLOWER_RATE, 14 * MB), 12),
]


@pytest.mark.parametrize(("differs", "change", "gain"), GAINS)
def test_a_copy_is_as_fast_as_the_least_that_bounds_it(differs: dict[str, Any], change: Change, gain: float) -> None:
    asked = rows_of("copy", list(etas([ROW._replace(**differs)], [change])))[1]
    assert (asked.eta_ms, asked.never) == (round(1000 * 100 / gain), 0)


#: what differs from `ROW`, MB/s asked for -> what makes the answer less certain
LIMITS: list[tuple[dict[str, Any], int, list[str]]] = [
    ({"capacity": 9.0}, 50 * MB, []),
    ({"capacity": 9.0}, 50 * MB - 1, ["overshoot"]),
    ({"capacity": 9.0, "response_bytes": None}, RESPONSE_BYTES, []),
    ({"capacity": 9.0, "response_bytes": None}, RESPONSE_BYTES - 1, ["overshoot"]),
    ({"backlog_bytes": None, "capacity": 9.0}, 50 * MB, ["bytes_unknown"]),
    ({"round_trip_ms": None}, 50 * MB, ["capacity_unknown", "round_trip_unknown"]),
]  # fmt: skip


@pytest.mark.parametrize(("differs", "rate", "limits"), LIMITS)
def test_what_makes_an_answer_less_certain(differs: dict[str, Any], rate: int, limits: list[str]) -> None:
    recorded, asked = rows_of("copy", list(etas([ROW._replace(**differs)], [Change(THROTTLE, rate)])))
    assert (recorded.limits, asked.limits) == ([], limits)


def test_the_whole_table_of_two_copies_of_a_partition() -> None:
    """Copy by copy, then all, then the brokers whose rate is asked about."""
    other = ROW._replace(follower=5, leader=2, start_ts=2000, recorded_ms=None, capacity=5.0 * MB)
    other = other._replace(ingress_bytes_per_second=None)
    one, two = (
        EtaRow(
            key=FOLLOWER_RATE, value=None, scope="copy", topic="orders", partition=3, replica=row.follower,
            broker=row.leader, start_ts=row.start_ts, eta_ms=row.recorded_ms, never=int(row is other),
            smallest_rate=rate, backlog_bytes=100 * MB, ingress_bytes_per_second=row.ingress_bytes_per_second,
            limits=[],
        )
        for row, rate in ((ROW, 2 * MB + 1), (other, 1))
    )  # fmt: skip
    every = EtaRow(
        key=FOLLOWER_RATE, value=None, scope="all", partitions=1, eta_ms=None, never=1, smallest_rate=2 * MB + 1,
        backlog_bytes=200 * MB, ingress_bytes_per_second=2.0 * MB, limits=[],
    )  # fmt: skip
    brokers = [
        EtaRow(key=FOLLOWER_RATE, value=None, scope="broker", broker=broker, smallest_rate=rate, limits=[])
        for broker, rate in ((4, 2 * MB + 1), (5, 1))
    ]
    asked = {"value": 12 * MB, "never": 0}
    assert list(etas([ROW, other], [Change(FOLLOWER_RATE, 12 * MB)])) == [
        one, two, every, *brokers,
        one._replace(**asked, eta_ms=10_000, limits=["capacity_unknown", "overshoot"]),
        two._replace(**asked, eta_ms=20_000, limits=["overshoot"]),
        every._replace(**asked, eta_ms=20_000, limits=["capacity_unknown", "overshoot"]),
    ]  # fmt: skip
