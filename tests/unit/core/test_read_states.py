"""What ZooKeeper says of many partitions at once is what it says of each alone."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import pytest

from controller.core.effects import Effect, Read, drive_now
from controller.core.state_znodes import Failure, Outcome, believe_all, read_states
from controller.wire.types import Broker, BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition
from controller.wire.zk_operations import Delete
from controller.wire.znodes import TopicAssignment, TopicPartitionStateZNode
from tests.worlds.core import World

#: what may be in a state znode; None: there is none
KINDS = {
    "sound": b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":3,"isr":[1,2]}',
    "another": b'{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":3,"isr":[2]}',
    "of an older epoch": b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]}',
    "of a newer controller": b'{"controller_epoch":99,"leader":1,"version":1,"leader_epoch":3,"isr":[1,2]}',
    "of strangers": b'{"controller_epoch":1,"leader":8,"version":1,"leader_epoch":3,"isr":[8,9]}',
    "impossible": b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":3,"isr":[1,1]}',
    "nothing that parses": b"{",
    "none": None,
}


def put(world: World, tp: TopicPartition, data: bytes | None) -> None:
    path = TopicPartitionStateZNode.path(tp)
    if data is not None:
        world.make(path, data)
    elif world.tree.get(path) is not None:
        world.others_write(Delete(path))


@pytest.mark.parametrize("is_believed", [True, False])
@pytest.mark.parametrize("kinds", [*itertools.product(KINDS, repeat=2)], ids=" and ".join)
def test_many_are_read_as_each_alone(kinds: tuple[str, ...], is_believed: bool) -> None:
    world, kinds = World(), (*kinds, kinds[0])
    partitions = [TopicPartition("t", n) for n in range(len(kinds))]
    world.broker_starts(1, 2)
    world.topic("t", **{f"p{tp.partition}": (1, 2) for tp in partitions})
    for tp in partitions:
        put(world, tp, KINDS["sound"].replace(b'"leader_epoch":3', b'"leader_epoch":2') if is_believed else b"{")
    world.start()
    assert [world.state.leadership(tp) is not None for tp in partitions] == [is_believed] * len(kinds)
    for tp, kind in zip(partitions, kinds, strict=True):
        put(world, tp, KINDS[kind])

    def read(*asked: TopicPartition) -> dict[TopicPartition, Outcome]:
        return drive_now(read_states(world.state, asked), world.perform)

    alone = {tp: read(tp)[tp] for tp in partitions}
    assert read(*partitions) == alone
    sound = {"sound", "another", "of an older epoch" if not is_believed else "sound"}
    assert [isinstance(alone[tp], LeaderAndIsr) for tp in partitions] == [kind in sound for kind in kinds]


#: Some assignments under which what is sound of one is a stranger's of the other.
ASSIGNED = tuple(ReplicaAssignment(replicas=tuple(map(BrokerId, replicas))) for replicas in ((1, 2), (8, 9), (3,)))


@pytest.mark.parametrize("at_once", [1, 2, 5, 100])
@pytest.mark.parametrize("seed", range(10))
def test_a_failover_believes_of_each_what_is_read_of_it_alone(seed: int, at_once: int) -> None:
    """Whatever the other partitions of its topic and of others are, and of no more at once than it may."""
    chance, world = Random(seed), World()
    state = world.state
    state.office_won(5, 1)
    for broker_id in map(BrokerId, (1, 2)):
        state.broker_registered(Broker(broker_id=broker_id, endpoints=()))
    topics = [f"t{n}" for n in range(6)]
    for topic in topics:
        kinds = chance.sample(list(KINDS), chance.choice((1, 2, len(KINDS))))
        numbers = range(chance.randrange(6))
        found = {p: chance.choice(ASSIGNED[: chance.randint(1, 3)]) for p in numbers}
        state.topic_learnt(topic, TopicAssignment(partitions=found))
        for p in numbers:
            put(world, TopicPartition(topic, p), KINDS[chance.choice(kinds)])
    partitions = list(state.partitions_of(topics))

    def perform(effect: Effect) -> Any:
        assert not isinstance(effect, Read) or 0 < len(effect.ops) <= at_once
        return world.perform(effect)

    alone = {tp: drive_now(read_states(state, [tp]), perform)[tp] for tp in partitions}
    assert drive_now(read_states(state, partitions), world.perform) == alone
    unread, pairs = drive_now(believe_all(state, topics, at_once), perform)
    sound = {tp: outcome for tp, outcome in alone.items() if isinstance(outcome, LeaderAndIsr)}
    assert dict(state.leaderships) == sound
    assert unread == [tp for tp, outcome in alone.items() if isinstance(outcome, Failure) and not outcome.never_led]
    assert set(pairs) == {(found, state.assignment(tp)) for tp, found in sound.items()}
    refused = [log.fields["path"] for log in world.logs]
    assert refused == [TopicPartitionStateZNode.path(tp) for tp in unread]
    for tp in chance.sample(partitions, len(partitions) // 2):
        state.lead(tp, LeaderAndIsr(leader=BrokerId(1), isr=(BrokerId(1),), leader_epoch=chance.randrange(6)))
    alone = {tp: drive_now(read_states(state, [tp]), perform)[tp] for tp in partitions}
    assert drive_now(read_states(state, partitions), world.perform) == alone, "who believes more refuses more"
