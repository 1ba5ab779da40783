"""How long things took, for metrics: what costs nothing to keep and little to read. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from controller.core.events import ControllerState

#: Times kept for quantiles, of each kind.
TIMES_KEPT: Final = 1_000
#: The quantiles that are shown: Kafka's percentiles.
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
#: Queue times are forgotten when no event came for so long (Kafka 3.9 `ControllerEventManager`).
QUEUE_TIMES_FORGOTTEN_S: Final = 300.0


class Times:
    """Durations in ms: how many there were, their sum, and the last `kept` of them."""

    __slots__ = ("_last", "count", "total_ms")

    def __init__(self, kept: int = TIMES_KEPT) -> None:
        self.count = 0
        self.total_ms = 0.0
        self._last: deque[float] = deque(maxlen=kept)

    def add(self, ms: float) -> None:
        """Notes one."""
        self.count += 1
        self.total_ms += ms
        self._last.append(ms)

    def forget(self) -> None:
        """Drops what the quantiles are made of; how many there were, and their sum, stay."""
        self._last.clear()

    def quantiles(self) -> dict[float, float]:
        """Of the last ones; empty without any."""
        last = sorted(self._last)
        return {q: last[min(len(last) - 1, int(q * len(last)))] for q in QUANTILES} if last else {}


@dataclass(slots=True)
class Work:
    """What one event did: the numbers of its log line."""

    reads: int = 0
    writes: int = 0
    requests: int = 0


@dataclass(slots=True)
class LoopGauges:
    """`ControllerEventManager` and `ControllerStats`: of events, by the state that the controller was in meanwhile."""

    state: ControllerState = ControllerState.IDLE
    queue: Times = field(default_factory=Times)
    events: dict[ControllerState, Times] = field(default_factory=dict)
    faults: int = 0
    #: When the last event was taken, on the loop's clock.
    last_event_s: float = 0.0

    def took(self, queue_ms: float, process_ms: float, now_s: float) -> None:
        """An event is done, whether it failed or not."""
        self.last_event_s = now_s
        self.queue.add(queue_ms)
        if (times := self.events.get(self.state)) is None:
            times = self.events[self.state] = Times()
        times.add(process_ms)

    def queue_quantiles(self, now_s: float) -> dict[float, float]:
        """How long events waited, unless the last one is long ago."""
        if now_s - self.last_event_s > QUEUE_TIMES_FORGOTTEN_S:
            self.queue.forget()
        return self.queue.quantiles()
