"""What must happen to the ISR during one term of one leader, told from whole columns. Pure.

This is the truth that the rules (`broker_sim/isr.py`, `isr_columns.py`) are held against, so it shares no line with
them on purpose. The statements are those of Kafka's code, put as formulas over all fetches and ticks of the term:
* a follower was last caught up at the latest fetch that asked for the leader's end, or at the fetch before the latest
  one that asked for what had been the end then;
* at a tick a member leaves that is not at the end and was last caught up longer ago than `replica.lag.time.max.ms`, or
  that is not assigned any more, as between the two last steps of a reassignment;
* a replica joins with its first fetch at or above the high watermark and the start of the leader's epoch;
* the high watermark is the most that the least of the ends of all members, and of those others that were caught up in
  time, has ever been; below `min.insync.replicas` it stands still.

At most one replica may be outside the ISR at a time. Source: isr-replay.md §3 (rules of Kafka 3.7 to 3.9).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from broker_sim.replay.generator.traffic import Appends, Fetches, Longs
from controller.wire.types import BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One epoch of one leader, in [`from_ms`, `to_ms`). `took_over`: it did not lead before."""

    leader: BrokerId
    epoch: int
    from_ms: int
    to_ms: int
    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    isr: tuple[BrokerId, ...]
    epoch_start: int
    took_over: bool
    hw: int
    tick_phase_ms: int
    #: log ends of the followers as the leader knows them at the start, -1 for one that it does not know.
    known_ends: Mapping[BrokerId, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A replica leaves or joins the ISR; `cu` is when it was last caught up."""

    ts: int
    joins: bool
    replica: BrokerId
    cu: int


@dataclass(frozen=True, slots=True)
class _Follower:
    """A follower's columns over the term, and what holds before its first fetch."""

    fetches: Fetches
    cu: Longs
    cu_before: int
    end_before: int

    def ends_at(self, ts: Longs) -> Longs:
        ends: Longs = np.append(self.end_before, self.fetches.offset)
        return ends[self._fetches_before(ts)]

    def cu_at(self, ts: Longs) -> Longs:
        cu: Longs = np.append(self.cu_before, self.cu)
        return cu[self._fetches_before(ts)]

    def moves(self) -> Longs:
        """When its known end changed: only then does a fetch touch the high watermark."""
        moved: Longs = self.fetches.ts[np.diff(self.fetches.offset, prepend=self.end_before) != 0]
        return moved

    def _fetches_before(self, ts: Longs) -> Longs:
        count: Longs = np.searchsorted(self.fetches.ts, ts, side="right")
        return count


def _follower(term: Term, replica: BrokerId, fetches: Fetches) -> _Follower:
    member = replica in term.isr
    cu_before = term.from_ms if member else 0
    fetched_before = term.from_ms if member and not term.took_over else 0
    end_then = -1 if term.took_over else term.epoch_start
    earlier_fetch = np.append(fetched_before, fetches.ts[:-1])
    earlier_end = np.append(end_then, np.maximum.accumulate(fetches.leo)[:-1])
    if not len(fetches):
        earlier_fetch, earlier_end = fetches.ts, fetches.ts
    reached = np.where(
        fetches.offset >= fetches.leo, fetches.ts, np.where(fetches.offset >= earlier_end, earlier_fetch, 0)
    )
    cu = np.maximum.accumulate(np.append(cu_before, reached))[1:]
    end_before = -1 if term.took_over else term.known_ends.get(replica, -1)
    return _Follower(fetches, cu, cu_before, end_before)


class TermTruth:
    """What follows for a term from its traffic. `changes` in order; `hw` and `isr` at its end."""

    def __init__(
        self,
        term: Term,
        appends: Appends,
        fetches: Mapping[BrokerId, Fetches],
        *,
        lag_time_max_ms: int,
        min_insync_replicas: int,
    ) -> None:
        self._term, self._lag = term, lag_time_max_ms
        self._min_isr = min(min_insync_replicas, len(term.replicas))
        self._appends = appends
        self._followers = {r: _follower(term, r, f) for r, f in fetches.items()}
        period = lag_time_max_ms // 2
        first = term.tick_phase_ms + -(-(term.from_ms - term.tick_phase_ms) // period) * period
        self._ticks = np.arange(first, term.to_ms, period, dtype=np.int64)
        of_appends = appends.ts[appends.within(term.from_ms, term.to_ms)]
        self._events = np.unique(np.concatenate([of_appends, *(f.moves() for f in self._followers.values())]))
        self.changes: list[Change] = []
        self.isr = term.isr
        self.hw = self._hw(term.hw, term.from_ms - 1, term.from_ms)
        self._evaluate()

    def _evaluate(self) -> None:
        now = self._term.from_ms - 1
        for change in self._each_change():
            if change.ts < now:
                raise AssertionError(f"two replicas of {self._term} outside the ISR at once")
            self.changes.append(change)
            now = change.ts
        self.hw = self._hw(self.hw, now, self._term.to_ms - 1)

    def _each_change(self) -> Iterator[Change]:
        now = self._term.from_ms - 1
        while True:
            outside = [r for r in self._followers if r not in self.isr]
            if len(outside) > 1:
                raise AssertionError(f"two replicas of {self._term} outside the ISR at once")
            change = self._joining(outside[0], now) if outside else self._leaving(now)
            if change is None:
                return
            if change.joins:
                self.hw = self._hw(self.hw, now, change.ts - 1)
                self.isr = (*self.isr, change.replica)
            else:
                self.hw = self._hw(self.hw, now, change.ts)
                self.isr = tuple(r for r in self.isr if r != change.replica)
            # The write is a reason of its own to look at the high watermark.
            self.hw = max(self.hw, self._hw_at(np.array([change.ts], np.int64), self.hw)[0])
            now = change.ts
            yield change

    def _leaving(self, after_ms: int) -> Change | None:
        ticks = self._ticks[self._ticks > after_ms]
        leos = self._appends.leo_at(ticks)
        unassigned = [r for r in self.isr if r != self._term.leader and r not in self._followers]
        found = [Change(ts=int(t), joins=False, replica=r, cu=0) for r in unassigned for t in ticks[:1]]
        for replica, follower in self._followers.items():
            cu = follower.cu_at(ticks)
            out = np.flatnonzero((follower.ends_at(ticks) != leos) & (ticks - cu > self._lag))
            if len(out):
                at = int(out[0])
                found.append(Change(ts=int(ticks[at]), joins=False, replica=replica, cu=int(cu[at])))
        return min(found, key=lambda c: c.ts, default=None)

    def _joining(self, replica: BrokerId, after_ms: int) -> Change | None:
        follower = self._followers[replica]
        later = np.flatnonzero(follower.fetches.ts > after_ms)
        if not len(later):
            return None
        ts, offset = follower.fetches.ts[later], follower.fetches.offset[later]
        events = self._events[self._events > after_ms]
        highest = np.append(self.hw, np.maximum.accumulate(self._hw_at(events, self.hw)))
        before = highest[np.searchsorted(events, ts, side="left")]
        joins = np.flatnonzero((offset >= before) & (offset >= self._term.epoch_start))
        if not len(joins):
            return None
        at = int(joins[0])
        return Change(ts=int(ts[at]), joins=True, replica=replica, cu=int(follower.cu[later[at]]))

    def _hw(self, hw: int, after_ms: int, to_ms: int) -> int:
        """The high watermark at `to_ms`, with the ISR as it is since `after_ms`, when it was `hw`."""
        events = self._events[(self._events > after_ms) & (self._events <= to_ms)]
        return int(max(hw, self._hw_at(events, hw).max(initial=hw)))

    def _hw_at(self, ts: Longs, hw: int) -> Longs:
        """What the high watermark is raised to at each of `ts`, if it is lower."""
        if len(self.isr) < self._min_isr:
            return np.full(len(ts), hw)
        least = self._appends.leo_at(ts)
        for replica, follower in self._followers.items():
            ends = follower.ends_at(ts)
            holds = (replica in self.isr) | (ts - follower.cu_at(ts) <= self._lag)
            least = np.where(holds, np.minimum(least, ends), least)
        return np.maximum(least, hw)
