"""Rows that wait for what only later facts tell, and are told when their time has come. Pure.

An append waits for its end, a leadership for its replicas, an attempt to change the ISR for its answer.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from typing import Any, Final

from broker_sim.replay.logs.facts import Fact, What
from broker_sim.replay.logs.known import Known, State
from broker_sim.replay.schema import SRC_INFERRED, SRC_LOG
from controller.wire.trace import COLUMNS

#: How long an attempt waits for its answer: a leader that lost ZooKeeper tries again after it has reconnected.
_HOLD_ATTEMPT_US: Final = 30_000_000
#: An append's successor is among so many that were answered after it.
_OVERTAKEN_MAX: Final = 16
#: `err` of an attempt whose answer has not come, and of one that was refused.
UNDER_WAY: Final = -1
REFUSED: Final = 95
#: Rows of one partition in one microsecond that can be told apart.
SEQ_SHIFT: Final = 12

#: Columns of the rows that come out.
EMITTED: Final = (*COLUMNS, "role", "file")
#: Columns that a fact has by the same name.
_SAID: Final = (
    "topic", "partition", "epoch", "replica", "offset", "leo", "hw", "bytes", "req_epoch", "err", "isr", "isr_old",
    "replicas", "adding", "removing", "zk_version", "cu", "key", "value", "broker", "file",
)  # fmt: skip
_said_of = attrgetter(*_SAID)
_CONTROLLERS: Final = (
    What.ASSIGN, What.ELECT, What.BUMP, What.LIVE, What.BROKER_UP, What.BROKER_DOWN, What.DELETE,
)  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Row:
    """A row that waits: the columns of the trace that are known so far."""

    at_us: int
    columns: dict[str, Any]
    #: an append whose end is not known yet
    open_end: bool = False


@dataclass(slots=True)
class SaidLast:
    """What one broker said last about the partition."""

    epoch: int | None = None
    leads: bool = False
    isr: list[int] | None = None
    leo: int | None = None
    attempt: list[Row] = field(default_factory=list)
    leader_row: Row | None = None
    led: dict[int, Fact] = field(default_factory=dict)
    submitted: dict[int, Row] = field(default_factory=dict)
    #: appends whose end is not known yet, in the order of time
    open_ends: deque[Row] = field(default_factory=deque)
    #: the log's end as far as rows were released
    end: int = 0


@dataclass(slots=True)
class Held:
    """The rows of one group that wait, in the order of time, and `rows`, those that are told: drain them."""

    known: Known
    #: what each broker said last about the partition
    of: dict[int, SaidLast] = field(default_factory=dict)
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    _held: deque[Row] = field(default_factory=deque)
    _seq: dict[int, int] = field(default_factory=dict)

    def add(self, fact: Fact, ev: str, *, src: str = SRC_LOG, **columns: Any) -> Row:
        """A row that begins with what the fact says; `columns` overrule."""
        said: dict[str, Any] = dict(zip(_SAID, _said_of(fact), strict=True))
        said["ts"] = fact.ts if fact.ts is not None else fact.at_us // 1000
        said["ev"], said["src"] = ev, src
        said["role"] = "controller" if fact.what in _CONTROLLERS else "broker"
        said.update(columns)
        row = Row(at_us=fact.at_us, columns=said)
        # A start is put before the line that tells of it: its first tick may stand between.
        after = next((i for i, held in enumerate(reversed(self._held)) if held.at_us <= row.at_us), len(self._held))
        self._held.insert(len(self._held) - after, row)
        return row

    def drop(self, row: Row) -> None:
        """Forgets a row that still waits; one that was told stays told."""
        if row in self._held:
            self._held.remove(row)

    def release(self, until_us: int | None) -> None:
        """Tells the rows up to `until_us`, all where it is None; an attempt without an answer holds up what follows."""
        while self._held and (until_us is None or self._held[0].at_us < until_us):
            row = self._held[0]
            if row.columns["err"] == UNDER_WAY and until_us is not None and row.at_us > until_us - _HOLD_ATTEMPT_US:
                return
            self._complete(row, self.of[row.columns["broker"]])
            self._held.popleft()
            self._emit(row)

    def _complete(self, row: Row, broker: SaidLast) -> None:
        """Fills what only the rows after this one could tell."""
        columns = row.columns
        match columns["ev"]:
            case What.APPEND if row.open_end:
                broker.open_ends.popleft()
                columns["leo"] = broker.end = max(broker.end, self._end_of(row, broker))
            case What.FETCH if columns["leo"] is None:
                columns["leo"] = max(broker.end, columns["offset"] or 0)
            case What.LEADER:
                broker.end = columns["offset"] or 0
                self.fill_leader(row, broker)
                if columns["replicas"] is None:
                    also = (row.columns["broker"], *(row.columns["adding"] or ()))
                    columns["replicas"] = self.known.replicas_at(row.at_us, also)
            case What.FOLLOWER:
                broker.end = columns["offset"] or 0
            case What.ELECT if columns["isr"] is None:
                self._fill_bump(row)

    def _emit(self, row: Row) -> None:
        columns = row.columns
        if columns["err"] == UNDER_WAY and columns["ev"].startswith("isr_"):
            # Nothing tells that it was written, nor that it was refused.
            columns.update(err=REFUSED, src=SRC_INFERRED)
        broker = columns["broker"]
        seq = max(row.at_us << SEQ_SHIFT, self._seq.get(broker, -1) + 1)
        self._seq[broker] = seq
        columns["seq"] = seq
        self.rows.append(tuple(map(columns.get, EMITTED)))

    def fill_leader(self, row: Row, broker: SaidLast) -> None:
        """What the line lacks: the replica set; up to 2.5 also the ISR, which the controller's line has."""
        columns = row.columns
        told = broker.led.get(columns["epoch"])
        if told is not None and columns["replicas"] is None:
            columns.update(ts=min(columns["ts"], told.at_us // 1000), replicas=told.replicas)
        if columns["isr"] is not None:
            return
        if told is not None:
            columns.update(isr=told.isr, adding=told.adding, removing=told.removing, zk_version=told.zk_version)
            return
        for version, state in self.known.states.items():
            if state.epoch == columns["epoch"]:
                columns.update(isr=state.isr, zk_version=version, src=SRC_INFERRED)

    def _fill_bump(self, row: Row) -> None:
        """A raised epoch carries the ISR of the version before on."""
        version = row.columns["zk_version"]
        before = self.known.before_bump(version)
        if before is not None:
            row.columns.update(isr=before.isr, replica=before.leader)
            self.known.write(version, State(row.columns["epoch"], before.leader, before.isr))

    def _end_of(self, row: Row, broker: SaidLast) -> int:
        """Where an append of which only the first offset is told ended: at the next append, leadership or fetch."""
        base, of = row.columns["offset"], row.columns["broker"]
        after = [r.columns["offset"] for r in islice(broker.open_ends, _OVERTAKEN_MAX) if r.columns["offset"] > base]
        if after:
            return int(min(after))
        own = [r.columns for r in self._held if r.columns["broker"] == of and (r.columns["offset"] or 0) > base]
        led = [c["offset"] for c in own if c["ev"] in (What.LEADER, What.FOLLOWER)]
        return int(min(led)) if led else int(max([base + 1, *(c["offset"] for c in own if _counts(c))]))


def _counts(columns: dict[str, Any]) -> bool:
    return columns["ev"] == What.FETCH and not columns["err"]
