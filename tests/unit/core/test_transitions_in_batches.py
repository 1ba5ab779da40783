"""What the state machines did is said batch by batch, as values: the whole life of a topic, and a failover."""

from __future__ import annotations

from typing import Any

import pytest

from controller.core.effects import Send, drive_now
from controller.core.leader_choice import OfflineElection
from controller.core.partitions import change_partitions
from controller.core.replicas import change_replicas
from controller.core.settings import ControllerSettings
from controller.core.state import ClusterState
from controller.core.transitions import PARTITION_TRANSITIONS, REPLICA_TRANSITIONS, PartitionState, ReplicaState
from controller.wire import log_events as ev
from controller.wire.control import LeaderAndIsrRequest
from controller.wire.types import Broker, BrokerId, LeaderAndIsr, PartitionReplica, ReplicaAssignment, TopicPartition
from controller.wire.znodes import DeleteTopicsTopicZNode


def batches(world: Any) -> list[tuple[list[int | None], dict[str, int]]]:
    """Of each batch: the brokers of its replicas ([None]: it is of partitions), and its counts."""
    found = []
    for effect in world.transitions:
        counts: dict[str, int] = {}
        for each in effect.done:
            for what, number in each.counts().items():
                counts[what] = counts.get(what, 0) + number
        found.append(([each.replica for each in effect.done], counts))
    return found


#: How a partition that is online gets into each state.
WAYS: dict[PartitionState, list[PartitionState]] = {
    PartitionState.NEW: [PartitionState.OFFLINE, PartitionState.NON_EXISTENT, PartitionState.NEW],
    PartitionState.ONLINE: [],
    PartitionState.OFFLINE: [PartitionState.OFFLINE],
    PartitionState.NON_EXISTENT: [PartitionState.OFFLINE, PartitionState.NON_EXISTENT],
}


@pytest.fixture(name="cluster")
def of_three(world: Any) -> Any:
    world.broker_starts(1, 2, 3)
    world.start()
    world.transitions.clear()
    return world


def test_a_new_topic_goes_through_both_machines(cluster: Any) -> None:
    cluster.topic("orders", p0=(1, 2), p1=(2, 3))
    cluster.run()
    assert batches(cluster) == [
        ([None], {"NonExistentPartition -> NewPartition": 2}),
        ([1, 2, 3], {"NonExistentReplica -> NewReplica": 4}),
        ([None], {"NewPartition -> OnlinePartition": 2}),
        ([1, 2, 3], {"NewReplica -> OnlineReplica": 4}),
    ]
    (last,) = cluster.transitions[-1:]
    assert [(str(tp), a, b) for tp, a, b in last.done[0].singles()] == [("orders-0", "NewReplica", "OnlineReplica")]


def test_a_broker_dies_and_a_mixed_batch_tells_each_origin(cluster: Any) -> None:
    cluster.topic("orders", p0=(1, 2), p1=(2, 1))
    cluster.topic("alone", p0=(3,))
    cluster.run()
    cluster.transitions.clear()
    cluster.broker_dies(3)
    cluster.run()
    cluster.broker_dies(1)
    cluster.run()
    assert batches(cluster) == [
        ([None], {"OnlinePartition -> OfflinePartition": 1}),
        ([3], {"OnlineReplica -> OfflineReplica": 1}),
        ([None], {"OnlinePartition -> OfflinePartition": 1, "OfflinePartition -> OfflinePartition": 1}),
        ([None], {"OfflinePartition -> OnlinePartition": 1}),
        ([1], {"OnlineReplica -> OfflineReplica": 2}),
    ]


def test_a_deletion_ends_in_no_state(cluster: Any) -> None:
    cluster.topic("orders", p0=(1, 2))
    cluster.run()
    cluster.transitions.clear()
    cluster.make(DeleteTopicsTopicZNode.path("orders"))
    cluster.run()
    said = [what for _, counts in batches(cluster) for what in counts]
    replicas = [what for what in said if "Replica" in what]
    assert replicas == [
        "OnlineReplica -> OfflineReplica",
        "OfflineReplica -> ReplicaDeletionStarted",
        "ReplicaDeletionStarted -> ReplicaDeletionSuccessful",
        "ReplicaDeletionStarted -> ReplicaDeletionSuccessful",
        "ReplicaDeletionSuccessful -> NonExistentReplica",
    ]
    assert [what for what in said if what not in replicas] == [
        "OnlinePartition -> OfflinePartition",
        "OfflinePartition -> NonExistentPartition",
    ]


def test_a_failover_says_what_it_begins_with(cluster: Any) -> None:
    cluster.topic("orders", p0=(1, 2), p1=(3,))
    cluster.run()
    cluster.broker_dies(3)
    cluster.logs.clear()
    cluster.new_controller()
    cluster.start()
    said = [dict(log.fields) for log in cluster.logs if log.event == ev.STATES_INITIALIZED]
    assert said == [
        {"replicas": {"OnlineReplica": 2, "ReplicaDeletionIneligible": 1}},
        {"partitions": {"OnlinePartition": 1, "OfflinePartition": 1}},
    ]


@pytest.mark.parametrize("target", PartitionState)
def test_who_may_not_become_what_others_become_is_a_line_and_stays(cluster: Any, target: PartitionState) -> None:
    """One partition in each state, in one batch."""
    cluster.topic("t", p0=(1, 2), p1=(2, 3), p2=(3, 1), p3=(1, 2))
    cluster.run()
    state, states = cluster.state, {TopicPartition("t", n): each for n, each in enumerate(PartitionState)}
    for tp, before in states.items():
        for each in WAYS[before]:
            state.put_partition_states([tp], each)
    assert {tp: state.partition_state(tp) for tp in states} == states
    cluster.sent.clear()
    drive_now(change_partitions(state, [*states, *states], target, OfflineElection()), cluster.perform)
    legal = [tp for tp, before in states.items() if before in PARTITION_TRANSITIONS[target]]
    assert {tp: state.partition_state(tp) for tp in states} == {**states, **dict.fromkeys(legal, target)}
    refused = [dict(log.fields) for log in cluster.logs if log.event == ev.TRANSITION_REFUSED]
    assert [(each["partition"], each["from"], each["to"]) for each in refused] == [
        (tp.partition, before.kafka_name, target.kafka_name) for tp, before in states.items() if tp not in legal
    ]
    heard = {e.topic_partition for r in cluster.sent if isinstance(r, LeaderAndIsrRequest) for e in r.partition_states}
    assert heard == (set(legal) if target is PartitionState.ONLINE else set())


def test_states_have_kafkas_names() -> None:
    names = [state.kafka_name for table in (PARTITION_TRANSITIONS, REPLICA_TRANSITIONS) for state in table]
    assert set(names) == {
        *("NonExistentPartition", "NewPartition", "OnlinePartition", "OfflinePartition"),
        *("NonExistentReplica", "NewReplica", "OnlineReplica", "OfflineReplica"),
        *("ReplicaDeletionStarted", "ReplicaDeletionSuccessful", "ReplicaDeletionIneligible"),
    }
    assert len(names) == len(PartitionState) + len(ReplicaState)


def test_who_leads_already_is_not_new() -> None:
    """It would begin with an empty log."""
    state, tp, brokers = ClusterState(BrokerId(100), ControllerSettings()), TopicPartition("t", 0), (1, 2, 3)
    state.office_won(1, 1)
    for each in map(BrokerId, brokers):
        state.broker_registered(Broker(broker_id=each, endpoints=()))
    state.assign(tp, ReplicaAssignment(replicas=brokers))
    state.lead(tp, LeaderAndIsr(leader=BrokerId(2), isr=(2,)))
    replicas = [PartitionReplica(tp, BrokerId(each)) for each in brokers]
    effects = list(change_replicas(state, replicas, ReplicaState.NEW))
    states = [ReplicaState.NEW, ReplicaState.NON_EXISTENT, ReplicaState.NEW]
    assert [state.replica_state(replica) for replica in replicas] == states
    sent = [request for effect in effects if isinstance(effect, Send) for request in effect.requests]
    assert [
        (r.to, entry.is_new) for r in sent if isinstance(r, LeaderAndIsrRequest) for entry in r.partition_states
    ] == [(1, True), (3, True)]


def test_who_is_gone_is_no_replica_any_more() -> None:
    """Where the topic's znodes stay, a broker that starts again has nothing of it to begin."""
    state, tp = ClusterState(BrokerId(100), ControllerSettings()), TopicPartition("t", 0)
    gone, *others = brokers = tuple(map(BrokerId, (1, 2, 3)))
    state.office_won(1, 1)
    moving = ReplicaAssignment(replicas=brokers, adding_replicas=(others[-1],), removing_replicas=(gone,))
    state.assign(tp, moving)
    states = (ReplicaState.NEW, ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED, ReplicaState.DELETION_SUCCESSFUL)
    for each in states:
        state.put_replica_states(gone, (tp,), each)
    list(change_replicas(state, [PartitionReplica(tp, gone)], ReplicaState.NON_EXISTENT))
    assert state.assignment(tp) == ReplicaAssignment(replicas=tuple(others), adding_replicas=(others[-1],))
    assert list(state.partitions_on(gone)) == []
