"""The balance of leaders: when it is looked at again."""

from __future__ import annotations

import pytest

from controller.core import events
from controller.wire import log_events as ev
from controller.wire.types import BrokerId, LeaderAndIsr, TopicPartition
from controller.wire.zk_operations import Create
from controller.wire.znodes import TopicPartitionStateZNode
from tests.worlds.core import World

LOOK = events.AutoPreferredReplicaLeaderElection()


def test_it_is_looked_at_again_after_the_interval_whatever_happens() -> None:
    world = World(auto_leader_rebalance_enable=True, leader_imbalance_check_interval_seconds=300)
    world.broker_starts(1, 2)
    world.topic("t", p0=(1, 2))
    world.start()
    assert [(timer.event, timer.after_ms) for timer in world.timers] == [(LOOK, 5_000)]
    world.timers.clear()
    world.run(LOOK)
    assert [(timer.event, timer.after_ms) for timer in world.timers] == [(LOOK, 300_000)]
    world.timers.clear()
    world.run(events.ControlledShutdown(2, -1, 1), LOOK)
    assert [(timer.event, timer.after_ms) for timer in world.timers] == [(LOOK, 300_000)]


#: what is so of 1, the first replica, while 2 leads -> whether the balance asks it to lead
FIRST = [
    ("it is in sync", True, True, True),
    ("it is not yet in sync", True, False, False),
    ("dead", False, False, False),
    ("dead, and its leader took it back", False, True, False),
]


@pytest.mark.parametrize(("_", "lives", "in_sync", "leads"), FIRST, ids=[row[0] for row in FIRST])
def test_it_asks_who_can_lead_and_nobody_else(_: str, lives: bool, in_sync: bool, leads: bool) -> None:
    tp = TopicPartition("t", 0)
    world = World(auto_leader_rebalance_enable=True)
    world.broker_starts(1, 2)
    world.topic("t", p0=(1, 2))
    world.start()
    world.broker_dies(1)
    world.run()
    if lives:
        world.broker_starts(1)
        world.run()
    if in_sync:
        world.leader_writes(tp, (2, 1))
        notice = b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'
        world.others_write(Create("/isr_change_notification/isr_change_", notice, sequence=True))
        world.run()
    world.logs.clear()
    world.run(LOOK)
    assert world.leadership(tp).leader == (1 if leads else 2)
    told = [log.event for log in world.logs]
    assert (ev.LEADERS_BALANCED in told, ev.PARTITION_ELECTION_FAILED in told) == (leads, False)


def test_a_topic_that_waits_to_be_deleted_is_left_alone() -> None:
    """Of two that are alike one is to be deleted, which waits for a broker that is not there."""
    world = World(auto_leader_rebalance_enable=True)
    world.broker_starts(1, 2)
    world.topic("doomed", p0=(1, 2), p1=(5,))
    world.topic("t", p0=(1, 2))
    world.start()
    world.broker_dies(1)
    world.run()
    world.broker_starts(1)
    world.run()
    stays, goes = TopicPartition("t", 0), TopicPartition("doomed", 0)
    for tp in (stays, goes):
        world.leader_writes(tp, (2, 1))
    world.make("/admin/delete_topics/doomed")
    world.new_controller()
    world.start()
    assert world.state.topics_ineligible_for_deletion == {"doomed"}
    before = world.leadership(goes)
    world.run(LOOK)
    assert world.leadership(stays).leader == 1 and world.leadership(goes) == before


#: partitions whose first replica is 1, how many of them 2 leads, permitted per cent -> whether that is too many
SHARES = [
    (10, 1, 10, False),
    (10, 2, 10, True),
    (10, 1, 9, True),
    (2, 1, 50, False),
    (2, 1, 49, True),
    (1, 1, 100, False),
    (1, 1, 99, True),
    (3, 1, 33, True),
    (3, 1, 34, False),
    (3, 1, 0, True),
    (3, 0, 0, False),
]


@pytest.mark.parametrize(("partitions", "away", "percentage", "is_too_many"), SHARES)
def test_more_than_the_permitted_share_comes_back(
    partitions: int, away: int, percentage: int, is_too_many: bool
) -> None:
    world = World(auto_leader_rebalance_enable=True, leader_imbalance_per_broker_percentage=percentage)
    world.broker_starts(1, 2)
    world.topic("t", **{f"p{n}": (1, 2) for n in range(partitions)})
    one, two = BrokerId(1), BrokerId(2)
    for n in range(partitions):
        led = LeaderAndIsr(leader=two if n < away else one, isr=(one, two))
        world.make(TopicPartitionStateZNode.path(TopicPartition("t", n)), TopicPartitionStateZNode.encode(led))
    world.start()
    world.run(LOOK)
    leaders = [world.leadership(TopicPartition("t", n)).leader for n in range(partitions)]
    assert leaders == [two if n < away and not is_too_many else one for n in range(partitions)]


def test_who_cannot_be_led_by_its_first_replica_counts_as_led_elsewhere() -> None:
    """Two of ten are too many where one in ten is permitted, though only one of them can come back."""
    world = World(auto_leader_rebalance_enable=True, leader_imbalance_per_broker_percentage=10)
    world.broker_starts(1, 2)
    world.topic("t", **{f"p{n}": (1, 2) for n in range(10)})
    one, two = BrokerId(1), BrokerId(2)
    for n, isr in enumerate([(one, two), (two,)]):
        led = LeaderAndIsr(leader=two, isr=isr)
        world.make(TopicPartitionStateZNode.path(TopicPartition("t", n)), TopicPartitionStateZNode.encode(led))
    world.start()
    world.run(LOOK)
    assert [world.leadership(TopicPartition("t", n)).leader for n in range(10)] == [one, two, *[one] * 8]
