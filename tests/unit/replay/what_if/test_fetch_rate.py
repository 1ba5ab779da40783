"""The smallest constant rate at which a follower stays in sync: known answers, and the rule itself, rate by rate."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_sim.isr import PROFILES, LedPartition
from broker_sim.replay.what_if.asked import FETCH_RATE, Change
from broker_sim.replay.what_if.fetch_rate import ROUND_TRIP_MS, WAIT_MS, grid
from broker_sim.replay.what_if.throttle import FETCH_BYTES
from controller.wire.types import BrokerId
from tests.unit.replay.what_if.test_lanes import T0, Writer, swept

MB = 1_000_000
LAG_MS = 10_000
Appends = Sequence[tuple[int, int]]


def asked(
    appends: Appends, *, end: int, in_batches: int = 7, whose: int | None = None, **settings: str
) -> dict[str, object]:
    """`whose`: the broker that the settings were given while it ran; None: they stand in the file."""
    trace = Writer(recorded_lag=LAG_MS)
    for name, value in settings.items():
        trace.add(
            "config", T0, key=name.replace("_", "."), value=value, **({} if whose is None else {"replica": whose})
        )
    rows = [(ts, size) for ts, size in appends]
    for tick in range(LAG_MS // 2, end, LAG_MS // 2):
        rows.append((tick, -1))
    for ts, size in sorted(rows, key=lambda row: row[0]):
        if size < 0:
            trace.add("tick", T0 + ts)
        else:
            trace.leo += 1
            trace.add("append", T0 + ts, leo=trace.leo, bytes=size)
    return swept(trace.rows, Change(FETCH_RATE), end=T0 + end, in_batches=in_batches)


def test_a_steady_stream_needs_what_comes_in() -> None:
    """A second's 2 MB in two fetches of at most 1 MiB: at less, the backlog grows until it is never worked off."""
    appends = [(1_000 * k, 2 * MB) for k in range(1, 300)]
    for in_batches in (7, 1000):
        found = asked(appends, end=300_000, in_batches=in_batches)
        assert found["smallest_rate"] == pytest.approx(2 * MB, rel=0.1)
        assert (found["never"], found["shrinks"]) == (0, 0)


def test_one_burst_may_take_until_the_tick_that_finds_it_late() -> None:
    """20 MB at 1 s; caught up again only by a fetch that reaches what there was at the one before (rule 1b).

    Last caught up at 0.9 s at the least, so the tick of 15 s is the first that removes: the last fetch but one, which
    knows of the whole burst, must have been answered by then.
    """
    found = asked([(1_000, 20 * MB)], end=60_000)
    rate = found["smallest_rate"]
    assert isinstance(rate, int)
    assert 20 * MB / 14 * 0.9 < rate < 20 * MB / 14 * 1.15


def test_fetches_are_those_of_the_recorded_settings() -> None:
    """A fetch takes at least its round trip of 1 ms: with 20 kB in each, no rate carries the 30 MB of every second."""
    appends = [(1_000 * k, 30 * MB) for k in range(1, 60)]
    assert asked(appends, end=60_000)["never"] == 0
    assert asked(appends, end=60_000, replica_fetch_max_bytes="20000")["never"] == 1
    assert asked(appends, end=60_000, replica_fetch_max_bytes="large")["never"] == 0
    while_it_runs = asked(appends, end=60_000, whose=1, replica_fetch_max_bytes="20000")
    assert while_it_runs["never"] == 0, "they cannot be changed then"


def test_fetches_that_carry_nothing_or_never_wait_are_as_with_one() -> None:
    """No broker would start so; a row may say it all the same."""
    appends = [(700 * k, 20) for k in range(1, 4)]
    for name in ("replica_fetch_wait_max_ms", "replica_fetch_max_bytes"):
        of_none, of_one = (asked(appends, end=6_000, **{name: value}) for value in ("0", "1"))
        assert of_none == of_one


def test_nothing_appended_needs_nothing() -> None:
    found = asked([], end=60_000)
    assert (found["smallest_rate"], found["never"], found["bytes_unknown"]) == (None, 0, False)


def test_appends_of_unknown_size_give_no_answer() -> None:
    found = asked([(1_000, 0), (2_000, 0)], end=60_000)
    assert found["bytes_unknown"] and found["smallest_rate"] is None


def removed(appends: Appends, *, end: int, rate: float) -> bool:
    """The same follower at one rate, fetch by fetch through `broker_sim.isr`; offsets are bytes."""
    led = LedPartition(leader=BrokerId(1), profile=PROFILES["P37"], lag_time_max_ms=LAG_MS)
    three = BrokerId(3)
    members = (BrokerId(1), three)
    led.lead(now_ms=0, epoch=0, log_end_offset=0, isr=members, replicas=members, partition_epoch=0, high_watermark=0)
    events = sorted([*((ts, 0, size) for ts, size in appends), *((t, 1, 0) for t in range(5_000, end, 5_000))])
    copied, next_fetch, waits = 0.0, 0.0, False

    def fetch_until(until: float) -> None:
        nonlocal copied, next_fetch, waits
        while next_fetch <= until:
            led.fetch(three, copied, next_fetch)
            if copied >= led.log_end_offset:
                waits = True
                next_fetch += WAIT_MS
            else:
                waits = False
                answer(next_fetch)

    def answer(at: float) -> None:
        nonlocal copied, next_fetch
        size = min(led.log_end_offset - copied, FETCH_BYTES)
        copied, next_fetch = copied + size, at + max(ROUND_TRIP_MS, size * 1000 / rate)

    for ts, kind, size in events:
        fetch_until(ts)
        if kind == 1 and led.tick(ts) is not None:
            return True
        if kind == 0:
            led.append(led.log_end_offset + size, ts)
            if waits:
                waits = False
                answer(ts)
    return False


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 59_999), st.integers(1, 30 * MB)), min_size=1, max_size=30),
    st.sampled_from((7, 1000)),
)
def test_the_rule_removes_just_below_it_and_not_at_it(appends: list[tuple[int, int]], in_batches: int) -> None:
    appends = sorted(dict(appends).items())
    found = asked(appends, end=60_000, in_batches=in_batches)
    rates = grid()
    smallest = found["smallest_rate"]
    assert isinstance(smallest, int)
    assert not removed(appends, end=60_000, rate=smallest)
    if len(below := rates[rates < smallest]):
        assert removed(appends, end=60_000, rate=float(below[-1]))
