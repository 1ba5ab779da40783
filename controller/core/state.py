"""ClusterState: the doors through which the controller's belief changes. Owned by the controller's one task.

Every change is a verb here; each keeps the indexes and counters of `view`, and refuses what is illegal before it
changes anything: the tables of `transitions` are law, not advice. Only recipes of this package call the verbs (a test
finds any other change); what the shell knows comes to them in events.

Source: Kafka 3.9 `ControllerContext`; spec controller.md §4.4, §5.2, §8.2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Final

from controller.core.transitions import (
    IllegalTransition,
    PartitionState,
    ReplicaState,
    Transition,
    check_partition,
    check_replica,
)
from controller.core.view import ClusterView
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
        self._assignments[topic] = dict(found)
        by_broker = self._partitions_by_broker
        for tp in self._topic_partitions(topic):
            for broker_id in found[tp[1]].replicas:
                by_broker[broker_id][tp] = None

    def assign(self, tp: TopicPartition, assignment: ReplicaAssignment) -> None:
        """Sets the assignment of one partition."""
        before = self.assignment(tp)
        self._index_replicas(tp, before.replicas, assignment.replicas)
        if self._deletion_counts and tp.topic in self._deletion_counts:
            for replicas, times in ((before.replicas, -1), (assignment.replicas, 1)):
                for broker_id in replicas:
                    self._deletion_counts.add(tp.topic, self.replica_state(PartitionReplica(tp, broker_id)), times)
        self._assignments.setdefault(tp.topic, {})[tp.partition] = assignment
        self._refresh_imbalance(tp)

    def _index_replicas(self, tp: TopicPartition, old: Iterable[BrokerId], new: Iterable[BrokerId]) -> None:
        for broker_id in old:
            self._partitions_by_broker[broker_id].pop(tp, None)
        for broker_id in new:
            self._partitions_by_broker[broker_id][tp] = None

    def topic_gone(self, topic: str) -> None:
        """Forgets a topic with all that was believed of it, its moves included: a topic of the same name is another."""
        for partition in list(self._assignments.get(topic, ())):
            tp = TopicPartition(topic, partition)
            replicas = self.assignment(tp).replicas
            self._index_replicas(tp, replicas, ())
            for broker_id in replicas:
                self._replica_states[broker_id].pop(tp, None)
            self._forget_leadership(tp)
            self._imbalanced.discard(tp)
            self._offline.discard(tp)
            self.move_ended(tp)
            if (before := self._partition_states.pop(tp, None)) is not None:
                self._partitions_by_state[before].discard(tp)
        self._assignments.pop(topic, None)
        self._named.pop(topic, None)
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
        before = self._leadership.get(tp)
        if before is None:
            self._partitions_by_leader[leadership.leader].add(tp)
        elif before.leader != leadership.leader:
            self._partitions_by_leader[before.leader].discard(tp)
            self._partitions_by_leader[leadership.leader].add(tp)
        self._leadership[tp] = leadership
        self._refresh_imbalance(tp)

    def lead_all(self, found: Mapping[TopicPartition, LeaderAndIsr]) -> None:
        """As `lead`, of very many partitions."""
        leaderships, by_leader, assignment_of = self._leadership, self._partitions_by_leader, self.assignment
        for tp, leadership in found.items():
            if tp in leaderships:
                self.lead(tp, leadership)
                continue
            leaderships[tp] = leadership
            by_leader[leadership.leader].add(tp)
            assignment = assignment_of(tp)
            if assignment.adding_replicas or assignment.replicas[:1] != (leadership.leader,):
                self._refresh_imbalance(tp)

    def unclean_elected(self, partitions: int) -> None:
        """That many leaders were elected from outside of the ISR."""
        self._unclean_elections += partitions

    def _forget_leadership(self, tp: TopicPartition) -> None:
        before = self._leadership.pop(tp, None)
        if before is not None:
            self._partitions_by_leader[before.leader].discard(tp)

    def _refresh_imbalance(self, tp: TopicPartition) -> None:
        if self._counts_as_imbalanced(tp):
            self._imbalanced.add(tp)
        elif self._imbalanced:
            self._imbalanced.discard(tp)

    # --- states

    def start_partition_states(self, partitions: Mapping[PartitionState, Sequence[TopicPartition]]) -> None:
        """At failover: the states of all partitions at once. Raises: IllegalTransition, where there are some."""
        if self._partition_states:
            raise IllegalTransition("first states of partitions that have some")
        for state, members in partitions.items():
            self._partition_states.update(dict.fromkeys(members, state))
            self._partitions_by_state[state] = set(members)
            if state is PartitionState.OFFLINE:
                self._offline = {tp for tp in members if tp[0] not in self._topics_to_be_deleted}

    def start_replica_states(
        self, broker_id: BrokerId, partitions: Collection[TopicPartition], state: ReplicaState
    ) -> None:
        """At failover: the states of all replicas of a broker. Raises: IllegalTransition, where it has some."""
        if self._replica_states[broker_id]:
            raise IllegalTransition(f"first states of replicas on broker {broker_id}, which have some")
        self._put_replica_states(broker_id, partitions, state)

    def replicas_stay_online(
        self, broker_id: BrokerId, partitions: Sequence[TopicPartition]
    ) -> Transition[ReplicaState]:
        """At failover: the replicas of a live broker, which started as ONLINE, are told that they are. Raises:
        IllegalTransition, where one is anything else."""
        states = self._replica_states[broker_id]
        if len(states) != len(partitions) or set(states.values()) - {ReplicaState.ONLINE}:
            raise IllegalTransition(f"not all replicas on broker {broker_id} are online, {len(partitions)} were to be")
        return Transition(partitions, (ReplicaState.ONLINE,) * len(partitions), ReplicaState.ONLINE, broker_id)

    def put_partition_states(
        self, partitions: Collection[TopicPartition], state: PartitionState
    ) -> Transition[PartitionState]:
        """Moves partitions. Raises: IllegalTransition, for a move that the table does not have; none has moved then."""
        states, by_state = self._partition_states, self._partitions_by_state
        moved = Transition(partitions, tuple(map(states.get, partitions, repeat(PartitionState.NON_EXISTENT))), state)
        moving = set(moved.before)
        for before in moving:
            check_partition(before, state)
        for before in moving:
            if before is not state:
                by_state[before].difference_update(partitions)
        if state is PartitionState.OFFLINE:
            self._offline.update(tp for tp in partitions if tp[0] not in self._topics_to_be_deleted)
        elif self._offline:
            self._offline.difference_update(partitions)
        if state is PartitionState.NON_EXISTENT:
            for tp in partitions:
                states.pop(tp, None)
        else:
            states.update(dict.fromkeys(partitions, state))
            by_state[state].update(partitions)
        return moved

    def put_replica_states(
        self, broker_id: BrokerId, partitions: Collection[TopicPartition], state: ReplicaState
    ) -> Transition[ReplicaState]:
        """Moves replicas of a broker; NON_EXISTENT forgets them. Raises: IllegalTransition, for a move that the table
        does not have; none has moved then."""
        states = self._replica_states[broker_id]
        moved = Transition(
            partitions, tuple(map(states.get, partitions, repeat(ReplicaState.NON_EXISTENT))), state, broker_id
        )
        for before in set(moved.before):
            check_replica(broker_id, before, state)
        self._put_replica_states(broker_id, partitions, state)
        return moved

    def _put_replica_states(
        self, broker_id: BrokerId, partitions: Collection[TopicPartition], state: ReplicaState
    ) -> None:
        states = self._replica_states[broker_id]
        if self._deletion_counts:
            self._count_deletions(broker_id, partitions, state)
        if state is not ReplicaState.NON_EXISTENT:
            states.update(dict.fromkeys(partitions, state))
            return
        for tp in partitions:
            states.pop(tp, None)

    # --- deletion

    def deletion_queued(self, topics: Iterable[str]) -> None:
        """Topics are to be deleted; their partitions no longer count as imbalanced or offline."""
        for topic in topics:
            if topic not in self._deletion_counts:
                replicas = self.replicas_of(self.partitions_of((topic,)))
                self._deletion_counts.start(topic, [self.replica_state(r) for r in replicas])
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

    def _count_deletions(self, broker_id: BrokerId, partitions: Iterable[TopicPartition], state: ReplicaState) -> None:
        counts, states = self._deletion_counts, self._replica_states[broker_id]
        for tp in partitions:
            if tp.topic in counts:
                times = self.assignment(tp).replicas.count(broker_id)
                counts.add(tp.topic, states.get(tp, ReplicaState.NON_EXISTENT), -times)
                counts.add(tp.topic, state, times)
