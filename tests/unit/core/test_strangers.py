"""A failover finds ISR members who are no replicas, beside partitions that are sound, and one that was never led."""

from __future__ import annotations

import pytest

from controller.core import events
from controller.wire import log_events as ev
from controller.wire.types import BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition
from controller.wire.zk_operations import SetData
from controller.wire.znodes import TopicAssignment, TopicPartitionStateZNode, TopicZNode
from tests.worlds.core import World

#: what, leader and ISR before, and after, and by how much the leader epoch rose. The replicas are 1 and 2.
ROWS = [
    ("all are replicas", (1, (1, 2)), (1, (1, 2)), 0),
    ("4 leaves", (1, (1, 4, 2)), (1, (1, 2)), 1),
    ("4, which leads, gives way to who is in sync", (4, (4, 2)), (2, (2,)), 2),
    ("4 alone has the records", (4, (4,)), (4, (4,)), 0),
    ("5, which is dead, leaves too", (2, (5, 2)), (2, (2,)), 1),
]


def test_a_failover_takes_them_out_where_a_replica_is_in_sync() -> None:
    world = World()
    world.broker_starts(1, 2, 4)
    world.topic("t", **{f"p{p}": (1, 2) for p in range(len(ROWS))})
    world.start()
    world.new_controller()
    for p, (_, (leader, isr), _, _) in enumerate(ROWS):
        state = LeaderAndIsr(leader=BrokerId(leader), isr=tuple(map(BrokerId, isr)), leader_epoch=3, controller_epoch=1)
        path = TopicPartitionStateZNode.path(TopicPartition("t", p))
        assert world.others_write(SetData(path, TopicPartitionStateZNode.encode(state))).ok
    replicas = ReplicaAssignment(replicas=(BrokerId(1), BrokerId(2)))
    grown = TopicAssignment(partitions=dict.fromkeys(range(len(ROWS) + 1), replicas))
    assert world.others_write(SetData(TopicZNode.path("t"), TopicZNode.encode(grown))).ok
    world.logs.clear()
    world.start()
    found = [world.leadership(TopicPartition("t", p)) for p in range(len(ROWS) + 1)]
    for (what, _, expected, rose), state in zip(ROWS, found, strict=False):
        assert ((state.leader, state.isr), state.leader_epoch - 3) == (expected, rose), what
    assert (found[-1].leader, found[-1].isr, found[-1].leader_epoch) == (1, (1, 2), 0), "it never had a leader"
    assert world.state.serving and not [log for log in world.logs if log.event == ev.CONTROLLER_FAULTED]
    assert all(world.state.leadership(TopicPartition("t", p)) == state for p, state in enumerate(found))


@pytest.mark.parametrize(
    ("what", "rose"), [("rests", 1), ("moves", 0), ("is to be deleted", 0)], ids=["rests", "moves", "is to be deleted"]
)
def test_a_leader_that_takes_one_back_hears_of_it_by_a_new_epoch_where_its_partition(what: str, rose: int) -> None:
    """Those that move hear with their next step, those that are to be deleted with the deletion."""
    tp, world = TopicPartition("t", 0), World()
    world.broker_starts(1, 2, 3, 4)
    world.topic("t", p0=(1, 2), p1=(5,))  # 5 is not there: the deletion waits for it
    world.start()
    if what == "moves":
        world.run(events.ApiPartitionReassignment({tp: (BrokerId(3), BrokerId(2))}, 1))
    elif what == "is to be deleted":
        world.make("/admin/delete_topics/t")
        world.new_controller()
        world.start()
        assert world.state.topics_ineligible_for_deletion == {"t"}
    before = world.leadership(tp).leader_epoch
    world.leader_writes(tp, (1, 2, 4))
    world.run(events.IsrChangeNotification((tp,)))
    assert world.leadership(tp).leader_epoch - before == rose
    assert world.leadership(tp).isr == ((1, 2) if rose else (1, 2, 4))
