"""The process whose rows a lane holds: its runs, its ticks, its settings, and whom it takes for alive. Pure.

What one of its ticks finds, and what its end means to a partition, is the lane's (`lane.py`). Source: isr-replay.md §7.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from broker_sim.isr_columns import Longs
from broker_sim.replay.rows import ALIVENESS_RUN, RULES_OFF, LaneRow
from broker_sim.replay.rules.settings import Aliveness, Settings
from broker_sim.replay.rules.stretch import TICKS_MAX
from controller.wire.trace import TraceEvent
from controller.wire.types import BrokerId
from controller.wire.whole import whole

VERSION_KEY: Final = "trace.version"
_START: Final = TraceEvent.START.value
#: Ticks that are computed, not written: at most so many in one gap between two rows.
COMPUTED_TICKS_MAX: Final = 1_000_000


@dataclass(slots=True, kw_only=True)
class Process(ABC):
    """One broker's processes, one after the other, as far as one lane has rows of them."""

    broker: BrokerId
    _settings: Settings = field(default_factory=Settings)
    _aliveness: Aliveness = field(default_factory=Aliveness)
    _rules_on: bool = True
    _run: int | None = None
    _run_end: int | None = None
    _last_ts: int = 0
    _next_tick_ms: int | None = None

    @property
    @abstractmethod
    def _leads(self) -> bool:
        """Whether the broker leads the partition: else its ticks find nothing."""

    @abstractmethod
    def _tick(self, ts: int) -> None:
        """The periodic check (§3.4)."""

    @abstractmethod
    def _shrink_due_ms(self) -> int | None:
        """From when on a tick finds somebody to remove, if nothing else happens; None: never."""

    @abstractmethod
    def _process_ended(self, ts: int) -> None:
        """The process is no more since then."""

    @abstractmethod
    def _forgive_unfinished(self) -> None:
        """What the process decided just before its end may be written, though no row says so."""

    @abstractmethod
    def _set_alive(self, ts: int, replica: BrokerId, up: bool, died_ms: int | None = None) -> None:
        """A broker came or went, as this one sees it; `died_ms`: when others lost their connections to it."""

    def _arrive(self, row: LaneRow) -> bool:
        """What the process does until `row` was written. False: it is no row of the process, and is done with."""
        if row.run == ALIVENESS_RUN:
            if row.ev == RULES_OFF:
                self._rules_on = False
            else:
                self._aliveness.announce(row)
            return False
        self._aliveness.due(row.ts, self._set_alive)
        if self._run is not None and (row.run != self._run or row.ev == _START):
            self._process_gone(row)
        self._run = row.run
        if self._next_tick_ms is not None:
            self._compute_ticks(row.ts)
        self._last_ts = max(self._last_ts, row.ts)
        return True

    def start(self, row: LaneRow) -> None:
        """The process starts: the one before is gone. Its ticks are computed when it wrote none."""
        self._run_end = row.run_end
        if row.run > 0:
            self._aliveness.dead.clear()  # its own view, which it begins without
        if row.run_ticks == 0:
            self._next_tick_ms = tick_phase(row)

    def _process_gone(self, row: LaneRow) -> None:
        """The process that wrote the rows so far is no more, though it may not have said so.

        Its ticks ran until the last that is heard of it, and none between then and `row`, the first of the next one.
        The end of a run is known where each process has a file of its own; in one trace of several it is not.
        """
        if row.run != self._run and self._run_end is not None:
            self._compute_ticks(self._run_end)
            self._last_ts = max(self._last_ts, self._run_end)
            self._forgive_unfinished()
        self._process_ended(self._last_ts)

    # -- ticks -------------------------------------------------------------------------------------------------

    def _computed_ticks(self, until: int) -> Longs | None:
        """Ticks due before `until` where the broker wrote none; None for more than make sense."""
        if self._next_tick_ms is None or not self._rules_on:
            return np.zeros(0, np.int64)
        if (until - self._next_tick_ms) // self._tick_period_ms > TICKS_MAX:
            return None
        return np.arange(self._next_tick_ms, until, self._tick_period_ms, dtype=np.int64)

    @property
    def run(self) -> int | None:
        """Whose rows come: another process has begun with the first row of another run."""
        return self._run

    @property
    def _tick_period_ms(self) -> int:
        return max(1, self._settings.lag.value // 2)

    def _compute_ticks(self, until: int) -> None:
        """The ticks that were due before `until`, where the broker wrote none (§7)."""
        due = self._next_tick_ms
        if due is None or due >= until or not self._rules_on:
            return
        period = self._tick_period_ms
        if not self._leads or (until - due) // period > COMPUTED_TICKS_MAX:
            due += max(0, -(-(until - due) // period)) * period
        while due < until:
            due = self._tick_that_counts(due, until, period)
        self._next_tick_ms = due

    def _tick_that_counts(self, due: int, until: int, period: int) -> int:
        """The next of the ticks `due`, `due` + `period`, ... before `until` that find something; returns what follows.

        Between two rows nothing but a tick changes the partition, so of those that find nobody to remove the last
        says all: the others saw members with more time left.
        """
        last = due + (until - 1 - due) // period * period
        shrink = self._shrink_due_ms()
        if shrink is None or shrink > last:
            self._tick(last)
            return last + period
        found = max(due, due + -(-(shrink - due) // period) * period)
        if found > due:
            self._tick(found - period)
        self._tick(found)
        return found + period


def tick_phase(start: LaneRow) -> int | None:
    """t0 of a `start` row: its `value`; where that is the version of the trace, `done`."""
    if start.key == VERSION_KEY:
        return start.done
    return whole(start.value)
