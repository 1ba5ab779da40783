"""What must hold of moves and deletions in a controller whenever it has processed an event, or what the event was for.

Source: Kafka 3.9 `KafkaController.onBrokerStartup`, `TopicDeletionManager.resumeDeletions`; spec controller.md §8, §10.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, Final

from controller.core.deletion import MOVING
from controller.core.events import (
    ApiPartitionReassignment,
    LeaderAndIsrResponseReceived,
    TopicDeletion,
    TopicDeletionStopReplicaResponseReceived,
)
from controller.core.transitions import ReplicaState
from controller.core.view import ClusterView
from controller.sim.cluster import Cluster
from controller.wire import log_events as ev
from controller.wire.types import BrokerId, PartitionReplica, TopicPartition
from controller.wire.znodes import TopicPartitionStateZNode

#: A broker has answered for replicas that are to be deleted; they cannot be asked to.
ANSWERED: Final = "ReplicaDeletionStarted -> "
NOT_ASKED: Final = "OfflineReplica -> ReplicaDeletionIneligible"


class MovesAndDeletions:
    """Judges each controller after each event. `broken` collects. Hang `event` on what is logged."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: controller -> what moves to a broker that has just come -> its leader epoch before
        self._resumed: defaultdict[int, dict[TopicPartition, int]] = defaultdict(dict)
        #: controllers in whose event a broker has answered
        self._answered: set[int] = set()
        #: controller -> topics some of whose replicas cannot be asked, as was found in this event
        self._not_asked: defaultdict[int, set[str]] = defaultdict(set)
        #: controller -> topics that wait for a move from this event on, though their deletion had begun
        self._waiting: defaultdict[int, set[str]] = defaultdict(set)
        #: controller -> partition -> whom the moves add that began in this event
        self._added: defaultdict[int, dict[TopicPartition, list[int]]] = defaultdict(dict)
        #: controller -> the partitions whose move ended in this event
        self._ended: defaultdict[int, set[TopicPartition]] = defaultdict(set)
        self.broken: list[str] = []
        self.judged = 0

    def event(self, event: Mapping[str, Any]) -> None:
        """One log event of any program."""
        number = event.get("controller", 0)
        controller = self._cluster.controllers.get(number)
        if controller is None:
            return
        state: ClusterView = controller.state
        match event.get("event"):
            case ev.BROKERS_CHANGED:
                self._resumed[number] = self._to_resume(state, {*event["new"], *event["bounced"]})
            case ev.REPLICAS_TRANSITIONED:
                if any(each.startswith(ANSWERED) for each in event["transitions"]):
                    self._answered.add(number)
                if NOT_ASKED in event["transitions"]:
                    self._not_asked[number] |= {*event["topics"]}
            case ev.REASSIGNMENT_STARTED:
                self._added[number][TopicPartition(event["topic"], event["partition"])] = event["adding_replicas"]
            case ev.REASSIGNMENT_COMPLETED:
                self._ended[number].add(TopicPartition(event["topic"], event["partition"]))
            case ev.TOPIC_DELETION_WAITED if event["reason"] == MOVING:
                self._waiting[number] |= {event["topic"]} & state.topics_with_deletion_started
            case ev.CONTROLLER_EVENT_PROCESSED:
                self._processed(number, state, event)

    def _processed(self, number: int, state: ClusterView, event: Mapping[str, Any]) -> None:
        resumed, waiting = self._resumed.pop(number, {}), self._waiting.pop(number, set())
        added, ended = self._added.pop(number, {}), self._ended.pop(number, set())
        has_answered, not_asked = number in self._answered, self._not_asked.pop(number, set())
        self._answered.discard(number)
        lives = state.session_id in self._cluster.world.zookeeper.sessions
        if event["failure"] or not state.serving or not lives:
            return
        self.judged += 1
        found = [*self._goes_on(state, resumed), *_stays_known(self._cluster, state), *_keeps_who_goes(state)]
        found += _leaves_nobody_behind(state, ended)
        if event["event_type"] == ApiPartitionReassignment.__name__:
            found += _adds_the_dead(state, added)
        if event["event_type"] == TopicDeletion.__name__:
            found += [f"lets {topic}, whose deletion has begun, wait for a move" for topic in sorted(waiting)]
        if event["event_type"] == TopicDeletionStopReplicaResponseReceived.__name__ and has_answered:
            found += _tries_again(self._cluster, state, not_asked)
        if event["event_type"] == LeaderAndIsrResponseReceived.__name__ and has_answered:
            found.append("takes what is said of a dir for an answer of who is to delete")
        self.broken += [f"controller {number} after {event['event_type']} {wrong}" for wrong in found]

    def _to_resume(self, state: ClusterView, brokers: set[int]) -> dict[TopicPartition, int]:
        return {
            tp: believed.leader_epoch
            for tp in state.partitions_being_reassigned
            if brokers & set(state.assignment(tp).target_replicas)
            and (believed := state.leadership(tp)) is not None
            and not state.is_queued_for_deletion(tp.topic)
        }

    def _goes_on(self, state: ClusterView, resumed: Mapping[TopicPartition, int]) -> Iterator[str]:
        """A move goes on when one of its targets comes: brokers hear of it in a new leader epoch. §8.5, §11.2."""
        for tp, before in sorted(resumed.items()):
            path, believed = TopicPartitionStateZNode.path(tp), state.leadership(tp)
            if believed is None or tp not in state.partitions_being_reassigned or path in self._cluster.damaged:
                continue
            if believed.leader_epoch <= before and path not in self._cluster.refused:
                yield f"does not go on with the move of {tp}, though one of its targets has come"


def _stays_known(cluster: Cluster, state: ClusterView) -> Iterator[str]:
    """A move of which the topic's znode says that it goes on is believed to, also where its last step failed. §8.5.

    A deletion leaves no replicas, and where its znodes cannot be deleted the move is still written there. §10.7.
    """
    for tp in sorted(state.partitions_being_reassigned):
        if state.is_queued_for_deletion(tp.topic):
            continue
        content, key = cluster.content_of(tp.topic), str(tp.partition)
        written = [(content[name] or {}).get(key) for name in ("adding_replicas", "removing_replicas")]
        if any(written) and not state.assignment(tp).is_being_reassigned:
            yield f"takes the move of {tp} for done, its znode says {written}"


def _leaves_nobody_behind(state: ClusterView, ended: Set[TopicPartition]) -> Iterator[str]:
    """When a move ends, whom it has dropped or removed is deleted, as far as it lives. §8.5; docs/deviations.md"""
    for tp in sorted(ended):
        replicas = state.assignment(tp).replicas
        left = [
            broker for broker in sorted(state.live_brokers) if broker not in replicas and state.is_begun(tp, broker)
        ]
        if left and tp not in state.partitions_being_reassigned and not state.is_queued_for_deletion(tp.topic):
            yield f"ends the move of {tp}, and has not deleted it on {left}"


def _adds_the_dead(state: ClusterView, added: Mapping[TopicPartition, Sequence[int]]) -> Iterator[str]:
    """Who asks by request adds nobody who is dead, or leaves. §8.3; Kafka 3.9 `validateReplicas`."""
    for tp, brokers in sorted(added.items()):
        if dead := [broker for broker in brokers if not state.is_live(BrokerId(broker))]:
            yield f"lets a move of {tp} add {dead}, which are not there"


def _keeps_who_goes(state: ClusterView) -> Iterator[str]:
    """Whom a move has yet to remove counts as there: else nobody stops it when the move is tried again. §8.5."""
    for tp in sorted(state.partitions_being_reassigned):
        for replica in state.assignment(tp).removing_replicas:
            gone = state.replica_state(PartitionReplica(tp, replica)) is ReplicaState.NON_EXISTENT
            if gone and not state.is_queued_for_deletion(tp.topic):
                yield f"takes replica {replica} of {tp} for gone, which a move has yet to remove"


def _tries_again(cluster: Cluster, state: ClusterView, not_asked: Set[str]) -> Iterator[str]:
    """When all who were asked have answered, what could not be deleted is no longer counted as such, unless that is how
    another attempt has just ended: it is offline, and asked again as soon as it can be. §10.7. Who cannot leave an ISR,
    since ZooKeeper refuses its state, cannot go offline, as in Kafka."""
    for topic in sorted((state.topics_to_be_deleted & state.topics_ineligible_for_deletion) - not_asked):
        stuck = state.replicas_in(topic, ReplicaState.DELETION_INELIGIBLE)
        left = [r for r in stuck if TopicPartitionStateZNode.path(r.topic_partition) not in cluster.refused]
        if left and ReplicaState.DELETION_STARTED not in state.deletion_states(topic):
            yield f"leaves replicas of {topic} as those that cannot be deleted, though nobody is asked any more"
