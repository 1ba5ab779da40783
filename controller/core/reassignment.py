"""Reassignment of replicas: asked for over the wire or by znode, in two phases, resumed by whoever is controller.

While a partition moves, its topic znode holds the union of old and new replicas with what is added and removed; that is
the only durable copy of where it came from. `reassignment_phases` has the phases, `reassignment_znode` the znode.

Source: Kafka 3.9 `KafkaController.onPartitionReassignment`; spec controller.md §8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from controller.core import texts
from controller.core.deletion import topics_kept_by_moves
from controller.core.effects import (
    ListingAnswer,
    Log,
    PartitionOutcome,
    ReassignmentAnswer,
    Reply,
    Steps,
)
from controller.core.events import ApiPartitionReassignment, ListPartitionReassignments, ZkPartitionReassignment
from controller.core.reassignment_phases import complete_ones, move
from controller.core.reassignment_znode import read_znode, remove_from_znode
from controller.core.state import ClusterState
from controller.core.wish_znodes import is_there
from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, ReplicaAssignment, TopicPartition, flaw_of_replicas
from controller.wire.znodes import ReassignPartitionsZNode

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
        elif (planned := _move_to(state, tp, target)) is not None:
            accepted[tp] = planned
        else:
            results[tp] = _NOTHING_TO_CANCEL
    yield from remove_from_znode(state, lambda tp, _: tp in accepted)
    results.update((yield from _trigger(state, accepted)))
    for tp, outcome in results.items():
        if outcome.error is not ErrorCode.NONE:
            yield _refused(tp, outcome)
    yield Reply(event.reply_to, ReassignmentAnswer(ErrorCode.NONE, results))


def _refusal(state: ClusterState, tp: TopicPartition, target: tuple[BrokerId, ...]) -> PartitionOutcome | None:
    """Why this target is refused, or None. Dead brokers may stay, but not be added."""
    reason = _flaw(target)
    if reason is None:
        adding = state.assignment(tp).reassign_to(target).adding_replicas
        if not all(state.is_live(r) for r in adding):
            reason = texts.dead_replicas(adding, filter(state.is_live, state.live_brokers))
    return None if reason is None else PartitionOutcome(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def _flaw(target: tuple[BrokerId, ...]) -> str | None:
    """Why no partition can have these replicas, in Kafka's words, or None."""
    if flaw_of_replicas(target) is None:
        return None
    if not target:
        return texts.EMPTY_REPLICAS
    doubled = len(set(target)) != len(target)
    return texts.doubled_replicas(target) if doubled else texts.invalid_replicas(target)


def _move_to(state: ClusterState, tp: TopicPartition, target: tuple[BrokerId, ...] | None) -> ReplicaAssignment | None:
    """The assignment on the way to the target; None when there is nothing to cancel."""
    current = state.assignment(tp)
    if target is None:
        return current.reassign_to(current.origin_replicas) if current.is_being_reassigned else None
    return current.reassign_to(target)


def by_znode(state: ClusterState) -> Steps[frozenset[TopicPartition]]:
    """`/admin/reassign_partitions`: entries that cannot be right, or fail, are removed from it; the others stay until
    their move is done. They may name brokers that are dead. Returns the partitions that were accepted. Source: §8.4.
    """
    if not (yield from is_there(ReassignPartitionsZNode.path, ZkPartitionReassignment())):
        return frozenset()
    targets = yield from read_znode()
    if targets is None:
        return frozenset()
    if not targets:
        yield from remove_from_znode(state, lambda tp, _: False)  # of a document that holds nothing nothing stays
        return frozenset()
    flaws = {tp: flaw for tp, target in targets.items() if (flaw := _flaw(target)) is not None}
    sound = {tp: target for tp, target in targets.items() if tp not in flaws}
    results = yield from _trigger(state, {tp: state.assignment(tp).reassign_to(t) for tp, t in sound.items()})
    for tp, flaw in flaws.items():
        results[tp] = PartitionOutcome(ErrorCode.INVALID_REPLICA_ASSIGNMENT, flaw)
    failed = {tp for tp, outcome in results.items() if outcome.error is not ErrorCode.NONE}
    for tp in sorted(failed):
        yield _refused(tp, results[tp])
    if failed:
        yield from remove_from_znode(state, lambda tp, _: tp in failed)
    return frozenset(results.keys() - failed)


def _refused(tp: TopicPartition, outcome: PartitionOutcome) -> Log:
    fields = {"topic": tp.topic, "partition": tp.partition, "error": outcome.error.name, "reason": outcome.message}
    return Log(ev.REASSIGNMENT_REFUSED, fields, "warning")


def _trigger(state: ClusterState, moves: Mapping[TopicPartition, ReplicaAssignment]) -> Steps[Results]:
    """Starts these reassignments; one that fails does not stop the others."""
    results: Results = dict.fromkeys(moves, _NO_SUCH_PARTITION)
    existing = {
        tp: assignment
        for tp, assignment in moves.items()
        if not state.is_queued_for_deletion(tp.topic) and state.assignment(tp).replicas
    }
    if existing:
        failures = yield from move(state, existing)
        for tp in existing:
            reason = failures.get(tp)
            results[tp] = PartitionOutcome() if reason is None else _failed(reason)
    return results


def _failed(reason: str) -> PartitionOutcome:
    return PartitionOutcome(ErrorCode.UNKNOWN_SERVER_ERROR, reason)


def listing(state: ClusterState, event: ListPartitionReassignments) -> ListingAnswer:
    """ListPartitionReassignments. Source: §8.8."""
    asked: Iterable[TopicPartition] = (
        state.partitions_being_reassigned if event.partitions is None else event.partitions
    )
    found = {tp: state.assignment(tp) for tp in sorted(asked)}
    return ListingAnswer(ErrorCode.NONE, {tp: a for tp, a in found.items() if a.is_being_reassigned})


# --- what resumes


def resume_all(state: ClusterState, should_resume: Callable[[TopicPartition], bool]) -> Steps[None]:
    """Takes up the moves in progress for which `should_resume` holds, but for those of topics whose deletion does not
    wait for them. Those that fail are logged and left."""
    kept = topics_kept_by_moves(state)
    moving = [
        tp
        for tp in sorted(state.partitions_being_reassigned)
        if should_resume(tp) and (tp.topic in kept or not state.is_queued_for_deletion(tp.topic))
    ]
    if moving:
        yield from _log_refused((yield from move(state, {tp: state.assignment(tp) for tp in moving})))


def maybe_complete(state: ClusterState, partitions: Iterable[TopicPartition]) -> Steps[None]:
    """The ISRs of moving partitions may have changed; or a move that failed is tried again, unless the deletion of its
    topic has started, which it would hold up. Source: §8.6."""
    going = state.partitions_being_reassigned
    started = state.topics_with_deletion_started
    moving = {tp: state.assignment(tp) for tp in sorted(partitions) if tp in going and tp.topic not in started}
    complete = yield from complete_ones(state, moving)
    ready = {tp: a for tp, a in moving.items() if tp in complete or tp in state.moves_that_wait}
    if ready:
        yield from _log_refused((yield from move(state, ready, complete)))


def _log_refused(failures: Mapping[TopicPartition, str]) -> Steps[None]:
    for tp, reason in failures.items():
        yield _refused(tp, _failed(reason))
