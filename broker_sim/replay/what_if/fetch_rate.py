"""The smallest constant rate at which a follower would have stayed in sync: the rule, with modelled fetches. Pure.

For every rate of a fine grid at once a follower is modelled that copies what was appended at that rate: it fetches; the
answer carries what is there, up to `replica.fetch.max.bytes`, and takes its bytes divided by the rate; then it
fetches again. At the log's end a fetch waits for the next append, at most `replica.fetch.wait.max.ms`. The ticks are
those of the trace. A rate at which a tick finds the follower out of sync is given up. Both settings are what the
leader's broker is set to, as far as rows tell: brokers of a cluster share them. Source: isr-replay.md §3, §9.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from broker_sim.isr import UNKNOWN_OFFSET, LedPartition
from broker_sim.isr_columns import Longs, caught_up_as_of, is_out_of_sync
from broker_sim.replay.rows import LaneRow
from broker_sim.replay.rules.lane import Lane
from broker_sim.replay.rules.stretch import ABSENT, BulkKind, BulkRows
from broker_sim.replay.what_if.asked import Change
from broker_sim.replay.what_if.lanes import Episode, Figures
from broker_sim.replay.what_if.throttle import FETCH_BYTES
from controller.wire.trace import TraceEvent

Floats = npt.NDArray[np.float64]

#: Each rate of the grid is this much greater than the one before, and a whole number: how exact the answer is.
STEP: Final = 1.02
HIGHEST_RATE: Final = 16 * 2**30
#: Read-only settings of a broker. `replica.fetch.wait.max.ms` with Kafka's default.
FETCH_BYTES_KEY: Final = "replica.fetch.max.bytes"
WAIT_KEY: Final = "replica.fetch.wait.max.ms"
WAIT_MS: Final = 500
#: No fetch follows another sooner.
ROUND_TRIP_MS: Final = 1.0


def grid() -> Floats:
    """Rates, whole bytes/s, from 1 to about `HIGHEST_RATE`."""
    steps = int(np.ceil(np.log(HIGHEST_RATE) / np.log(STEP))) + 1
    rates: Floats = np.unique(np.ceil(np.power(STEP, np.arange(steps))))
    return rates


_PER_RATE: Final = ("_copied", "_end", "_leader_end", "_fetched", "_caught_up")


@dataclass(slots=True)
class Model:
    """Followers of one leader, one for each rate that is left; bytes and ms."""

    rates: Floats = field(default_factory=grid)
    #: the greatest rate that was not enough
    too_small: float = 0.0
    end: float = 0.0
    #: what a fetch carries at most, and how long one waits at the log's end
    fetch_bytes: int = FETCH_BYTES
    wait_ms: int = WAIT_MS
    #: what each has copied; then its `isr.Follower` at the leader, in bytes
    _copied: Floats = field(init=False)
    _end: Floats = field(init=False)
    _leader_end: Floats = field(init=False)
    _fetched: Floats = field(init=False)
    _caught_up: Floats = field(init=False)
    #: when the next fetch arrives; infinite while one waits at the log's end
    _next: Floats = field(init=False)

    def __post_init__(self) -> None:
        for name in _PER_RATE:
            setattr(self, name, np.zeros(len(self.rates)))
        self._next = np.full(len(self.rates), np.inf)

    def lead(self, ts: int, *, took_over: bool) -> None:
        """A LeaderAndIsr was taken (§3.1); a leader that takes over has followers that have copied all there is."""
        self._fetch_until(ts)
        self._caught_up[:] = ts
        if took_over:
            self._copied[:] = self.end
            self._end[:] = self._leader_end[:] = UNKNOWN_OFFSET
            self._fetched[:], self._next[:] = 0, ts
        else:
            self._leader_end[:], self._fetched[:] = self.end, ts

    def append(self, ts: int, size: int) -> None:
        """The log grew by so many bytes."""
        self._fetch_until(ts)
        self.end += size
        waits = np.flatnonzero(np.isinf(self._next))
        # It has fetched again each time the wait was over; the last of these is answered now.
        last = self._fetched[waits] + np.floor((ts - self._fetched[waits]) / self.wait_ms) * self.wait_ms
        self._fetched[waits] = last
        self._caught_up[waits] = np.maximum(self._caught_up[waits], last)
        self._answer(waits, np.full(len(waits), float(ts)))

    def tick(self, ts: int, lag_ms: int) -> None:
        """The periodic check (§3.4): who is out of sync is given up."""
        self._fetch_until(ts)
        out = is_out_of_sync(
            end=self._end, leader_end=self.end, caught_up=self._caught_up, now_ms=ts, lag_time_max_ms=lag_ms
        )
        if not out.any():
            return
        self.too_small = max(self.too_small, float(self.rates[out].max()))
        for name in ("rates", *_PER_RATE, "_next"):
            setattr(self, name, getattr(self, name)[~out])

    @property
    def smallest(self) -> float | None:
        """The smallest rate that was enough, as all greater ones were; None: no rate of the grid is."""
        enough = self.rates[self.rates > self.too_small]
        return float(enough[0]) if len(enough) else None

    def _fetch_until(self, ts: float) -> None:
        while len(due := np.flatnonzero(self._next <= ts)):
            at, offset = self._next[due], self._copied[due]
            at_end = offset >= self.end
            reached = caught_up_as_of(
                at,
                offset,
                leader_end=self.end,
                leader_end_before=self._leader_end[due],
                fetched_before=self._fetched[due],
            )
            self._caught_up[due] = np.maximum(self._caught_up[due], reached)
            self._end[due], self._leader_end[due], self._fetched[due] = offset, self.end, at
            self._next[due[at_end]] = np.inf
            self._answer(due[~at_end], at[~at_end])

    def _answer(self, of: npt.NDArray[np.intp], at: Floats) -> None:
        size = np.minimum(self.end - self._copied[of], self.fetch_bytes)
        self._copied[of] += size
        self._next[of] = at + np.maximum(ROUND_TRIP_MS, size * 1000 / self.rates[of])


@dataclass(slots=True, kw_only=True)
class FetchRateLane(Lane):
    """A lane whose followers are modelled. Feed it every row, then `finish_at`; recorded fetches are not looked at."""

    change: Change
    figures: Figures = field(default_factory=Figures)
    episodes: list[Episode] = field(default_factory=list)
    _model: Model = field(default_factory=Model)
    _records: int = 0

    def feed(self, row: LaneRow) -> None:
        """Takes the next row, as `Lane.feed` does."""
        if row.ev == TraceEvent.FETCH.value:
            return
        if row.ev == TraceEvent.CONFIG.value:
            self._set_fetches(row)
        epoch = None if self.led is None else self.led.epoch
        Lane.feed(self, row)
        self.outcomes.clear()
        if row.ev == TraceEvent.LEADER.value and self.led is not None and self.led.epoch != epoch:
            self._model.lead(row.ts, took_over=epoch is None)

    def skip(self, rows: BulkRows) -> int:
        """Takes all rows."""
        for i in np.flatnonzero((rows.kind == BulkKind.APPEND) | (rows.kind == BulkKind.TICK)).tolist():
            ts = int(rows.ts[i])
            if self._next_tick_ms is not None:
                self._compute_ticks(ts)
            self._last_ts = max(self._last_ts, ts)
            if rows.kind[i] == BulkKind.TICK:
                self._tick(ts)
            elif self.led is not None and rows.leo[i] != ABSENT:
                self._append(self.led, int(rows.leo[i]), ts, None if rows.bytes[i] == ABSENT else int(rows.bytes[i]))
        return len(rows)

    def look_ahead(self, ticks: Longs) -> None:
        """Recorded ticks are taken as they come."""

    def finish_at(self, _: int) -> None:
        """The lane is over."""
        Lane.finish(self)
        self.outcomes.clear()
        figures, smallest = self.figures, self._model.smallest
        figures.bytes_unknown = self._records > 0 and not self._model.end
        if self._records and not figures.bytes_unknown:
            figures.never = int(smallest is None)
            figures.smallest_rate = None if smallest is None else int(smallest)

    def _set_fetches(self, row: LaneRow) -> None:
        """What the broker's file says of fetches; 0 would be a fetch that carries nothing, or never waits: as 1."""
        if row.of_topic or row.replica is not None or row.value is None or not row.value.isdecimal():
            return
        if row.key == FETCH_BYTES_KEY:
            self._model.fetch_bytes = max(1, int(row.value))
        elif row.key == WAIT_KEY:
            self._model.wait_ms = max(1, int(row.value))

    def _append(self, led: LedPartition, leo: int, ts: int, size: int | None) -> None:
        self._records += max(0, leo - led.log_end_offset)
        led.log_end_offset = leo
        if size:
            self._model.append(ts, size)

    def _tick(self, ts: int) -> None:
        if self.led is not None and self._rules_on:
            self._model.tick(ts, self._settings.lag.value)
