"""The records of one partition, in the order of the log, to its changes. Pure, streaming.

A PartitionRecord is a whole state; a PartitionChangeRecord is what changed, and adds 1 to the partition's epoch, and 1
to the leader's epoch where it names a leader. A snapshot is a state without history: it is taken where nothing is
known, and held against what is known where something is. What a gap hides is unknown, not empty. Source: apache/kafka
`PartitionRegistration.merge`, `TopicDelta`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from broker_sim.replay.metadata_log.causes import Beside, Cause, Ids, State, cause_of


class Kind:
    """What an `Entry` is; `Change.event` has those that change something, and `UNKNOWN`."""

    SNAPSHOT: Final = "snapshot"
    CREATED: Final = "created"
    CHANGED: Final = "changed"
    ELR_CLEARED: Final = "elr_cleared"
    DELETED: Final = "deleted"
    #: what follows is not known until the next state
    UNKNOWN: Final = "unknown"
    #: a change of a partition whose state is not known
    WITHOUT_STATE: Final = "without_state"


class Entry(NamedTuple):
    """A record that concerns the partition; what it does not change is None. A snapshot's `offset` is its end."""

    offset: int
    ts: int
    controller_epoch: int
    kind: str
    leader: int | None = None
    leader_epoch: int | None = None
    partition_epoch: int | None = None
    isr: list[int] | None = None
    replicas: list[int] | None = None
    adding: list[int] | None = None
    removing: list[int] | None = None
    elr: list[int] | None = None
    last_known_elr: list[int] | None = None
    recovering: int | None = None
    #: brokers that records with the same append time fence, let shut down, register
    fenced: list[int] | None = None
    stopping: list[int] | None = None
    registered: list[int] | None = None


class Change(NamedTuple):
    """A version of the partition's state: what it was, what it is, who made it so."""

    offset: int
    ts: int
    controller_epoch: int
    event: str
    cause: str
    leader: int | None = None
    leader_epoch: int | None = None
    partition_epoch: int | None = None
    isr_old: list[int] | None = None
    isr: list[int] | None = None
    replicas: list[int] | None = None
    adding: list[int] | None = None
    removing: list[int] | None = None
    elr: list[int] | None = None
    last_known_elr: list[int] | None = None
    recovering: bool | None = None
    leader_epoch_old: int | None = None
    is_reassigned: bool | None = None


class Checked(NamedTuple):
    """A partition of a snapshot beside the state that the log leads to: `what` differs, nothing where it is empty."""

    offset: int
    what: str


class Gap(NamedTuple):
    """Offsets [start, end) that no file has; `ts`: the last append time before it."""

    start: int
    end: int
    ts: int


class Snapshot(NamedTuple):
    """A snapshot that can be used: the offset after it, and the append time of its last record."""

    offset: int
    ts: int


#: What the log lacks of a partition that the snapshot has, and the other way round.
NOT_IN_LOG: Final = "not in the log"
NOT_IN_SNAPSHOT: Final = "not in the snapshot"
_COMPARED: Final = (
    "leader",
    "leader_epoch",
    "partition_epoch",
    "isr",
    "replicas",
    "adding",
    "removing",
    "elr",
    "last_known_elr",
    "recovering",
)


@dataclass(slots=True)
class PartitionFold:
    """One partition. Feed it its entries ordered by (`offset`, snapshots first), then `finish`; drain the two lists.

    `gaps` and `snapshots` are those of the log, ordered; `first_offset` is where its history begins.
    """

    gaps: Sequence[Gap] = ()
    snapshots: Sequence[Snapshot] = ()
    first_offset: int = 0
    changes: list[Change] = field(default_factory=list)
    checked: list[Checked] = field(default_factory=list)
    _state: State | None = None
    #: history is complete up to here, so that what is not known is not there
    _complete: bool = field(init=False)
    _gap: int = 0
    _snapshot: int = 0

    def __post_init__(self) -> None:
        self._complete = self.first_offset == 0

    def feed(self, entry: Entry) -> None:
        """Takes the next record."""
        self._pass(entry.offset, is_told=entry.kind == Kind.SNAPSHOT)
        match entry.kind:
            case Kind.SNAPSHOT:
                self._hold_against(entry)
            case Kind.CREATED:
                self._become(entry, _whole(entry), Kind.CREATED, Cause.CREATION)
            case Kind.DELETED:
                self._delete(entry)
            case Kind.ELR_CLEARED:
                self._clear_elr(entry)
            case _ if self._state is None:
                self._say(entry, Kind.WITHOUT_STATE, Cause.UNKNOWN)
            case _:
                after = _changed(self._state, entry)
                self._become(entry, after, Kind.CHANGED, cause_of(self._state, after, _beside(entry)))

    def finish(self) -> None:
        """The log is over."""
        self._pass(None, is_told=False)

    def _clear_elr(self, entry: Entry) -> None:
        """Of the partitions of the topic only those change that had eligible leader replicas."""
        was = self._state
        if was is not None and (was.elr or was.last_known_elr):
            cleared = replace(was, elr=(), last_known_elr=(), partition_epoch=was.partition_epoch + 1)
            self._become(entry, cleared, Kind.CHANGED, Cause.ELR_CLEARED)

    def _pass(self, until: int | None, *, is_told: bool) -> None:
        """Takes the gaps and snapshots up to an offset, in order; a snapshot at `until` itself only where the
        partition's entry in it does not come now (`is_told`)."""
        while True:
            gap = self.gaps[self._gap] if self._gap < len(self.gaps) else None
            snapshot = self.snapshots[self._snapshot] if self._snapshot < len(self.snapshots) else None
            limit = min((at for at in (until, snapshot and snapshot.offset) if at is not None), default=None)
            if gap is not None and (limit is None or gap.end <= limit):
                self._gap += 1
                self._forget(gap)
            elif snapshot is not None and (until is None or snapshot.offset <= until):
                self._snapshot += 1
                if is_told and snapshot.offset == until:
                    return
                self._absent(snapshot)
            else:
                return

    def _forget(self, gap: Gap) -> None:
        self._complete = False
        if self._state is not None:
            self._state = None
            self.changes.append(Change(gap.start, gap.ts, -1, Kind.UNKNOWN, Cause.UNKNOWN))

    def _absent(self, snapshot: Snapshot) -> None:
        """The snapshot does not have the partition."""
        if self._state is not None:
            self.checked.append(Checked(snapshot.offset, NOT_IN_SNAPSHOT))
        self._complete = True

    def _hold_against(self, entry: Entry) -> None:
        fields = _whole(entry)
        was, complete = self._state, self._complete
        self._complete = True
        if was is None and not complete:
            self._become(entry, fields, Kind.SNAPSHOT, Cause.UNKNOWN)
            return
        what = NOT_IN_LOG if was is None else " ".join(n for n in _COMPARED if _differs(was, fields, n))
        self.checked.append(Checked(entry.offset, what))
        if what:
            self._become(entry, fields, Kind.SNAPSHOT, Cause.UNKNOWN)

    def _delete(self, entry: Entry) -> None:
        if self._state is not None:
            self._say(entry, Kind.DELETED, Cause.DELETION)
        self._state, self._complete = None, True

    def _say(self, entry: Entry, event: str, cause: str) -> None:
        self.changes.append(Change(entry.offset, entry.ts, entry.controller_epoch, event, cause))

    def _become(self, entry: Entry, after: State, event: str, cause: str) -> None:
        before, self._state = self._state, after
        self.changes.append(
            Change(
                offset=entry.offset,
                ts=entry.ts,
                controller_epoch=entry.controller_epoch,
                event=event,
                cause=cause,
                leader=after.leader,
                leader_epoch=after.leader_epoch,
                partition_epoch=after.partition_epoch,
                isr_old=None if before is None else list(before.isr),
                isr=list(after.isr),
                replicas=list(after.replicas),
                adding=list(after.adding),
                removing=list(after.removing),
                elr=list(after.elr),
                last_known_elr=list(after.last_known_elr),
                recovering=after.recovering,
                leader_epoch_old=None if before is None else before.leader_epoch,
                is_reassigned=before is None or _assignment(before) != _assignment(after),
            )
        )


def _assignment(state: State) -> tuple[Ids, Ids, Ids]:
    return state.replicas, state.adding, state.removing


def _differs(a: State, b: State, name: str) -> bool:
    """Kafka keeps no order of an ISR; that of the replicas means something."""
    left, right = getattr(a, name), getattr(b, name)
    return bool(set(left) != set(right) if name in ("isr", "elr", "last_known_elr") else left != right)


def _whole(entry: Entry) -> State:
    return State(
        leader=_or(entry.leader, -1),
        leader_epoch=_or(entry.leader_epoch, -1),
        partition_epoch=_or(entry.partition_epoch, -1),
        isr=tuple(entry.isr or ()),
        replicas=tuple(entry.replicas or ()),
        adding=tuple(entry.adding or ()),
        removing=tuple(entry.removing or ()),
        elr=tuple(entry.elr or ()),
        last_known_elr=tuple(entry.last_known_elr or ()),
        recovering=entry.recovering == 1,
    )


def _changed(state: State, entry: Entry) -> State:
    def ids(name: str) -> Ids:
        value = getattr(entry, name)
        return getattr(state, name) if value is None else tuple(value)

    return State(
        leader=_or(entry.leader, state.leader),
        leader_epoch=state.leader_epoch + (entry.leader is not None),
        partition_epoch=state.partition_epoch + 1,
        isr=ids("isr"),
        replicas=ids("replicas"),
        adding=ids("adding"),
        removing=ids("removing"),
        elr=ids("elr"),
        last_known_elr=ids("last_known_elr"),
        recovering=state.recovering if entry.recovering in (None, -1) else entry.recovering == 1,
    )


def _beside(entry: Entry) -> Beside:
    return Beside(
        fenced=tuple(entry.fenced or ()), stopping=tuple(entry.stopping or ()), registered=tuple(entry.registered or ())
    )


def _or(value: int | None, other: int) -> int:
    return other if value is None else value
