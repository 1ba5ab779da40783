"""How flows share what limits them: max-min fairness. Pure.

No flow can get more without one that has less (for its weight) getting less: all grow at the pace of their weights
until one reaches its demand, or until something that it passes is full. It is what TCP connections with equal
round-trip times come near to. A limit whose share is the smallest for all flows that pass it can be filled at once,
whatever happens elsewhere; so there are as many rounds as such limits wait for each other, not as there are limits.
Source: Bertsekas and Gallager, Data Networks, §6.5.2; the rounds: Ros-Giralt and others, "On the bottleneck structure
of congestion-controlled networks", 2019.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

#: In `paths`: no further limit.
NOTHING: Final = -1
#: Shares that differ by less than this part are equal: sums of floats.
_EQUAL: Final = 1e-12


def max_min(
    paths: NDArray[np.int64],
    capacity: NDArray[np.float64],
    demand: NDArray[np.float64],
    weight: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """The rate of each flow.

    `paths[f]` are the indices of the limits that flow f passes, filled up with `NOTHING`; `capacity` by limit;
    `demand` by flow, which may be infinite where at least one of its limits is finite; `weight` by flow, 1 by default.
    Raises ValueError for a flow that nothing limits.
    """
    count = len(paths)
    rates = np.zeros(count)
    weights = np.ones(count) if weight is None else weight
    flow_of, column = np.nonzero(paths != NOTHING)
    limit_of = paths[flow_of, column]
    growing = demand > 0
    counts = np.isfinite(capacity[limit_of]) & growing[flow_of]
    flow_of, limit_of = flow_of[counts], limit_of[counts]
    left = capacity.astype(float).copy()
    wish = demand / weights
    while growing.any():
        load = np.bincount(limit_of, weights=weights[flow_of], minlength=len(left))
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(load > 0, np.maximum(left, 0.0) / load, np.inf)
        of_flow = np.full(count, np.inf)
        np.minimum.at(of_flow, flow_of, share[limit_of])
        of_flow = np.minimum(of_flow, wish)
        of_limit = np.full(len(left), np.inf)
        np.minimum.at(of_limit, limit_of, of_flow[flow_of])
        fills = share * (1 - _EQUAL) <= of_limit
        ends = growing & (wish <= of_flow)
        ends[flow_of[fills[limit_of]]] = True
        if not np.isfinite(of_flow[ends]).all() or not ends.any():
            raise ValueError("a flow with an infinite demand passes nothing that limits it")
        rates[ends] = weights[ends] * of_flow[ends]
        gone = ends[flow_of]
        left -= np.bincount(limit_of[gone], weights=rates[flow_of[gone]], minlength=len(left))
        flow_of, limit_of = flow_of[~gone], limit_of[~gone]
        growing &= ~ends
    return rates
