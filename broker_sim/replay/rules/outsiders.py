"""Replicas outside the ISR, as one lane sees them: since when, why, how far they have copied, when they are back. Pure.

Source: isr-replay.md §9 (catch-up duration, copy progress, needed fetch rate).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from broker_sim.isr import LedPartition
from broker_sim.replay.rows import LaneRow, LeftBy, Outcome, OutcomeKind
from broker_sim.replay.rules.measures import Measures
from controller.wire.types import BrokerId

#: Progress of a replica that catches up is reported in about so many steps, and not more often than this.
PROGRESS_STEPS: Final = 20
PROGRESS_EVERY_MS: Final = 100


@dataclass(slots=True, kw_only=True)
class Outside:
    """Since when and why a replica is outside the ISR, and when it was heard of first."""

    left_ms: int
    by: LeftBy
    #: lastCaughtUpTimeMs when it left; where that is not known, between which times it was
    cu: int | None
    cu_between: tuple[int, int] | None = None
    first_fetch_ms: int | None = None
    start: int = 0
    backlog_records: int | None = None
    backlog_bytes: int | None = None
    #: bytes that had been appended when it left
    appended_before: int = 0
    #: offset and time of the last progress that became an outcome
    reported: int = 0
    reported_ms: int = 0


@dataclass(slots=True)
class Outsiders:
    """All replicas of one led partition that are outside its ISR."""

    of: dict[BrokerId, Outside] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.of)

    def left(
        self,
        replica: BrokerId,
        ts: int,
        by: LeftBy,
        *,
        cu: int | None,
        cu_between: tuple[int, int] | None = None,
        appended: int,
    ) -> None:
        """A replica is outside from `ts` on. `appended`: bytes that had been appended by then."""
        self.of[replica] = Outside(left_ms=ts, by=by, cu=cu, cu_between=cu_between, appended_before=appended)

    def led_anew(
        self,
        led: LedPartition,
        ts: int,
        *,
        before: dict[BrokerId, int],
        before_isr: tuple[BrokerId, ...],
        took_over: bool,
        appended: int,
    ) -> None:
        """A LeaderAndIsr was taken: who is outside now. `before`: lastCaughtUpTimeMs of each follower until then."""
        outside = {r for r in led.followers if r not in led.isr}
        for replica in self.of.keys() - outside:
            del self.of[replica]
        for replica in outside - self.of.keys():
            by, cu = LeftBy.CONTROLLER, before.get(replica) if replica in before_isr else None
            if replica in led.adding:
                by, cu = LeftBy.ADDED, None
            elif took_over:
                by, cu = LeftBy.BEFORE, None
            self.left(replica, ts, by, cu=cu or None, appended=appended)

    def set_by_controller(self, led: LedPartition, row: LaneRow, *, appended: int) -> None:
        """In KRaft the controller changes an ISR within the leader's epoch, too: a later version of it is taken."""
        if row.isr is None or row.epoch != led.epoch or (row.zk_version or 0) <= led.partition_epoch:
            return
        before_isr, before = led.isr, {r: state.last_caught_up_time_ms for r, state in led.followers.items()}
        led.isr, led.partition_epoch = tuple(map(BrokerId, row.isr)), row.zk_version or 0
        self.led_anew(led, row.ts, before=before, before_isr=before_isr, took_over=False, appended=appended)

    def fetched(self, led: LedPartition, row: LaneRow, measures: Measures) -> Outcome | None:
        """A fetch of a replica that may be outside: its first, then every step that is large enough, is progress."""
        outside = self.of.get(BrokerId(row.replica)) if row.replica is not None else None
        if outside is None:
            return None
        offset, target = row.offset or 0, max(led.epoch_start, led.high_watermark)
        if outside.first_fetch_ms is None:
            outside.first_fetch_ms, outside.start = row.ts, offset
            outside.backlog_records = max(0, led.log_end_offset - offset)
            outside.backlog_bytes = measures.size_of(outside.backlog_records)
        elif (
            offset - outside.reported < max(1, (target - outside.start) // PROGRESS_STEPS)
            or row.ts - outside.reported_ms < PROGRESS_EVERY_MS
        ):
            return None
        outside.reported, outside.reported_ms = offset, row.ts
        return Outcome(
            kind=OutcomeKind.PROGRESS.value,
            ts=row.ts,
            epoch=led.epoch,
            replica=row.replica,
            left_ms=outside.start,
            amount=offset,
            total=target,
        )

    def joined(self, replica: BrokerId, ts: int, *, epoch: int, measures: Measures) -> Outcome | None:
        """A replica is a member again; the outcome of its absence, if it was outside."""
        outside = self.of.pop(replica, None)
        return None if outside is None else _catch_up(replica, outside, ts, ts, epoch, measures)

    def still_outside(self, ts: int, *, epoch: int, measures: Measures) -> list[Outcome]:
        """The outcomes of those who are outside when the lane ends."""
        return [_catch_up(r, outside, ts, None, epoch, measures) for r, outside in sorted(self.of.items())]

    def clear(self) -> None:
        """The broker does not lead any more."""
        self.of.clear()


def _catch_up(
    replica: BrokerId, outside: Outside, ts: int, joined_ms: int | None, epoch: int, measures: Measures
) -> Outcome:
    return Outcome(
        kind=OutcomeKind.CATCH_UP.value,
        ts=ts,
        epoch=epoch,
        replica=replica,
        cu=outside.cu,
        cu_min=outside.cu_between[0] if outside.cu_between else outside.cu,
        cu_max=outside.cu_between[1] if outside.cu_between else outside.cu,
        left_ms=outside.left_ms,
        left_by=outside.by.value,
        first_fetch_ms=outside.first_fetch_ms,
        joined_ms=joined_ms,
        backlog_records=outside.backlog_records,
        backlog_bytes=outside.backlog_bytes,
        ingress_bytes_per_second=measures.ingress(outside.left_ms, ts, outside.appended_before),
    )
