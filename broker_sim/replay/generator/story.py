"""All that happens to one partition, term by term: from the plan to rows of the trace and the truth. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from broker_sim.replay.generator.membership import Term, TermTruth
from broker_sim.replay.generator.plan import PREFERRED_AFTER_MS, SLOTS, ClusterPlan, Fault, FaultKind
from broker_sim.replay.generator.traffic import Appends, Fetches, Follower, aligned, draw_appends
from controller.wire.trace import TraceEvent
from controller.wire.types import BrokerId

#: The slot of what the controller does.
_CONTROLLER_SLOT: Final = SLOTS - 1
_FIRST_TERM_MS: Final = 1_500
#: No append so shortly before a leader goes, so that every member has every record.
_QUIET_MS: Final = 150
#: Events of many partitions are spread over so many slots.
_SPREAD: Final = 40
#: A replica that is added copies its log in so many fetches, and within this time.
_COPY_FETCHES: Final = 24
_COPY_MS_MAX: Final = 30_000
_ISR_WRITE_MS: Final = 2

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TermTraffic:
    """The bulk of one term: its appends and each follower's fetches."""

    term: Term
    appends: Appends
    fetches: dict[BrokerId, Fetches]


@dataclass(slots=True)
class PartitionStory:
    """One partition from the first to the last row.

    After `tell`: `traffic` has the bulk, `rows` the rest as columns of the trace (with `order`, which tells rows of the
    same ms apart), `truth` every change of the ISR with the fault it comes from.
    """

    plan: ClusterPlan
    index: int
    traffic: list[TermTraffic] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    truth: list[Row] = field(default_factory=list)
    _appends: Appends = field(init=False)
    _now: Term = field(init=False)
    _zk_version: int = 0
    #: where the log of each replica ends
    _ends: dict[BrokerId, int] = field(default_factory=dict)

    def tell(self) -> None:
        """Goes through all faults. Call once."""
        replicas = self.plan.assignment[self.index]
        self._appends = draw_appends(self.plan, self.index, quiet=[*self._quiet(replicas[0], len(replicas))])
        at = aligned(self.plan.start_ms + _FIRST_TERM_MS + self._spread, _CONTROLLER_SLOT)
        self._ends = dict.fromkeys(replicas, 0)
        self._controller_row(TraceEvent.ASSIGN, at, replicas=replicas, adding=(), removing=())
        self._begin(at, leader=replicas[0], replicas=replicas, isr=replicas, epoch=0)
        for fault in self.plan.faults:
            self._suffer(fault)
        self._end_term(self.plan.end_ms)

    # -- faults ----------------------------------------------------------------------------------------------------

    def _suffer(self, fault: Fault) -> None:
        if fault.kind is FaultKind.REASSIGN and fault.partition_index == self.index:
            self._reassign(fault)
        elif fault.kind is FaultKind.KILL and fault.broker in self._now.replicas:
            if fault.broker != self._now.leader:
                self._lose_follower(fault, fault.broker)
            elif len(self._now.replicas) > 1:
                self._lose_leader(fault)
            else:
                self._lose_all(fault)

    def _lose_follower(self, fault: Fault, broker: BrokerId) -> None:
        at = self._expired_ms(fault)
        self._end_term(at)
        self._begin(at, isr=tuple(r for r in self._now.isr if r != broker))
        self._follower_row(broker, aligned(fault.to_ms - 2 * SLOTS, _CONTROLLER_SLOT))

    def _lose_leader(self, fault: Fault) -> None:
        dead = self._now.leader
        self._end_term(fault.from_ms)
        survivors = tuple(r for r in self._now.replicas if r != dead)
        isr = tuple(r for r in self._now.isr if r != dead)
        self._begin(self._expired_ms(fault), leader=survivors[0], isr=isr)
        self._follower_row(dead, aligned(fault.to_ms - 2 * SLOTS, _CONTROLLER_SLOT))
        back = self._preferred_ms(fault)
        self._end_term(back)
        self._begin(back, leader=dead, isr=self._now.isr)

    def _lose_all(self, fault: Fault) -> None:
        """Nobody else has the partition: it is offline until the broker is back."""
        leader, at = self._now.leader, self._expired_ms(fault)
        self._end_term(fault.from_ms)
        epoch = self._now.epoch + 1
        self._controller_row(TraceEvent.ELECT, at, epoch=epoch, replica=BrokerId(-1), isr=self._now.isr)
        self._zk_version += 1
        self._begin(self._preferred_ms(fault), leader=leader, isr=self._now.isr, epoch=epoch + 1)

    def _reassign(self, fault: Fault) -> None:
        old = self._now
        gone = old.replicas[-1]
        brokers = self.plan.broker_ids
        new = next(b for b in (*brokers[gone:], *brokers) if b not in old.replicas)
        at = aligned(fault.from_ms, _CONTROLLER_SLOT)
        both, adding, removing = (*old.replicas, new), (new,), (gone,)
        self._end_term(at)
        self._ends[new] = 0
        self._controller_row(TraceEvent.ASSIGN, at, replicas=both, adding=adding, removing=removing)
        self._begin(at, replicas=both, adding=adding, removing=removing, isr=self._now.isr)
        finish = aligned(self._joins_ms(new, at + _COPY_MS_MAX) + 6 * SLOTS, _CONTROLLER_SLOT)
        self._end_term(finish)
        target = tuple(r for r in both if r != gone)
        self._begin(finish, replicas=target, adding=(), removing=(), isr=self._now.isr)
        cut = finish + 3 * SLOTS
        if gone in self._isr_at(cut):  # else the leader's tick came first, and the controller has nothing to write
            self._end_term(cut)
            self._begin(cut, isr=tuple(r for r in self._now.isr if r != gone))
        self._row(TraceEvent.STOP, cut + SLOTS, broker=gone, epoch=self._now.epoch, value="delete")
        self._controller_row(TraceEvent.ASSIGN, cut + 2 * SLOTS, replicas=target, adding=(), removing=())
        del self._ends[gone]

    def _joins_ms(self, replica: BrokerId, limit_ms: int) -> int:
        """When the replica joins the ISR of the term that has begun, which is left as it is."""
        return next(c.ts for c in self._truth_until(limit_ms).changes if c.joins and c.replica == replica)

    def _isr_at(self, ts: int) -> tuple[BrokerId, ...]:
        """The ISR of the term that has begun, which is left as it is."""
        return self._truth_until(ts).isr

    def _truth_until(self, to_ms: int) -> TermTruth:
        term = replace(self._now, to_ms=to_ms)
        return self._evaluated(term, self._fetches(term, dict(self._ends)))

    # -- when ------------------------------------------------------------------------------------------------------

    @property
    def _spread(self) -> int:
        return SLOTS * (self.index % _SPREAD)

    def _expired_ms(self, fault: Fault) -> int:
        """When the controller acts on the end of the broker's session."""
        return aligned(fault.from_ms + self.plan.session_timeout_ms + self._spread, _CONTROLLER_SLOT)

    def _preferred_ms(self, fault: Fault) -> int:
        """When the preferred leader is elected again."""
        return aligned(fault.to_ms + PREFERRED_AFTER_MS + self._spread, _CONTROLLER_SLOT)

    def _quiet(self, leader: BrokerId, replicas: int) -> Iterator[tuple[int, int]]:
        """Times without appends: no leader, or one that is about to go."""
        for fault in self.plan.faults:
            if fault.kind is FaultKind.KILL and fault.broker == leader:
                away, back = self._expired_ms(fault), self._preferred_ms(fault)
                yield fault.from_ms - _QUIET_MS, back if replicas == 1 else away
                yield back - _QUIET_MS, back

    # -- terms -----------------------------------------------------------------------------------------------------

    def _begin(self, at: int, **changed: Any) -> None:
        """The next term begins at `at`, with what changed; the controller has written it, the replicas know it."""
        self._now = self._next_term(at, changed)
        term = self._now
        if term.took_over:
            self._controller_row(TraceEvent.ELECT, at, epoch=term.epoch, replica=term.leader, isr=term.isr)
        self._row(
            TraceEvent.LEADER,
            at,
            broker=term.leader,
            epoch=term.epoch,
            offset=term.epoch_start,
            hw=term.hw,
            isr=term.isr,
            replicas=term.replicas,
            adding=term.adding,
            removing=term.removing,
            zk_version=self._zk_version,
        )
        for replica in term.replicas:
            if replica != term.leader and not self._is_killed(replica, at):
                self._follower_row(replica, at)

    def _next_term(self, at: int, changed: dict[str, Any]) -> Term:
        leo = self._appends.leo_after(at)
        if not self.traffic:
            return Term(
                from_ms=at,
                to_ms=at,
                epoch_start=leo,
                took_over=True,
                hw=0,
                tick_phase_ms=self.plan.run_of(changed["leader"], at),
                known_ends={},
                **changed,
            )
        before = self._now
        self._zk_version += 1
        leader = changed.get("leader", before.leader)
        took_over = leader != before.leader or "epoch" in changed
        if self._ends.get(leader, leo) != leo:
            raise AssertionError(f"{leader} lacks records of {self.plan.topic_partition(self.index)} at {at}")
        same = {"epoch": before.epoch + 1, **changed}
        return replace(
            before,
            from_ms=at,
            epoch_start=leo,
            took_over=took_over,
            tick_phase_ms=self.plan.run_of(leader, at),
            **same,
        )

    def _end_term(self, to_ms: int) -> None:
        """The term that has begun ends at `to_ms`: what was fetched in it, and what follows."""
        term = replace(self._now, to_ms=to_ms)
        fetches = self._fetches(term, self._ends)
        truth = self._evaluated(term, fetches)
        self.traffic.append(TermTraffic(term=term, appends=self._appends, fetches=fetches))
        isr = term.isr
        for change in truth.changes:
            after = (*isr, change.replica) if change.joins else tuple(r for r in isr if r != change.replica)
            self._zk_version += 1
            self._row(
                TraceEvent.ISR_EXPAND if change.joins else TraceEvent.ISR_SHRINK,
                change.ts,
                order=1,
                broker=term.leader,
                epoch=term.epoch,
                replica=change.replica,
                isr_old=isr,
                isr=after,
                zk_version=self._zk_version,
                err=0,
                cu=change.cu,
                done=change.ts + _ISR_WRITE_MS,
            )
            self._true(change.ts, self.rows[-1]["ev"], term, isr_old=isr, isr=after, replica=change.replica)
            isr = after
        self._ends[term.leader] = self._appends.leo_after(to_ms - 1)
        follower_ends = {r: int(f.offset[-1]) if len(f) else term.known_ends.get(r, -1) for r, f in fetches.items()}
        self._now = replace(term, isr=isr, hw=truth.hw, known_ends=follower_ends)

    def _evaluated(self, term: Term, fetches: dict[BrokerId, Fetches]) -> TermTruth:
        return TermTruth(
            term,
            self._appends,
            fetches,
            lag_time_max_ms=self.plan.lag_time_max_ms,
            min_insync_replicas=self.plan.min_insync_replicas,
        )

    def _fetches(self, term: Term, ends: dict[BrokerId, int]) -> dict[BrokerId, Fetches]:
        """Each follower's fetches of the term; `ends` is moved on to where their logs end then."""
        fetched: dict[BrokerId, Fetches] = {}
        for slot, replica in self._slots(term):
            chance = random.Random(f"{self.plan.seed} {self.index} {term.epoch} {replica}")
            follower = Follower(self._appends, slot=slot, position=ends[replica], chance=chance)
            at, steps = term.from_ms, _COPY_FETCHES if replica in term.adding else None
            for kind, from_ms, to_ms in self.plan.gaps.get(replica, ()):
                if to_ms > at and from_ms < term.to_ms:
                    if from_ms > at:
                        follower.follow(at, from_ms)
                    if kind is FaultKind.SLOW:
                        follower.crawl(max(at, from_ms), min(to_ms, term.to_ms))
                    at = min(to_ms, term.to_ms)
            if at < term.to_ms:
                follower.follow(at, term.to_ms, **({} if steps is None else {"steps": steps}))
            ends[replica] = follower.position
            fetched[replica] = follower.fetches()
        return fetched

    def _slots(self, term: Term) -> Iterator[tuple[int, BrokerId]]:
        """A slot for each follower, and the same one in all terms with the same replicas."""
        for slot, replica in enumerate(sorted(term.replicas), start=1):
            if replica != term.leader:
                yield slot, replica

    def _is_killed(self, broker: BrokerId, ts: int) -> bool:
        gaps = self.plan.gaps.get(broker, ())
        return any(kind is FaultKind.KILL and from_ms <= ts < to_ms for kind, from_ms, to_ms in gaps)

    # -- rows ------------------------------------------------------------------------------------------------------

    def _follower_row(self, replica: BrokerId, ts: int) -> None:
        now = self._now
        end, hw = self._ends[replica], min(now.hw, self._ends[replica])
        self._row(TraceEvent.FOLLOWER, ts, broker=replica, epoch=now.epoch, replica=now.leader, offset=end, hw=hw)

    def _controller_row(self, ev: TraceEvent, ts: int, **columns: Any) -> None:
        order = 1 if ev is TraceEvent.ELECT else 0
        self._row(ev, ts, broker=self.plan.controller_at(ts), order=order, role="controller", **columns)
        if ev is TraceEvent.ELECT and columns["replica"] < 0:
            self._true(ts, "controller", self._now, isr_old=self._now.isr, isr=columns["isr"], leader=-1)

    def _row(
        self, ev: TraceEvent, ts: int, *, broker: int, order: int = 0, role: str = "broker", **columns: Any
    ) -> None:
        topic, partition = self.plan.topic_partition(self.index)
        of_lists = {k: list(v) if isinstance(v, tuple) else v for k, v in columns.items()}
        run = 0 if role == "controller" else self.plan.run_of(BrokerId(broker), ts)
        key = {"ts": ts, "broker": broker, "ev": ev.value, "topic": topic, "partition": partition}
        self.rows.append({**key, "role": role, "run": run, "order": order, **of_lists})
        if ev is TraceEvent.LEADER:
            self._true(ts, ev.value, self._now, isr=columns["isr"])

    def _true(self, ts: int, event: str, term: Term, **columns: Any) -> None:
        topic, partition = self.plan.topic_partition(self.index)
        fault = self.plan.fault_before(ts)
        row = {"topic": topic, "partition": partition, "ts": ts, "event": event, "leader": term.leader}
        row |= {"leader_epoch": term.epoch, "isr_old": None, "replica": None, **columns}
        self.truth.append({**row, "fault": None if fault is None else fault.number})
