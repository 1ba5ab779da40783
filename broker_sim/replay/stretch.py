"""Many rows of one lane at once, as columns, as far as they decide nothing. Pure; numpy.

Nearly all rows of a trace are appends and fetches of followers that are in sync: they move offsets and times, and the
rules (`broker_sim.isr`) decide nothing. `Stretch` finds how many rows from the first on are such, by the same rules
put as formulas over whole columns, and moves the state of the partition past them. The row at which something may be
decided (a replica joins, a tick finds one that must leave) is left to the rules themselves: every decision is theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from broker_sim.isr import Follower, LedPartition
from controller.wire.trace import TraceEvent
from controller.wire.types import BrokerId

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

#: What stands for null in a column of integers.
ABSENT: Final = int(np.iinfo(np.int64).min)
#: More computed ticks than this within one stretch: the clock jumped, which is left to the rules.
TICKS_MAX: Final = 10_000


class BulkKind(IntEnum):
    """The events of which there are many; every other one is left to the rules."""

    OTHER = 0
    APPEND = 1
    FETCH = 2
    TICK = 3
    HW = 4


BULK_KINDS: Final[Mapping[str, BulkKind]] = {
    TraceEvent.APPEND.value: BulkKind.APPEND,
    TraceEvent.FETCH.value: BulkKind.FETCH,
    TraceEvent.TICK.value: BulkKind.TICK,
    TraceEvent.HW.value: BulkKind.HW,
}


@dataclass(frozen=True, slots=True)
class BulkRows:
    """Rows of one lane in order; the columns are those of the trace, `kind` a `BulkKind`, null is `ABSENT`."""

    kind: Longs
    ts: Longs
    epoch: Longs
    replica: Longs
    offset: Longs
    leo: Longs
    hw: Longs
    bytes: Longs
    err: Longs

    def __len__(self) -> int:
        return len(self.kind)

    def __getitem__(self, part: slice) -> BulkRows:
        return BulkRows(*(getattr(self, name)[part] for name in self.__slots__))


class _FollowerColumns:
    """One follower's fetches that count, and what is known of it before and after each row."""

    def __init__(self, state: Follower, rows: BulkRows, own: Flags, leo: Longs, *, leader_end_is_max: bool) -> None:
        self._state = state
        self._own = own
        at = np.flatnonzero(own)
        self.first_row = int(at[0]) if len(at) else len(own)
        ts, offset, leader_end = rows.ts[at], rows.offset[at], leo[at]
        ll = np.append(state.ll, leader_end)
        self._ll = np.maximum.accumulate(ll) if leader_end_is_max else ll
        self._ft = np.append(state.ft, ts)
        never = np.iinfo(np.int64).min
        reached = np.where(offset >= leader_end, ts, np.where(offset >= self._ll[:-1], self._ft[:-1], never))
        self._cu = np.maximum.accumulate(np.append(state.cu, reached))
        self._end = np.append(state.leo, offset)
        self._after: Longs = np.cumsum(own)
        self._before: Longs = self._after - own

    @property
    def moves(self) -> Longs:
        """The rows at which its known end changes."""
        moved: Longs = np.flatnonzero(self._own)[np.diff(self._end) != 0]
        return moved

    def end_after(self) -> Longs:
        return self._end[self._after]

    def cu_after(self) -> Longs:
        return self._cu[self._after]

    def end_before(self, rows: Longs) -> Longs:
        return self._end[self._before[rows]]

    def cu_before(self, rows: Longs) -> Longs:
        return self._cu[self._before[rows]]

    def bytes_of(self, rows: BulkRows, count: int) -> int:
        """Bytes that it fetched in the first `count` rows."""
        size = rows.bytes[:count][self._own[:count]]
        return int(size[size != ABSENT].sum())

    def move(self, rows: int) -> None:
        """Moves the state past so many rows."""
        fetches = int(self._after[rows - 1])
        state = self._state
        state.leo, state.cu = int(self._end[fetches]), int(self._cu[fetches])
        state.ll, state.ft = int(self._ll[fetches]), int(self._ft[fetches])


class Stretch:
    """The rows from the first on that decide nothing: how many (`quiet`), and what they change.

    `led` has no write pending. `ticks` are the times of ticks that the broker did not write, in order; such a tick is
    due before the first row with a later `ts`.
    """

    def __init__(self, led: LedPartition, rows: BulkRows, *, ticks: Longs) -> None:
        self._led, self._rows, self._ticks = led, rows, ticks
        is_fetch = rows.kind == BulkKind.FETCH
        is_append = (rows.kind == BulkKind.APPEND) & (rows.leo != ABSENT)
        counts = is_fetch & ((rows.err == 0) | (rows.err == ABSENT)) & (rows.offset != ABSENT)
        counts &= (rows.epoch == ABSENT) | (rows.epoch == led.epoch)
        counts &= np.isin(rows.replica, list(led.followers))
        told = np.where(is_append | counts, rows.leo, ABSENT)
        self._leo = np.maximum.accumulate(np.maximum(told, led.leo))
        self._leo_before = np.append(led.leo, self._leo[:-1])
        is_max = led.profile.leader_end_is_max
        self._followers = {
            r: _FollowerColumns(state, rows, counts & (rows.replica == r), self._leo, leader_end_is_max=is_max)
            for r, state in led.followers.items()
        }
        implied = counts & (rows.leo > self._leo_before)
        self._hw_before, self._hw = self._high_watermarks(is_append, implied)
        self._ticks_at = np.searchsorted(np.maximum.accumulate(rows.ts), ticks, side="right")
        falls = np.flatnonzero(is_append & (rows.leo < self._leo_before))
        self.quiet = min(_first(falls, len(rows)), self._first_joining(counts), self._first_leaving())

    def _high_watermarks(self, is_append: Flags, implied: Flags) -> tuple[Longs, Longs]:
        """Before the check of each fetch, and after each row."""
        led, rows = self._led, self._rows
        if led.profile.min_isr_holds_hw and led.is_under_min_isr:
            still = np.full(len(rows), led.hw)
            return still, still
        at = is_append.copy()
        for follower in self._followers.values():
            at[follower.moves] = True
        after = self._leo.copy()
        for replica, follower in self._followers.items():
            self._hold(after, replica, follower.end_after(), follower.cu_after(), rows.ts)
        risen = np.where(at, after, led.hw)
        before = np.full(len(rows), led.hw)
        # A fetch row that tells a later end of the log tells of an append that was not written down.
        where = np.flatnonzero(implied)
        least = self._leo[where]
        for replica, follower in self._followers.items():
            self._hold(least, replica, follower.end_before(where), follower.cu_before(where), rows.ts[where])
        before[where] = least
        hw = np.maximum.accumulate(np.maximum(np.maximum(risen, before), led.hw))
        return np.maximum(before, np.append(led.hw, hw[:-1])), hw

    def _hold(self, least: Longs, replica: BrokerId, ends: Longs, cu: Longs, ts: Longs) -> None:
        """Lowers `least` to the replica's ends where it holds the high watermark."""
        led = self._led
        if replica in led.maximal_isr:
            np.minimum(least, ends, out=least)
        elif not led.profile.outsider_must_be_alive or self._is_alive(replica):
            np.minimum(least, ends, out=least, where=ts - cu <= led.lag_time_max_ms)

    def _is_alive(self, replica: BrokerId) -> bool:
        return self._led.alive is None or replica in self._led.alive

    def _first_joining(self, counts: Flags) -> int:
        led, rows = self._led, self._rows
        outside = [
            r for r in led.followers if r not in led.isr and (not led.profile.expand_needs_alive or self._is_alive(r))
        ]
        if not outside:
            return len(rows)
        joins = counts & np.isin(rows.replica, outside)
        joins &= (rows.offset >= self._hw_before) & (rows.offset >= led.epoch_start)
        return _first(np.flatnonzero(joins), len(rows))

    def _first_leaving(self) -> int:
        """The row before which, or at which, a tick may find a member that must leave."""
        led, rows = self._led, self._rows
        within = self._ticks_at < len(rows)
        written = np.flatnonzero(rows.kind == BulkKind.TICK)
        at = np.concatenate((self._ticks_at[within], written))
        ts = np.concatenate((self._ticks[within], rows.ts[written]))
        first = len(rows)
        for replica in led.isr:
            if replica == led.leader:
                continue
            if replica not in self._followers:
                return int(at.min(initial=first))
            follower = self._followers[replica]
            lags = follower.end_before(at) != self._leo_before[at]
            out = at[lags & (ts - follower.cu_before(at) > led.lag_time_max_ms)]
            first = int(out.min(initial=first))
        return first

    # -- what the quiet rows do ------------------------------------------------------------------------------------

    def apply(self) -> None:
        """Moves the partition past the quiet rows."""
        if not self.quiet:
            return
        self._led.leo = int(self._leo[self.quiet - 1])
        self._led.hw = int(self._hw[self.quiet - 1])
        for follower in self._followers.values():
            follower.move(self.quiet)

    @cached_property
    def high_watermarks(self) -> list[int]:
        """Every value that the high watermark rises to, in order. To be asked before `apply`."""
        hw = self._hw[: self.quiet]
        values: list[int] = hw[np.diff(hw, prepend=self._led.hw) > 0].tolist()
        return values

    @property
    def told_high_watermarks(self) -> list[int]:
        """What the broker wrote of it."""
        rows = self._rows[: self.quiet]
        values: list[int] = rows.hw[(rows.kind == BulkKind.HW) & (rows.hw != ABSENT)].tolist()
        return values

    def first_fetch_ms(self, replica: BrokerId) -> int | None:
        """When the replica was heard of first, if it was."""
        follower = self._followers.get(replica)
        if follower is None or follower.first_row >= self.quiet:
            return None
        return int(self._rows.ts[follower.first_row])

    def bytes_fetched(self, replica: BrokerId) -> int:
        """Bytes that the replica fetched."""
        follower = self._followers.get(replica)
        return 0 if follower is None else follower.bytes_of(self._rows, self.quiet)

    @property
    def last_ts(self) -> int:
        """The latest time in the quiet rows, of which there is at least one."""
        return int(self._rows.ts[: self.quiet].max())

    @property
    def next_tick_ms(self) -> int | None:
        """The first of `ticks` that is not before the quiet rows' end; None when all are."""
        later = self._ticks[self._ticks_at >= self.quiet]
        return int(later[0]) if len(later) else None


def _first(found: npt.NDArray[np.intp], otherwise: int) -> int:
    return int(found[0]) if len(found) else otherwise
