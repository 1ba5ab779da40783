"""The seeds that rows name, asked again: what worlds draw grows, so a seed that noticed a defect may do so no more."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.defects.catalogue import SIMULATION
from tests.defects.table import Noticed

_SEED: Final = re.compile(r"seed (\d+)")
#: Who notices a defect in the worlds of these seeds; see `Copy.noticed`.
Ask = Callable[[range], Noticed]


def named_seed(row: Mapping[str, Any]) -> int | None:
    """The seed that a row names; None where no world noticed, or nothing but its time."""
    found = _SEED.fullmatch(row.get(SIMULATION, ""))
    return int(found[1]) if found else None


def asked_again(row: Mapping[str, Any], seeds: range, ask: Ask) -> Noticed:
    """Nothing where the seed that the row names still notices; else who does among `seeds`, which may be nobody."""
    seed = named_seed(row)
    if seed is not None and ask(range(seed, seed + 1)).get(SIMULATION):
        return {}
    return ask(seeds)
