"""From the changes of one partition to windows, catch-ups, flaps and reassignments. Pure, streaming, no Spark.

The rows of a partition go in ordered by time. State znode epochs and versions decide where clocks of brokers disagree:
a row that is older than what is known changes nothing. Windows are half-open [from, to); those still open at the end of
the trace are closed there and marked. Source: isr-replay.md §5, §6, §9.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from broker_sim.replay.absences import Absences
from broker_sim.replay.facts import REPLICA_DELETED, STATE_UNKNOWN, DerivedRow, FactRow, WindowKind
from broker_sim.replay.open_spans import OpenReassignment, OpenWindow
from broker_sim.replay.rows import LeftBy, OutcomeKind
from controller.wire.trace import TraceEvent

#: A replica that comes back later than this after it was removed did not flap (§9).
FLAP_WINDOW_MS: Final = 300_000
#: The rate at which a replica would have had to fetch is that to be back within this time (§9).
REJOIN_WITHIN_MS: Final = 60_000


@dataclass(slots=True)
class PartitionHistory:
    """Folds the facts of one partition, ordered by (`ts`, epoch, version). Take `rows` whenever you like."""

    rows: list[DerivedRow] = field(default_factory=list)
    _leader: int | None = None
    _leader_up: bool = True
    _epoch: int = -1
    _version: int = -1
    _isr: tuple[int, ...] = ()
    _replicas: tuple[int, ...] = ()
    _adding: tuple[int, ...] = ()
    _removing: tuple[int, ...] = ()
    _min_isr: int = 1
    _is_known: bool = False
    #: who led last, though it may not any more
    _last_leader: int | None = None
    #: the topic was deleted: what follows is of no life, until a new one begins
    _is_deleted: bool = False
    _open: dict[WindowKind, OpenWindow] = field(default_factory=dict)
    _left: dict[int, tuple[int, LeftBy]] = field(default_factory=dict)
    _reassignment: OpenReassignment | None = None
    _source: str | None = None
    _absences: Absences = field(default_factory=Absences)

    def feed(self, row: FactRow) -> None:
        """Takes the next fact; one of an older epoch or version changes nothing."""
        if self._is_deleted:
            if not _begins_a_life(row):
                return
            self._is_deleted = False
        if (handle := _FACTS.get(row.kind)) is not None:
            self._source = row.source
            handle(self, row)
            self._evaluate(row.ts)

    def finish(self, end_ts: int) -> None:
        """The trace ends: open windows are closed at `end_ts` and marked, the last reassignment is told."""
        for kind in list(self._open):
            self._close(kind, end_ts, is_open=True)
        self.rows.extend(self._absences.finish(end_ts))
        self._tell_reassignment()

    def _end(self, ts: int, *, is_open: bool = False) -> None:
        """The partition's life is over: windows end, and nothing of it is carried into another life of that name."""
        for kind in list(self._open):
            self._close(kind, ts, is_open=is_open)
        self.rows.extend(self._absences.finish(ts) if is_open else self._absences.now(ts, (), leader=None))
        self._tell_reassignment(ended_ms=ts)
        fresh = PartitionHistory()
        for name in ("_leader", "_leader_up", "_epoch", "_version", "_isr", "_replicas", "_adding", "_removing"):
            setattr(self, name, getattr(fresh, name))
        self._is_known, self._last_leader, self._is_deleted = False, None, True
        self._left.clear()

    def _unknown(self, row: FactRow) -> None:
        """What follows is in no file: windows are left open there, and the next state is taken as it comes."""
        self._end(row.ts, is_open=True)
        self._is_deleted = False

    # -- facts ---------------------------------------------------------------------------------------------------

    def _elected(self, row: FactRow) -> None:
        if row.epoch is None or not self._is_news(row):
            return
        self._set_isr(row, by=LeftBy.CONTROLLER)
        self._leader = row.replica if row.replica is not None and row.replica >= 0 else None
        self._last_leader = self._last_leader if self._leader is None else self._leader
        self._leader_up, self._is_known = True, True

    def _led(self, row: FactRow) -> None:
        if row.epoch is None or row.epoch < self._epoch:
            return
        if self._is_news(row):
            self._set_isr(row, by=LeftBy.CONTROLLER)
        self._leader = self._last_leader = row.leader
        self._leader_up, self._is_known = True, True
        if row.replicas:
            self._assign(row)

    def _isr_changed(self, row: FactRow) -> None:
        if row.epoch is not None and row.epoch < self._epoch:
            return
        if row.zk_version is not None and row.epoch == self._epoch and row.zk_version <= self._version:
            return
        if row.kind == OutcomeKind.SHRINK.value and (running := self._running()) is not None:
            gone = set(row.isr_old or ()) - set(row.isr or ())
            running.original_shrinks += len(gone & running.originals)
        self._set_isr(row, by=LeftBy.LEADER)

    def _assigned(self, row: FactRow) -> None:
        if row.replicas:
            self._assign(row)

    def _leader_down(self, row: FactRow) -> None:
        if row.leader == self._leader and (row.epoch is None or row.epoch >= self._epoch):
            self._leader_up = False

    def _deleted(self, row: FactRow) -> None:
        self._end(row.ts)

    def _replica_deleted(self, row: FactRow) -> None:
        """Of a moved replica, unless it is the one that led last: no move takes the leader's before another leads."""
        if row.leader is not None and row.leader == self._last_leader:
            self._end(row.ts)

    def _set_min_isr(self, row: FactRow) -> None:
        if row.amount is not None:
            self._min_isr = row.amount

    def _copied(self, row: FactRow) -> None:
        if self._reassignment is not None:
            self._reassignment.copied += row.amount or 0

    def _caught_up(self, row: FactRow) -> None:
        """A replica joined. Where its leader does not know when it left, the history of the partition does."""
        replica, left_ms, by, cu = row.replica or 0, row.left_ms, row.left_by, row.cu
        if by == LeftBy.BEFORE.value and replica in self._left:
            left_ms, left_by = self._left[replica]
            by = left_by.value
        first, joined = row.first_fetch_ms, row.joined_ms
        self.rows.append(
            DerivedRow(
                table="catch_up",
                replica=replica,
                leader=row.leader,
                leader_epoch=row.epoch,
                from_ts=left_ms,
                to_ts=joined,
                is_open=joined is None,
                left_by=by,
                first_fetch_ts=first,
                catch_up_ms=_span(first, joined),
                outage_ms=_span(cu, first),
                out_of_isr_ms=_span(left_ms, joined),
                cu_min=row.cu_min,
                cu_max=row.cu_max,
                backlog_records=row.backlog_records,
                backlog_bytes=row.backlog_bytes,
                ingress_bytes_per_second=row.ingress_bytes_per_second,
                needed_bytes_per_second=_needed(row),
                # Without fetches (the rules were off) the times are those of log lines.
                source="log" if row.cu_min is not None and first is None and joined is not None else row.source,
            )
        )
        if (
            by == LeftBy.LEADER.value
            and joined is not None
            and left_ms is not None
            and joined - left_ms <= FLAP_WINDOW_MS
        ):
            self.rows.append(
                DerivedRow(
                    table="flaps",
                    replica=replica,
                    leader=row.leader,
                    leader_epoch=row.epoch,
                    from_ts=left_ms,
                    to_ts=joined,
                    out_of_isr_ms=joined - left_ms,
                )
            )

    # -- state ---------------------------------------------------------------------------------------------------

    def _is_news(self, row: FactRow) -> bool:
        epoch, version = row.epoch if row.epoch is not None else self._epoch, row.zk_version
        return epoch > self._epoch or (epoch == self._epoch and version is not None and version > self._version)

    def _set_isr(self, row: FactRow, *, by: LeftBy) -> None:
        isr = tuple(row.isr or ())
        if row.epoch is not None and row.epoch > self._epoch:
            self._epoch, self._version = row.epoch, -1
        if row.zk_version is not None:
            self._version = row.zk_version
        if (moving := self._running()) is not None:
            moving.state_writes += 1
            moving.isr_writes += by is LeftBy.LEADER
        for gone in set(self._isr) - set(isr):
            self._left[gone] = (row.ts, by)
        self._isr = isr
        if (running := self._running()) is not None and running.condition is None and running.target <= set(isr):
            running.condition = row.ts

    def _assign(self, row: FactRow) -> None:
        self._replicas = tuple(row.replicas or ())
        self._adding, self._removing = tuple(row.adding or ()), tuple(row.removing or ())
        running = self._running()
        if self._adding or self._removing:
            if running is None or (running.replicas, running.removing) != (self._replicas, self._removing):
                self._tell_reassignment()
                self._reassignment = OpenReassignment(
                    started=row.ts, replicas=self._replicas, adding=self._adding, removing=self._removing
                )
                if self._reassignment.target <= set(self._isr):
                    self._reassignment.condition = row.ts
        elif running is not None:
            running.finished = row.ts

    def _running(self) -> OpenReassignment | None:
        r = self._reassignment
        return r if r is not None and r.finished is None else None

    def _tell_reassignment(self, ended_ms: int | None = None) -> None:
        """`ended_ms`: the topic was deleted, which ends a move that is under way."""
        r, self._reassignment = self._reassignment, None
        if r is None:
            return
        took = _span(r.started, r.finished)
        self.rows.append(
            DerivedRow(
                table="reassignments",
                from_ts=r.started,
                condition_ts=r.condition,
                to_ts=r.finished,
                is_open=r.finished is None and ended_ms is None,
                replicas=list(r.replicas),
                adding=list(r.adding),
                removing=list(r.removing),
                out_of_isr_ms=took,
                copied_bytes=r.copied,
                bytes_per_second=r.copied * 1000 / took if took else None,
                original_shrinks=r.original_shrinks,
                state_writes=r.state_writes,
                isr_writes=r.isr_writes,
            )
        )

    # -- windows -------------------------------------------------------------------------------------------------

    def _evaluate(self, ts: int) -> None:
        for kind in _BY_STATE:
            self._set_window(kind, ts, holds=self._is_known and self._holds(kind))
        missing = self._originals - set(self._isr) if self._is_known else ()
        self.rows.extend(self._absences.now(ts, missing, leader=self._leader))

    def _holds(self, kind: WindowKind) -> bool:
        led = self._leader is not None and self._leader_up
        match kind:
            case WindowKind.OFFLINE:
                return not led
            case WindowKind.UNDER_REPLICATED:
                return led and self._deficit > 0
            case WindowKind.UNDER_MIN_ISR:
                return led and len(self._isr) < self._min_isr
            case WindowKind.AT_MIN_ISR:
                return led and len(self._isr) == self._min_isr
            case WindowKind.REASSIGNING:
                return bool(self._adding or self._removing)
            case WindowKind.ORIGINAL_MISSING:
                return bool(self._adding) and bool(self._originals - set(self._isr))
            case WindowKind.HW_STALLED:
                return False  # told by the lane

    @property
    def _originals(self) -> set[int]:
        return set(self._replicas) - set(self._adding)

    @property
    def _deficit(self) -> int:
        return max(0, len(self._replicas) - len(self._adding) - len(self._isr))

    def _set_window(self, kind: WindowKind, ts: int, *, holds: bool) -> None:
        window = self._open.get(kind)
        if holds and window is None:
            self._open[kind] = OpenWindow(
                since=ts,
                leader=self._leader,
                epoch=self._epoch,
                isr=self._isr,
                counted_to=ts,
                source=self._source,
            )
        elif not holds and window is not None:
            self._close(kind, ts, is_open=False)
        if holds:
            self._open[kind].count(ts, self._deficit)

    def _close(self, kind: WindowKind, ts: int, *, is_open: bool) -> None:
        window = self._open.pop(kind)
        window.count(ts, 0)
        if ts <= window.since and not is_open:
            return
        self.rows.append(
            DerivedRow(
                table="windows",
                window=kind.value,
                from_ts=window.since,
                to_ts=max(ts, window.since),
                is_open=is_open,
                missing=window.deepest,
                deficit_ms=window.deficit_ms,
                isr=list(window.isr),
                leader=window.leader,
                leader_epoch=window.epoch,
                source=window.source,
            )
        )

    def _hw_stalled(self, row: FactRow) -> None:
        self.rows.append(
            DerivedRow(
                table="windows",
                window=WindowKind.HW_STALLED.value,
                from_ts=row.left_ms,
                to_ts=row.joined_ms,
                is_open=False,
                missing=self._deficit,
                deficit_ms=0,
                isr=list(self._isr),
                leader=row.leader,
                leader_epoch=row.epoch,
                source=row.source,
            )
        )


#: Windows that follow from the state; the others are told.
_BY_STATE: Final = tuple(kind for kind in WindowKind if kind is not WindowKind.HW_STALLED)


def _begins_a_life(row: FactRow) -> bool:
    """Whether a row after the deletion of a topic is of a new one: leader epochs begin at 0."""
    is_first = row.kind in (TraceEvent.ELECT.value, TraceEvent.LEADER.value) and row.epoch == 0
    return is_first or row.kind == TraceEvent.ASSIGN.value


def _needed(row: FactRow) -> float | None:
    """Bytes per second to be back within `REJOIN_WITHIN_MS` of the first fetch: what comes in, and the backlog."""
    if row.backlog_bytes is None:
        return None
    return (row.ingress_bytes_per_second or 0.0) + row.backlog_bytes * 1000 / REJOIN_WITHIN_MS


def _span(start: int | None, end: int | None) -> int | None:
    return None if start is None or end is None else end - start


_FACTS: Final[dict[str, Callable[[PartitionHistory, FactRow], Any]]] = {
    TraceEvent.ELECT.value: PartitionHistory._elected,
    TraceEvent.LEADER.value: PartitionHistory._led,
    TraceEvent.ASSIGN.value: PartitionHistory._assigned,
    TraceEvent.DELETE.value: PartitionHistory._deleted,
    REPLICA_DELETED: PartitionHistory._replica_deleted,
    STATE_UNKNOWN: PartitionHistory._unknown,
    OutcomeKind.SHRINK.value: PartitionHistory._isr_changed,
    OutcomeKind.EXPAND.value: PartitionHistory._isr_changed,
    OutcomeKind.LEADER_DOWN.value: PartitionHistory._leader_down,
    OutcomeKind.MIN_ISR.value: PartitionHistory._set_min_isr,
    OutcomeKind.COPIED.value: PartitionHistory._copied,
    OutcomeKind.CATCH_UP.value: PartitionHistory._caught_up,
    OutcomeKind.HW_STALLED.value: PartitionHistory._hw_stalled,
}
