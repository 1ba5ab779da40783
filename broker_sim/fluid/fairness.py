"""How flows share what limits them: max-min fairness by progressive filling. Pure.

All flows grow at the pace of their weights until one reaches its demand, or until something that it passes is full;
that one, and all that pass the full place, stay there and the rest grow on. So no flow can get more without one that
has less (for its weight) getting less. It is what TCP connections with equal round-trip times come near to.
Source: Bertsekas and Gallager, Data Networks, §6.5.2.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

#: In `paths`: no further limit.
NOTHING: Final = -1
#: A limit counts as full once this part of it, or less, is left: sums of floats do not end at zero.
_FULL: Final = 1e-9


def max_min(
    paths: NDArray[np.int64],
    capacity: NDArray[np.float64],
    demand: NDArray[np.float64],
    weight: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """The rate of each flow.

    `paths[f]` are the indices of the limits that flow f passes, filled up with `NOTHING`; `capacity` by limit;
    `demand` by flow, which may be infinite where at least one of its limits is finite; `weight` by flow, 1 by default.
    Each round fills at least one limit or ends at least one flow, so there are at most flows + limits of them.
    """
    count = len(paths)
    rates = np.zeros(count)
    if not count:
        return rates
    weights = np.ones(count) if weight is None else weight
    left = capacity.astype(float).copy()
    growing = demand > 0
    flow_of, limit_of = np.nonzero(paths != NOTHING)
    limit_of = paths[flow_of, limit_of]
    level = 0.0
    while growing.any():
        active = growing[flow_of]
        load = np.bincount(limit_of[active], weights=weights[flow_of[active]], minlength=len(left))
        with np.errstate(divide="ignore", invalid="ignore"):
            to_full = np.where(load > 0, left / load, np.inf)
        step_full = max(float(to_full.min(initial=np.inf)), 0.0)
        to_demand = demand[growing] / weights[growing] - level
        # All flows whose demand ends before anything is full are done with it, whatever the order among them.
        step = min(step_full, float(to_demand.max()))
        if not np.isfinite(step):
            raise ValueError("a flow with an infinite demand passes nothing that limits it")
        grown = np.where(growing, np.minimum(weights * (level + step), demand), rates)
        left -= np.bincount(limit_of, weights=(grown - rates)[flow_of], minlength=len(left))
        rates, level = grown, level + step
        full = left <= _FULL * np.maximum(capacity, 1.0)
        stopped = np.zeros(count, dtype=bool)
        stopped[flow_of[full[limit_of]]] = True
        growing &= ~stopped & (rates < demand * (1 - 1e-12))
    return rates
