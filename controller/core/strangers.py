"""ISR members who are no replicas: whoever wrote the replicas died before it changed the ISR, or told the leader.

Kafka leaves them there (docs/deviations.md). Source: Kafka 3.9 `KafkaController.updateCurrentReassignment`, whose steps
U1 to U3 are cut between; spec controller.md §8.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from controller.core.effects import Enqueue, Steps
from controller.core.events import IsrChangeNotification
from controller.core.leader_choice import OfflineElection
from controller.core.partitions import change_partitions
from controller.core.request_batch import RequestBatch, send
from controller.core.settings import RETRY_MS
from controller.core.state import ClusterState
from controller.core.state_znodes import Failure, Pair, bump_leader_epochs, decided, log_elected, write_states
from controller.core.transitions import PartitionState
from controller.wire.types import LeaderAndIsr, ReplicaAssignment, TopicPartition


def drop_inherited(state: ClusterState, pairs: Iterable[Pair]) -> Steps[None]:
    """At a failover: takes them out of the ISRs. Their leaders hear of it with everything else. Where nobody else is in
    sync they stay, for the sake of the records. `pairs` are those that some partition has."""
    if not any(_are_strangers(*pair) for pair in pairs):
        return
    smaller: dict[TopicPartition, LeaderAndIsr] = {}
    for tp in state.partitions_of(state.topics):
        leadership, assignment = state.leadership(tp), state.assignment(tp)
        if leadership is None or not _are_strangers(leadership, assignment):
            continue
        if isr := tuple(r for r in leadership.isr if r in assignment.replicas):
            smaller[tp] = decided(
                state, leadership, leader=leadership.leader if leadership.leader in isr else None, isr=isr
            )
    if smaller:
        outcomes, _ = yield from write_states(state, smaller)
        yield from log_elected(
            {tp: leadership for tp, leadership in outcomes.items() if isinstance(leadership, LeaderAndIsr)}
        )


def _are_strangers(leadership: LeaderAndIsr, assignment: ReplicaAssignment) -> bool:
    """Whether somebody is in the ISR who is no replica."""
    return not set(leadership.isr) <= set(assignment.replicas)


def drop_taken_back(state: ClusterState, changed: Sequence[TopicPartition]) -> Steps[None]:
    """When leaders have changed these ISRs: one that has not heard who its replicas are, since its epoch stayed what it
    was, takes a stranger back, and hears of them by a new epoch. One that is a stranger itself gives way to who joined
    it. Those that move hear with their next step; where the state cannot be written, it is tried again."""
    foreign = [tp for tp in changed if _has_strangers(state, tp)]
    led = [tp for tp in foreign if (was := state.leadership(tp)) and was.leader in state.assignment(tp).replicas]
    elect = [tp for tp in foreign if tp not in led]
    outcomes = yield from change_partitions(state, elect, PartitionState.ONLINE, OfflineElection(in_sync_only=True))
    batch = RequestBatch()
    bumped = yield from bump_leader_epochs(state, {tp: state.assignment(tp).replicas for tp in led})
    for tp, outcome in bumped.items():
        if not isinstance(outcome, Failure):
            batch.add_leader_and_isr(state.assignment(tp).replicas, tp, is_new=False)
    yield from send(state, batch)
    refused = tuple(tp for tp, o in (outcomes | bumped).items() if isinstance(o, Failure) and not o.judged)
    if refused:
        yield Enqueue(IsrChangeNotification(refused), RETRY_MS)


def _has_strangers(state: ClusterState, tp: TopicPartition) -> bool:
    leadership, replicas = state.leadership(tp), state.assignment(tp).replicas
    if leadership is None or set(leadership.isr) <= set(replicas) or set(leadership.isr).isdisjoint(replicas):
        return False
    return tp not in state.partitions_being_reassigned and not state.is_queued_for_deletion(tp.topic)
