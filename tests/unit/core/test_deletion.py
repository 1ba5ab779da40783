"""What a deletion waits for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.wire.types import TopicPartition
from controller.wire.zk_operations import Delete, SetData
from controller.wire.znodes import TopicPartitionStateZNode
from tests.worlds.stage import TP, Stage, move_to, stops_in

OTHER = TopicPartition("t", 1)


def is_gone(stage: Stage, topic: str) -> bool:
    return not any(stage.exists(f"{parent}/{topic}") for parent in ("/brokers/topics", "/admin/delete_topics"))


def becomes(stage: Stage, tp: TopicPartition, what: str) -> None:
    """The state of a partition is as it was, names nobody as leader, or is not there."""
    path = TopicPartitionStateZNode.path(tp)
    if what == "without a leader":
        state: dict[str, Any] = {"controller_epoch": 1, "leader": -1, "version": 1, "leader_epoch": 6, "isr": [1]}
        stage.others_write(SetData(path, json.dumps(state).encode()))
    elif what == "without a state":
        stage.others_write(Delete(path))


@pytest.mark.parametrize("is_only_added", [True, False], ids=["to more replicas", "to others"])
@pytest.mark.parametrize("other", ["led", "without a leader", "without a state"])
@pytest.mark.parametrize("moving", ["led", "without a leader", "without a state"])
def test_a_deletion_waits_for_a_move_as_long_as_that_can_end(moving: str, other: str, is_only_added: bool) -> None:
    """Nobody is elected for a topic that is to be deleted, and one that lacks a state is half deleted."""
    stage = Stage()
    stage.broker_starts(1, 2, 3)
    stage.topic("t", p0=(1, 2), p1=(1, 2))
    stage.start()
    move_to(stage, *((1, 2, 3) if is_only_added else (3,)))
    stage.new_controller()
    becomes(stage, TP, moving)
    becomes(stage, OTHER, other)
    stage.make("/admin/delete_topics/t")
    stage.take_sent()
    stage.start()
    can_end = moving == "led" and other != "without a state"
    assert is_gone(stage, "t") is not can_end
    assert any(delete for tp in (TP, OTHER) for _, _, delete in stops_in(stage.take_sent(), tp)) is not can_end
    stage.make("/admin/delete_topics/unknown")
    stage.run()
    assert is_gone(stage, "t") is not can_end, "nor does it begin when others are to be deleted"
    if can_end:
        stage.leader_writes(TP, (1, 2, 3))
        stage.run()
        assert is_gone(stage, "t")
