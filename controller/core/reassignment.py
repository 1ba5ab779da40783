"""Reassignment of replicas: asked for over the wire or by znode, in two phases, resumed by whoever is controller.

While a partition moves, its topic znode holds the union of old and new replicas with what is added and removed; that is
the only durable copy of where it came from, so it is rewritten last. Phase A announces the new replicas, phase B, once
all targets are in the ISR, moves the leader and removes the old ones.

Source: Kafka 3.9 `KafkaController.onPartitionReassignment`; spec controller.md §8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from controller.core import texts
from controller.core.deletion import delete_recursively, mark_ineligible, resume_for
from controller.core.effects import (
    Enqueue,
    ListingAnswer,
    Log,
    PartitionOutcome,
    Read,
    ReassignmentAnswer,
    Reply,
    Steps,
    Write,
)
from controller.core.election import ReassignElection
from controller.core.events import ApiPartitionReassignment, ListPartitionReassignments, ZkPartitionReassignment
from controller.core.leadership import Failure, ReassignmentFailed, bump_leader_epoch, read_states, trace_assignments
from controller.core.partitions import change_partitions
from controller.core.replicas import change_replicas
from controller.core.requests import RequestBatch, send_metadata_to_all
from controller.core.state import ClusterState
from controller.core.transitions import PartitionState, ReplicaState
from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, PartitionReplica, ReplicaAssignment, TopicPartition
from controller.wire.zk import Create, Exists, GetData, SetData, ZkCode, ZkResult
from controller.wire.znodes import ReassignPartitionsZNode, TopicAssignment, TopicZNode, ZnodeError

Results = dict[TopicPartition, PartitionOutcome]
_NO_SUCH_PARTITION = PartitionOutcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, texts.NO_SUCH_PARTITION)
_NOTHING_TO_CANCEL = PartitionOutcome(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, texts.NOTHING_TO_CANCEL)


# --- what is asked for


def by_api(state: ClusterState, event: ApiPartitionReassignment) -> Steps[None]:
    """AlterPartitionReassignments. What is accepted takes the place of an entry in the znode. Source: §8.3."""
    results: Results = {}
    accepted: dict[TopicPartition, ReplicaAssignment] = {}
    for tp in sorted(event.reassignments):
        target = event.reassignments[tp]
        refusal = None if target is None else _refusal(state, tp, target)
        if refusal is not None:
            results[tp] = refusal
        elif (wanted := _wanted(state, tp, target)) is not None:
            accepted[tp] = wanted
        else:
            results[tp] = _NOTHING_TO_CANCEL
    yield from _remove_from_znode(state, lambda tp, _: tp in accepted)
    results.update((yield from _trigger(state, accepted)))
    for tp, outcome in results.items():
        if outcome.error is not ErrorCode.NONE:
            yield _refused(tp, outcome)
    yield Reply(event.reply_to, ReassignmentAnswer(ErrorCode.NONE, results))


def _refusal(state: ClusterState, tp: TopicPartition, target: tuple[BrokerId, ...]) -> PartitionOutcome | None:
    """Why this target is refused, or None. Dead brokers may stay, but not be added."""
    reason = None
    if not target:
        reason = texts.EMPTY_REPLICAS
    elif len(set(target)) != len(target):
        reason = texts.doubled_replicas(target)
    elif min(target) < 0:
        reason = texts.invalid_replicas(target)
    else:
        adding = state.assignment(tp).reassign_to(target).adding_replicas
        if not all(state.is_live(r) for r in adding):
            reason = texts.dead_replicas(adding, filter(state.is_live, state.live_brokers))
    return None if reason is None else PartitionOutcome(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def _wanted(state: ClusterState, tp: TopicPartition, target: tuple[BrokerId, ...] | None) -> ReplicaAssignment | None:
    """The assignment on the way to the target; None when there is nothing to cancel."""
    current = state.assignment(tp)
    if target is None:
        return current.reassign_to(current.origin_replicas) if current.is_being_reassigned else None
    return current.reassign_to(target)


def by_znode(state: ClusterState) -> Steps[frozenset[TopicPartition]]:
    """`/admin/reassign_partitions`, unvalidated as in Kafka; entries that fail are removed from it, the others stay
    until their move is done. Returns the partitions that were accepted. Source: §8.4."""
    (exists,) = yield Read((Exists(ReassignPartitionsZNode.path, watch=True),))
    if not exists.ok:
        return frozenset()
    targets = yield from _read_znode()
    results = yield from _trigger(state, {tp: state.assignment(tp).reassign_to(t) for tp, t in targets.items()})
    failed = {tp for tp, outcome in results.items() if outcome.error is not ErrorCode.NONE}
    for tp in sorted(failed):
        yield _refused(tp, results[tp])
    if failed:
        yield from _remove_from_znode(state, lambda tp, _: tp in failed)
    return frozenset(results.keys() - failed)


def _refused(tp: TopicPartition, outcome: PartitionOutcome) -> Log:
    fields = {"topic": tp.topic, "partition": tp.partition, "error": outcome.error.name, "reason": outcome.message}
    return Log(ev.REASSIGNMENT_REFUSED, fields, "warning")


def _trigger(state: ClusterState, wanted: Mapping[TopicPartition, ReplicaAssignment]) -> Steps[Results]:
    """Starts each of these reassignments; one that fails does not stop the others."""
    results: Results = {}
    for tp, assignment in wanted.items():
        if state.is_queued_for_deletion(tp.topic) or not state.assignment(tp).replicas:
            results[tp] = _NO_SUCH_PARTITION
            continue
        try:
            yield from reassign(state, tp, assignment)
            results[tp] = PartitionOutcome()
        except ReassignmentFailed as error:
            results[tp] = PartitionOutcome(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
    return results


def listing(state: ClusterState, event: ListPartitionReassignments) -> ListingAnswer:
    """ListPartitionReassignments. Source: §8.8."""
    asked: Iterable[TopicPartition] = (
        state.partitions_being_reassigned if event.partitions is None else event.partitions
    )
    found = {tp: state.assignment(tp) for tp in sorted(asked)}
    return ListingAnswer(ErrorCode.NONE, {tp: a for tp, a in found.items() if a.is_being_reassigned})


# --- what resumes


def resume_all(state: ClusterState, should_resume: Callable[[TopicPartition], bool]) -> Steps[None]:
    """Takes up the moves in progress for which `should_resume` holds. One that fails is logged and left."""
    for tp in sorted(state.partitions_being_reassigned):
        if should_resume(tp):
            yield from reassign_or_log(state, tp, state.assignment(tp))


def reassign_or_log(state: ClusterState, tp: TopicPartition, assignment: ReplicaAssignment) -> Steps[None]:
    """As `reassign`, when nobody waits for an answer."""
    try:
        yield from reassign(state, tp, assignment)
    except ReassignmentFailed as error:
        yield _refused(tp, PartitionOutcome(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))


def maybe_complete(state: ClusterState, tp: TopicPartition) -> Steps[None]:
    """The ISR of a moving partition may have changed. Source: §8.6."""
    if tp in state.partitions_being_reassigned:
        assignment = state.assignment(tp)
        if (yield from _is_complete(state, tp, assignment)):
            yield from reassign_or_log(state, tp, assignment)


# --- one partition


def reassign(state: ClusterState, tp: TopicPartition, assignment: ReplicaAssignment) -> Steps[None]:
    """Phase A, or phase B if the targets are in the ISR. Source: §8.5, whose step names the comments give.

    Raises: ReassignmentFailed, when a step failed; what was done before it stays, and a later event takes it up.
    """
    yield from mark_ineligible(state, (tp.topic,), "a partition is being reassigned")
    yield from _update_current(state, tp, assignment)
    if not (yield from _is_complete(state, tp, assignment)):
        yield from _bump_and_tell(state, tp, assignment)  # A1
        for replica in assignment.adding_replicas:  # A2, one call each
            yield from change_replicas(state, (PartitionReplica(tp, replica),), ReplicaState.NEW)
        return
    adding = [PartitionReplica(tp, r) for r in assignment.adding_replicas]
    yield from change_replicas(state, adding, ReplicaState.ONLINE)  # B1
    completed = ReplicaAssignment(replicas=assignment.target_replicas)
    state.assign(tp, completed)  # B2
    yield from _move_leader(state, tp, completed)  # B3
    yield from _stop(state, tp, assignment.removing_replicas)  # B4, B5
    yield from _write_assignment(state, tp, completed)  # B6
    yield from _forget(state, tp, completed)  # B7
    yield from send_metadata_to_all(state, (tp,))  # B8
    yield Log(
        ev.REASSIGNMENT_COMPLETED,
        {"topic": tp.topic, "partition": tp.partition, "replicas": list(completed.replicas)},
    )
    yield from resume_for(state, (tp.topic,))  # B9


def _update_current(state: ClusterState, tp: TopicPartition, assignment: ReplicaAssignment) -> Steps[None]:
    """U1 to U4: the assignment is written, believed, and replicas that it no longer needs are stopped."""
    current = state.assignment(tp)
    if current != assignment:
        yield from _write_assignment(state, tp, assignment)  # U1
        state.assign(tp, assignment)  # U2
        yield Log(
            ev.REASSIGNMENT_STARTED,
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "replicas": list(assignment.replicas),
                "adding_replicas": list(assignment.adding_replicas),
                "removing_replicas": list(assignment.removing_replicas),
            },
        )
        yield from _stop(state, tp, [r for r in current.replicas if r not in assignment.replicas])  # U3
    state.watched_states.add(tp)  # U4
    state.partitions_being_reassigned.add(tp)


def _write_assignment(state: ClusterState, tp: TopicPartition, assignment: ReplicaAssignment) -> Steps[None]:
    """The whole topic znode, with this partition as given and the others as believed."""
    partitions = {**state.topic_assignment(tp.topic), tp.partition: assignment}
    content = TopicAssignment(partitions=partitions, topic_id=state.topic_ids.get(tp.topic))
    (result,) = yield Write((SetData(TopicZNode.path(tp.topic), TopicZNode.encode(content)),), state.epoch_zk_version)
    if not result.ok:
        raise ReassignmentFailed(f"the znode of topic {tp.topic} cannot be written: {result.code.name}")
    yield from trace_assignments(state, ((tp, assignment),))


def _is_complete(state: ClusterState, tp: TopicPartition, assignment: ReplicaAssignment) -> Steps[bool]:
    """Whether all target replicas are in the ISR, as ZooKeeper says (which arms the watch of the state)."""
    if not assignment.is_being_reassigned:
        return True
    found = (yield from read_states(state, (tp,)))[tp]
    return not isinstance(found, Failure) and set(assignment.target_replicas) <= set(found.isr)


def _bump_and_tell(state: ClusterState, tp: TopicPartition, assignment: ReplicaAssignment) -> Steps[None]:
    """A new leader epoch makes leader and followers take the new list of replicas."""
    leadership = yield from bump_leader_epoch(state, tp)
    batch = RequestBatch(state)
    batch.add_leader_and_isr(assignment.origin_replicas, tp, leadership, assignment, is_new=False)
    batch.add_leader_and_isr(assignment.adding_replicas, tp, leadership, assignment, is_new=True)
    yield from batch.send()


def _move_leader(state: ClusterState, tp: TopicPartition, completed: ReplicaAssignment) -> Steps[None]:
    """The leader must be a live target replica. That nobody can be elected is logged only."""
    leadership = state.leadership(tp)
    if leadership is None:
        raise ReassignmentFailed(f"{tp} never had a leader")
    leader = leadership.leader
    if leader is not None and leader in completed.replicas and state.is_online(leader, tp):
        yield from _bump_and_tell(state, tp, completed)
    else:
        yield from change_partitions(state, (tp,), PartitionState.ONLINE, ReassignElection())


def _stop(state: ClusterState, tp: TopicPartition, replicas: Iterable[BrokerId]) -> Steps[None]:
    """Out of the ISR, stopped, deleted, forgotten, without waiting for answers."""
    stopped = [PartitionReplica(tp, r) for r in replicas]
    for target in (
        ReplicaState.OFFLINE,
        ReplicaState.DELETION_STARTED,
        ReplicaState.DELETION_SUCCESSFUL,
        ReplicaState.NON_EXISTENT,
    ):
        yield from change_replicas(state, stopped, target)


def _forget(state: ClusterState, tp: TopicPartition, completed: ReplicaAssignment) -> Steps[None]:
    """The move is done; its entry goes if it asked for exactly these replicas in this order."""
    state.watched_states.discard(tp)
    yield from _remove_from_znode(state, lambda p, target: p == tp and target == completed.replicas)
    state.partitions_being_reassigned.discard(tp)


# --- the znode


def _read_znode() -> Steps[dict[TopicPartition, tuple[BrokerId, ...]]]:
    """Its entries; none, with a warning, when it does not parse."""
    (result,) = yield Read((GetData(ReassignPartitionsZNode.path, watch=True),))
    if not result.ok:
        return {}
    try:
        return ReassignPartitionsZNode.decode(result.data)
    except ZnodeError as error:
        yield Log(ev.ZK_DATA_REFUSED, {"path": ReassignPartitionsZNode.path, "reason": str(error)}, "warning")
        return {}


def _remove_from_znode(
    state: ClusterState, matches: Callable[[TopicPartition, tuple[BrokerId, ...]], bool]
) -> Steps[None]:
    """Rewrites the znode, if it is there, without the entries that match; deletes it when nothing is left.

    As in Kafka it is rewritten even when nothing matches, and a document that does not parse counts as empty.
    Only its creation is noticed, hence the event that looks again after a deletion.
    """
    path = ReassignPartitionsZNode.path
    (exists,) = yield Read((Exists(path, watch=True),))
    if not exists.ok:
        return
    entries = yield from _read_znode()
    kept = {tp: target for tp, target in entries.items() if not matches(tp, target)}
    if not kept:
        yield from delete_recursively(state, path)
        yield Enqueue(ZkPartitionReassignment())
        return
    data = ReassignPartitionsZNode.encode(kept)
    results: list[ZkResult] = yield Write((SetData(path, data),), state.epoch_zk_version)
    if results[0].code is ZkCode.NO_NODE:
        yield Write((Create(path, data),), state.epoch_zk_version)
