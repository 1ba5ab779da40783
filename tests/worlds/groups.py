"""A consumer group with a clock, tickets and a log: what tests of the state machine play with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from broker_sim.groups.group import Group
from broker_sim.groups.values import Effect, GroupSettings, GroupState, Join, JoinAnswer, Reply, Store, Sync, SyncAnswer
from controller.wire.errors import ErrorCode

SESSION_MS = 45_000
REBALANCE_MS = 60_000


def join_request(member_id: str = "", new: str = "m", **changes: Any) -> Join:
    request = Join(
        member_id=member_id,
        new_member_id=new,
        group_instance_id=None,
        client_id="c",
        client_host="/h",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        protocol_type="consumer",
        protocols=(("range", b"r"),),
        needs_known_member_id=True,
    )
    return replace(request, **changes)


class Play:
    """A group with a clock, tickets and a log that works at once, unless `log_error` or `log_is_slow` say otherwise."""

    def __init__(self, **options: Any) -> None:
        self.group = Group("g", GroupSettings(**options))
        self.now = 0
        self.answers: dict[int, JoinAnswer | SyncAnswer] = {}
        self.stores: list[Store] = []
        self.log_error = ErrorCode.NONE
        self.log_is_slow = False
        self.ticket = 0

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                assert effect.ticket not in self.answers, "answered twice"
                self.answers[effect.ticket] = effect.answer
            else:
                self.stores.append(effect)
                if not self.log_is_slow:
                    self.answer_store(effect, self.log_error)

    def answer_store(self, store: Store, error: ErrorCode = ErrorCode.NONE) -> None:
        """The log has what was to be stored, or cannot take it."""
        self.perform(self.group.stored(store, error, self.now))

    def join(self, request: Join) -> int:
        self.ticket += 1
        self.perform(self.group.join(request, self.ticket, self.now))
        return self.ticket

    def join_twice(self, member: str, **changes: Any) -> int:
        """As clients from version 4 on: ask for an id, then join with it."""
        asked = self.join(join_request("", member, **changes))
        assert self.answers[asked].error is ErrorCode.MEMBER_ID_REQUIRED
        return self.join(join_request(member, **changes))

    def sync(self, member: str, **assignments: bytes) -> int:
        self.ticket += 1
        request = Sync(member_id=member, generation=self.group.generation, assignments=assignments)
        self.perform(self.group.sync(request, self.ticket, self.now))
        return self.ticket

    def beat(self, member: str) -> ErrorCode:
        return self.group.heartbeat(member, None, self.group.generation, self.now)

    def until(self, now_ms: int) -> None:
        """Lets time pass, ticking when the group wants it."""
        while (due := self.group.next_deadline_ms) is not None and due <= now_ms:
            self.now = max(self.now, due)
            self.perform(self.group.tick(self.now))
        self.now = now_ms

    def stable(self, *members: str) -> None:
        for member in members:
            self.join_twice(member)
        self.until(self.now + 6000)
        for member in members:
            self.sync(member, **{m: m.encode() for m in members})
        assert self.group.state is GroupState.STABLE


def static(play: Play, instance: str, number: int) -> int:
    """A static member joins, under an id that tells how often it came."""
    return play.join(join_request("", f"{instance}-{number}", group_instance_id=instance))
