"""Many rows of one lane at once, as columns, as far as they decide nothing. Pure; numpy.

Nearly all rows of a trace are appends and fetches of followers that are in sync: they move offsets and times, and the
rules (`broker_sim.isr`) decide nothing. `Stretch` finds how many rows from the first on are such, by the column form of
the rules (`broker_sim.isr_columns`), and moves the state of the partition past them. The row at which something may be
decided (a replica joins, a tick finds one that must leave) is left to the row form: every decision is its.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from broker_sim.isr import LedPartition
from broker_sim.isr_columns import Flags, FollowerColumns, Longs, high_watermarks, is_out_of_sync
from controller.wire.trace import TraceEvent
from controller.wire.types import BrokerId

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

    def before(self, ts: int) -> BulkRows:
        """The rows before the first with a time of `ts` or later."""
        return self.at(slice(0, _first(np.flatnonzero(self.ts >= ts), len(self))))

    def with_appends(self, implied: Flags) -> BulkRows:
        """The same, where flagged rows are appends of unknown size."""
        if not implied.any():
            return self
        kind, size = np.where(implied, BulkKind.APPEND, self.kind), np.where(implied, ABSENT, self.bytes)
        return replace(self, kind=kind, bytes=size)


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
        of = {replica: counts & (rows.replica == replica) for replica in led.followers}
        counts = _any(of.values(), len(rows))
        leo = self._ends(rows, counts)
        # A fetch that tells a later end of the log tells of an append that was not written down: it gets a row.
        of_fetches = np.flatnonzero(counts & (rows.leo > np.append(led.log_end_offset, leo[:-1])))
        self._original = np.insert(np.arange(len(rows)), of_fetches, of_fetches)
        if len(of_fetches):
            implied = np.insert(np.zeros(len(rows), np.bool_), of_fetches, True)
            rows = rows.at(self._original).with_appends(implied)
            of = {replica: fetches[self._original] & ~implied for replica, fetches in of.items()}
            counts = counts[self._original] & ~implied
            leo = self._ends(rows, counts)
        self._rows, self._counts, self._leo = rows, counts, leo
        self._appends: Flags = (rows.kind == BulkKind.APPEND) & (rows.leo != ABSENT)
        self._leo_before = np.append(led.log_end_offset, leo[:-1])
        self._followers = {
            replica: FollowerColumns(
                state,
                fetches=of[replica],
                ts=rows.ts,
                offset=rows.offset,
                leader_end=self._leo,
                leader_end_is_max=led.profile.leader_end_is_max,
            )
            for replica, state in led.followers.items()
        }
        self._hw = high_watermarks(
            led, ts=rows.ts, leader_end=self._leo, appends=self._appends, followers=self._followers
        )
        self._ticks_at = np.searchsorted(np.maximum.accumulate(rows.ts), ticks, side="right")
        falls = np.flatnonzero(self._appends & (rows.leo < self._leo_before))
        outside = _any((fetches for replica, fetches in of.items() if replica not in led.isr), len(rows))
        ends = (falls, np.flatnonzero(outside), self._rows_of_leaving())
        cut = min(_first(at, len(rows)) for at in ends)
        #: how many of the rows that were given are quiet
        self.quiet = int(self._original[cut] if cut < len(rows) else self._original[-1] + 1) if len(rows) else 0
        self._cut = int(np.searchsorted(self._original, self.quiet, side="left"))

    def _ends(self, rows: BulkRows, counts: Flags) -> Longs:
        """Where the log ends after each row, by appends and by fetches that count."""
        ends = np.where((rows.kind == BulkKind.APPEND) | counts, rows.leo, ABSENT)
        highest: Longs = np.maximum.accumulate(np.maximum(ends, self._led.log_end_offset))
        return highest

    def _rows_of_leaving(self) -> Longs:
        """The rows before which, or at which, a tick finds a member that must leave."""
        led, (ts, at) = self._led, self._all_ticks(len(self._rows))
        leaving = [np.zeros(0, np.int64)]
        for replica in led.isr:
            if replica == led.leader:
                continue
            if replica not in self._followers:
                leaving.append(at)
            else:
                leaving.append(at[self._out_of_sync(replica, ts, at, led.lag_time_max_ms)])
        return np.sort(np.concatenate(leaving))

    def _out_of_sync(self, replica: BrokerId, ts: Longs, rows: Longs, limit_ms: int) -> Flags:
        """Whether a tick at each of `ts`, just before each of `rows`, finds this member out of sync."""
        follower = self._followers[replica]
        return is_out_of_sync(
            end=follower.end_before(rows),
            leader_end=self._leo_before[rows],
            caught_up=follower.caught_up_before(rows),
            now_ms=ts,
            lag_time_max_ms=limit_ms,
        )

    def _all_ticks(self, rows: int) -> tuple[Longs, Longs]:
        """Ticks due within so many rows: when, and before which row."""
        if not self._judges:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        within = self._ticks_at < rows
        written = np.flatnonzero(self._rows.kind[:rows] == BulkKind.TICK)
        ts = np.concatenate((self._ticks[within], self._rows.ts[written]))
        return ts, np.concatenate((self._ticks_at[within], written))

    # -- what the quiet rows do ------------------------------------------------------------------------------------

    def apply(self) -> None:
        """Moves the partition past the quiet rows."""
        if not self._cut:
            return
        self._led.log_end_offset = int(self._leo[self._cut - 1])
        self._led.high_watermark = int(self._hw[self._cut - 1])
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

    @property
    def bytes_appended(self) -> int:
        """As far as rows tell."""
        size = self._rows.bytes[: self._cut][self._appends[: self._cut]]
        return int(size[size != ABSENT].sum())

    def bytes_fetched(self, replicas: Iterable[BrokerId]) -> tuple[int, int]:
        """Bytes that these replicas fetched, and the time of the last row with any; 0 and 0 if none has."""
        own = self._counts[: self._cut] & np.isin(self._rows.replica[: self._cut], list(replicas))
        size = self._rows.bytes[: self._cut]
        own &= (size != ABSENT) & (size != 0)
        return int(size[own].sum()), int(self.ts[own][-1]) if own.any() else 0

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
                follower = self._followers[replica]
                lags = follower.end_before(at) != self._leo_before[at]
                if lags.any():
                    yield replica, self._led.lag_time_max_ms - int((ts - follower.caught_up_before(at))[lags].max())

    def first_silence(self, limit_ms: int) -> int:
        """The first quiet row at which a member lags and was last caught up longer ago than this; their number if none.

        Tells what a tick at the time of that row, just before it, would find.
        """
        rows = np.arange(self._cut)
        first = self._cut
        for replica in self._led.isr:
            if replica in self._followers:
                silent = self._out_of_sync(replica, self.ts, rows, limit_ms)
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
        return self._led.followers[replica].log_end_offset != self._led.log_end_offset

    def caught_up(self, replica: BrokerId) -> int:
        """When a follower was last caught up, after all quiet rows."""
        return int(self._followers[replica].caught_up_after()[self._cut - 1])

    @property
    def high_watermarks(self) -> Longs:
        """Every value that the high watermark rises to, in order."""
        values: Longs = self.hw[np.diff(self.hw, prepend=self._led.high_watermark) > 0]
        return values

    @property
    def written_high_watermarks(self) -> Longs:
        """What the broker wrote of it."""
        hw = self._rows.hw[: self._cut]
        values: Longs = hw[(self._rows.kind[: self._cut] == BulkKind.HW) & (hw != ABSENT)]
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


def _any(flags: Iterable[Flags], rows: int) -> Flags:
    found = np.zeros(rows, np.bool_)
    for each in flags:
        found |= each
    return found


def _first(rows: npt.NDArray[np.intp], otherwise: int) -> int:
    return int(rows[0]) if len(rows) else otherwise
