"""ClusterState: the doors through which the controller's belief changes. Owned by the controller's one task.

Every change is a verb here; each keeps the indexes and counters of `view`, and refuses what is illegal before it
changes anything: the tables of `transitions` are law, not advice. Only recipes of this package call the verbs (a test
finds any other change); what the shell knows comes to them in events.

Source: Kafka 3.9 `ControllerContext`; spec controller.md §4.4, §5.2, §8.2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from controller.core.transitions import (
    IllegalTransition,
    PartitionState,
    ReplicaState,
    Transition,
    check_partition,
    check_replica,
)
from controller.core.view import ClusterView, Replicas
from controller.wire.types import Broker, BrokerId, LeaderAndIsr, PartitionReplica, ReplicaAssignment, TopicPartition
from controller.wire.znodes import TopicAssignment

#: Ids of former controllers that are remembered.
BROKERLESS_MAX: Final = 16


class ClusterState(ClusterView):
    """What is believed, and the verbs that change it.

    Verbs that meet what cannot be raise IllegalTransition: a bug of the recipe that called.
    """

    # --- this process

    def started(self, session_id: int | None, endpoint: Broker | None) -> None:
        """The process listens at `endpoint` and has a first session."""
        self._session_id, self._endpoint = session_id, endpoint

    def session_began(self, session_id: int | None) -> None:
        """A new session replaces the one that ended."""
        self._session_id = session_id

    def session_ended(self) -> None:
        """The session is gone. The office goes by `office_lost`."""
        self._session_id = None

    def default_of_unclean_elections_changed(self, enabled: bool) -> None:
        """The cluster's default of `unclean.leader.election.enable` has another value."""
        self._settings = replace(self._settings, unclean_leader_election_enable=enabled)

    # --- the office

    def controller_named(self, controller_id: BrokerId | None) -> None:
        """What `/controller` says: this id, or nobody."""
        self._active_controller_id = controller_id

    def brokerless_seen(self, controller_id: BrokerId) -> None:
        """That controller is no broker. Of many, the last ones seen are remembered, and this one always."""
        self._brokerless[controller_id] = None
        for forgotten in list(self._brokerless)[1:-BROKERLESS_MAX]:
            del self._brokerless[forgotten]

    def office_won(self, epoch: int, epoch_zk_version: int) -> None:
        """A term begins, with nothing believed. Raises: IllegalTransition, in the middle of another."""
        if self._serving:
            raise IllegalTransition(f"the office of epoch {epoch} while that of epoch {self._epoch} is held")
        self._forget()
        self._epoch, self._epoch_zk_version = epoch, epoch_zk_version
        self._epoch_before = epoch
        self._active_controller_id = self._controller_id
        self._serving = True

    def office_lost(self) -> None:
        """Forgets everything but who this process is. Harmless without office. Source: spec controller.md §2.3."""
        self._forget()

    def office_not_before(self, ms: int) -> None:
        """After a failed term the next attempt waits until then."""
        self._election_not_before_ms = ms

    # --- brokers

    def broker_registered(self, broker: Broker) -> None:
        """A broker is there, for the first time or again: its log directories count as good until it says otherwise."""
        self._live_brokers[broker.broker_id] = broker
        self._offline_dirs.pop(broker.broker_id, None)

    def registration_changed(self, broker: Broker) -> None:
        """A registered broker has other endpoints, or another rack. Raises: IllegalTransition, for one that is gone."""
        if broker.broker_id not in self._live_brokers:
            raise IllegalTransition(f"the registration of broker {broker.broker_id}, which is not registered")
        self._live_brokers[broker.broker_id] = broker

    def broker_gone(self, broker_id: BrokerId) -> None:
        """Its registration vanished."""
        self._live_brokers.pop(broker_id, None)
        self._offline_dirs.pop(broker_id, None)
        self._shutting_down.discard(broker_id)

    def broker_shuts_down(self, broker_id: BrokerId) -> None:
        """It asked to leave. Raises: IllegalTransition, for one that is not registered."""
        if broker_id not in self._live_brokers:
            raise IllegalTransition(f"the shutdown of broker {broker_id}, which is not registered")
        self._shutting_down.add(broker_id)

    def log_dirs_answered(
        self, broker_id: BrokerId, *, online: Iterable[TopicPartition], offline: Iterable[TopicPartition]
    ) -> set[TopicPartition]:
        """A broker said which of its replicas are in good and which in failed directories: the newly failed ones."""
        before = self._offline_dirs.get(broker_id, set())
        after = before.difference(online).union(offline)
        if after or before:
            self._offline_dirs[broker_id] = after
        return after - before

    # --- topics and assignments

    def topic_learnt(self, topic: str, found: TopicAssignment) -> None:
        """A topic is there, or has these partitions too. An id that it had stays where none is given."""
        self._topics.add(topic)
        if found.topic_id is not None:
            self._topic_ids[topic] = found.topic_id
        if found.rest:
            self._topic_rests[topic] = found.rest
        else:
            self._topic_rests.pop(topic, None)
        if topic not in self._assignments and topic not in self._deletion_counts:
            self._assign_first(topic, found.partitions)
            return
        for partition, assignment in found.partitions.items():
            self.assign(TopicPartition(topic, partition), assignment)

    def _assign_first(self, topic: str, found: Mapping[int, ReplicaAssignment]) -> None:
        """As `assign`, of all partitions of a topic that has none, so that nobody leads one either."""
        self._assignments[topic] = {p: found[p] for p in sorted(found)}
        if self._partitions_have_states:
            self._unusual_partitions[PartitionState.NON_EXISTENT].update(self.partitions_of((topic,)))
        if self._replicas_have_states:
            for tp in self.partitions_of((topic,)):
                for broker_id in found[tp[1]].replicas:
                    self._unusual_replicas[broker_id].setdefault(tp, ReplicaState.NON_EXISTENT)

    def assign(self, tp: TopicPartition, assignment: ReplicaAssignment) -> None:
        """Sets the assignment of one partition; no state changes by that."""
        before, state = self.assignment(tp), self.partition_state(tp)
        states = {r: self.replica_state(PartitionReplica(tp, r)) for r in {*before.replicas, *assignment.replicas}}
        if self._deletion_counts and tp.topic in self._deletion_counts:
            for replicas, times in ((before.replicas, -1), (assignment.replicas, 1)):
                for broker_id in replicas:
                    self._deletion_counts.add(tp.topic, states[broker_id], times)
        partitions = self._assignments.setdefault(tp.topic, {})
        is_last = tp.partition in partitions or not partitions or next(reversed(partitions)) < tp.partition
        partitions[tp.partition] = assignment
        if not is_last:
            self._assignments[tp.topic] = dict(sorted(partitions.items()))
        self._keep_partition_states((tp,), state)
        for broker_id, was in states.items():
            self._keep_replica_states(broker_id, (tp,), was)
        self._refresh_imbalance(tp)

    def topic_gone(self, topic: str) -> None:
        """Forgets a topic with all that was believed of it, its moves included: a topic of the same name is another."""
        for partition in list(self._assignments.get(topic, ())):
            tp = TopicPartition(topic, partition)
            for unusual in filter(None, self._unusual_replicas.values()):  # of those, too, whom a move has dropped
                unusual.pop(tp, None)
            for members in self._unusual_partitions.values():
                members.discard(tp)
            self._imbalanced.discard(tp)
            self._offline.discard(tp)
            self.move_ended(tp)
        self._assignments.pop(topic, None)
        self._leadership.pop(topic, None)
        self._topic_rests.pop(topic, None)
        self._deletion_counts.stop(topic)
        self._topics_to_be_deleted.discard(topic)
        self._topics_with_deletion_started.discard(topic)
        self._topics_ineligible_for_deletion.discard(topic)
        self._topics.discard(topic)
        self._topic_ids.pop(topic, None)

    def moves_found(self, partitions: Iterable[TopicPartition]) -> None:
        """At failover: these partitions were moving under the controller before this one."""
        self._partitions_being_reassigned.update(partitions)

    def move_started(self, tp: TopicPartition) -> None:
        """A partition moves: its state znode is watched from now on, unless the move waits."""
        if tp not in self._moves_that_wait:
            self._watched_states.add(tp)
        self._partitions_being_reassigned.add(tp)

    def move_goes_on(self, tp: TopicPartition) -> None:
        """A move that waited could be taken up: its state znode is watched again."""
        self._watched_states.add(tp)
        self._moves_that_wait.discard(tp)

    def move_waits(self, tp: TopicPartition) -> None:
        """The move could not go on, and is to be taken up again. Until then its state znode is not watched."""
        self._watched_states.discard(tp)
        self._moves_that_wait.add(tp)

    def move_ended(self, tp: TopicPartition) -> None:
        """The partition is where it was to go."""
        self._watched_states.discard(tp)
        self._partitions_being_reassigned.discard(tp)
        self._moves_that_wait.discard(tp)

    # --- leadership

    def lead(self, tp: TopicPartition, leadership: LeaderAndIsr) -> None:
        """Sets leader and ISR."""
        self._leadership.setdefault(tp[0], {})[tp[1]] = leadership
        self._refresh_imbalance(tp)

    def lead_all(self, found: Mapping[TopicPartition, LeaderAndIsr]) -> None:
        """As `lead`, of many partitions."""
        for tp, leadership in found.items():
            self.lead(tp, leadership)

    def lead_topic(self, topic: str, found: Mapping[int, LeaderAndIsr]) -> None:
        """As `lead`, of very many partitions of one topic."""
        self._leadership.setdefault(topic, {}).update(found)
        assignments = self._assignments.get(topic, {})
        for p, leadership in found.items():
            assignment = assignments.get(p)
            replicas = () if assignment is None or assignment.adding_replicas else assignment.replicas
            if not replicas or replicas[0] != leadership.leader:
                self._refresh_imbalance(TopicPartition(topic, p))

    def unclean_elected(self, partitions: int) -> None:
        """That many leaders were elected from outside of the ISR."""
        self._unclean_elections += partitions

    def _refresh_imbalance(self, tp: TopicPartition) -> None:
        if self._counts_as_imbalanced(tp):
            self._imbalanced.add(tp)
        elif self._imbalanced:
            self._imbalanced.discard(tp)

    # --- states

    def start_partition_states(self, others: Mapping[PartitionState, Collection[TopicPartition]]) -> None:
        """At failover: all partitions are ONLINE but for these. Raises: IllegalTransition, where states are known."""
        if self._partitions_have_states:
            raise IllegalTransition("first states of partitions that have some")
        self._partitions_have_states = True
        for state, members in others.items():
            self._keep_partition_states(members, state)
        offline = self._unusual_partitions[PartitionState.OFFLINE]
        self._offline = {tp for tp in offline if tp[0] not in self._topics_to_be_deleted}

    def start_replica_states(self, others: Replicas, state: ReplicaState) -> None:
        """At failover: all replicas are ONLINE but for these, which are in `state`. Raises: IllegalTransition, where
        states are known."""
        if self._replicas_have_states:
            raise IllegalTransition("first states of replicas that have some")
        self._replicas_have_states = True
        for broker_id, partitions in others.items():
            self._keep_replica_states(broker_id, partitions, state)
        for topic in self._topics_to_be_deleted:
            self._count_replicas(topic)

    def replicas_stay_online(
        self, broker_id: BrokerId, partitions: Collection[TopicPartition]
    ) -> Transition[ReplicaState]:
        """At failover: the replicas of a live broker, which started as ONLINE, are told that they are. Raises:
        IllegalTransition, where one is anything else."""
        if not self._replicas_have_states or self._unusual_replicas[broker_id]:
            raise IllegalTransition(f"not all replicas on broker {broker_id} are online, {len(partitions)} were to be")
        return Transition(partitions, ReplicaState.ONLINE, ReplicaState.ONLINE, broker_id)

    def put_partition_states(
        self, partitions: Collection[TopicPartition], state: PartitionState
    ) -> Transition[PartitionState]:
        """Moves partitions. Raises: IllegalTransition, for a move that the table does not have; none has moved then."""
        states = tuple(map(self.partition_state, partitions))
        for before in set(states):
            check_partition(before, state)
        self._keep_partition_states(partitions, state)
        if state is PartitionState.OFFLINE:
            self._offline.update(tp for tp in partitions if tp[0] not in self._topics_to_be_deleted)
        elif self._offline:
            self._offline.difference_update(partitions)
        return Transition(partitions, states, state)

    def _keep_partition_states(self, partitions: Collection[TopicPartition], state: PartitionState) -> None:
        """Has them in this state, and remembers those for which it is not the usual one."""
        for members in filter(None, self._unusual_partitions.values()):
            members.difference_update(partitions)
        usual = self._usual_partition_state
        self._unusual_partitions[state].update([tp for tp in partitions if usual(tp) is not state])

    def put_replica_states(
        self, broker_id: BrokerId, partitions: Collection[TopicPartition], state: ReplicaState
    ) -> Transition[ReplicaState]:
        """Moves replicas of a broker; NON_EXISTENT forgets them. Raises: IllegalTransition, for a move that the table
        does not have; none has moved then."""
        states = tuple(self.replica_states(broker_id, partitions))
        for before in set(states):
            check_replica(broker_id, before, state)
        self._put_replica_states(broker_id, partitions, state)
        return Transition(partitions, states, state, broker_id)

    def _put_replica_states(
        self, broker_id: BrokerId, partitions: Collection[TopicPartition], state: ReplicaState
    ) -> None:
        if self._deletion_counts:
            self._count_deletions(broker_id, partitions, state)
        self._keep_replica_states(broker_id, partitions, state)

    def _keep_replica_states(
        self, broker_id: BrokerId, partitions: Iterable[TopicPartition], state: ReplicaState
    ) -> None:
        """As `_keep_partition_states`."""
        unusual, usual = self._unusual_replicas[broker_id], self._usual_replica_state
        for tp in partitions:
            if usual(broker_id, tp) is state:
                unusual.pop(tp, None)
            else:
                unusual[tp] = state

    # --- deletion

    def deletion_queued(self, topics: Iterable[str]) -> None:
        """Topics are to be deleted; their partitions no longer count as imbalanced or offline."""
        for topic in topics:
            if topic not in self._deletion_counts:
                self._count_replicas(topic)
            self._topics_to_be_deleted.add(topic)
            partitions = [TopicPartition(topic, p) for p in self._assignments.get(topic, ())]
            self._imbalanced.difference_update(partitions)
            self._offline.difference_update(partitions)

    def deletion_started(self, topics: Collection[str]) -> None:
        """Brokers are told of the deletion. Raises: IllegalTransition, for a topic that nobody asked to delete."""
        self._check_queued(topics)
        self._topics_with_deletion_started.update(topics)

    def deletion_waits(self, topics: Collection[str]) -> None:
        """Something stands in the way of these deletions. Raises: as `deletion_started`."""
        self._check_queued(topics)
        self._topics_ineligible_for_deletion.update(topics)

    def deletion_may_go_on(self, topics: Collection[str]) -> None:
        """The obstacle is gone."""
        self._topics_ineligible_for_deletion.difference_update(topics)

    def _check_queued(self, topics: Collection[str]) -> None:
        if unknown := set(topics) - self._topics_to_be_deleted:
            raise IllegalTransition(f"a deletion of {', '.join(sorted(unknown))} that nobody asked for")

    def _count_replicas(self, topic: str) -> None:
        replicas = self.replicas_of(self.partitions_of((topic,)))
        self._deletion_counts.start(topic, [self.replica_state(r) for r in replicas])

    def _count_deletions(self, broker_id: BrokerId, partitions: Iterable[TopicPartition], state: ReplicaState) -> None:
        counts = self._deletion_counts
        for tp in partitions:
            if tp.topic in counts:
                times = self.assignment(tp).replicas.count(broker_id)
                counts.add(tp.topic, self.replica_state(PartitionReplica(tp, broker_id)), -times)
                counts.add(tp.topic, state, times)
