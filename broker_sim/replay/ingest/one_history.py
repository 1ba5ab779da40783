"""What log files and the metadata log of one KRaft cluster tell of a partition, as one history. Pure.

The metadata log has each version of the ISR, its epochs and its time. The log files have what it lacks: how far the
replicas were that a leader put out (`lastCaughtUpTimeMs`, end offsets), high watermarks, writes that were refused,
when connections to a dead broker were lost. So rows of the metadata log stay and are filled; rows of log files that
tell the same once more go; where the metadata log knows nothing (before its first record, after its last, in a gap),
rows of log files stay as they are. What cannot both be true is a note, and the metadata log is believed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from broker_sim.replay.metadata_log.trace_rows import CREATED
from broker_sim.replay.schema import SRC_INFERRED, SRC_LOG
from controller.wire.trace import STOP_UNKNOWN, TraceEvent

Row = dict[str, Any]

#: Clocks of nodes differ by less than this.
CLOCKS_DIFFER_MS: Final = 1_000
#: Rows that both sides tell: those of log files are compared. Others of log files stay as they are.
COMPARED: Final = tuple(
    event.value
    for event in (
        TraceEvent.LEADER, TraceEvent.ELECT, TraceEvent.ASSIGN, TraceEvent.DELETE, TraceEvent.ISR_SHRINK,
        TraceEvent.ISR_EXPAND, TraceEvent.BROKER_UP, TraceEvent.BROKER_DOWN,
    )
)  # fmt: skip
_ISR_CHANGES: Final = (TraceEvent.ISR_SHRINK.value, TraceEvent.ISR_EXPAND.value)
_STATES: Final = (*_ISR_CHANGES, TraceEvent.ELECT.value, TraceEvent.LEADER.value)
_ALIVENESS: Final = (TraceEvent.BROKER_UP.value, TraceEvent.BROKER_DOWN.value)
#: What a row of the metadata log takes from the line that tells the same.
_FILLED: Final = {
    TraceEvent.ISR_SHRINK.value: ("cu", "offset", "leo", "hw"),
    TraceEvent.ISR_EXPAND.value: ("offset", "leo", "hw"),
    TraceEvent.LEADER.value: ("offset", "leo", "hw"),
    TraceEvent.BROKER_DOWN.value: ("done",),
}


class Note:
    """What became of a row of a log file; those of `CONTRADICTIONS` are notices."""

    #: the metadata log tells the same
    AGREES: Final = "agrees"
    #: a write that was refused: only log files tell of it
    REFUSED: Final = "refused"
    #: the metadata log knows nothing of that time
    OUTSIDE: Final = "outside"
    #: it tells nothing that could be compared
    LEFT_OUT: Final = "left_out"
    #: another leader, epoch or ISR for the same version, or another assignment
    CONTRADICTS: Final = "log_file_contradicts_metadata_log"
    #: a version that was never written
    NOT_WRITTEN: Final = "not_in_metadata_log"
    #: the leader says that it made a change that was taken for the controller's
    OTHER_CAUSE: Final = "made_by_leader_not_as_inferred"


CONTRADICTIONS: Final = (Note.CONTRADICTS, Note.NOT_WRITTEN, Note.OTHER_CAUSE)


class Judged(NamedTuple):
    """A row of a log file, and what became of it: columns of `notices`, and `note`."""

    note: str
    topic: str | None
    partition: int | None
    broker: int | None
    ts: int


@dataclass(slots=True)
class _Version:
    """A version as the metadata log has it, with all rows that tell of it."""

    leader: int
    epoch: int
    isr: frozenset[int]
    rows: list[Row]


@dataclass(slots=True)
class _Life:
    """A partition from its creation, or its first known state, to its deletion."""

    from_ts: int
    to_ts: int | None = None
    versions: dict[int, _Version] = field(default_factory=dict)
    assignments: list[tuple[int, ...]] = field(default_factory=list)

    def may_be_at(self, ts: int) -> bool:
        return self.from_ts - CLOCKS_DIFFER_MS <= ts and (self.to_ts is None or ts <= self.to_ts + CLOCKS_DIFFER_MS)


@dataclass(slots=True)
class OneHistory:
    """One partition; or, with neither topic nor partition, the brokers. Feed it the rows of the metadata log, in its
    order, then those of log files; `finish`. `rows` and `notes` may be drained at any time.

    `spans`: spans of time, ms, in order, of which there is a metadata log. `from_beginning`: whether the first of them
    begins with the first record there ever was, so that what it does not have was not there.
    """

    spans: Sequence[tuple[int, int]]
    from_beginning: bool = True
    rows: list[Row] = field(default_factory=list)
    notes: list[Judged] = field(default_factory=list)
    _metadata: list[Row] = field(default_factory=list)
    #: what a row of the metadata log is asked for by -> places of such rows
    _places: defaultdict[tuple[Any, ...], list[int]] = field(default_factory=lambda: defaultdict(list))
    #: rows of the metadata log that attempts came before, by their place, with what the last of these tells
    _tried: dict[int, Row] = field(default_factory=dict)
    _lives: list[_Life] = field(default_factory=list)
    #: rows of a change that does not name its version, until the row comes that does
    _unversioned: list[Row] = field(default_factory=list)
    #: since when the metadata log has lost sight of the partition, and such spans that are over
    _lost_ts: int | None = None
    _lost: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.from_beginning:
            self._lost_ts = 0

    def of_metadata(self, row: Row) -> None:
        """Takes a row of the metadata log."""
        self._places[_key(row)].append(len(self._metadata))
        self._metadata.append(row)
        match row["ev"]:
            case TraceEvent.ASSIGN.value:
                if row["value"] == CREATED or not self._lives or self._lost_ts is not None:
                    self._lives.append(_Life(row["ts"]))
                self._found(row["ts"])
                self._lives[-1].assignments.append(tuple(row["replicas"] or ()))
            case TraceEvent.STOP.value if row["value"] == STOP_UNKNOWN and self._lives:
                self._lives[-1].to_ts = self._lost_ts = row["ts"]
            case TraceEvent.DELETE.value if self._lives:
                self._lives[-1].to_ts = row["ts"]
            case ev if ev in _STATES and self._lives:
                self._version(row)

    def _found(self, ts: int) -> None:
        if self._lost_ts is not None:
            self._lost.append((self._lost_ts, ts))
            self._lost_ts = None

    def _version(self, row: Row) -> None:
        if row["zk_version"] is None:
            self._unversioned.append(row)
            return
        versions = self._lives[-1].versions
        if (version := versions.get(row["zk_version"])) is None:
            leader = row["replica"] if row["ev"] == TraceEvent.ELECT.value else row["broker"]
            state = _Version(leader, row["epoch"], frozenset(row["isr"]), self._unversioned)
            version, self._unversioned = versions.setdefault(row["zk_version"], state), []
        version.rows.append(row)

    def of_log(self, row: Row) -> None:
        """Takes a row of a log file."""
        note = self._judge(row)
        self.notes.append(Judged(note, row["topic"], row["partition"], row["broker"], row["ts"]))
        if note in (Note.OUTSIDE, Note.REFUSED):
            self.rows.append(row)

    def _judge(self, row: Row) -> str:
        ev = row["ev"]
        if ev in _ISR_CHANGES and row["err"]:
            granted = self._is_granted_later(row)
            return Note.AGREES if granted and row["src"] == SRC_INFERRED else Note.REFUSED
        if ev in _STATES and row["zk_version"] is not None and row["isr"] is not None:
            return self._judge_state(row)
        if not self._is_known(row["ts"]):
            return Note.OUTSIDE
        if ev in _ALIVENESS:
            return self._judge_aliveness(row)
        if ev == TraceEvent.ASSIGN.value and row["src"] == SRC_LOG and row["replicas"]:
            own = {replicas for life in self._lives for replicas in life.assignments}
            return Note.AGREES if tuple(row["replicas"]) in own else Note.CONTRADICTS
        return Note.LEFT_OUT

    def _judge_state(self, row: Row) -> str:
        lives = [life for life in self._lives if life.may_be_at(row["ts"])]
        of_version = [life.versions[row["zk_version"]] for life in lives if row["zk_version"] in life.versions]
        for version in of_version:
            if _is_same(row, version):
                return _fill(row, version)
        if row["src"] != SRC_LOG:
            return Note.LEFT_OUT if of_version or self._is_known(row["ts"]) else Note.OUTSIDE
        if of_version:
            return Note.CONTRADICTS
        if not self._is_known(row["ts"], margin=CLOCKS_DIFFER_MS):
            return Note.OUTSIDE
        # Brokers repeat states; one from before the first that is known proves nothing.
        is_older = any(row["zk_version"] < min(life.versions, default=0) for life in lives)
        return Note.LEFT_OUT if is_older else Note.NOT_WRITTEN

    def _is_granted_later(self, row: Row) -> bool:
        """Whether an attempt that was refused, or of which no answer was seen, was written in the end: a leader asks
        again and again until there is a controller, and says so once."""
        for place in self._places.get(_key(row), ()):
            own = self._metadata[place]
            if set(own["isr"]) == set(row["isr"] or ()) and own["ts"] >= row["ts"] - CLOCKS_DIFFER_MS:
                self._tried[place] = row  # the line of the write itself counts more
                return True
        return False

    def _judge_aliveness(self, row: Row) -> str:
        """When a broker died, others noticed before the controller fenced it."""
        same = [self._metadata[place] for place in self._places.get(_key(row), ())]
        near = [m for m in same if abs(m["ts"] - row["ts"]) <= CLOCKS_DIFFER_MS]
        for own in near[:1]:
            _take_from(own, row)
        return Note.AGREES if near else Note.LEFT_OUT

    def _is_known(self, ts: int, *, margin: int = 0) -> bool:
        if self._lost_ts is not None and ts >= self._lost_ts - margin:
            return False
        in_log = any(start + margin <= ts <= end - margin for start, end in self.spans)
        return in_log and not any(start - margin <= ts <= end + margin for start, end in self._lost)

    def finish(self) -> None:
        """The group is over: what the metadata log tells goes out, filled."""
        for place, attempt in self._tried.items():
            _take_from(self._metadata[place], attempt)
        self.rows.extend(self._metadata)
        self._metadata, self._tried = [], {}
        self._places.clear()


def _key(row: Row) -> tuple[Any, ...]:
    ev = row["ev"]
    return (ev, row["replica"]) if ev in _ALIVENESS else (ev, row["broker"], row["epoch"], row["replica"])


def _is_same(row: Row, version: _Version) -> bool:
    """A leader tells of its write with the epoch that it asked in, which the write may have raised."""
    leader = row["replica"] if row["ev"] == TraceEvent.ELECT.value else row["broker"]
    if set(row["isr"]) != version.isr:
        return False
    if row["ev"] in _ISR_CHANGES:
        asked = {version.leader, *(own["broker"] for own in version.rows if own["ev"] in _ISR_CHANGES)}
        return leader in asked and (row["epoch"] is None or row["epoch"] <= version.epoch)
    return (leader, row["epoch"]) == (version.leader, version.epoch)


def _fill(row: Row, version: _Version) -> str:
    """What the line has and the metadata log has not."""
    ev = row["ev"]
    same_kind = [own for own in version.rows if own["ev"] == ev]
    for own in same_kind:
        if ev not in _ISR_CHANGES or own["replica"] == row["replica"]:
            _take_from(own, row)
    by_leader = ev in _ISR_CHANGES and row["src"] == SRC_LOG
    return Note.OTHER_CAUSE if by_leader and not same_kind else Note.AGREES


def _take_from(own: Row, row: Row) -> None:
    for name in _FILLED.get(own["ev"], ()):
        if own[name] is None:
            own[name] = row[name]
