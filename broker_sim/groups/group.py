"""One consumer group as a state machine. Pure: requests and time go in, answers and writes come out as values.

Members, generations and states are Kafka's. A request that has to wait is parked under its ticket and answered by a
later effect; each ticket is answered exactly once. What happens between requests is in `generations`. Source: Kafka 3.9
`GroupCoordinator`, `GroupMetadata`, `MemberMetadata`; spec clients.md §7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from broker_sim.groups.generations import Generations
from broker_sim.groups.members import Member, Members
from broker_sim.groups.values import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    NO_MEMBER,
    Effect,
    GroupState,
    Join,
    JoinAnswer,
    Store,
    Sync,
    SyncAnswer,
    Ticket,
)
from controller.wire.errors import ErrorCode


class Group(Generations):
    """A group. Methods return effects in the order in which they must happen."""

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
        """The group as its log has it: Stable with its members, whose sessions start now, or Empty.

        Where it has more members than may be now, they join again, and the last find no place. Source: `onGroupLoaded`.
        """
        self.generation, self.protocol_type, self.protocol_name = generation, protocol_type, protocol_name
        self.leader, self.state_changed_ms = leader, state_changed_ms
        self.state = GroupState.STABLE if members else GroupState.EMPTY
        self.members = Members((member.member_id, member) for member in members)
        for member in members:
            member.beat(now_ms)
        if len(members) > self._settings.max_size:
            self._prepare_rebalance(now_ms)

    # -- requests ------------------------------------------------------------------------------------------------

    def join(self, request: Join, ticket: Ticket, now_ms: int) -> list[Effect]:
        """A JoinGroup whose group exists (created by the caller for an empty member id)."""
        error = self._join_error(request)
        if error is ErrorCode.GROUP_MAX_SIZE_REACHED:
            self._turn_away(request.member_id, ticket, now_ms)
            return self._flush()
        if error is not None:
            is_thrown = error is ErrorCode.UNKNOWN_SERVER_ERROR  # then the answer knows of no member
            self._reply_join(ticket, JoinAnswer(error=error, member_id=NO_MEMBER if is_thrown else request.member_id))
            return self._flush()
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
        if error is None and self.state is GroupState.PREPARING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
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
        if store.ticket is not None:
            self._rejoin_stored(store.ticket, error, now_ms)
            return self._flush()
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
        self.members[member_id].beat(now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING_REBALANCE else ErrorCode.NONE

    def leave(self, member_id: str, group_instance_id: str | None, now_ms: int) -> tuple[ErrorCode, list[Effect]]:
        """One member leaves (a static one may be named by its instance alone)."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        if member_id in self._pending:
            del self._pending[member_id]
            self._try_complete_join(now_ms)
            return ErrorCode.NONE, self._flush()
        member_id = member_id or self.members.static_id(group_instance_id) or NO_MEMBER
        error = self._identity_error(member_id, group_instance_id)
        if error is not None:
            return error, []
        self._remove_member(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        self._maybe_prepare_rebalance(now_ms)
        return ErrorCode.NONE, self._flush()

    def commit_error(self, member_id: str, group_instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        """Whether an OffsetCommit may go ahead; starts the member's session anew if so."""
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        error = self._member_error(member_id, group_instance_id, generation)
        if error is not None:
            return error
        if self.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self.members[member_id].beat(now_ms)
        return ErrorCode.NONE

    def die(self) -> list[Effect]:
        """The group is deleted, or its partition moved away: all that wait are told to look for the coordinator."""
        self._enter(GroupState.DEAD, self.state_changed_ms - self.ahead_ms)
        for member_id in list(self.members):
            self._remove_member(member_id, ErrorCode.NOT_COORDINATOR)
        self._pending.clear()
        self._rebalance, self._sync_deadline_ms = None, None
        return self._flush()

    # -- joining -------------------------------------------------------------------------------------------------

    def _join_error(self, request: Join) -> ErrorCode | None:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self._is_full(request):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not self._supports(request):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not request.member_id:
            return None
        if request.member_id in self._pending:  # it was given to a dynamic member: Kafka throws
            return None if request.group_instance_id is None else ErrorCode.UNKNOWN_SERVER_ERROR
        return self._identity_error(request.member_id, request.group_instance_id)

    def _is_full(self, request: Join) -> bool:
        """Kafka's `acceptJoiningMember`: those that wait in JoinGroup have places, then the others as they come."""
        member = self.members.get(request.member_id)
        if self.state is not GroupState.PREPARING_REBALANCE:
            return member is None and len(self.members) >= self._settings.max_size
        awaiting = sum(each.join is not None for each in self.members.values())
        return (member is None or member.join is None) and awaiting >= self._settings.max_size

    def _turn_away(self, member_id: str, ticket: Ticket, now_ms: int) -> None:
        """Who finds no place is no member any more, and nobody waits for it. Source: `handleJoinGroup`."""
        self._pending.pop(member_id, None)
        if member_id in self.members:
            self._remove_member(member_id, ErrorCode.GROUP_MAX_SIZE_REACHED)
        self._reply_join(ticket, JoinAnswer(error=ErrorCode.GROUP_MAX_SIZE_REACHED))
        self._try_complete_join(now_ms)

    def _supports(self, request: Join) -> bool:
        """A group that waits for ids that it gave may have no members, and is not Empty."""
        names = {name for name, _ in request.protocols}
        if not names or not request.protocol_type:
            return False
        if self.state is not GroupState.EMPTY and request.protocol_type != self.protocol_type:
            return False
        return not self.members or bool(names & self.members.common_protocols())

    def _join_known(self, request: Join, ticket: Ticket, now_ms: int) -> None:
        if request.member_id in self._pending:
            self._add_member(request, request.member_id, ticket, now_ms)
            return
        member = self.members[request.member_id]
        is_settled = self.state is GroupState.STABLE and member.member_id != self.leader
        if member.protocols == request.protocols and (is_settled or self.state is GroupState.COMPLETING_REBALANCE):
            self._reply_join(ticket, self._current_generation(member))
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
        """A static member came back without its id: a new id takes the place of the old one, whose session it begins.

        Source: `updateStaticMemberAndRebalance`, where that session is as long as the old self had asked for.
        """
        old_id, old_leader = self.members.static_id(request.group_instance_id), self.leader
        assert old_id is not None
        before = replace(self.members[old_id])
        member = self._replace(self.members[old_id], request.new_member_id)
        member.beat(now_ms)
        self._update_member(member, request, ticket)
        if self.state is GroupState.STABLE and self.members.selected_protocol() == self.protocol_name:
            self._rejoins[ticket] = before, old_leader
            self._effects.append(Store(self.generation, self.members.assignments(), ticket))
        else:
            self._maybe_prepare_rebalance(now_ms)

    def _rejoin_stored(self, ticket: Ticket, error: ErrorCode, now_ms: int) -> None:
        """Who still waits is told of its new id; or has its old one again, and its old timeouts."""
        before, leader = self._rejoins.pop(ticket, (None, None))
        member = next((each for each in self.members.values() if each.join == ticket), None)
        if before is None or member is None:
            return
        member.join = None
        answer = replace(self._current_generation(member), leader=leader or "", members=())
        if error is not ErrorCode.NONE:
            answer = replace(answer, error=error, member_id=NO_MEMBER)
            member.session_timeout_ms = before.session_timeout_ms
            member.rebalance_timeout_ms = before.rebalance_timeout_ms
            self._replace(member, before.member_id).beat(now_ms)
        self._reply_join(ticket, answer)

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

    # -- who may ask --------------------------------------------------------------------------------------------

    def _member_error(self, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode | None:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self._identity_error(member_id, group_instance_id)
        return ErrorCode.ILLEGAL_GENERATION if error is None and generation != self.generation else error

    def _identity_error(self, member_id: str, group_instance_id: str | None) -> ErrorCode | None:
        """Kafka's `validateCurrentMember`."""
        owner = self.members.static_id(group_instance_id)
        if owner is not None and owner != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in self.members or (group_instance_id is not None and owner is None):
            return ErrorCode.UNKNOWN_MEMBER_ID
        return None

    def _protocol_differs(self, request: Sync) -> bool:
        type_, name = request.protocol_type, request.protocol_name
        return (type_ is not None and type_ != self.protocol_type) or (name is not None and name != self.protocol_name)
