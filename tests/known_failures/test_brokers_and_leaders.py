"""S1 to S7, I1, I2, C1: brokers come and go, leaders and ISRs follow, and everybody is told."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from controller.core import events
from controller.core.events import ElectionTrigger, ElectionType
from controller.wire import log_events as ev
from controller.wire.control import LeaderAndIsrRequest
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, TopicPartition
from controller.wire.zk_operations import Create, GetData
from tests.worlds.stage import CONTROLLER, TP, Fault, Stage, faults_everywhere, leaders_in, metadata_in

NOTICE = b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'


def live_in(request: Any) -> set[int]:
    return {broker.broker_id for broker in request.live_brokers} - {CONTROLLER}


@pytest.mark.known_failure("S1")
@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.value)
def test_nobody_leads_but_the_last_member(fault: Fault) -> None:
    """1 dies as the last member; 2 restarts; 1 returns. With a fault at every step of the death and of the return."""

    def make() -> Stage:
        stage = Stage()
        stage.broker_starts(1, 2)
        stage.topic("t", p0=(1, 2))
        stage.start()
        stage.leader_writes(TP, (1,))
        stage.run()
        return stage

    def dies(stage: Stage) -> None:
        stage.broker_dies(1)
        stage.run()

    def is_alone(stage: Stage) -> None:
        leader, epoch, isr = stage.leader()
        assert (leader, isr) == (None, (1,)) and epoch >= 1
        stage.broker_dies(2)
        stage.run()
        stage.broker_starts(2)
        stage.run()
        assert stage.leader()[0] is None and stage.leader()[2] == (1,)
        assert all(state.leader != 2 for _, state, _ in leaders_in(stage.sent))

    def returns(stage: Stage) -> None:
        if 1 not in stage.broker_sessions:
            stage.broker_starts(1)
        stage.run()

    def leads(stage: Stage) -> None:
        assert stage.leader()[0] == 1 and stage.leader()[2] == (1,)

    def leaderless() -> Stage:
        stage = make()
        dies(stage)
        assert stage.leader() == (None, 1, (1,))
        return stage

    assert faults_everywhere(make, dies, is_alone, fault) > 2
    assert faults_everywhere(leaderless, returns, leads, fault) > 2


@pytest.mark.known_failure("S2")
@pytest.mark.parametrize("how", ["dies", "shuts down"])
def test_the_order_of_the_isr_never_decides(how: str) -> None:
    """90 partitions in all six orders; every stored ISR lists 3 first among the followers."""
    orders = list(itertools.permutations((1, 2, 3)))
    stage = Stage()
    stage.broker_starts(1, 2, 3)
    stage.topic("t", **{f"p{n}": orders[n % 6] for n in range(90)})
    stage.start()
    for n in range(90):
        tp = TopicPartition("t", n)
        leader = stage.leadership(tp).leader
        assert leader is not None
        stage.leader_writes(tp, (leader, *(r for r in (3, 2, 1) if r != leader)))
    stage.run()
    if how == "dies":
        stage.broker_dies(1)
        stage.run()
    else:
        stage.run(events.ControlledShutdown(BrokerId(1), -1, 1))
    for n in range(90):
        expected = next(r for r in orders[n % 6] if r != 1)
        assert stage.leadership(TopicPartition("t", n)).leader == expected
    moved = [stage.leadership(TopicPartition("t", n)).leader for n in range(90) if orders[n % 6][0] == 1]
    assert sorted(moved) == [2] * 15 + [3] * 15


@pytest.mark.known_failure("S3")
@pytest.mark.parametrize("topics", [0, 1], ids=["no topic at all", "none on the third"])
def test_every_live_broker_learns_of_each_change(topics: int) -> None:
    stage = Stage()
    stage.broker_starts(1, 2)
    if topics:
        stage.topic("t", p0=(1, 2))
    stage.start()
    for change, live in ((stage.broker_starts, {1, 2, 3}), (stage.broker_dies, {1, 2})):
        stage.take_sent()
        change(3)
        stage.run()
        last = {request.to: live_in(request) for request in metadata_in(stage.take_sent())}
        assert {to: last[to] for to in live} == dict.fromkeys(live, live)


@pytest.mark.known_failure("S3")
def test_a_change_of_membership_reaches_everybody_whatever_fails() -> None:
    def make() -> Stage:
        stage = Stage()
        stage.broker_starts(1, 2)
        stage.start()
        return stage

    def act(stage: Stage) -> None:
        stage.broker_starts(3)
        stage.run()

    def check(stage: Stage) -> None:
        last = {request.to: live_in(request) for request in metadata_in(stage.sent)}
        assert last == {broker: {1, 2, 3} for broker in (1, 2, 3)}

    assert faults_everywhere(make, act, check) > 3


@pytest.mark.known_failure("S4")
def test_one_read_serves_every_broker_that_came_meanwhile() -> None:
    stage = Stage()
    stage.broker_starts(1)
    stage.topic("t", **{f"p{n}": (1,) for n in range(200)})
    stage.start()
    stage.take_sent()
    stage.broker_starts(*range(2, 51))
    stage.events.extend([events.BrokerChange()] * 49)
    changes = len(stage.logged(ev.BROKERS_CHANGED))
    stage.steps = 0
    stage.run()
    assert len(stage.logged(ev.BROKERS_CHANGED)) == changes + 1
    assert stage.steps <= 2 * 50, "each later event lists and finds nothing"
    full = [request.to for request in metadata_in(stage.sent) if len(request.partition_states) == 200]
    assert sorted(full) == list(range(2, 51)), "each new broker once"


@pytest.mark.known_failure("S5")
def test_a_bounce_that_was_never_seen_as_an_absence() -> None:
    """With every fault at every step of noticing it; a successor that never knew the earlier life tells it again."""

    def make() -> Stage:
        stage = Stage()
        stage.broker_starts(1, 2)
        stage.topic("t", p0=(2, 1))
        stage.start()
        return stage

    def act(stage: Stage) -> None:
        stage.broker_dies(2)
        stage.broker_starts(2)
        stage.events = type(stage.events)([events.BrokerChange()])
        stage.run()

    def check(stage: Stage) -> None:
        czxid = stage.tree.read(GetData("/brokers/ids/2")).stat.czxid
        told = [r for r in stage.sent if r.to == 2 and isinstance(r, LeaderAndIsrRequest)]
        assert told[-1].broker_epoch == czxid

    assert faults_everywhere(make, act, check, Fault.CRASH, Fault.SESSION_LOSS, Fault.LOST_REPLY) > 5
    stage = make()
    old = stage.state.live_brokers[BrokerId(2)].broker_epoch
    act(stage)
    assert stage.leader() == (1, 1, (1,))
    stage.run(events.ControlledShutdown(BrokerId(2), old, 1))
    assert stage.replies[1].error is ErrorCode.STALE_BROKER_EPOCH
    assert 2 not in stage.state.shutting_down


@pytest.mark.known_failure("S6")
@pytest.mark.parametrize("preferred", ["is catching up", "is gone"])
def test_the_balance_leaves_alone_what_cannot_be_elected(preferred: str) -> None:
    stage = Stage(auto_leader_rebalance_enable=True)
    stage.broker_starts(1, 2)
    stage.topic("t", p0=(1, 2))
    stage.start()
    stage.broker_dies(1)
    stage.run()
    if preferred == "is catching up":
        stage.broker_starts(1)
        stage.run()
    stage.take_lines()
    stage.take_sent()
    stage.logs.clear()
    for _ in range(3):
        stage.run(events.AutoPreferredReplicaLeaderElection())
    assert stage.take_lines() == [] and leaders_in(stage.take_sent()) == []
    assert [line for line in stage.logs if line.level == "error"] == []
    assert stage.timers[-1].event == events.AutoPreferredReplicaLeaderElection(), "the next round is planned"
    if preferred == "is catching up":
        stage.leader_writes(TP, (2, 1))
        stage.others_write(Create("/isr_change_notification/isr_change_", NOTICE, sequence=True))
        stage.run(events.AutoPreferredReplicaLeaderElection())
        assert stage.leader()[0] == 1


@pytest.mark.known_failure("I1")
@pytest.mark.parametrize("wins", ["a lost reply", "the leader"])
def test_a_lost_race_is_decided_again_and_the_next_change_works(wins: str) -> None:
    """The believed version is behind: by a write of the leader, or by the controller's own, whose reply was lost."""
    stage = Stage()
    stage.broker_starts(1, 2, 3)
    stage.topic("t", p0=(1, 2, 3))
    stage.start()
    if wins == "the leader":
        stage.leader_writes(TP, (1, 3))
    else:
        stage.strike(Fault.LOST_REPLY, 3)
    stage.broker_dies(1)
    stage.run()
    leader, epoch, isr = stage.leader()
    assert (leader, isr) == ((3, (3,)) if wins == "the leader" else (2, (2, 3)))
    assert stage.state.leadership(TP) == stage.leadership(TP), "what is believed is what is stored"
    stage.broker_starts(1)
    stage.run()
    stage.leader_writes(TP, (*isr, 1))
    stage.run(events.ReplicaLeaderElection(frozenset({TP}), ElectionType.PREFERRED, ElectionTrigger.ADMIN_CLIENT, 7))
    assert stage.replies[7].partitions[TP].leader == 1
    assert stage.leader()[1] > epoch


@pytest.mark.known_failure("I2")
def test_a_notice_reaches_every_broker_and_goes_whatever_fails() -> None:
    def make() -> Stage:
        stage = Stage()
        stage.broker_starts(1, 2, 3)
        stage.topic("t", p0=(1, 2), p1=(2, 3))
        stage.start()
        stage.take_sent()
        return stage

    def act(stage: Stage) -> None:
        stage.leader_writes(TP, (1,))
        for data in (NOTICE, b"\xff{", b""):
            stage.others_write(Create("/isr_change_notification/isr_change_", data, sequence=True))
        stage.run()

    def check(stage: Stage) -> None:
        told = {
            r.to: e.state.isr for r in metadata_in(stage.sent) for e in r.partition_states if e.topic_partition == TP
        }
        assert told == dict.fromkeys((1, 2, 3), (1,))
        assert stage.children("/isr_change_notification") == []

    assert faults_everywhere(make, act, check) > 10
    stage = make()
    act(stage)
    sent = stage.take_sent()
    assert [(r.to, len(r.partition_states)) for r in metadata_in(sent)] == [(1, 1), (2, 1), (3, 1)]
    assert leaders_in(sent) == []


@pytest.mark.known_failure("C1")
def test_a_raised_epoch_goes_to_every_live_replica() -> None:
    """The shrink of a dead follower too; and whatever fails, no broker is told a lower epoch after a higher one."""

    def make() -> Stage:
        stage = Stage()
        stage.broker_starts(1, 2, 3)
        stage.topic("t", p0=(1, 2, 3))
        stage.start()
        stage.take_sent()
        return stage

    def act(stage: Stage) -> None:
        stage.broker_dies(3)
        stage.run()

    def check(stage: Stage) -> None:
        told: dict[int, list[int]] = {}
        for to, state, _ in leaders_in(stage.sent):
            told.setdefault(to, []).append(state.leader_epoch)
        assert all(epochs == sorted(epochs) for epochs in told.values())
        assert {to: epochs[-1] for to, epochs in told.items()} == dict.fromkeys((1, 2), stage.leader()[1])
        assert stage.leader()[0] == 1 and stage.leader()[2] == (1, 2)

    assert faults_everywhere(make, act, check) > 5


@pytest.mark.known_failure("S7")
def test_one_order_also_after_a_failover_and_a_move() -> None:
    stage = Stage()
    stage.broker_starts(1, 2, 3, 4)
    stage.make("/brokers/topics/t", b'{"partitions":{"0":[3,1,2]},"version":1}')
    stage.start()
    stage.new_controller()
    stage.start()
    stage.run(events.ApiPartitionReassignment({TP: (BrokerId(4), BrokerId(1), BrokerId(3))}, 1))
    assert stage.assigned().replicas == (4, 1, 3, 2)
    stage.leader_writes(TP, (3, 1, 2, 4))
    stage.run()
    assert stage.assigned().replicas == (4, 1, 3)
    assert stage.leader()[0] == 3, "who leads already and stays goes on"
    orders = {
        e.assignment.replicas for r in stage.sent if isinstance(r, LeaderAndIsrRequest) for e in r.partition_states
    }
    assert orders == {(3, 1, 2), (4, 1, 3, 2), (4, 1, 3)}
