"""What one batch of requests says, to whom, in which order."""

from __future__ import annotations

from typing import Any

import pytest

from controller.core.effects import Send
from controller.core.request_batch import RequestBatch
from controller.core.settings import ControllerSettings
from controller.core.state import ClusterState
from controller.wire.control import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from controller.wire.types import Broker, BrokerId, Endpoint, LeaderAndIsr, ReplicaAssignment, TopicPartition

TP, OTHER = TopicPartition("t", 0), TopicPartition("a", 3)
LEADERSHIP = LeaderAndIsr(leader=BrokerId(1), isr=(1, 2), leader_epoch=5, partition_epoch=7, controller_epoch=4)
ASSIGNMENT = ReplicaAssignment(replicas=(1, 2, 3))


def broker(broker_id: int) -> Broker:
    return Broker(
        broker_id=BrokerId(broker_id), endpoints=(Endpoint(host=f"b{broker_id}", port=1),), broker_epoch=broker_id * 10
    )


@pytest.fixture
def state() -> ClusterState:
    state = ClusterState(BrokerId(100), ControllerSettings(), broker(100))
    state.epoch = 4
    state.live_brokers = {BrokerId(b): broker(b) for b in (1, 2)}
    state.shutting_down = {BrokerId(2)}
    for tp in (TP, OTHER):
        state.assign(tp, ASSIGNMENT)
        state.lead(tp, LEADERSHIP)
    return state


def sent(batch: RequestBatch) -> tuple[Any, ...]:
    effects = list(batch.send())
    assert all(isinstance(e, Send) for e in effects)
    return tuple(r for e in effects if isinstance(e, Send) for r in e.requests)


def test_one_partition_told_twice_stays_new(state: ClusterState) -> None:
    batch = RequestBatch(state)
    batch.add_leader_and_isr((1,), TP, LEADERSHIP, ASSIGNMENT, is_new=True)
    batch.add_leader_and_isr((1,), TP, LEADERSHIP, ASSIGNMENT, is_new=False)
    (entry,) = sent(batch)[0].partition_states
    assert entry.is_new


def test_one_replica_stopped_twice_stays_deleted(state: ClusterState) -> None:
    batch = RequestBatch(state)
    batch.add_stop_replica(BrokerId(1), TP, delete=True)
    batch.add_stop_replica(BrokerId(1), TP, delete=False)
    (request,) = sent(batch)
    assert [e.delete_partition for e in request.partition_states] == [True]


def test_order_and_addressees(state: ClusterState) -> None:
    """1 is live, 2 is shutting down, 3 is dead: LeaderAndIsr, then UpdateMetadata, then StopReplica, to 1 and 2."""
    batch = RequestBatch(state)
    for tp in (TP, OTHER):
        batch.add_leader_and_isr((3, 2, 1), tp, LEADERSHIP, ASSIGNMENT, is_new=False)
        for b in (3, 1):
            batch.add_stop_replica(BrokerId(b), tp, delete=False)
    requests = sent(batch)
    assert [(type(r), r.to, r.broker_epoch) for r in requests] == [
        (LeaderAndIsrRequest, 1, 10),
        (LeaderAndIsrRequest, 2, 20),
        (UpdateMetadataRequest, 1, 10),
        (UpdateMetadataRequest, 2, 20),
        (StopReplicaRequest, 1, 10),
    ]
    assert all([e.topic_partition for e in r.partition_states] == [OTHER, TP] for r in requests)
    assert requests[0].live_leaders == (Broker(broker_id=BrokerId(1), endpoints=(Endpoint(host="b1", port=1),)),)
    first, second = requests[2], requests[3]
    assert first.partition_states is second.partition_states and first.live_brokers is second.live_brokers
    assert [b.broker_id for b in first.live_brokers] == [1, 2, 100]
    assert first.partition_states[0].offline_replicas == (2, 3)


def test_metadata_without_leadership_still_lists_brokers(state: ClusterState) -> None:
    batch = RequestBatch(state)
    batch.add_update_metadata_to_all((TopicPartition("unknown", 0),))
    requests = sent(batch)
    assert [r.to for r in requests] == [1, 2]
    assert requests[0].partition_states == ()


def test_a_topic_in_deletion(state: ClusterState) -> None:
    state.queue_deletion(("t",))
    batch = RequestBatch(state)
    batch.add_update_metadata((1,), (TP, OTHER))
    batch.add_stop_replica(BrokerId(1), TP, delete=False)
    batch.add_stop_replica(BrokerId(1), TopicPartition("unknown", 0), delete=False)
    metadata, stop = sent(batch)
    assert [(e.topic_partition, e.being_deleted) for e in metadata.partition_states] == [(OTHER, False), (TP, True)]
    assert [e.leader_epoch for e in stop.partition_states] == [-2, -1]


def test_a_sent_batch_is_empty(state: ClusterState) -> None:
    batch = RequestBatch(state)
    batch.add_leader_and_isr((1, -1), TP, LEADERSHIP, ASSIGNMENT, is_new=True)
    assert sent(batch)
    assert sent(batch) == ()
