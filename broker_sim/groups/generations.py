"""The life of a group between its requests: rebalances, generations, sessions. Pure; `group` is its face.

Timers are values: `next_deadline_ms` says when `tick` wants to be called next. Source: Kafka 3.9 `GroupCoordinator`,
`GroupMetadata`, `DelayedJoin`; spec clients.md §7.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker_sim.groups.members import Member, Members
from broker_sim.groups.values import (
    GROUP_TRANSITIONS,
    Effect,
    GroupSettings,
    GroupState,
    JoinAnswer,
    Reply,
    Store,
    SyncAnswer,
    Ticket,
)
from controller.wire.errors import ErrorCode


@dataclass(slots=True, kw_only=True)
class Rebalance:
    """A rebalance being prepared: until when, and, for a group that was empty, how much longer it may be put off."""

    deadline_ms: int
    remaining_ms: int | None = None
    member_added: bool = False


class Generations:
    """A group as far as it moves from generation to generation. Effects collect until `_flush`."""

    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.group_id = group_id
        self._settings = settings
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members = Members()
        #: time of day, as in the log; how far that is ahead of the time that requests and `tick` are given
        self.state_changed_ms, self.ahead_ms = -1, 0
        self._pending: dict[str, int] = {}
        self._pending_sync: set[str] = set()
        #: tickets of static members that came back, until their new ids are stored -> their old selves, who led then
        self._rejoins: dict[Ticket, tuple[Member, str | None]] = {}
        self._sync_deadline_ms: int | None = None
        self._rebalance: Rebalance | None = None
        self._effects: list[Effect] = []

    # -- questions -----------------------------------------------------------------------------------------------

    @property
    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do; None when nothing is due ever."""
        deadlines = [m.expires_at_ms for m in self.members.values() if m.may_expire]
        deadlines += self._pending.values()
        if self._sync_deadline_ms is not None:
            deadlines.append(self._sync_deadline_ms)
        if self._rebalance is not None:
            deadlines.append(self._rebalance.deadline_ms)
        return min(deadlines, default=None)

    # -- time ----------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> list[Effect]:
        """What is due now: sessions, ids that nobody used, members that never synced, the end of a rebalance's wait."""
        if self.state is GroupState.DEAD:
            return []
        self._expire_pending(now_ms)
        expired = [m.member_id for m in self.members.values() if m.may_expire and m.expires_at_ms <= now_ms]
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now_ms:
            self._sync_deadline_ms = None
            expired += sorted(self._pending_sync.difference(expired))
        for member_id in expired:
            self._remove_member(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if expired:
            self._maybe_prepare_rebalance(now_ms)
        if self._rebalance is not None and self._rebalance.deadline_ms <= now_ms:
            self._rebalance_wait_over(self._rebalance, now_ms)
        return self._flush()

    def _expire_pending(self, now_ms: int) -> None:
        gone = [member_id for member_id, at in self._pending.items() if at <= now_ms]
        for member_id in gone:
            del self._pending[member_id]
        if gone:
            self._try_complete_join(now_ms)

    def _rebalance_wait_over(self, rebalance: Rebalance, now_ms: int) -> None:
        if rebalance.member_added and rebalance.remaining_ms:
            delay_ms = min(self._settings.initial_rebalance_delay_ms, rebalance.remaining_ms)
            rebalance.member_added = False
            rebalance.remaining_ms -= delay_ms
            rebalance.deadline_ms = now_ms + delay_ms
            return
        self._complete_join(now_ms)

    # -- rebalancing ---------------------------------------------------------------------------------------------

    def _maybe_prepare_rebalance(self, now_ms: int) -> None:
        if self.state is GroupState.PREPARING_REBALANCE:
            self._try_complete_join(now_ms)
        else:
            self._prepare_rebalance(now_ms)

    def _prepare_rebalance(self, now_ms: int) -> None:
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._answer_syncs(ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        self._sync_deadline_ms = None
        was_empty = self.state is GroupState.EMPTY
        self._enter(GroupState.PREPARING_REBALANCE, now_ms)
        if was_empty:
            delay_ms = self._settings.initial_rebalance_delay_ms
            self._rebalance = Rebalance(
                deadline_ms=now_ms + delay_ms,
                remaining_ms=max(self.members.rebalance_timeout_ms() - delay_ms, 0),
            )
        else:
            self._rebalance = Rebalance(deadline_ms=now_ms + self.members.rebalance_timeout_ms())
            self._try_complete_join(now_ms)

    def _try_complete_join(self, now_ms: int) -> None:
        if self._rebalance is None or self._rebalance.remaining_ms is not None or self._pending:
            return
        if all(member.join is not None for member in self.members.values()):
            self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> None:
        for member in [m for m in self.members.values() if m.join is None and m.group_instance_id is None]:
            self._remove_member(member.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        rejoined = [member for member in self.members.values() if member.join is not None]
        if self.members and not rejoined:
            self._rebalance = Rebalance(deadline_ms=now_ms + self.members.rebalance_timeout_ms())
            return
        self._rebalance = None
        if rejoined and self.leader not in {member.member_id for member in rejoined}:
            self.leader = rejoined[0].member_id
        self.generation += 1
        if not self.members:
            self.protocol_name, self.leader = None, None
            self._enter(GroupState.EMPTY, now_ms)
            self._effects.append(Store(self.generation, None))
            return
        self.protocol_name = self.members.selected_protocol()
        self._enter(GroupState.COMPLETING_REBALANCE, now_ms)
        for member in self.members.values():
            member.assignment, member.is_new = b"", False
            member.beat(now_ms)
            self._pending_sync.add(member.member_id)
            if member.join is not None:
                self._reply_join(member.join, self._current_generation(member))
                member.join = None
        self._sync_deadline_ms = now_ms + self.members.rebalance_timeout_ms()

    def _remove_member(self, member_id: str, error: ErrorCode) -> None:
        member = self.members.pop(member_id)
        self._answer_parked(member, error)
        self._has_synced(member_id)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    # -- answers -------------------------------------------------------------------------------------------------

    def _has_synced(self, member_id: str) -> None:
        self._pending_sync.discard(member_id)
        if not self._pending_sync:
            self._sync_deadline_ms = None

    def _current_generation(self, member: Member) -> JoinAnswer:
        is_leader = member.member_id == self.leader
        return JoinAnswer(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader or "",
            members=self.members.entries(self.protocol_name) if is_leader else (),
        )

    def _assignment(self, member: Member) -> SyncAnswer:
        return SyncAnswer(
            protocol_type=self.protocol_type, protocol_name=self.protocol_name, assignment=member.assignment
        )

    def _answer_syncs(self, error: ErrorCode, now_ms: int) -> None:
        for member in self.members.values():
            if error is not ErrorCode.NONE:
                member.assignment = b""
            if member.sync is not None:
                answer = self._assignment(member) if error is ErrorCode.NONE else SyncAnswer(error=error)
                self._reply_sync(member.sync, answer)
                member.sync = None
                member.beat(now_ms)

    def _answer_parked(self, member: Member, error: ErrorCode) -> None:
        if member.join is not None:
            is_unknown = error is ErrorCode.UNKNOWN_MEMBER_ID
            self._reply_join(member.join, JoinAnswer(error=error, member_id="" if is_unknown else member.member_id))
        if member.sync is not None:
            self._reply_sync(member.sync, SyncAnswer(error=error))
        member.join = member.sync = None

    def _reply_join(self, ticket: Ticket, answer: JoinAnswer) -> None:
        self._effects.append(Reply(ticket, answer))

    def _reply_sync(self, ticket: Ticket, answer: SyncAnswer) -> None:
        self._effects.append(Reply(ticket, answer))

    def _enter(self, state: GroupState, now_ms: int) -> None:
        if self.state not in GROUP_TRANSITIONS[state]:
            raise AssertionError(f"group {self.group_id}: {self.state.value} -> {state.value} is not legal")
        self.state, self.state_changed_ms = state, now_ms + self.ahead_ms

    def _flush(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects
