"""What a controller believes, waits for and holds after an event: a sound one, one thing broken, and the complaint."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from controller.core.events import (
    AutoPreferredReplicaLeaderElection,
    Reelect,
    TopicChange,
    TopicUncleanLeaderElectionEnable,
)
from controller.core.transitions import PartitionState
from controller.sim.oracles.beliefs import Beliefs
from controller.wire import log_events as ev
from controller.wire.types import BrokerId, LeaderAndIsr, TopicPartition
from controller.wire.zk_operations import Check, Create, Multi, SetData, ZkCode, ZkResult
from controller.world.simulated.znode_tree import ZnodeTree

pytestmark = pytest.mark.sim
TP = TopicPartition("t", 0)
PATH = "/brokers/topics/t/partitions/0/state"
ONE, TWO = BrokerId(1), BrokerId(2)
FIRST = LeaderAndIsr(leader=ONE, isr=(ONE, TWO), leader_epoch=2, partition_epoch=5, controller_epoch=1)


class Scene:
    """Controller 1001 is in office, in session 7; brokers 1 and 2 live, 1 leads `t-0`."""

    def __init__(self) -> None:
        self.tree = ZnodeTree()
        for path in ("/brokers", "/brokers/ids", "/brokers/ids/1"):
            self.tree.write(Create(path), session=1, now_ms=0)
        registration = self.tree.get("/brokers/ids/1")
        assert registration is not None
        self.written: Any = {"leader": 1, "isr": [1, 2], "leader_epoch": 2}
        self.offline: list[TopicPartition] = []
        self.leaderless: list[TopicPartition] = []
        self.partition_state = PartitionState.ONLINE
        self.replicas: tuple[int, ...] = (1, 2)
        self.begun = {1, 2}
        self.state: Any = SimpleNamespace(
            serving=True,
            epoch=3,
            assignment=lambda tp: SimpleNamespace(replicas=self.replicas),
            session_id=7,
            epoch_zk_version=1,
            settings=SimpleNamespace(auto_leader_rebalance_enable=False),
            leaderships={TP: FIRST},
            leadership=lambda tp: self.state.leaderships.get(tp),
            live_brokers={ONE: SimpleNamespace(broker_epoch=registration.czxid)},
            offline_dirs={},
            shutting_down=set(),
            active_controller_id=1001,
            is_online=lambda broker, tp: broker == ONE,
            is_begun=lambda tp, broker: broker in self.begun,
            is_queued_for_deletion=lambda topic: False,
            partitions_being_reassigned=set(),
            partitions_in=lambda *states: self.offline if PartitionState.OFFLINE in states else [],
            partitions_with_offline_leader=lambda: self.leaderless,
            partition_state=lambda tp: self.partition_state,
        )
        self.loop: Any = SimpleNamespace(queued=[], timers=[], unanswered=set())
        controller = SimpleNamespace(state=self.state, loop=self.loop)
        sessions = {7: "controller-1001"}
        zookeeper = SimpleNamespace(tree=self.tree, sessions=sessions)
        cluster: Any = SimpleNamespace(
            world=SimpleNamespace(zookeeper=zookeeper),
            controllers={1001: _Hashable(controller)},
            state=lambda topic, partition: self.written,
            active_controller=lambda: 1001,
            damaged={},
            refused=set(),
        )
        history: Any = SimpleNamespace(
            announced=lambda topic, partition, key: key == (5, 1, 2, (1, 2)), states={TP: ["what was written"]}
        )
        self.cluster, self.sessions = cluster, sessions
        self.beliefs = Beliefs(cluster, history)

    def after(self, kind: str = "BrokerChange", *, failure: str | None = None) -> str:
        event = {"event": ev.CONTROLLER_EVENT_PROCESSED, "controller": 1001, "event_type": kind, "failure": failure}
        self.beliefs.event(event)
        found, self.beliefs.broken = self.beliefs.broken, []
        return "; ".join(found)

    def refuses(self, code: ZkCode, *, is_told: bool = True) -> None:
        for path in ("/brokers/topics", "/brokers/topics/t", "/brokers/topics/t/partitions"):
            self.tree.write(Create(path), session=1, now_ms=0)
        for op in (Create(PATH.rpartition("/")[0]), Create(PATH), *(SetData(PATH, b"") for _ in range(6))):
            self.tree.write(op, session=1, now_ms=0)
        session: Any = SimpleNamespace(machine="controller-1001")
        write = Multi((Check("/controller_epoch", 1), SetData(PATH, b"", 5)))
        answers = (ZkResult(ZkCode.OK), ZkResult(code))
        self.beliefs.operation(session, write, ZkResult(code, results=answers if is_told else ()))


class _Hashable:
    """A stand-in that can be the key of a dict."""

    def __init__(self, parts: SimpleNamespace) -> None:
        self.state, self.loop = parts.state, parts.loop


def test_a_sound_controller() -> None:
    scene = Scene()
    assert scene.after() == ""
    assert scene.beliefs.judged == 1


def test_a_belief_that_was_never_written() -> None:
    scene = Scene()
    scene.state.leaderships = {TP: LeaderAndIsr(leader=ONE, isr=(ONE,), leader_epoch=2, partition_epoch=4)}
    assert "which was never written" in scene.after()
    assert scene.after() == ""  # once


def test_a_caller_without_an_answer() -> None:
    scene = Scene()
    scene.loop.unanswered = {3}
    scene.loop.queued = [SimpleNamespace(reply_to=3)]
    assert scene.after() == ""
    scene.loop.queued = []
    assert "1 callers without an answer" in scene.after()


def test_timers_that_survive_the_office() -> None:
    scene = Scene()
    scene.loop.timers = [TopicChange()]
    assert scene.after() == ""
    scene.state.serving, scene.cluster.active_controller = False, lambda: None
    assert "does not serve, and waits for" in scene.after()
    scene.loop.timers = [Reelect()]
    assert scene.after() == ""


def test_an_office_that_is_kept_by_nobody() -> None:
    scene = Scene()
    scene.state.serving = False
    assert scene.after() == ""  # there is no such znode
    content = json.dumps({"brokerid": 1001}).encode()
    scene.tree.write(Create("/controller", content, ephemeral=True), session=7, now_ms=0)
    assert "keeps /controller" in scene.after()
    scene.loop.queued = [Reelect()]  # the next attempt is under way
    assert scene.after() == ""


def test_a_stranger_whom_a_successor_leaves_in_an_isr() -> None:
    scene = Scene()
    scene.replicas = (1, 3)
    assert "takes office, and leaves (1, 2) as the ISR of t-0" in scene.after()
    assert scene.after() == ""  # not in its term: a move may be under way
    scene.state.epoch, scene.replicas = 4, (3, 4)
    assert scene.after() == ""  # nobody else has the records
    scene.state.epoch, scene.replicas, scene.cluster.refused = 5, (1, 3), {PATH}
    assert scene.after() == ""


def test_a_stranger_in_an_isr_of_a_topic_that_is_read_late() -> None:
    for moves in (False, True):
        scene = Scene()
        scene.state.leaderships = {}
        assert scene.after() == ""
        scene.state.leaderships, scene.replicas = {TP: FIRST}, (1, 3)
        scene.state.partitions_being_reassigned = {TP} if moves else set()
        assert ("learns of it late, and leaves (1, 2) as the ISR of t-0" in scene.after()) is not moves
        assert scene.after() == ""


def test_a_term_that_its_broken_fence_does_not_end() -> None:
    scene = Scene()
    scene.tree.write(Create("/controller_epoch", b"1"), session=1, now_ms=0)
    session: Any = SimpleNamespace(machine="controller-1001")
    write = Multi((Check("/controller_epoch", 1), SetData(PATH, b"", 5)))
    for code, answers in ((ZkCode.BAD_VERSION, (ZkCode.BAD_VERSION,)), (ZkCode.NO_AUTH, (ZkCode.OK, ZkCode.NO_AUTH))):
        for version in (0, 1):
            scene.state.epoch_zk_version, is_fence = version, code is ZkCode.BAD_VERSION
            scene.beliefs.operation(session, write, ZkResult(code, results=tuple(map(ZkResult, answers))))
            assert ("its fence broke" in scene.after()) is (is_fence and version == 1), (code, version)
            assert scene.after() == ""
    scene.beliefs.operation(session, write, ZkResult(ZkCode.BAD_VERSION, results=(ZkResult(ZkCode.BAD_VERSION),)))
    scene.sessions.clear()  # the session has gone with it, and so does the office, by the next event
    assert scene.after() == ""


def test_leaders_that_nobody_will_balance_again() -> None:
    scene = Scene()
    scene.state.settings.auto_leader_rebalance_enable = True
    assert "will not look again at who leads" in scene.after()
    assert scene.after(failure="ZkSessionExpired") == ""
    scene.loop.timers = [AutoPreferredReplicaLeaderElection()]
    assert scene.after() == ""
    scene.loop.timers, scene.loop.queued = [], [AutoPreferredReplicaLeaderElection()]
    assert scene.after() == ""
    scene.loop.queued, scene.state.serving = [], False
    assert scene.after() == ""


def test_a_partition_that_nobody_looks_at_any_more() -> None:
    scene = Scene()
    scene.offline = [TP]
    assert scene.after() == ""  # who shuts down leads until it goes
    scene.written = {"leader": 9, "isr": [1, 9]}
    assert "leaves t-0 without a leader" in scene.after()
    assert scene.after(failure="ZkSessionExpired") == ""
    scene.loop.timers = [TopicUncleanLeaderElectionEnable("t")]
    assert scene.after() == ""
    scene.loop.timers, scene.written = [], {"leader": -1, "isr": [2]}
    assert scene.after() == ""  # who is in sync is dead
    scene.written, scene.replicas = {"leader": -1, "isr": [1, 2]}, (2,)
    assert scene.after() == ""  # who lives is none of its replicas
    scene.replicas, scene.begun = (1, 2), {2}
    assert scene.after() == ""  # a move adds who lives, and has not begun it
    scene.begun = {1, 2}
    scene.sessions.clear()
    assert scene.after() == ""


def test_a_new_life_with_failed_dirs() -> None:
    scene = Scene()
    scene.state.offline_dirs = {ONE: {TP}}
    assert "takes dirs of broker 1 for failed, which is new" in scene.after()
    assert scene.after() == ""  # it has said so since


def test_a_new_life_that_leaves_like_the_one_before() -> None:
    scene = Scene()
    scene.state.shutting_down = {ONE}
    assert "takes broker 1 for leaving, which is new" in scene.after()
    assert scene.after() == ""  # in this life it may have asked to
    scene.state.live_brokers[ONE].broker_epoch += 1
    assert "takes broker 1 for leaving, which is new" in scene.after()


def test_a_term_in_which_somebody_leaves_as_in_the_one_before() -> None:
    """It told the former controller: the same process, or another."""
    scene = Scene()
    assert scene.after() == ""
    scene.state.offline_dirs, scene.state.shutting_down = {ONE: {TP}}, {ONE}
    assert scene.after() == ""  # it has said so in this term
    scene.state.epoch += 1
    found = scene.after("RegisterBrokerAndReelect")
    assert "takes broker 1 for leaving, which is new" in found
    assert "takes dirs of broker 1 for failed, which is new" in found


def test_an_office_that_is_named_without_a_session() -> None:
    scene = Scene()
    scene.state.session_id, scene.state.serving = None, False
    assert "has no session, and names 1001" in scene.after()
    scene.state.active_controller_id = None
    assert scene.after() == ""


def test_a_refused_state_that_is_not_read() -> None:
    scene = Scene()
    scene.refuses(ZkCode.NO_AUTH)
    assert "was refused to write over version 6" in scene.after()
    scene.refuses(ZkCode.OTHER, is_told=False)  # ZooKeeper says so of the whole transaction
    assert "was refused to write over version" in scene.after()
    scene.refuses(ZkCode.BAD_VERSION)
    assert scene.after() == ""


def test_a_living_broker_that_is_taken_for_dead() -> None:
    scene = Scene()
    event = {"event": ev.BROKERS_CHANGED, "controller": 1001, "dead": [1]}
    scene.beliefs.event(event)
    assert "takes broker 1 for dead, which is there" in scene.beliefs.broken[0]
    scene.beliefs.broken.clear()
    scene.state.live_brokers[ONE].broker_epoch -= 1  # of its life before
    scene.beliefs.event(event)
    assert scene.beliefs.broken == []


@pytest.mark.parametrize(
    ("leader", "partition_state", "complains"),
    [
        (None, PartitionState.ONLINE, True),
        (BrokerId(9), PartitionState.ONLINE, True),
        (None, PartitionState.OFFLINE, False),
        (ONE, PartitionState.ONLINE, False),
    ],
    ids=["nobody leads", "the dead lead", "it is offline", "its leader leaves"],
)
def test_who_is_gone_leads_nothing_that_is_online(
    leader: BrokerId | None, partition_state: PartitionState, complains: bool
) -> None:
    scene = Scene()
    scene.leaderless, scene.partition_state = [TP], partition_state
    scene.state.leadership = lambda tp: replace(FIRST, leader=leader)
    assert ("takes t-0 for online, whose leader is gone" in scene.after()) is complains
