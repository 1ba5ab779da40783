"""Topic deletion: queued, started, tracked replica by replica, and completed when every replica is gone.

What is to be deleted is known from `/admin/delete_topics` alone, so a successor starts over from there.

Source: Kafka 3.9 `TopicDeletionManager`; spec controller.md §10.4 to §10.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from controller.core.effects import Enqueue, Log, Steps, read, read_any, write
from controller.core.events import TopicDeletion, ZkPartitionReassignment
from controller.core.partitions import change_partitions
from controller.core.replicas import change_replicas
from controller.core.request_batch import send_metadata_to_all
from controller.core.settings import RETRY_MS
from controller.core.state import ClusterState
from controller.core.state_znodes import read_states, trace_deletions
from controller.core.transitions import PartitionState, ReplicaState, legal_replica
from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, LeaderAndIsr, PartitionReplica, ReplicaAssignment, TopicPartition
from controller.wire.zk_operations import Delete, GetChildren, ZkCode
from controller.wire.znodes import (
    ConfigEntityZNode,
    DeleteTopicsTopicZNode,
    DeleteTopicsZNode,
    TopicPartitionStateZNode,
    TopicPartitionsZNode,
    TopicPartitionZNode,
    TopicZNode,
)

#: Why a deletion waits.
OFFLINE: Final = "replicas are offline"
MOVING: Final = "a partition is being reassigned"


def remove_markers(state: ClusterState, topics: Iterable[str]) -> Steps[None]:
    """Deletes the markers of topics that will not be deleted."""
    ops = tuple(Delete(DeleteTopicsTopicZNode.path(topic)) for topic in sorted(topics))
    if ops:
        yield from write(ops, state.epoch_zk_version)


def initialize(state: ClusterState, topics: set[str], obstacles: Mapping[str, set[str]]) -> Steps[None]:
    """What failover does with the markers it finds: queue them, or remove them where deletion is disabled.

    `obstacles`: reason -> topics whose deletion waits for it.
    """
    if not state.settings.delete_topic_enable:
        yield from remove_markers(state, topics)
        return
    state.deletion_queued(topics)
    for reason, waiting in obstacles.items():
        yield from mark_ineligible(state, waiting, reason)


def markers_changed(state: ClusterState) -> Steps[None]:
    """`/admin/delete_topics` has other children. Source: Kafka `processTopicDeletion`."""
    (listed,) = yield from read(GetChildren(DeleteTopicsZNode.path, watch=True))
    marked = set(listed.children)
    unknown = marked - state.topics
    for topic in sorted(unknown):
        yield Log(ev.TOPIC_DELETION_WAITED, {"topic": topic, "reason": "there is no such topic"}, "warning")
    yield from remove_markers(state, unknown)
    marked -= unknown
    if not state.settings.delete_topic_enable:
        yield from remove_markers(state, marked)
    elif marked:
        # Kafka marks moving topics ineligible here, before they are queued, which has no effect on new ones: a deletion
        # does not wait for a reassignment (spec controller.md §8.7). One that began must not wait for it at the next
        # marker either, which it does in Kafka: a move of what is half deleted never ends.
        yield from mark_ineligible(state, marked & topics_kept_by_moves(state), MOVING)
        state.deletion_queued(sorted(marked))
        yield from resume(state)


def mark_ineligible(state: ClusterState, topics: Iterable[str], reason: str) -> Steps[None]:
    """Makes the deletion of these topics wait; those that are not queued are not affected."""
    queued = sorted(state.topics_to_be_deleted & set(topics))
    state.deletion_waits(queued)
    for topic in queued:
        fields = {"topic": topic, "reason": reason, "brokers": _missing_brokers(state, topic)}
        yield Log(ev.TOPIC_DELETION_WAITED, fields, "warning")


def _missing_brokers(state: ClusterState, topic: str) -> list[BrokerId]:
    """The brokers a deletion waits for (known-failures.md X2: made visible)."""
    return sorted({r for a in state.topic_assignment(topic).values() for r in a.replicas if not state.is_live(r)})


def topics_kept_by_moves(state: ClusterState) -> set[str]:
    """The topics whose deletion must wait for a move: one of their partitions moves, and none was deleted yet. A topic
    that lacks states is half deleted, or was never made: its moves cannot end, so its deletion waits for none. Neither
    can the move of a partition that has no leader, since nobody is elected for a topic that is to be deleted."""
    moving = {tp.topic for tp in state.partitions_being_reassigned} - state.topics_with_deletion_started
    return {topic for topic in moving if all(_may_go_on(state, tp) for tp in state.partitions_of((topic,)))}


def _may_go_on(state: ClusterState, tp: TopicPartition) -> bool:
    """Whether a partition of a topic that is to be deleted has what its move needs to end."""
    found = state.leadership(tp)
    return found is not None and (found.leader is not None or tp not in state.partitions_being_reassigned)


def resume_for(state: ClusterState, topics: Iterable[str]) -> Steps[None]:
    """An obstacle to the deletion of these topics is gone; those that wait for a move go on waiting."""
    queued = (state.topics_to_be_deleted & set(topics)) - topics_kept_by_moves(state)
    if queued:
        state.deletion_may_go_on(queued)
        yield from resume(state)


def fail(state: ClusterState, replicas: Iterable[PartitionReplica]) -> Steps[None]:
    """These replicas could not be deleted; their topics wait."""
    failed = [r for r in replicas if state.is_queued_for_deletion(r.topic_partition.topic)]
    if failed:
        yield from _wait_for(state, failed)
        yield from mark_ineligible(state, {r.topic_partition.topic for r in failed}, "replicas could not be deleted")
        yield from resume(state)


def _wait_for(state: ClusterState, replicas: Sequence[PartitionReplica]) -> Steps[None]:
    """Replicas that cannot be deleted now. One that was not stopped yet (its broker is leaving, or died before it was
    asked) stays what it is: its topic waits all the same, and its broker's return goes on with it."""
    stopped = [r for r in replicas if legal_replica(state.replica_state(r), ReplicaState.DELETION_INELIGIBLE)]
    yield from change_replicas(state, stopped, ReplicaState.DELETION_INELIGIBLE)


def answered(
    state: ClusterState,
    broker_id: BrokerId,
    request_error: ErrorCode,
    partition_errors: Iterable[tuple[TopicPartition, ErrorCode]],
) -> Steps[None]:
    """A broker answered StopReplica with deletions. Only topics whose deletion has started matter: replicas that a
    reassignment deletes are not tracked. Source: spec controller.md §7.7, §10.6."""
    mine = [(tp, e) for tp, e in partition_errors if tp.topic in state.topics_with_deletion_started]
    replicas = {PartitionReplica(tp, broker_id) for tp, _ in mine}
    refused = request_error is not ErrorCode.NONE
    failed = {PartitionReplica(tp, broker_id) for tp, error in mine if refused or error is not ErrorCode.NONE}
    yield from fail(state, sorted(failed))
    if replicas - failed:
        yield from change_replicas(state, replicas - failed, ReplicaState.DELETION_SUCCESSFUL)
        yield from resume(state)


def resume(state: ClusterState) -> Steps[None]:
    """Completes, retries and starts whatever can be, of all queued topics (none, where deletion is disabled)."""
    done: list[str] = []
    retry: list[str] = []
    start: list[str] = []
    for topic in sorted(state.topics_to_be_deleted):
        found = state.deletion_states(topic)
        if topic in state.topics_with_deletion_started:
            found -= {ReplicaState.NON_EXISTENT}  # of a move that was never announced: no broker was told to make it
        if found <= {ReplicaState.DELETION_SUCCESSFUL}:
            done.append(topic)
            continue
        if ReplicaState.DELETION_STARTED in found:
            continue
        if ReplicaState.DELETION_INELIGIBLE in found:
            retry.append(topic)
        if topic not in state.topics_ineligible_for_deletion:
            start.append(topic)
    everywhere = yield from _look_everywhere(state, [topic for topic in done if not state.topic_assignment(topic)])
    done, start = [topic for topic in done if topic not in everywhere], [*start, *everywhere]
    if done:
        yield from _complete(state, done)
    if retry:
        stuck = [r for topic in retry for r in state.replicas_in(topic, ReplicaState.DELETION_INELIGIBLE)]
        yield from change_replicas(state, stuck, ReplicaState.OFFLINE)
    if start:
        yield from _start(state, start)


def _look_everywhere(state: ClusterState, topics: Sequence[str]) -> Steps[list[str]]:
    """Topics whose znode says nothing, though partitions were made: any broker may have replicas of them. A log that
    stays would refuse the epochs of a later topic of that name. So each live broker counts as one that has them all;
    one that has not says yes to a StopReplica, too. All of them forget the partitions. Returns those topics."""
    brokers = tuple(sorted(state.live_brokers))
    if not topics or not brokers:
        return []
    found: list[str] = []
    listed = yield from read_any([GetChildren(TopicPartitionsZNode.path(topic)) for topic in topics])
    for topic, result in zip(topics, listed, strict=True):
        partitions = [TopicPartition(topic, p) for p in TopicPartitionsZNode.numbers(result.children)]
        if not partitions:
            continue
        # Read before they count as replicas: what the dead were in sync of is sound, though none of them is one.
        states = yield from read_states(state, partitions)
        for tp in partitions:
            state.assign(tp, ReplicaAssignment(replicas=brokers))
        state.put_partition_states(partitions, PartitionState.NEW)
        for broker in brokers:
            state.put_replica_states(broker, partitions, ReplicaState.NEW)
        # Brokers are told of partitions with a state alone.
        state.lead_all({tp: was for tp, was in states.items() if isinstance(was, LeaderAndIsr)})
        found.append(topic)
    return found


def _start(state: ClusterState, topics: Sequence[str]) -> Steps[None]:
    """Tells brokers to forget the topics, then to stop and delete their replicas. Source: spec controller.md §10.5."""
    fresh = [topic for topic in topics if topic not in state.topics_with_deletion_started]
    if fresh:
        partitions = state.partitions_of(fresh)
        for tp in partitions:
            if dropped := left_over(state, tp):  # they go with their topic
                was = state.assignment(tp)
                state.assign(tp, replace(was, replicas=(*was.replicas, *dropped)))
        yield from trace_deletions(state, partitions)
        yield from change_partitions(state, partitions, PartitionState.OFFLINE)
        yield from change_partitions(state, partitions, PartitionState.NON_EXISTENT)
        state.deletion_started(fresh)
        for topic in fresh:
            yield Log(ev.TOPIC_DELETION_STARTED, {"topic": topic})
    yield from send_metadata_to_all(state, state.partitions_of(topics))
    dead: list[PartitionReplica] = []
    alive: list[PartitionReplica] = []
    for replica in state.replicas_of(state.partitions_of(topics)):
        if not state.is_online(replica.replica, replica.topic_partition):
            dead.append(replica)
        elif state.replica_state(replica) not in (ReplicaState.DELETION_SUCCESSFUL, ReplicaState.NON_EXISTENT):
            alive.append(replica)
    yield from _wait_for(state, dead)
    yield from change_replicas(state, alive, ReplicaState.OFFLINE)
    yield from change_replicas(state, alive, ReplicaState.DELETION_STARTED)
    yield from mark_ineligible(state, {r.topic_partition.topic for r in dead}, OFFLINE)


def left_over(state: ClusterState, tp: TopicPartition) -> list[BrokerId]:
    """Whom a move has dropped, and could not stop, as far as they live. The move may have gone on, or ended, without
    one that was dead when it was tried again, and has come back since."""
    return [broker for broker in state.begun_elsewhere(tp) if broker in state.live_brokers]


def _complete(state: ClusterState, topics: Sequence[str]) -> Steps[None]:
    """Every replica is gone: the znodes follow, deepest first, then configs, then the marker.

    The marker goes last, so a successor finds what is left; before it nothing is waited for
    (known-failures.md X3). It stays where znodes do: a topic that is half there must not come back to life.
    """
    gone = [r for topic in topics for r in state.replicas_in(topic, ReplicaState.DELETION_SUCCESSFUL)]
    partitions = state.partitions_of(topics)
    yield from change_replicas(state, gone, ReplicaState.NON_EXISTENT)
    stuck = yield from _delete_znodes(state, topics, partitions)
    for topic in sorted(stuck):
        yield Log(ev.TOPIC_DELETION_WAITED, {"topic": topic, "reason": "its znodes cannot be deleted"}, "error")
    if stuck:
        yield Enqueue(TopicDeletion(), RETRY_MS)
        topics = [topic for topic in topics if topic not in stuck]
    yield from write(tuple(Delete(DeleteTopicsTopicZNode.path(topic)) for topic in topics), state.epoch_zk_version)
    moved = any(tp.topic in topics for tp in state.partitions_being_reassigned)
    for topic in topics:
        state.topic_gone(topic)
        yield Log(ev.TOPIC_DELETED, {"topic": topic})
    if moved:  # an entry of the znode that asked for it would stay, and keep later ones from being noticed
        yield Enqueue(ZkPartitionReassignment())


def _delete_znodes(state: ClusterState, topics: Sequence[str], partitions: Sequence[TopicPartition]) -> Steps[set[str]]:
    """Deletes what is known to be there, level by level, and the configs; where something else turns up, by listing.
    Returns the topics that are still there."""
    deletes = [Delete(TopicPartitionStateZNode.path(tp)) for tp in partitions]
    deletes += [Delete(TopicPartitionZNode.path(tp)) for tp in partitions]
    deletes += [Delete(TopicPartitionsZNode.path(topic)) for topic in topics]
    of_topics = len(deletes)
    deletes += [Delete(TopicZNode.path(topic)) for topic in topics]
    deletes += [Delete(ConfigEntityZNode.topic(topic)) for topic in topics]
    results = yield from write(tuple(deletes), state.epoch_zk_version)
    stuck: set[str] = set()
    for topic, result in zip(topics, results[of_topics:], strict=False):
        if not result.ok and not (yield from delete_recursively(state, TopicZNode.path(topic))):
            stuck.add(topic)
    return stuck


def delete_recursively(state: ClusterState, path: str) -> Steps[bool]:
    """Deletes a znode with all below it, level by level, fenced. Whether it is gone, which it may have been before."""
    levels: list[list[str]] = [[path]]
    while levels[-1]:
        results = yield from read_any([GetChildren(p) for p in levels[-1]])
        levels.append(
            [f"{p}/{child}" for p, r in zip(levels[-1], results, strict=True) for child in sorted(r.children)]
        )
    for level in reversed(levels[:-1]):
        results = yield from write(tuple(Delete(p) for p in level), state.epoch_zk_version)
    return results[0].code in (ZkCode.OK, ZkCode.NO_NODE)
