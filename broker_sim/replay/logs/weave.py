"""The facts of one partition, as all brokers tell them, to rows of the trace. Pure, streaming.

Facts go in ordered by time. An attempt to change the ISR is paired with the answer to it; a leadership gets the replica
set that the controller, or a request, told; an append gets its end from what follows. For that rows wait a moment
(`HOLD_US`), never longer, so memory is bounded by what happens in it. Copies of a line in several files count once.
Source: isr-replay.md §8.5, §8.6.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from broker_sim.replay.logs.doubles import once
from broker_sim.replay.logs.facts import Fact, What
from broker_sim.replay.logs.memory import REMEMBERED, PartitionMemory, State
from broker_sim.replay.logs.texts_of_controllers import CUT
from broker_sim.replay.logs.texts_of_kraft import CREATED
from broker_sim.replay.logs.waiting_rows import REFUSED, UNDER_WAY, OfBroker, Row, WaitingRows
from broker_sim.replay.schema import SRC_INFERRED, SRC_LOG

#: How long a row waits for what comes after it.
HOLD_US: Final = 2_000_000
#: Facts that are rows as they stand.
_AS_THEY_STAND: Final = (What.CONFIG, What.DOWN, What.TICK, What.HW, What.DELETE)
#: Connections that are lost no further apart than this tell of one death; the session ends at most so long after it.
_LOST_AGAIN_MS: Final = 5_000
_SESSION_MS: Final = 60_000
#: What a state has that tells of an assignment, and a row of a change has not.
_NO_MOVES: Final[dict[str, Any]] = {"replicas": None, "adding": None, "removing": None}
#: The first tick is up to this much older than the line that stands before it.
_START_EARLY_US: Final = 100_000


@dataclass(slots=True)
class Weave:
    """One group: a partition, or a broker as such. Feed facts ordered by `at_us`, then `finish`; drain `rows`.

    `writes_unsaid`: brokers of a Kafka (up to 2.3) that tells of attempts only; theirs count as written.
    `brokers`: all that are known, so that who is missing from a list is known to be down. `starts`: of brokers, and
    when: one that has started anew leads nothing until it is told so, in the same epoch or another.
    """

    writes_unsaid: frozenset[int] = frozenset()
    brokers: frozenset[int] = frozenset()
    starts: frozenset[tuple[int, int]] = frozenset()
    _same_time: list[Fact] = field(default_factory=list)
    _memory: PartitionMemory = field(default_factory=PartitionMemory)
    _waiting: WaitingRows = field(init=False)
    #: broker -> when connections to it were first and last lost
    _lost_at: dict[int, tuple[int, int]] = field(default_factory=dict)
    #: the last state that a broker told in passing, by its version
    _skipped: dict[int, Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._waiting = WaitingRows(self._memory)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """What is told, with the columns of `EMITTED`; may be drained."""
        return self._waiting.rows

    def feed(self, fact: Fact) -> None:
        """Takes the next fact."""
        if self._same_time and fact.at_us != self._same_time[0].at_us:
            self._take_same_time()
        self._same_time.append(fact)

    def finish(self) -> None:
        """The group is over: what waits is told."""
        self._take_same_time()
        self._waiting.release(None)

    def _take_same_time(self) -> None:
        facts, self._same_time = self._same_time, []
        for fact in facts if len(facts) == 1 else once(facts):
            self._take(fact)
        if facts:
            self._waiting.release(facts[0].at_us - HOLD_US)

    # -- facts -------------------------------------------------------------------------------------------------------

    def _take(self, fact: Fact) -> None:
        if fact.broker is None:
            return
        broker = self._waiting.of.setdefault(fact.broker, OfBroker())
        if fact.what in _AS_THEY_STAND:
            # Ticks of no file were computed.
            self._waiting.add(fact, fact.what, src=SRC_INFERRED if fact.file is None else SRC_LOG)
        else:
            _TAKERS[fact.what](self, fact, broker)

    def _stop(self, fact: Fact, broker: OfBroker) -> None:
        """The replica ends with its log, but not with a copy of it in another dir that is given up."""
        if fact.key is not None and fact.key == broker.copies_to:
            broker.copies_to = None
            return
        self._waiting.add(fact, What.STOP, key=None)
        self._waiting.end_of_replica(fact.broker or 0, fact.at_us)

    def _copies(self, fact: Fact, broker: OfBroker) -> None:
        broker.copies_to = fact.key if fact.what == What.COPY else None

    def _start(self, fact: Fact, _: OfBroker) -> None:
        ts = fact.at_us // 1000
        early = fact._replace(at_us=fact.at_us - _START_EARLY_US)
        self._waiting.add(early, What.START, ts=ts, value=str(ts))

    # -- leaderships -------------------------------------------------------------------------------------------------

    def _leader(self, fact: Fact, broker: OfBroker) -> None:
        _give_up(broker)
        if broker.leads and broker.epoch == fact.epoch and not self._has_started(fact, broker.leads_since_us):
            return
        if broker.gave_up and (broker.epoch or 0) >= (fact.epoch or 0):
            self._begin_anew(fact.at_us)  # a topic raises the epoch before a replica that comes back leads
        broker.epoch, broker.leads, broker.leo, broker.gave_up = fact.epoch, True, fact.offset, False
        broker.leads_since_us = fact.at_us
        row = self._waiting.add(fact, What.LEADER)
        broker.ends.append(row)
        self._waiting.fill_leader(row, broker)
        broker.isr = row.columns["isr"]
        broker.leader_row = row
        self._memory.write(fact.zk_version, State(fact.epoch, fact.broker, broker.isr or []))

    def _has_started(self, fact: Fact, since_us: int) -> bool:
        return any(of == fact.broker and since_us < at_us <= fact.at_us for of, at_us in self.starts)

    def _follower(self, fact: Fact, broker: OfBroker) -> None:
        _give_up(broker)
        broker.leads, broker.leader_row = False, None
        broker.epoch, broker.leo = fact.epoch, fact.offset
        broker.ends.append(self._waiting.add(fact, What.FOLLOWER))

    def _led(self, fact: Fact, broker: OfBroker) -> None:
        if fact.epoch is None:
            return
        broker.led[fact.epoch] = fact
        if len(broker.led) > REMEMBERED:
            del broker.led[next(iter(broker.led))]

    def _reset(self, fact: Fact, broker: OfBroker) -> None:
        """Members of the ISR are set back to the clock of the transition, which is read before the log is opened."""
        if broker.leader_row is not None and fact.cu:
            broker.leader_row.columns["ts"] = fact.cu

    # -- the ISR ------------------------------------------------------------------------------------------------------

    def _shrinking(self, fact: Fact, broker: OfBroker) -> None:
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
            broker.attempt.append(self._waiting.add(fact, "isr_shrink", **columns))
        self._written_if_unsaid(fact, broker)

    def _expanding(self, fact: Fact, broker: OfBroker) -> None:
        _give_up(broker)
        for replica in [r for r in fact.isr or [] if r not in (fact.isr_old or [])]:
            broker.attempt.append(self._waiting.add(fact, "isr_expand", replica=replica, epoch=broker.epoch))
        self._written_if_unsaid(fact, broker)

    def _written_if_unsaid(self, fact: Fact, broker: OfBroker) -> None:
        is_unsaid = fact.broker in self.writes_unsaid
        for row in broker.attempt:
            row.columns["err"] = 0 if is_unsaid else UNDER_WAY
        if is_unsaid:
            self._memory.write_unversioned(State(broker.epoch, fact.broker, fact.isr or []))

    def _submitted(self, fact: Fact, broker: OfBroker) -> None:
        """The fetch that causes an expansion is recorded after it: its row stands before."""
        _give_up(broker)
        fetch = self._waiting.add(fact, What.FETCH, epoch=broker.epoch, err=UNDER_WAY)
        if fact.replica is not None:
            broker.submitted[fact.replica] = fetch
        broker.attempt.append(self._waiting.add(fact, "isr_expand", epoch=broker.epoch, err=UNDER_WAY))

    def _updated(self, fact: Fact, broker: OfBroker) -> None:
        isr, version = fact.isr or [], fact.zk_version
        if self._memory.is_written_again(version):
            return
        before = broker.isr
        if version is not None and version - 1 in self._memory.states:
            before = self._memory.states[version - 1].isr
        # An attempt that waited too long was told as refused: what became of it after all is told of its own.
        rows, broker.attempt = [row for row in broker.attempt if row.columns["err"] != REFUSED], []
        rows = rows or self._unattempted(fact, broker, before)
        done = fact.at_us // 1000
        for row in rows:
            old = row.columns["isr_old"] or before
            if old is None and row.columns["ev"] == "isr_expand":
                old = [r for r in isr if r != row.columns["replica"]]
            row.columns.update(isr=isr, isr_old=old, zk_version=version, err=0, done=done)
        broker.isr = isr
        if version is not None and (skipped := self._skipped.pop(version, None)) is not None:
            self._waiting.drop(skipped)  # the broker saw its own write in the log before the answer to it
        self._memory.write(version, State(broker.epoch, fact.broker, isr))

    def _unattempted(self, fact: Fact, broker: OfBroker, before: list[int] | None) -> list[Row]:
        """A write whose attempt has no line: since 2.8 an expansion; else the line is in a part that is lost."""
        isr = fact.isr or []
        gained = [r for r in isr if before is not None and r not in before]
        gone = [r for r in before or () if r not in isr]
        columns: dict[str, Any] = {"epoch": broker.epoch, "key": None, "role": "broker", **_NO_MOVES}
        add = self._waiting.add
        if gained:
            src = SRC_LOG if fact.what == What.UPDATED else SRC_INFERRED
            return [add(fact, "isr_expand", src=src, replica=replica, **columns) for replica in gained]
        if gone:
            return [add(fact, "isr_shrink", src=SRC_INFERRED, replica=replica, **columns) for replica in gone]
        # What was before is not known: it is a state, and no more.
        state = {"replica": fact.broker, "epoch": broker.epoch, "role": "controller"}
        return [add(fact, What.ELECT, src=SRC_INFERRED, **state)]

    def _refused(self, fact: Fact, broker: OfBroker) -> None:
        rows, broker.attempt = broker.attempt, []
        for row in rows:
            row.columns.update(err=REFUSED, done=fact.at_us // 1000)
        if rows and fact.broker in self.writes_unsaid:
            self._memory.write_unversioned(State(broker.epoch, fact.broker, rows[0].columns["isr_old"] or []))

    # -- the controller ----------------------------------------------------------------------------------------------

    def _assign(self, fact: Fact, _: OfBroker) -> None:
        if fact.key is not None and self._memory.is_told_again(f"{fact.value} {fact.key}"):
            return
        value = fact.value if fact.value == CREATED else None
        if value is not None:
            self._begin_anew(fact.at_us)
        replicas = fact.replicas or []
        self._memory.assign(fact.at_us, replicas)
        self._memory.add_members(replicas)
        self._waiting.add(fact, What.ASSIGN, key=None, value=value)

    def _begin_anew(self, at_us: int) -> None:
        """What follows is of another topic of that name."""
        self._waiting.end_of_topic(at_us)
        self._memory.created()
        self._skipped.clear()

    def _elect(self, fact: Fact, _: OfBroker) -> None:
        """Also written where a replica to be cut was not in the ISR: then nothing changed."""
        epoch = fact.epoch if fact.epoch is not None else -1
        last = self._memory.states.get(fact.zk_version if fact.zk_version is not None else -1)
        if fact.zk_version is None and epoch <= self._memory.last_epoch:
            return
        if fact.key not in (None, CUT) and self._memory.is_told_again(f"state {fact.key}"):
            return
        if fact.key == CUT and last is not None and (last.epoch, set(last.isr)) == (epoch, set(fact.isr or ())):
            return
        if fact.key == CUT and self._is_of_leader(fact):
            leader = self._waiting.of.setdefault(fact.replica or 0, OfBroker())
            leader.epoch = fact.epoch
            self._updated(fact._replace(broker=fact.replica, replica=None), leader)
            return
        whole = _NO_MOVES if fact.replicas is not None else {}
        row = self._waiting.add(fact, What.ELECT, key=None, **whole)
        if fact.zk_version is not None:
            self._skipped = {fact.zk_version: row}
        self._memory.write(fact.zk_version, State(fact.epoch, fact.replica, fact.isr or []))
        self._memory.last_epoch = max(self._memory.last_epoch, epoch)

    def _is_of_leader(self, fact: Fact) -> bool:
        """Whether a state told in passing is the leader's write, seen in the log before the answer to it.

        Within an epoch only a leader lets members in; that it puts some out, it says before.
        """
        version, isr = fact.zk_version or 0, set(fact.isr or ())
        before = self._memory.states.get(version - 1)
        if before is None or (before.epoch, before.leader) != (fact.epoch, fact.replica) or isr == set(before.isr):
            return False
        attempts = self._waiting.of[fact.replica].attempt if fact.replica in self._waiting.of else []
        put_out = {row.columns["replica"] for row in attempts if row.columns["ev"] == "isr_shrink"}
        return set(before.isr) - isr <= put_out

    def _sent(self, fact: Fact, _: OfBroker) -> None:
        self._memory.assign(fact.at_us, fact.replicas or [])

    def _bump(self, fact: Fact, _: OfBroker) -> None:
        row = self._waiting.add(fact, What.ELECT, src=SRC_INFERRED)
        if fact.zk_version is None:
            self._waiting.fill_bump(row)  # of no version it is known what comes later

    def _live(self, fact: Fact, _: OfBroker) -> None:
        live = set(fact.replicas or ())
        for broker in sorted(self.brokers | live):
            ev = What.BROKER_UP if broker in live else What.BROKER_DOWN
            self._waiting.add(fact, ev, replica=broker, replicas=None, done=self._died(fact, broker, ev))

    def _alive(self, fact: Fact, _: OfBroker) -> None:
        died = None if fact.replica is None else self._died(fact, fact.replica, fact.what)
        self._waiting.add(fact, fact.what, done=died)

    def _lost(self, fact: Fact, _: OfBroker) -> None:
        ts, gone = fact.at_us // 1000, fact.replica
        if gone is not None:
            first, last = self._lost_at.get(gone, (ts, ts))
            self._lost_at[gone] = (first if ts - last <= _LOST_AGAIN_MS else ts, ts)

    def _died(self, fact: Fact, broker: int, ev: str) -> int | None:
        """When a broker died whose session has ended: others lost their connections to it first."""
        first, _ = self._lost_at.pop(broker, (None, None))
        ts = fact.at_us // 1000
        return first if ev == What.BROKER_DOWN and first is not None and ts - first <= _SESSION_MS else None

    # -- fetches and appends -----------------------------------------------------------------------------------------

    def _fetch(self, fact: Fact, broker: OfBroker) -> None:
        offset = fact.offset or 0
        waiting = broker.submitted.pop(fact.replica, None) if fact.replica is not None else None
        if fact.session is None:  # a "Recorded replica" line: in the broker's own order, so the end is known
            columns: dict[str, Any] = {"leo": max(broker.leo or 0, offset), "epoch": broker.epoch}
            if waiting is not None:
                waiting.columns.update(offset=offset, err=0, **columns)
            else:
                self._waiting.add(fact, What.FETCH, **columns)
            return
        self._waiting.add(fact, What.FETCH)

    def _append(self, fact: Fact, broker: OfBroker) -> None:
        broker.leo = fact.leo
        self._waiting.add(fact, What.APPEND, epoch=broker.epoch)

    def _produced(self, fact: Fact, broker: OfBroker) -> None:
        row = self._waiting.add(fact, What.APPEND, src=SRC_INFERRED)
        row.open_end = True
        broker.ends.append(row)


def _give_up(broker: OfBroker) -> None:
    """What was tried has no answer, and something else came: it was refused."""
    for row in broker.attempt:
        if row.columns["err"] == UNDER_WAY:
            row.columns.update(err=REFUSED, src=SRC_INFERRED)
    broker.attempt = []


def _out_of_sync(value: str | None) -> dict[int, tuple[int | None, int | None]]:
    """`3:1000:1717315210000 2::` as replica -> (offset, last caught up)."""
    outs = [out.split(":") for out in (value or "").split()]
    return {int(r): (int(o) if o else None, int(c) if c else None) for r, o, c in outs}


_TAKERS: Final = {
    What.START: Weave._start,
    What.STOP: Weave._stop,
    What.COPY: Weave._copies,
    What.COPIED: Weave._copies,
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
    What.BROKER_UP: Weave._alive,
    What.BROKER_DOWN: Weave._alive,
    What.LOST: Weave._lost,
    What.FETCH: Weave._fetch,
    What.APPEND: Weave._append,
    What.PRODUCED: Weave._produced,
}
