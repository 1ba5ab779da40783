"""What ZooKeeper says of many partitions at once is what it says of each alone."""

from __future__ import annotations

import itertools

import pytest

from controller.core.state_znodes import Outcome, read_states
from controller.wire.types import LeaderAndIsr, TopicPartition
from controller.wire.zk_operations import Delete
from controller.wire.znodes import TopicPartitionStateZNode
from tests.worlds.core import World, drive_now

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
    if data is None:
        world.others_write(Delete(path))
    else:
        world.make(path, data)


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
