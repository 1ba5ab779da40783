"""Brokers that start again with other settings of their own."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from broker_sim.groups.coordinator import GroupCoordinator
from broker_sim.groups.retention import may_die
from broker_sim.groups.values import Join, JoinAnswer
from controller.sim.load.ledger import Ledger, Partition
from controller.sim.plan import plan_of
from controller.sim.play import Play, play
from controller.sim.steps.held import JOINS, Coordinator
from controller.sim.steps.turn import NothingThere
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey

pytestmark = [pytest.mark.sim, pytest.mark.long]


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("forget_in_time", "['answered', 'answered', 'answered'], [7, 7, 7]"),
        ("grow_too_large", "'GROUP_MAX_SIZE_REACHED'"),
        ("fetch_within_bounds", "after 0."),
    ],
)
def test_what_settings_say_counts_from_the_next_start_on(kind: str, says: str) -> None:
    world = {"idempotent_producers": "1", "brokers": "3"}
    outcome = play(plan_of({"seed": 1, "world": world, "steps": [{"number": 1, "wait_s": 1.0, "kind": kind}]}))
    assert not outcome.broken
    assert says in outcome.taken[0], outcome.taken


def test_settings_that_are_taken_back_are_those_of_before() -> None:
    """Worlds 50, 288 and 367: two of them at once, and a limit of two members was there for good."""
    kinds = ("grow_too_large", "fetch_within_bounds")
    steps = [{"number": number, "wait_s": 0.2, "kind": kind} for number, kind in enumerate(kinds, 1)]
    outcome = play(plan_of({"seed": 1, "world": {"brokers": "3", "group_members": "3"}, "steps": steps}))
    assert not outcome.broken
    assert "nothing to act on" in outcome.taken[1], outcome.taken


def test_a_member_whose_group_goes_before_it_has_joined_joins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """World 7282: retention came by when the member had only been told its id; the member committed all the same, as
    nobody, and what nobody's member commits is forgotten after a minute."""
    join, gone = GroupCoordinator.join, []

    async def join_when_retention_comes(self: GroupCoordinator, group_id: str, request: Join) -> JoinAnswer:
        answer = await join(self, group_id, request)
        entry = self.entry(group_id)
        if answer.error is ErrorCode.MEMBER_ID_REQUIRED and not gone and group_id.startswith("held-"):
            assert entry is not None and may_die(entry) and not entry.offsets
            self._delete(entry)
            gone.append(group_id)
        return answer

    monkeypatch.setattr(GroupCoordinator, "join", join_when_retention_comes)
    steps = [{"number": 1, "wait_s": 1.0, "kind": "forget_in_time"}]
    outcome = play(plan_of({"seed": 1, "world": {"brokers": "3"}, "steps": steps}))
    assert gone and not outcome.broken
    assert "['answered', 'answered', 'answered'], [7, 7, 7]" in outcome.taken[0], outcome.taken


@pytest.mark.parametrize(
    ("codes", "asked"),
    [
        ([ErrorCode.NOT_COORDINATOR], 2),
        ([ErrorCode.UNKNOWN_MEMBER_ID] * JOINS, 2 * JOINS),
    ],
)
def test_who_is_not_let_in_is_no_member(codes: list[ErrorCode], asked: int) -> None:
    answers = [each for code in codes for each in (ErrorCode.MEMBER_ID_REQUIRED, code)]
    bodies: list[dict[str, Any]] = []

    class Refusing(Coordinator):
        async def ask(self, api_key: ApiKey, version: int, body: dict[str, Any]) -> Any:
            bodies.append(body)
            return SimpleNamespace(error_code=answers[len(bodies) - 1].value, member_id="m", generation_id=-1)

    nobody: Any = None
    with pytest.raises(NothingThere):
        asyncio.run(Refusing(nobody, 1, nobody, 0, ()).join({"group_id": "g", "member_id": ""}))
    assert [body["member_id"] for body in bodies] == ["", "m"] * (asked // 2)


class _OneOfTwoDies(Play):
    """A broker is away for more than a minute: until the operations have ended."""

    async def begin(self) -> None:
        await super().begin()
        self.cluster.later(12.0, lambda: self.cluster.kill(2))


def test_who_cannot_commit_for_a_minute_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """World 7218: brokers kept offsets for a minute, and one of two was away for longer. For want of replicas all
    commits were refused; what a consumer that is no member had committed went, and the operation's own, as in Kafka."""
    forgotten, told = list[str](), Ledger.commit_fetched

    def note(ledger: Ledger, group: str, partition: Partition, offset: int, **about: Any) -> None:
        if offset == -1 < about["least"]:
            forgotten.append(group)
        told(ledger, group, partition, offset, **about)

    monkeypatch.setattr(Ledger, "commit_fetched", note)
    world = {"brokers": "2", "replication_factor": "2", "min_insync_replicas": "2", "consumers": "1"}
    steps = [{"number": 1, "wait_s": 4.0, "kind": "forget_in_time"}]
    outcome = play(plan_of({"seed": 1, "world": world, "steps": steps}), course=_OneOfTwoDies)
    assert not outcome.broken
    assert "COORDINATOR_NOT_AVAILABLE" in outcome.taken[0], outcome.taken
    assert set(forgotten) == {"consumer-0"}
