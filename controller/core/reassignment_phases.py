"""Moving replicas, in two phases, of all partitions that one event concerns at once.

Phase A announces the new replicas, phase B, once all targets are in the ISR, moves the leader and removes the old ones.
Every partition goes through Kafka's steps in Kafka's order; a step takes one write per topic znode and one request per
broker for all of them, where Kafka takes one per partition. A partition that fails a step is left as it is, for a later
event to take up, and does not stop the others.

Source: Kafka 3.9 `KafkaController.onPartitionReassignment`; spec controller.md §8.5, whose steps the comments name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from controller.core.deletion import MOVING, left_over, mark_ineligible, resume_for
from controller.core.effects import Enqueue, Log, Steps, read_any, write
from controller.core.events import PartitionReassignmentIsrChange
from controller.core.leader_choice import OfflineElection, ReassignElection
from controller.core.partitions import change_partitions, leaderless_go_offline
from controller.core.reassignment_znode import remove_from_znode
from controller.core.replicas import change_replicas
from controller.core.request_batch import RequestBatch, send, send_metadata_to_all
from controller.core.settings import RETRY_MS
from controller.core.state import ClusterState
from controller.core.state_znodes import Failure, begun, bump_leader_epochs, read_states, trace_assignments
from controller.core.transitions import PartitionState, ReplicaState
from controller.wire import log_events as ev
from controller.wire.types import BrokerId, PartitionReplica, ReplicaAssignment, TopicPartition, settled
from controller.wire.zk_operations import GetData, SetData, ZkCode
from controller.wire.znodes import TopicZNode

Moves = Mapping[TopicPartition, ReplicaAssignment]
#: partition -> why its move could not go on
Failures = dict[TopicPartition, str]


def move(state: ClusterState, moves: Moves, complete: Collection[TopicPartition] | None = None) -> Steps[Failures]:
    """Phase A, or phase B for those whose targets are in the ISR: `complete` where the caller has just looked.

    What was done for a partition that failed stays, and it is taken up again after a while.
    """
    failures: Failures = {}
    yield from mark_ineligible(state, {tp.topic for tp in moves}, MOVING)
    unfinished, kept = yield from _update_current(state, moves, failures)
    moves = _left(moves, failures)
    if complete is None:
        complete = yield from complete_ones(state, moves)
    complete = {tp for tp in complete if tp in moves and _all_begun(state, tp, moves[tp])}
    yield from _announce(state, {tp: a for tp, a in moves.items() if tp not in complete}, failures)
    done = {tp: a for tp, a in moves.items() if tp in complete}
    if done:
        yield from _finish(state, done, kept, failures)
    failures.update((tp, reason) for tp, reason in unfinished.items() if tp not in done)
    for tp in sorted((moves.keys() - failures.keys()) & state.moves_that_wait):
        state.move_goes_on(tp)
        yield Enqueue(PartitionReassignmentIsrChange(tp))  # who looks arms the watch
    for tp in sorted(failures.keys() & state.partitions_being_reassigned):
        state.move_waits(tp)  # by its watch it would see its own writes, and be busy without an end
        yield Enqueue(PartitionReassignmentIsrChange(tp), RETRY_MS)
    return failures


def _all_begun(state: ClusterState, tp: TopicPartition, assignment: ReplicaAssignment) -> bool:
    """Whether phase A has begun who is added. One that hears of a leader elected for this very move follows at once and
    may be in the ISR by now; a replica that never was new could not be stopped by a later move. The writes of phase A
    are seen by the watch, and complete the move then."""
    return all(state.is_begun(tp, replica) for replica in assignment.adding_replicas)


def _left(moves: Moves, failures: Failures) -> Moves:
    return {tp: a for tp, a in moves.items() if tp not in failures} if failures else moves


def complete_ones(state: ClusterState, moves: Moves) -> Steps[set[TopicPartition]]:
    """Those whose target replicas are all in the ISR, as ZooKeeper says (which arms the watches of their states). Of
    whom it says nothing it is asked again after a while."""
    complete = {tp for tp, assignment in moves.items() if not assignment.is_being_reassigned}
    asked = [tp for tp in moves if tp not in complete]
    if asked:
        for tp, found in (yield from read_states(state, asked)).items():
            if isinstance(found, Failure):
                yield Enqueue(PartitionReassignmentIsrChange(tp), RETRY_MS)
            elif set(moves[tp].target_replicas) <= set(found.isr):
                complete.add(tp)
    return complete


def _update_current(
    state: ClusterState, moves: Moves, failures: Failures
) -> Steps[tuple[Failures, list[PartitionReplica]]]:
    """U1 to U4: assignments are written, believed, and replicas that they no longer need are stopped. Returns the
    partitions which could not be given another leader, or with a replica that could not be stopped, which they go on
    without, and are tried again; and these replicas."""
    before = {tp: state.assignment(tp) for tp in moves}
    changed = {tp: a for tp, a in moves.items() if before[tp] != a}
    dropped = {tp: [r for r in before[tp].replicas if r not in a.replicas] for tp, a in changed.items()}
    yield from _keep_who_has_the_records(state, changed, [tp for tp in changed if dropped[tp]], failures)
    changed = dict(_left(changed, failures))
    if changed:
        yield from _write_assignments(state, changed, failures)  # U1
        changed = dict(_left(changed, failures))
    for tp, assignment in changed.items():
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
    without_leader = yield from _lead_elsewhere(state, _left(moves, failures))
    going: list[PartitionReplica] = []
    for tp in _left(moves, failures):
        going += [PartitionReplica(tp, r) for r in dict.fromkeys((*dropped.get(tp, ()), *left_over(state, tp)))]
    kept = yield from _stop(state, going)  # U3
    for tp in _left(moves, failures):
        state.move_started(tp)  # U4
    return {tp: _cannot_leave(replica) for tp, replica in kept} | without_leader, kept


def _cannot_leave(replica: BrokerId) -> str:
    return f"replica {replica} cannot be taken out of the ISR"


def _keep_who_has_the_records(
    state: ClusterState, moves: Moves, dropping: Collection[TopicPartition], failures: Failures
) -> Steps[None]:
    """A move that replaces another drops replicas at once. Where those are the only ones in sync, it is refused:
    records would be lost (docs/deviations.md)."""
    if not dropping:
        return
    for tp, found in (yield from read_states(state, sorted(dropping))).items():
        if isinstance(found, Failure):
            if not found.never_led:
                failures[tp] = found.reason
        elif found.isr and not set(found.isr) & set(begun(state, tp, moves[tp])):
            failures[tp] = f"only {list(found.isr)} are in sync, and none of them would stay"


def _lead_elsewhere(state: ClusterState, moves: Moves) -> Steps[Failures]:
    """Partitions whose leader is dropped by a move that replaces another get a new one first, while it still serves
    (Kafka takes it away and leaves the partition without a leader; docs/deviations.md); so do those of which a move
    before has dropped it, when their state could not be written. It is one in sync: who is added is not begun yet.
    Where all targets are in sync already, as after a cancellation, the move is complete at once and elects one itself,
    as in Kafka. Returns those whose state could not be written."""
    led = [tp for tp, assignment in moves.items() if _needs_another_leader(state, tp, assignment)]
    if not led:
        return {}
    outcomes = yield from change_partitions(state, led, PartitionState.ONLINE, OfflineElection(in_sync_only=True))
    return {tp: o.reason for tp, o in outcomes.items() if isinstance(o, Failure) and not o.judged}


def _needs_another_leader(state: ClusterState, tp: TopicPartition, assignment: ReplicaAssignment) -> bool:
    znode = state.leadership(tp)
    if znode is None or znode.leader in assignment.replicas:
        return False
    in_sync = [r for r in begun(state, tp, assignment) if r in znode.isr]
    if set(assignment.target_replicas) <= set(in_sync):
        return False
    return znode.leader is not None or any(state.is_online(r, tp) for r in in_sync)


def _write_assignments(state: ClusterState, moves: Moves, failures: Failures) -> Steps[None]:
    """The whole topic znodes, with these partitions as given and the others as believed. Each is written over what was
    just read, and partitions that somebody has added there meanwhile stay (Kafka writes over them; docs/deviations.md).
    """
    topics: defaultdict[str, dict[int, ReplicaAssignment]] = defaultdict(dict)
    for tp, assignment in moves.items():
        topics[tp.topic][tp.partition] = assignment
    remaining = list(topics)
    while remaining:
        read = yield from read_any([GetData(TopicZNode.path(topic)) for topic in remaining])
        results = dict(zip(remaining, read, strict=True))
        sets = {
            topic: _over(state, topic, topics[topic], now.data, now.stat.version)
            for topic, now in results.items()
            if now.stat is not None
        }
        written = yield from write(tuple(sets.values()), state.epoch_zk_version)
        results |= zip(sets, written, strict=True)
        remaining = [topic for topic, result in results.items() if result.code is ZkCode.BAD_VERSION]
        for topic, result in results.items():
            if result.ok:
                assigned = ((TopicPartition(topic, p), a) for p, a in topics[topic].items())
                yield from trace_assignments(state, assigned)
            elif topic not in remaining:
                reason = f"the znode of topic {topic} cannot be written: {result.code.name}"
                failures.update((TopicPartition(topic, p), reason) for p in topics[topic])


def _over(
    state: ClusterState, topic: str, changed: Mapping[int, ReplicaAssignment], now: bytes | None, version: int
) -> SetData:
    content = state.topic_content(topic)
    partitions = {**TopicZNode.decode(now).partitions, **content.partitions, **changed}
    return SetData(TopicZNode.path(topic), TopicZNode.encode(replace(content, partitions=partitions)), version)


def _announce(state: ClusterState, moves: Moves, failures: Failures) -> Steps[None]:
    """Phase A. A new leader epoch makes leaders and followers take the new lists of replicas. Where it is refused,
    nobody is begun: a leader of the old epoch may take a replica into the ISR whom a move before has dropped. Where
    there was no leader yet, who is added may be elected before the move is tried again."""
    untold = yield from _bump_and_tell(state, moves, moves, failures)  # A1
    rounds = max((len(a.adding_replicas) for a in moves.values()), default=0)
    for nth in range(rounds):  # A2, one call each
        added = [
            PartitionReplica(tp, a.adding_replicas[nth]) for tp, a in moves.items() if nth < len(a.adding_replicas)
        ]
        fresh = [r for r in added if r.topic_partition not in untold and not state.is_begun(*r)]
        yield from change_replicas(state, fresh, ReplicaState.NEW)


def _bump_and_tell(
    state: ClusterState, lists: Moves, moves: Moves, failures: Failures
) -> Steps[Collection[TopicPartition]]:
    """`lists`: what the brokers hear; nobody is in sync who is none of the replicas of `moves`, or is not begun yet.
    Who is in sync is not new (docs/deviations.md). Returns those that may have a leader, which has not been told."""
    untold: set[TopicPartition] = set()
    if not lists:
        return untold
    batch = RequestBatch()
    replicas = {tp: begun(state, tp, moves[tp]) for tp in lists}
    for tp, outcome in (yield from bump_leader_epochs(state, replicas)).items():
        if isinstance(outcome, Failure):
            failures[tp] = outcome.reason
            if not outcome.never_led:
                untold.add(tp)
            continue
        assignment = lists[tp]
        batch.add_leader_and_isr(assignment.origin_replicas, tp, is_new=False)
        # Who is new makes its log, also where a dir of its broker has failed.
        for replica in assignment.adding_replicas:
            batch.add_leader_and_isr((replica,), tp, is_new=replica not in outcome.isr)
    yield from send(state, batch)
    return untold


def _finish(state: ClusterState, moves: Moves, kept: Collection[PartitionReplica], failures: Failures) -> Steps[None]:
    """Phase B. The topic znode is written last, because until then it is the only copy of where a move came from.
    `kept`: who was dropped before, and could not be stopped then."""
    adding = [PartitionReplica(tp, r) for tp, a in moves.items() for r in a.adding_replicas]
    yield from change_replicas(state, adding, ReplicaState.ONLINE)  # B1
    completed: Moves = {tp: settled(a.target_replicas) for tp, a in moves.items()}
    for tp, assignment in completed.items():
        state.assign(tp, assignment)  # B2
    yield from _move_leaders(state, completed, moves, failures)  # B3
    left = _left(completed, failures)
    going = [PartitionReplica(tp, r) for tp in left for r in moves[tp].removing_replicas]
    for tp, replica in (yield from _stop(state, [*going, *(r for r in kept if r.topic_partition in left)])):  # B4, B5
        failures[tp] = _cannot_leave(replica)
    completed = _without_failed(state, completed, moves, failures)  # B6 writes all of a topic
    yield from _write_assignments(state, completed, failures)  # B6
    completed = _without_failed(state, completed, moves, failures)
    yield from _forget(state, completed)  # B7
    yield from send_metadata_to_all(state, completed)  # B8
    for tp, assignment in completed.items():
        fields = {"topic": tp.topic, "partition": tp.partition, "replicas": list(assignment.replicas)}
        yield Log(ev.REASSIGNMENT_COMPLETED, fields)
    yield from resume_for(state, {tp.topic for tp in completed})  # B9


def _without_failed(state: ClusterState, completed: Moves, moves: Moves, failures: Failures) -> Moves:
    """Those that have not failed; the others move still."""
    for tp in sorted(completed.keys() & failures):
        _moves_still(state, tp, moves[tp])
    return _left(completed, failures)


def _moves_still(state: ClusterState, tp: TopicPartition, assignment: ReplicaAssignment) -> None:
    """The znode says so, and whoever takes the move up must know. Replicas that were stopped are what they are after a
    failover: they hear of the partition again with the others, may come back into the ISR, and are stopped anew."""
    state.assign(tp, assignment)
    for broker_id in assignment.removing_replicas:
        if state.replica_state(PartitionReplica(tp, broker_id)) is ReplicaState.NON_EXISTENT:
            now = ReplicaState.ONLINE if state.is_live(broker_id) else ReplicaState.OFFLINE
            for each in (ReplicaState.NEW, now):
                state.put_replica_states(broker_id, (tp,), each)


def _move_leaders(state: ClusterState, completed: Moves, moves: Moves, failures: Failures) -> Steps[None]:
    """The leader must be a live target replica. That nobody can be elected is logged only, unless nothing can be said
    of the partition at all."""
    stay: dict[TopicPartition, ReplicaAssignment] = {}
    elect: list[TopicPartition] = []
    for tp, assignment in completed.items():
        leadership = state.leadership(tp)
        if leadership is None:
            failures[tp] = f"{tp} never had a leader"
        elif _may_stay(state, tp, leadership.leader):
            stay[tp] = assignment
        else:
            elect.append(tp)
    yield from _bump_and_tell(state, stay, moves, failures)
    if elect:
        outcomes = yield from change_partitions(state, elect, PartitionState.ONLINE, ReassignElection())
        failures.update((tp, o.reason) for tp, o in outcomes.items() if isinstance(o, Failure) and not o.judged)
        with_strangers = {
            tp: completed[tp]
            for tp, outcome in outcomes.items()
            if not isinstance(outcome, Failure) and not set(outcome.isr) <= set(moves[tp].replicas)
        }
        yield from _bump_and_tell(state, with_strangers, moves, failures)


def _may_stay(state: ClusterState, tp: TopicPartition, leader: BrokerId | None) -> bool:
    """Whether this leader is one of the replicas, as believed now, and alive."""
    return leader is not None and leader in state.assignment(tp).replicas and state.is_online(leader, tp)


def _stop(state: ClusterState, replicas: Iterable[PartitionReplica]) -> Steps[list[PartitionReplica]]:
    """Out of the ISR, stopped, deleted, forgotten, without waiting for answers. Returns those that cannot leave the
    ISR: they are left as they are, since nobody may delete what may be the only copy. Where the leader was stopped and
    nobody else could be elected, the partition waits for who can (in Kafka it counts as online; docs/deviations.md)."""
    asked = [r for r in replicas if state.replica_state(r) is not ReplicaState.NON_EXISTENT]
    stopped = asked
    for target in (
        ReplicaState.OFFLINE,
        ReplicaState.DELETION_STARTED,
        ReplicaState.DELETION_SUCCESSFUL,
        ReplicaState.NON_EXISTENT,
    ):
        yield from change_replicas(state, stopped, target)
        stopped = [r for r in stopped if state.replica_state(r) is target]
    yield from leaderless_go_offline(state, (r.topic_partition for r in asked))
    return [r for r in asked if r not in set(stopped)]


def _forget(state: ClusterState, completed: Moves) -> Steps[None]:
    """The moves are done; the entries go of those that asked for exactly these replicas in this order."""

    def is_done(tp: TopicPartition, target: tuple[BrokerId, ...]) -> bool:
        assignment = completed.get(tp)
        return assignment is not None and target == assignment.replicas

    yield from remove_from_znode(state, is_done)
    for tp in completed:
        state.move_ended(tp)
