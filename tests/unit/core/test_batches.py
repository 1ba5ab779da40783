"""What one event concerns is done at once: one write per topic znode, one request per broker and step, few reads."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from controller.core import events
from controller.core.effects import Log
from controller.core.state_znodes import LOGGED_SINGLY, log_elected
from controller.wire import log_events as ev
from controller.wire.control import LeaderAndIsrRequest, StopReplicaRequest
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, LeaderAndIsr, TopicPartition
from controller.wire.zk_operations import Delete

MANY = [TopicPartition("t", p) for p in range(150)]


def grown(world: Any, partitions: int = len(MANY)) -> None:
    world.broker_starts(1, 2, 3)
    world.topic("t", **{f"p{p}": (1, 2) for p in range(partitions)})
    world.start()
    world.take_lines()
    world.sent.clear()


def test_many_partitions_move_with_one_write_per_topic_and_one_request_per_broker_and_step(world: Any) -> None:
    grown(world)
    world.run(events.ApiPartitionReassignment({tp: (BrokerId(1), BrokerId(3)) for tp in MANY}, 1))
    assert {outcome.error for outcome in world.replies[1].partitions.values()} == {ErrorCode.NONE}
    assert sum(line.startswith("zk   set /brokers/topics/t ") for line in world.take_lines()) == 1
    announced = Counter(r.to for r in world.sent if isinstance(r, LeaderAndIsrRequest))
    assert announced == {1: 1, 2: 1, 3: 2}  # to 3 once more as a new replica, as in Kafka

    world.sent.clear()
    for tp in MANY:
        world.leader_writes(tp, (1, 2, 3))
    first, *rest = [world.events.popleft() for _ in range(len(world.events))]
    assert isinstance(first, events.PartitionReassignmentIsrChange)
    world.run(events.PartitionReassignmentIsrChange(first.topic_partition, frozenset(e.topic_partition for e in rest)))
    assert sum(line.startswith("zk   set /brokers/topics/t ") for line in world.take_lines()) == 1
    assert all(set(world.leadership(tp).isr) == {1, 3} for tp in MANY)
    stopped = [r for r in world.sent if isinstance(r, StopReplicaRequest)]
    assert [(r.to, {e.delete_partition for e in r.partition_states}) for r in stopped] == [(2, {False}), (2, {True})]
    assert not world.state.partitions_being_reassigned


def test_one_partition_that_cannot_move_does_not_stop_the_others(world: Any) -> None:
    grown(world)
    world.others_write(Delete("/brokers/topics/t/partitions/7/state"))
    world.run(events.ApiPartitionReassignment({tp: (BrokerId(1), BrokerId(3)) for tp in MANY}, 1))
    outcomes = world.replies[1].partitions
    assert [tp.partition for tp in MANY if outcomes[tp].error is not ErrorCode.NONE] == [7]
    assert world.leadership(MANY[8]).leader_epoch == 1


def test_a_dead_broker_costs_a_read_only_where_the_isr_is_not_known_to_hold_it(world: Any) -> None:
    grown(world)
    world.leader_writes(MANY[0], (1,))  # nobody told the controller: its conditional write loses, then it reads
    world.broker_dies(1)
    world.run()
    assert world.leadership(MANY[0]).leader is None, "2 had left the ISR, so it must not lead"
    assert world.leadership(MANY[0]).isr == (1,)
    assert all(world.leadership(tp).leader == 2 and world.leadership(tp).isr == (2,) for tp in MANY[1:])


def test_a_replica_that_joined_unseen_leaves_the_isr_too(world: Any) -> None:
    grown(world)
    world.broker_dies(2)
    world.run()
    world.broker_starts(2)
    world.run()
    world.leader_writes(MANY[3], (1, 2))  # no notice of it yet
    world.broker_dies(2)
    world.run()
    assert world.leadership(MANY[3]).isr == (1,)


@pytest.mark.parametrize("partitions", [LOGGED_SINGLY, LOGGED_SINGLY + 1])
def test_more_than_so_many_partitions_are_one_line(world: Any, partitions: int) -> None:
    grown(world, partitions)
    world.logs.clear()
    world.broker_dies(1)
    world.run()
    said = Counter(log.event for log in world.logs)
    singles = {ev.PARTITION_LEADER_ELECTED: partitions, ev.PARTITION_ISR_REDUCED: partitions}
    of_all = {ev.PARTITION_LEADERS_ELECTED: 1, ev.PARTITION_ISRS_REDUCED: 1}
    is_many = partitions > LOGGED_SINGLY
    assert said == {ev.BROKERS_CHANGED: 1, **(of_all if is_many else singles)}
    assert [log.fields for log in world.logs if log.event in of_all] == (
        [{"partitions": partitions, "leaders": {"2": partitions}}, {"replica": 1, "partitions": partitions}]
        if is_many
        else []
    )


def test_topics_are_deleted_level_by_level_and_markers_last(world: Any) -> None:
    world.broker_starts(1)
    for name in ("a", "b"):
        world.topic(name, p0=(1,))
    world.start()
    world.take_lines()
    world.make("/admin/delete_topics/a")
    world.make("/admin/delete_topics/b")
    world.run()
    deleted = [line.split()[-1] for line in world.take_lines() if line.startswith("zk   delete")]
    assert deleted == [
        *(f"/brokers/topics/{t}/partitions/0/state" for t in "ab"),
        *(f"/brokers/topics/{t}/partitions/0" for t in "ab"),
        *(f"/brokers/topics/{t}/partitions" for t in "ab"),
        *(f"/brokers/topics/{t}" for t in "ab"),
        *(f"/config/topics/{t}" for t in "ab"),
        *(f"/admin/delete_topics/{t}" for t in "ab"),
    ]


@pytest.mark.parametrize("others", [("x",), ("x/a", "x/b"), ("x/a/1/2", "x/b/1/3", "y/4"), ("partitions/0/z/1", "z")])
def test_a_topic_goes_with_whatever_else_stands_below_it(world: Any, others: tuple[str, ...]) -> None:
    world.broker_starts(1)
    world.topic("t", p0=(1,))
    world.start()
    for path in others:
        world.make(f"/brokers/topics/t/{path}")
    world.make("/admin/delete_topics/t")
    world.run()
    assert world.tree.get("/brokers/topics/t") is None and world.tree.get("/admin/delete_topics/t") is None
    assert world.timers == []


def test_of_many_new_leaders_those_from_outside_of_the_isr_have_a_line_each() -> None:
    tps = [TopicPartition("t", n) for n in range(LOGGED_SINGLY + 1)]
    elected = {tp: LeaderAndIsr(leader=BrokerId(1 + tp.partition % 2), isr=(BrokerId(1),)) for tp in tps}
    unclean = {tps[50], tps[-1]}
    *single, of_all = [log for log in log_elected(elected, frozenset(unclean)) if isinstance(log, Log)]
    assert [(log.fields["partition"], log.fields["unclean"]) for log in single] == [(50, True), (LOGGED_SINGLY, True)]
    assert of_all.fields == {"partitions": 101, "leaders": {"1": 51, "2": 50}}
    few = list(log_elected(dict.fromkeys(tps[:2], elected[tps[0]]), frozenset({tps[1]})))
    assert [log.fields["unclean"] for log in few if isinstance(log, Log)] == [False, True]


def test_a_deletion_that_waits_for_a_broker_keeps_no_other_topic_waiting(world: Any) -> None:
    world.broker_starts(1, 2)
    for topic in ("a", "b", "c"):
        world.topic(topic, p0=(1, 2))
    world.start()
    world.silent.add(1)
    for topic in ("a", "b", "c"):
        world.make(f"/admin/delete_topics/{topic}")
        world.run()
    stops = [request for request in world.sent if isinstance(request, StopReplicaRequest)]
    asked = {(r.to, e.topic_partition.topic) for r in stops for e in r.partition_states if e.delete_partition}
    assert asked == {(broker, topic) for broker in (1, 2) for topic in ("a", "b", "c")}
