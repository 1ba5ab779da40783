"""A real broker that creates a topic by itself takes the controller for a broker, since metadata shows it as one."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from controller.core import events
from controller.core.effects import Read, Write
from controller.core.request_batch import live_brokers
from controller.core.state import BROKERLESS_MAX
from controller.wire import log_events as ev
from controller.wire.types import Broker, BrokerId, Endpoint, ReplicaAssignment, TopicPartition
from controller.wire.zk_operations import Create, Delete, GetData, SetData, ZkCode
from controller.wire.znodes import ControllerZNode, TopicZNode
from tests.worlds.core import World
from tests.worlds.stage import Fault, Stage

PLACED = [  # live brokers, what was written -> what becomes of it
    ("the only replica goes to a live broker", (1, 2), {"p0": (100,)}, {0: (1,)}),
    ("partitions take turns", (1, 2), {"p0": (100,), "p1": (100,)}, {0: (1,), 1: (2,)}),
    ("its place in the order stays", (1, 2, 3), {"p0": (2, 100, 1)}, {0: (2, 3, 1)}),
    ("where no other broker is left, there is a replica less", (1, 2), {"p0": (100, 2, 1)}, {0: (2, 1)}),
    ("others are left alone", (1, 2), {"p0": (2, 1), "p1": (100, 2)}, {0: (2, 1), 1: (1, 2)}),
]


@pytest.mark.parametrize(("live", "written", "kept"), [row[1:] for row in PLACED], ids=[row[0] for row in PLACED])
def test_replicas_on_the_controller_are_moved_before_they_exist(
    world: Any, live: tuple[int, ...], written: dict[str, tuple[int, ...]], kept: dict[int, tuple[int, ...]]
) -> None:
    world.broker_starts(*live)
    world.start()
    world.topic("auto", **written)
    world.run()
    stored = TopicZNode.decode(world.tree.read(GetData("/brokers/topics/auto")).data).partitions
    assert {number: found.replicas for number, found in stored.items()} == kept
    for number, replicas in kept.items():
        tp = TopicPartition("auto", number)
        assert world.state.assignment(tp).replicas == replicas
        assert world.leadership(tp).leader == replicas[0]
        assert set(world.leadership(tp).isr) == set(replicas)
    assert [log.event for log in world.logs].count(ev.TOPIC_PLACED_ON_CONTROLLER) == 1


@pytest.mark.parametrize(("live", "written", "kept"), [row[1:] for row in PLACED], ids=[row[0] for row in PLACED])
def test_they_are_moved_too_when_they_were_placed_while_nobody_was_in_office(
    world: Any, live: tuple[int, ...], written: dict[str, tuple[int, ...]], kept: dict[int, tuple[int, ...]]
) -> None:
    world.broker_starts(*live)
    world.topic("auto", **written)
    world.start()
    stored = TopicZNode.decode(world.tree.read(GetData("/brokers/topics/auto")).data).partitions
    assert {number: found.replicas for number, found in stored.items()} == kept
    for number, replicas in kept.items():
        assert world.state.assignment(TopicPartition("auto", number)).replicas == replicas
        assert world.leadership(TopicPartition("auto", number)).leader == replicas[0]
        assert set(world.leadership(TopicPartition("auto", number)).isr) == set(replicas)


def test_at_failover_a_partition_that_exists_keeps_its_replicas(world: Any) -> None:
    """Records may be there: only what does not exist yet may be moved without a reassignment."""
    world.broker_starts(1, 2)
    world.start()
    world.topic("old", p0=(1, 2))
    world.run()
    world.topic("old", p0=(1, 2, 100), p1=(100,))
    world.new_controller()
    world.start()
    stored = TopicZNode.decode(world.tree.read(GetData("/brokers/topics/old")).data).partitions
    assert {number: found.replicas for number, found in stored.items()} == {0: (1, 2, 100), 1: (2,)}
    assert world.leadership(TopicPartition("old", 1)).leader == 2


def others_write_before_step(
    at_step: int, partitions: dict[int, tuple[int, ...]], *, at_failover: bool
) -> tuple[World, int]:
    """A topic on the controller is found, and another client gives it these partitions before the n-th step of that."""
    world, steps = World(), 0
    world.broker_starts(1, 2)
    if not at_failover:
        world.start()
    world.topic("auto", p0=(100,))
    perform = world.perform

    def writing(effect: Any) -> Any:
        nonlocal steps
        steps += isinstance(effect, Read | Write)
        if steps == at_step and isinstance(effect, Read | Write):
            found = TopicZNode.decode(world.tree.read(GetData("/brokers/topics/auto")).data)
            more = {p: ReplicaAssignment(replicas=tuple(map(BrokerId, replicas))) for p, replicas in partitions.items()}
            encoded = TopicZNode.encode(replace(found, partitions={**found.partitions, **more}))
            world.others_write(SetData("/brokers/topics/auto", encoded))
        return perform(effect)

    world.perform = writing
    world.start() if at_failover else world.run()
    return world, steps


def stored(world: World) -> dict[int, tuple[int, ...]]:
    found = TopicZNode.decode(world.tree.read(GetData("/brokers/topics/auto")).data).partitions
    return {number: assignment.replicas for number, assignment in found.items()}


@pytest.mark.parametrize("at_failover", [False, True], ids=["in office", "at failover"])
def test_partitions_that_somebody_adds_meanwhile_stay(at_failover: bool) -> None:
    """Whoever added them was told that they are there."""
    for at_step in itertools.count(1):
        world, steps = others_write_before_step(at_step, {1: (2, 1)}, at_failover=at_failover)
        if steps < at_step:
            break
        assert stored(world) == {0: (1,), 1: (2, 1)}, f"before step {at_step}"
        assert world.leadership(TopicPartition("auto", 0)).leader == 1
        assert world.leadership(TopicPartition("auto", 1)).leader == 2
    assert at_step > 5


@pytest.mark.parametrize("at_failover", [False, True], ids=["in office", "at failover"])
def test_replicas_that_somebody_else_gives_a_partition_meanwhile_stay(at_failover: bool) -> None:
    for at_step in itertools.count(1):
        world, steps = others_write_before_step(at_step, {0: (2, 1)}, at_failover=at_failover)
        if steps < at_step:
            break
        assert stored(world) == {0: (2, 1)}, f"before step {at_step}"
        assert world.leadership(TopicPartition("auto", 0)).leader, f"before step {at_step}"
        assert 100 not in world.state.assignment(TopicPartition("auto", 0)).replicas
    assert at_step > 5


@pytest.mark.parametrize("at_failover", [False, True], ids=["in office", "at failover"])
def test_a_move_whose_answer_was_lost_has_happened(at_failover: bool) -> None:
    """Else the partition would wait for a leader on a controller until another one takes office."""
    for at_step in itertools.count(1):
        stage = Stage()
        stage.broker_starts(1, 2)
        if not at_failover:
            stage.start()
        stage.topic("auto", p0=(100,))
        stage.strike(Fault.LOST_REPLY, at_step)
        stage.start() if at_failover else stage.run()
        if not stage.struck:
            break
        assert stored(stage) == {0: (1,)}
        assert stage.state.assignment(TopicPartition("auto", 0)).replicas == (1,), f"step {at_step}"
        assert stage.leadership(TopicPartition("auto", 0)).leader == 1
    assert at_step > 5


@pytest.mark.parametrize("code", [ZkCode.NO_AUTH, ZkCode.NO_NODE])
def test_where_the_topic_cannot_be_written_its_replicas_stay(world: Any, code: ZkCode) -> None:
    """It is tried once; the others move."""
    world.broker_starts(1, 2)
    path = "/brokers/topics/auto"
    world.topic("auto", p0=(100, 1))
    world.topic("other", p0=(100, 2))
    world.tree.refusal = lambda op: code if isinstance(op, SetData) and op.path == path else None
    world.start()
    assert stored(world) == {0: (100, 1)}
    assert world.state.assignment(TopicPartition("auto", 0)).replicas == (100, 1)
    assert world.state.assignment(TopicPartition("other", 0)).replicas == (1, 2)
    placed = {
        log.fields["topic"]: log.fields["moved"] for log in world.logs if log.event == ev.TOPIC_PLACED_ON_CONTROLLER
    }
    assert placed == {"auto": False, "other": True}


def test_a_topic_that_is_asked_about_before_it_is_listed_waits_for_the_list(world: Any) -> None:
    """The question is about a former topic of that name."""
    world.broker_starts(1, 2)
    world.start()
    world.topic("auto", p0=(100,))
    world.process(events.PartitionModifications("auto"))
    assert not world.state.topics
    world.run()
    assert stored(world) == {0: (1,)}
    assert world.leadership(TopicPartition("auto", 0)).leader == 1


def test_without_a_live_broker_nothing_changes(world: Any) -> None:
    world.start()
    world.topic("auto", p0=(100,))
    world.run()
    assert world.state.assignment(TopicPartition("auto", 0)).replicas == (100,)


RACKS = [
    ("no racks", (None, None), None),
    ("all have one", ("b", "a"), "a"),
    ("only some have one", ("b", None), None),
]


@pytest.mark.parametrize(("racks", "own"), [row[1:] for row in RACKS], ids=[row[0] for row in RACKS])
def test_the_controller_shows_a_rack_where_all_brokers_have_one(
    world: Any, racks: tuple[str | None, ...], own: str | None
) -> None:
    world.state.started(world.session, world.startup.endpoint)
    for number, rack in enumerate(racks):
        endpoints = (Endpoint(host="h", port=number),)
        world.state.broker_registered(Broker(broker_id=BrokerId(number), endpoints=endpoints, rack=rack))
    assert {broker.broker_id: broker.rack for broker in live_brokers(world.state)}[100] == own


OTHER = 0


def handed_over(world: Any, *, named: int = OTHER) -> None:
    """Another controller holds the office while this one stands by; then that one is gone."""
    world.others_write(Create("/controller", ControllerZNode.encode(BrokerId(named), 0), ephemeral=True))
    world.start()
    assert not world.state.serving


def test_replicas_on_the_former_controller_are_moved_by_its_successor(world: Any) -> None:
    """Brokers list it until the successor tells them better, and create topics by themselves meanwhile."""
    world.broker_starts(1, 2, 3)
    handed_over(world)
    world.topic("auto", p0=(OTHER,), p1=(OTHER, 1), p2=(2, OTHER, 100))
    world.others_write(Delete("/controller"))
    world.run()
    assert world.state.serving
    assert [world.state.assignment(TopicPartition("auto", n)).replicas for n in range(3)] == [(1,), (3, 1), (2, 1, 3)]
    assert world.leadership(TopicPartition("auto", 0)).leader == 1
    world.topic("later", p0=(OTHER, 2))
    world.run()
    assert world.state.assignment(TopicPartition("later", 0)).replicas == (1, 2), "they may do so after it, too"


def test_replicas_on_a_dead_broker_stay_though_it_was_the_controller(world: Any) -> None:
    """Kafka's own controller is a broker: it comes back, and its replicas are its."""
    world.broker_starts(1, 2, 3)
    handed_over(world, named=3)
    world.others_write(Delete("/controller"))
    world.run()
    world.broker_dies(3)
    world.topic("t", p0=(3, 1))
    world.run()
    assert world.state.assignment(TopicPartition("t", 0)).replicas == (3, 1)


def test_a_former_controller_that_became_a_broker_keeps_its_replicas(world: Any) -> None:
    world.broker_starts(1, 2)
    handed_over(world)
    world.others_write(Delete("/controller"))
    world.broker_starts(OTHER)
    world.topic("t", p0=(OTHER, 1))
    world.run()
    assert world.state.assignment(TopicPartition("t", 0)).replicas == (OTHER, 1)


def test_few_former_controllers_are_remembered(world: Any) -> None:
    handed_over(world)
    for number in range(200, 200 + 2 * BROKERLESS_MAX):
        world.others_write(SetData("/controller", ControllerZNode.encode(BrokerId(number), 0)))
        world.run()
    assert list(world.state.brokerless) == [100, *range(200 + BROKERLESS_MAX, 200 + 2 * BROKERLESS_MAX)]


def test_a_broker_that_loses_the_office_while_it_is_looked_at_keeps_its_replicas() -> None:
    """Before whichever step: that it is registered no more says nothing then, since the office is another's."""
    for at_step in itertools.count(1):
        world, steps = World(), 0
        world.broker_starts(1, 2, 3)
        world.others_write(Create("/controller", ControllerZNode.encode(BrokerId(3), 0), ephemeral=True))
        perform = world.perform

        def another_follows(effect: Any, world: World = world, at_step: int = at_step, perform: Any = perform) -> Any:
            nonlocal steps
            steps += isinstance(effect, Read | Write)
            if steps == at_step and isinstance(effect, Read | Write):
                world.broker_dies(3)
                world.others_write(Delete("/controller"))
                world.others_write(Create("/controller", ControllerZNode.encode(BrokerId(OTHER), 0), ephemeral=True))
            return perform(effect)

        world.perform = another_follows
        world.start()
        if steps < at_step:
            break
        assert set(world.state.brokerless) == {100, OTHER}, f"before step {at_step}"
    assert at_step > 3
