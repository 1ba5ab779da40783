"""Appends to a partition and the fetches of its followers, as columns. Pure; numpy arrays of int64, times in ms.

A healthy follower fetches once after each append, some slots later, at the offset that the append ended at; while
nothing is appended it asks again every half second, of which a trace keeps the first and the last.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from broker_sim.replay.generator.plan import SLOTS, ClusterPlan

Longs = npt.NDArray[np.int64]

#: The first append comes so long after the start.
FIRST_APPEND_MS: Final = 3_000
#: A follower waits so long for data that does not come (`replica.fetch.wait.max.ms` is 500), in whole slots.
WAIT_MS: Final = 63 * SLOTS
#: Fetches of a follower that catches up: how many, and how far apart.
CATCH_UP_FETCHES: Final = 8
CATCH_UP_STEP_MS: Final = 8 * SLOTS
#: A throttled follower's fetches, and the part of what it lacks that each brings.
SLOW_STEP_MS: Final = 125 * SLOTS
SLOW_PART: Final = 0.3
#: The most slots between an append and the fetch that shows it was fetched.
_DELAY_SLOTS_MAX: Final = 4


def aligned(ms: int, slot: int) -> int:
    """The first time from `ms` on that falls into the slot."""
    return ms + (slot - ms) % SLOTS


@dataclass(frozen=True, slots=True)
class Appends:
    """Appends in order: when, where the log ended then, how many bytes. Never two in one ms."""

    ts: Longs
    leo: Longs
    size: Longs

    def leo_at(self, ts: Longs) -> Longs:
        """Where the log ended at each of `ts`, appends of the same ms included; 0 before the first."""
        return np.concatenate((np.zeros(1, np.int64), self.leo))[np.searchsorted(self.ts, ts, side="right")]

    def leo_after(self, ts: int) -> int:
        """The same for one time."""
        return int(self.leo_at(np.array([ts], np.int64))[0])

    def within(self, from_ms: int, to_ms: int) -> slice:
        """The appends in [`from_ms`, `to_ms`)."""
        return slice(*(int(i) for i in np.searchsorted(self.ts, [from_ms, to_ms], side="left")))


def draw_appends(plan: ClusterPlan, index: int, *, quiet: Sequence[tuple[int, int]]) -> Appends:
    """What producers write to the partition with this index; nothing within the `quiet` times."""
    rng = np.random.default_rng([plan.seed, index])
    mean = plan.append_interval_ms / (plan.skew if index == 0 else 1.0)
    low, high = max(2, round(mean / 2 / SLOTS)), max(3, round(mean * 3 / 2 / SLOTS) + 1)
    first = aligned(plan.start_ms + FIRST_APPEND_MS, 0)
    count = round((plan.end_ms - first) / (SLOTS * (low + high - 1) / 2) * 1.1) + 16
    ts = first + SLOTS * np.cumsum(rng.integers(low, high, count))
    keep = ts < plan.end_ms
    for from_ms, to_ms in quiet:
        keep &= (ts < from_ms) | (ts >= to_ms)
    ts = ts[keep]
    records = rng.integers(1, plan.records_per_append_max + 1, len(ts))
    return Appends(ts, np.cumsum(records), records * plan.record_bytes)


@dataclass(frozen=True, slots=True)
class Fetches:
    """Fetches of one follower in order of arrival: when, which offset, where the leader's log ended just then.

    `runs` is how many equal fetches a row stands for.
    """

    ts: Longs
    offset: Longs
    leo: Longs
    runs: Longs
    throttled: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.ts)


class Follower:
    """Fetches of one follower of one leader in one term, built stretch by stretch. Not reusable."""

    def __init__(self, appends: Appends, *, slot: int, position: int, chance: random.Random) -> None:
        """`position` is where the follower's log ends; `slot` the one that its fetches fall into."""
        self.position = position
        self._appends, self._slot, self._chance = appends, slot, chance
        self._parts: list[tuple[Longs, Longs, Longs, npt.NDArray[np.bool_]]] = []

    def follow(self, from_ms: int, to_ms: int, *, steps: int = CATCH_UP_FETCHES) -> None:
        """Fetches all it can in [`from_ms`, `to_ms`): what it lacks first, in so many `steps`, then each append."""
        at = aligned(from_ms + SLOTS, self._slot)
        leo = self._appends.leo_after(at)
        start, ts, offsets = self.position, [at], [self.position]
        if leo > start:
            for k in range(1, steps + 1):
                end_seen, at = self._appends.leo_after(at), at + CATCH_UP_STEP_MS
                ts.append(at)
                offsets.append(start + (end_seen - start) * k // steps)
            end_seen, at = self._appends.leo_after(at), at + SLOTS
            ts.append(at)
            offsets.append(end_seen)
        self._add(ts, offsets, to_ms)
        self._keep_up(at, to_ms)

    def _keep_up(self, after_ms: int, to_ms: int) -> None:
        which = self._appends.within(after_ms - SLOTS * _DELAY_SLOTS_MAX, to_ms)
        appended, ends = self._appends.ts[which], self._appends.leo[which]
        rng = np.random.default_rng(self._chance.randrange(1 << 62))
        ts = appended + self._slot + SLOTS * rng.integers(0, _DELAY_SLOTS_MAX + 1, len(appended))
        grid = SLOTS * np.arange(len(ts))
        ts = np.maximum.accumulate(ts - grid) + grid
        later = (ts > after_ms) & (ends > self.position)
        self._add(ts[later], ends[later], to_ms)

    def crawl(self, from_ms: int, to_ms: int) -> None:
        """Fetches less than is produced in [`from_ms`, `to_ms`)."""
        ts, offsets = [], []
        at, offset = aligned(from_ms, self._slot), self.position
        while at < to_ms:
            ts.append(at)
            offsets.append(offset)
            offset += int((self._appends.leo_after(at) - offset) * SLOW_PART)
            at += SLOW_STEP_MS
        self._add(ts, offsets, to_ms, throttled=True)

    def _add(
        self, ts: Sequence[int] | Longs, offsets: Sequence[int] | Longs, to_ms: int, *, throttled: bool = False
    ) -> None:
        times, at = np.asarray(ts, np.int64), np.asarray(offsets, np.int64)
        inside = times < to_ms
        times, at = times[inside], at[inside]
        if len(times):
            self._parts.append((times, at, np.full(len(times), to_ms), np.full(len(times), throttled)))
            self.position = int(at[-1])

    def fetches(self) -> Fetches:
        """All of them, with the last of each run of waits."""
        if not self._parts:
            none = np.zeros(0, np.int64)
            return Fetches(none, none, none, none, np.zeros(0, np.bool_))
        ts, offset, until = (np.concatenate([part[i] for part in self._parts]) for i in range(3))
        throttled = np.concatenate([part[3] for part in self._parts])
        leo = self._appends.leo_at(ts)
        # A wait ends with the next append, the follower's own next fetch, or when it stops fetching.
        appended = np.append(self._appends.ts, until[-1])[np.searchsorted(self._appends.ts, ts, side="right")]
        ends = np.minimum(np.minimum(appended, until), np.append(ts[1:], until[-1]))
        waits = np.where(offset >= leo, (ends - 1 - ts) // WAIT_MS, 0)
        again = np.flatnonzero(waits > 0)
        all_ts = np.concatenate((ts, ts[again] + WAIT_MS * waits[again]))
        order = np.argsort(all_ts, kind="stable")
        row = np.concatenate((np.arange(len(ts)), again))[order]
        runs = np.concatenate((np.ones(len(ts), np.int64), waits[again]))[order]
        return Fetches(all_ts[order], offset[row], leo[row], runs, throttled[row])
