"""How long things took, for metrics: what costs nothing to keep and little to read. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from controller.core.events import ControllerState
from controller.wire.times import Times

#: Queue times are forgotten when no event came for so long (Kafka 3.9 `ControllerEventManager`).
QUEUE_TIMES_FORGOTTEN_S: Final = 300.0


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

    def queue_quantiles(self, now_s: float) -> dict[str, float]:
        """How long events waited, unless the last one is long ago."""
        if now_s - self.last_event_s > QUEUE_TIMES_FORGOTTEN_S:
            self.queue.forget()
        return self.queue.quantiles()
