"""The replica state machine: replicas are created, come and go with their brokers, and are deleted.

One call is one batch, worked off broker by broker in ascending order. A replica that goes offline leaves the ISR,
except the last one, which stays: then only the leader goes.

Source: Kafka 3.9 `ZkReplicaStateMachine`; spec controller.md §5.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from controller.core.effects import Log, Steps, log_transitions
from controller.core.request_batch import RequestBatch, send, stop_epoch
from controller.core.state import ClusterState
from controller.core.state_znodes import Failure, Outcome, begun, decided, log_reduced, read_states, write_states
from controller.core.transitions import ReplicaState, Transition, legal_replica
from controller.core.view import Replicas
from controller.wire import log_events as ev
from controller.wire.types import BrokerId, LeaderAndIsr, PartitionReplica, TopicPartition


def change_replicas(state: ClusterState, replicas: Iterable[PartitionReplica], target: ReplicaState) -> Steps[None]:
    """As `change_replicas_on`, of replicas one by one."""
    by_broker: dict[BrokerId, dict[TopicPartition, None]] = {}
    for tp, broker_id in replicas:
        by_broker.setdefault(broker_id, {})[tp] = None
    yield from change_replicas_on(state, {b: sorted(partitions) for b, partitions in by_broker.items()}, target)


def change_replicas_on(state: ClusterState, replicas: Replicas, target: ReplicaState) -> Steps[bool]:
    """Moves replicas to `target` and tells the brokers; replicas whose move is illegal are logged and left. Returns
    whether all brokers got metadata.

    `replicas` names the partitions of each broker, sorted.
    """
    batch = RequestBatch()
    done: list[Transition[ReplicaState]] = []
    for broker_id in sorted(replicas):
        valid: list[TopicPartition] = []
        partitions = list(dict.fromkeys(replicas[broker_id]))  # an assignment by znode may name a broker twice
        for tp, current in zip(partitions, state.replica_states(broker_id, partitions), strict=True):
            if legal_replica(current, target):
                valid.append(tp)
            else:
                yield _refused(PartitionReplica(tp, broker_id), current, target)
        if valid:
            done.append((yield from _change_on(state, batch, broker_id, valid, target)))
    yield from log_transitions(done)
    return (yield from send(state, batch))


def _refused(replica: PartitionReplica, current: ReplicaState, target: ReplicaState) -> Log:
    tp = replica.topic_partition
    fields = {"topic": tp.topic, "partition": tp.partition, "replica": replica.replica}
    return Log(ev.TRANSITION_REFUSED, {**fields, "from": current.kafka_name, "to": target.kafka_name}, "error")


def _change_on(
    state: ClusterState,
    batch: RequestBatch,
    broker_id: BrokerId,
    partitions: Sequence[TopicPartition],
    target: ReplicaState,
) -> Steps[Transition[ReplicaState]]:
    match target:
        case ReplicaState.NEW:
            return (yield from _to_new(state, batch, broker_id, partitions))
        case ReplicaState.ONLINE:
            return _to_online(state, batch, broker_id, partitions)
        case ReplicaState.OFFLINE:
            return (yield from _to_offline(state, batch, broker_id, partitions))
        case ReplicaState.DELETION_STARTED:
            for tp in partitions:
                batch.add_stop_replica(broker_id, tp, stop_epoch(state, tp), delete=True)
        case ReplicaState.DELETION_INELIGIBLE | ReplicaState.DELETION_SUCCESSFUL:
            pass
        case ReplicaState.NON_EXISTENT:
            for tp in partitions:
                state.assign(tp, state.assignment(tp).without(broker_id))
    return state.put_replica_states(broker_id, partitions, target)


def _to_new(
    state: ClusterState, batch: RequestBatch, broker_id: BrokerId, partitions: Sequence[TopicPartition]
) -> Steps[Transition[ReplicaState]]:
    follow: list[TopicPartition] = []
    for tp in partitions:
        leadership = state.leadership(tp)
        if leadership is not None and leadership.leader == broker_id:
            yield _refused(PartitionReplica(tp, broker_id), ReplicaState.NON_EXISTENT, ReplicaState.NEW)
        else:
            follow.append(tp)
    batch.add_leader_and_isr_of(broker_id, follow, is_new=True)
    return state.put_replica_states(broker_id, follow, ReplicaState.NEW)


def _to_online(
    state: ClusterState, batch: RequestBatch, broker_id: BrokerId, partitions: Sequence[TopicPartition]
) -> Transition[ReplicaState]:
    """New replicas were told when their partition got its leader; the others are told now. All are of the assignment;
    Kafka would add a new one to it that is not."""
    states = zip(partitions, state.replica_states(broker_id, partitions), strict=True)
    batch.add_leader_and_isr_of(broker_id, [tp for tp, now in states if now is not ReplicaState.NEW], is_new=False)
    return state.put_replica_states(broker_id, partitions, ReplicaState.ONLINE)


def _to_offline(
    state: ClusterState, batch: RequestBatch, broker_id: BrokerId, partitions: Sequence[TopicPartition]
) -> Steps[Transition[ReplicaState]]:
    for tp in partitions:  # with the leader epoch of before the change
        batch.add_stop_replica(broker_id, tp, stop_epoch(state, tp), delete=False)
    led = [tp for tp in partitions if state.leadership(tp) is not None]
    never_led = [tp for tp in partitions if state.leadership(tp) is None]
    outcomes = (yield from _remove_from_isr(state, broker_id, led)) if led else {}
    reduced: dict[TopicPartition, LeaderAndIsr] = {}
    vanished: list[TopicPartition] = []
    for tp in led:
        match outcomes.get(tp):
            case LeaderAndIsr() as known:
                reduced[tp] = known
                if not state.is_queued_for_deletion(tp.topic):
                    others = [r for r in state.assignment(tp).replicas if r != broker_id]
                    batch.add_leader_and_isr(others, tp, is_new=False)
            case Failure() if tp.topic in state.topics_with_deletion_started:
                vanished.append(tp)  # its records are to go whatever its ISR says
            case Failure(reason=reason):
                fields = {"topic": tp.topic, "partition": tp.partition, "replica": broker_id, "reason": reason}
                yield Log(ev.PARTITION_ISR_KEPT, fields, "error")
            case None:  # queued for deletion and its znode is gone: there is no ISR to leave
                vanished.append(tp)
    yield from log_reduced(broker_id, reduced)
    if never_led:
        batch.add_update_metadata_to_all(never_led)
    return state.put_replica_states(broker_id, (*reduced, *never_led, *vanished), ReplicaState.OFFLINE)


def _remove_from_isr(
    state: ClusterState, broker_id: BrokerId, partitions: Sequence[TopicPartition]
) -> Steps[dict[TopicPartition, Outcome]]:
    """Takes a broker out of the ISR of these partitions. Where it is not in the ISR nothing is written, yet that is
    success and what was read is believed. Partitions that are queued for deletion and have no state are left out.

    That it is in the ISR is believed, since the write will tell; that it is not, or alone and no replica, is read
    (known-failures.md R1). Who alone is in sync, and is to be deleted by a move, stays (docs/deviations.md).
    """
    outcomes: dict[TopicPartition, Outcome] = {}
    found = {
        tp: was
        for tp in partitions
        if (was := state.leadership(tp)) and broker_id in was.isr and not _is_alone(state, tp, was, broker_id)
    }
    remaining = list(partitions)
    while remaining:
        unsure = [tp for tp in remaining if tp not in found]
        for tp, read in (yield from read_states(state, unsure)).items() if unsure else ():
            if not isinstance(read, Failure):
                found[tp] = read
            else:
                outcomes[tp] = read
        reduced: dict[TopicPartition, LeaderAndIsr] = {}
        for tp in remaining:
            was = found.get(tp)
            if was is None:
                continue
            if _is_alone(state, tp, was, broker_id):
                outcomes[tp] = Failure(f"{broker_id} alone is in sync with {tp}, which a move takes away")
            elif broker_id in was.isr:
                reduced[tp] = without(state, tp, was, broker_id)
            else:
                outcomes[tp] = _believe(state, tp, was)
        found, remaining = {}, []
        if reduced:
            written, remaining = yield from write_states(state, reduced)
            outcomes.update(written)
    return {tp: outcome for tp, outcome in outcomes.items() if not _went_with_its_topic(state, tp, outcome)}


def _is_alone(state: ClusterState, tp: TopicPartition, was: LeaderAndIsr, broker_id: BrokerId) -> bool:
    return was.isr == (broker_id,) and broker_id not in state.assignment(tp).replicas


def _went_with_its_topic(state: ClusterState, tp: TopicPartition, outcome: Outcome) -> bool:
    return isinstance(outcome, Failure) and outcome.missing and state.is_queued_for_deletion(tp.topic)


def _believe(state: ClusterState, tp: TopicPartition, read: LeaderAndIsr) -> LeaderAndIsr:
    """As read, with the epoch of this controller, which Kafka notes without writing it."""
    believed = state.leadership(tp)
    if believed is None or believed != read or read.controller_epoch != state.epoch:
        believed = replace(read, controller_epoch=state.epoch)
        state.lead(tp, believed)
    return believed


def without(state: ClusterState, tp: TopicPartition, found: LeaderAndIsr, broker_id: BrokerId) -> LeaderAndIsr:
    """What to write when `broker_id`, an ISR member, goes: the last member stays in the ISR, but no longer leads.

    So does the last one that is a replica and was begun. Whom it took back as a leader, though a move had dropped that
    one, has no records; a leader that a move has dropped is stopped, and comes back for nobody (docs/deviations.md).
    """
    left, replicas = tuple(r for r in found.isr if r != broker_id), begun(state, tp, state.assignment(tp))
    has_the_records = broker_id in replicas and set(left).isdisjoint(replicas)
    leader = None if has_the_records or found.leader == broker_id else found.leader
    return decided(state, found, leader=leader, isr=(broker_id,) if has_the_records else left)
