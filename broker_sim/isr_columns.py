"""Who is in sync, over whole columns: the rules of `isr.py` for many rows, or many followers, at once. Pure; numpy.

Each function is one rule of `LedPartition`, named in its docstring; nothing here decides what is written. The row form
is the rule, and this form must give the same for every row. The oracle is tests/unit/replay/rules/test_stretch.py: it
compares all state and every outcome of both on random rows. That of the modelled fetches is
tests/unit/replay/what_if/test_fetch_rate.py.

Offsets count records, times are ms on the leader's clock. Source: spec isr-replay.md §3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from broker_sim.isr import Follower, LedPartition
from controller.wire.types import BrokerId

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
#: Whole numbers, or what a model divides.
Numbers = npt.NDArray[Any]

#: A time before all others.
NEVER: Final = int(np.iinfo(np.int64).min)


def caught_up_as_of(
    ts: Numbers, offset: Numbers, *, leader_end: Numbers | float, leader_end_before: Numbers, fetched_before: Numbers
) -> Numbers:
    """As of when each fetch shows its follower caught up, `NEVER` where it does not: `LedPartition.fetch`, §3.3.

    `leader_end_before` and `fetched_before` are where the leader's log ended at the follower's fetch before, and when
    that was.
    """
    return np.where(offset >= leader_end, ts, np.where(offset >= leader_end_before, fetched_before, NEVER))


def is_out_of_sync(
    *, end: Numbers, leader_end: Numbers | float, caught_up: Numbers, now_ms: Numbers | float, lag_time_max_ms: int
) -> Flags:
    """Whether a tick at `now_ms` finds a member that must leave: `LedPartition.out_of_sync`, §3.4."""
    out: Flags = (end != leader_end) & (now_ms - caught_up > lag_time_max_ms)
    return out


class FollowerColumns:
    """One follower through its fetches that count: what a leader knows of it before and after each row."""

    def __init__(
        self, state: Follower, *, fetches: Flags, ts: Longs, offset: Longs, leader_end: Longs, leader_end_is_max: bool
    ) -> None:
        """Columns of equal length; `fetches` flags the rows that are fetches of this follower and count.

        `leader_end_is_max`: as in `Profile`.
        """
        self._state = state
        self._fetches = fetches
        at = np.flatnonzero(fetches)
        ts, offset, leader_end = ts[at], offset[at], leader_end[at]
        ends = np.append(state.last_fetch_leader_log_end_offset, leader_end)
        self._leader_ends = np.maximum.accumulate(ends) if leader_end_is_max else ends
        self._fetch_times = np.append(state.last_fetch_time_ms, ts)
        reached = caught_up_as_of(
            ts,
            offset,
            leader_end=leader_end,
            leader_end_before=self._leader_ends[:-1],
            fetched_before=self._fetch_times[:-1],
        )
        self._caught_up = np.maximum.accumulate(np.append(state.last_caught_up_time_ms, reached))
        self._end = np.append(state.log_end_offset, offset)
        self._after: Longs = np.cumsum(fetches)
        self._before: Longs = self._after - fetches

    @property
    def moves(self) -> Longs:
        """The rows at which its log end offset, as the leader knows it, changes."""
        moved: Longs = np.flatnonzero(self._fetches)[np.diff(self._end) != 0]
        return moved

    def end_after(self) -> Longs:
        """Its log end offset after each row."""
        return self._end[self._after]

    def caught_up_after(self) -> Longs:
        """lastCaughtUpTimeMs after each row."""
        return self._caught_up[self._after]

    def end_before(self, rows: Longs) -> Longs:
        """Its log end offset before each of these rows."""
        return self._end[self._before[rows]]

    def caught_up_before(self, rows: Longs) -> Longs:
        """lastCaughtUpTimeMs before each of these rows."""
        return self._caught_up[self._before[rows]]

    def move(self, rows: int) -> None:
        """Moves the state past so many rows, at least one."""
        fetches = int(self._after[rows - 1])
        state = self._state
        state.log_end_offset = int(self._end[fetches])
        state.last_caught_up_time_ms = int(self._caught_up[fetches])
        state.last_fetch_leader_log_end_offset = int(self._leader_ends[fetches])
        state.last_fetch_time_ms = int(self._fetch_times[fetches])


def high_watermarks(
    led: LedPartition, *, ts: Longs, leader_end: Longs, appends: Flags, followers: Mapping[BrokerId, FollowerColumns]
) -> Longs:
    """The high watermark after each row, from `led` on: `LedPartition.advance_hw`, §3.6.

    It is looked at anew with every append and every move of a follower's end. The ISR stays as it is.
    """
    if led.profile.min_isr_holds_hw and led.is_under_min_isr:
        return np.full(len(ts), led.high_watermark)
    touched, least = appends.copy(), leader_end.copy()
    for replica, follower in followers.items():
        touched[follower.moves] = True
        if replica in led.maximal_isr:
            np.minimum(least, follower.end_after(), out=least)
        elif not led.profile.outsider_must_be_alive or led.is_alive(replica):
            in_time = ts - follower.caught_up_after() <= led.lag_time_max_ms
            np.minimum(least, follower.end_after(), out=least, where=in_time)
    raised = np.where(touched, least, led.high_watermark)
    highest: Longs = np.maximum.accumulate(np.maximum(raised, led.high_watermark))
    return highest
