"""One consumer group as a state machine. Pure: requests and time go in, answers and writes come out as values.

Members, generations and states are Kafka's. Timers are values too: `next_deadline_ms` says when `tick` wants to be
called next. A request that has to wait is parked under its ticket and answered by a later effect; each ticket is
answered exactly once. Source: Kafka 3.9 `GroupCoordinator`, `GroupMetadata`, `MemberMetadata`, `DelayedJoin`; spec
clients.md §7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from broker_sim.groups.members import Member, Members
from broker_sim.groups.values import (
    GROUP_TRANSITIONS,
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    NO_GENERATION,
    Effect,
    GroupSettings,
    GroupState,
    Join,
    JoinAnswer,
    Reply,
    Store,
    Sync,
    SyncAnswer,
    Ticket,
)
from controller.wire.errors import ErrorCode


@dataclass(slots=True, kw_only=True)
class _Rebalance:
    """A rebalance being prepared: until when, and, for a group that was empty, how much longer it may be put off."""

    deadline_ms: int
    is_initial: bool = False
    remaining_ms: int = 0
    member_added: bool = False


class Group:
    """A group. Methods return effects in the order in which they must happen."""

    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.group_id = group_id
        self._settings = settings
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members = Members()
        self.state_changed_ms = -1
        self._pending: dict[str, int] = {}
        self._pending_sync: set[str] = set()
        self._sync_deadline_ms: int | None = None
        self._rebalance: _Rebalance | None = None
        self._effects: list[Effect] = []

    # -- loading -------------------------------------------------------------------------------------------------

    def restore(
        self,
        *,
        generation: int,
        protocol_type: str | None,
        protocol_name: str | None,
        leader: str | None,
        members: Sequence[Member],
        state_changed_ms: int,
        now_ms: int,
    ) -> None:
        """The group as its log has it: Stable with its members, whose sessions start now, or Empty."""
        self.generation, self.protocol_type, self.protocol_name = generation, protocol_type, protocol_name
        self.leader, self.state_changed_ms = leader, state_changed_ms
        self.state = GroupState.STABLE if members else GroupState.EMPTY
        self.members = Members((member.member_id, member) for member in members)
        for member in members:
            member.beat(now_ms)

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

    @property
    def has_members(self) -> bool:
        """Whether anybody belongs to it, or is about to."""
        return bool(self.members or self._pending)

    # -- requests ------------------------------------------------------------------------------------------------

    def join(self, request: Join, ticket: Ticket, now_ms: int) -> list[Effect]:
        """A JoinGroup whose group exists (created by the caller for an empty member id)."""
        error = self._join_error(request)
        if error is not None:
            return self._refuse_join(ticket, request, error)
        if request.member_id:
            self._join_known(request, ticket, now_ms)
        elif self.members.static_id(request.group_instance_id) is not None:
            self._rejoin_static(request, ticket, now_ms)
        elif request.group_instance_id is None and request.needs_known_member_id:
            self._pending[request.new_member_id] = now_ms + request.session_timeout_ms
            self._reply_join(ticket, JoinAnswer(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=request.new_member_id))
        else:
            self._add_member(request, request.new_member_id, ticket, now_ms)
        return self._flush()

    def sync(self, request: Sync, ticket: Ticket, now_ms: int) -> list[Effect]:
        """A SyncGroup."""
        error = self._member_error(request.member_id, request.group_instance_id, request.generation)
        if error is None and self._protocol_differs(request):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if error is None:
            error = _SYNC_REFUSED.get(self.state)
        if error is not None:
            self._reply_sync(ticket, SyncAnswer(error=error))
            return self._flush()
        member = self.members[request.member_id]
        self._has_synced(member.member_id)
        if self.state is GroupState.STABLE:
            member.beat(now_ms)
            self._reply_sync(ticket, self._assignment(member))
            return self._flush()
        if member.sync is not None:
            self._reply_sync(member.sync, SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync = ticket
        if member.member_id == self.leader:
            assignments = {m: request.assignments.get(m, b"") for m in self.members}
            self._effects.append(Store(self.generation, assignments))
        return self._flush()

    def stored(self, store: Store, error: ErrorCode, now_ms: int) -> list[Effect]:
        """The write that a `Store` asked for is done, or failed. One that the group has moved past means nothing."""
        if store.assignments is None or store.generation != self.generation:
            return []
        if self.state is not GroupState.COMPLETING_REBALANCE:
            return []
        if error is not ErrorCode.NONE:
            self._answer_syncs(error, now_ms)
            self._prepare_rebalance(now_ms)
            return self._flush()
        for member in self.members.values():
            member.assignment = store.assignments.get(member.member_id, b"")
        self._enter(GroupState.STABLE, now_ms)
        self._answer_syncs(ErrorCode.NONE, now_ms)
        return self._flush()

    def heartbeat(self, member_id: str, group_instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        """A Heartbeat. Starts the member's session anew unless it is refused."""
        error = self._member_error(member_id, group_instance_id, generation)
        if error is not None:
            return error
        if self.state is GroupState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self.members[member_id].beat(now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING_REBALANCE else ErrorCode.NONE

    def leave(self, member_id: str, group_instance_id: str | None, now_ms: int) -> tuple[ErrorCode, list[Effect]]:
        """One member leaves (a static one may be named by its instance alone)."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        if group_instance_id is not None:
            known = self.members.static_id(group_instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID, []
            if member_id and member_id != known:
                return ErrorCode.FENCED_INSTANCE_ID, []
            member_id = known
        if member_id in self._pending:
            del self._pending[member_id]
            self._try_complete_join(now_ms)
            return ErrorCode.NONE, self._flush()
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID, []
        self._remove_member(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        self._after_removal(now_ms)
        return ErrorCode.NONE, self._flush()

    def commit_error(self, member_id: str, group_instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        """Whether an OffsetCommit may go ahead; starts the member's session anew if so."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        error = self._member_error(member_id, group_instance_id, generation)
        if error is not None:
            return error
        if self.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        if self.state is GroupState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self.members[member_id].beat(now_ms)
        return ErrorCode.NONE

    def die(self) -> list[Effect]:
        """The group is deleted, or its partition moved away: all that wait are told to look for the coordinator."""
        self._enter(GroupState.DEAD, self.state_changed_ms)
        for member_id in list(self.members):
            self._remove_member(member_id, ErrorCode.NOT_COORDINATOR)
        self._pending.clear()
        self._rebalance, self._sync_deadline_ms = None, None
        return self._flush()

    # -- time ----------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> list[Effect]:
        """What is due now: sessions, ids that nobody used, members that never synced, the end of a rebalance's wait."""
        if self.state is GroupState.DEAD:
            return []
        self._expire_pending(now_ms)
        expired = [m.member_id for m in self.members.values() if m.may_expire and m.expires_at_ms <= now_ms]
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now_ms:
            self._sync_deadline_ms = None
            expired += [m for m in sorted(self._pending_sync) if m in self.members and m not in expired]
        for member_id in expired:
            self._remove_member(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if expired:
            self._after_removal(now_ms)
        if self._rebalance is not None and self._rebalance.deadline_ms <= now_ms:
            self._rebalance_wait_over(self._rebalance, now_ms)
        return self._flush()

    def _expire_pending(self, now_ms: int) -> None:
        gone = [member_id for member_id, at in self._pending.items() if at <= now_ms]
        for member_id in gone:
            del self._pending[member_id]
        if gone:
            self._try_complete_join(now_ms)

    def _rebalance_wait_over(self, rebalance: _Rebalance, now_ms: int) -> None:
        if rebalance.is_initial and rebalance.member_added and rebalance.remaining_ms > 0:
            delay_ms = min(self._settings.initial_rebalance_delay_ms, rebalance.remaining_ms)
            rebalance.member_added = False
            rebalance.remaining_ms -= delay_ms
            rebalance.deadline_ms = now_ms + delay_ms
            return
        self._complete_join(now_ms)

    # -- joining -------------------------------------------------------------------------------------------------

    def _join_error(self, request: Join) -> ErrorCode | None:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self._is_full(request):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not self._supports(request):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not request.member_id or request.member_id in self._pending:
            return None
        if request.group_instance_id is not None:
            known = self.members.static_id(request.group_instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != request.member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        if request.member_id not in self.members or self.state is GroupState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return None

    def _is_full(self, request: Join) -> bool:
        """Kafka's `acceptJoiningMember`: those that wait in JoinGroup have places, then the others as they come."""
        if self.state in (GroupState.EMPTY, GroupState.DEAD):
            return False
        known = request.member_id in self.members or self.members.static_id(request.group_instance_id) is not None
        if self.state is GroupState.PREPARING_REBALANCE:
            awaiting = sum(m.join is not None for m in self.members.values())
            is_awaiting = (
                known and request.member_id in self.members and (self.members[request.member_id].join is not None)
            )
            return not is_awaiting and awaiting >= self._settings.max_size
        return not known and len(self.members) >= self._settings.max_size

    def _supports(self, request: Join) -> bool:
        names = {name for name, _ in request.protocols}
        if not request.protocol_type or not names:
            return False
        if self.state is GroupState.EMPTY or not self.members:
            return True
        return request.protocol_type == self.protocol_type and bool(names & self.members.common_protocols())

    def _join_known(self, request: Join, ticket: Ticket, now_ms: int) -> None:
        if request.member_id in self._pending:
            self._add_member(request, request.member_id, ticket, now_ms)
            return
        member = self.members[request.member_id]
        unchanged = member.protocols == request.protocols
        if self.state is GroupState.COMPLETING_REBALANCE and unchanged:
            member.beat(now_ms)
            self._reply_join(ticket, self._current_generation(member))
        elif self.state is GroupState.STABLE and unchanged and member.member_id != self.leader:
            member.beat(now_ms)
            self._reply_join(ticket, replace(self._current_generation(member), members=()))
        else:
            self._update_member(member, request, ticket)
            self._maybe_prepare_rebalance(now_ms)

    def _add_member(self, request: Join, member_id: str, ticket: Ticket, now_ms: int) -> None:
        self._pending.pop(member_id, None)
        if not self.members:
            self.protocol_type = request.protocol_type
        self.members[member_id] = Member(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocols=request.protocols,
            is_new=True,
            join=ticket,
            expires_at_ms=now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS,
        )
        if self.leader is None:
            self.leader = member_id
        if self._rebalance is not None and self.generation == 0:
            self._rebalance.member_added = True
        self._maybe_prepare_rebalance(now_ms)

    def _update_member(self, member: Member, request: Join, ticket: Ticket) -> None:
        if member.join is not None:
            # The member gave up that request; whoever still waits for it must not wait for ever.
            self._reply_join(member.join, JoinAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id))
        member.protocols, member.join = request.protocols, ticket
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms

    def _rejoin_static(self, request: Join, ticket: Ticket, now_ms: int) -> None:
        """A static member came back without its id: a new id takes the place of the old one."""
        old_id, old_leader = self.members.static_id(request.group_instance_id), self.leader
        assert old_id is not None
        member = self._replace(self.members[old_id], request.new_member_id)
        if self.state is GroupState.STABLE:
            self._update_member(member, request, ticket)
            if self.members.selected_protocol() != self.protocol_name:
                self._maybe_prepare_rebalance(now_ms)
                return
            self._effects.append(Store(self.generation, self.members.assignments()))
            member.join = None
            member.beat(now_ms)
            answer = replace(self._current_generation(member), leader=old_leader or "", members=())
            self._reply_join(ticket, answer)
            return
        self._update_member(member, request, ticket)
        if self.state is GroupState.PREPARING_REBALANCE:
            self._try_complete_join(now_ms)
        else:
            self._maybe_prepare_rebalance(now_ms)

    def _replace(self, member: Member, new_id: str) -> Member:
        old_id = member.member_id
        self._answer_parked(member, ErrorCode.FENCED_INSTANCE_ID)
        self.members.rename(old_id, new_id)
        if old_id in self._pending_sync:
            self._pending_sync.remove(old_id)
            self._pending_sync.add(new_id)
        if self.leader == old_id:
            self.leader = new_id
        return member

    # -- rebalancing ---------------------------------------------------------------------------------------------

    def _maybe_prepare_rebalance(self, now_ms: int) -> None:
        if self.state is GroupState.PREPARING_REBALANCE:
            self._try_complete_join(now_ms)
        elif self.state in GROUP_TRANSITIONS[GroupState.PREPARING_REBALANCE]:
            self._prepare_rebalance(now_ms)

    def _prepare_rebalance(self, now_ms: int) -> None:
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._answer_syncs(ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        self._sync_deadline_ms = None
        self._pending_sync.clear()
        was_empty = self.state is GroupState.EMPTY
        self._enter(GroupState.PREPARING_REBALANCE, now_ms)
        if was_empty:
            delay_ms = self._settings.initial_rebalance_delay_ms
            self._rebalance = _Rebalance(
                deadline_ms=now_ms + delay_ms,
                is_initial=True,
                remaining_ms=max(self.members.rebalance_timeout_ms() - delay_ms, 0),
            )
        else:
            self._rebalance = _Rebalance(deadline_ms=now_ms + self.members.rebalance_timeout_ms())
            self._try_complete_join(now_ms)

    def _try_complete_join(self, now_ms: int) -> None:
        if self._rebalance is None or self._rebalance.is_initial or self._pending:
            return
        if all(member.join is not None for member in self.members.values()):
            self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> None:
        for member in [m for m in self.members.values() if m.join is None and m.group_instance_id is None]:
            self._remove_member(member.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        rejoined = [member for member in self.members.values() if member.join is not None]
        if self.members and not rejoined:
            self._rebalance = _Rebalance(deadline_ms=now_ms + self.members.rebalance_timeout_ms())
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

    def _after_removal(self, now_ms: int) -> None:
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.PREPARING_REBALANCE):
            self._maybe_prepare_rebalance(now_ms)

    # -- answers -------------------------------------------------------------------------------------------------

    def _member_error(self, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode | None:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if group_instance_id is not None:
            known = self.members.static_id(group_instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.ILLEGAL_GENERATION if generation != self.generation else None

    def _has_synced(self, member_id: str) -> None:
        self._pending_sync.discard(member_id)
        if not self._pending_sync:
            self._sync_deadline_ms = None

    def _protocol_differs(self, request: Sync) -> bool:
        type_, name = request.protocol_type, request.protocol_name
        return (type_ is not None and type_ != self.protocol_type) or (name is not None and name != self.protocol_name)

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
            self._reply_join(member.join, JoinAnswer(error=error))
        if member.sync is not None:
            self._reply_sync(member.sync, SyncAnswer(error=error))
        member.join = member.sync = None

    def _refuse_join(self, ticket: Ticket, request: Join, error: ErrorCode) -> list[Effect]:
        self._reply_join(ticket, JoinAnswer(error=error, member_id=request.member_id, generation=NO_GENERATION))
        return self._flush()

    def _reply_join(self, ticket: Ticket, answer: JoinAnswer) -> None:
        self._effects.append(Reply(ticket, answer))

    def _reply_sync(self, ticket: Ticket, answer: SyncAnswer) -> None:
        self._effects.append(Reply(ticket, answer))

    def _enter(self, state: GroupState, now_ms: int) -> None:
        if self.state not in GROUP_TRANSITIONS[state]:
            raise AssertionError(f"group {self.group_id}: {self.state.value} -> {state.value} is not legal")
        self.state, self.state_changed_ms = state, now_ms

    def _flush(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects


#: What a SyncGroup gets in states without an assignment.
_SYNC_REFUSED: Mapping[GroupState, ErrorCode] = {
    GroupState.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    GroupState.PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
}
