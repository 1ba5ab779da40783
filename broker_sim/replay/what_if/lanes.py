"""A lane under another setting: same rows, same rules, other ticks or another minimum. Pure. Source: §9.1, §9.3.

`SweptLane` is a `Lane` that takes `replica.lag.time.max.ms` or `min.insync.replicas` from a `Change` instead of the
trace, and sums up what happens. With another lag the ticks of the trace mean nothing: its own are computed, from the
start of the process on; where recorded ticks tell that the process was stopped, its own wait for the end of the stop.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np

from broker_sim.isr import IsrChange, IsrChangeKind, LedPartition
from broker_sim.isr_columns import Longs
from broker_sim.replay.history import FLAP_WINDOW_MS
from broker_sim.replay.rows import ALIVENESS_RUN, RULES_OFF, LaneRow, LeftBy, Measure, Outcome, OutcomeKind
from broker_sim.replay.rules.lane import Lane
from broker_sim.replay.rules.measures import Measures
from broker_sim.replay.rules.process import tick_phase
from broker_sim.replay.rules.settings import DEFAULT_LAG_MS, ForcedSetting
from broker_sim.replay.rules.stretch import BulkKind, BulkRows, Stretch
from broker_sim.replay.what_if.asked import LAG, MIN_ISR, Change
from broker_sim.replay.what_if.silences import Silences
from controller.wire.trace import TraceEvent

#: The high watermark stalls when it stands below the log's end for longer than this: one limit for all values of a
#: sweep, beyond what a healthy follower's long poll takes (`replica.fetch.wait.max.ms` is 500).
STALL_MS: Final = 1_000
#: A tick that comes so much later than its grid tells that the process was stopped (isr-replay.md §7).
LATE_TICK_MS: Final = 100

_NO_TICKS: Final = np.zeros(0, np.int64)


class Episode(NamedTuple):
    """A replica that its leader removed: from when to when it was out (`to_ts` None: still out at the end)."""

    replica: int
    from_ts: int
    to_ts: int | None


@dataclass(slots=True)
class Figures:
    """Sums over one lane under one change. Times in ms."""

    shrinks: int = 0
    expands: int = 0
    flaps: int = 0
    under_replicated: int = 0
    under_replicated_ms: int = 0
    under_min_isr: int = 0
    under_min_isr_ms: int = 0
    #: as `shrinks`; where the phase of the ticks is not known, what is to be expected of all phases alike (§9.1)
    expected_shrinks: float = 0.0
    #: removals whose replica had ever been caught up; from then until the removal, summed and at most
    detections: int = 0
    detection_ms: int = 0
    detection_max_ms: int = 0
    hw_stalls: int = 0
    hw_stalled_ms: int = 0
    hw_stall_max_ms: int = 0
    lag_headroom_min_ms: int | None = None
    #: rows of a sitting leader whose ISR is another than the one that the rules had come to
    leader_rows_differ: int = 0
    #: the start of a process is not known, so the phase of its ticks is not either
    phase_unknown: bool = False
    #: only log lines are known: no fetch, so the rules cannot be run
    rules_off: bool = False
    #: `fetch.rate` alone (`fetch_rate.py`): bytes/s; and whether no rate is enough, or nothing tells of bytes
    smallest_rate: int | None = None
    never: int = 0
    bytes_unknown: bool = False


@dataclass(slots=True)
class _Stop:
    """The process was stopped: the tick due at `due_ms` ran at `woke_ms`."""

    due_ms: int
    woke_ms: int
    entered: bool = False


@dataclass(slots=True)
class _State:
    """What is integrated over time."""

    under_replicated: bool = False
    under_min_isr: bool = False
    replication_factor: int = 0
    min_isr: int = 0


@dataclass(slots=True, kw_only=True)
class SweptLane(Lane):
    """Feed it every row, then `finish_at`; `figures` and `episodes` are what came of it. It gives no outcomes."""

    change: Change
    figures: Figures = field(default_factory=Figures)
    episodes: list[Episode] = field(default_factory=list)
    _state: _State | None = None
    _since: int = 0
    _phase: int | None = None
    _ahead: Longs = field(default_factory=lambda: _NO_TICKS)
    _last_tick: int | None = None
    _stop: _Stop | None = None
    _silences: Silences | None = None

    def __post_init__(self) -> None:
        Lane.__post_init__(self)
        if self.change.value is not None and self.change.key == LAG:
            self._settings.lag = ForcedSetting(self.change.value)
            self._silences = Silences(self.change.value)
        if self.change.value is not None and self.change.key == MIN_ISR:
            self._settings.min_isr = ForcedSetting(self.change.value)

    def _new_measures(self) -> Measures:
        return Measures(self.outcomes, stall_limit_ms=STALL_MS)

    # -- rows ------------------------------------------------------------------------------------------------------

    def feed(self, row: LaneRow) -> None:
        """Takes the next row, as `Lane.feed` does."""
        if row.run == ALIVENESS_RUN and row.ev == RULES_OFF:
            self.figures.rules_off = True
        led = self.led
        if row.ev == TraceEvent.LEADER.value and led is not None and (row.epoch or 0) > led.epoch:
            self.figures.leader_rows_differ += set(row.isr or ()) != set(led.isr)
        own_ticks = isinstance(self._settings.lag, ForcedSetting) and row.run != ALIVENESS_RUN
        Lane.feed(self, self._with_own_ticks(row) if own_ticks else row)
        if own_ticks and row.ev == TraceEvent.CONFIG.value:
            self._find_stop(row.ts)
        if own_ticks and row.ev == TraceEvent.TICK.value and self._next_tick_ms is not None:
            self._compute_ticks(row.ts + 1)
        self._observe(row.ts)
        if self._silences is not None and row.run != ALIVENESS_RUN:
            self._silences.note(self._of_unknown_phase, row.ts)

    @property
    def _of_unknown_phase(self) -> LedPartition | None:
        return self.led if self._phase is None and self._rules_on else None

    def skip(self, rows: BulkRows) -> int:
        """Takes rows that decide nothing, as `Lane.skip` does."""
        if isinstance(self._settings.lag, ForcedSetting):
            if self._stop is not None:
                beyond = np.flatnonzero(rows.ts > self._stop.due_ms)
                rows = rows.at(slice(0, int(beyond[0]) if len(beyond) else len(rows)))
            rows = replace(rows, kind=np.where(rows.kind == BulkKind.TICK, BulkKind.OTHER, rows.kind))
            if (led := self._of_unknown_phase) is not None and led.pending is None and len(rows):
                silence = Stretch(led, rows, ticks=_NO_TICKS, judges=False).first_silence(self._settings.lag.value)
                rows = rows.at(slice(0, silence))
        taken = Lane.skip(self, rows)
        self._observe(self._last_ts)
        return taken

    def _pass(self, led: LedPartition, stretch: Stretch, ticks: Longs) -> None:
        if self._silences is not None and self._of_unknown_phase is not None:
            self._silences.passed(led, stretch)
        Lane._pass(self, led, stretch, ticks)

    def finish_at(self, end_ts: int) -> None:
        """The lane is over. Where it still led, it leads until the trace, or its process, ends."""
        led_until = end_ts if self._run_end is None else min(end_ts, self._run_end)
        if self._silences is not None:
            self._silences.note(None, led_until)
            self.figures.expected_shrinks += self._silences.expected
        Lane.finish(self)
        for outcome in self.outcomes:
            self._take(outcome)
        self.outcomes.clear()
        self._roll(led_until)
        self._state = None

    # -- its own ticks ---------------------------------------------------------------------------------------------

    def look_ahead(self, ticks: Longs) -> None:
        """The times of the recorded ticks among the rows that come next."""
        self._last_tick = int(self._ahead[-1]) if len(self._ahead) else self._last_tick
        self._ahead = ticks
        self._find_stop(self._last_ts)

    def _with_own_ticks(self, row: LaneRow) -> LaneRow:
        if row.ev == TraceEvent.START.value:
            # So that ticks are computed; without a phase, from the first recorded tick on. None ran between the last
            # row of a process that was killed and this one.
            row = row._replace(run_ticks=0)
            self._next_tick_ms = None
            self._phase = tick_phase(row)
            self._last_tick = self._phase
            self._find_stop(row.ts)
        elif row.ev == TraceEvent.TICK.value:
            self._anchor(row.ts)
            row = row._replace(ev="")
        elif row.ev == TraceEvent.LEADER.value and not np.any(self._ahead >= row.ts):
            self._anchor(row.ts)
        return row

    def _anchor(self, ts: int) -> None:
        if self._next_tick_ms is None:
            self.figures.phase_unknown = True
            self._next_tick_ms = ts

    def _find_stop(self, after: int) -> None:
        """The next recorded tick that tells of a stop."""
        was, self._stop = self._stop, None
        if self._phase is None or not isinstance(self._settings.lag, ForcedSetting) or not len(self._ahead):
            return
        period = max(1, (self._settings.lag.written or DEFAULT_LAG_MS) // 2)
        ticks = self._ahead
        before = np.append(self._last_tick if self._last_tick is not None else ticks[0], ticks[:-1])
        # Some ticks are a ms or two before their time.
        due = before - (before - self._phase + LATE_TICK_MS) % period + LATE_TICK_MS + period
        off_grid = (ticks - self._phase + LATE_TICK_MS) % period > 2 * LATE_TICK_MS
        is_late = (ticks > after) & (ticks - due > LATE_TICK_MS) & off_grid
        late = np.flatnonzero(is_late)
        if len(late):
            woke = int(ticks[late[0]])
            self._stop = was if was is not None and was.woke_ms == woke else _Stop(int(due[late[0]]), woke)

    def _compute_ticks(self, until: int) -> None:
        while (stop := self._stop) is not None and until > stop.due_ms:
            if not stop.entered:
                Lane._compute_ticks(self, min(until, self._last_ts + 1))
                stop.entered = True
            if until <= stop.woke_ms:
                return
            self._wake(stop.woke_ms)
            self._find_stop(stop.woke_ms)
        Lane._compute_ticks(self, until)

    def _wake(self, ts: int) -> None:
        """All ticks that were missed run at once; then the grid holds again (§3.4)."""
        due, period = self._next_tick_ms, self._tick_period_ms
        if due is not None and due <= ts:
            self._tick(ts)
            self._next_tick_ms = due + ((ts - due) // period + 1) * period

    # -- what came of it ---------------------------------------------------------------------------------------------

    def _write(self, led: LedPartition, change: IsrChange, ts: int) -> None:
        figures = self.figures
        if change.kind is IsrChangeKind.SHRINK:
            figures.shrinks += len(change.replicas)
            if self._silences is None or self._of_unknown_phase is None:
                figures.expected_shrinks += len(change.replicas)
            for took in (ts - cu for cu in change.last_caught_up_time_ms if cu):
                figures.detections += 1
                figures.detection_ms += took
                figures.detection_max_ms = max(figures.detection_max_ms, took)
        else:
            figures.expands += len(change.replicas)
        Lane._write(self, led, change, ts)

    def _observe(self, ts: int) -> None:
        if self.outcomes:
            for outcome in self.outcomes:
                self._take(outcome)
            self.outcomes.clear()
        led = self.led
        if led is None:
            if self._state is not None:
                self._roll(ts)
                self._state = None
            return
        self._enter(ts, len(led.isr), led.replication_factor, led.effective_min_isr)

    def _enter(self, ts: int, members: int, replication_factor: int, min_isr: int) -> None:
        now = _State(members < replication_factor, members < min_isr, replication_factor, min_isr)
        was = self._state or _State()
        if self._state == now:
            return
        self._roll(ts)
        self.figures.under_replicated += now.under_replicated and not was.under_replicated
        self.figures.under_min_isr += now.under_min_isr and not was.under_min_isr
        self._state = now

    def _roll(self, ts: int) -> None:
        if self._state is not None:
            took = max(0, ts - self._since)
            self.figures.under_replicated_ms += took * self._state.under_replicated
            self.figures.under_min_isr_ms += took * self._state.under_min_isr
        self._since = max(self._since, ts)

    def _take(self, outcome: Outcome) -> None:
        figures, state = self.figures, self._state
        match outcome.kind:
            case OutcomeKind.SHRINK.value | OutcomeKind.EXPAND.value if state is not None:
                self._enter(outcome.ts, len(outcome.isr or ()), state.replication_factor, state.min_isr)
            case OutcomeKind.LEADER_DOWN.value:
                self._roll(outcome.ts)
                self._state = None
            case OutcomeKind.CATCH_UP.value if outcome.left_by == LeftBy.LEADER.value and outcome.left_ms is not None:
                joined = outcome.joined_ms
                self.episodes.append(Episode(outcome.replica or 0, outcome.left_ms, joined))
                figures.flaps += joined is not None and joined - outcome.left_ms <= FLAP_WINDOW_MS
            case OutcomeKind.HW_STALLED.value if outcome.left_ms is not None and outcome.joined_ms is not None:
                took = outcome.joined_ms - outcome.left_ms
                figures.hw_stalls += 1
                figures.hw_stalled_ms += took
                figures.hw_stall_max_ms = max(figures.hw_stall_max_ms, took)
            case OutcomeKind.MEASURE.value if outcome.change == Measure.LAG_HEADROOM.value:
                least = figures.lag_headroom_min_ms
                left = outcome.amount or 0
                figures.lag_headroom_min_ms = left if least is None else min(least, left)
