"""What a move writes and leaves behind: of its own partition, of the others of its topic, and when it cannot end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from controller.core import events
from controller.core.transitions import ReplicaState
from controller.wire.types import BrokerId, PartitionReplica, TopicPartition
from controller.wire.zk_operations import Delete, SetData, ZkCode
from controller.wire.znodes import IsrChangeNotificationZNode, TopicPartitionStateZNode, encode_partitions
from tests.worlds.stage import TP, Stage, leaders_in, move_to

OTHER = TopicPartition("t", 1)
TOPIC = "/brokers/topics/t"


def stage_with(*brokers: int, **partitions: tuple[int, ...]) -> Stage:
    stage = Stage()
    stage.broker_starts(*brokers)
    stage.topic("t", **partitions)
    stage.start()
    stage.take_sent()
    return stage


#: What somebody has made of the topic's znode, without the controller.
FOUND: dict[str, bytes] = {
    "as it was": json.dumps({"version": 1, "partitions": {"0": [1, 2], "1": [2, 1]}}).encode(),
    "other replicas": json.dumps({"version": 1, "partitions": {"0": [1, 2], "1": [1, 3]}}).encode(),
    "a partition is lacking": json.dumps({"version": 1, "partitions": {"0": [1, 2]}}).encode(),
    "both are": json.dumps({"version": 1, "partitions": {}}).encode(),
    "garbage": b"garbage",
    "nothing": b"",
}


@pytest.mark.parametrize("found", FOUND)
@pytest.mark.parametrize("is_heard", [False, True])
def test_of_the_other_partitions_of_its_topic_a_move_writes_what_is_believed(found: str, is_heard: bool) -> None:
    """Whatever stands there: else a partition would be lost, or moved behind the back of its leader."""
    stage = stage_with(1, 2, 3, p0=(1, 2), p1=(2, 1))
    stage.others_write(SetData(TOPIC, FOUND[found]))
    if is_heard:
        stage.run()
    stage.events.clear()
    move_to(stage, 3, 2)
    assert stage.topic_node()[0].adding_replicas == (3,) and stage.topic_node()[0].removing_replicas == (1,)
    assert stage.topic_node()[1] == stage.state.assignment(OTHER) and stage.topic_node()[1].replicas == (2, 1)
    stage.others_write(SetData(TOPIC, FOUND[found]))
    stage.leader_writes(TP, (1, 2, 3))
    stage.run()
    assert {p: (a.replicas, a.is_being_reassigned) for p, a in stage.topic_node().items()} == {
        0: ((3, 2), False),
        1: ((2, 1), False),
    }


@pytest.mark.parametrize("dead", [(), (1,), (2,), (1, 2)])
def test_who_was_stopped_by_a_move_that_could_not_end_is_what_its_broker_is(dead: tuple[int, ...]) -> None:
    """The topic cannot be written, so the move is not done, and its old replicas are replicas still."""
    stage = stage_with(1, 2, 3, 4, p0=(1, 2))
    move_to(stage, 3, 4)

    def refusal(op: Any) -> ZkCode | None:
        return ZkCode.NO_AUTH if isinstance(op, SetData) and op.path == TOPIC else None

    stage.tree.refusal = refusal
    stage.leader_writes(TP, (1, 2, 3, 4))
    stage.broker_dies(*dead)
    stage.run()
    assert set(stage.leader()[2]) == {3, 4} and stage.state.assignment(TP) == stage.assigned()
    states = {broker: stage.state.replica_state(PartitionReplica(TP, BrokerId(broker))) for broker in (1, 2, 3, 4)}
    assert states == {b: ReplicaState.OFFLINE if b in dead else ReplicaState.ONLINE for b in states}


#: the ISR under a leader that the move has added, when it is taken back -> leaders and epochs that the brokers hear
TAKEN_BACK: Mapping[tuple[int, ...], list[tuple[int | None, int]]] = {
    # all of the old replicas are in sync: 3 is dropped, and the first of them elected, as in Kafka
    (3, 1, 2): [(None, 1), (1, 2)],
    (3, 2, 1): [(None, 1), (1, 2)],
    # else who is in sync leads before 3 is dropped; then the new replicas are announced
    (3, 1): [(1, 1), (1, 2)],
    (3, 2): [(2, 1), (2, 2)],
}


@pytest.mark.parametrize("isr", TAKEN_BACK)
def test_a_move_that_is_taken_back_from_its_leader_is_heard_of_so(isr: tuple[int, ...]) -> None:
    stage = stage_with(1, 2, 3, 4, p0=(1, 2))
    move_to(stage, 3, 4)
    stage.leader_writes(TP, (1, 2, 3))
    stage.broker_dies(1, 2)
    stage.run()
    stage.broker_starts(1, 2)
    stage.run()
    stage.leader_writes(TP, isr)
    stage.make(f"{IsrChangeNotificationZNode.path}/isr_change_0000000001", encode_partitions([TP]))
    stage.run()
    leader, before, _ = stage.leader()
    assert leader == 3
    stage.take_sent()
    move_to(stage, 1, 2, reply_to=2)
    heard = dict.fromkeys((s.leader, s.leader_epoch - before) for to, s, _ in leaders_in(stage.take_sent()) if to == 1)
    assert list(heard) == TAKEN_BACK[isr]
    assert stage.leader()[2] == tuple(r for r in isr if r != 3)


def stage_with_a_move_that_waits() -> Stage:
    """To brokers 3 and 2: the write of its state was refused once."""
    stage = stage_with(1, 2, 3, p0=(1, 2))
    path = TopicPartitionStateZNode.path(TP)
    stage.tree.refusal = lambda op: ZkCode.NO_AUTH if isinstance(op, SetData) and op.path == path else None
    move_to(stage, 3, 2)
    assert TP in stage.state.moves_that_wait
    stage.tree.refusal = lambda _: None
    return stage


def test_a_move_that_waits_goes_on_when_its_leader_says_that_the_isr_changed() -> None:
    """Its state znode is not watched meanwhile, and its timer may be long in coming."""
    stage = stage_with_a_move_that_waits()
    stage.make(f"{IsrChangeNotificationZNode.path}/isr_change_0000000001", encode_partitions([TP]))
    stage.run()
    assert TP not in stage.state.moves_that_wait
    stage.leader_writes(TP, (1, 2, 3))
    stage.run()
    assert stage.assigned().replicas == (3, 2) and not stage.assigned().is_being_reassigned


@pytest.mark.parametrize("how", ["it is cancelled", "its topic vanishes"])
def test_a_move_that_waited_is_forgotten_with_its_end(how: str) -> None:
    """The next one of its partition is watched, and ends when its target is in sync."""
    stage = stage_with_a_move_that_waits()
    if how == "it is cancelled":
        stage.run(events.ApiPartitionReassignment({TP: None}, 2))
    else:
        for below in ("/partitions/0/state", "/partitions/0", "/partitions", ""):
            stage.others_write(Delete(TOPIC + below))
        stage.run()
        stage.topic("t", p0=(1, 2))
        stage.run()
    assert not stage.state.moves_that_wait and not stage.assigned().is_being_reassigned
    move_to(stage, 3, 2, reply_to=3)
    stage.leader_writes(TP, (1, 2, 3))
    stage.run()
    assert stage.assigned().replicas == (3, 2) and not stage.assigned().is_being_reassigned
