"""The row machine: one lane of a trace (what one broker wrote about one partition) through the ISR rules. Pure.

Rows go in one by one, in the broker's order; outcomes come out. Memory is bounded by the state of one partition, never
by its history. The rules look at no `isr_*` and no `hw` row, and take every ISR write for done at once; those rows go
to the comparison alone. Source: isr-replay.md §3, §7.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from broker_sim.isr import PROFILES, IsrChange, IsrChangeKind, LedPartition, Profile
from broker_sim.replay.compare import PATIENCE_MS, TOLERANCE_MS, Comparison
from broker_sim.replay.rows import ALIVENESS_RUN, RULES_OFF, LaneRow, LeftBy, Measure, Outcome, OutcomeKind
from broker_sim.replay.rules.measures import Measures
from broker_sim.replay.rules.outsiders import Outsiders
from broker_sim.replay.rules.settings import (
    DEFAULT_LAG_MS,
    DEFAULT_MIN_ISR,
    LAG_KEY,
    MIN_ISR_KEY,
    NO_OVERRIDES,
    Setting,
)
from broker_sim.replay.rules.stretch import TICKS_MAX, BulkRows, Longs, Stretch
from controller.wire.trace import TraceEvent
from controller.wire.types import BrokerId

VERSION_KEY: Final = "trace.version"
#: Ticks that are computed, not written: at most so many in one gap between two rows.
COMPUTED_TICKS_MAX: Final = 1_000_000


@dataclass(slots=True, kw_only=True)
class Lane:
    """One broker and one partition. Feed it every row, then `finish`; take `said` whenever you like."""

    broker: BrokerId
    profile: Profile = PROFILES["P37"]
    said: list[Outcome] = field(default_factory=list)
    led: LedPartition | None = None
    _comparison: Comparison = field(default_factory=Comparison)
    _measures: Measures = field(default_factory=Measures)
    _rules_on: bool = True
    _ever_led: bool = False
    _unled_rows: int = 0
    _unled_ms: int = 0
    _lag: Setting = field(default_factory=lambda: Setting(DEFAULT_LAG_MS))
    _min_isr: Setting = field(default_factory=lambda: Setting(DEFAULT_MIN_ISR))
    _aliveness: deque[tuple[int, BrokerId, bool]] = field(default_factory=deque)
    _dead: set[BrokerId] = field(default_factory=set)
    _outside: Outsiders = field(default_factory=Outsiders)
    _min_isr_said: int | None = None
    _copied: int = 0
    _run: int | None = None
    _last_ts: int = 0
    _last_epoch: int = -1
    _next_tick_ms: int | None = None
    _run_end: int | None = None

    # -- what the caller does --------------------------------------------------------------------------------

    def feed(self, row: LaneRow) -> None:
        """Takes the next row. A row that makes no sense here (a fetch while not leading, say) changes nothing."""
        if row.run == ALIVENESS_RUN:
            if row.ev == RULES_OFF:
                self._rules_on = False
            elif row.replica is not None:
                self._aliveness.append((row.ts, BrokerId(row.replica), row.ev == TraceEvent.BROKER_UP.value))
            return
        if self._aliveness and self._aliveness[0][0] <= row.ts:
            self._apply_aliveness(row.ts)
        if self._run is not None and (row.run != self._run or row.ev == TraceEvent.START.value):
            self._process_gone(row)
        self._run = row.run
        if self._next_tick_ms is not None:
            self._compute_ticks(row.ts)
        self._last_ts = max(self._last_ts, row.ts)
        if (handle := _HANDLERS.get(row.ev)) is not None:
            handle(self, row)
        if self._comparison.waiting:
            self._comparison.give_up_before(row.ts - PATIENCE_MS)
        if self._comparison.said:
            self._drain_comparison()

    def skip(self, rows: BulkRows) -> int:
        """Takes rows of the many kinds, all of the process that wrote the last row, as far as they decide nothing.

        Returns how many it took, from the first on. The rest may be tried again after the next row was fed.
        """
        led = self.led
        if led is None or led.pending is not None or self._run is None:
            return 0
        if led.leo > led.hw and not self._measures.waits:
            return 0  # it took over a log of which not all is known to be replicated
        if self._aliveness:
            rows = rows.at(slice(0, _first_from(rows.ts, self._aliveness[0][0])))
        ticks = self._computed_ticks(int(rows.ts.max(initial=0)))
        if not len(rows) or ticks is None:
            return 0
        stretch = Stretch(led, rows, ticks=ticks, judges=self._rules_on)
        if stretch.quiet:
            self._pass(led, stretch, ticks)
        return stretch.quiet

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

    def _computed_ticks(self, until: int) -> Longs | None:
        """Ticks due before `until` where the broker wrote none; None for more than make sense."""
        if self._next_tick_ms is None or not self._rules_on:
            return np.zeros(0, np.int64)
        period = max(1, self._lag.value // 2)
        if (until - self._next_tick_ms) // period > TICKS_MAX:
            return None
        return np.arange(self._next_tick_ms, until, period, dtype=np.int64)

    def _pass(self, led: LedPartition, stretch: Stretch, ticks: Longs) -> None:
        """What quiet rows change."""
        self._measures.passed(led, stretch, any_outside=bool(self._outside))
        if self._measures.said:
            self._drain_measures()
        self._copied += sum(stretch.bytes_fetched(r) for r in led.adding)
        self._comparison.hw_stretch(derived=stretch.high_watermarks, emitted=stretch.told_high_watermarks)
        self._last_ts = max(self._last_ts, stretch.last_ts)
        if len(ticks):
            later = stretch.next_tick_ms
            self._next_tick_ms = int(ticks[-1]) + max(1, self._lag.value // 2) if later is None else later
        stretch.apply()
        if self._comparison.waiting:
            self._comparison.give_up_before(self._last_ts - PATIENCE_MS)
            self._drain_comparison()

    def finish(self) -> None:
        """The lane is over: what is left waiting is given up, who is still outside is named."""
        if self._run_end is not None:
            self._compute_ticks(self._run_end)
        if self.led is not None:
            self.said.extend(
                self._outside.still_outside(self._last_ts, epoch=self._last_epoch, measures=self._measures)
            )
        if self._aliveness:
            self._apply_aliveness(self._aliveness[-1][0])
        self._forgive_unfinished()
        self._stop_leading(self._last_ts)
        self._comparison.finish(ts=self._last_ts, epoch=self._last_epoch)
        self._drain_comparison()
        if self._unled_rows:
            self.said.append(
                Outcome(
                    kind=OutcomeKind.MEASURE.value,
                    ts=self._unled_ms,
                    epoch=-1,
                    change=Measure.ROWS_WITHOUT_LEADER.value,
                    amount=self._unled_rows,
                )
            )

    def _forgive_unfinished(self) -> None:
        if self._run_end is not None:
            self._comparison.process_ended(self._run_end)

    def _drain_comparison(self) -> None:
        self.said.extend(self._comparison.said)
        self._comparison.said.clear()

    def _say(self, kind: OutcomeKind, ts: int, amount: int | None = None) -> None:
        self.said.append(Outcome(kind=kind.value, ts=ts, epoch=self._last_epoch, amount=amount))

    # -- the broker itself ------------------------------------------------------------------------------------

    def start(self, row: LaneRow) -> None:
        """The process starts: it leads nothing; its ticks are computed when it wrote none."""
        self._process_ended(row.ts)
        self._run_end = row.run_end
        if row.run > 0:
            self._dead.clear()  # its own view, which it begins without
        if row.run_ticks == 0:
            self._next_tick_ms = tick_phase(row)

    def down(self, row: LaneRow) -> None:
        """The process ends."""
        self._process_ended(row.ts)

    def _process_ended(self, ts: int) -> None:
        if self.led is not None:
            self._say(OutcomeKind.LEADER_DOWN, ts)
        self._stop_leading(ts)
        self._next_tick_ms = None

    def _stop_leading(self, ts: int) -> None:
        self._flush_copied(ts)
        if self.led is not None:
            self._measures.stopped(self.led, ts)
            self._drain_measures()
        self.led = None
        self._outside.clear()
        self._min_isr_said = None

    def config(self, row: LaneRow) -> None:
        """A property, on one of its levels. One that is no number is ignored: the broker would not have started."""
        if row.key == NO_OVERRIDES:
            for setting in (self._lag, self._min_isr):
                self._set(setting, row, None)
        elif row.key in (LAG_KEY, MIN_ISR_KEY) and (row.value is None or row.value.isdigit()):
            value = None if row.value is None else int(row.value)
            self._set(self._lag if row.key == LAG_KEY else self._min_isr, row, value)
        if self.led is not None:
            self._apply_settings(self.led, row.ts)

    def _set(self, setting: Setting, row: LaneRow, value: int | None) -> None:
        if row.of_topic:
            setting.topic = value
        elif row.replica is None:
            setting.static = value
        elif row.replica == self.broker:
            setting.broker = value

    def _apply_settings(self, led: LedPartition, ts: int) -> None:
        led.lag_time_max_ms = self._lag.value
        led.min_insync_replicas = self._min_isr.value
        self._comparison.tolerance_ms = max(1, min(TOLERANCE_MS, self._lag.value // 2))
        if (effective := led.effective_min_isr) != self._min_isr_said:
            self._min_isr_said = effective
            self._say(OutcomeKind.MIN_ISR, ts, amount=effective)

    # -- who is alive -----------------------------------------------------------------------------------------

    def _apply_aliveness(self, until: int) -> None:
        while self._aliveness and self._aliveness[0][0] <= until:
            ts, replica, up = self._aliveness.popleft()
            self._set_alive(ts, replica, up=up)

    def broker_up(self, row: LaneRow) -> None:
        """This broker learnt that another is alive."""
        if row.replica is not None:
            self._set_alive(row.ts, BrokerId(row.replica), up=True)

    def broker_down(self, row: LaneRow) -> None:
        """This broker learnt that another is gone."""
        if row.replica is not None:
            self._set_alive(row.ts, BrokerId(row.replica), up=False)

    def _set_alive(self, ts: int, replica: BrokerId, *, up: bool) -> None:
        (self._dead.discard if up else self._dead.add)(replica)
        if self.led is not None:
            if replica == self.broker and not up:
                self._say(OutcomeKind.LEADER_DOWN, ts)
            self._apply_dead(self.led)

    def _apply_dead(self, led: LedPartition) -> None:
        led.alive = frozenset(led.replicas) - self._dead if self._dead else None

    # -- leadership -------------------------------------------------------------------------------------------

    def leader(self, row: LaneRow) -> None:
        """A LeaderAndIsr names this broker (§3.1). One with an epoch already held changes nothing."""
        if row.epoch is None or row.isr is None:
            return
        was = self.led
        if was is not None and row.epoch <= was.epoch:
            return
        self._flush_copied(row.ts)
        led = was or LedPartition(leader=self.broker, profile=self.profile)
        before_hw, before_isr, before = led.hw, led.isr, {r: state.cu for r, state in led.followers.items()}
        self._last_epoch = row.epoch
        self.led, self._ever_led = led, True
        led.lag_time_max_ms, led.min_insync_replicas = self._lag.value, self._min_isr.value
        led.replicas = _ids(row.replicas or row.isr)
        self._apply_dead(led)
        led.lead(
            now_ms=row.ts,
            epoch=row.epoch,
            leo=_first(row.offset, row.leo, led.leo),
            isr=_ids(row.isr),
            replicas=led.replicas,
            adding=_ids(row.adding),
            removing=_ids(row.removing),
            zk_version=row.zk_version if row.zk_version is not None else -1,
            hw=row.hw if was is None else None,
        )
        self._apply_settings(led, row.ts)
        self._comparison.hw_derived(led.hw)
        if was is not None and led.hw != before_hw:
            self._measure_rise(led, row.ts)
        self._outside.led_anew(
            led,
            row.ts,
            before=before,
            before_isr=before_isr,
            took_over=was is None,
            appended=self._measures.bytes_appended,
        )

    def follower(self, row: LaneRow) -> None:
        """Another broker leads now, or the replica is gone: the state is forgotten."""
        if self.led is None or (row.epoch is not None and row.epoch < self.led.epoch):
            return
        self._stop_leading(row.ts)

    # -- while leading ----------------------------------------------------------------------------------------

    def append(self, row: LaneRow) -> None:
        """The log grew (§3.2)."""
        led = self.led
        if led is None or row.leo is None:
            self._note_unled(row)
            return
        self._append(led, row.leo, row.ts, row.bytes)

    def _append(self, led: LedPartition, leo: int, ts: int, size: int | None) -> None:
        records = leo - led.leo
        rose = led.append(leo, ts)
        self._measures.appended(led, ts, records=records, size=size)
        if rose:
            self._hw_rose(led, ts)
        if self._outside:
            self._measures.outsiders(led, ts)

    def _hw_rose(self, led: LedPartition, ts: int) -> None:
        self._comparison.hw_derived(led.hw)
        self._measure_rise(led, ts)

    def _measure_rise(self, led: LedPartition, ts: int) -> None:
        self._measures.hw_moved(led, ts)
        if self._measures.said:
            self._drain_measures()

    def _drain_measures(self) -> None:
        self.said.extend(self._measures.said)
        self._measures.said.clear()

    def _note_unled(self, row: LaneRow) -> None:
        """A row that only a leader writes, before any that says that this broker leads."""
        if not self._ever_led and not row.err:
            self._unled_rows += 1
            self._unled_ms = self._unled_ms or row.ts

    def fetch(self, row: LaneRow) -> None:
        """A follower's fetch (§3.3). One with an error did not count; the end offset is the one the broker saw."""
        led = self.led
        if led is None or row.err or row.replica is None or row.offset is None:
            self._note_unled(row)
            return
        replica = BrokerId(row.replica)
        if replica not in led.followers or (row.epoch is not None and row.epoch != led.epoch):
            return
        if row.leo is not None and row.leo > led.leo:
            self._append(led, row.leo, row.ts, None)
        hw = led.hw
        if replica in led.adding:
            self._copied += row.bytes or 0
        if (progress := self._outside.fetched(led, row, self._measures)) is not None:
            self.said.append(progress)
        change = led.fetch(replica, row.offset, row.ts)
        if change is not None:
            self._write(led, change, row.ts)
        if led.hw != hw:
            self._hw_rose(led, row.ts)
        if self._outside:
            self._measures.outsiders(led, row.ts)

    def tick(self, row: LaneRow) -> None:
        """The periodic check (§3.4)."""
        self._tick(row.ts)

    def _tick(self, ts: int) -> None:
        led = self.led
        if led is None or not self._rules_on:
            return
        hw = led.hw
        if (change := led.tick(ts)) is not None:
            self._write(led, change, ts)
            self._comparison.hw_derived(led.hw)
        self._measures.ticked(led, ts)
        if led.hw != hw:
            self._measure_rise(led, ts)

    def _compute_ticks(self, until: int) -> None:
        """The ticks that were due before `until`, where the broker wrote none (§7)."""
        due, period = self._next_tick_ms, max(1, self._lag.value // 2)
        if due is None or not self._rules_on:
            return
        if self.led is None or (until - due) // period > COMPUTED_TICKS_MAX:
            due += max(0, -(-(until - due) // period)) * period
        while due < until:
            self._tick(due)
            due += period
        self._next_tick_ms = due

    def _write(self, led: LedPartition, change: IsrChange, ts: int) -> None:
        led.write_succeeded(led.zk_version + 1, ts)
        shrink = change.kind is IsrChangeKind.SHRINK
        kind = OutcomeKind.SHRINK if shrink else OutcomeKind.EXPAND
        first = change.replicas[0]
        self.said.append(
            Outcome(
                kind=kind.value,
                ts=ts,
                epoch=led.epoch,
                replica=first,
                isr_old=list(change.isr_old),
                isr=list(change.isr),
                cu=change.last_caught_up_ms[0],
            )
        )
        self._comparison.derived(ts=ts, epoch=led.epoch, kind=kind.value, replicas=change.replicas)
        for replica, cu in zip(change.replicas, change.last_caught_up_ms, strict=True):
            if shrink:
                if replica in led.followers:
                    appended = self._measures.bytes_appended
                    self._outside.left(replica, ts, LeftBy.LEADER, cu=cu or None, appended=appended)
            else:
                self._say_joined(replica, ts)
        if not self._outside:
            self._measures.all_inside(ts)

    def _say_joined(self, replica: BrokerId, ts: int) -> None:
        told = self._outside.joined(replica, ts, epoch=self._last_epoch, measures=self._measures)
        if told is not None:
            self.said.append(told)

    def _flush_copied(self, ts: int) -> None:
        if self._copied:
            self._say(OutcomeKind.COPIED, ts, amount=self._copied)
            self._copied = 0

    # -- rows for the comparison only -----------------------------------------------------------------------------

    def emitted_change(self, row: LaneRow) -> None:
        """What the broker says it did to the ISR."""
        if row.replica is None:
            return
        if not self._rules_on:
            self._follow(row)
            return
        self._comparison.emitted(
            ts=row.ts,
            epoch=row.epoch if row.epoch is not None else self._last_epoch,
            kind=row.ev,
            replica=BrokerId(row.replica),
            err=row.err or 0,
        )

    def _follow(self, row: LaneRow) -> None:
        """Nothing tells of fetches: the ISR is the one that was written, and what is not known has bounds (§8.5)."""
        led = self.led
        if led is None or row.err or row.isr is None:
            return
        led.isr = _ids(row.isr)
        replica = BrokerId(row.replica or 0)
        if row.ev == TraceEvent.ISR_SHRINK.value:
            lag = led.lag_time_max_ms
            between = None if row.cu else (row.ts - lag * 3 // 2, row.ts - lag)
            self._outside.left(replica, row.ts, LeftBy.LEADER, cu=row.cu, cu_between=between, appended=0)
        else:
            self._say_joined(replica, row.ts)

    def emitted_hw(self, row: LaneRow) -> None:
        """What the broker says its high watermark is."""
        if row.hw is not None:
            self._comparison.hw_emitted(row.hw)


def tick_phase(start: LaneRow) -> int | None:
    """t0 of a `start` row: its `value`; where that is the version of the trace, `done`."""
    if start.key == VERSION_KEY:
        return start.done
    return int(start.value) if start.value is not None and start.value.isdigit() else None


def _ids(values: list[int] | None) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(v) for v in values or ())


def _first_from(ts: Longs, at: int) -> int:
    """The first row with a time of `at` or later."""
    later = np.flatnonzero(ts >= at)
    return int(later[0]) if len(later) else len(ts)


def _first(*values: int | None) -> int:
    return next(v for v in values if v is not None)


#: `assign` and `elect` are not here: they are the controller's, and reach the history without the rules.
_HANDLERS: Final[dict[str, Callable[[Lane, LaneRow], None]]] = {
    TraceEvent.START.value: Lane.start,
    TraceEvent.DOWN.value: Lane.down,
    TraceEvent.CONFIG.value: Lane.config,
    TraceEvent.LEADER.value: Lane.leader,
    TraceEvent.FOLLOWER.value: Lane.follower,
    TraceEvent.STOP.value: Lane.follower,
    TraceEvent.APPEND.value: Lane.append,
    TraceEvent.FETCH.value: Lane.fetch,
    TraceEvent.TICK.value: Lane.tick,
    TraceEvent.BROKER_UP.value: Lane.broker_up,
    TraceEvent.BROKER_DOWN.value: Lane.broker_down,
    TraceEvent.ISR_SHRINK.value: Lane.emitted_change,
    TraceEvent.ISR_EXPAND.value: Lane.emitted_change,
    TraceEvent.HW.value: Lane.emitted_hw,
}
