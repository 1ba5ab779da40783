"""Recipes cut at every I/O step: the process dies there, a successor takes over and must finish the work."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from controller.core import events
from controller.core.effects import Effect, Write
from controller.wire.types import BrokerId, ReplicaAssignment, TopicPartition
from controller.wire.zk_operations import GetChildren, GetData
from controller.wire.znodes import TopicZNode
from tests.worlds.core import Cut

TP = TopicPartition("t", 0)


def topic_node(world: Any) -> Any:
    return TopicZNode.decode(world.tree.read(GetData("/brokers/topics/t")).data)


def prepare(world: Any) -> None:
    world.broker_starts(1, 2, 3, 4)
    world.topic("t", p0=(1, 2, 3), p1=(2, 3))
    world.topic("u", p0=(3, 1))


def fail_over(world: Any) -> None:
    world.broker_dies(1)
    world.new_controller()
    world.start()


def after_failover(world: Any) -> None:
    assert world.leadership(TP).leader == 2
    assert world.leadership(TP).isr == (2, 3)
    assert world.leadership(TopicPartition("u", 0)).isr == (3,)


def reassign(world: Any) -> None:
    world.run(events.ApiPartitionReassignment({TP: (BrokerId(4), BrokerId(2))}, 1))
    if 4 in topic_node(world).partitions[0].replicas:
        world.leader_writes(TP, (1, 2, 3, 4))
    world.run()


def after_reassignment(world: Any) -> None:
    assignment = topic_node(world).partitions[0]
    if 4 not in assignment.replicas:  # cut before anything durable was done: the client was not answered
        assert assignment.replicas == (1, 2, 3)
        return
    if assignment.is_being_reassigned:
        if not {4, 2} <= set(world.leadership(TP).isr):
            world.leader_writes(TP, (1, 2, 3, 4))
        world.run()
        assignment = topic_node(world).partitions[0]
    assert assignment.replicas == (4, 2) and not assignment.is_being_reassigned
    state = world.leadership(TP)
    assert state.leader == 4 and set(state.isr) == {2, 4}
    assert topic_node(world).partitions[1].replicas == (2, 3)


def delete(world: Any) -> None:
    world.make("/admin/delete_topics/t")
    world.run()


def after_deletion(world: Any) -> None:
    gone = ("/brokers/topics/t", "/config/topics/t", "/admin/delete_topics/t")
    assert [path for path in gone if world.tree.get(path) is not None] == []
    assert world.tree.read(GetChildren("/brokers/topics")).children == ("u",)
    assert world.state.topics == {"u"}


def create(world: Any) -> None:
    world.topic("new", p0=(1, 2), p1=(2, 3))
    world.run()


def after_creation(world: Any) -> None:
    for partition, leader in ((0, 1), (1, 2)):
        state = world.leadership(TopicPartition("new", partition))
        assert (state.leader, state.leader_epoch) == (leader, 0)


RECIPES = [
    (fail_over, after_failover),
    (reassign, after_reassignment),
    (delete, after_deletion),
    (create, after_creation),
]


@pytest.mark.parametrize(("act", "check"), RECIPES, ids=[act.__name__ for act, _ in RECIPES])
def test_a_successor_finishes(World: Any, act: Callable[[Any], None], check: Callable[[Any], None]) -> None:
    cuts = 0
    for cut_at in range(1, 500):
        world = World()
        prepare(world)
        world.start()
        world.steps, world.cut_at = 0, cut_at
        try:
            act(world)
        except Cut:
            cuts += 1
        else:
            check(world)
            break
        world.cut_at = None
        leaders = {tp: world.leadership(tp).leader_epoch for tp in (TP,) if act is not delete}
        world.new_controller()
        world.start()
        check(world)
        assert all(world.leadership(tp).leader_epoch >= epoch for tp, epoch in leaders.items()), "epochs never fall"
    assert cuts >= 3, "the recipe was never cut"


@pytest.mark.parametrize(("act", "check"), RECIPES, ids=[act.__name__ for act, _ in RECIPES])
def test_a_successor_finishes_what_was_written_in_part(
    World: Any, act: Callable[[Any], None], check: Callable[[Any], None]
) -> None:
    """The operations of one write are done one after the other, and the process may die between any two of them."""
    for operations in itertools.count():
        world, left = World(), operations
        prepare(world)
        world.start()

        def dying(effect: Effect, perform: Callable[[Effect], Any] = world.perform) -> Any:
            nonlocal left
            if isinstance(effect, Write) and left < len(effect.ops):
                perform(replace(effect, ops=effect.ops[:left]))
                raise Cut
            left -= len(effect.ops) if isinstance(effect, Write) else 0
            return perform(effect)

        world.perform = dying
        try:
            act(world)
        except Cut:
            del world.perform
        else:
            break
        world.new_controller()
        world.start()
        check(world)
    assert operations > 3, "the recipe was never cut"


@pytest.mark.parametrize("cut_at", range(1, 60, 2))
def test_a_second_death_is_no_worse(World: Any, cut_at: int) -> None:
    """The successor of a cut reassignment is cut too; the third one finishes."""
    world = World()
    prepare(world)
    world.start()
    for work, steps in ((reassign, cut_at), (type(world).start, 60 - cut_at)):
        world.steps, world.cut_at = 0, steps
        with suppress(Cut):
            work(world)
        world.cut_at = None
        world.new_controller()
    world.start()
    after_reassignment(world)


@pytest.mark.parametrize("target", [(1, 2, 3), (1,), (3, 1)], ids=["only adds", "only removes", "does both"])
def test_a_successor_takes_up_a_move_that(World: Any, target: tuple[BrokerId, ...]) -> None:
    """2 leads and is alone in sync, so no move is done at once."""
    world = World()
    world.broker_starts(1, 2, 3)
    world.topic("t", p0=(1, 2))
    world.start()
    world.broker_dies(1)
    world.run()
    world.broker_starts(1)
    world.run(events.ApiPartitionReassignment({TP: target}, 1))
    for _ in range(2):
        assert world.state.partitions_being_reassigned == {TP}
        world.new_controller()
        world.start()
    world.leader_writes(TP, (2, *(r for r in target if r != 2)))
    world.run()
    assert topic_node(world).partitions[0] == ReplicaAssignment(replicas=target)
    assert set(world.leadership(TP).isr) == set(target) and not world.state.partitions_being_reassigned
