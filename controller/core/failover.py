"""Taking office: everything is read anew, then everybody is told, in an order that brokers depend on.

Watches are set before or with the read they guard. Whatever happens meanwhile queues behind.

Source: Kafka 3.9 `KafkaController.onControllerFailover`, `initializeControllerContext`; spec controller.md §3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from controller.core import deletion, elections, notifications, reassignment, strangers
from controller.core.brokers import read_brokers
from controller.core.effects import AddBrokers, Enqueue, Log, Steps, log_transitions, read_any, refused_znode, write
from controller.core.events import AutoPreferredReplicaLeaderElection, ElectionTrigger, ElectionType, TopicDeletion
from controller.core.partitions import trigger_online
from controller.core.replicas import change_replicas_on
from controller.core.request_batch import send_all_replicas, send_metadata_to_all
from controller.core.state import ClusterState
from controller.core.state_znodes import believe_all, trace_assignments
from controller.core.topics import list_topics, off_the_controller, read_assignments
from controller.core.transitions import PartitionState, ReplicaState
from controller.wire import log_events as ev
from controller.wire.types import BrokerId, TopicPartition
from controller.wire.zk_operations import Create, Exists, GetData, SetData, ZkCode
from controller.wire.znodes import (
    DeleteTopicsZNode,
    FeatureZNode,
    PreferredReplicaElectionZNode,
    ReassignPartitionsZNode,
    TopicPartitionStateZNode,
    TopicPartitionZNode,
    ZnodeError,
)


def take_office(state: ClusterState) -> Steps[None]:
    """The whole failover. The comments give the steps of the specification."""
    yield from _disable_features()  # 0
    yield from read_any(  # 1, 2
        (Exists(PreferredReplicaElectionZNode.path, watch=True), Exists(ReassignPartitionsZNode.path, watch=True))
    )
    yield from notifications.discard_all(state)  # 3
    unread = yield from _read_cluster(state)  # 4
    marked = yield from notifications.children_or_later(DeleteTopicsZNode.path, TopicDeletion())  # 5
    yield from deletion.initialize(state, set(marked), _obstacles(state, marked))  # 6
    yield from send_metadata_to_all(state)  # 7: brokers must know who is alive before they can follow
    yield from _start_replicas(state)  # 8: before 9, so a leader that died meanwhile first goes, then is replaced
    yield from _start_partitions(state, unread)  # 9
    yield Log(ev.CONTROLLER_READY, {"controller_epoch": state.epoch, "brokers": sorted(state.live_brokers)})
    resumed = yield from reassignment.by_znode(state)  # 10
    yield from reassignment.resume_all(state, lambda tp: tp not in resumed)
    yield from deletion.resume(state)  # 11
    pending_elections = yield from elections.pending(state)  # 12
    if pending_elections is not None:
        yield from elections.elect(state, pending_elections, ElectionType.PREFERRED, ElectionTrigger.ZK)
    if state.settings.auto_leader_rebalance_enable:  # 13
        yield Enqueue(AutoPreferredReplicaLeaderElection(), state.settings.first_balance_check_after_ms)


def _disable_features() -> Steps[None]:
    """`/feature` says: none, disabled. What cannot be read there is left, since no feature is in use. Not fenced, as in
    Kafka."""
    (found,) = yield from read_any((GetData(FeatureZNode.path),))
    if found.code is ZkCode.NO_NODE:
        yield from write((Create(FeatureZNode.path, FeatureZNode.DISABLED),), None)
        return
    if not found.ok:
        yield refused_znode(FeatureZNode.path, found.code.name)
        return
    try:
        disabled = FeatureZNode.is_disabled(found.data)
    except ZnodeError as error:
        yield refused_znode(FeatureZNode.path, error)
        return
    if not disabled:
        yield from write((SetData(FeatureZNode.path, FeatureZNode.DISABLED),), None)


def _read_cluster(state: ClusterState) -> Steps[set[TopicPartition]]:
    """Brokers, topics, assignments, leadership; then channels to all brokers. Returns the partitions that have, or had,
    a leader of which nothing can be read."""
    for broker in (yield from read_brokers({})).values():
        state.broker_registered(broker)
    listed = yield from list_topics()
    found = yield from off_the_controller(state, (yield from read_assignments(listed)))
    topics = sorted(found)
    for topic in topics:
        state.topic_learnt(topic, found[topic])
    for topic in topics:
        learnt = state.topic_assignment(topic).items()
        state.moves_found([TopicPartition(topic, p) for p, a in learnt if a.adding_replicas or a.removing_replicas])
    if state.settings.trace:
        yield from trace_assignments(state, ((tp, state.assignment(tp)) for tp in state.partitions_of(topics)))
    unread, pairs = yield from believe_all(state, topics, notifications.READ_AT_ONCE)
    yield from strangers.drop_inherited(state, pairs)
    unread += yield from _removed(state, _without_leadership(state, topics, set(unread)))
    if state.live_brokers:
        yield AddBrokers(tuple(state.live_brokers[b] for b in sorted(state.live_brokers)))
    return set(unread)


def _without_leadership(
    state: ClusterState, topics: Iterable[str], unread: Collection[TopicPartition]
) -> list[TopicPartition]:
    some = [t for t in topics if len(state.topic_leaderships(t)) < len(state.topic_assignment(t))]
    return [tp for tp in state.partitions_of(some) if state.leadership(tp) is None and tp not in unread]


def _removed(state: ClusterState, stateless: Sequence[TopicPartition]) -> Steps[list[TopicPartition]]:
    """Those whose state znode somebody removed: their parent had a child. Nobody knows who has their records, so they
    are not begun anew: brokers would refuse the older leader epoch, and records be lost (docs/deviations.md)."""
    if not stateless:
        return []
    found = yield from read_any([Exists(TopicPartitionZNode.path(tp)) for tp in stateless])
    removed = [tp for tp, parent in zip(stateless, found, strict=True) if parent.stat and parent.stat.cversion]
    for tp in removed:
        if not state.is_queued_for_deletion(tp.topic):
            yield refused_znode(TopicPartitionStateZNode.path(tp), "it was removed; restore it, or delete the topic")
    return removed


def _obstacles(state: ClusterState, marked: Iterable[str]) -> dict[str, set[str]]:
    """Those of the marked topics whose deletion would wait, by reason: a replica is offline, or a partition moves."""
    offline = {
        tp.topic
        for tp in state.partitions_of(marked)
        if not all(state.is_online(r, tp) for r in state.assignment(tp).replicas)
    }
    return {deletion.OFFLINE: offline, deletion.MOVING: deletion.topics_kept_by_moves(state)}


def _start_replicas(state: ClusterState) -> Steps[None]:
    counts = state.replica_counts()
    online = [b for b in counts if state.is_live(b)]  # its log directories count as good until it says otherwise
    offline = state.replicas_on(counts.keys() - set(online))
    state.start_replica_states(offline, ReplicaState.DELETION_INELIGIBLE)  # to be safe should its topic be in deletion
    started = {
        ReplicaState.ONLINE.kafka_name: sum(counts[b] for b in online),
        ReplicaState.DELETION_INELIGIBLE.kafka_name: sum(map(len, offline.values())),
    }
    yield Log(ev.STATES_INITIALIZED, {"replicas": {name: count for name, count in started.items() if count}})
    yield from log_transitions([state.replicas_stay_online(b, _Replicas(state, b, counts[b])) for b in online])
    yield from send_all_replicas(state, online)
    yield from change_replicas_on(state, offline, ReplicaState.OFFLINE)


class _Replicas(Collection[TopicPartition]):
    """So many partitions with a replica on that broker: which they are hardly anybody asks (bench: failover, warm)."""

    def __init__(self, state: ClusterState, broker_id: BrokerId, count: int) -> None:
        self._state, self._broker_id, self._count = state, broker_id, count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._state.partitions_on(self._broker_id))

    def __contains__(self, tp: object) -> bool:
        return tp in self._state.partitions_on(self._broker_id)


def _start_partitions(state: ClusterState, unread: Collection[TopicPartition]) -> Steps[None]:
    """Log directories count as good until a broker says otherwise, so whose leader is live is online."""
    others: dict[PartitionState, list[TopicPartition]] = {PartitionState.NEW: [], PartitionState.OFFLINE: []}
    live = frozenset(filter(state.is_live, state.live_brokers))
    total = 0
    for topic in sorted(state.topics):
        assigned, led = state.topic_assignment(topic), state.topic_leaderships(topic)
        total += len(assigned)
        if len(led) == len(assigned) and live.issuperset([leadership.leader for leadership in led.values()]):
            continue
        for tp in state.partitions_of((topic,)):
            leadership = state.leadership(tp)
            if leadership is None:
                others[PartitionState.OFFLINE if tp in unread else PartitionState.NEW].append(tp)
            elif leadership.leader not in live:
                others[PartitionState.OFFLINE].append(tp)
    state.start_partition_states(others)
    counted = {each: len(members) for each, members in others.items()}
    counted[PartitionState.ONLINE] = total - sum(counted.values())
    counts = {each.kafka_name: counted[each] for each in _AT_START if counted[each]}
    yield Log(ev.STATES_INITIALIZED, {"partitions": counts})
    yield from trigger_online(state)


_AT_START: Final = (PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE)
