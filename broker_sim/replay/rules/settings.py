"""What a lane's broker is set to: a property on its three levels, from `config` rows. Pure.

Source: isr-replay.md §7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

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
    def told(self) -> int | None:
        """What rows say, the nearest level first; None while they say nothing."""
        return next((v for v in (self.topic, self.broker, self.static) if v is not None), None)

    @property
    def value(self) -> int:
        """What is in force."""
        told = self.told
        return self.default if told is None else told


@dataclass(slots=True)
class ForcedSetting(Setting):
    """A setting that keeps its value whatever rows say, and remembers what they say (`told`)."""

    @property
    def value(self) -> int:
        """What it was made with."""
        return self.default
