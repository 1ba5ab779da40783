"""Worlds from seeds: what is drawn, what is left out, what is made smaller."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from controller.sim.late import LATE, is_narrow
from controller.sim.plan import ALWAYS, Plan, draw_plan
from controller.sim.play import KINDS, OPERATIONS, Outcome
from controller.sim.report import command_of
from controller.sim.shape import Shape, ShapeError
from controller.sim.shrink import shrink
from controller.sim.steps.faults import FAULTS

SEEDS = range(400)


def test_a_seed_is_one_world() -> None:
    assert draw_plan(5, KINDS) == draw_plan(5, KINDS)
    assert draw_plan(5, KINDS) != draw_plan(6, KINDS)


def test_each_kind_of_step_is_on_in_some_worlds_and_off_in_others() -> None:
    plans = [draw_plan(seed, KINDS) for seed in SEEDS if not is_narrow(seed)]
    for kind in KINDS:
        on = sum(kind in plan.weights for plan in plans)
        assert on == len(plans) if kind in ALWAYS else 0.2 < on / len(plans) < 0.8, kind
    taken = {step.kind for plan in plans for step in plan.steps}
    assert taken == {*KINDS, *LATE}
    assert not LATE.keys() & set(KINDS)


def test_each_option_has_several_values() -> None:
    rows = [dict(draw_plan(seed, KINDS).shape.rows()) for seed in SEEDS]
    assert {name for name in rows[0] if len({row[name] for row in rows}) < 2} == set()


def test_every_shape_can_be_parsed_by_both_programs() -> None:
    from broker_sim.config import BrokerSettings
    from controller.node import config

    for seed in SEEDS:
        settings = draw_plan(seed, KINDS).shape.settings()
        of_broker, of_controller = BrokerSettings.parse(settings), config.parse(settings)
        unclean = settings["unclean.leader.election.enable"] == "true"
        assert of_controller.core().unclean_leader_election_enable == unclean
        assert of_broker.replica_lag_time_max_ms == int(settings["replica.lag.time.max.ms"])


def test_a_step_left_out_changes_no_other() -> None:
    plan = draw_plan(3, KINDS)
    kept = plan.only({2, 5})
    assert [step.number for step in kept.steps] == [2, 5]
    for step in kept.steps:
        whole = next(each for each in plan.steps if each.number == step.number)
        assert step.kind == whole.kind
        assert plan.stream(whole).random() == kept.stream(step).random()
    assert sum(step.wait_s for step in kept.steps) == pytest.approx(sum(step.wait_s for step in plan.steps[:5]))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("brokers=0", "brokers is at least 1, not 0"),
        ("brokers=many", "brokers is a number, not 'many'"),
        ("balance=yes", "balance is true or false, not 'yes'"),
        ("nothing=1", "is no NAME=VALUE of acks_one_producers"),
        ("brokers", "is no NAME=VALUE"),
    ],
)
def test_a_wrong_option_is_refused(change: str, complaint: str) -> None:
    with pytest.raises(ShapeError, match=complaint):
        draw_plan(1, KINDS, [change])


def test_the_command_names_what_differs() -> None:
    full = draw_plan(3, KINDS)
    assert command_of(full) == "kwob sim repeat 3"
    changed = replace(full.only({2}), shape=replace(full.shape, brokers=9))
    assert command_of(changed) == "kwob sim repeat 3 --only 2 --set brokers=9"
    again = draw_plan(3, KINDS, ["brokers=9"]).only({2})
    assert again == changed


def fails_if(plan: Plan, needed: set[int]) -> Outcome:
    """Broken exactly while these steps are there and more than two brokers."""
    numbers = {step.number for step in plan.steps}
    is_broken = needed <= numbers and plan.shape.brokers > 2
    return Outcome(plan=plan, broken=["logs_agree: they do not"] if is_broken else [])


@pytest.mark.parametrize("needed", [{1}, {3, 9}, {2, 5, 12}, set()])
def test_a_failing_world_is_made_as_small_as_it_can_be(needed: set[int]) -> None:
    shape = Shape(brokers=7, controllers=3, partitions=4, producers=2, racks=3, steps=12)
    plan = replace(draw_plan(1, KINDS, ["steps=12"]), shape=shape)
    found = shrink(plan, plays_max=500, played=lambda tried: fails_if(tried, needed))
    assert found is not None
    assert {step.number for step in found.plan.steps} == needed
    small = found.plan.shape
    assert (small.brokers, small.controllers, small.partitions, small.producers, small.racks) == (3, 1, 1, 0, 0)


def test_another_failure_is_not_taken_for_it() -> None:
    def played(plan: Plan) -> Outcome:
        what = "logs_agree: no" if len(plan.steps) > 6 else "metadata: another thing"
        return Outcome(plan=plan, broken=[what])

    found = shrink(draw_plan(1, KINDS, ["steps=12"]), plays_max=500, played=played)
    assert found is not None and len(found.plan.steps) == 7


def test_what_does_not_fail_is_not_shrunk() -> None:
    assert shrink(draw_plan(1, KINDS), plays_max=9, played=lambda plan: Outcome(plan=plan)) is None


def test_no_more_worlds_are_played_than_asked_for() -> None:
    plays = 0

    def played(plan: Plan) -> Outcome:
        nonlocal plays
        plays += 1
        return Outcome(plan=plan, broken=["always: broken"])

    shrink(draw_plan(1, KINDS, ["steps=18"]), plays_max=7, played=played)
    assert plays <= 7


def room_of(kind: str) -> str:
    """The module of `controller/sim/steps` in which a kind of step is."""
    return {**FAULTS, **OPERATIONS, **LATE}[kind].__module__.rpartition(".")[2]


def test_the_page_says_in_which_share_of_worlds_what_happens() -> None:
    page = (Path(__file__).parents[2] / "docs/simulation.md").read_text()
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \| (\d+) % \|", page, re.MULTILINE)
    shares = {frozenset(re.findall("`(.*?)`", names)): int(share) / 100 for names, share in rows}
    assert {room for rooms in shares for room in rooms} == {room_of(kind) for kind in (*KINDS, *LATE)}
    happened = [{room_of(step.kind) for step in draw_plan(seed, KINDS).steps} for seed in SEEDS]
    for rooms, share in shares.items():
        assert abs(sum(bool(rooms & world) for world in happened) / len(happened) - share) < 0.09, rooms
