"""What one batch of requests says, to whom, in which order."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from controller.core.effects import Send
from controller.core.request_batch import RequestBatch, send, stop_epoch
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
    state = ClusterState(BrokerId(100), ControllerSettings())
    state.started(1, broker(100))
    state.office_won(4, 1)
    for b in (1, 2):
        state.broker_registered(broker(b))
    state.broker_shuts_down(BrokerId(2))
    for tp in (TP, OTHER):
        state.assign(tp, ASSIGNMENT)
        state.lead(tp, LEADERSHIP)
    return state


def sent(state: ClusterState, batch: RequestBatch) -> tuple[Any, ...]:
    effects = list(send(state, batch))
    assert all(isinstance(e, Send) for e in effects)
    return tuple(r for e in effects if isinstance(e, Send) for r in e.requests)


def test_one_partition_told_twice_stays_new(state: ClusterState) -> None:
    batch = RequestBatch()
    batch.add_leader_and_isr((1,), TP, is_new=True)
    batch.add_leader_and_isr((1,), TP, is_new=False)
    (entry,) = sent(state, batch)[0].partition_states
    assert entry.is_new


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
def test_one_replica_stopped_twice_is_deleted_if_one_of_them_says_so(
    state: ClusterState, first: bool, second: bool
) -> None:
    batch = RequestBatch()
    for delete in (first, second):
        batch.add_stop_replica(BrokerId(1), TP, stop_epoch(state, TP), delete=delete)
    (request,) = sent(state, batch)
    assert [e.delete_partition for e in request.partition_states] == [first or second]


def test_order_and_addressees(state: ClusterState) -> None:
    """1 is live, 2 is shutting down, 3 is dead: LeaderAndIsr, then UpdateMetadata, then StopReplica, to 1 and 2."""
    batch = RequestBatch()
    for tp in (TP, OTHER):
        batch.add_leader_and_isr((3, 2, 1), tp, is_new=False)
        for b in (3, 1):
            batch.add_stop_replica(BrokerId(b), tp, stop_epoch(state, tp), delete=False)
    requests = sent(state, batch)
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


#: who leads -> whether the request says where it is
LEADERS = {
    "it lives": (1, True),
    "it shuts down": (2, True),
    "it is gone": (3, False),
    "it has no listener for brokers": (4, False),
    "nobody": (None, False),
}


@pytest.mark.parametrize("who", LEADERS)
def test_a_follower_is_told_where_its_leader_is_if_it_is_anywhere(state: ClusterState, who: str) -> None:
    client_only = Endpoint(host="b4", port=1, listener="CLIENTS"), Endpoint(host="c4", port=2, listener="MORE")
    state.broker_registered(replace(broker(4), endpoints=client_only))
    leader, is_said = LEADERS[who]
    state.lead(TP, replace(LEADERSHIP, leader=leader))
    batch = RequestBatch()
    batch.add_leader_and_isr((1,), TP, is_new=False)
    request, *_ = sent(state, batch)
    where = {leader: broker(leader).endpoints} if leader and is_said else {}
    assert {each.broker_id: each.endpoints for each in request.live_leaders} == where
    assert [e.state.leader for e in request.partition_states] == [leader]


@pytest.mark.parametrize("brokers", [(), (3,), (9, -1), (1,), (2, 3), (3, 2, 1)])
@pytest.mark.parametrize("is_new", [False, True])
def test_everybody_hears_who_leads_whoever_replicates_it(
    state: ClusterState, brokers: tuple[int, ...], is_new: bool
) -> None:
    """Also when no replica is left that could be told: else clients would go on asking who is gone."""
    batch = RequestBatch()
    batch.add_leader_and_isr(map(BrokerId, brokers), TP, is_new=is_new)
    requests = sent(state, batch)
    metadata = {r.to: r.partition_states for r in requests if isinstance(r, UpdateMetadataRequest)}
    assert {to: [e.topic_partition for e in states] for to, states in metadata.items()} == {1: [TP], 2: [TP]}
    assert [r.to for r in requests if isinstance(r, LeaderAndIsrRequest)] == sorted({1, 2} & set(brokers))


def test_metadata_without_leadership_still_lists_brokers(state: ClusterState) -> None:
    batch = RequestBatch()
    batch.add_update_metadata_to_all((TopicPartition("unknown", 0),))
    requests = sent(state, batch)
    assert [r.to for r in requests] == [1, 2]
    assert requests[0].partition_states == ()


def test_a_topic_in_deletion(state: ClusterState) -> None:
    state.deletion_queued(("t",))
    batch = RequestBatch()
    batch.add_update_metadata((1,), (TP, OTHER))
    batch.add_stop_replica(BrokerId(1), TP, stop_epoch(state, TP), delete=False)
    batch.add_stop_replica(
        BrokerId(1), TopicPartition("unknown", 0), stop_epoch(state, TopicPartition("unknown", 0)), delete=False
    )
    metadata, stop = sent(state, batch)
    assert [(e.topic_partition, e.being_deleted) for e in metadata.partition_states] == [(OTHER, False), (TP, True)]
    assert [e.leader_epoch for e in stop.partition_states] == [-2, -1]


def test_a_batch_says_what_the_state_says_when_it_is_sent(state: ClusterState) -> None:
    batch = RequestBatch()
    batch.add_leader_and_isr((1, -1, 9), TP, is_new=True)
    batch.add_stop_replica(BrokerId(2), TP, stop_epoch(state, TP), delete=False)
    state.lead(TP, replace(LEADERSHIP, leader_epoch=6))
    leaders, *metadata, stop = sent(state, batch)
    assert leaders.to == 1 and [e.state.leader_epoch for e in leaders.partition_states] == [6]
    assert [[e.state.leader_epoch for e in m.partition_states] for m in metadata] == [[6], [6]]
    assert [e.leader_epoch for e in stop.partition_states] == [5], "a stop carries the epoch of when it was decided"
    assert sent(state, batch) == (leaders, *metadata, stop), "sending changes nothing"


@pytest.mark.parametrize("seed", range(20))
def test_many_partitions_of_a_broker_are_told_as_one_by_one(state: ClusterState, seed: int) -> None:
    """In whatever order they come, and whichever of them are new."""
    chance, many, single = Random(seed), RequestBatch(), RequestBatch()
    for _ in range(6):
        broker_id, is_new = BrokerId(chance.randrange(1, 4)), chance.random() < 0.5
        partitions = chance.sample((TP, OTHER, TopicPartition("unknown", 0)), chance.randrange(1, 4))
        many.add_leader_and_isr_of(broker_id, partitions, is_new=is_new)
        for tp in partitions:
            single.add_leader_and_isr((broker_id,), tp, is_new=is_new)
    assert many.leader_and_isr == single.leader_and_isr
    assert sent(state, many) == sent(state, single)


def test_of_one_partition_each_broker_hears_whether_its_own_replica_is_new(state: ClusterState) -> None:
    batch = RequestBatch()
    batch.add_leader_and_isr((1,), TP, is_new=False)
    batch.add_leader_and_isr((2,), TP, is_new=True)
    batch.add_leader_and_isr((1,), OTHER, is_new=True)
    batch.add_leader_and_isr((2,), OTHER, is_new=False)
    requests = [r for r in sent(state, batch) if isinstance(r, LeaderAndIsrRequest)]
    assert {r.to: {e.topic_partition: e.is_new for e in r.partition_states} for r in requests} == {
        1: {TP: False, OTHER: True},
        2: {TP: True, OTHER: False},
    }


def test_a_failed_dir_is_told_of_the_partitions_in_it_and_of_no_others(state: ClusterState) -> None:
    """Though they have the same replicas."""
    state.log_dirs_answered(BrokerId(1), online=set(), offline={TP})
    batch = RequestBatch()
    batch.add_update_metadata((1,), (TP, OTHER))
    (request,) = sent(state, batch)
    assert state.assignment(TP).replicas == state.assignment(OTHER).replicas
    assert {e.topic_partition: 1 in e.offline_replicas for e in request.partition_states} == {TP: True, OTHER: False}


RACKS = [(("a", "b"), "a"), (("b", "a"), "a"), (("a", None), None), ((None, "a"), None), ((None, None), None)]


@pytest.mark.parametrize(("racks", "shown"), RACKS)
def test_the_controller_has_a_rack_where_all_brokers_have_one(
    state: ClusterState, racks: tuple[str | None, ...], shown: str | None
) -> None:
    for number, rack in enumerate(racks, 1):
        state.broker_registered(replace(broker(number), rack=rack))
    batch = RequestBatch()
    batch.add_update_metadata((1,), ())
    (request,) = sent(state, batch)
    assert {each.broker_id: each.rack for each in request.live_brokers} == {1: racks[0], 2: racks[1], 100: shown}
