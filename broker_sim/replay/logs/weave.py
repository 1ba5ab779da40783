"""The facts of one partition, as all brokers tell them, to rows of the trace. Pure, streaming.

Facts go in ordered by time. An attempt to change the ISR is paired with the answer to it; a leadership gets the replica
set that the controller, or a request, told; an append gets its end from what follows. For that rows wait a moment
(`HOLD_US`), never longer, so memory is bounded by what happens in it. Copies of a line in several files count once.
Source: isr-replay.md §8.5, §8.6.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple

from broker_sim.replay.logs.facts import Fact, What
from broker_sim.replay.logs.texts import CUT
from broker_sim.replay.schema import SRC_INFERRED, SRC_LOG
from controller.wire.trace import COLUMNS

#: How long a row waits for what comes after it.
HOLD_US: Final = 2_000_000
#: How long an attempt waits for its answer: a leader that lost ZooKeeper tries again after it has reconnected.
_HOLD_ATTEMPT_US: Final = 30_000_000
#: An append's successor is among so many that were answered after it.
_OVERTAKEN_MAX: Final = 16
#: An attempt whose answer has not come.
_UNDER_WAY: Final = -1
_REFUSED: Final = 95
#: An assignment may be told this much later than the leadership that it caused: clocks differ.
_CLOCKS_DIFFER_US: Final = 1_000_000
#: Versions of the state, and leaderships, that are remembered.
_REMEMBERED: Final = 64
#: Rows of one partition in one microsecond that can be told apart.
SEQ_SHIFT: Final = 12

#: Columns of the rows that come out.
EMITTED: Final = (*COLUMNS, "role", "file")
_PLAIN: Final = ("topic", "partition", "epoch", "replica", "offset", "leo", "hw", "bytes", "req_epoch", "err", "isr")
_PLAIN_REST: Final = ("isr_old", "replicas", "adding", "removing", "zk_version", "cu", "key", "value")
#: Facts that are rows as they stand.
_AS_THEY_STAND: Final = (What.CONFIG, What.DOWN, What.STOP, What.TICK, What.HW, What.BROKER_UP, What.BROKER_DOWN)
_CONTROLLERS: Final = (What.ASSIGN, What.ELECT, What.BUMP, What.LIVE, What.BROKER_UP, What.BROKER_DOWN)
#: The first tick is up to this much older than the line that stands before it.
_START_EARLY_US: Final = 100_000


class State(NamedTuple):
    """A version of the partition's state znode."""

    epoch: int | None
    leader: int | None
    isr: list[int]


@dataclass(slots=True, kw_only=True)
class _Row:
    """A row that waits."""

    at_us: int
    columns: dict[str, Any]
    #: an append whose end is not known yet
    open_end: bool = False


@dataclass(slots=True)
class _Broker:
    """What one broker said last about the partition."""

    epoch: int | None = None
    leads: bool = False
    isr: list[int] | None = None
    leo: int | None = None
    attempt: list[_Row] = field(default_factory=list)
    leader_row: _Row | None = None
    led: dict[int, Fact] = field(default_factory=dict)
    submitted: dict[int, _Row] = field(default_factory=dict)
    #: appends whose end is not known yet, in the order of time
    open_ends: deque[_Row] = field(default_factory=deque)
    #: the log's end as far as rows were released
    end: int = 0


@dataclass(slots=True)
class Weave:
    """One group: a partition, or a broker as such. Feed facts ordered by `at_us`, then `finish`; drain `rows`.

    `writes_unsaid`: brokers of a Kafka (up to 2.3) that tells of attempts only; theirs count as written.
    `brokers`: all that are known, so that who is missing from a list is known to be down.
    """

    writes_unsaid: frozenset[int] = frozenset()
    brokers: frozenset[int] = frozenset()
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    _same_time: list[Fact] = field(default_factory=list)
    _held: deque[_Row] = field(default_factory=deque)
    _of: dict[int, _Broker] = field(default_factory=dict)
    _states: dict[int, State] = field(default_factory=dict)
    _assigned: deque[tuple[int, list[int]]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    _members: set[int] = field(default_factory=set)
    _last_epoch: int = -1
    _seq: dict[int, int] = field(default_factory=dict)

    def feed(self, fact: Fact) -> None:
        """Takes the next fact."""
        if self._same_time and fact.at_us != self._same_time[0].at_us:
            self._take_same_time()
        self._same_time.append(fact)

    def finish(self) -> None:
        """The group is over: what waits is told."""
        self._take_same_time()
        self._release(None)

    def _take_same_time(self) -> None:
        facts, self._same_time = self._same_time, []
        for fact in facts if len(facts) == 1 else once(facts):
            self._take(fact)
        if facts:
            self._release(facts[0].at_us - HOLD_US)

    # -- facts -------------------------------------------------------------------------------------------------------

    def _take(self, fact: Fact) -> None:
        if fact.broker is None:
            return
        broker = self._of.setdefault(fact.broker, _Broker())
        if fact.what in _AS_THEY_STAND:
            # Ticks of no file were computed.
            self._add(fact, fact.what, src=SRC_INFERRED if fact.file is None else SRC_LOG)
            if fact.what == What.STOP:
                broker.leads = False
        else:
            _TAKERS[fact.what](self, fact, broker)

    def _add(self, fact: Fact, ev: str, *, src: str = SRC_LOG, **columns: Any) -> _Row:
        said = {name: getattr(fact, name) for name in (*_PLAIN, *_PLAIN_REST)}
        role = "controller" if fact.what in _CONTROLLERS else "broker"
        ts = fact.ts if fact.ts is not None else fact.at_us // 1000
        row = _Row(
            at_us=fact.at_us,
            columns={
                **said,
                "ts": ts,
                "broker": fact.broker,
                "ev": ev,
                "src": src,
                "role": role,
                "file": fact.file,
                **columns,
            },
        )
        self._held.append(row)
        return row

    def _start(self, fact: Fact, _: _Broker) -> None:
        ts = fact.at_us // 1000
        early = fact._replace(at_us=fact.at_us - _START_EARLY_US)
        self._add(early, What.START, ts=ts, value=str(ts))

    # -- leaderships -------------------------------------------------------------------------------------------------

    def _leader(self, fact: Fact, broker: _Broker) -> None:
        _give_up(broker)
        if broker.leads and broker.epoch == fact.epoch:
            return
        broker.epoch, broker.leads, broker.leo = fact.epoch, True, fact.offset
        row = self._add(fact, What.LEADER)
        self._fill_leader(row, broker)
        broker.isr = row.columns["isr"]
        broker.leader_row = row
        self._know(fact.zk_version, State(fact.epoch, fact.broker, broker.isr or []))

    def _fill_leader(self, row: _Row, broker: _Broker) -> None:
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
        for version, state in self._states.items():
            if state.epoch == columns["epoch"]:
                columns.update(isr=state.isr, zk_version=version, src=SRC_INFERRED)

    def _follower(self, fact: Fact, broker: _Broker) -> None:
        _give_up(broker)
        broker.leads, broker.leader_row = False, None
        broker.epoch, broker.leo = fact.epoch, fact.offset
        self._add(fact, What.FOLLOWER)

    def _led(self, fact: Fact, broker: _Broker) -> None:
        if fact.epoch is None:
            return
        broker.led[fact.epoch] = fact
        if len(broker.led) > _REMEMBERED:
            del broker.led[next(iter(broker.led))]

    def _reset(self, fact: Fact, broker: _Broker) -> None:
        """Members of the ISR are set back to the clock of the transition, which is read before the log is opened."""
        if broker.leader_row is not None and fact.cu:
            broker.leader_row.columns["ts"] = fact.cu

    # -- the ISR ------------------------------------------------------------------------------------------------------

    def _shrinking(self, fact: Fact, broker: _Broker) -> None:
        _give_up(broker)
        isr_old, isr = fact.isr_old or [], fact.isr or []
        out = _out_of_sync(fact.value) or {r: (None, None) for r in isr_old if r not in isr}
        for replica, (offset, cu) in out.items():
            columns: dict[str, Any] = {
                "replica": replica,
                "offset": offset,
                "cu": cu,
                "value": None,
                "epoch": broker.epoch,
            }
            broker.attempt.append(self._add(fact, "isr_shrink", **columns))
        self._written_if_unsaid(fact, broker)

    def _expanding(self, fact: Fact, broker: _Broker) -> None:
        _give_up(broker)
        for replica in [r for r in fact.isr or [] if r not in (fact.isr_old or [])]:
            broker.attempt.append(self._add(fact, "isr_expand", replica=replica, epoch=broker.epoch))
        self._written_if_unsaid(fact, broker)

    def _written_if_unsaid(self, fact: Fact, broker: _Broker) -> None:
        unsaid = fact.broker in self.writes_unsaid
        for row in broker.attempt:
            row.columns["err"] = 0 if unsaid else _UNDER_WAY
        if unsaid:
            broker.isr = fact.isr

    def _submitted(self, fact: Fact, broker: _Broker) -> None:
        """The fetch that causes an expansion is recorded after it: its row stands before."""
        _give_up(broker)
        fetch = self._add(fact, What.FETCH, epoch=broker.epoch, err=_UNDER_WAY)
        if fact.replica is not None:
            broker.submitted[fact.replica] = fetch
        broker.attempt.append(self._add(fact, "isr_expand", epoch=broker.epoch, err=_UNDER_WAY))

    def _updated(self, fact: Fact, broker: _Broker) -> None:
        isr, version = fact.isr or [], fact.zk_version
        before = broker.isr
        if version is not None and version - 1 in self._states:
            before = self._states[version - 1].isr
        rows, broker.attempt = broker.attempt, []
        if not rows:
            rows = [self._unattempted(fact, broker, before)]
        done = fact.at_us // 1000
        for row in rows:
            old = row.columns["isr_old"] or before
            if old is None and row.columns["ev"] == "isr_expand":
                old = [r for r in isr if r != row.columns["replica"]]
            row.columns.update(isr=isr, isr_old=old, zk_version=version, err=0, done=done)
        broker.isr = isr
        self._know(version, State(broker.epoch, fact.broker, isr))

    def _unattempted(self, fact: Fact, broker: _Broker, before: list[int] | None) -> _Row:
        """A write whose attempt has no line: since 2.8 an expansion; else the line is in a part that is lost."""
        isr = fact.isr or []
        gained = [r for r in isr if before is not None and r not in before]
        gone = [r for r in before or () if r not in isr]
        if gone and not gained:
            return self._add(fact, "isr_shrink", src=SRC_INFERRED, replica=gone[0], epoch=broker.epoch)
        if gained:
            return self._add(fact, "isr_expand", replica=gained[0], epoch=broker.epoch)
        # What was before is not known: it is a state, and no more.
        return self._add(fact, What.ELECT, src=SRC_INFERRED, replica=fact.broker, epoch=broker.epoch, role="controller")

    def _refused(self, fact: Fact, broker: _Broker) -> None:
        rows, broker.attempt = broker.attempt, []
        for row in rows:
            row.columns.update(err=_REFUSED, done=fact.at_us // 1000)

    # -- the controller ----------------------------------------------------------------------------------------------

    def _assign(self, fact: Fact, _: _Broker) -> None:
        replicas = fact.replicas or []
        self._assigned.append((fact.at_us, replicas))
        self._members |= set(replicas)
        self._add(fact, What.ASSIGN)
        if fact.value == "created":
            self._states.clear()
            self._last_epoch = -1

    def _elect(self, fact: Fact, _: _Broker) -> None:
        """Also written where a replica to be cut was not in the ISR: then nothing changed."""
        epoch = fact.epoch if fact.epoch is not None else -1
        known = self._states.get(fact.zk_version if fact.zk_version is not None else -1)
        if fact.zk_version is None and epoch <= self._last_epoch:
            return
        if fact.key == CUT and known is not None and (known.epoch, set(known.isr)) == (epoch, set(fact.isr or ())):
            return
        self._add(fact, What.ELECT, key=None)
        self._know(fact.zk_version, State(fact.epoch, fact.replica, fact.isr or []))
        self._last_epoch = max(self._last_epoch, epoch)

    def _sent(self, fact: Fact, _: _Broker) -> None:
        self._assigned.append((fact.at_us, fact.replicas or []))

    def _bump(self, fact: Fact, _: _Broker) -> None:
        self._add(fact, What.ELECT, src=SRC_INFERRED)

    def _fill_bump(self, row: _Row) -> None:
        """A raised epoch carries the ISR of the version before on."""
        version = row.columns["zk_version"]
        if version is None:
            before = next(reversed(self._states.values()), None)
        else:
            before = self._states.get(version - 1) or self._states.get(version)
        if before is not None:
            row.columns.update(isr=before.isr, replica=before.leader)
            self._know(version, State(row.columns["epoch"], before.leader, before.isr))

    def _know(self, version: int | None, state: State) -> None:
        self._members |= set(state.isr)
        if version is None:
            return
        self._states.setdefault(version, state)
        while len(self._states) > _REMEMBERED:
            del self._states[min(self._states)]

    def _live(self, fact: Fact, _: _Broker) -> None:
        live = set(fact.replicas or ())
        for broker in sorted(self.brokers | live):
            ev = What.BROKER_UP if broker in live else What.BROKER_DOWN
            self._add(fact, ev, replica=broker, replicas=None)

    # -- fetches and appends -----------------------------------------------------------------------------------------

    def _fetch(self, fact: Fact, broker: _Broker) -> None:
        offset = fact.offset or 0
        waiting = broker.submitted.pop(fact.replica, None) if fact.replica is not None else None
        if fact.session is None:  # a "Recorded replica" line: in the broker's own order, so the end is known
            columns: dict[str, Any] = {"leo": max(broker.leo or 0, offset), "epoch": broker.epoch}
            if waiting is not None:
                waiting.columns.update(offset=offset, err=0, **columns)
            else:
                self._add(fact, What.FETCH, **columns)
            return
        self._add(fact, What.FETCH)

    def _append(self, fact: Fact, broker: _Broker) -> None:
        broker.leo = fact.leo
        self._add(fact, What.APPEND, epoch=broker.epoch)

    def _produced(self, fact: Fact, broker: _Broker) -> None:
        row = self._add(fact, What.APPEND, src=SRC_INFERRED)
        row.open_end = True
        broker.open_ends.append(row)

    def _end_of(self, row: _Row, broker: _Broker) -> int:
        """Where an append of which only the first offset is told ended: at the next append, leadership or fetch."""
        base, of = row.columns["offset"], row.columns["broker"]
        after = [r.columns["offset"] for r in islice(broker.open_ends, _OVERTAKEN_MAX) if r.columns["offset"] > base]
        if after:
            return int(min(after))
        own = [r.columns for r in self._held if r.columns["broker"] == of and (r.columns["offset"] or 0) > base]
        led = [c["offset"] for c in own if c["ev"] in (What.LEADER, What.FOLLOWER)]
        return int(min(led)) if led else int(max([base + 1, *(c["offset"] for c in own if _counts(c))]))

    # -- out ---------------------------------------------------------------------------------------------------------

    def _release(self, until_us: int | None) -> None:
        while self._held and (until_us is None or self._held[0].at_us < until_us):
            row = self._held[0]
            if row.columns["err"] == _UNDER_WAY and until_us is not None and row.at_us > until_us - _HOLD_ATTEMPT_US:
                return
            self._complete(row, self._of[row.columns["broker"]])
            self._held.popleft()
            self._emit(row)

    def _complete(self, row: _Row, broker: _Broker) -> None:
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
                self._fill_leader(row, broker)
                if columns["replicas"] is None:
                    columns["replicas"] = self._replicas_at(row)
            case What.FOLLOWER:
                broker.end = columns["offset"] or 0
            case What.ELECT if columns["isr"] is None:
                self._fill_bump(row)

    def _replicas_at(self, row: _Row) -> list[int]:
        before = [replicas for at, replicas in self._assigned if at <= row.at_us + _CLOCKS_DIFFER_US]
        if before:
            return before[-1]
        return sorted(self._members | {row.columns["broker"], *(row.columns["adding"] or ())})

    def _emit(self, row: _Row) -> None:
        columns = row.columns
        if columns["err"] == _UNDER_WAY and columns["ev"].startswith("isr_"):
            # Nothing tells that it was written, nor that it was refused.
            columns.update(err=_REFUSED, src=SRC_INFERRED)
        broker = columns["broker"]
        seq = max(row.at_us << SEQ_SHIFT, self._seq.get(broker, -1) + 1)
        self._seq[broker] = seq
        columns["seq"] = seq
        self.rows.append(tuple(columns.get(name) for name in EMITTED))


def _give_up(broker: _Broker) -> None:
    """What was tried has no answer, and something else came: it was refused."""
    for row in broker.attempt:
        if row.columns["err"] == _UNDER_WAY:
            row.columns.update(err=_REFUSED, src=SRC_INFERRED)
    broker.attempt = []


def _counts(columns: dict[str, Any]) -> bool:
    return columns["ev"] == What.FETCH and not columns["err"]


def once(facts: list[Fact]) -> Iterator[Fact]:
    """Facts of the same time, without what stands in several copies of a file; in the order of the fullest file."""
    by_file: dict[str | None, list[Fact]] = {}
    for fact in facts:
        by_file.setdefault(fact.file, []).append(fact)
    if len(by_file) == 1:
        yield from facts
        return
    told: Counter[tuple[object, ...]] = Counter()
    for _, of_file in sorted(by_file.items(), key=lambda pair: (-len(pair[1]), pair[0] or "")):
        here: Counter[tuple[object, ...]] = Counter()
        for fact in of_file:
            content = _hashable(fact)
            here[content] += 1
            if here[content] > told[content]:
                told[content] = here[content]
                yield fact


def _hashable(fact: Fact) -> tuple[object, ...]:
    return tuple(tuple(value) if isinstance(value, list) else value for value in fact.content)


def _out_of_sync(value: str | None) -> dict[int, tuple[int | None, int | None]]:
    """`3:1000:1717315210000 2::` as replica -> (offset, last caught up)."""
    outs = [out.split(":") for out in (value or "").split()]
    return {int(r): (int(o) if o else None, int(c) if c else None) for r, o, c in outs}


_TAKERS: Final = {
    What.START: Weave._start,
    What.LEADER: Weave._leader,
    What.FOLLOWER: Weave._follower,
    What.LED: Weave._led,
    What.RESET: Weave._reset,
    What.SHRINKING: Weave._shrinking,
    What.EXPANDING: Weave._expanding,
    What.SUBMITTED: Weave._submitted,
    What.UPDATED: Weave._updated,
    What.REFUSED: Weave._refused,
    What.ASSIGN: Weave._assign,
    What.SENT: Weave._sent,
    What.ELECT: Weave._elect,
    What.BUMP: Weave._bump,
    What.LIVE: Weave._live,
    What.FETCH: Weave._fetch,
    What.APPEND: Weave._append,
    What.PRODUCED: Weave._produced,
}
