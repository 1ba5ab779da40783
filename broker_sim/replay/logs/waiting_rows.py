"""Rows that wait for what only later facts tell, and are told when their time has come. Pure.

An append waits for its end, a leadership for its replicas, an attempt to change the ISR for its answer.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from broker_sim.replay.logs.facts import Fact, What
from broker_sim.replay.logs.memory import CLOCKS_DIFFER_US, PartitionMemory, State
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
_CONTROLLERS: Final = (
    What.ASSIGN, What.ELECT, What.BUMP, What.LIVE, What.BROKER_UP, What.BROKER_DOWN, What.DELETE,
)  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Row:
    """A row that waits: the columns of the trace that are known so far, and what its fact has besides."""

    at_us: int
    columns: dict[str, Any]
    #: an append whose end is not known yet
    open_end: bool = False
    #: a leadership of a topic that is gone: what is told from now on is not of it
    is_over: bool = False


@dataclass(slots=True)
class OfBroker:
    """What one broker said last about the partition."""

    epoch: int | None = None
    leads: bool = False
    isr: list[int] | None = None
    leo: int | None = None
    attempt: list[Row] = field(default_factory=list)
    leader_row: Row | None = None
    led: dict[int, Fact] = field(default_factory=dict)
    submitted: dict[int, Row] = field(default_factory=dict)
    #: appends whose end is not known yet, and leaderships, in the order of time
    ends: deque[Row] = field(default_factory=deque)
    #: the log's end as far as rows were released
    end: int = 0
    #: when it began to lead
    leads_since_us: int = 0
    #: its replica is gone, and nobody told that the topic was created anew
    gave_up: bool = False
    #: the dir in which it makes a copy of its log
    copies_to: str | None = None

    def forget(self, *, before_us: int) -> None:
        """Leaderships and requests from before are not those of the topic that comes."""
        self.gave_up, self.leads = False, self.leads and self.leads_since_us >= before_us
        self.led = {epoch: fact for epoch, fact in self.led.items() if fact.at_us >= before_us}


@dataclass(slots=True)
class WaitingRows:
    """The rows of one group that wait, in the order of time, and `rows`, those that are told: drain them."""

    memory: PartitionMemory
    #: what each broker said last about the partition
    of: dict[int, OfBroker] = field(default_factory=dict)
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    _waiting: deque[Row] = field(default_factory=deque)
    _seq: dict[int, int] = field(default_factory=dict)

    def add(self, fact: Fact, ev: str, *, src: str = SRC_LOG, **columns: Any) -> Row:
        """A row that begins with what the fact says; `columns` overrule."""
        values = fact._asdict()
        values["ts"] = fact.ts if fact.ts is not None else fact.at_us // 1000
        values["ev"], values["src"] = ev, src
        values["role"] = "controller" if fact.what in _CONTROLLERS else "broker"
        values.update(columns)
        row = Row(at_us=fact.at_us, columns=values)
        if not self._waiting or self._waiting[-1].at_us <= row.at_us:
            self._waiting.append(row)
            return row
        # A start is put before the line that tells of it: its first tick may stand between.
        after = next((i for i, r in enumerate(reversed(self._waiting)) if r.at_us <= row.at_us), len(self._waiting))
        self._waiting.insert(len(self._waiting) - after, row)
        return row

    def drop(self, row: Row) -> None:
        """Forgets a row that still waits; one that was told stays told."""
        if row in self._waiting:
            self._waiting.remove(row)

    def release(self, until_us: int | None) -> None:
        """Tells the rows up to `until_us`, all where it is None; an attempt without an answer holds up what follows."""
        while self._waiting and (until_us is None or self._waiting[0].at_us < until_us):
            row = self._waiting[0]
            if row.columns["err"] == UNDER_WAY and until_us is not None and row.at_us > until_us - _HOLD_ATTEMPT_US:
                return
            self._complete(row, self.of[row.columns["broker"]])
            self._waiting.popleft()
            self._emit(row)

    def end_of_topic(self, at_us: int) -> None:
        """Fills what waits with what is known by now: what is told from now on is of another topic of that name.

        A broker may have told of that one already, by its own clock.
        """
        for row in self._waiting:
            if row.columns["ev"] == What.LEADER:
                fill = self._close if row.at_us < at_us - CLOCKS_DIFFER_US else self.fill_leader
                fill(row, self.of[row.columns["broker"]])
            elif row.columns["ev"] == What.ELECT and row.columns["isr"] is None:
                self.fill_bump(row)
        for broker in self.of.values():
            broker.forget(before_us=at_us - CLOCKS_DIFFER_US)

    def end_of_replica(self, of: int, at_us: int) -> None:
        """A broker gave its replica up: what it is told from now on may be of another topic of that name."""
        broker = self.of[of]
        for row in self._waiting:
            if row.columns["broker"] == of and row.columns["ev"] == What.LEADER:
                self._close(row, broker)
        broker.forget(before_us=at_us + 1)
        broker.gave_up = True

    def _complete(self, row: Row, broker: OfBroker) -> None:
        """Fills what only the rows after this one could tell."""
        columns = row.columns
        match columns["ev"]:
            case What.APPEND if row.open_end:
                broker.ends.popleft()
                columns["leo"] = broker.end = max(broker.end, self._end_of(row, broker))
            case What.FETCH if columns["leo"] is None:
                columns["leo"] = max(broker.end, columns["offset"] or 0)
            case What.LEADER:
                broker.end = broker.ends.popleft().columns["offset"]
                self._close(row, broker)
            case What.FOLLOWER:
                broker.end = broker.ends.popleft().columns["offset"]
            case What.ELECT if columns["isr"] is None:
                self.fill_bump(row)

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

    def fill_leader(self, row: Row, broker: OfBroker) -> None:
        """What the line lacks: the replica set; up to 2.5 also the ISR, which the controller's line has."""
        if row.is_over:
            return
        columns = row.columns
        leader = broker.led.get(columns["epoch"])
        if leader is not None and columns["replicas"] is None:
            columns.update(ts=min(columns["ts"], leader.at_us // 1000), replicas=leader.replicas)
        if columns["isr"] is not None:
            return
        if leader is not None:
            columns.update(isr=leader.isr, adding=leader.adding, removing=leader.removing, zk_version=leader.zk_version)
            return
        if (began := self.memory.began(columns["epoch"])) is not None:
            columns.update(isr=self.memory.states[began].isr, zk_version=began, src=SRC_INFERRED)

    def _close(self, row: Row, broker: OfBroker) -> None:
        """Nothing more will be told of this leadership."""
        self.fill_leader(row, broker)
        row.is_over = True
        if row.columns["replicas"] is None:
            also = (row.columns["broker"], *(row.columns["adding"] or ()))
            row.columns["replicas"] = self.memory.replicas_at(row.at_us, also)

    def fill_bump(self, row: Row) -> None:
        """A raised epoch carries the ISR of the version before on."""
        version = row.columns["zk_version"]
        before = self.memory.before_bump(version)
        if before is not None:
            row.columns.update(isr=before.isr, replica=before.leader)
            self.memory.write(version, State(row.columns["epoch"], before.leader, before.isr))

    def _end_of(self, row: Row, broker: OfBroker) -> int:
        """Where an append of which only the first offset is told ended: at the next append, leadership or fetch."""
        base, of = row.columns["offset"], row.columns["broker"]
        after = [r.columns["offset"] for r in islice(broker.ends, _OVERTAKEN_MAX) if r.columns["offset"] > base]
        if after:
            return int(min(after))
        fetches = [r.columns for r in self._waiting if r.columns["broker"] == of and r.columns["ev"] == What.FETCH]
        return int(max([base + 1, *(columns["offset"] for columns in fetches if columns["err"] == 0)]))
