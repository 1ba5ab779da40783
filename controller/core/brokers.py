"""Brokers come, go, bounce, change their endpoints and lose log directories.

Source: Kafka 3.9 `KafkaController.processBrokerChange`, `onBrokerStartup`, `onBrokerFailure`,
`onReplicasBecomeOffline`; spec controller.md §11.1 to §11.4, §11.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import chain

from controller.core.deletion import fail, resume_for
from controller.core.effects import (
    AddBrokers,
    Enqueue,
    Log,
    RemoveBrokers,
    Steps,
    Trace,
    read,
    read_any,
    refused_znode,
)
from controller.core.events import BrokerChange, LeaderAndIsrResponseReceived
from controller.core.partitions import change_partitions, leaderless_go_offline, trigger_online
from controller.core.reassignment import resume_all
from controller.core.replicas import change_replicas_on
from controller.core.request_batch import send_all_metadata, send_metadata, send_metadata_to_all
from controller.core.settings import RETRY_MS
from controller.core.state import ClusterState
from controller.core.state_znodes import Failure
from controller.core.transitions import PartitionState, ReplicaState, legal_replica
from controller.core.view import Replicas
from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode
from controller.wire.trace import TraceEvent
from controller.wire.types import NO_BROKER_EPOCH, Broker, BrokerId, PartitionReplica, TopicPartition
from controller.wire.zk_operations import GetChildren, GetData, ZkCode
from controller.wire.znodes import BrokerIdsZNode, BrokerIdZNode, ZnodeError


def read_brokers(before: Mapping[BrokerId, Broker]) -> Steps[dict[BrokerId, Broker]]:
    """All registered brokers with their epochs; watches the list and each registration. One read at processing time,
    however many events are queued. A registration that does not parse, or cannot be read, is logged and believed to be
    what it was, if it was in `before`; else it is left out (docs/deviations.md). Raises: ZkReadFailed, for the list."""
    (listed,) = yield from read(GetChildren(BrokerIdsZNode.path, watch=True))
    ids = BrokerIdsZNode.ids(listed.children)
    results = yield from read_any([GetData(BrokerIdZNode.path(b), watch=True) for b in ids])
    brokers: dict[BrokerId, Broker] = {}
    for broker_id, result in zip(ids, results, strict=True):
        if result.ok and result.stat is not None:
            try:
                brokers[broker_id] = BrokerIdZNode.decode(broker_id, result.data, result.stat.czxid)
            except ZnodeError as error:
                yield refused_znode(BrokerIdZNode.path(broker_id), error)
                if broker_id in before:  # who lives under it is the same where the znode is; else it is a bounce
                    brokers[broker_id] = replace(before[broker_id], broker_epoch=result.stat.czxid)
        elif result.code is not ZkCode.NO_NODE:
            yield refused_znode(BrokerIdZNode.path(broker_id), result.code.name)
            yield Enqueue(BrokerChange(), RETRY_MS)
            if broker_id in before:
                brokers[broker_id] = before[broker_id]
    return brokers


def brokers_changed(state: ClusterState) -> Steps[None]:
    """New, bounced and dead brokers, in this order; a larger epoch alone tells a bounce.

    While the new ones start, those that bounced are told what concerns them in their epoch of before, and refuse it, as
    in Kafka. Source: `KafkaController.processBrokerChange`.
    """
    before = state.live_brokers
    registered = yield from read_brokers(before)
    new = sorted(registered.keys() - before.keys())
    dead = sorted(before.keys() - registered.keys())
    bounced = sorted(b for b in registered.keys() & before if registered[b].broker_epoch > before[b].broker_epoch)
    if new or dead or bounced:
        fields = {"new": new, "dead": dead, "bounced": bounced, "live": sorted(registered)}
        yield Log(ev.BROKERS_CHANGED, fields)
    if new:
        yield AddBrokers(tuple(registered[b] for b in new))
    if bounced:
        yield RemoveBrokers(tuple(bounced))
        yield AddBrokers(tuple(registered[b] for b in bounced))
    if dead:
        yield RemoveBrokers(tuple(dead))
    if new:
        yield from _start(state, [registered[b] for b in new])
    if bounced:
        yield from _fail(state, bounced)
        yield from _start(state, [registered[b] for b in bounced])
    if dead:
        yield from _fail(state, dead)


def _start(state: ClusterState, brokers: Sequence[Broker]) -> Steps[None]:
    """The others learn of the new ones, these learn everything, then take up their replicas. Source: §11.2."""
    ids = {broker.broker_id for broker in brokers}
    for broker in brokers:
        state.broker_registered(broker)
        yield from _trace(state, TraceEvent.BROKER_UP, broker.broker_id)
    yield from send_metadata(state, state.live_brokers.keys() - ids)
    yield from send_all_metadata(state, ids)
    replicas = state.replicas_on(ids)
    yield from _come_online(state, replicas)
    yield from trigger_online(state)
    yield from resume_all(state, lambda tp: _lets_go_on(state, tp, ids))
    yield from resume_for(state, {tp.topic for partitions in replicas.values() for tp in partitions})


def _lets_go_on(state: ClusterState, tp: TopicPartition, started: Set[BrokerId]) -> bool:
    """Whether the move of this partition goes on with brokers that start: a target has come, or the leader of a topic
    that waits to be deleted. Nobody is elected for such a topic, so no election tells the others of a leader that comes
    back: who heard of it while it was dead does not follow it until a new leader epoch (docs/deviations.md)."""
    if started & {*state.assignment(tp).target_replicas}:
        return True
    leadership = state.leadership(tp)
    return leadership is not None and leadership.leader in started and state.is_queued_for_deletion(tp.topic)


def _fail(state: ClusterState, broker_ids: Sequence[BrokerId]) -> Steps[None]:
    """Their leaderships move, their replicas leave the ISRs. Source: §11.3."""
    for broker_id in broker_ids:
        state.broker_gone(broker_id)
        yield from _trace(state, TraceEvent.BROKER_DOWN, broker_id)
    yield from replicas_became_offline(state, state.replicas_on(broker_ids))


def _trace(state: ClusterState, event: TraceEvent, broker_id: BrokerId) -> Steps[None]:
    if state.settings.trace:
        yield Trace(event.value, {"replica": broker_id})


def replicas_became_offline(state: ClusterState, replicas: Replicas) -> Steps[None]:
    """First new leaders, then smaller ISRs, then topics in deletion."""
    in_deletion: list[PartitionReplica] = []
    others: dict[BrokerId, list[TopicPartition]] = {}
    for broker_id, partitions in replicas.items():
        kept = [tp for tp in partitions if not state.is_queued_for_deletion(tp.topic) and state.is_begun(tp, broker_id)]
        if kept:
            others[broker_id] = kept
        in_deletion += (PartitionReplica(tp, broker_id) for tp in partitions if state.is_queued_for_deletion(tp.topic))
    yield from change_partitions(state, state.partitions_with_offline_leader(), PartitionState.OFFLINE)
    elected = yield from trigger_online(state)
    all_know = yield from change_replicas_on(state, others, ReplicaState.OFFLINE)
    yield from leaderless_go_offline(state, chain.from_iterable(others.values()))
    if in_deletion:
        yield from fail(state, in_deletion)
    if not all_know and all(isinstance(outcome, Failure) for outcome in elected.values()):
        yield from send_metadata_to_all(state)  # else nobody would learn that the broker is gone


def registration_changed(state: ClusterState, broker_id: BrokerId) -> Steps[None]:
    """A broker rewrote its registration: other endpoints are passed on, another rack alone is not. Source: §11.4."""
    (result,) = yield from read(GetData(BrokerIdZNode.path(broker_id), watch=True))
    if not result.ok:
        return
    registered = state.live_brokers.get(broker_id)
    if registered is None:  # a registration that could not be read before
        yield Enqueue(BrokerChange())
        return
    try:
        found = BrokerIdZNode.decode(broker_id, result.data, registered.broker_epoch)
    except ZnodeError as error:
        yield refused_znode(BrokerIdZNode.path(broker_id), error)
        return
    if set(found.endpoints) != set(registered.endpoints):
        state.registration_changed(found)
        yield AddBrokers((found,))  # what waits for it goes to the new address
        yield from send_metadata_to_all(state)


def probe_log_dirs(state: ClusterState, broker_ids: Iterable[BrokerId]) -> Steps[None]:
    """Asks these brokers about all their replicas, by LeaderAndIsr with the leader epochs they know."""
    yield from _come_online(state, state.replicas_on(set(broker_ids)))


def _come_online(state: ClusterState, replicas: Replicas) -> Steps[None]:
    """All but those that are being deleted, or are already, and those that a move which waits has not begun yet."""
    if state.topics_with_deletion_started or state.moves_that_wait:
        replicas = {b: _ready(state, b, partitions, ReplicaState.ONLINE) for b, partitions in replicas.items()}
    yield from change_replicas_on(state, replicas, ReplicaState.ONLINE)


def _ready(
    state: ClusterState, broker_id: BrokerId, partitions: Iterable[TopicPartition], target: ReplicaState
) -> list[TopicPartition]:
    """Those whose replica may take that state."""
    return [tp for tp in partitions if legal_replica(state.replica_state(PartitionReplica(tp, broker_id)), target)]


def leader_and_isr_answered(state: ClusterState, event: LeaderAndIsrResponseReceived) -> Steps[None]:
    """Learns from the answers which replicas are in failed log directories. One that is in a good one again, and whose
    partition has no leader, is looked at (in Kafka by nobody), and what a broker said in a former life says nothing of
    its dirs now (docs/deviations.md). Source: §11.6."""
    if event.request_error is not ErrorCode.NONE:
        yield _request_refused("LeaderAndIsr", event.broker_id, event.request_error)
        return
    now = state.live_brokers.get(event.broker_id)
    if event.broker_epoch not in (NO_BROKER_EPOCH, now and now.broker_epoch):
        return
    offline = {tp for tp, error in event.partition_errors.items() if error is ErrorCode.KAFKA_STORAGE_ERROR}
    online = {tp for tp, error in event.partition_errors.items() if error is ErrorCode.NONE}
    had_failed = state.offline_dirs.get(event.broker_id, set()) & online
    new = state.log_dirs_answered(event.broker_id, online=online, offline=offline)
    if any(state.partition_state(tp) is PartitionState.OFFLINE for tp in had_failed):
        yield from trigger_online(state)
    if here := _ready(state, event.broker_id, sorted(new), ReplicaState.OFFLINE):  # a move may have removed others
        yield from replicas_became_offline(state, {event.broker_id: here})


def update_metadata_answered(broker_id: BrokerId, error: ErrorCode) -> Steps[None]:
    """Only a refusal is worth a line."""
    if error is not ErrorCode.NONE:
        yield _request_refused("UpdateMetadata", broker_id, error)


def _request_refused(request: str, broker_id: BrokerId, error: ErrorCode) -> Log:
    return Log(ev.REQUEST_REFUSED, {"request": request, "broker": broker_id, "error": error.name}, "error")
