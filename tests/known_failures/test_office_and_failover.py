"""E1 to E4, F1 to F5: who acts, and what a new controller takes up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.core import events, step
from controller.core.effects import Effect, drive_now
from controller.core.events import ElectionTrigger, ElectionType
from controller.wire import log_events as ev
from controller.wire.control import LeaderAndIsrRequest, UpdateMetadataRequest
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, TopicPartition
from controller.wire.zk_operations import Delete, GetData, SetData, ZkCode
from tests.worlds.stage import CONTROLLER, TP, Fault, Stage, faults_everywhere, leaders_in, metadata_in, move_to

U = TopicPartition("u", 0)


def two_brokers(**settings: Any) -> Stage:
    stage = Stage(**settings)
    stage.broker_starts(1, 2)
    stage.topic("t", p0=(1, 2))
    stage.start()
    return stage


def owner_of_office(stage: Stage) -> int:
    found = stage.tree.read(GetData("/controller"))
    assert found.ok and found.stat is not None, "nobody is named"
    assert json.loads(found.data or b"{}")["brokerid"] == CONTROLLER
    return found.stat.ephemeral_owner


def a_new_topic_gets_a_leader(stage: Stage) -> None:
    """Somebody acts, and it is who the znode says, in its present session."""
    assert stage.state.serving
    assert owner_of_office(stage) == stage.session
    if not stage.exists("/brokers/topics/u"):
        stage.topic("u", p0=(2, 1))
    stage.run()
    assert stage.leadership(U).leader == 2


@pytest.mark.known_failure("E1", "E2")
@pytest.mark.parametrize("seen_first", ["the queued broker change", "the change of the znode"])
def test_a_zombie_changes_nothing(seen_first: str) -> None:
    """It wakes with its old epoch and its old fencing version, whatever it meets first."""
    stage = two_brokers()
    old = stage.state.epoch
    new = stage.rival_wins()
    stage.others_write(
        SetData(
            "/brokers/topics/t/partitions/0/state",
            b'{"controller_epoch":%d,"leader":2,"version":1,"leader_epoch":1,"isr":[1,2]}' % new,
        )
    )
    stage.events.clear()
    stage.broker_dies(1)
    stage.take_lines()
    stage.take_sent()
    if seen_first == "the change of the znode":
        stage.events.appendleft(events.ControllerChange())
    while stage.events:
        assert stage.state.epoch in (old, 0), "the epoch follows the znode"
        stage.process(stage.events.popleft())
    assert stage.take_lines() == [], "a zombie wrote"
    assert all(request.controller_epoch == old for request in stage.take_sent())
    assert stage.leader() == (2, 1, (1, 2))
    assert not stage.state.serving


@pytest.mark.known_failure("E1", "E2")
def test_one_controller_per_epoch_whatever_fails() -> None:
    """Over a whole run, with every fault at every step of a broker's death: one id per epoch, epochs only rise."""

    def check(stage: Stage) -> None:
        assert all(len(ids) == 1 for ids in stage.controllers_of.values())
        assert stage.leader()[0] == 2
        a_new_topic_gets_a_leader(stage)

    def act(stage: Stage) -> None:
        stage.broker_dies(1)
        stage.run()

    assert faults_everywhere(two_brokers, act, check) > 15


@pytest.mark.known_failure("E3", "Z3")
@pytest.mark.parametrize("burst", range(1, 4))
def test_after_a_burst_of_session_events_whoever_acts_is_named(burst: int) -> None:
    """The callback of a new session comes late and again, after the office was already won in that session."""
    stage = two_brokers()
    stage.expire()
    stage.run(*[events.RegisterBrokerAndReelect(stage.session)] * burst)
    a_new_topic_gets_a_leader(stage)
    stage.events.extend([events.Expire(), events.RegisterBrokerAndReelect(stage.session)] * burst)
    stage.run()
    assert stage.exists("/controller")
    stage.others_write(Delete("/brokers/topics/u/partitions/0/state"))
    stage.topic("v", p0=(1, 2))
    stage.run()
    assert owner_of_office(stage) == stage.session
    assert stage.leadership(TopicPartition("v", 0)).leader == 1


@pytest.mark.known_failure("E2", "E3", "X1")
def test_the_office_is_kept_whatever_fails_while_it_is_won() -> None:
    def make() -> Stage:
        stage = Stage()
        stage.broker_starts(1, 2)
        stage.topic("t", p0=(1, 2))
        return stage

    def check(stage: Stage) -> None:
        a_new_topic_gets_a_leader(stage)
        assert stage.leader()[0] == 1
        assert all(len(ids) == 1 for ids in stage.controllers_of.values()), "two elections won one epoch"

    assert faults_everywhere(make, Stage.start, check) > 30


@pytest.mark.known_failure("F1")
def test_wishes_by_znode_that_waited_for_a_controller_are_granted() -> None:
    """With every fault at every step of the failover that grants them."""

    def make() -> Stage:
        stage = two_brokers()
        stage.topic("u", p0=(2, 1))
        stage.run()
        stage.broker_starts(3)
        stage.run()
        stage.others_write(
            SetData(
                "/brokers/topics/u/partitions/0/state",
                b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":1,"isr":[2,1]}',
            )
        )
        stage.end_session(stage.session)
        move = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2,3]}]}'
        stage.make("/admin/reassign_partitions", move.encode())
        stage.make("/admin/preferred_replica_election", b'{"version":1,"partitions":[{"topic":"u","partition":0}]}')
        stage.new_controller()
        return stage

    def check(stage: Stage) -> None:
        assert stage.leader(U)[0] == 2, "the preferred leader leads"
        assert not stage.exists("/admin/preferred_replica_election")
        if stage.assigned().is_being_reassigned:
            stage.leader_writes(TP, (1, 2, 3))
        stage.run()
        assert stage.assigned().replicas == (2, 3) and not stage.assigned().is_being_reassigned
        assert not stage.exists("/admin/reassign_partitions")

    assert faults_everywhere(make, Stage.start, check) > 40


@pytest.mark.known_failure("F3")
def test_a_broker_hears_of_live_brokers_before_it_must_follow() -> None:
    """At failover with empty caches, and when a broker joins with elections waiting for it."""
    stage = Stage()
    stage.broker_starts(1, 2)
    stage.topic("t", p0=(1, 3), p1=(3, 1), p2=(3,))
    stage.start()
    for broker in (1, 2):
        mine = [request for request in stage.sent if request.to == broker]
        first = next(n for n, r in enumerate(mine) if isinstance(r, LeaderAndIsrRequest)) if broker == 1 else 0
        assert isinstance(mine[0], UpdateMetadataRequest)
        assert {b.broker_id for b in mine[0].live_brokers} == {1, 2, CONTROLLER}
        assert first != 0 or broker == 2
    stage.take_sent()
    stage.broker_starts(3)
    stage.run()
    sent = stage.take_sent()
    order = [(r.to, type(r).__name__.removesuffix("Request"), len(r.partition_states)) for r in sent]
    assert order[:2] == [(1, "UpdateMetadata", 0), (2, "UpdateMetadata", 0)], "the others learn of it first"
    assert order[2] == (3, "UpdateMetadata", 2), "then it learns everything that has a leader"
    told = [r for r in sent if r.to == 3 and isinstance(r, LeaderAndIsrRequest)]
    assert {e.topic_partition.partition for e in told[0].partition_states} == {0, 1}, "all it has, before elections"
    assert {e.topic_partition.partition for e in told[1].partition_states} == {2}


@pytest.mark.known_failure("F4")
@pytest.mark.parametrize("event_type", events.Event.__args__, ids=lambda t: t.__name__)
def test_an_event_tests_whether_it_is_active_when_it_is_processed(event_type: type[Any]) -> None:
    """Every type of event, queued while active and processed after the office is lost."""
    stage = two_brokers()
    stage.rival_wins()
    stage.events.clear()
    stage.run(events.ControllerChange())
    assert not stage.state.serving
    stage.take_sent()
    stage.take_lines()
    stage.make("/admin/reassign_partitions", b'{"version":1,"partitions":[]}')
    stage.make("/isr_change_notification/isr_change_0000000000", b'{"version":1,"partitions":[]}')
    stage.events.clear()
    stage.run(example(event_type))
    assert stage.take_sent() == [] and stage.take_lines() == [] and stage.timers == []


def example(event_type: type[Any]) -> Any:
    """An event of this type that would do something."""
    values: dict[type[Any], tuple[Any, ...]] = {
        events.BrokerModifications: (BrokerId(1),),
        events.PartitionModifications: ("t",),
        events.TopicUncleanLeaderElectionEnable: ("t",),
        events.UncleanLeaderElectionEnable: (True,),
        events.TopicDeletionStopReplicaResponseReceived: (BrokerId(1), ErrorCode.NONE, {TP: ErrorCode.NONE}),
        events.ApiPartitionReassignment: ({TP: (BrokerId(2),)}, 1),
        events.PartitionReassignmentIsrChange: (TP,),
        events.ListPartitionReassignments: (None, 1),
        events.ReplicaLeaderElection: (frozenset({TP}), ElectionType.PREFERRED, ElectionTrigger.ADMIN_CLIENT, 1),
        events.ControlledShutdown: (BrokerId(1), -1, 1),
        events.LeaderAndIsrResponseReceived: (BrokerId(1), ErrorCode.NONE, {TP: ErrorCode.KAFKA_STORAGE_ERROR}),
        events.UpdateMetadataResponseReceived: (BrokerId(1), ErrorCode.STALE_CONTROLLER_EPOCH),
    }
    return event_type(*values.get(event_type, ()))


@pytest.mark.known_failure("C4")
@pytest.mark.parametrize("event_type", events.Event.__args__, ids=lambda t: t.__name__)
def test_every_type_of_event_is_handled_by_an_active_controller(event_type: type[Any]) -> None:
    """None is lost: the recipe ends, callers are answered, and the next event works."""
    stage = two_brokers()
    event = example(event_type)
    stage.run(event)
    if (reply_to := getattr(event, "reply_to", None)) is not None:
        assert reply_to in stage.replies
    assert step.state_during(event).name
    if event_type is not events.Expire:
        a_new_topic_gets_a_leader(stage)


@pytest.mark.known_failure("F5")
def test_every_caller_gets_one_answer_whatever_fails() -> None:
    """A move, a listing, an election and a shutdown; each fault at each step of each of them."""
    calls = [
        events.ApiPartitionReassignment({TP: (BrokerId(2), BrokerId(1))}, 1),
        events.ListPartitionReassignments(None, 2),
        events.ReplicaLeaderElection(frozenset({TP}), ElectionType.PREFERRED, ElectionTrigger.ADMIN_CLIENT, 3),
        events.ControlledShutdown(BrokerId(1), -1, 4),
    ]

    def act(stage: Stage) -> None:
        stage.run(*calls)

    def check(stage: Stage) -> None:
        assert sorted(stage.replies) == [1, 2, 3, 4]

    faults = (Fault.SESSION_LOSS, Fault.LOST_REPLY, Fault.RIVAL)
    assert faults_everywhere(two_brokers, act, check, *faults) > 20


@pytest.mark.known_failure("E4")
@pytest.mark.parametrize("path", ["/brokers/ids", "/brokers/topics"])
def test_a_failed_failover_is_torn_down_like_a_resignation(path: str) -> None:
    stage = Stage()
    stage.broker_starts(1, 2)
    stage.topic("t", p0=(1, 2))
    stage.tree.refusal = lambda op: ZkCode.NO_AUTH if getattr(op, "path", None) == path else None
    stage.start()
    for _ in range(3):
        stage.now_ms += 2_000
        stage.timers.clear()
        stage.run(events.Reelect())
        assert not stage.state.serving and stage.channels == set()
        assert [timer.event for timer in stage.timers] == [events.Reelect()], "one attempt waits, no more"
    stage.tree.refusal = lambda _: None
    stage.now_ms += 2_000
    stage.run(events.Reelect())
    epoch = stage.state.epoch
    move_to(stage, 2, 1)
    assert stage.assigned().replicas == (2, 1)
    stage.run(events.ControllerChange(), events.BrokerChange())
    assert stage.state.epoch == epoch, "the epoch stops growing"
    assert stage.logged(ev.CONTROLLER_FAULTED)


def vacate(stage: Stage, at_step: int) -> bool:
    """Starts the controller, and deletes `/controller` after that many effects of its failover; whether it did."""
    count = 0

    def perform(effect: Effect) -> Any:
        nonlocal count
        answer = stage.perform(effect)
        before, count = count, count + stage.state.serving
        if before < at_step <= count:
            stage.others_write(Delete("/controller"))
        return answer

    drive_now(step.handle(stage.state, stage.startup, 0), perform)
    return count >= at_step


@pytest.mark.known_failure("X1")
def test_the_office_falls_vacant_while_it_is_taken() -> None:
    """`/controller` is deleted at any step of the failover: in Kafka nobody is elected until a session times out."""
    for at_step in range(1, 60):
        stage = Stage()
        stage.broker_starts(1)
        stage.topic("t", p0=(1,))
        deleted = vacate(stage, at_step)
        if not deleted:
            break
        stage.run()
        a_new_topic = TopicPartition("u", 0)
        stage.topic("u", p0=(1,))
        stage.run()
        assert owner_of_office(stage) == stage.session, at_step
        assert stage.leadership(a_new_topic).leader == 1, at_step
    assert at_step > 15


@pytest.mark.known_failure("E1")
def test_every_request_carries_the_epoch_of_its_controller() -> None:
    stage = two_brokers()
    stage.expire()
    stage.take_sent()
    stage.broker_dies(1)
    stage.run()
    stage.make("/admin/delete_topics/t")
    stage.run()
    sent = stage.take_sent()
    assert {type(request).__name__ for request in sent} == {
        "LeaderAndIsrRequest",
        "UpdateMetadataRequest",
        "StopReplicaRequest",
    }
    assert {(request.controller_id, request.controller_epoch) for request in sent} == {(CONTROLLER, 2)}
    assert all(state.controller_epoch <= 2 for _, state, _ in leaders_in(sent))
    assert metadata_in(sent)
