"""What must hold of consumer groups from request to request: a second, plain version of their rules.

Each group of each coordinator is watched: what it was, what it was asked, what it answered, what it became. Nothing
here asks the group why. Times are those of the coordinator's clock, in ms.
Source: Kafka 3.9 `GroupCoordinator`, `GroupMetadata`; KIP-345; spec clients.md §7, §8.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from broker_sim.groups.group import Group
from broker_sim.groups.members import Member
from broker_sim.groups.values import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
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


@dataclass(frozen=True, slots=True)
class Seat:
    """A member as it was before a call."""

    instance: str | None
    session_ms: int
    is_new: bool
    join: Ticket | None
    sync: Ticket | None


@dataclass(frozen=True, slots=True)
class Before:
    """A group as it was before a call."""

    state: GroupState
    generation: int
    leader: str | None
    rebalance_ms: int
    seats: Mapping[str, Seat]
    pending: frozenset[str]

    def static_id(self, instance: str | None) -> str | None:
        """The member that is this instance."""
        return next((m for m, seat in self.seats.items() if instance is not None and seat.instance == instance), None)

    def refusal(self, member_id: str, instance: str | None, generation: int) -> ErrorCode | None:
        """What any request of a member is refused with: who it is comes before when it is. §7.3."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        owner = self.static_id(instance)
        if instance is not None and owner is not None and owner != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in self.seats or (instance is not None and owner is None):
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.ILLEGAL_GENERATION if generation != self.generation else None


#: State -> what a heartbeat, a commit, a SyncGroup of a member in its generation is answered there; §7.3, §8.
HEARTBEATS: Final = {
    GroupState.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    GroupState.PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
}
COMMITS: Final = {
    GroupState.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    GroupState.COMPLETING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
}
SYNCS: Final = HEARTBEATS


@dataclass(slots=True)
class GroupJudge:
    """Of one group in one term of its coordinator. `broken` collects."""

    name: str
    settings: GroupSettings
    broken: list[str]
    #: tickets that have no answer yet -> who asked
    waiting: dict[Ticket, str] = field(default_factory=dict)
    #: member -> when its session last began for certain, and when it may have begun
    beats: dict[str, int] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    #: the shortest session that a member ever asked for: a session that runs stays as long as it began
    sessions: dict[str, int] = field(default_factory=dict)
    #: new members that sent something else while their JoinGroup waits: from then on their session counts, as in Kafka,
    #: where `hasSatisfiedHeartbeat` of a new member does not ask what it waits for
    hasty: set[str] = field(default_factory=set)
    #: since when a rebalance is prepared, and whether of a group that had no members
    preparing: tuple[int, bool] = (0, False)
    completed_ms: int = 0
    #: until when members of this generation may take to sync
    sync_by_ms: int = 0
    #: members that sent a SyncGroup in this generation
    synced: set[str] = field(default_factory=set)
    #: assignments of this generation that are stored
    stored: list[dict[str, bytes]] = field(default_factory=list)

    def wrong(self, what: str) -> None:
        """Notes it."""
        self.broken.append(f"group {self.name}: {what}")

    def beat(self, member_id: str, now_ms: int) -> None:
        """A heartbeat or a commit."""
        self.beats[member_id] = now_ms
        self.hasty.add(member_id)

    def expect(self, what: str, found: ErrorCode, expected: ErrorCode | None) -> None:
        """An answer that follows from the table alone."""
        if found is not (expected or ErrorCode.NONE):
            self.wrong(f"{what} is answered {found.name}, not {(expected or ErrorCode.NONE).name}")

    # -- answers ---------------------------------------------------------------------------------------------------

    def answered(self, effects: Iterable[Effect], group: Group, now_ms: int) -> dict[str, JoinAnswer]:
        """Each request that waits is answered once, and who is not answered is waited for. Returns the good joins."""
        joins: dict[str, JoinAnswer] = {}
        for effect in effects:
            if not isinstance(effect, Reply):
                continue
            who = self.waiting.pop(effect.ticket, None)
            self.seen[effect.answer.member_id if isinstance(effect.answer, JoinAnswer) else who or ""] = now_ms
            if who is None:
                self.wrong(f"a request is answered twice: {effect.answer}")
            elif effect.answer.error is ErrorCode.NONE:
                if isinstance(effect.answer, JoinAnswer):
                    joins[effect.answer.member_id] = effect.answer
                else:
                    self.beats[who] = now_ms
                    self._assigned(who, effect.answer)
        parked = {t for member in group.members.values() for t in (member.join, member.sync) if t is not None}
        for ticket in sorted(self.waiting.keys() - parked):
            self.wrong(f"nobody answers {self.waiting.pop(ticket) or 'somebody new'}")
        return joins

    def _assigned(self, member_id: str, answer: SyncAnswer) -> None:
        """What a member is assigned is what the leader of this generation sent, once that is stored."""
        if not any(stored.get(member_id, b"") == answer.assignment for stored in self.stored):
            self.wrong(f"{member_id} is assigned {answer.assignment!r}, in this generation is stored {self.stored}")

    # -- who stays -------------------------------------------------------------------------------------------------

    def removed(self, before: Before, group: Group, now_ms: int, left: Sequence[str | None]) -> set[str]:
        """Nobody is removed who has not left (`left`: this call's, or its former id) nor missed a deadline. Returns
        who went."""
        gone = {m for m in before.seats if m not in group.members}
        for member_id, seat in before.seats.items():
            self.sessions[member_id] = min(seat.session_ms, self.sessions.get(member_id, seat.session_ms))
        for member_id in sorted(gone.difference(left)):
            seat = before.seats[member_id]
            session_ms = self.sessions.get(member_id, seat.session_ms)
            since_ms, is_hasty = self.beats.get(member_id, now_ms), seat.is_new and member_id in self.hasty
            is_over = _session_is_over(replace(seat, session_ms=session_ms), since_ms, now_ms)
            is_over |= is_hasty and now_ms - since_ms >= session_ms
            if not (is_over or self._is_late(member_id, seat, before, now_ms)):
                self.wrong(
                    f"{member_id} is removed at {now_ms} in {before.state.value}, since {self.preparing[0]} or "
                    f"{self.completed_ms}; it was heard of at {self.beats.get(member_id)}, {seat}"
                )
        for member_id in gone:
            self.beats.pop(member_id, None)
            self.seen.pop(member_id, None)
            self.sessions.pop(member_id, None)
            self.hasty.discard(member_id)
        return gone

    def _is_late(self, member_id: str, seat: Seat, before: Before, now_ms: int) -> bool:
        """A dynamic member that does not join again, and any that does not sync."""
        if before.state is GroupState.PREPARING_REBALANCE:
            is_over = now_ms - self.preparing[0] >= before.rebalance_ms
            return is_over and seat.join is None and seat.instance is None
        return member_id not in self.synced and now_ms - self.completed_ms >= before.rebalance_ms

    def stays(self, group: Group, now_ms: int) -> None:
        """After a tick nobody is a member whose session is over, or who did not sync in time."""
        is_over = group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) and now_ms > self.sync_by_ms
        for member_id, member in group.members.items():
            since_ms = max(self.beats.get(member_id, now_ms), self.seen.get(member_id, 0))
            if _session_is_over(_seat(member), since_ms, now_ms):
                self.wrong(f"{member_id} stays at {now_ms}, it was last heard of at {since_ms}")
            if is_over and member_id not in self.synced:
                self.wrong(f"{member_id} stays at {now_ms}, and has not synced since {self.completed_ms}")

    def waits(self, group: Group, pending: Collection[str]) -> None:
        """A rebalance goes on when all have joined and nobody was given an id who has yet to join with it; that of a
        group which had no members waits for others in any case."""
        is_prepared = group.state is GroupState.PREPARING_REBALANCE and not self.preparing[1] and group.members
        if is_prepared and not pending and all(member.join is not None for member in group.members.values()):
            self.wrong(f"all {len(group.members)} members have joined, and generation {group.generation} goes on")

    # -- generations -----------------------------------------------------------------------------------------------

    def moved(
        self, before: Before, group: Group, now_ms: int, joins: Mapping[str, JoinAnswer], *, gone: set[str], asks: str
    ) -> None:
        """Generations come one after the other, each when all have joined or had their time."""
        was_preparing = before.state is GroupState.PREPARING_REBALANCE
        if not was_preparing and (
            group.state is GroupState.PREPARING_REBALANCE or group.generation != before.generation
        ):
            self.preparing = now_ms, before.state is GroupState.EMPTY
        if group.generation == before.generation:
            return
        self.synced.clear()
        self.stored.clear()
        self.hasty.clear()
        self.completed_ms = now_ms
        self.sync_by_ms = now_ms + max((member.rebalance_timeout_ms for member in group.members.values()), default=0)
        if group.generation != before.generation + 1:
            self.wrong(f"generation {before.generation} becomes {group.generation}")
        since_ms, was_empty = self.preparing
        wait_ms = self.settings.initial_rebalance_delay_ms if was_empty else before.rebalance_ms
        missing = {m for m, seat in before.seats.items() if seat.join is None} - gone - {asks}
        if now_ms - since_ms < wait_ms and (missing or was_empty):
            self.wrong(f"generation {group.generation} begins after {now_ms - since_ms} ms without {sorted(missing)}")
        self._begins(group, joins)

    def _begins(self, group: Group, joins: Mapping[str, JoinAnswer]) -> None:
        """All who joined are told of the generation and of its leader, who is one of them and is told of all."""
        for member_id, member in group.members.items():
            if member.join is not None:
                self.wrong(f"generation {group.generation} begins, and {member_id} is not answered")
        if group.members and group.leader not in joins:
            self.wrong(f"generation {group.generation} is led by {group.leader}, {sorted(joins)} have joined")
        for member_id, answer in joins.items():
            if (answer.generation, answer.leader) != (group.generation, group.leader):
                self.wrong(f"{member_id} is told {answer} of generation {group.generation} of {group.leader}")
            others = {entry.member_id for entry in answer.members}
            if others != (set(group.members) if member_id == group.leader else set()):
                self.wrong(f"{member_id} is told of members {sorted(others)}, there are {sorted(group.members)}")


class WatchedGroup(Group):
    """A group that is judged after each call."""

    def __init__(self, name: str, broken: list[str], group_id: str, settings: GroupSettings) -> None:
        """`name`: of its coordinator."""
        super().__init__(group_id, settings)
        self._judge = GroupJudge(f"{group_id} of {name}", settings, broken)
        #: Told when the group dies.
        self.on_death: Callable[[Group], None] | None = None

    def restore(self, **values: object) -> None:
        """See `Group.restore`."""
        super().restore(**values)  # type: ignore[arg-type]  # by name
        self._judge.stored.append(self.members.assignments())
        self._judge.beats.update({member: int(str(values["now_ms"])) for member in self.members})
        self._judge.synced.update(self.members)

    def join(self, request: Join, ticket: Ticket, now_ms: int) -> list[Effect]:
        """See `Group.join`."""
        before, judge = self._before(), self._judge
        judge.waiting[ticket] = asks = request.member_id or request.new_member_id
        former = before.static_id(request.group_instance_id) if not request.member_id else None
        effects = super().join(request, ticket, now_ms)
        own = next((e.answer.error for e in effects if isinstance(e, Reply) and e.ticket == ticket), None)
        turned_away = request.member_id if own is ErrorCode.GROUP_MAX_SIZE_REACHED else None
        if turned_away in self.members:
            judge.wrong(f"{turned_away} finds no place, and is a member")
        if former is not None and former not in self.members:
            self._renamed(before, former, request.new_member_id, now_ms)
        if request.member_id and request.member_id not in before.pending:
            refused = before.refusal(request.member_id, request.group_instance_id, before.generation)
            too_much = {ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.INCONSISTENT_GROUP_PROTOCOL}
            if refused is not None and own not in (refused, *too_much):
                judge.wrong(f"a JoinGroup of {request.member_id} is answered {own}, not {refused.name}")
        if asks not in before.seats:
            judge.beats.setdefault(asks, now_ms)
            judge.seen[asks] = now_ms
        self._judged(before, effects, now_ms, left=(former, turned_away), asks=asks)
        return effects

    def sync(self, request: Sync, ticket: Ticket, now_ms: int) -> list[Effect]:
        """See `Group.sync`."""
        before, judge = self._before(), self._judge
        judge.waiting[ticket] = request.member_id
        refused = before.refusal(request.member_id, request.group_instance_id, request.generation)
        refused = refused or SYNCS.get(before.state)
        if refused is None:
            judge.synced.add(request.member_id)
        effects = super().sync(request, ticket, now_ms)
        answer = next((e.answer.error for e in effects if isinstance(e, Reply) and e.ticket == ticket), None)
        if refused is not None or before.state is GroupState.STABLE:
            judge.expect(f"a SyncGroup of {request.member_id}", answer or ErrorCode.NONE, refused)
        for store in effects:
            expected = {m: request.assignments.get(m, b"") for m in before.seats}
            if isinstance(store, Store) and (store.generation, store.assignments) != (before.generation, expected):
                judge.wrong(f"what {request.member_id} assigned is stored as {store}")
        self._judged(before, effects, now_ms)
        return effects

    def stored(self, store: Store, error: ErrorCode, now_ms: int) -> list[Effect]:
        """See `Group.stored`."""
        before = self._before()
        if error is ErrorCode.NONE and store.generation == self.generation and store.assignments is not None:
            self._judge.stored.append(dict(store.assignments))
        effects = super().stored(store, error, now_ms)
        back, gone = self.members.keys() - before.seats.keys(), before.seats.keys() - self.members.keys()
        if back and (store.ticket is None or error is ErrorCode.NONE):
            self._judge.wrong(f"{back} are members because of {store}, {error.name}")
        for new, old in zip(gone, back, strict=False):
            self._renamed(before, new, old, now_ms)
        self._judged(before, effects, now_ms, left=[*gone] if back else ())
        return effects

    def heartbeat(self, member_id: str, group_instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        """See `Group.heartbeat`."""
        before = self._before()
        refused = before.refusal(member_id, group_instance_id, generation) or HEARTBEATS.get(before.state)
        error = super().heartbeat(member_id, group_instance_id, generation, now_ms)
        self._judge.expect(f"a heartbeat of {member_id}", error, refused)
        if error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._judge.beat(member_id, now_ms)
        return error

    def leave(self, member_id: str, group_instance_id: str | None, now_ms: int) -> tuple[ErrorCode, list[Effect]]:
        """See `Group.leave`."""
        before = self._before()
        who = member_id or before.static_id(group_instance_id) or ""
        refused = before.refusal(who, group_instance_id, before.generation) if who not in before.pending else None
        error, effects = super().leave(member_id, group_instance_id, now_ms)
        self._judge.expect(f"the LeaveGroup of {who}", error, refused)
        self._judged(before, effects, now_ms, left=(who,) if error is ErrorCode.NONE else ())
        return error, effects

    def commit_error(self, member_id: str, group_instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        """See `Group.commit_error`."""
        before = self._before()
        is_simple = generation < 0 and before.state is GroupState.EMPTY
        refused = before.refusal(member_id, group_instance_id, generation) or COMMITS.get(before.state)
        error = super().commit_error(member_id, group_instance_id, generation, now_ms)
        self._judge.expect(f"a commit of {member_id}", error, None if is_simple else refused)
        if error is ErrorCode.NONE and not is_simple:
            self._judge.beat(member_id, now_ms)
        return error

    def tick(self, now_ms: int) -> list[Effect]:
        """See `Group.tick`."""
        before = self._before()
        effects = super().tick(now_ms)
        self._judged(before, effects, now_ms)
        self._judge.stays(self, now_ms)
        return effects

    def die(self) -> list[Effect]:
        """See `Group.die`. Whoever waits is answered."""
        effects = super().die()
        self._judge.answered(effects, self, 0)
        if self.on_death is not None:
            self.on_death(self)
        return effects

    def _renamed(self, before: Before, from_id: str, to_id: str, now_ms: int) -> None:
        """A static member has another id, and what its former one had."""
        for stored in self._judge.stored:
            stored[to_id] = stored.get(from_id, b"")
        self._judge.synced |= {to_id} if from_id in self._judge.synced else set()
        self._judge.sessions[to_id] = before.seats[from_id].session_ms
        self._judge.beat(to_id, now_ms)

    def _before(self) -> Before:
        seats = {member_id: _seat(member) for member_id, member in self.members.items()}
        rebalance_ms = min((member.rebalance_timeout_ms for member in self.members.values()), default=0)
        return Before(self.state, self.generation, self.leader, rebalance_ms, seats, frozenset(self._pending))

    def _judged(
        self, before: Before, effects: Sequence[Effect], now_ms: int, left: Sequence[str | None] = (), asks: str = ""
    ) -> None:
        gone = self._judge.removed(before, self, now_ms, left)
        if self.generation != before.generation:
            joins = self._judge.answered((e for e in effects if isinstance(e, Reply)), self, now_ms)
            self._judge.beats.update(dict.fromkeys(self.members, now_ms))
        else:
            joins = self._judge.answered(effects, self, now_ms)
        self._judge.moved(before, self, now_ms, joins, gone=gone, asks=asks)
        self._judge.waits(self, self._pending)


def _session_is_over(seat: Seat, since_ms: int, now_ms: int) -> bool:
    """Nobody's is who waits in a request, unless it is its first. §7.3."""
    if seat.join is not None or seat.sync is not None:
        return seat.is_new and now_ms - since_ms >= NEW_MEMBER_JOIN_TIMEOUT_MS
    return now_ms - since_ms >= seat.session_ms


def _seat(member: Member) -> Seat:
    return Seat(member.group_instance_id, member.session_timeout_ms, member.is_new, member.join, member.sync)
