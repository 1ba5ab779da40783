"""What a led partition felt like, beside who was in sync: stalls, delays, reserves. Pure; a bounded amount of memory.

One `Measures` goes with one lane. It measures over columns alone: the steps of rows that the rules took one by one are
collected, and measured together as a `Stretch` is. An outcome is given when the broker stops leading, a stall when it
ends. Source: isr-replay.md §6 (HW stalled), §9.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from broker_sim.isr import LedPartition
from broker_sim.isr_columns import Flags, Longs
from broker_sim.replay.rows import Measure, Outcome, OutcomeKind
from broker_sim.replay.rules.stretch import Stretch
from controller.wire.types import BrokerId

#: Delays are counted in classes up to these, ms: steps of about a quarter.
_CLASSES: Final = tuple(sorted({round(1.25**i) for i in range(80)}))
#: So many appends wait for the high watermark one by one; of more, the latest.
_WATCHED_MAX: Final = 4096
#: So many steps of single rows are measured together.
_STEPS_MAX: Final = 1024
_NEVER: Final = int(np.iinfo(np.int64).max)


@dataclass(slots=True)
class Delays:
    """A distribution of delays in ms: its size does not grow. Quantiles are exact to a class."""

    count: int = 0
    worst: int = 0
    _classes: list[int] = field(default_factory=lambda: [0] * (len(_CLASSES) + 1))

    def add(self, delays_ms: Longs) -> None:
        """Counts each."""
        if not len(delays_ms):
            return
        self.count += len(delays_ms)
        self.worst = max(self.worst, int(delays_ms.max()))
        classes = np.bincount(np.searchsorted(_CLASSES, delays_ms), minlength=len(_CLASSES) + 1)
        self._classes = [n + more for n, more in zip(self._classes, classes.tolist(), strict=True)]

    def quantile(self, share: float) -> int:
        """The upper end of the class in which the quantile lies, at most the worst."""
        left = share * self.count
        for bound, n in zip((*_CLASSES, self.worst), self._classes, strict=True):
            left -= n
            if left <= 0:
                return min(bound, self.worst)
        return self.worst


@dataclass(slots=True)
class _Steps:
    """The partition after each row that the rules took one by one; `judged`: while a replica was outside the ISR."""

    ts: list[int] = field(default_factory=list)
    leo: list[int] = field(default_factory=list)
    hw: list[int] = field(default_factory=list)
    judged_ts: list[int] = field(default_factory=list)
    is_held: list[bool] = field(default_factory=list)

    def clear(self) -> None:
        for column in (self.ts, self.leo, self.hw, self.judged_ts, self.is_held):
            column.clear()


@dataclass(slots=True)
class Measures:
    """What is measured of one lane; `outcomes` is where it goes.

    `stall_limit_ms`: the high watermark stalls when it stands still for longer than this; None: than the lag.
    """

    outcomes: list[Outcome] = field(compare=False)
    stall_limit_ms: int | None = None
    _steps: _Steps = field(default_factory=_Steps)
    #: where the log ended and the high watermark stood after the last row that was measured
    _leo: int = 0
    _hw: int = 0
    #: end and time of each append that is not below the high watermark yet
    _unacked: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_WATCHED_MAX))
    _delays: Delays = field(default_factory=Delays)
    _stalled_since: int | None = None
    _headroom: dict[BrokerId, int] = field(default_factory=dict)
    _held_since: int | None = None
    _held_ms: int = 0
    _bytes: int = 0
    _records: int = 0

    # -- what the lane reports -------------------------------------------------------------------------------------

    def led(self, led: LedPartition, ts: int, *, took_over: bool) -> None:
        """A LeaderAndIsr was taken, all before it being settled. What is not replicated waits from now on."""
        if took_over:
            self._hw = led.high_watermark
        if self._stalled_since is None and led.log_end_offset > led.high_watermark:
            self._stalled_since = ts
        self._leo = led.log_end_offset
        self.stepped(led, ts)

    def appended(self, led: LedPartition, *, records: int, size: int | None) -> None:
        """An append made the log longer by `records`; negative: the log fell, which a leader's does not."""
        self._bytes += size or 0
        self._records += max(0, records)
        if records < 0:
            self.settle(led)
            self._leo = led.log_end_offset
            while self._unacked and self._unacked[-1][0] > self._leo:
                self._unacked.pop()
            if self._leo <= led.high_watermark:
                self._stalled_since = None

    def stepped(self, led: LedPartition, ts: int) -> None:
        """The rules took a row of this time that may have moved the log's end or the high watermark."""
        steps = self._steps
        steps.ts.append(ts)
        steps.leo.append(led.log_end_offset)
        steps.hw.append(led.high_watermark)
        if len(steps.ts) >= _STEPS_MAX:
            self.settle(led)

    def judged(self, led: LedPartition, ts: int) -> None:
        """An append or a fetch while a replica is outside: does it hold the high watermark below the members' end?"""
        members = (state.log_end_offset for r, state in led.followers.items() if r in led.isr)
        self._steps.judged_ts.append(ts)
        self._steps.is_held.append(led.high_watermark < min([led.log_end_offset, *members]) and not _is_frozen(led))

    def all_inside(self, ts: int) -> None:
        """Nobody is outside any more."""
        self._steps.judged_ts.append(ts)
        self._steps.is_held.append(False)

    def headroom(self, left_ms: Iterable[tuple[BrokerId, int]]) -> None:
        """Members were judged: how long each that was not at the end could have stayed so before it is removed."""
        for replica, left in left_ms:
            if left < self._headroom.get(replica, left + 1):
                self._headroom[replica] = left

    def passed(self, led: LedPartition, stretch: Stretch, *, any_outside: bool) -> None:
        """All quiet rows of `stretch`, before it is applied to `led`."""
        self.settle(led)
        self._bytes += stretch.bytes_appended
        self._records += max(0, int(stretch.leo[-1]) - led.log_end_offset)
        self._measure(led, stretch.ts, stretch.leo, stretch.hw)
        self.headroom(stretch.headroom())
        if any_outside:
            is_held = stretch.hw < stretch.members_end()
            self._hold(stretch.ts[stretch.judged], is_held[stretch.judged] & (not _is_frozen(led)))

    # -- measuring -------------------------------------------------------------------------------------------------

    def settle(self, led: LedPartition) -> None:
        """Measures what was collected: to be called while the epoch and the settings of `led` are those of then."""
        steps = self._steps
        if steps.ts:
            self._measure(led, *(np.array(column, np.int64) for column in (steps.ts, steps.leo, steps.hw)))
        if steps.judged_ts:
            self._hold(np.array(steps.judged_ts, np.int64), np.array(steps.is_held, np.bool_))
        steps.clear()

    def _measure(self, led: LedPartition, ts: Longs, leo: Longs, hw: Longs) -> None:
        grows = np.flatnonzero(np.diff(leo, prepend=self._leo) > 0)
        rises = np.flatnonzero(np.diff(hw, prepend=self._hw) > 0)
        self._ack(ts, leo, hw, grows)
        self._stall(led, ts, leo > hw, grows, rises)
        self._leo, self._hw = int(leo[-1]), int(hw[-1])

    def _ack(self, ts: Longs, leo: Longs, hw: Longs, grows: Longs) -> None:
        """How long each append waited for the high watermark."""
        ends = np.concatenate((np.array([end for end, _ in self._unacked], np.int64), leo[grows]))
        since = np.concatenate((np.array([at for _, at in self._unacked], np.int64), ts[grows]))
        reached = np.searchsorted(hw, ends)
        done = reached < len(hw)
        self._delays.add(np.maximum(ts[reached[done]] - since[done], 0))
        self._unacked.clear()
        self._unacked.extend(zip(ends[~done].tolist(), since[~done].tolist(), strict=True))

    def _stall(self, led: LedPartition, ts: Longs, waiting: Flags, grows: Longs, rises: Longs) -> None:
        """What lies between two rises of the high watermark, from when something waited for it.

        One stall for each rise and one that goes on: the first is open if it was before, the others if the rise before
        left something waiting; else each begins with the next append that has to wait.
        """
        waits = grows[waiting[grows]]
        since = np.where(waiting[rises], ts[rises], _NEVER)
        since = np.append(_NEVER if self._stalled_since is None else self._stalled_since, since)
        next_wait = np.searchsorted(waits, np.append(-1, rises), side="right")
        first = np.append(ts[waits], _NEVER)[next_wait]
        row = np.append(waits, len(ts))[next_wait]
        ends = np.append(rises, len(ts))
        since = np.where((since == _NEVER) & (row <= ends), first, since)
        # "replay" of the benchmark: of the many stalls that are none, each was a call.
        for k in np.flatnonzero(ts[rises] - since[:-1] > self._stall_limit(led)).tolist():
            self._end_stall(led, int(since[k]), int(ts[rises[k]]))
        self._stalled_since = None if since[-1] == _NEVER else int(since[-1])

    def _stall_limit(self, led: LedPartition) -> int:
        return led.lag_time_max_ms if self.stall_limit_ms is None else self.stall_limit_ms

    def _end_stall(self, led: LedPartition, since: int, ts: int) -> None:
        if ts - since > self._stall_limit(led):
            kind = OutcomeKind.HW_STALLED.value
            self.outcomes.append(Outcome(kind=kind, ts=ts, epoch=led.epoch, left_ms=since, joined_ms=ts))

    def _hold(self, ts: Longs, is_held: Flags) -> None:
        """The time in which an outsider held the high watermark, from one append or fetch to the next."""
        if not len(ts):
            return
        if self._held_since is not None:
            self._held_ms += max(0, int(ts[0]) - self._held_since)
        self._held_ms += int(np.maximum(np.diff(ts), 0)[is_held[:-1]].sum())
        self._held_since = int(ts[-1]) if is_held[-1] else None

    # -- what came of it -------------------------------------------------------------------------------------------

    @property
    def bytes_appended(self) -> int:
        """Since the broker leads, as far as rows tell."""
        return self._bytes

    def ingress(self, from_ms: int, to_ms: int, bytes_before: int) -> float | None:
        """Bytes per second appended from when `bytes_before` had been, where rows tell of bytes at all.

        Of the time in question alone: what was loaded before a replica left says nothing of what it must keep up with.
        """
        if to_ms <= from_ms or not self._bytes:
            return None
        return (self._bytes - bytes_before) * 1000 / (to_ms - from_ms)

    def size_of(self, records: int | None) -> int | None:
        """What so many records weigh, by the average of those appended."""
        if records is None or not self._records or not self._bytes:
            return None
        return round(records * self._bytes / self._records)

    def stopped(self, led: LedPartition, ts: int) -> None:
        """The broker stops leading: all measures become outcomes. This object has done its part."""
        self.all_inside(ts)
        self.settle(led)
        if self._stalled_since is not None:
            self._end_stall(led, self._stalled_since, ts)
        self.outcomes.extend(self._measured(led, ts))

    def _measured(self, led: LedPartition, ts: int) -> Iterable[Outcome]:
        kind = OutcomeKind.MEASURE.value
        for replica, left in sorted(self._headroom.items()):
            headroom = Measure.LAG_HEADROOM.value
            yield Outcome(kind=kind, ts=ts, epoch=led.epoch, change=headroom, amount=left, replica=replica)
        if self._held_ms:
            is_held = Measure.HW_HELD_BY_OUTSIDERS.value
            yield Outcome(kind=kind, ts=ts, epoch=led.epoch, change=is_held, amount=self._held_ms)
        if self._delays.count:
            yield Outcome(
                kind=kind,
                ts=ts,
                epoch=led.epoch,
                change=Measure.ACK_LATENCY.value,
                amount=self._delays.quantile(0.5),
                total=self._delays.count,
                p95=self._delays.quantile(0.95),
                worst=self._delays.worst,
            )


def _is_frozen(led: LedPartition) -> bool:
    """Whether the high watermark stands still because too few members are in sync: then nobody else holds it."""
    return led.profile.min_isr_holds_hw and led.is_under_min_isr
