"""A consumer group by Kafka's rules, plain and slow: what a walk through the real one is compared with, step by step.

Source: Kafka 3.9 `GroupCoordinator`, `GroupMetadata`, `MemberMetadata`; spec clients.md §7.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from broker_sim.groups.group import Group
from broker_sim.groups.values import (
    Effect,
    GroupState,
    Join,
    JoinAnswer,
    MemberEntry,
    Reply,
    Store,
    Sync,
    SyncAnswer,
)
from controller.rules.hashing import java_hash, scala_order
from controller.wire.errors import ErrorCode

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState
NONE, UNKNOWN, REBALANCING = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS


@dataclass(slots=True)
class Seat:
    """A member: how it came, what it said last, when its session is over if it runs, and which requests wait."""

    came: Join
    said: Join
    over_ms: int
    given: bytes = b""
    is_new: bool = True
    join: int | None = None
    sync: int | None = None

    @property
    def runs(self) -> bool:
        return self.is_new or (self.join is None and self.sync is None)

    def data(self, protocol: str | None) -> bytes:
        return dict(reversed(self.said.protocols)).get(protocol or "", b"")


class GroupModel:
    """Each request and each tick adds to `out` what happens because of it."""

    def __init__(self, delay_ms: int, size: int) -> None:
        self.delay_ms, self.size = delay_ms, size
        self.state, self.generation, self.changed_ms = EMPTY, 0, -1
        self.kind: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.seats: dict[str, Seat] = {}
        self.pending: dict[str, int] = {}
        self.unsynced: set[str] = set()
        self.sync_over_ms: int | None = None
        self.join_over_ms: int | None = None
        #: of the first wait of a group that was empty: how much longer it may become; None: another wait
        self.rest_ms: int | None = None
        self.grew = False
        #: static members whose new ids are not stored yet, by ticket: their old ids, what they had said, who led then
        self.came_back: dict[int, tuple[str, Join, str | None]] = {}
        self.out: list[Effect] = []

    def restore(self, seats: dict[str, Seat], leader: str, now_ms: int) -> None:
        """Read from a log, all of it as in generation 7 of the protocol `range`."""
        self.seats, self.leader, self.generation, self.changed_ms = seats, leader, 7, 5
        self.kind, self.protocol, self.state = "consumer", "range", STABLE
        for member in seats:
            self.begin_session(member, now_ms)
        if len(seats) > self.size:
            self.prepare(now_ms)

    # -- questions ---------------------------------------------------------------------------------------------------

    def owner(self, instance: str | None) -> str | None:
        return next((m for m, s in self.seats.items() if instance and s.came.group_instance_id == instance), None)

    def stranger(self, member: str, instance: str | None) -> ErrorCode | None:
        if instance is not None and self.owner(instance) not in (None, member):
            return ErrorCode.FENCED_INSTANCE_ID
        is_known = member in self.seats and (instance is None or self.owner(instance) == member)
        return None if is_known else UNKNOWN

    def refusal(self, member: str, instance: str | None, generation: int) -> ErrorCode | None:
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        is_old = generation != self.generation
        return self.stranger(member, instance) or (ErrorCode.ILLEGAL_GENERATION if is_old else None)

    def common(self) -> set[str]:
        return set.intersection(*({name for name, _ in seat.said.protocols} for seat in self.seats.values()))

    def vote(self) -> str:
        common = self.common()
        votes = [next(n for n, _ in seat.said.protocols if n in common) for seat in self.seats.values()]
        return max(scala_order(list(dict.fromkeys(votes)), java_hash), key=Counter(votes).__getitem__)

    def longest_ms(self) -> int:
        return max((seat.said.rebalance_timeout_ms for seat in self.seats.values()), default=0)

    def told(self, member: str, *, with_members: bool) -> JoinAnswer:
        entries = [
            MemberEntry(member_id=m, group_instance_id=s.came.group_instance_id, metadata=s.data(self.protocol))
            for m, s in self.seats.items()
            if with_members and member == self.leader
        ]
        return JoinAnswer(
            member_id=member,
            generation=self.generation,
            protocol_type=self.kind,
            protocol_name=self.protocol,
            leader=self.leader or "",
            members=tuple(entries),
        )

    # -- requests ----------------------------------------------------------------------------------------------------

    def join(self, asks: Join, ticket: int, now_ms: int) -> None:
        who, instance = asks.member_id, asks.group_instance_id
        seat = self.seats.get(who)
        waiting = sum(each.join is not None for each in self.seats.values())
        taken = waiting if self.state is PREPARING else len(self.seats)
        has_place = seat is not None and (self.state is not PREPARING or seat.join is not None)
        if self.state is DEAD:
            self.refuse(ticket, ErrorCode.COORDINATOR_NOT_AVAILABLE, who)
        elif not has_place and taken >= self.size:
            self.pending.pop(who, None)
            self.drop(who, ErrorCode.GROUP_MAX_SIZE_REACHED)
            self.refuse(ticket, ErrorCode.GROUP_MAX_SIZE_REACHED)
            self.maybe_complete(now_ms)
        elif not self.supports(asks):
            self.refuse(ticket, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, who)
        elif not who and (owner := self.owner(instance)):
            self.come_back(owner, asks, ticket, now_ms)
        elif not who and instance is None and asks.needs_known_member_id:
            self.pending[asks.new_member_id] = now_ms + asks.session_timeout_ms
            self.refuse(ticket, ErrorCode.MEMBER_ID_REQUIRED, asks.new_member_id)
        elif who in self.pending and instance is not None:
            self.refuse(ticket, ErrorCode.UNKNOWN_SERVER_ERROR, who)
        elif not who or who in self.pending:
            self.come(who or asks.new_member_id, asks, ticket, now_ms)
        elif error := self.stranger(who, instance):
            self.refuse(ticket, error, who)
        elif seat is not None:
            is_news = seat.said.protocols != asks.protocols or (self.state is STABLE and who == self.leader)
            if self.state is PREPARING or is_news:
                self.say(who, asks, ticket)
                self.rebalance(now_ms)
            else:
                self.out.append(Reply(ticket, self.told(who, with_members=self.state is COMPLETING)))

    def sync(self, asks: Sync, ticket: int, now_ms: int) -> None:
        who = asks.member_id
        is_other = asks.protocol_type not in (None, self.kind) or asks.protocol_name not in (None, self.protocol)
        error = (
            self.refusal(who, asks.group_instance_id, asks.generation)
            or (ErrorCode.INCONSISTENT_GROUP_PROTOCOL if is_other else None)
            or (REBALANCING if self.state is PREPARING else None)
        )
        if error is not None:
            self.out.append(Reply(ticket, SyncAnswer(error=error)))
            return
        seat = self.seats[who]
        self.synced(who)
        if self.state is STABLE:
            self.give(who, ticket, NONE, now_ms)
            return
        if seat.sync is not None:
            self.out.append(Reply(seat.sync, SyncAnswer(error=REBALANCING)))
        seat.sync = ticket
        if who == self.leader:
            self.out.append(Store(self.generation, {m: asks.assignments.get(m, b"") for m in self.seats}))

    def stored(self, store: Store, error: ErrorCode, now_ms: int) -> None:
        if store.ticket is not None:
            self.new_id_stored(store.ticket, error, now_ms)
            return
        if store.assignments is None or (self.state, self.generation) != (COMPLETING, store.generation):
            return
        if error is not NONE:
            self.hand_out(error, now_ms)
            self.prepare(now_ms)
            return
        for member, seat in self.seats.items():
            seat.given = store.assignments.get(member, b"")
        self.become(STABLE, now_ms)
        self.hand_out(NONE, now_ms)

    def beat(self, member: str, instance: str | None, generation: int, now_ms: int) -> ErrorCode:
        error = self.refusal(member, instance, generation)
        if error is None:
            self.begin_session(member, now_ms)
        return error or (REBALANCING if self.state is PREPARING else NONE)

    def commit(self, member: str, instance: str | None, generation: int, now_ms: int) -> ErrorCode:
        if self.state is EMPTY and generation < 0:
            return NONE
        error = self.refusal(member, instance, generation) or (REBALANCING if self.state is COMPLETING else None)
        if error is None:
            self.begin_session(member, now_ms)
        return error or NONE

    def leave(self, member: str, instance: str | None, now_ms: int) -> ErrorCode:
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self.pending.pop(member, None) is not None:
            self.maybe_complete(now_ms)
            return NONE
        member = member or self.owner(instance) or ""
        error = self.stranger(member, instance)
        if error is None:
            self.drop(member, UNKNOWN)
            self.rebalance(now_ms)
        return error or NONE

    def tick(self, now_ms: int) -> None:
        if gone := [m for m, over_ms in self.pending.items() if over_ms <= now_ms]:
            for member in gone:
                del self.pending[member]
            self.maybe_complete(now_ms)
        late = [m for m, seat in self.seats.items() if seat.runs and seat.over_ms <= now_ms]
        if self.sync_over_ms is not None and self.sync_over_ms <= now_ms:
            self.sync_over_ms = None
            late += sorted(self.unsynced - set(late))
        for member in late:
            self.drop(member, UNKNOWN)
        if late:
            self.rebalance(now_ms)
        if self.join_over_ms is None or self.join_over_ms > now_ms:
            return
        if self.grew and self.rest_ms:
            wait_ms = min(self.rest_ms, self.delay_ms)
            self.rest_ms, self.join_over_ms, self.grew = self.rest_ms - wait_ms, now_ms + wait_ms, False
        else:
            self.complete(now_ms)

    def die(self) -> None:
        for member in list(self.seats):
            self.drop(member, ErrorCode.NOT_COORDINATOR)
        self.state, self.sync_over_ms, self.join_over_ms = DEAD, None, None
        self.pending.clear()

    # -- who comes and goes ------------------------------------------------------------------------------------------

    def supports(self, asks: Join) -> bool:
        names = {name for name, _ in asks.protocols}
        is_of_its_kind = bool(asks.protocol_type) and (self.state is EMPTY or asks.protocol_type == self.kind)
        return is_of_its_kind and bool(names & self.common() if self.seats else names)

    def come(self, member: str, asks: Join, ticket: int, now_ms: int) -> None:
        self.pending.pop(member, None)
        self.kind = self.kind if self.seats else asks.protocol_type
        self.seats[member] = Seat(came=asks, said=asks, over_ms=now_ms + 300_000, join=ticket)
        self.leader = self.leader or member
        self.grew = self.grew or (self.state is PREPARING and self.generation == 0)
        self.rebalance(now_ms)

    def come_back(self, old: str, asks: Join, ticket: int, now_ms: int) -> None:
        new, leader, before = asks.new_member_id, self.leader, self.seats[old].said
        self.fail(old, ErrorCode.FENCED_INSTANCE_ID)
        self.rename(old, new)
        self.begin_session(new, now_ms)
        self.say(new, asks, ticket)
        if self.state is STABLE and self.vote() == self.protocol:
            self.came_back[ticket] = old, before, leader
            self.out.append(Store(self.generation, {m: seat.given for m, seat in self.seats.items()}, ticket))
        else:
            self.rebalance(now_ms)

    def new_id_stored(self, ticket: int, error: ErrorCode, now_ms: int) -> None:
        member = next((m for m, seat in self.seats.items() if seat.join == ticket), None)
        if self.state is DEAD or member is None:
            return
        old, before, leader = self.came_back[ticket]
        told = replace(self.told(member, with_members=False), leader=leader or "")
        seat = self.seats[member]
        seat.join = None
        if error is not NONE:
            told = replace(told, error=error, member_id="")
            seat.said = replace(before, protocols=seat.said.protocols)
            self.rename(member, old)
            self.begin_session(old, now_ms)
        self.out.append(Reply(ticket, told))

    def rename(self, member: str, new: str) -> None:
        self.seats[new] = self.seats.pop(member)
        self.unsynced = {new if each == member else each for each in self.unsynced}
        self.leader = new if self.leader == member else self.leader

    def say(self, member: str, asks: Join, ticket: int) -> None:
        seat = self.seats[member]
        if seat.join is not None:
            self.refuse(seat.join, REBALANCING, member)
        seat.said, seat.join = asks, ticket

    def drop(self, member: str, error: ErrorCode) -> None:
        if member in self.seats:
            self.fail(member, error)
            del self.seats[member]
            self.synced(member)
            self.leader = next(iter(self.seats), None) if self.leader == member else self.leader

    def fail(self, member: str, error: ErrorCode) -> None:
        seat = self.seats[member]
        if seat.join is not None:
            self.refuse(seat.join, error, "" if error is UNKNOWN else member)
        if seat.sync is not None:
            self.out.append(Reply(seat.sync, SyncAnswer(error=error)))
        seat.join = seat.sync = None

    def refuse(self, ticket: int, error: ErrorCode, member: str = "") -> None:
        self.out.append(Reply(ticket, JoinAnswer(error=error, member_id=member)))

    def begin_session(self, member: str, now_ms: int) -> None:
        seat = self.seats[member]
        seat.over_ms = now_ms + seat.said.session_timeout_ms

    def synced(self, member: str) -> None:
        self.unsynced.discard(member)
        self.sync_over_ms = self.sync_over_ms if self.unsynced else None

    # -- generations -------------------------------------------------------------------------------------------------

    def become(self, state: GroupState, now_ms: int) -> None:
        self.state, self.changed_ms = state, now_ms

    def rebalance(self, now_ms: int) -> None:
        if self.state is PREPARING:
            self.maybe_complete(now_ms)
        else:
            self.prepare(now_ms)

    def prepare(self, now_ms: int) -> None:
        if self.state is COMPLETING:
            self.hand_out(REBALANCING, now_ms)
        self.unsynced, self.sync_over_ms, self.grew = set(), None, False
        is_first = self.state is EMPTY
        self.rest_ms = max(0, self.longest_ms() - self.delay_ms) if is_first else None
        self.join_over_ms = now_ms + (self.delay_ms if is_first else self.longest_ms())
        self.become(PREPARING, now_ms)
        self.maybe_complete(now_ms)

    def maybe_complete(self, now_ms: int) -> None:
        is_awaited = self.pending or any(seat.join is None for seat in self.seats.values())
        if self.state is PREPARING and self.rest_ms is None and not is_awaited:
            self.complete(now_ms)

    def complete(self, now_ms: int) -> None:
        for member, seat in list(self.seats.items()):
            if seat.join is None and seat.came.group_instance_id is None:
                self.drop(member, UNKNOWN)
        joined = [member for member, seat in self.seats.items() if seat.join is not None]
        self.rest_ms = None
        if self.seats and not joined:
            self.join_over_ms = now_ms + self.longest_ms()
            return
        self.join_over_ms = None
        self.generation += 1
        if not self.seats:
            self.protocol = self.leader = None
            self.become(EMPTY, now_ms)
            self.out.append(Store(self.generation, None))
            return
        self.leader = self.leader if self.leader in joined else joined[0]
        self.protocol = self.vote()
        self.become(COMPLETING, now_ms)
        self.unsynced, self.sync_over_ms = set(self.seats), now_ms + self.longest_ms()
        for member, seat in self.seats.items():
            self.begin_session(member, now_ms)
            if seat.join is not None:
                self.out.append(Reply(seat.join, self.told(member, with_members=True)))
            seat.given, seat.is_new, seat.join = b"", False, None

    def hand_out(self, error: ErrorCode, now_ms: int) -> None:
        for member, seat in self.seats.items():
            seat.given = seat.given if error is NONE else b""
            if seat.sync is not None:
                self.give(member, seat.sync, error, now_ms)
                seat.sync = None

    def give(self, member: str, ticket: int, error: ErrorCode, now_ms: int) -> None:
        given = self.seats[member].given
        fine = SyncAnswer(protocol_type=self.kind, protocol_name=self.protocol, assignment=given)
        self.out.append(Reply(ticket, fine if error is NONE else SyncAnswer(error=error)))
        self.begin_session(member, now_ms)

    # -- all that can be seen ----------------------------------------------------------------------------------------

    def picture(self) -> dict[str, Any]:
        due = [seat.over_ms for seat in self.seats.values() if seat.runs] + list(self.pending.values())
        due += [each for each in (self.sync_over_ms, self.join_over_ms) if each is not None]
        return {
            "state": (self.state, self.generation, self.changed_ms),
            "protocol": (self.kind, self.protocol, self.leader),
            "due": min(due, default=None),
            "members": [
                (m, s.came.group_instance_id, s.came.client_id, s.came.client_host, s.given, s.is_new, s.join, s.sync)
                for m, s in self.seats.items()
            ],
            "said": [
                (
                    s.said.session_timeout_ms,
                    s.said.rebalance_timeout_ms,
                    s.said.protocols,
                    s.over_ms if s.runs else None,
                )
                for s in self.seats.values()
            ],
        }


def picture_of(group: Group) -> dict[str, Any]:
    """The same of a real group."""
    return {
        "state": (group.state, group.generation, group.state_changed_ms),
        "protocol": (group.protocol_type, group.protocol_name, group.leader),
        "due": group.next_deadline_ms,
        "members": [
            (id_, m.group_instance_id, m.client_id, m.client_host, m.assignment, m.is_new, m.join, m.sync)
            for id_, m in group.members.items()
            if id_ == m.member_id
        ],
        "said": [
            (m.session_timeout_ms, m.rebalance_timeout_ms, m.protocols, m.expires_at_ms if m.may_expire else None)
            for m in group.members.values()
        ],
    }
