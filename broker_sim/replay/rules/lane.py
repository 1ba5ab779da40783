"""The row machine: one lane of a trace (what one broker wrote about one partition) through the ISR rules. Pure.

Rows go in one by one (`feed`), or many at once where they decide nothing (`skip`), in the broker's order; outcomes come
out. Memory is bounded by the state of one partition, never by its history. The rules look at no `isr_*` and no `hw`
row, and take every ISR write for done at once; those rows go to the comparison alone. Source: isr-replay.md §3, §7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from broker_sim.isr import PROFILES, IsrChange, IsrChangeKind, LedPartition, Profile
from broker_sim.isr_columns import Longs
from broker_sim.replay.compare import PATIENCE_MS, TOLERANCE_MS, Comparison
from broker_sim.replay.rows import LaneRow, LeftBy, Measure, Outcome, OutcomeKind
from broker_sim.replay.rules.measures import Measures
from broker_sim.replay.rules.outsiders import Outsiders
from broker_sim.replay.rules.process import Process
from broker_sim.replay.rules.stretch import BulkRows, Stretch
from controller.wire.trace import TraceEvent
from controller.wire.types import BrokerId


@dataclass(slots=True, kw_only=True)
class Lane(Process):
    """One broker and one partition. Feed it every row, then `finish`; take from `outcomes` whenever you like."""

    profile: Profile = PROFILES["P37"]
    outcomes: list[Outcome] = field(default_factory=list)
    led: LedPartition | None = None
    _outside: Outsiders = field(default_factory=Outsiders)
    _comparison: Comparison = field(init=False)
    _measures: Measures = field(init=False)
    _ever_led: bool = False
    _unled_rows: int = 0
    _unled_ms: int = 0
    _min_isr: int | None = None
    #: bytes that replicas which are being added fetched, and when the last of them did
    _copied: int = 0
    _copied_ms: int = 0
    _last_epoch: int = -1

    def __post_init__(self) -> None:
        self._comparison = Comparison(outcomes=self.outcomes)
        self._measures = self._new_measures()

    @property
    def _leads(self) -> bool:
        return self.led is not None

    def _new_measures(self) -> Measures:
        return Measures(self.outcomes)

    # -- what the caller does --------------------------------------------------------------------------------

    def feed(self, row: LaneRow) -> None:
        """Takes the next row. A row that makes no sense here (a fetch while not leading, say) changes nothing."""
        if not self._arrive(row):
            return
        if (handle := _HANDLERS.get(row.ev)) is not None:
            handle(self, row)
        if self._comparison.waiting:
            self._comparison.give_up_before(row.ts - PATIENCE_MS)

    def skip(self, rows: BulkRows) -> int:
        """Takes rows of the many kinds, all of the process that wrote the last row, as far as they decide nothing.

        Returns how many it took, from the first on. The rest may be tried again after the next row was fed.
        """
        led = self.led
        if led is None or led.pending is not None or self._run is None:
            return 0
        if (next_ms := self._aliveness.next_ms) is not None:
            rows = rows.before(next_ms)
        ticks = self._computed_ticks(int(rows.ts.max(initial=0)))
        if not len(rows) or ticks is None:
            return 0
        stretch = Stretch(led, rows, ticks=ticks, judges=self._rules_on)
        if stretch.quiet:
            self._pass(led, stretch, ticks)
        return stretch.quiet

    def settle(self) -> None:
        """Measures what waits to be measured with others."""
        if self.led is not None:
            self._measures.settle(self.led)

    def _pass(self, led: LedPartition, stretch: Stretch, ticks: Longs) -> None:
        """What quiet rows change."""
        self._measures.passed(led, stretch, any_outside=bool(self._outside))
        if led.adding:
            self._count_copied(*stretch.bytes_fetched(led.adding))
        self._comparison.hw_stretch(derived=stretch.high_watermarks, emitted=stretch.written_high_watermarks)
        self._last_ts = max(self._last_ts, stretch.last_ts)
        if len(ticks):
            later = stretch.next_tick_ms
            self._next_tick_ms = int(ticks[-1]) + self._tick_period_ms if later is None else later
        stretch.apply()
        if self._comparison.waiting:
            self._comparison.give_up_before(self._last_ts - PATIENCE_MS)

    def finish(self) -> None:
        """The lane is over: what is left waiting is given up, who is still outside is named."""
        if self._run_end is not None:
            self._compute_ticks(self._run_end)
        if self.led is not None:
            still_outside = self._outside.still_outside(self._last_ts, epoch=self._last_epoch, measures=self._measures)
            self.outcomes.extend(still_outside)
        self._aliveness.due(None, self._set_alive)
        self._forgive_unfinished()
        self._stop_leading(self._last_ts)
        self._comparison.finish(ts=self._last_ts, epoch=self._last_epoch)
        if rows := self._unled_rows:
            kind, measure = OutcomeKind.MEASURE.value, Measure.ROWS_WITHOUT_LEADER.value
            self.outcomes.append(Outcome(kind=kind, ts=self._unled_ms, epoch=-1, change=measure, amount=rows))

    def _forgive_unfinished(self) -> None:
        if self._run_end is not None:
            self._comparison.process_ended(self._run_end)

    def _add(self, kind: OutcomeKind, ts: int, amount: int | None = None) -> None:
        self.outcomes.append(Outcome(kind=kind.value, ts=ts, epoch=self._last_epoch, amount=amount))

    # -- the broker itself ------------------------------------------------------------------------------------

    def down(self, row: LaneRow) -> None:
        """The process ends."""
        self._process_ended(row.ts)

    def _process_ended(self, ts: int) -> None:
        if self.led is not None:
            self._add(OutcomeKind.LEADER_DOWN, ts)
        self._stop_leading(ts)
        self._next_tick_ms = None

    def _stop_leading(self, ts: int) -> None:
        self._flush_copied()
        if self.led is not None:
            self._measures.stopped(self.led, ts)
            self._measures = self._new_measures()
        self.led = None
        self._outside.clear()
        self._min_isr = None

    def config(self, row: LaneRow) -> None:
        """A property, on one of its levels."""
        self.settle()
        self._settings.take(row, self.broker)
        if self.led is not None:
            self._apply_settings(self.led, row.ts)

    def _apply_settings(self, led: LedPartition, ts: int) -> None:
        led.lag_time_max_ms = self._settings.lag.value
        led.min_insync_replicas = self._settings.min_isr.value
        self._comparison.tolerance_ms = max(1, min(TOLERANCE_MS, led.lag_time_max_ms // 2))
        if (effective := led.effective_min_isr) != self._min_isr:
            self._min_isr = effective
            self._add(OutcomeKind.MIN_ISR, ts, amount=effective)

    # -- who is alive -----------------------------------------------------------------------------------------

    def broker_alive(self, row: LaneRow) -> None:
        """This broker learnt that another is alive, or gone."""
        if row.replica is not None:
            self._set_alive(row.ts, BrokerId(row.replica), row.ev == TraceEvent.BROKER_UP.value)

    def _set_alive(self, ts: int, replica: BrokerId, up: bool, died_ms: int | None = None) -> None:
        self._aliveness.set(replica, up=up)
        if self.led is not None:
            if replica == self.broker and not up:
                self._add(OutcomeKind.LEADER_DOWN, ts if died_ms is None else died_ms)
            self._apply_dead(self.led)

    def _apply_dead(self, led: LedPartition) -> None:
        dead = self._aliveness.dead
        led.alive = frozenset(led.replicas) - dead if dead else None

    # -- leadership -------------------------------------------------------------------------------------------

    def leader(self, row: LaneRow) -> None:
        """A LeaderAndIsr names this broker (§3.1). One with an epoch already held changes nothing."""
        if row.epoch is None or row.isr is None:
            return
        was = self.led
        if was is not None and row.epoch <= was.epoch:
            if not self._rules_on:
                self._outside.set_by_controller(was, row, appended=self._measures.bytes_appended)
            return
        self._flush_copied()
        self.settle()
        led = was or LedPartition(leader=self.broker, profile=self.profile)
        before_isr, before = led.isr, {r: state.last_caught_up_time_ms for r, state in led.followers.items()}
        self._last_epoch, self.led, self._ever_led = row.epoch, led, True
        led.lag_time_max_ms, led.min_insync_replicas = self._settings.lag.value, self._settings.min_isr.value
        led.replicas = _ids(row.replicas or row.isr)
        self._apply_dead(led)
        led.lead(
            now_ms=row.ts,
            epoch=row.epoch,
            log_end_offset=_first(row.offset, row.leo, led.log_end_offset),
            isr=_ids(row.isr),
            replicas=led.replicas,
            adding=_ids(row.adding),
            removing=_ids(row.removing),
            partition_epoch=row.zk_version if row.zk_version is not None else -1,
            high_watermark=row.hw if was is None else None,
        )
        self._apply_settings(led, row.ts)
        self._comparison.hw_derived(led.high_watermark)
        if self._rules_on:  # without fetches nothing moves the high watermark, which would seem to stand still
            self._measures.led(led, row.ts, took_over=was is None)
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
        if self.led is None or row.leo is None:
            self._note_unled(row)
        else:
            self._append(self.led, row.leo, row.ts, row.bytes)

    def _append(self, led: LedPartition, leo: int, ts: int, size: int | None) -> None:
        records = leo - led.log_end_offset
        rose = led.append(leo, ts)
        self._measures.appended(led, records=records, size=size)
        self._stepped(led, ts, rose=rose)

    def _stepped(self, led: LedPartition, ts: int, *, rose: bool) -> None:
        """An append, or a fetch that counts, was taken."""
        if rose:
            self._comparison.hw_derived(led.high_watermark)
        self._measures.stepped(led, ts)
        if self._outside:
            self._measures.judged(led, ts)

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
        if row.leo is not None and row.leo > led.log_end_offset:
            self._append(led, row.leo, row.ts, None)
        hw = led.high_watermark
        if replica in led.adding:
            self._count_copied(row.bytes or 0, row.ts)
        if (progress := self._outside.fetched(led, row, self._measures)) is not None:
            self.outcomes.append(progress)
        change = led.fetch(replica, row.offset, row.ts)
        if change is not None:
            self._write(led, change, row.ts)
        self._stepped(led, row.ts, rose=led.high_watermark != hw)

    def tick(self, row: LaneRow) -> None:
        """The periodic check (§3.4)."""
        self._tick(row.ts)

    def _shrink_due_ms(self) -> int | None:
        return self.led.shrink_due_ms() if self.led is not None else None

    def _tick(self, ts: int) -> None:
        led = self.led
        if led is None or not self._rules_on:
            return
        hw = led.high_watermark
        if (change := led.tick(ts)) is not None:
            self._write(led, change, ts)
            self._comparison.hw_derived(led.high_watermark)
        self._measures.headroom(led.lag_headroom(ts))
        if led.high_watermark != hw:
            self._measures.stepped(led, ts)

    def _write(self, led: LedPartition, change: IsrChange, ts: int) -> None:
        led.write_succeeded(led.partition_epoch + 1, ts)
        shrink = change.kind is IsrChangeKind.SHRINK
        kind = OutcomeKind.SHRINK if shrink else OutcomeKind.EXPAND
        first = change.replicas[0]
        self.outcomes.append(
            Outcome(
                kind=kind.value,
                ts=ts,
                epoch=led.epoch,
                replica=first,
                isr_old=list(change.isr_old),
                isr=list(change.isr),
                cu=change.last_caught_up_time_ms[0],
            )
        )
        self._comparison.derived(ts=ts, epoch=led.epoch, kind=kind.value, replicas=change.replicas)
        for replica, cu in zip(change.replicas, change.last_caught_up_time_ms, strict=True):
            if shrink:
                if replica in led.followers:
                    appended = self._measures.bytes_appended
                    self._outside.left(replica, ts, LeftBy.LEADER, cu=cu or None, appended=appended)
            else:
                self._joined(replica, ts)
        if not self._outside:
            self._measures.all_inside(ts)

    def _joined(self, replica: BrokerId, ts: int) -> None:
        if absence := self._outside.joined(replica, ts, epoch=self._last_epoch, measures=self._measures):
            self.outcomes.append(absence)

    def _count_copied(self, size: int, ts: int) -> None:
        if size:
            self._copied, self._copied_ms = self._copied + size, ts

    def _flush_copied(self) -> None:
        """The outcome is of the time of the last fetch: when the leader hears that the move is over, it may be."""
        if self._copied:
            self._add(OutcomeKind.COPIED, self._copied_ms, amount=self._copied)
            self._copied = 0

    # -- rows for the comparison only -----------------------------------------------------------------------------

    def emitted_change(self, row: LaneRow) -> None:
        """What the broker says it did to the ISR."""
        if row.replica is None:
            return
        if not self._rules_on:
            self._follow(row)
            return
        epoch = self._last_epoch if row.epoch is None else row.epoch
        self._comparison.emitted(
            ts=row.ts, epoch=epoch, kind=row.ev, replica=BrokerId(row.replica), err=row.err or 0, done=row.done
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
            self._joined(replica, row.ts)

    def emitted_hw(self, row: LaneRow) -> None:
        """What the broker says its high watermark is."""
        if row.hw is not None:
            self._comparison.hw_emitted(row.hw)


def _ids(values: list[int] | None) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(v) for v in values or ())


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
    TraceEvent.BROKER_UP.value: Lane.broker_alive,
    TraceEvent.BROKER_DOWN.value: Lane.broker_alive,
    TraceEvent.ISR_SHRINK.value: Lane.emitted_change,
    TraceEvent.ISR_EXPAND.value: Lane.emitted_change,
    TraceEvent.HW.value: Lane.emitted_hw,
}
