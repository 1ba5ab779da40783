"""How long things took, for metrics: what costs nothing to keep and little to read. Pure."""

from __future__ import annotations

from array import array
from typing import Final

#: Times kept for quantiles, of each kind.
TIMES_KEPT: Final = 1_000
#: The quantiles that are shown, as jmx_exporter's rules write Kafka's percentiles.
QUANTILES: Final = {"0.50": 0.5, "0.75": 0.75, "0.95": 0.95, "0.98": 0.98, "0.99": 0.99, "0.999": 0.999}


class Times:
    """Durations in ms (or sizes in bytes): how many there were, their sum, and the last `kept` of them."""

    __slots__ = ("_kept", "_last", "_next", "count", "total")

    def __init__(self, kept: int = TIMES_KEPT) -> None:
        self.count = 0
        self.total = 0.0
        #: The last ones, without an order; once there are `kept`, the next takes the place of the oldest, at `_next`.
        self._last, self._kept, self._next = array("d"), kept, 0

    def add(self, value: float) -> None:
        """Notes one."""
        self.count += 1
        self.total += value
        if len(self._last) < self._kept:
            self._last.append(value)
        else:
            self._last[self._next] = value
            self._next = (self._next + 1) % self._kept

    def forget(self) -> None:
        """Drops what the quantiles are made of; how many there were, and their sum, stay."""
        self._last, self._next = array("d"), 0

    def quantiles(self) -> dict[str, float]:
        """Of the last ones, by label; 0 without any, as Kafka's."""
        last = sorted(self._last) or [0.0]
        return {name: last[min(len(last) - 1, int(q * len(last)))] for name, q in QUANTILES.items()}
