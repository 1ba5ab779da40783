"""Moves and deletions in a controller, event by event: a sound one, one thing broken, and the complaint."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from controller.core.deletion import MOVING
from controller.core.transitions import ReplicaState
from controller.sim.oracles.moves_and_deletions import MovesAndDeletions
from controller.wire import log_events as ev
from controller.wire.types import BrokerId, PartitionReplica, ReplicaAssignment, TopicPartition

pytestmark = pytest.mark.sim
TP = TopicPartition("t", 0)
ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


class Scene:
    """Controller 1001 is in office, in session 7; `t-0` moves from 1 and 2 to 2 and 3; `x` is being deleted."""

    def __init__(self) -> None:
        moving = ReplicaAssignment(replicas=(TWO, THREE, ONE), adding_replicas=(THREE,), removing_replicas=(ONE,))
        self.believed, self.leader_epoch = moving, 4
        self.replica, self.found = ReplicaState.ONLINE, {ReplicaState.DELETION_SUCCESSFUL}
        self.deleted, self.begun = "x", {ONE, TWO, THREE}
        self.state: Any = SimpleNamespace(
            serving=True,
            is_live=lambda broker: broker in (ONE, TWO),
            live_brokers={ONE: None, TWO: None},
            is_begun=lambda tp, broker: broker in self.begun,
            session_id=7,
            partitions_being_reassigned={TP},
            assignment=lambda tp: self.believed,
            leadership=lambda tp: SimpleNamespace(leader_epoch=self.leader_epoch),
            replica_state=lambda replica: self.replica,
            is_queued_for_deletion=lambda topic: topic == self.deleted,
            topics_with_deletion_started={"x"},
            topics_to_be_deleted={"x"},
            topics_ineligible_for_deletion={"x"},
            deletion_states=lambda topic: self.found,
            replicas_in=lambda topic, state: [
                PartitionReplica(TopicPartition(topic, 0), TWO) for each in self.found if each is state
            ],
        )
        self.content: dict[str, Any] = {"adding_replicas": {"0": [3]}, "removing_replicas": {"0": [1]}}
        self.cluster: Any = SimpleNamespace(
            controllers={1001: SimpleNamespace(state=self.state)},
            world=SimpleNamespace(zookeeper=SimpleNamespace(sessions={7: "controller-1001"})),
            content_of=lambda topic: self.content,
            refused=set(),
            damaged={},
        )
        self.oracle = MovesAndDeletions(self.cluster)

    def logs(self, name: str, **fields: Any) -> None:
        self.oracle.event({"event": name, "controller": 1001, **fields})

    def after(self, kind: str = "BrokerChange", *, failure: str | None = None) -> str:
        self.logs(ev.CONTROLLER_EVENT_PROCESSED, event_type=kind, failure=failure)
        found, self.oracle.broken = self.oracle.broken, []
        return "; ".join(found)


def test_a_move_goes_on_when_its_target_comes() -> None:
    scene = Scene()
    for new, epoch, refused, complains in (
        ([3], 4, set(), True),
        ([3], 5, set(), False),
        ([1], 4, set(), False),
        ([3], 4, {"/brokers/topics/t/partitions/0/state"}, False),
    ):
        scene.leader_epoch, scene.cluster.refused = 4, refused
        scene.logs(ev.BROKERS_CHANGED, new=new, bounced=[])
        scene.leader_epoch = epoch
        assert ("does not go on with the move of t-0" in scene.after()) is complains, (new, epoch)
        assert scene.after() == ""


def test_a_move_that_ends_leaves_nobody_behind() -> None:
    scene = Scene()
    scene.content = {"adding_replicas": None, "removing_replicas": None}
    scene.believed, scene.state.partitions_being_reassigned = ReplicaAssignment(replicas=(TWO, THREE)), set()
    for begun, complains in (({ONE, TWO, THREE}, True), ({TWO, THREE}, False)):
        scene.begun = begun
        scene.logs(ev.REASSIGNMENT_COMPLETED, topic="t", partition=0)
        assert ("has not deleted it on [1]" in scene.after()) is complains
        assert scene.after() == ""


def test_a_move_that_failed_is_a_move() -> None:
    scene = Scene()
    scene.believed = ReplicaAssignment(replicas=(TWO, THREE))
    assert scene.after(failure="ZkSessionExpired") == ""
    assert "takes the move of t-0 for done" in scene.after()
    scene.deleted = "t"
    assert scene.after() == "", "a deletion leaves no replicas"
    scene.deleted = "x"
    scene.content = {"adding_replicas": None, "removing_replicas": None}
    assert scene.after() == ""


def test_who_must_go_still_is_not_gone() -> None:
    scene = Scene()
    scene.replica = ReplicaState.NON_EXISTENT
    assert "takes replica 1 of t-0 for gone" in scene.after()
    scene.state.serving = False
    assert scene.after() == ""


@pytest.mark.parametrize(
    ("kind", "adding", "complaint"),
    [
        ("ApiPartitionReassignment", [2, 3], "add [3]"),
        ("ApiPartitionReassignment", [2], ""),
        ("ZkPartitionReassignment", [3], ""),
    ],
)
def test_who_asks_by_request_adds_nobody_who_is_dead(kind: str, adding: list[int], complaint: str) -> None:
    scene = Scene()
    scene.logs(ev.REASSIGNMENT_STARTED, topic="t", partition=0, adding_replicas=adding)
    found = scene.after(kind)
    assert complaint in found if complaint else found == ""
    assert scene.after(kind) == ""


@pytest.mark.parametrize(
    ("begun", "reason", "kind", "complains"),
    [
        ("x", MOVING, "TopicDeletion", True),
        ("x", "replicas are offline", "TopicDeletion", False),
        ("y", MOVING, "TopicDeletion", False),
        ("x", MOVING, "PartitionReassignmentIsrChange", False),
    ],
)
def test_a_deletion_that_began_waits_for_no_move(begun: str, reason: str, kind: str, complains: bool) -> None:
    scene = Scene()
    scene.state.topics_with_deletion_started = {begun}
    scene.logs(ev.TOPIC_DELETION_WAITED, topic="x", reason=reason)
    assert ("lets x, whose deletion has begun, wait" in scene.after(kind)) is complains
    assert scene.after(kind) == ""


def test_what_could_not_be_deleted_is_tried_again() -> None:
    scene, kind = Scene(), "TopicDeletionStopReplicaResponseReceived"
    answer = {"topics": ["x"], "transitions": {"ReplicaDeletionStarted -> ReplicaDeletionSuccessful": 1}}
    again = {"topics": ["x"], "transitions": {"OfflineReplica -> ReplicaDeletionIneligible": 1}}
    scene.found = {ReplicaState.DELETION_SUCCESSFUL, ReplicaState.DELETION_INELIGIBLE}
    assert scene.after(kind) == "", "nobody has answered"
    scene.logs(ev.REPLICAS_TRANSITIONED, **answer)
    assert "leaves replicas of x as those that cannot be deleted" in scene.after(kind)
    scene.cluster.refused = {"/brokers/topics/x/partitions/0/state"}
    scene.logs(ev.REPLICAS_TRANSITIONED, **answer)
    assert scene.after(kind) == "", "it cannot leave the ISR"
    scene.cluster.refused = set()
    for row in (answer, again):
        scene.logs(ev.REPLICAS_TRANSITIONED, **row)
    assert scene.after(kind) == "", "another attempt has just ended so"
    scene.found |= {ReplicaState.DELETION_STARTED}
    scene.logs(ev.REPLICAS_TRANSITIONED, **answer)
    assert scene.after(kind) == "", "somebody is asked still"


def test_what_is_said_of_a_dir_is_no_answer_of_who_is_to_delete() -> None:
    scene, said = Scene(), {"ReplicaDeletionStarted -> ReplicaDeletionIneligible": 1}
    scene.logs(ev.REPLICAS_TRANSITIONED, topics=["x"], transitions=said)
    assert "takes what is said of a dir" in scene.after("LeaderAndIsrResponseReceived")
    scene.logs(ev.REPLICAS_TRANSITIONED, topics=["x"], transitions={"OnlineReplica -> OfflineReplica": 1})
    assert scene.after("LeaderAndIsrResponseReceived") == ""
    scene.logs(ev.REPLICAS_TRANSITIONED, topics=["x"], transitions=said)
    assert scene.after() == "", "its broker is gone"
