"""A watched group: silent while it keeps its rules, and not when an answer, a member or a generation is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker_sim.groups.generations import Generations
from broker_sim.groups.group import Group
from broker_sim.groups.members import Member, Members
from broker_sim.groups.values import Effect, GroupSettings, Join, JoinAnswer, Reply, Store, Sync, SyncAnswer
from controller.sim.oracles.group_rules import WatchedGroup
from controller.wire.errors import ErrorCode

pytestmark = pytest.mark.sim
SESSION_MS, REBALANCE_MS, DELAY_MS = 3_000, 5_000, 200


class Scene:
    """A group of static member `s` (instance `one`) and dynamic `d`, asked as a coordinator asks."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        self.group = WatchedGroup("broker 1", self.broken, "g", GroupSettings(initial_rebalance_delay_ms=DELAY_MS))
        self.now_ms, self._ticket = 1_000, 0

    def join(self, member_id: str, *, new_id: str = "", instance: str | None = None) -> list[Effect]:
        self._ticket += 1
        request = Join(
            member_id=member_id,
            new_member_id=new_id,
            group_instance_id=instance,
            client_id="c",
            client_host="h",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=(("range", b""),),
            needs_known_member_id=False,
        )
        return self.group.join(request, self._ticket, self.now_ms)

    def sync(self, member_id: str, generation: int = 1, **assignments: bytes) -> list[Effect]:
        self._ticket += 1
        instance = "one" if member_id == "s" else None
        request = Sync(member_id=member_id, generation=generation, group_instance_id=instance, assignments=assignments)
        return self.group.sync(request, self._ticket, self.now_ms)

    def later(self, ms: int) -> list[Effect]:
        self.now_ms += ms
        return self.group.tick(self.now_ms)

    def joined(self) -> Scene:
        self.join("", new_id="s", instance="one")
        self.join("", new_id="d")
        self.later(DELAY_MS)
        self.later(DELAY_MS)  # the second member has put it off
        return self

    def stable(self) -> Scene:
        self.joined()
        self.sync("d")
        (store,) = [effect for effect in self.sync("s", s=b"1", d=b"2") if isinstance(effect, Store)]
        self.group.stored(store, ErrorCode.NONE, self.now_ms)
        return self


def test_a_life_without_complaints() -> None:
    scene = Scene().stable()
    assert scene.group.heartbeat("d", None, 1, scene.now_ms) is ErrorCode.NONE
    assert scene.group.heartbeat("d", "one", 1, scene.now_ms) is ErrorCode.FENCED_INSTANCE_ID
    assert scene.group.commit_error("d", None, 0, scene.now_ms) is ErrorCode.ILLEGAL_GENERATION
    scene.join("", new_id="e")  # d and s have to join again
    scene.later(2_000)
    scene.join("d")
    scene.join("s", instance="one")
    assert scene.group.generation == 2
    scene.join("", new_id="s2", instance="one")  # it takes the place of s, and a rebalance begins
    scene.later(SESSION_MS)
    scene.later(REBALANCE_MS)
    scene.group.leave("", "one", scene.now_ms)
    scene.group.die()
    assert scene.broken == []


def test_a_new_member_that_does_not_wait_for_its_first_answer_has_a_session() -> None:
    scene = Scene().stable()
    scene.join("", new_id="e")
    assert scene.group.heartbeat("e", None, 1, scene.now_ms) is ErrorCode.REBALANCE_IN_PROGRESS
    scene.join("s", instance="one")
    scene.join("d", instance=None)
    assert scene.group.generation == 2
    scene.join("", new_id="f")
    scene.group.heartbeat("f", None, 2, scene.now_ms)
    scene.later(SESSION_MS)
    assert "f" not in scene.group.members and scene.broken == []


Damage = Callable[[Scene, pytest.MonkeyPatch], Any]


def _keeps_the_old_id_waiting(scene: Scene, patch: pytest.MonkeyPatch) -> None:
    def forget(_: object, member: Member, __: object) -> None:
        member.join = member.sync = None

    patch.setattr(Generations, "_answer_parked", forget)
    scene.join("", new_id="s", instance="one")
    scene.join("", new_id="s2", instance="one")


def _answers_twice(scene: Scene, patch: pytest.MonkeyPatch) -> None:
    tick = Group.tick
    patch.setattr(Group, "tick", lambda self, now: [*tick(self, now), Reply(1, JoinAnswer())])
    scene.joined()


def _assigns_too_early(scene: Scene, patch: pytest.MonkeyPatch) -> None:
    sync = Group.sync
    early = SyncAnswer(assignment=b"2")
    patch.setattr(Group, "sync", lambda self, r, t, now: [*sync(self, r, t, now), Reply(t - 1, early)])
    scene.joined()
    scene.sync("d")
    scene.sync("s", s=b"1", d=b"2")


def _takes_what_an_older_generation_stored(scene: Scene, patch: pytest.MonkeyPatch) -> None:
    stored = Group.stored
    scene.joined()
    scene.sync("d")
    patch.setattr(Group, "stored", lambda self, _, *rest: stored(self, Store(self.generation, {"d": b"old"}), *rest))
    scene.group.stored(Store(0, {"d": b"old"}), ErrorCode.NONE, scene.now_ms)


def _does_not_wait(scene: Scene, patch: pytest.MonkeyPatch) -> None:
    scene.stable()
    patch.setattr(Generations, "_try_complete_join", vars(Generations)["_complete_join"])
    scene.join("d", instance=None)
    scene.join("", new_id="e")


def _removes_who_lives(scene: Scene, patch: pytest.MonkeyPatch) -> None:
    scene.stable()
    for member in scene.group.members.values():
        member.expires_at_ms = 0
    scene.later(10)


def _keeps_who_is_dead(scene: Scene, patch: pytest.MonkeyPatch) -> None:
    scene.stable()
    for member in scene.group.members.values():
        member.expires_at_ms = 1 << 60
    scene.later(SESSION_MS)


def _is_led_by_nobody(scene: Scene, patch: pytest.MonkeyPatch) -> None:
    scene.stable()
    scene.group.leader = "d"
    scene.join("", new_id="e")
    scene.join("d")
    members = scene.group.members
    patch.setattr(Generations, "_current_generation", lambda self, m: JoinAnswer(member_id=m.member_id, leader="s"))
    members["s"].expires_at_ms = 1 << 60
    scene.later(REBALANCE_MS)


def _lets_an_older_generation_beat(scene: Scene, patch: pytest.MonkeyPatch) -> None:
    scene.stable()
    patch.setattr(Group, "heartbeat", lambda *_: ErrorCode.NONE)
    scene.group.heartbeat("d", None, 0, scene.now_ms)


def _lets_one_commit_for_another(scene: Scene, patch: pytest.MonkeyPatch) -> None:
    scene.stable()
    patch.setattr(Group, "commit_error", lambda *_: ErrorCode.NONE)
    scene.group.commit_error("d", "one", 1, scene.now_ms)


def _stores_something_else(scene: Scene, patch: pytest.MonkeyPatch) -> None:
    sync = Group.sync
    patch.setattr(Group, "sync", lambda self, r, t, now: [*sync(self, r, t, now), Store(1, {"d": b"?"})])
    scene.joined()
    scene.sync("s", s=b"1")


def _takes_a_stranger(scene: Scene, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Group, "join", lambda self, r, t, now: [Reply(t, JoinAnswer())])
    scene.join("stranger")


def _lets_a_stranger_leave(scene: Scene, patch: pytest.MonkeyPatch) -> None:
    scene.stable()
    patch.setattr(Group, "leave", lambda *_: (ErrorCode.NONE, []))
    scene.group.leave("stranger", None, scene.now_ms)


def _waits_for_nobody(scene: Scene, patch: pytest.MonkeyPatch) -> None:
    scene.stable()
    patch.setattr(Generations, "_try_complete_join", lambda *_: None)
    scene.join("", new_id="e")
    scene.join("d")
    scene.join("s", instance="one")


def _forgets_who_has_yet_to_sync(scene: Scene, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Members, "rebalance_timeout_ms", lambda _: 1 << 40)
    scene.joined()
    scene.sync("s", s=b"1")
    scene.group.members["d"].expires_at_ms = 1 << 60
    scene.later(REBALANCE_MS + 1)


def _keeps_who_finds_no_place(scene: Scene, patch: pytest.MonkeyPatch) -> None:
    scene.stable()
    patch.setattr(Group, "_is_full", lambda *_: True)
    patch.setattr(Generations, "_remove_member", lambda *_: None)
    scene.join("d")


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (_keeps_the_old_id_waiting, "nobody answers s"),
        (_answers_twice, "a request is answered twice"),
        (_assigns_too_early, "d is assigned b'2', in this generation is stored []"),
        (_takes_what_an_older_generation_stored, "d is assigned b'old', in this generation is stored []"),
        (_does_not_wait, "begins after 0 ms without"),
        (_removes_who_lives, "is removed at 1410 in Stable"),
        (_keeps_who_is_dead, "stays at 4400, it was last heard of at 1400"),
        (_is_led_by_nobody, "is told"),
        (_lets_an_older_generation_beat, "a heartbeat of d is answered NONE, not ILLEGAL_GENERATION"),
        (_lets_one_commit_for_another, "a commit of d is answered NONE, not FENCED_INSTANCE_ID"),
        (_stores_something_else, "what s assigned is stored as"),
        (_takes_a_stranger, "a JoinGroup of stranger is answered"),
        (_waits_for_nobody, "all 3 members have joined, and generation 1 goes on"),
        (_forgets_who_has_yet_to_sync, "d stays at 6401, and has not synced since 1400"),
        (_keeps_who_finds_no_place, "d finds no place, and is a member"),
        (_lets_a_stranger_leave, "the LeaveGroup of stranger is answered NONE, not UNKNOWN_MEMBER_ID"),
    ],
)
def test_what_is_wrong_is_found(damage: Damage, complaint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    damage(scene, monkeypatch)
    assert any(complaint in wrong for wrong in scene.broken), scene.broken
