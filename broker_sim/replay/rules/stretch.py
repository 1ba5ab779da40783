"""Many rows of one lane at once, as columns, as far as they decide nothing. Pure; numpy.

Nearly all rows of a trace are appends and fetches of followers that are in sync: they move offsets and times, and the
rules (`broker_sim.isr`) decide nothing. `Stretch` finds how many rows from the first on are such, by the same rules
put as formulas over whole columns, and moves the state of the partition past them. The row at which something may be
decided (a replica joins, a tick finds one that must leave) is left to the rules themselves: every decision is theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
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

    def at(self, rows: slice | Longs) -> BulkRows:
        """Some of the rows."""
        return BulkRows(*(getattr(self, name)[rows] for name in self.__slots__))

    def with_appends(self, made_up: Flags) -> BulkRows:
        """The same, where flagged rows are appends of unknown size."""
        if not made_up.any():
            return self
        kind, size = np.where(made_up, BulkKind.APPEND, self.kind), np.where(made_up, ABSENT, self.bytes)
        return replace(self, kind=kind, bytes=size)


class _FollowerColumns:
    """One follower's fetches that count, and what is known of it before and after each row."""

    def __init__(self, state: Follower, rows: BulkRows, own: Flags, leo: Longs, *, leader_end_is_max: bool) -> None:
        self._state = state
        self._own = own
        at = np.flatnonzero(own)
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

    def move(self, rows: int) -> None:
        """Moves the state past so many rows."""
        fetches = int(self._after[rows - 1])
        state = self._state
        state.leo, state.cu = int(self._end[fetches]), int(self._cu[fetches])
        state.ll, state.ft = int(self._ll[fetches]), int(self._ft[fetches])


class Stretch:
    """The rows from the first on that decide nothing: how many (`quiet`), and what they change.

    `led` has no write pending. `ticks` are the times of ticks that the broker did not write, in order; such a tick is
    due before the first row with a later `ts`. A fetch of a replica outside the ISR ends a stretch: each is an attempt
    to join, and a step worth telling.
    """

    def __init__(self, led: LedPartition, rows: BulkRows, *, ticks: Longs, judges: bool = True) -> None:
        """`judges`: ticks are to be looked at."""
        self._led, self._ticks, self._judges = led, ticks, judges
        counts = (rows.kind == BulkKind.FETCH) & ((rows.err == 0) | (rows.err == ABSENT)) & (rows.offset != ABSENT)
        counts &= (rows.epoch == ABSENT) | (rows.epoch == led.epoch)
        counts &= np.isin(rows.replica, list(led.followers))
        told = np.where((rows.kind == BulkKind.APPEND) | counts, rows.leo, ABSENT)
        known = np.append(led.leo, np.maximum.accumulate(np.maximum(told, led.leo))[:-1])
        # A fetch that tells a later end of the log tells of an append that was not written down: it gets a row.
        implied = np.flatnonzero(counts & (rows.leo > known))
        self._original = np.insert(np.arange(len(rows)), implied, implied)
        self._made_up = np.insert(np.zeros(len(rows), np.bool_), implied, True)
        self._counts = counts = counts[self._original] & ~self._made_up
        self._rows = rows = rows.at(self._original).with_appends(self._made_up)
        self._leo = np.maximum.accumulate(np.maximum(np.where(self._appends | counts, rows.leo, ABSENT), led.leo))
        self._leo_before = np.append(led.leo, self._leo[:-1])
        is_max = led.profile.leader_end_is_max
        self._followers = {
            r: _FollowerColumns(state, rows, counts & (rows.replica == r), self._leo, leader_end_is_max=is_max)
            for r, state in led.followers.items()
        }
        self._hw = self._high_watermarks()
        self._ticks_at = np.searchsorted(np.maximum.accumulate(rows.ts), ticks, side="right")
        falls = np.flatnonzero(self._appends & (rows.leo < self._leo_before))
        outside = np.isin(rows.replica, [r for r in led.followers if r not in led.isr])
        ends = (falls, np.flatnonzero(counts & outside), self._rows_of_leaving())
        cut = min(_first(found, len(rows)) for found in ends)
        #: how many of the rows that were given are quiet
        self.quiet = len(self._original) and int(np.append(self._original, self._original[-1] + 1)[cut])
        self._cut = int(np.searchsorted(self._original, self.quiet, side="left"))

    @property
    def _appends(self) -> Flags:
        appends: Flags = (self._rows.kind == BulkKind.APPEND) & (self._rows.leo != ABSENT)
        return appends

    def _high_watermarks(self) -> Longs:
        """After each row."""
        led, ts = self._led, self._rows.ts
        if led.profile.min_isr_holds_hw and led.is_under_min_isr:
            return np.full(len(ts), led.hw)
        touched = self._appends
        least = self._leo.copy()
        for replica, follower in self._followers.items():
            touched[follower.moves] = True
            if replica in led.maximal_isr:
                np.minimum(least, follower.end_after(), out=least)
            elif not led.profile.outsider_must_be_alive or self._is_alive(replica):
                in_time = ts - follower.cu_after() <= led.lag_time_max_ms
                np.minimum(least, follower.end_after(), out=least, where=in_time)
        hw: Longs = np.maximum.accumulate(np.maximum(np.where(touched, least, led.hw), led.hw))
        return hw

    def _is_alive(self, replica: BrokerId) -> bool:
        return self._led.alive is None or replica in self._led.alive

    def _rows_of_leaving(self) -> Longs:
        """The rows before which, or at which, a tick finds a member that must leave."""
        led, (ts, at) = self._led, self._all_ticks(len(self._rows))
        found = [np.zeros(0, np.int64)]
        for replica in led.isr:
            if replica == led.leader:
                continue
            if replica not in self._followers:
                found.append(at)
                continue
            left, lags = self._headroom(replica, ts, at)
            found.append(at[lags & (left < 0)])
        return np.sort(np.concatenate(found))

    def _all_ticks(self, rows: int) -> tuple[Longs, Longs]:
        """Ticks due within so many rows: when, and before which row."""
        if not self._judges:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        within = self._ticks_at < rows
        written = np.flatnonzero(self._rows.kind[:rows] == BulkKind.TICK)
        ts = np.concatenate((self._ticks[within], self._rows.ts[written]))
        return ts, np.concatenate((self._ticks_at[within], written))

    def _headroom(self, replica: BrokerId, ts: Longs, at: Longs) -> tuple[Longs, Flags]:
        """For a member at ticks: how many ms are left to it, and whether it lags at all."""
        follower = self._followers[replica]
        lags: Flags = np.not_equal(follower.end_before(at), self._leo_before[at])
        return self._led.lag_time_max_ms - (ts - follower.cu_before(at)), lags

    # -- what the quiet rows do ------------------------------------------------------------------------------------

    def apply(self) -> None:
        """Moves the partition past the quiet rows."""
        if not self._cut:
            return
        self._led.leo = int(self._leo[self._cut - 1])
        self._led.hw = int(self._hw[self._cut - 1])
        for follower in self._followers.values():
            follower.move(self._cut)

    # What follows is to be asked before `apply`, and is of the quiet rows alone.

    @cached_property
    def ts(self) -> Longs:
        """When each row was; with the rows that were made up for appends that only fetches tell of."""
        return self._rows.ts[: self._cut]

    @cached_property
    def leo(self) -> Longs:
        """Where the log ends after each row."""
        return self._leo[: self._cut]

    @cached_property
    def hw(self) -> Longs:
        """The high watermark after each row."""
        return self._hw[: self._cut]

    @cached_property
    def rises(self) -> Longs:
        """The rows at which the high watermark rises."""
        rises: Longs = np.flatnonzero(np.diff(self.hw, prepend=self._led.hw) > 0)
        return rises

    @cached_property
    def grows(self) -> Longs:
        """The rows at which the log grows."""
        grows: Longs = np.flatnonzero(np.diff(self.leo, prepend=self._led.leo) > 0)
        return grows

    @property
    def bytes_appended(self) -> int:
        """As far as rows tell."""
        size = self._rows.bytes[: self._cut][self._appends[: self._cut]]
        return int(size[size != ABSENT].sum())

    def bytes_fetched(self, replica: BrokerId) -> int:
        """Bytes that the replica fetched."""
        own = self._counts[: self._cut] & (self._rows.replica[: self._cut] == replica)
        size = self._rows.bytes[: self._cut][own]
        return int(size[size != ABSENT].sum())

    @property
    def judged(self) -> Longs:
        """Appends, and fetches that count."""
        judged: Longs = np.flatnonzero(self._appends[: self._cut] | self._counts[: self._cut])
        return judged

    def members_end(self) -> Longs:
        """The least of the ends of the leader and the members, after each row."""
        least = self.leo.copy()
        for replica, follower in self._followers.items():
            if replica in self._led.isr:
                np.minimum(least, follower.end_after()[: self._cut], out=least)
        return least

    def headroom(self) -> Iterator[tuple[BrokerId, int]]:
        """How many ms were left at ticks, at least, to each member that was not at the end."""
        ts, at = self._all_ticks(self._cut)
        for replica in self._led.isr:
            if replica in self._followers:
                left, lags = self._headroom(replica, ts, at)
                if lags.any():
                    yield replica, int(left[lags].min())

    def first_silence(self, limit_ms: int) -> int:
        """The first quiet row at which a member lags and was last caught up longer ago than this; their number if none.

        Tells what a tick at the time of that row, just before it, would find.
        """
        rows = np.arange(self._cut)
        first = self._cut
        for replica in self._led.isr:
            if replica in self._followers:
                left, lags = self._headroom(replica, self.ts, rows)
                silent = lags & (left - self._led.lag_time_max_ms + limit_ms < 0)
                first = min(first, _first(np.flatnonzero(silent), self._cut))
        return first if first == self._cut else int(self._original[first])

    def lagging_since(self, replica: BrokerId) -> tuple[bool, int | None]:
        """Whether a follower was at the end after some quiet row; and since when it lags, if it began among them."""
        follower = self._followers[replica]
        lags = np.append(self._state_lags(replica), follower.end_after()[: self._cut] != self.leo)
        begins = np.flatnonzero(lags[1:] & ~lags[:-1])
        since = int(self.ts[begins[-1]]) if lags[-1] and len(begins) else None
        return not bool(lags[1:].all()), since

    def _state_lags(self, replica: BrokerId) -> bool:
        return self._led.followers[replica].leo != self._led.leo

    def caught_up(self, replica: BrokerId) -> int:
        """When a follower was last caught up, after all quiet rows."""
        return int(self._followers[replica].cu_after()[self._cut - 1])

    @property
    def high_watermarks(self) -> list[int]:
        """Every value that the high watermark rises to, in order."""
        values: list[int] = self.hw[self.rises].tolist()
        return values

    @property
    def told_high_watermarks(self) -> list[int]:
        """What the broker wrote of it."""
        hw = self._rows.hw[: self._cut]
        values: list[int] = hw[(self._rows.kind[: self._cut] == BulkKind.HW) & (hw != ABSENT)].tolist()
        return values

    @property
    def last_ts(self) -> int:
        """The latest time in the quiet rows, of which there is at least one."""
        return int(self.ts.max())

    @property
    def next_tick_ms(self) -> int | None:
        """The first of `ticks` that is not due within the quiet rows; None when all are."""
        later = self._ticks[self._ticks_at >= self._cut]
        return int(later[0]) if len(later) else None


def _first(found: npt.NDArray[np.intp], otherwise: int) -> int:
    return int(found[0]) if len(found) else otherwise
