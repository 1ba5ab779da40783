"""The replica state machine: replicas are created, come and go with their brokers, and are deleted.

One call is one batch, worked off broker by broker in ascending order. A replica that goes offline leaves the ISR,
except the last one, which stays: then only the leader goes.

Source: Kafka 3.9 `ZkReplicaStateMachine`; spec controller.md §5.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from controller.core.effects import Log, Steps
from controller.core.leadership import Failure, Outcome, decided, read_states, write_states
from controller.core.requests import RequestBatch
from controller.core.state import ClusterState
from controller.core.transitions import ReplicaState, legal_replica
from controller.wire import log_events as ev
from controller.wire.types import BrokerId, LeaderAndIsr, PartitionReplica, TopicPartition


def change_replicas(state: ClusterState, replicas: Iterable[PartitionReplica], target: ReplicaState) -> Steps[None]:
    """Moves replicas to `target` and tells the brokers; replicas whose move is illegal are logged and left."""
    batch = RequestBatch(state)
    by_broker: dict[BrokerId, dict[PartitionReplica, None]] = {}
    for replica in replicas:
        by_broker.setdefault(replica.replica, {})[replica] = None
    for broker_id in sorted(by_broker):
        valid: list[PartitionReplica] = []
        for replica in sorted(by_broker[broker_id]):
            current = state.replica_state(replica)
            if legal_replica(current, target):
                valid.append(replica)
            else:
                yield _refused(replica, current, target)
        if valid:
            yield from _change_on(state, batch, broker_id, valid, target)
    yield from batch.send()


def _refused(replica: PartitionReplica, current: ReplicaState, target: ReplicaState) -> Log:
    tp = replica.topic_partition
    fields = {"topic": tp.topic, "partition": tp.partition, "replica": replica.replica}
    return Log(ev.TRANSITION_REFUSED, {**fields, "from": current.name, "to": target.name}, "error")


def _change_on(
    state: ClusterState,
    batch: RequestBatch,
    broker_id: BrokerId,
    replicas: Sequence[PartitionReplica],
    target: ReplicaState,
) -> Steps[None]:
    match target:
        case ReplicaState.NEW:
            yield from _to_new(state, batch, replicas)
        case ReplicaState.ONLINE:
            yield from _to_online(state, batch, replicas)
        case ReplicaState.OFFLINE:
            yield from _to_offline(state, batch, broker_id, replicas)
        case ReplicaState.DELETION_STARTED:
            for replica in replicas:
                state.put_replica_state(replica, target)
                batch.add_stop_replica(broker_id, replica.topic_partition, delete=True)
        case ReplicaState.DELETION_INELIGIBLE | ReplicaState.DELETION_SUCCESSFUL:
            for replica in replicas:
                state.put_replica_state(replica, target)
        case ReplicaState.NON_EXISTENT:
            for replica in replicas:
                tp = replica.topic_partition
                state.assign(tp, state.assignment(tp).without(broker_id))
                state.put_replica_state(replica, target)


def _to_new(state: ClusterState, batch: RequestBatch, replicas: Sequence[PartitionReplica]) -> Steps[None]:
    for replica in replicas:
        tp = replica.topic_partition
        leadership = state.leadership(tp)
        if leadership is not None:
            if leadership.leader == replica.replica:
                yield _refused(replica, state.replica_state(replica), ReplicaState.NEW)
                continue
            batch.add_leader_and_isr((replica.replica,), tp, leadership, state.assignment(tp), is_new=True)
        state.put_replica_state(replica, ReplicaState.NEW)


def _to_online(state: ClusterState, batch: RequestBatch, replicas: Sequence[PartitionReplica]) -> Steps[None]:
    for replica in replicas:
        tp = replica.topic_partition
        assignment, leadership = state.assignment(tp), state.leadership(tp)
        if state.replica_state(replica) is ReplicaState.NEW:
            if replica.replica not in assignment.replicas:
                yield _refused(replica, ReplicaState.NEW, ReplicaState.ONLINE)
                state.assign(tp, replace(assignment, replicas=(*assignment.replicas, replica.replica)))
        elif leadership is not None:
            batch.add_leader_and_isr((replica.replica,), tp, leadership, assignment, is_new=False)
        state.put_replica_state(replica, ReplicaState.ONLINE)


def _to_offline(
    state: ClusterState, batch: RequestBatch, broker_id: BrokerId, replicas: Sequence[PartitionReplica]
) -> Steps[None]:
    for replica in replicas:  # with the leader epoch of before the change
        batch.add_stop_replica(broker_id, replica.topic_partition, delete=False)
    partitions = [replica.topic_partition for replica in replicas]
    led = [tp for tp in partitions if state.leadership(tp) is not None]
    never_led = [tp for tp in partitions if state.leadership(tp) is None]
    outcomes = (yield from _remove_from_isr(state, broker_id, led)) if led else {}
    for tp in led:
        match outcomes.get(tp):
            case LeaderAndIsr() as known:
                yield _reduced(tp, broker_id, known)
                if not state.is_queued_for_deletion(tp.topic):
                    assignment = state.assignment(tp)
                    others = tuple(r for r in assignment.replicas if r != broker_id)
                    batch.add_leader_and_isr(others, tp, known, assignment, is_new=False)
                state.put_replica_state(PartitionReplica(tp, broker_id), ReplicaState.OFFLINE)
            case Failure(reason=reason):
                fields = {"topic": tp.topic, "partition": tp.partition, "replica": broker_id, "reason": reason}
                yield Log(ev.TRANSITION_REFUSED, fields, "error")
            case None:  # queued for deletion and its znode is gone: neither success nor failure
                pass
    for tp in never_led:
        batch.add_update_metadata_to_all((tp,))
        state.put_replica_state(PartitionReplica(tp, broker_id), ReplicaState.OFFLINE)


def _reduced(tp: TopicPartition, broker_id: BrokerId, known: LeaderAndIsr) -> Log:
    fields = {"topic": tp.topic, "partition": tp.partition, "replica": broker_id, "leader": known.leader}
    return Log(ev.PARTITION_ISR_REDUCED, {**fields, "isr": list(known.isr), "leader_epoch": known.leader_epoch})


def _remove_from_isr(
    state: ClusterState, broker_id: BrokerId, partitions: Sequence[TopicPartition]
) -> Steps[dict[TopicPartition, Outcome]]:
    """Takes a broker out of the ISR of these partitions. Where it is not in the ISR nothing is written, yet that is
    success and what was read is believed. Partitions that are queued for deletion and have no state are left out."""
    outcomes: dict[TopicPartition, Outcome] = {}
    remaining = list(partitions)
    while remaining:
        wanted: dict[TopicPartition, LeaderAndIsr] = {}
        for tp, found in (yield from read_states(state, remaining)).items():
            if isinstance(found, Failure):
                if not (found.missing and state.is_queued_for_deletion(tp.topic)):
                    outcomes[tp] = found
            elif broker_id in found.isr:
                wanted[tp] = without(state, found, broker_id)
            else:
                believed = replace(found, controller_epoch=state.epoch)
                state.lead(tp, believed)
                outcomes[tp] = believed
        remaining = []
        if wanted:
            written, remaining = yield from write_states(state, wanted)
            outcomes.update(written)
    return outcomes


def without(state: ClusterState, found: LeaderAndIsr, broker_id: BrokerId) -> LeaderAndIsr:
    """What to write when `broker_id`, an ISR member, goes: the last member stays in the ISR, but no longer leads."""
    leader = None if found.leader == broker_id else found.leader
    isr = found.isr if len(found.isr) == 1 else tuple(r for r in found.isr if r != broker_id)
    return decided(state, found, leader=leader, isr=isr)
