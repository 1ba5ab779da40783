"""ClusterState: what the controller believes. Owned by one task; only recipes of this package change it.

All changes go through the methods here, which keep the indexes and counters: no event looks at every partition when it
touches few, and each counter equals a recount (`recount` does it the slow way, for tests).

Source: Kafka 3.9 `ControllerContext`; spec controller.md §4.4, §8.2.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from controller.core.deletion_counts import DeletionCounts
from controller.core.settings import ControllerSettings
from controller.core.transitions import PartitionState, ReplicaState
from controller.wire.control import UpdateMetadataEntry
from controller.wire.types import Broker, BrokerId, LeaderAndIsr, PartitionReplica, ReplicaAssignment, TopicPartition

#: Replicas, by broker: what a batch of the replica machine works on.
Replicas = Mapping[BrokerId, Sequence[TopicPartition]]

_UNASSIGNED: Final = ReplicaAssignment(replicas=())


class ClusterState:
    """What is believed; see the module's docstring. `endpoint` is the controller's own, shown to brokers as a live
    broker: clients and brokers find the controller there, although it hosts no replicas."""

    def __init__(self, controller_id: BrokerId, settings: ControllerSettings, endpoint: Broker | None = None) -> None:
        self.controller_id = controller_id
        self.settings = settings
        self.endpoint = endpoint
        #: The present ZooKeeper session, as the shell says after each connect; None when it does not.
        self.session_id: int | None = None
        #: Who `/controller` names, as last read.
        self.active_controller_id: BrokerId | None = None
        #: Ids of controllers that were no brokers: this one's, and those that it saw in office, the last ones seen.
        self.brokerless: dict[BrokerId, None] = {controller_id: None}
        #: Whether this process holds the office. Not the same as being named (known-failures.md X1).
        self.serving = False
        #: After a failure to take office the next attempt waits until then.
        self.election_not_before_ms = 0
        #: Elections that may have lost records (`UncleanLeaderElectionsPerSec`), since the process started.
        self.unclean_elections = 0
        self.reset()

    def reset(self) -> None:
        """Forgets everything but who this process is. Source: spec controller.md §2.3, step 10."""
        self.serving = False
        self.epoch = 0
        self.epoch_zk_version = 0
        #: Registered brokers, those that are shutting down included.
        self.live_brokers: dict[BrokerId, Broker] = {}
        self.shutting_down: set[BrokerId] = set()
        #: Replicas in failed log directories, by broker.
        self.offline_dirs: dict[BrokerId, set[TopicPartition]] = {}
        self.topics: set[str] = set()
        self.topic_ids: dict[str, str] = {}
        self.partitions_being_reassigned: set[TopicPartition] = set()
        #: Partitions whose state znode is watched, which every read of it re-arms.
        self.watched_states: set[TopicPartition] = set()
        self.topics_to_be_deleted: set[str] = set()
        self.topics_with_deletion_started: set[str] = set()
        self.topics_ineligible_for_deletion: set[str] = set()
        self._assignments: dict[str, dict[int, ReplicaAssignment]] = {}
        self._leadership: dict[TopicPartition, LeaderAndIsr] = {}
        self._partition_states: dict[TopicPartition, PartitionState] = {}
        self._replica_states: defaultdict[BrokerId, dict[TopicPartition, ReplicaState]] = defaultdict(dict)
        #: What brokers were last told of each partition; `requests` uses an entry again while it holds.
        self.told_metadata: dict[TopicPartition, UpdateMetadataEntry] = {}
        #: Dicts as sets that keep their order, so that sorting finds it.
        self._partitions_by_broker: defaultdict[BrokerId, dict[TopicPartition, None]] = defaultdict(dict)
        self._partitions_by_leader: defaultdict[BrokerId | None, set[TopicPartition]] = defaultdict(set)
        self._partitions_by_state: defaultdict[PartitionState, set[TopicPartition]] = defaultdict(set)
        self._imbalanced: set[TopicPartition] = set()
        self._deletion_counts = DeletionCounts()

    def change_settings(self, **changes: object) -> None:
        """Replaces settings that may change at run time (`unclean_leader_election_enable`, balance settings)."""
        self.settings = replace(self.settings, **changes)  # type: ignore[arg-type]

    # --- brokers

    def is_live(self, broker_id: BrokerId) -> bool:
        """Registered and not shutting down."""
        return broker_id in self.live_brokers and broker_id not in self.shutting_down

    def is_online(self, broker_id: BrokerId, tp: TopicPartition) -> bool:
        """Whether that replica is on a live broker and in a good log directory."""
        if broker_id not in self.live_brokers or broker_id in self.shutting_down:
            return False
        return not self.offline_dirs or tp not in self.offline_dirs.get(broker_id, ())

    def is_registered_with_good_dir(self, broker_id: BrokerId, tp: TopicPartition) -> bool:
        """As `is_online`, but brokers that are shutting down count."""
        return broker_id in self.live_brokers and tp not in self.offline_dirs.get(broker_id, ())

    # --- assignments

    def assignment(self, tp: TopicPartition) -> ReplicaAssignment:
        """The assignment, empty for an unknown partition."""
        partitions = self._assignments.get(tp[0])
        return _UNASSIGNED if partitions is None else partitions.get(tp[1], _UNASSIGNED)

    def assign(self, tp: TopicPartition, assignment: ReplicaAssignment) -> None:
        """Sets the assignment of one partition."""
        known = self.assignment(tp)
        self._index_replicas(tp, known.replicas, assignment.replicas)
        if self._deletion_counts and tp.topic in self._deletion_counts:
            for replicas, times in ((known.replicas, -1), (assignment.replicas, 1)):
                for broker_id in replicas:
                    self._deletion_counts.add(tp.topic, self.replica_state(PartitionReplica(tp, broker_id)), times)
        self._assignments.setdefault(tp.topic, {})[tp.partition] = assignment
        self._refresh_imbalance(tp)

    def _index_replicas(self, tp: TopicPartition, old: Iterable[BrokerId], new: Iterable[BrokerId]) -> None:
        for broker_id in old:
            self._partitions_by_broker[broker_id].pop(tp, None)
        for broker_id in new:
            self._partitions_by_broker[broker_id][tp] = None

    def topic_assignment(self, topic: str) -> dict[int, ReplicaAssignment]:
        """The assignments of a topic's partitions. Not to be changed."""
        return self._assignments.get(topic, {})

    def partitions_of(self, topics: Iterable[str]) -> list[TopicPartition]:
        """The partitions of these topics, sorted."""
        return [TopicPartition(t, p) for t in sorted(topics) for p in sorted(self._assignments.get(t, ()))]

    def all_partitions(self) -> Iterator[TopicPartition]:
        """Every partition, unordered."""
        return (TopicPartition(t, p) for t, partitions in self._assignments.items() for p in partitions)

    def partitions_on(self, broker_id: BrokerId) -> list[TopicPartition]:
        """Partitions with a replica on that broker, sorted."""
        return sorted(self._partitions_by_broker.get(broker_id, ()))

    def replicas_on(self, broker_ids: Iterable[BrokerId]) -> Replicas:
        """All replicas on these brokers, by broker and partition."""
        return {broker_id: self.partitions_on(broker_id) for broker_id in sorted(broker_ids)}

    def replicas_of(self, partitions: Iterable[TopicPartition]) -> list[PartitionReplica]:
        """All replicas of these partitions."""
        return [PartitionReplica(tp, replica) for tp in partitions for replica in self.assignment(tp).replicas]

    def replicas_by_broker(self, partitions: Iterable[TopicPartition]) -> Replicas:
        """All replicas of these partitions by broker, each broker's partitions in the order given."""
        found: defaultdict[BrokerId, list[TopicPartition]] = defaultdict(list)
        for tp in partitions:
            for replica in self.assignment(tp).replicas:
                found[replica].append(tp)
        return found

    def remove_topic(self, topic: str) -> None:
        """Forgets a topic. The states of its partitions and replicas stay, as in Kafka (`deviations.KEPT`)."""
        for partition in list(self._assignments.get(topic, ())):
            tp = TopicPartition(topic, partition)
            self._index_replicas(tp, self.assignment(tp).replicas, ())
            self._forget_leadership(tp)
            self._imbalanced.discard(tp)
            self.told_metadata.pop(tp, None)
        self._assignments.pop(topic, None)
        self._deletion_counts.stop(topic)
        self.topics_to_be_deleted.discard(topic)
        self.topics_with_deletion_started.discard(topic)
        self.topics_ineligible_for_deletion.discard(topic)
        self.topics.discard(topic)
        self.topic_ids.pop(topic, None)

    # --- leadership

    def leadership(self, tp: TopicPartition) -> LeaderAndIsr | None:
        """Leader and ISR as last read or written; None while the partition never had a leader."""
        return self._leadership.get(tp)

    @property
    def leaderships(self) -> Mapping[TopicPartition, LeaderAndIsr]:
        """All that is known of leadership, for loops over very many partitions."""
        return self._leadership

    def lead(self, tp: TopicPartition, leadership: LeaderAndIsr) -> None:
        """Sets leader and ISR."""
        known = self._leadership.get(tp)
        if known is None:
            self._partitions_by_leader[leadership.leader].add(tp)
        elif known.leader != leadership.leader:
            self._partitions_by_leader[known.leader].discard(tp)
            self._partitions_by_leader[leadership.leader].add(tp)
        self._leadership[tp] = leadership
        self._refresh_imbalance(tp)

    def _forget_leadership(self, tp: TopicPartition) -> None:
        known = self._leadership.pop(tp, None)
        if known is not None:
            self._partitions_by_leader[known.leader].discard(tp)

    def partitions_with_leaders(self) -> list[TopicPartition]:
        """Partitions with known leadership (even leaderless), those queued for deletion excepted, sorted."""
        return sorted(tp for tp in self._leadership if tp.topic not in self.topics_to_be_deleted)

    def partitions_led_by(self, broker_id: BrokerId) -> list[TopicPartition]:
        """Partitions that broker leads, sorted."""
        return sorted(self._partitions_by_leader.get(broker_id, ()))

    def partitions_with_offline_leader(self) -> list[TopicPartition]:
        """Partitions whose leader is not online (or that have none), those queued for deletion excepted, sorted."""
        found: set[TopicPartition] = set()
        for leader, partitions in self._partitions_by_leader.items():
            if leader is None or not self.is_live(leader):
                found |= partitions
            elif leader in self.offline_dirs:
                found |= partitions & self.offline_dirs[leader]
        return sorted(tp for tp in found if tp.topic not in self.topics_to_be_deleted)

    # --- states

    def partition_state(self, tp: TopicPartition) -> PartitionState:
        """NON_EXISTENT for an unknown partition."""
        return self._partition_states.get(tp, PartitionState.NON_EXISTENT)

    def put_partition_state(self, tp: TopicPartition, state: PartitionState) -> None:
        """Sets the state, whatever it was."""
        known = self._partition_states.get(tp)
        if known is state:
            return
        if known is not None:
            self._partitions_by_state[known].discard(tp)
        if state is PartitionState.NON_EXISTENT:
            self._partition_states.pop(tp, None)
        else:
            self._partition_states[tp] = state
            self._partitions_by_state[state].add(tp)

    def start_partition_states(self, partitions: Mapping[PartitionState, Sequence[TopicPartition]]) -> None:
        """Sets the states of all partitions at once, when a failover starts."""
        for state, members in partitions.items():
            self._partition_states.update(dict.fromkeys(members, state))
            self._partitions_by_state[state] = set(members)

    def partitions_in(self, *states: PartitionState) -> list[TopicPartition]:
        """Partitions in one of these states, sorted."""
        return sorted(tp for state in states for tp in self._partitions_by_state.get(state, ()))

    def replica_state(self, replica: PartitionReplica) -> ReplicaState:
        """NON_EXISTENT for an unknown replica."""
        return self.replica_states_on(replica.replica).get(replica.topic_partition, ReplicaState.NON_EXISTENT)

    def replica_states_on(self, broker_id: BrokerId) -> Mapping[TopicPartition, ReplicaState]:
        """The states of all known replicas of a broker."""
        return self._replica_states.get(broker_id) or {}

    def put_replica_states(
        self, broker_id: BrokerId, partitions: Collection[TopicPartition], state: ReplicaState
    ) -> None:
        """Sets the states of a broker's replicas, whatever they were; NON_EXISTENT forgets them."""
        states = self._replica_states[broker_id]
        if self._deletion_counts:
            self._count_deletions(broker_id, partitions, state)
        if state is not ReplicaState.NON_EXISTENT:
            states.update(dict.fromkeys(partitions, state))
            return
        for tp in partitions:
            states.pop(tp, None)

    def replicas_in(self, topic: str, state: ReplicaState) -> list[PartitionReplica]:
        """Assigned replicas of a topic in that state, sorted."""
        return [r for r in self.replicas_of(self.partitions_of((topic,))) if self.replica_state(r) is state]

    # --- deletion

    def is_queued_for_deletion(self, topic: str) -> bool:
        """Whether an operator asked for the topic's deletion."""
        return topic in self.topics_to_be_deleted

    def deletion_states(self, topic: str) -> set[ReplicaState]:
        """The states that the assigned replicas of a topic queued for deletion are in."""
        return self._deletion_counts.states(topic)

    def _count_deletions(self, broker_id: BrokerId, partitions: Iterable[TopicPartition], state: ReplicaState) -> None:
        counts, states = self._deletion_counts, self._replica_states[broker_id]
        for tp in partitions:
            if tp.topic in counts:
                times = self.assignment(tp).replicas.count(broker_id)
                counts.add(tp.topic, states.get(tp, ReplicaState.NON_EXISTENT), -times)
                counts.add(tp.topic, state, times)

    def queue_deletion(self, topics: Iterable[str]) -> None:
        """Queues topics for deletion; their partitions no longer count as imbalanced."""
        for topic in topics:
            if topic not in self._deletion_counts:
                replicas = self.replicas_of(self.partitions_of((topic,)))
                self._deletion_counts.start(topic, [self.replica_state(r) for r in replicas])
            self.topics_to_be_deleted.add(topic)
            self._imbalanced.difference_update(TopicPartition(topic, p) for p in self._assignments.get(topic, ()))

    # --- counters

    def _refresh_imbalance(self, tp: TopicPartition) -> None:
        if self._counts_as_imbalanced(tp):
            self._imbalanced.add(tp)
        elif self._imbalanced:
            self._imbalanced.discard(tp)

    def _counts_as_imbalanced(self, tp: TopicPartition) -> bool:
        leadership = self._leadership.get(tp)
        if leadership is None:
            return False
        assignment = self.assignment(tp)
        if not assignment.replicas or tp.topic in self.topics_to_be_deleted:
            return False
        preferred = assignment.replicas[0]
        if preferred in assignment.adding_replicas:
            return preferred in leadership.isr
        return leadership.leader != preferred

    def gauges(self) -> dict[str, int]:
        """The gauges of `kafka.controller:type=KafkaController` by Kafka's names; all 0 when not active, except
        `ZkMigrationState`, which is 4 (no migration) always."""
        queued = self.topics_to_be_deleted
        return {
            "ActiveControllerCount": int(self.serving),
            "OfflinePartitionsCount": len(self._partitions_by_state.get(PartitionState.OFFLINE, ())),
            "PreferredReplicaImbalanceCount": len(self._imbalanced),
            "GlobalTopicCount": len(self.topics),
            "GlobalPartitionCount": len(self._leadership),
            "TopicsToDeleteCount": len(queued),
            "ReplicasToDeleteCount": self._deletion_counts.waiting(),
            "TopicsIneligibleToDeleteCount": len(self.topics_ineligible_for_deletion & queued),
            "ReplicasIneligibleToDeleteCount": self._deletion_counts.ineligible(),
            "ActiveBrokerCount": len(self.live_brokers),
            "FencedBrokerCount": 0,
            "ZkMigrationState": 4,
        }

    def recount(self) -> dict[str, int]:
        """The counters that are kept incrementally, from scratch: the oracle of the tests."""
        offline = [tp for tp, s in self._partition_states.items() if s is PartitionState.OFFLINE]
        waiting = [self.replica_state(r) for r in self.replicas_of(self.partitions_of(self.topics_to_be_deleted))]
        return {
            "OfflinePartitionsCount": len(offline),
            "PreferredReplicaImbalanceCount": sum(self._counts_as_imbalanced(tp) for tp in self.all_partitions()),
            "ReplicasToDeleteCount": sum(s is not ReplicaState.DELETION_SUCCESSFUL for s in waiting),
            "ReplicasIneligibleToDeleteCount": sum(s is ReplicaState.DELETION_INELIGIBLE for s in waiting),
        }
