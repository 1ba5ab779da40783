"""Walks through a group, at random but repeatable: after each step it is what a plain model by Kafka's rules says."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from broker_sim.groups.group import Group
from broker_sim.groups.members import Member
from broker_sim.groups.values import Effect, GroupSettings, GroupState, Join, Store, Sync
from controller.wire.errors import ErrorCode
from tests.worlds.group_model import GroupModel, Seat, picture_of

#: most wanted first; all who have one of them have `range`
PROTOCOLS = (
    (("range", b"1"),),
    (("range", b"2"),),
    (("sticky", b"s"), ("range", b"3")),
    (("range", b"4"), ("sticky", b"t")),
)
ODD = ((), (("other", b"o"),), (("range", b"5"), ("range", b"6")))


#: some as long as a wait of the group, so that both are over at one moment
SESSIONS_MS = (4_000, 8_000, 9_000, 20_000, 10**6)
WAITS_MS = (2_000, 3_000, 8_000, 20_000)


class Walk:
    """A group and its model, to which the same happens."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = Random(seed)
        delay_ms, size = chance.choice([3_000, 3_000, 0]), chance.choice([2, 3, 99])
        self.group = Group("g", GroupSettings(initial_rebalance_delay_ms=delay_ms, max_size=size))
        self.model = GroupModel(delay_ms, size)
        self.now_ms = self.ticket = self.came = 0
        self.stores: list[Store] = []
        assert picture_of(self.group) == self.model.picture()
        if seed % 4 == 0:
            self.restore(chance.randint(1, 3))

    def restore(self, count: int) -> None:
        asks = [self.asks(f"{n}", instance) for n, instance in zip(range(count), ["i", None, "k"], strict=False)]
        asks = [replace(each, protocols=each.protocols[-1:] * (each.protocols[-1][0] == "range")) for each in asks]
        asks = [replace(each, protocols=each.protocols or (("range", b"7"),)) for each in asks]
        members = [
            Member(
                member_id=each.member_id, group_instance_id=each.group_instance_id, client_id=each.client_id,
                client_host=each.client_host, session_timeout_ms=each.session_timeout_ms,
                rebalance_timeout_ms=each.rebalance_timeout_ms, protocols=each.protocols, assignment=b"g",
            )
            for each in asks
        ]  # fmt: skip
        leader = self.chance.choice(asks).member_id
        self.group.restore(
            generation=7, protocol_type="consumer", protocol_name="range", leader=leader, members=members,
            state_changed_ms=5, now_ms=self.now_ms,
        )  # fmt: skip
        seats = {each.member_id: Seat(each, each, 0, given=b"g", is_new=False) for each in asks}
        self.model.restore(seats, leader, self.now_ms)
        self.compare("it is read from its log", [])

    # -- what happens --------------------------------------------------------------------------------------------

    def compare(self, what: str, effects: list[Effect], found: Any = None, expected: Any = None) -> None:
        said, self.model.out = self.model.out, []
        assert (found, effects, picture_of(self.group)) == (expected, said, self.model.picture()), what
        self.stores += [effect for effect in effects if isinstance(effect, Store)]

    def until(self, now_ms: int) -> None:
        """Time passes; what is due is done then, or late."""
        is_late = self.chance.random() < 0.2
        while not is_late and (due := self.group.next_deadline_ms) is not None and due <= now_ms:
            self.now_ms = max(self.now_ms, due)
            self.model.tick(self.now_ms)
            self.compare(f"tick at {self.now_ms}", self.group.tick(self.now_ms))
        self.now_ms = now_ms
        self.model.tick(now_ms)
        self.compare(f"nothing is due at {now_ms}", self.group.tick(now_ms))

    def asks(self, member: str, instance: str | None, **changes: Any) -> Join:
        self.came += not member
        return Join(**{
            "member_id": member, "new_member_id": f"{instance or 'm'}-{self.came}", "group_instance_id": instance,
            "client_id": f"c{self.came}", "client_host": f"/{self.came}",
            "session_timeout_ms": self.chance.choice(SESSIONS_MS),
            "rebalance_timeout_ms": self.chance.choice(WAITS_MS),
            "protocol_type": "consumer", "protocols": self.chance.choice(PROTOCOLS),
            "needs_known_member_id": self.chance.random() < 0.4, **changes,
        })  # fmt: skip

    def join(self, member: str, instance: str | None, **changes: Any) -> None:
        self.ticket += 1
        asks = self.asks(member, instance, **changes)
        self.model.join(asks, self.ticket, self.now_ms)
        self.compare(f"{asks} at {self.now_ms}", self.group.join(asks, self.ticket, self.now_ms))

    def again(self, member: str, **changes: Any) -> None:
        """A member joins with what it said before, mostly."""
        seat = self.model.seats.get(member)
        instance = seat.came.group_instance_id if seat else None
        if seat and self.chance.random() < 0.7:
            changes = {"protocols": seat.said.protocols, **changes}
        self.join(member, instance, **changes)

    def sync(self, member: str, instance: str | None, generation: int, **changes: Any) -> None:
        self.ticket += 1
        assigned = {m: f"{self.ticket}{m}".encode() for m in self.model.seats if self.chance.random() < 0.8}
        asks = Sync(
            member_id=member, generation=generation, group_instance_id=instance, assignments=assigned, **changes
        )
        self.model.sync(asks, self.ticket, self.now_ms)
        self.compare(f"{asks} at {self.now_ms}", self.group.sync(asks, self.ticket, self.now_ms))

    def leave(self, member: str, instance: str | None) -> None:
        expected = self.model.leave(member, instance, self.now_ms)
        found, effects = self.group.leave(member, instance, self.now_ms)
        self.compare(f"{member} of {instance} leaves at {self.now_ms}", effects, found, expected)

    def log_answers(self) -> None:
        if self.stores:
            store = self.stores.pop(self.chance.randrange(len(self.stores)))
            error = self.chance.choice([ErrorCode.NONE] * 4 + [ErrorCode.NOT_COORDINATOR])
            self.model.stored(store, error, self.now_ms)
            self.compare(f"{store}: {error.name}", self.group.stored(store, error, self.now_ms))

    def all_go_on(self) -> None:
        """Whoever waits for nothing does what the state wants of it."""
        for member, seat in list(self.model.seats.items()):
            if member not in self.model.seats or seat.join is not None or seat.sync is not None:
                continue
            if self.model.state is GroupState.PREPARING_REBALANCE:
                self.again(member)
            elif self.model.state is GroupState.COMPLETING_REBALANCE:
                self.sync(member, seat.came.group_instance_id, self.model.generation)
        for member in list(self.model.pending):
            self.join(member, None)
        self.log_answers()

    # -- at random -----------------------------------------------------------------------------------------------

    def someone(self) -> tuple[str, str | None, int]:
        """Mostly a member as it is, sometimes with another instance or generation; or a stranger."""
        chance, seats = self.chance, self.model.seats
        member = chance.choice([*seats, *seats, *self.model.pending, "nobody"])
        instance = seats[member].came.group_instance_id if member in seats and chance.random() < 0.8 else None
        if member not in self.model.pending and chance.random() < 0.1:
            instance = chance.choice(["i", "k", "x"])
        return member, instance, self.model.generation + chance.choice([0] * 8 + [1, -1, -self.model.generation - 1])

    def step(self) -> None:
        chance = self.chance
        member, instance, generation = self.someone()
        match chance.choice(["new"] * 3 + ["again"] * 3 + ["all"] * 6 + ["time"] * 6 + ["sync", "lead"] * 2
                            + ["log", "log", "beat", "commit", "leave", "odd", "static", "static"]):  # fmt: skip
            case "new":
                self.join("", None)
            case "static":
                self.join("", chance.choice("ik"))
            case "again":
                self.again(member)
            case "odd":
                changes: dict[str, Any] = {"protocols": chance.choice(ODD)}
                if chance.random() < 0.5:
                    changes = {"protocol_type": chance.choice(["", "connect"])}
                self.join(chance.choice(["", member]), instance, **changes)
            case "all":
                self.all_go_on()
            case "sync":
                if (waiting := [m for m, seat in self.model.seats.items() if seat.sync]) and chance.random() < 0.5:
                    member, instance, generation = chance.choice(waiting), None, self.model.generation
                kinds = chance.choice([(None, None)] * 3 + [("consumer", "range"), ("connect", None), (None, "other")])
                self.sync(member, instance, generation, protocol_type=kinds[0], protocol_name=kinds[1])
            case "lead" if self.model.state is GroupState.COMPLETING_REBALANCE:  # before the others have synced
                leader = self.model.leader or ""
                self.sync(leader, self.model.seats[leader].came.group_instance_id, self.model.generation)
                self.log_answers()
            case "log":
                self.log_answers()
            case "beat":
                expected = self.model.beat(member, instance, generation, self.now_ms)
                found = self.group.heartbeat(member, instance, generation, self.now_ms)
                self.compare(f"{member} of {instance} beats at {self.now_ms}", [], found, expected)
            case "commit":
                expected = self.model.commit(member, instance, generation, self.now_ms)
                found = self.group.commit_error(member, instance, generation, self.now_ms)
                self.compare(f"{member} of {instance} commits at {self.now_ms}", [], found, expected)
            case "leave":
                self.leave(chance.choice(["", member]) if instance else member, instance)
            case "time":
                due = self.group.next_deadline_ms or self.now_ms
                later = self.now_ms + chance.choice([1, 500, 2_500, 30_000])
                self.until(max(self.now_ms, chance.choice([later, due, due - 1, due + 1])))

    def end(self) -> None:
        self.model.die()
        self.compare("it dies", self.group.die())
        for _ in range(5):
            self.step()


@pytest.mark.parametrize("seed", range(40))
def test_a_group_is_what_kafkas_rules_say_after_each_step(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(80):
        walk.step()
    walk.end()
