"""Max-min fairness against a slow, obvious second version, and on cases that can be done by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_sim.fluid.fairness import NOTHING, max_min

CASES = [  # paths, capacity, demand -> rates
    ("equal flows share one limit evenly", [[0], [0]], [10], [99, 99], [5, 5]),
    ("what one does not want the others get", [[0], [0], [0]], [9], [1, 99, 99], [1, 4, 4]),
    ("the flow with two limits leaves room on the first", [[0, 1], [0], [1]], [10, 4], [99] * 3, [2, 8, 2]),
    ("without demand there is no flow", [[0], [0]], [10], [0, 99], [0, 10]),
    ("what limits nothing stops nobody", [[0, 2], [1, 2]], [10, 4, np.inf], [99, 99], [10, 4]),
    ("a full limit stops its flows and no others", [[0], [1]], [0, 7], [5, 5], [0, 5]),
]


def table(paths: list[list[int]]) -> np.ndarray:
    longest = max(map(len, paths))
    return np.array([path + [NOTHING] * (longest - len(path)) for path in paths], dtype=np.int64)


@pytest.mark.parametrize(("what", "paths", "capacity", "demand", "rates"), CASES, ids=[case[0] for case in CASES])
def test_cases(
    what: str, paths: list[list[int]], capacity: list[float], demand: list[float], rates: list[float]
) -> None:
    found = max_min(table(paths), np.array(capacity, float), np.array(demand, float))
    assert found == pytest.approx(rates)


def test_a_flow_that_nothing_limits_is_an_error() -> None:
    with pytest.raises(ValueError, match="limits it"):
        max_min(table([[0]]), np.array([np.inf]), np.array([np.inf]))


def oracle(
    paths: list[list[int]], capacity: list[float], demand: list[float], weight: list[int], step: float
) -> list[float]:
    """All flows grow by a little for their weight, again and again, until something that they pass would overflow."""
    rates, growing = [0.0] * len(paths), set(range(len(paths)))
    while growing:
        for flow in sorted(growing):
            load = [sum(r for r, p in zip(rates, paths, strict=True) if n in p) for n in range(len(capacity))]
            more = step * weight[flow]
            if rates[flow] + more > demand[flow] or any(load[n] + more > capacity[n] for n in paths[flow]):
                growing.discard(flow)
            else:
                rates[flow] += more
    return rates


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_it_agrees_with_growing_little_by_little(data: st.DataObject) -> None:
    limits = data.draw(st.integers(1, 4))
    paths = data.draw(
        st.lists(st.lists(st.integers(0, limits - 1), min_size=1, max_size=3, unique=True), min_size=1, max_size=6)
    )
    capacity = data.draw(st.lists(st.integers(0, 30) | st.just(np.inf), min_size=limits, max_size=limits))
    demand = data.draw(st.lists(st.integers(0, 30), min_size=len(paths), max_size=len(paths)))
    weight = data.draw(st.lists(st.integers(1, 3), min_size=len(paths), max_size=len(paths)))
    found = max_min(table(paths), np.array(capacity, float), np.array(demand, float), np.array(weight, float))
    step = 0.02
    expected = oracle(paths, [float(c) for c in capacity], [float(d) for d in demand], weight, step)
    assert found == pytest.approx(expected, abs=step * sum(weight) * 4)
