"""What worlds have besides since they were first drawn."""

from __future__ import annotations

import asyncio
import errno
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controller.sim.disk import SimulatedDisk
from controller.sim.late import LATE, NARROW_STEPS, NEED_DIRS, is_narrow, steps_of, troubles_of
from controller.sim.load.replica_prober import ReplicaProber
from controller.sim.plan import draw_plan, plan_of
from controller.sim.play import KINDS, OPERATIONS, play
from controller.sim.steps.aftermath import AFTERMATH
from controller.sim.steps.corners import CORNERS
from controller.sim.steps.foreign import FOREIGN
from controller.sim.steps.held import HELD
from controller.sim.steps.in_vain import IN_VAIN
from controller.sim.steps.log_troubles import LOG_TROUBLES
from controller.sim.steps.moments import CALM, MOMENTS
from controller.sim.steps.resettled import RESETTLED
from controller.sim.steps.ruins import RUINED, flip
from controller.sim.steps.second_terms import SECOND_TERMS
from controller.sim.steps.seldom import SELDOM
from controller.sim.steps.slow_disks import SLOW
from controller.sim.steps.small_print import SMALL_PRINT
from controller.sim.steps.tooled import TOOLS
from controller.sim.steps.twists import TWISTS
from controller.sim.steps.unheard import UNHEARD
from controller.sim.steps.winding import WINDING
from controller.wire.errors import ErrorCode
from controller.wire.records import build_values

pytestmark = [pytest.mark.sim, pytest.mark.long]
SEEDS = range(200)
#: What comes behind all that worlds had before.
LAST = {*HELD, *UNHEARD, *IN_VAIN, *AFTERMATH, *CORNERS, *SLOW, *RESETTLED, *SELDOM, *SMALL_PRINT, *SECOND_TERMS}
#: The shares of worlds that have them.
SHARES = (
    *((HELD, 0.25), (UNHEARD, 0.15), (IN_VAIN, 0.1), (AFTERMATH, 0.2), (CORNERS, 0.15)),
    *((SLOW, 0.1), (RESETTLED, 0.08), (SELDOM, 0.1), (SMALL_PRINT, 0.1), (SECOND_TERMS, 0.12)),
)


def test_each_trouble_has_its_operation_and_is_in_some_worlds() -> None:
    assert set(LOG_TROUBLES) <= set(LATE) <= set(OPERATIONS) - set(KINDS)
    taken = [{step.kind for step in draw_plan(seed, KINDS).steps} & set(LOG_TROUBLES) for seed in SEEDS]
    assert set().union(*taken) == set(LOG_TROUBLES)
    assert 0.3 < sum(map(bool, taken)) / len(taken) < 0.7
    for seed, kinds in zip(SEEDS, taken, strict=True):
        assert is_narrow(seed) or kinds <= set(troubles_of(seed))


def test_troubles_come_between_steps_that_stay_what_they_are() -> None:
    for seed in SEEDS:
        if is_narrow(seed):
            continue
        plan, late = draw_plan(seed, KINDS), steps_of(seed, draw_plan(seed, KINDS).shape.steps)
        own = [step for step in plan.steps if step.number <= plan.shape.steps]
        assert [step.number for step in own] == list(range(1, plan.shape.steps + 1))
        assert sorted(step.number for step in plan.steps if step not in own) == [number for number, *_ in late]
        assert steps_of(seed, 0) == []


def test_each_twist_is_in_some_worlds_behind_all_that_came_before() -> None:
    plans = [draw_plan(seed, KINDS) for seed in range(400) if not is_narrow(seed)]
    worlds = [[step.kind for step in plan.steps if step.kind not in {*RUINED, *LAST}] for plan in plans]
    assert {kind for kinds in worlds for kind in kinds} >= set(TWISTS)
    twisted = [[kind in TWISTS for kind in kinds] for kinds in worlds if set(kinds) & set(TWISTS)]
    assert 0.2 < len(twisted) / len(worlds) < 0.4
    assert all(each == sorted(each) and sum(each) <= 2 for each in twisted)


def test_most_worlds_calm_down_before_what_needs_a_sound_cluster() -> None:
    at_the_end = {*WINDING, *TOOLS, *FOREIGN, *MOMENTS, *TWISTS, *RUINED, *LAST}
    plans = [draw_plan(seed, KINDS) for seed in range(400) if not is_narrow(seed)]
    worlds = [kinds for plan in plans if set(kinds := [step.kind for step in plan.steps]) & at_the_end]
    calmed = [kinds for kinds in worlds if "calm_down" in kinds]
    assert 0.5 < len(calmed) / len(worlds) < 0.7
    for kinds in calmed:
        after = kinds[kinds.index("calm_down") + 1 :]
        assert after and set(after) <= at_the_end and not set(kinds[: -len(after)]) & at_the_end


def test_narrow_worlds_take_few_kinds_of_steps_and_have_few_clients() -> None:
    narrow = [draw_plan(seed, KINDS) for seed in range(1000) if is_narrow(seed)]
    assert 0.15 < len(narrow) / 1000 < 0.25
    own = [plan.steps[: plan.shape.steps] for plan in narrow]
    kinds = [{step.kind for step in steps} for steps in own]
    assert set().union(*kinds) & set(LATE) == set(LATE) - {*CALM, *RUINED, *LAST}
    assert {len(steps) for steps in own} == set(NARROW_STEPS)
    for plan, each in zip(narrow, kinds, strict=True):
        shape = plan.shape
        assert len(each) <= 3 and each <= set(OPERATIONS)
        assert shape.producers + shape.idempotent_producers + shape.side_producers <= 3
        assert not shape.consumers + shape.group_members + shape.static_members + shape.crowd
        assert shape.log_dirs == 2 or not each & NEED_DIRS
        again = draw_plan(plan.seed, KINDS, ["steps=2"])
        assert [(step.number, step.kind) for step in again.steps[:2]] == [(s.number, s.kind) for s in plan.steps[:2]]


def test_a_file_that_was_cut_off_before_is_ruined_up_to_there(tmp_path: Path) -> None:
    batch = build_values([(b"k", b"v")], timestamp=1)
    (path := tmp_path / "0.log").write_bytes(batch + batch[:51])
    turn: Any = SimpleNamespace(chance=random.Random(1))
    assert flip(turn, path) == len(batch) - 1
    path.write_bytes(batch[:51])
    assert flip(turn, path) is None


def test_ruins_come_last_in_some_worlds_which_then_have_what_they_need() -> None:
    plans = [draw_plan(seed, KINDS) for seed in range(400) if not is_narrow(seed)]
    ruined = [[s.kind in RUINED for s in plan.steps if s.kind not in LAST] for plan in plans]
    assert {step.kind for plan in plans for step in plan.steps} >= set(RUINED)
    assert 0.25 < sum(map(any, ruined)) / len(ruined) < 0.45
    assert all(each == sorted(each) and sum(each) <= 2 for each in ruined)
    for plan in plans:
        needs_dirs = {"start_without_a_dir", "delete_off_a_failed_dir", "come_back_to_a_broker_with_a_failed_dir"}
        needs_dirs &= {step.kind for step in plan.steps}
        assert plan.shape.log_dirs == 2 or not needs_dirs


def test_what_is_held_back_is_in_some_worlds_behind_all_that_they_had() -> None:
    plans = [draw_plan(seed, KINDS) for seed in range(1000)]
    for narrow in (True, False):
        for kinds, share in SHARES:
            some = [plan.steps for plan in plans if is_narrow(plan.seed) is narrow]
            held = [
                [step.kind in kinds for step in steps if step.kind in kinds or step.kind not in LAST] for steps in some
            ]
            assert share - 0.05 < sum(map(any, held)) / len(held) < share + 0.05
            assert all(each == sorted(each) and sum(each) <= 2 for each in held)
    assert {step.kind for plan in plans for step in plan.steps} >= LAST
    for plan in plans:
        assert plan.shape.log_dirs == 2 or "cut_what_moves" not in {step.kind for step in plan.steps}
        numbers = [step.number for step in plan.steps]
        assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("commit_while_it_goes", "groups deleted: ['answered', 'answered', 'answered']"),
        ("answer_a_former_term", "epoch 0 is 1"),
    ],
)
def test_what_is_held_back_comes_when_it_is_too_late(kind: str, says: str) -> None:
    step = {"number": 1, "wait_s": 1.0, "kind": kind}
    outcome = play(plan_of({"seed": 1, "world": {"idempotent_producers": "1"}, "steps": [step]}))
    assert not outcome.broken
    assert says in outcome.taken[0] and "no ISR was written" not in outcome.taken[0]


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("add_again", "'answered', 'answered'], in its ISR"),
        ("drop_a_leader_in_vain", "answered, then to [1"),
        ("drop_a_leader_unheard", "'answered', 'answered'], 4 is in its ISR"),
        ("come_back_as_a_stranger", "'answered', 'Disconnected'], in its ISR"),
        ("take_office_without_a_topic", "/brokers/topics/t refused for"),
        ("stop_in_vain", "answered, refused after"),
        ("delete_another_meanwhile", "answered', 'answered', 'answered']"),
        ("move_while_it_leaves", "of 1, alone in sync, to [2, 1]: answered"),
        ("drop_a_leader_that_leaves", "cancelled: answered, its ISR was [3, 1]"),
    ],
)
def test_moves_of_which_leaders_hear_late_or_that_cannot_end(kind: str, says: str) -> None:
    world = {"brokers": "5", "controllers": "2", "partitions": "1", "replication_factor": "2"}
    step = {"number": 1, "wait_s": 2.0, "kind": kind}
    outcome = play(plan_of({"seed": 1, "world": world | {"session_timeout_ms": "4000"}, "steps": [step]}))
    assert not outcome.broken
    assert says in outcome.taken[0], outcome.taken


def test_a_disk_fails_in_the_middle(tmp_path: Path) -> None:
    disk = SimulatedDisk(random.Random(1), lambda: 0.0)
    folder, other = tmp_path / "dir", tmp_path / "other"
    for each in (folder, other):
        each.mkdir()
        (each / "a").write_bytes(b"")
    disk.fail_at(folder, "rename", 2, errno.EIO)
    disk.rename(other / "a", other / "b")
    disk.rename(folder / "a", folder / "b")
    disk.append(folder / "b", b"x")
    with pytest.raises(OSError, match="Input/output"):
        disk.rename(folder / "b", folder / "c")
    with pytest.raises(OSError, match="Input/output"):
        disk.append(folder / "b", b"x")
    assert disk.failing == {folder: errno.EIO}


def asked(probe: str, *answers: Any) -> list[str]:
    """What is wrong when a probe gets these answers."""
    replies = list(answers)
    broken: list[str] = []

    async def call(*_: Any) -> Any:
        return replies.pop(0)

    broker = SimpleNamespace(_context=object(), context=SimpleNamespace(controller_epoch=4))
    cluster: Any = SimpleNamespace(brokers={1: broker}, shape=SimpleNamespace(partitions=1))
    ledger: Any = SimpleNamespace(broken=broken)
    links: Any = SimpleNamespace(chance=random.Random(1), call=call, leader=lambda *_: 1, forget_leader=lambda *_: None)
    prober = ReplicaProber(cluster, ledger, links)
    asyncio.run(getattr(prober, probe)())
    return broken


def test_a_broker_that_obeys_an_older_controller_is_found() -> None:
    def answer(code: ErrorCode) -> Any:
        return SimpleNamespace(error_code=int(code))

    probe = "update_from_an_older_controller"
    assert asked(probe, answer(ErrorCode.STALE_CONTROLLER_EPOCH)) == []
    assert "controller epoch 3, broker 1 knows 4: NONE" in asked(probe, answer(ErrorCode.NONE))[0]


def test_a_session_that_forgets_to_tell_is_found() -> None:
    def fetched(*codes: ErrorCode) -> Any:
        rows = [SimpleNamespace(partitions=[SimpleNamespace(error_code=int(code), high_watermark=7)]) for code in codes]
        return SimpleNamespace(error_code=0, session_id=9, responses=rows)

    probe, good, bad = "recover_within_a_session", fetched(ErrorCode.NONE), fetched(ErrorCode.OFFSET_OUT_OF_RANGE)
    assert asked(probe, good, bad, good, fetched()) == []
    assert asked(probe, good, good, fetched(), fetched()) == [], "there was no error"
    assert (
        "broker 1 told a session that t-0 has OFFSET_OUT_OF_RANGE" in asked(probe, good, bad, fetched(), fetched())[0]
    )


@pytest.mark.parametrize(
    ("kind", "dirs", "says"),
    [
        ("move_to_who_died_in_sync", 1, ": answered"),
        ("cancel_and_hide", 1, "cancelled: Disconnected, not to be read"),
        ("delete_off_a_failed_dir", 2, "deleted: answered"),
        ("leave_to_who_has_not_begun", 1, "is in its ISR"),
    ],
)
def test_moves_and_deletions_meet_what_hardly_ever_comes_together(kind: str, dirs: int, says: str) -> None:
    world = {"idempotent_producers": "1", "log_dirs": str(dirs), "brokers": "5"}
    outcome = play(plan_of({"seed": 1, "world": world, "steps": [{"number": 1, "wait_s": 2.0, "kind": kind}]}))
    assert not outcome.broken
    assert says in outcome.taken[0], outcome.taken


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("register_elsewhere", "broker-"),
        ("look_in_vain", "/admin/"),
        ("order_again", "answered, then to [1, 3]: ['OK']"),
        ("take_the_place_of_a_wish", ": OK, and to"),
        ("elect_for_the_dead", "t-0 without 2: answered"),
        ("leave_to_who_dies", "t-0 of 1 to 2"),
        ("leave_alone", "t-0 of 1 without [2]"),
        ("bounce_with_a_queue", "answered: back"),
        ("take_office_without_a_leader", ", without broker-1"),
        ("take_office_with_notices", "without 2 and [1001, 1002]"),
        ("delete_and_balance", "['side-2: answered', 'OK', 'answered']"),
        ("grow_what_is_deleted", "['OK', 'answered', 'OK']"),
        ("name_again", "side-2: ['OK', 'answered', 'side-2: answered', 'answered']"),
        ("cancel_with_one_refusal", "cancelled: answered"),
        ("drop_a_leader_and_lose_who_stays", "its ISR was [3, 1]"),
        ("come_back_to_a_broker_with_a_failed_dir", "'answered', 'answered']"),
        ("serve_again", "; all ended"),
        ("serve_again", "; serves again"),
    ],
)
def test_what_seldom_comes(kind: str, says: str) -> None:
    world = {"brokers": "5", "controllers": "2", "partitions": "1", "replication_factor": "2", "log_dirs": "2"}
    world |= {"session_timeout_ms": "4000", "balance_interval_s": "2", "unclean_leader_election": "true"}
    step = {"number": 1, "wait_s": 2.0, "kind": kind}
    outcome = play(plan_of({"seed": 1, "world": world | {"idempotent_producers": "1"}, "steps": [step]}))
    assert not outcome.broken
    assert says in outcome.taken[0], outcome.taken
