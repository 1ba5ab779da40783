"""What the gauges of a controller should say: every one, counted anew from what is believed, without its counters."""

from __future__ import annotations

from controller.core.state import ClusterState
from controller.core.transitions import PartitionState, ReplicaState
from controller.wire.types import TopicPartition


def counted(state: ClusterState) -> dict[str, int]:
    """Kafka's names and what each counts. Source: Kafka 3.9 `ControllerContext`, `KafkaController`."""
    queued, waiting = state.topics_to_be_deleted, state.topics_ineligible_for_deletion
    replicas = state.replicas_of(state.partitions_of(queued))
    states = [state.replica_state(replica) for replica in replicas]
    offline = [tp for tp in state.partitions_in(PartitionState.OFFLINE) if tp.topic not in queued]
    return {
        "ActiveControllerCount": 1 if state.serving else 0,
        "OfflinePartitionsCount": len(offline),
        "PreferredReplicaImbalanceCount": len([tp for tp in state.all_partitions() if is_imbalanced(state, tp)]),
        "GlobalTopicCount": len(state.topics),
        "GlobalPartitionCount": len(state.leaderships),
        "TopicsToDeleteCount": len(queued),
        "ReplicasToDeleteCount": len(states) - states.count(ReplicaState.DELETION_SUCCESSFUL),
        "TopicsIneligibleToDeleteCount": len([topic for topic in waiting if topic in queued]),
        "ReplicasIneligibleToDeleteCount": states.count(ReplicaState.DELETION_INELIGIBLE),
        "ActiveBrokerCount": len(state.live_brokers),
        "FencedBrokerCount": 0,
        "ZkMigrationState": 4,
    }


def is_imbalanced(state: ClusterState, tp: TopicPartition) -> bool:
    """Not led by its first replica; one that is being added counts only once it could lead, being in the ISR.
    Source: Kafka 3.9 `ControllerContext.hasPreferredLeader`."""
    leadership, assignment = state.leadership(tp), state.assignment(tp)
    if leadership is None or not assignment.replicas or state.is_queued_for_deletion(tp.topic):
        return False
    first = assignment.replicas[0]
    return first in leadership.isr if first in assignment.adding_replicas else leadership.leader != first


def leaderless_online(state: ClusterState) -> list[TopicPartition]:
    """Partitions that count as online and have lost their leader: none, but of topics that are to be deleted."""
    without = [tp for tp, leadership in state.leaderships.items() if leadership.leader is None]
    online = [tp for tp in without if state.partition_state(tp) is PartitionState.ONLINE]
    return [tp for tp in online if not state.is_queued_for_deletion(tp.topic)]


def check(state: ClusterState, what: object = None) -> None:
    """The gauges equal both recounts: this one, and the one that the simulation makes."""
    gauges = state.gauges()
    assert gauges == counted(state), what
    assert state.recount().items() <= gauges.items(), what


def check_after(state: ClusterState, event: object) -> None:
    """`check`, and what an event leaves behind: who counts as online has a leader."""
    check(state, event)
    assert not leaderless_online(state), event
