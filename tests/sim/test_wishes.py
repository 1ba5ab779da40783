"""Wishes by znode, and what a controller decides by itself: a sound one, one thing broken, and the complaint."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from controller.sim.oracles.wishes import MOVES, Wishes
from controller.wire import log_events as ev
from controller.wire.types import BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition
from controller.wire.zk_operations import Create, Delete, SetData, ZkCode, ZkOp, ZkResult

pytestmark = pytest.mark.sim
TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


class Scene:
    """Controller 1001 is in office, in session 7; `t-0` has the replicas 2 and 3, of which 2 leads and 1 is gone."""

    def __init__(self) -> None:
        self.now_s, self.assignment = 10.0, ReplicaAssignment(replicas=(TWO, THREE))
        self.believed = LeaderAndIsr(leader=THREE, isr=(TWO, THREE), controller_epoch=1)
        self.deleted, self.online = "x", {TWO, THREE}
        self.state: Any = SimpleNamespace(
            serving=True,
            session_id=7,
            topics={"t"},
            all_partitions=lambda: [TP],
            assignment=lambda tp: self.assignment if tp == TP else ReplicaAssignment(replicas=()),
            leadership=lambda tp: self.believed,
            is_live=lambda broker: broker in self.online,
            is_online=lambda broker, tp: broker in self.online,
            is_queued_for_deletion=lambda topic: topic == self.deleted,
        )
        loop = SimpleNamespace(time=lambda: self.now_s)
        sessions = {7: "controller-1001"}
        self.cluster: Any = SimpleNamespace(
            controllers={1001: SimpleNamespace(state=self.state)},
            world=SimpleNamespace(loop=loop, zookeeper=SimpleNamespace(sessions=sessions)),
            refused=set(),
        )
        self.oracle = Wishes(self.cluster)

    def writes(self, op: ZkOp, machine: str = "controller-1001") -> None:
        session: Any = SimpleNamespace(machine=machine)
        self.oracle.operation(session, op, ZkResult(ZkCode.OK))

    def wishes(self, *replicas: int, tp: TopicPartition = TP) -> None:
        row = {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)}
        self.writes(Create(MOVES, json.dumps({"version": 1, "partitions": [row]}).encode()), "operator")

    def logs(self, name: str, **fields: Any) -> str:
        self.oracle.event({"event": name, "controller": 1001, **fields})
        found, self.oracle.broken = self.oracle.broken, []
        return "; ".join(found)

    def after(self, kind: str = "PartitionReassignmentIsrChange", *, failure: str | None = None) -> str:
        return self.logs(ev.CONTROLLER_EVENT_PROCESSED, event_type=kind, failure=failure, process_ms=5.0)


@pytest.mark.parametrize(
    ("replicas", "refused", "deleted", "complains"),
    [
        ((2, 3), False, "x", False),
        ((3, 2), False, "x", True),
        ((3, 2), True, "x", False),
        ((3, 2), False, "t", False),
    ],
)
def test_an_entry_goes_when_it_is_done(replicas: tuple[int, ...], refused: bool, deleted: str, complains: bool) -> None:
    scene = Scene()
    scene.wishes(*replicas)
    scene.deleted = deleted
    if refused:
        scene.logs(ev.REASSIGNMENT_REFUSED, topic="t", partition=0)
    scene.writes(Delete(MOVES))
    assert ("takes the move of t-0" in scene.after()) is complains
    assert scene.after() == "", "each entry goes once"


def test_an_entry_of_what_is_not_there_goes() -> None:
    scene = Scene()
    scene.wishes(1, 2, tp=OTHER)
    scene.writes(SetData(MOVES, b'{"version":1,"partitions":[]}'))
    assert scene.after() == ""


@pytest.mark.parametrize(
    ("since_s", "goes", "refused", "complains"),
    [(5.0, False, False, True), (5.0, True, False, False), (9.999, False, False, False), (5.0, False, True, False)],
)
def test_a_move_by_request_takes_the_place_of_one_by_znode(
    since_s: float, goes: bool, refused: bool, complains: bool
) -> None:
    scene = Scene()
    scene.now_s = since_s
    scene.wishes(1, 2)
    scene.now_s = 10.0
    if goes:
        scene.writes(Delete(MOVES))
    if refused:
        scene.cluster.refused.add(MOVES)
    scene.logs(ev.REASSIGNMENT_STARTED, topic="t", partition=0)
    assert ("has begun another move of t-0" in scene.after("ApiPartitionReassignment")) is complains


def test_the_balance_asks_for_what_a_recount_finds() -> None:
    def balanced(scene: Scene, count: int) -> str:
        return scene.logs(ev.LEADERS_BALANCED, broker=2, partitions=count)

    assert balanced(Scene(), 1) == ""
    assert "balances 2 partitions of broker 2" in balanced(Scene(), 2)
    for change in ("dead", "not in sync", "leads", "deleted"):
        scene = Scene()
        scene.online = {THREE} if change == "dead" else scene.online
        scene.deleted = "t" if change == "deleted" else scene.deleted
        if change in ("not in sync", "leads"):
            leader, isr = (TWO, (TWO, THREE)) if change == "leads" else (THREE, (THREE,))
            scene.believed = LeaderAndIsr(leader=leader, isr=isr, controller_epoch=1)
        assert "which could lead []" in balanced(scene, 1), change


@pytest.mark.parametrize(
    ("leader", "complains"),
    [(3, False), (1, True), (2, False), (None, False)],
)
def test_whose_leader_is_gone_needs_one(leader: int | None, complains: bool) -> None:
    scene = Scene()
    scene.online = {THREE}
    scene.believed = LeaderAndIsr(leader=leader and BrokerId(leader), isr=(ONE, TWO), controller_epoch=1)
    found = scene.logs(ev.PARTITION_ELECTION_REFUSED, topic="t", partition=0, error="ELECTION_NOT_NEEDED")
    assert ("needs no leader, which is led by 1" in found) is complains
