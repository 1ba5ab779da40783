"""What a lane's broker is set to, from `config` rows, and whom it takes for alive. Pure.

Source: isr-replay.md §7.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from broker_sim.replay.rows import LaneRow
from controller.wire.trace import TraceEvent
from controller.wire.types import BrokerId
from controller.wire.whole import whole

LAG_KEY: Final = "replica.lag.time.max.ms"
MIN_ISR_KEY: Final = "min.insync.replicas"
#: A config row with this key: no override is left.
NO_OVERRIDES: Final = "*"
DEFAULT_LAG_MS: Final = 30_000
DEFAULT_MIN_ISR: Final = 1


@dataclass(slots=True)
class Setting:
    """One property on its three levels: a topic's override, a dynamic one of the broker, the broker's file."""

    default: int
    topic: int | None = None
    broker: int | None = None
    static: int | None = None

    @property
    def written(self) -> int | None:
        """What rows say, the nearest level first; None while they say nothing."""
        return next((v for v in (self.topic, self.broker, self.static) if v is not None), None)

    @property
    def value(self) -> int:
        """What is in force."""
        return self.default if self.written is None else self.written


@dataclass(slots=True)
class ForcedSetting(Setting):
    """A setting that keeps its value whatever rows say, and remembers what they say (`written`)."""

    @property
    def value(self) -> int:
        """What it was made with."""
        return self.default


@dataclass(slots=True)
class Settings:
    """The properties that the rules need."""

    lag: Setting = field(default_factory=lambda: Setting(DEFAULT_LAG_MS))
    min_isr: Setting = field(default_factory=lambda: Setting(DEFAULT_MIN_ISR))

    def take(self, row: LaneRow, broker: BrokerId) -> None:
        """A `config` row. A value that is no number is ignored: the broker would not have started."""
        if row.key == NO_OVERRIDES:
            for setting in (self.lag, self.min_isr):
                _set(setting, row, None, broker)
        elif row.key in (LAG_KEY, MIN_ISR_KEY) and ((value := whole(row.value)) is not None or row.value is None):
            _set(self.lag if row.key == LAG_KEY else self.min_isr, row, value, broker)


def _set(setting: Setting, row: LaneRow, value: int | None, broker: BrokerId) -> None:
    if row.of_topic:
        setting.topic = value
    elif row.replica is None:
        setting.static = value
    elif row.replica == broker:
        setting.broker = value


@dataclass(slots=True)
class Aliveness:
    """Which brokers are dead, as the lane's broker sees it. What controllers saw waits here until its time."""

    dead: set[BrokerId] = field(default_factory=set)
    _announced: deque[tuple[int, BrokerId, bool, int | None]] = field(default_factory=deque)

    def announce(self, row: LaneRow) -> None:
        """A row of a controller, which stands before all others of the lane."""
        if row.replica is not None:
            self._announced.append((row.ts, BrokerId(row.replica), row.ev == TraceEvent.BROKER_UP.value, row.done))

    @property
    def next_ms(self) -> int | None:
        """When the next announcement takes effect."""
        return self._announced[0][0] if self._announced else None

    def due(self, until: int | None, take: Callable[[int, BrokerId, bool, int | None], None]) -> None:
        """Gives what takes effect until then (None: all) to `take`: time, broker, whether it is up, when it died."""
        while self._announced and (until is None or self._announced[0][0] <= until):
            take(*self._announced.popleft())

    def set(self, replica: BrokerId, *, up: bool) -> None:
        """From now on."""
        (self.dead.discard if up else self.dead.add)(replica)
