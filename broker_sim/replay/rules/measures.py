"""What a led partition felt like, beside who was in sync: stalls, delays, reserves. Pure; a bounded amount of memory.

One `Measures` goes with one lane and is told what the rules did. Each measure is said when the broker stops leading.
Source: isr-replay.md §6 (HW stalled), §9.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from broker_sim.isr import LedPartition
from broker_sim.replay.rows import Measure, Outcome, OutcomeKind
from broker_sim.replay.rules.stretch import Longs, Stretch
from controller.wire.types import BrokerId

#: Delays are counted in classes up to these, ms: steps of about a quarter.
_CLASSES: Final = tuple(sorted({round(1.25**i) for i in range(80)}))
#: So many appends wait for the high watermark one by one; of more, the latest.
_WATCHED_MAX: Final = 4096


@dataclass(slots=True)
class Delays:
    """A distribution of delays in ms: its size does not grow. Quantiles are exact to a class."""

    count: int = 0
    worst: int = 0
    _classes: list[int] = field(default_factory=lambda: [0] * (len(_CLASSES) + 1))

    def add(self, delay_ms: int) -> None:
        """Counts one."""
        self.count += 1
        self.worst = max(self.worst, delay_ms)
        self._classes[bisect_left(_CLASSES, delay_ms)] += 1

    def add_all(self, delays_ms: Longs) -> None:
        """Counts many."""
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
class Measures:
    """What is measured of one lane. `said` is drained by the caller.

    `stall_limit_ms`: the high watermark stalls when it stands still for longer than this; None: than the lag.
    """

    stall_limit_ms: int | None = None
    said: list[Outcome] = field(default_factory=list)
    _unacked: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_WATCHED_MAX))
    _delays: Delays = field(default_factory=Delays)
    _stalled_since: int | None = None
    _headroom: dict[BrokerId, int] = field(default_factory=dict)
    _held_since: int | None = None
    _held_ms: int = 0
    _bytes: int = 0
    _records: int = 0

    def appended(self, led: LedPartition, ts: int, *, records: int, size: int | None) -> None:
        """The log grew by `records`, and the rules have judged it."""
        self._bytes += size or 0
        while self._unacked and self._unacked[-1][0] > led.leo:
            self._unacked.pop()  # the log fell, which a leader's does not: these records are gone
        if records <= 0:
            return
        self._records += records
        if led.leo <= led.hw:
            self._delays.add(0)
            return
        self._unacked.append((led.leo, ts))
        if self._stalled_since is None:
            self._stalled_since = ts

    def hw_moved(self, led: LedPartition, ts: int) -> None:
        """The high watermark rose."""
        unacked, hw = self._unacked, led.hw
        while unacked and unacked[0][0] <= hw:
            self._delays.add(max(0, ts - unacked.popleft()[1]))
        if self._stalled_since is not None:
            self._end_stall(led, ts)
            self._stalled_since = ts if led.leo > hw else None

    def _stall_limit(self, led: LedPartition) -> int:
        return led.lag_time_max_ms if self.stall_limit_ms is None else self.stall_limit_ms

    def _end_stall(self, led: LedPartition, ts: int) -> None:
        since = self._stalled_since
        if since is not None and ts - since > self._stall_limit(led):
            self.said.append(
                Outcome(kind=OutcomeKind.HW_STALLED.value, ts=ts, epoch=led.epoch, left_ms=since, joined_ms=ts)
            )

    def ticked(self, led: LedPartition, ts: int) -> None:
        """Members were judged: how close was each that is not at the end to being removed?"""
        for replica in led.isr:
            state = led.followers.get(replica)
            if state is not None and state.leo != led.leo:
                self._note_headroom(replica, led.lag_time_max_ms - (ts - state.cu))

    def _note_headroom(self, replica: BrokerId, left: int) -> None:
        if left < self._headroom.get(replica, left + 1):
            self._headroom[replica] = left

    def outsiders(self, led: LedPartition, ts: int) -> None:
        """While a replica is outside: does it hold the high watermark below what the members alone would allow?"""
        self.all_inside(ts)
        if not (led.profile.min_isr_holds_hw and led.is_under_min_isr):
            members = (state.leo for r, state in led.followers.items() if r in led.isr)
            if led.hw < min([led.leo, *members]):
                self._held_since = ts

    def all_inside(self, ts: int) -> None:
        """What was held so far is counted; nobody is outside any more."""
        if self._held_since is not None:
            self._held_ms += max(0, ts - self._held_since)
            self._held_since = None

    # -- many rows at once, as the above does one by one -------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Whether an append has not been acknowledged yet."""
        return self._stalled_since is not None

    def passed(self, led: LedPartition, stretch: Stretch, *, any_outside: bool) -> None:
        """All quiet rows of `stretch`, before it is applied to `led`; while `led.leo > led.hw`, some append `waits`."""
        self._bytes += stretch.bytes_appended
        if len(stretch.grows):
            self._records += int(stretch.leo[-1]) - led.leo
        self._ack(stretch)
        self._stall(led, stretch)
        for replica, left in stretch.headroom():
            self._note_headroom(replica, left)
        if any_outside:
            self._hold(led, stretch)

    def _ack(self, stretch: Stretch) -> None:
        ends = np.concatenate((np.array([end for end, _ in self._unacked], np.int64), stretch.leo[stretch.grows]))
        since = np.concatenate((np.array([ts for _, ts in self._unacked], np.int64), stretch.ts[stretch.grows]))
        reached = np.searchsorted(stretch.hw, ends)
        done = reached < len(stretch.hw)
        self._delays.add_all(np.maximum(stretch.ts[reached[done]] - since[done], 0))
        self._unacked.clear()
        self._unacked.extend(zip(ends[~done].tolist(), since[~done].tolist(), strict=True))

    def _stall(self, led: LedPartition, stretch: Stretch) -> None:
        """What lies between two rises of the high watermark, from when something waited for it."""
        ts, rises = stretch.ts, stretch.rises
        open_after = stretch.leo > stretch.hw
        waits = stretch.grows[open_after[stretch.grows]]
        never = np.iinfo(np.int64).max
        # One stall for each rise and one that goes on: the first is open if it was before, the others if the rise
        # before left something waiting; else each begins with the next append that has to wait.
        since = np.where(open_after[rises], ts[rises], never)
        since = np.append(never if self._stalled_since is None else self._stalled_since, since)
        next_wait = np.searchsorted(waits, np.append(-1, rises), side="right")
        first = np.append(ts[waits], never)[next_wait]
        row = np.append(waits, len(ts))[next_wait]
        ends = np.append(rises, len(ts))
        since = np.where((since == never) & (row <= ends), first, since)
        for k in np.flatnonzero((since[:-1] != never) & (ts[rises] - since[:-1] > self._stall_limit(led))).tolist():
            self._stalled_since = int(since[k])
            self._end_stall(led, int(ts[rises[k]]))
        self._stalled_since = None if since[-1] == never else int(since[-1])

    def _hold(self, led: LedPartition, stretch: Stretch) -> None:
        """The time in which an outsider held the high watermark, from one append or fetch to the next."""
        at = stretch.judged
        if not len(at):
            return
        held = (stretch.hw < stretch.members_end())[at]
        if led.profile.min_isr_holds_hw and led.is_under_min_isr:
            held[:] = False
        ts = stretch.ts[at]
        self.all_inside(int(ts[0]))
        self._held_ms += int(np.maximum(np.diff(ts), 0)[held[:-1]].sum())
        self._held_since = int(ts[-1]) if held[-1] else None

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
        """The broker stops leading: everything is said, and forgotten."""
        self._end_stall(led, ts)
        self.all_inside(ts)
        told = list(self._told(led, ts))
        said = [*self.said, *told]
        self.__init__(stall_limit_ms=self.stall_limit_ms)  # type: ignore[misc]
        self.said = said

    def _told(self, led: LedPartition, ts: int) -> Iterable[Outcome]:
        kind = OutcomeKind.MEASURE.value
        for replica, left in sorted(self._headroom.items()):
            headroom = Measure.LAG_HEADROOM.value
            yield Outcome(kind=kind, ts=ts, epoch=led.epoch, change=headroom, amount=left, replica=replica)
        if self._held_ms:
            held = Measure.HW_HELD_BY_OUTSIDERS.value
            yield Outcome(kind=kind, ts=ts, epoch=led.epoch, change=held, amount=self._held_ms)
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
