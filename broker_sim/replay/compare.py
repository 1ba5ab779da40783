"""Derived against emitted ISR changes of one lane, one membership change at a time. Pure.

The rules never see an emitted change; only this file does. A derived and an emitted change belong together when they
move the same replica the same way within `tolerance_ms`; the nearest in time wins. An expansion may be emitted later,
and what was derived while a write was on its way, once that has returned (isr-replay.md §3.5), however long that took:
what was given up counts again then. A refused attempt belongs to its leader epoch alone: it is told when it returns, by
when the next epoch may have changes of its own.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from broker_sim.replay.rows import Outcome, OutcomeKind
from controller.wire.types import BrokerId

#: How far apart in time a derived change and its emitted twin may be, at most. A write that is on its way defers
#: another one by up to 1.8 s (isr-replay.md §3.5); logs do not tell for how long.
TOLERANCE_MS: Final = 2_000
#: After this long without a twin a change is given up: rows come in the broker's order, so its twin would have come,
#: but for a write that takes longer, such as one that waits for ZooKeeper.
PATIENCE_MS: Final = 60_000
#: A change decided this short before the last sign of a process may have been under way when it ended: nothing tells.
UNFINISHED_MS: Final = 200
#: How many derived changes that were given up are remembered.
LATE_REMEMBERED: Final = 64
#: How many refused attempts are remembered.
REFUSED_REMEMBERED: Final = 64
#: How many writes are remembered with the time when they returned.
WRITES_REMEMBERED: Final = 64
#: How many high watermarks wait for their twin: a row may stand some events before or after the one that moved it.
HW_REMEMBERED: Final = 256


@dataclass(slots=True, kw_only=True)
class _Change:
    ts: int
    epoch: int
    kind: str
    replica: BrokerId
    err: int = 0
    #: What is told of it if its twin does not come any more.
    verdict: OutcomeKind = OutcomeKind.SPURIOUS


@dataclass(slots=True, kw_only=True)
class Comparison:
    """Pairs changes as they come; `outcomes` is where its outcomes go."""

    outcomes: list[Outcome]
    tolerance_ms: int = TOLERANCE_MS
    _derived: list[_Change] = field(default_factory=list)
    _emitted: list[_Change] = field(default_factory=list)
    _late: list[_Change] = field(default_factory=list)
    _refused: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=REFUSED_REMEMBERED))
    _writes: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=WRITES_REMEMBERED))
    _hw_derived: deque[int] = field(default_factory=lambda: deque(maxlen=HW_REMEMBERED))
    _hw_emitted: deque[int] = field(default_factory=lambda: deque(maxlen=HW_REMEMBERED))
    _hw_rows: int = 0
    _hw_agree: int = 0

    def derived(self, *, ts: int, epoch: int, kind: str, replicas: tuple[BrokerId, ...]) -> None:
        """The rules changed the ISR."""
        for replica in replicas:
            change = _Change(ts=ts, epoch=epoch, kind=kind, replica=replica)
            if not self._pair(change, self._emitted):
                self._derived.append(change)

    def emitted(self, *, ts: int, epoch: int, kind: str, replica: BrokerId, err: int, done: int | None) -> None:
        """The broker wrote that it changed the ISR, or tried to (`err` 95); `done`: when it had the answer."""
        if done is not None:
            self._writes.append((ts, done))
        if err:
            self._refused.append((epoch, ts))
        change = _Change(ts=ts, epoch=epoch, kind=kind, replica=replica, err=err)
        if not self._pair(change, self._derived) and not self._pair(change, self._late):
            self._emitted.append(change)

    def _pair(self, change: _Change, other: list[_Change]) -> bool:
        """Whether it has a twin among the others. The twin leaves them, and what became of both is told."""
        is_emitted = other is not self._emitted

        def sides(twin: _Change) -> tuple[_Change, _Change]:
            return (change, twin) if is_emitted else (twin, change)

        same = [c for c in other if c.replica == change.replica and c.kind == change.kind and self._belong(*sides(c))]
        if not same:
            return False
        twin = min(same, key=lambda c: abs(c.ts - change.ts))
        other.remove(twin)
        emitted, derived = sides(twin)
        kind = OutcomeKind.REFUSED if emitted.err else OutcomeKind.MATCHED
        self._add(kind, emitted, error_ms=emitted.ts - derived.ts)
        return True

    def _belong(self, emitted: _Change, derived: _Change) -> bool:
        if emitted.err and emitted.epoch != derived.epoch:
            return False
        late = emitted.ts - derived.ts
        if emitted.kind == OutcomeKind.EXPAND.value and emitted.epoch == derived.epoch and 0 <= late <= PATIENCE_MS:
            # While a write is on its way no other replica joins; it does with its next fetch, whenever that comes.
            return True
        free = max((done for ts, done in self._writes if ts <= derived.ts <= done), default=derived.ts)
        return -self.tolerance_ms <= late and emitted.ts - free <= self.tolerance_ms

    def _add(self, kind: OutcomeKind, change: _Change, *, error_ms: int | None = None) -> None:
        self.outcomes.append(
            Outcome(
                kind=kind.value,
                ts=change.ts,
                epoch=change.epoch,
                replica=change.replica,
                change=change.kind,
                error_ms=error_ms,
            )
        )

    def give_up_before(self, ts: int) -> None:
        """Changes older than `ts` find no twin any more: missing where emitted; where derived, spurious unless a write
        that began by then returns yet."""
        for change in [c for c in self._emitted if c.ts < ts]:
            self._emitted.remove(change)
            # An attempt that was refused changed nothing: whether the rules make it, too, is a matter of a race.
            self._add(OutcomeKind.REFUSED if change.err else OutcomeKind.MISSING, change)
        for change in [c for c in self._derived if c.ts < ts]:
            self._derived.remove(change)
            change.verdict = OutcomeKind.REFUSED if self._follows_refusal(change) else OutcomeKind.SPURIOUS
            self._late.append(change)
        self._tell_all_but(LATE_REMEMBERED)

    def _tell_all_but(self, count: int) -> None:
        while len(self._late) > count:
            change = self._late.pop(0)
            self._add(change.verdict, change)

    def _follows_refusal(self, change: _Change) -> bool:
        """After a refused write a leader tries no other in that epoch; the rules, which wrote, go on."""
        return any(epoch == change.epoch and ts <= change.ts for epoch, ts in self._refused)

    def process_ended(self, last_ts: int) -> None:
        """The broker was last heard of at `last_ts`: what it decided just before may be written, but not told."""
        for change in [c for c in self._derived if c.ts > last_ts - UNFINISHED_MS]:
            self._derived.remove(change)
            self._add(OutcomeKind.REFUSED, change)

    @property
    def waiting(self) -> bool:
        """Whether a change waits for its twin."""
        return bool(self._derived or self._emitted)

    def hw_derived(self, hw: int) -> None:
        """The rules moved the high watermark."""
        if hw in self._hw_emitted:
            self._hw_emitted.remove(hw)
            self._hw_agree += 1
        self._hw_derived.append(hw)

    def hw_emitted(self, hw: int) -> None:
        """The broker wrote its high watermark."""
        self._hw_rows += 1
        if hw in self._hw_derived:
            self._hw_agree += 1
        else:
            self._hw_emitted.append(hw)

    def hw_stretch(self, *, derived: npt.NDArray[np.int64], emitted: npt.NDArray[np.int64]) -> None:
        """Many high watermarks at once, each in order; those of a stretch may pair wherever they stand in it."""
        self._hw_rows += len(emitted)
        if len(emitted):
            is_paired = np.isin(emitted, np.append(derived, np.array(self._hw_derived, np.int64)))
            self._hw_agree += int(is_paired.sum())
            emitted = emitted[~is_paired]
        if self._hw_emitted and (late := {*derived.tolist()} & {*self._hw_emitted}):
            for hw in late:
                self._hw_emitted.remove(hw)
            self._hw_agree += len(late)
        self._hw_derived.extend(derived[-HW_REMEMBERED:].tolist())
        self._hw_emitted.extend(emitted[-HW_REMEMBERED:].tolist())

    def finish(self, *, ts: int, epoch: int) -> None:
        """The lane ends: nothing more will come."""
        self.give_up_before(ts + PATIENCE_MS)
        self._tell_all_but(0)
        if self._hw_rows:
            kind = OutcomeKind.HW.value
            self.outcomes.append(Outcome(kind=kind, ts=ts, epoch=epoch, amount=self._hw_agree, total=self._hw_rows))
            self._hw_rows = self._hw_agree = 0
