"""Whom a move may add: live brokers alone. Whom the partition had before it moved may come back, dead or not.

Source: Kafka 3.9 `KafkaController.validateReplicas`; spec controller.md §8.3.
"""

from __future__ import annotations

import pytest

from controller.core import events
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId
from tests.worlds.stage import TP, Stage, move_to

#: What a broker is to a partition that moves from (1, 2) to (1, 3).
ROLES = {"it stays": 1, "it is removed": 2, "it is added": 3, "it has nothing to do with it": 4}
#: What may have become of it.
FATES = ("lives", "dies", "leaves", "dies and returns", "dies before another is in office")
#: Targets that the broker is one of, by its place among others that live.
PLACES = {"alone": (), "first": (5,), "last": (6, 5)}


def moving(broker_id: int, fate: str) -> Stage:
    """A partition that moves, and one broker of which this has become."""
    stage = Stage()
    stage.broker_starts(1, 2, 3, 4, 5, 6)
    stage.topic("t", p0=(1, 2))
    stage.start()
    move_to(stage, 1, 3)
    if fate == "leaves":
        stage.run(events.ControlledShutdown(BrokerId(broker_id), -1, 9))
    elif fate != "lives":
        stage.broker_dies(broker_id)
        stage.run()
    if fate == "dies and returns":
        stage.broker_starts(broker_id)
        stage.run()
    if fate.endswith("in office"):
        stage.new_controller()
        stage.start()
    assert stage.assigned().adding_replicas == (3,) and stage.assigned().removing_replicas == (2,)
    return stage


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("role", ROLES)
def test_who_is_dead_may_stay_or_come_back_but_not_be_added(role: str, fate: str, place: str) -> None:
    """Whom the move under way adds is added by the next one, too."""
    broker_id, others = ROLES[role], PLACES[place]
    target = (broker_id, *others) if place == "first" else (*others, broker_id)
    stage = moving(broker_id, fate)
    before = stage.topic_node()
    move_to(stage, *target, reply_to=2)
    outcome = stage.replies[2].partitions[TP]
    if broker_id in (1, 2) or fate in ("lives", "dies and returns"):
        assert outcome.error is ErrorCode.NONE
        assert stage.assigned().target_replicas == target
        assert set(stage.assigned().origin_replicas) in ({1, 2}, set(target)), "the move goes on, or is done"
    else:
        assert outcome.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        adding = ", ".join(str(r) for r in target if r not in (1, 2))
        assert f"not alive. Replica list: ArrayBuffer({adding})" in (outcome.message or "")
        assert stage.topic_node() == before


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("role", ROLES)
def test_a_move_is_taken_back_whoever_is_dead(role: str, fate: str) -> None:
    stage = moving(ROLES[role], fate)
    stage.run(events.ApiPartitionReassignment({TP: None}, 2))
    assert stage.replies[2].partitions[TP].error is ErrorCode.NONE
    assert set(stage.assigned().target_replicas) == {1, 2}
