"""Expected removals where the phase of the ticks is not known, against lanes that are run once with every phase."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_sim.replay.what_if.asked import LAG, Change
from tests.unit.replay.what_if.test_lanes import T0, Writer, swept

#: ms from one catching up to the next, when in it the first append comes (of 1000), how many more follow it
silences = st.lists(st.tuples(st.integers(1, 130), st.integers(0, 999), st.integers(0, 4)), min_size=1, max_size=40)


def written(gaps: list[tuple[int, int, int]], *, phase: int | None) -> tuple[Writer, int]:
    trace = Writer(phase=T0 - (phase or 0))
    if phase is None:
        trace.rows[0] = trace.rows[0]._replace(value=None)
    now = T0 + 1
    trace.fetch(now)
    for length, share, more in gaps:
        first, end = now + length * share // 1000, now + length
        for k in range(1 + more):
            trace.append(first + k * (end - first) // (1 + more))
        trace.fetch(end)
        now = end
    trace.rows[0] = trace.rows[0]._replace(run_end=now)
    return trace, now


@settings(max_examples=15, deadline=None)
@given(silences, st.integers(4, 30), st.sampled_from((0, 7, 1000)))
def test_the_expectation_is_the_mean_over_all_phases(
    gaps: list[tuple[int, int, int]], lag: int, in_batches: int
) -> None:
    trace, end = written(gaps, phase=None)
    found = swept(trace.rows, Change(LAG, lag), end=end, in_batches=in_batches)
    assert found["phase_unknown"]
    period = lag // 2
    by_phase = []
    for phase in range(period):
        known = swept(written(gaps, phase=phase)[0].rows, Change(LAG, lag), end=end)
        assert known["expected_shrinks"] == known["shrinks"] and not known["phase_unknown"]
        by_phase.append(known["shrinks"])
    # Ticks fall on whole ms, the formula is of any time: it may be one ms of the period more for each silence.
    assert -1e-9 <= found["expected_shrinks"] - np.mean(by_phase) <= len(gaps) / period + 1e-9


CASES = [  # silent ms, share of it after which the append comes -> probability, with a lag of 10 s and ticks every 5 s
    ("shorter than the lag: never", 10_000, 0, 0.0),
    ("half a period longer: even chances", 12_500, 0, 0.5),
    ("a period longer: certain", 15_000, 0, 1.0),
    ("much longer: certain, and once", 90_000, 0, 1.0),
    ("at the end until 1 s before it is back: the last second", 50_000, 980, 0.2),
]


@pytest.mark.parametrize(("silent", "share", "probability"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
@pytest.mark.parametrize("in_batches", [0, 1000])
def test_known_answers(silent: int, share: int, probability: float, in_batches: int) -> None:
    """Among sixty quick fetches, so that there are stretches of columns."""
    quick = [(20, 0, 1)] * 60
    trace, end = written([*quick, (silent, share, 0), *quick], phase=None)
    found = swept(trace.rows, Change(LAG, 10_000), end=end, in_batches=in_batches)
    assert found["expected_shrinks"] == pytest.approx(probability)


def test_what_is_still_silent_at_the_end_counts_until_then() -> None:
    trace, end = written([(20, 0, 1)], phase=None)
    trace.append(end + 1)
    trace.rows[0] = trace.rows[0]._replace(run_end=end + 11_000)
    found = swept(trace.rows, Change(LAG, 10_000), end=end + 11_000)
    assert found["expected_shrinks"] == pytest.approx(0.2)
