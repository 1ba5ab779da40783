"""Who asks to leave is told what it leads still, and by whom the others must be led before it may go."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from controller.core import events
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, TopicPartition
from tests.worlds.core import World

LEAVES = BrokerId(1)


def drawn(seed: int) -> World:
    """Partitions on some of four brokers, one of which may be dead, each with some of its replicas in sync."""
    chance, world, brokers = Random(seed), World(), (0, 1, 2, 3)
    world.broker_starts(*brokers)
    replicas = {f"p{p}": tuple(chance.sample(brokers, chance.randint(1, 3))) for p in range(12)}
    world.topic("t", **replicas)
    world.topic("doomed", p0=(1, 2), p1=(9,))
    world.start()
    for p in range(12):
        tp = TopicPartition("t", p)
        was = world.leadership(tp)
        assert was.leader is not None
        world.leader_writes(tp, tuple(r for r in was.isr if r == was.leader or chance.random() < 0.6))
    if chance.random() < 0.5:
        world.make("/admin/delete_topics/doomed")
    world.new_controller()
    world.start()
    if chance.random() < 0.5:
        world.broker_dies(3)
        world.run()
    return world


def replicated(world: World) -> list[TopicPartition]:
    counted = [tp for tp in sorted(world.state.all_partitions()) if not world.state.is_queued_for_deletion(tp.topic)]
    return [tp for tp in counted if len(world.state.assignment(tp).replicas) > 1]


@pytest.mark.parametrize("seed", range(30))
def test_the_answer_names_what_stays_and_who_follows(seed: int) -> None:
    world, leaves = drawn(seed), BrokerId(seed % 2)
    led = [tp for tp in replicated(world) if world.leadership(tp).leader == leaves]
    world.sent.clear()
    world.run(events.ControlledShutdown(leaves, -1, 1))
    answer: Any = world.replies[1]
    now = {tp: world.leadership(tp).leader for tp in led}
    assert answer.error is ErrorCode.NONE
    assert list(answer.remaining) == [tp for tp in led if now[tp] == leaves]
    assert answer.successors == {leader for leader in now.values() if leader not in (None, leaves)}
    for tp in led:
        others = [r for r in world.leadership(tp).isr if r != leaves and r in world.state.live_brokers]
        assert (now[tp] == leaves) is not bool(others), "it goes on leading where nobody else is in sync"
        assert now[tp] == leaves or leaves not in world.leadership(tp).isr
    followed = [tp for tp in replicated(world) if tp not in led and leaves in world.state.assignment(tp).replicas]
    assert all(leaves not in world.leadership(tp).isr for tp in followed if world.leadership(tp).leader is not None)


@pytest.mark.parametrize("seen", [True, False], ids=["it was seen to go", "it came back before"])
def test_who_comes_back_is_leaving_no_more(seen: bool) -> None:
    world = World()
    world.broker_starts(1, 2)
    world.topic("t", p0=(1, 2))
    world.start()
    world.run(events.ControlledShutdown(LEAVES, -1, 1))
    assert not world.state.is_live(LEAVES)
    world.broker_dies(1)
    if seen:
        world.run()
    world.broker_starts(1)
    world.topic("u", p0=(1,))
    world.run()
    assert world.state.is_live(LEAVES) and not world.state.shutting_down
    assert world.leadership(TopicPartition("u", 0)).leader == 1
    world.leader_writes(TopicPartition("t", 0), (2, 1))
    world.broker_dies(2)
    world.run()
    assert world.leadership(TopicPartition("t", 0)).leader == 1
