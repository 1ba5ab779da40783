"""ClusterView: what the controller believes, to be read. Requests, metrics and recipes look here; `state` changes it.

Nothing here looks at every partition when an event touches few; what concerns a whole broker does: an index would cost
a failover more (bench: failover, warm). Of states only the unusual are kept. Counters equal a recount (`recount`).

Source: Kafka 3.9 `ControllerContext`; spec controller.md §4.4, §8.2.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from operator import attrgetter
from typing import Any, Final

from controller.core.deletion_counts import DeletionCounts
from controller.core.settings import ControllerSettings
from controller.core.transitions import PartitionState, ReplicaState
from controller.wire.types import Broker, BrokerId, LeaderAndIsr, PartitionReplica, ReplicaAssignment, TopicPartition
from controller.wire.znodes import TopicAssignment

#: Replicas, by broker: what a batch of the replica machine works on.
Replicas = Mapping[BrokerId, Sequence[TopicPartition]]

_UNASSIGNED: Final = ReplicaAssignment(replicas=())


class ClusterView:
    """What is believed; see the module's docstring. What is handed out is not to be changed."""

    def __init__(self, controller_id: BrokerId, settings: ControllerSettings) -> None:
        self._controller_id = controller_id
        self._settings = settings
        self._endpoint: Broker | None = None
        self._session_id: int | None = None
        self._active_controller_id: BrokerId | None = None
        #: A dict as a set that keeps its order: the last ones seen are remembered.
        self._brokerless: dict[BrokerId, None] = {controller_id: None}
        self._election_not_before_ms = 0
        self._unclean_elections = 0
        self._epoch_before = 0
        self._forget()

    def _forget(self) -> None:
        """What is believed of the cluster before anything is read of it."""
        self._serving = False
        self._epoch = 0
        self._epoch_zk_version = 0
        self._live_brokers: dict[BrokerId, Broker] = {}
        self._shutting_down: set[BrokerId] = set()
        self._offline_dirs: dict[BrokerId, set[TopicPartition]] = {}
        self._topics: set[str] = set()
        self._topic_ids: dict[str, str] = {}
        self._topic_rests: dict[str, Mapping[str, Any]] = {}
        #: Partitions in OFFLINE, those of topics queued for deletion excepted: Kafka does not count them.
        self._offline: set[TopicPartition] = set()
        self._partitions_being_reassigned: set[TopicPartition] = set()
        self._watched_states: set[TopicPartition] = set()
        self._moves_that_wait: set[TopicPartition] = set()
        self._topics_to_be_deleted: set[str] = set()
        self._topics_with_deletion_started: set[str] = set()
        self._topics_ineligible_for_deletion: set[str] = set()
        #: The partitions of each topic, ascending.
        self._assignments: dict[str, dict[int, ReplicaAssignment]] = {}
        self._leadership: dict[str, dict[int, LeaderAndIsr]] = {}
        #: Once states are known, what is assigned is online, and what is not does not exist, if nothing else is here.
        self._partitions_have_states = False
        self._replicas_have_states = False
        self._unusual_partitions: dict[PartitionState, set[TopicPartition]] = {each: set() for each in PartitionState}
        self._unusual_replicas: defaultdict[BrokerId, dict[TopicPartition, ReplicaState]] = defaultdict(dict)
        self._imbalanced: set[TopicPartition] = set()
        self._deletion_counts = DeletionCounts()

    # --- this process

    @property
    def controller_id(self) -> BrokerId:
        """Its id."""
        return self._controller_id

    @property
    def settings(self) -> ControllerSettings:
        """As they are now: some may change at run time."""
        return self._settings

    @property
    def endpoint(self) -> Broker | None:
        """Where it listens, shown to brokers as a live broker: they find the controller there, although it hosts no
        replicas. None before it listens."""
        return self._endpoint

    @property
    def session_id(self) -> int | None:
        """The present ZooKeeper session; None between two, or when it is not known."""
        return self._session_id

    # --- the office

    @property
    def serving(self) -> bool:
        """Whether this process holds the office. Not the same as being named (known-failures.md X1)."""
        return self._serving

    @property
    def active_controller_id(self) -> BrokerId | None:
        """Who `/controller` names, as last read."""
        return self._active_controller_id

    @property
    def brokerless(self) -> AbstractSet[BrokerId]:
        """Ids of controllers that were no brokers: this one's, and those that it saw in office, the last ones seen."""
        return self._brokerless.keys()

    @property
    def epoch(self) -> int:
        """The controller epoch of this term, 0 when not serving."""
        return self._epoch

    @property
    def epoch_before(self) -> int:
        """The controller epoch of the last term of this process, which no later one may fall below."""
        return self._epoch_before

    @property
    def epoch_zk_version(self) -> int:
        """The version of `/controller_epoch` that fences the writes of this term."""
        return self._epoch_zk_version

    @property
    def election_not_before_ms(self) -> int:
        """After a failure to take office the next attempt waits until then."""
        return self._election_not_before_ms

    @property
    def unclean_elections(self) -> int:
        """Elections that may have lost records (`UncleanLeaderElectionsPerSec`), since the process started."""
        return self._unclean_elections

    # --- brokers

    @property
    def live_brokers(self) -> Mapping[BrokerId, Broker]:
        """Registered brokers, those that are shutting down included."""
        return self._live_brokers

    @property
    def shutting_down(self) -> AbstractSet[BrokerId]:
        """Brokers that asked to leave and are still registered."""
        return self._shutting_down

    @property
    def offline_dirs(self) -> Mapping[BrokerId, AbstractSet[TopicPartition]]:
        """Replicas in failed log directories, by broker."""
        return self._offline_dirs

    def is_live(self, broker_id: BrokerId) -> bool:
        """Registered and not shutting down."""
        return broker_id in self._live_brokers and broker_id not in self._shutting_down

    def is_online(self, broker_id: BrokerId, tp: TopicPartition) -> bool:
        """Whether that replica is on a live broker and in a good log directory."""
        if broker_id not in self._live_brokers or broker_id in self._shutting_down:
            return False
        return not self._offline_dirs or tp not in self._offline_dirs.get(broker_id, ())

    def is_registered_with_good_dir(self, broker_id: BrokerId, tp: TopicPartition) -> bool:
        """As `is_online`, but brokers that are shutting down count."""
        return broker_id in self._live_brokers and tp not in self._offline_dirs.get(broker_id, ())

    # --- topics and assignments

    @property
    def topics(self) -> AbstractSet[str]:
        """The topics that are known, those without a readable assignment included."""
        return self._topics

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """The ids of the topics that have one."""
        return self._topic_ids

    def topic_content(self, topic: str) -> TopicAssignment:
        """The whole znode of a topic as it is believed: also what nobody here understands."""
        return TopicAssignment(
            partitions=self.topic_assignment(topic),
            topic_id=self._topic_ids.get(topic),
            rest=self._topic_rests.get(topic, {}),
        )

    def assignment(self, tp: TopicPartition) -> ReplicaAssignment:
        """The assignment, empty for an unknown partition."""
        partitions = self._assignments.get(tp[0])
        return _UNASSIGNED if partitions is None else partitions.get(tp[1], _UNASSIGNED)

    def topic_assignment(self, topic: str) -> Mapping[int, ReplicaAssignment]:
        """The assignments of a topic's partitions."""
        return self._assignments.get(topic, {})

    def partitions_of(self, topics: Iterable[str]) -> list[TopicPartition]:
        """The partitions of these topics, sorted."""
        return [TopicPartition(topic, p) for topic in sorted(topics) for p in self._assignments.get(topic, ())]

    def all_partitions(self) -> Iterator[TopicPartition]:
        """Every partition, unordered."""
        return (TopicPartition(topic, p) for topic, partitions in self._assignments.items() for p in partitions)

    def partitions_on(self, broker_id: BrokerId) -> list[TopicPartition]:
        """Partitions with a replica on that broker, sorted."""
        return [
            TopicPartition(topic, p)
            for topic, partitions in sorted(self._assignments.items())
            for p, assignment in partitions.items()
            if broker_id in assignment.replicas
        ]

    def replicas_on(self, broker_ids: Iterable[BrokerId]) -> Replicas:
        """All replicas on these brokers, by broker and partition."""
        return {broker_id: self.partitions_on(broker_id) for broker_id in sorted(broker_ids)}

    def replica_counts(self) -> dict[BrokerId, int]:
        """How many partitions each broker has a replica of, those without any left out."""
        assigned = chain.from_iterable(map(dict.values, self._assignments.values()))
        return dict(sorted(Counter(chain.from_iterable(map(attrgetter("replicas"), assigned))).items()))

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

    @property
    def partitions_being_reassigned(self) -> AbstractSet[TopicPartition]:
        """Partitions whose move has not ended."""
        return self._partitions_being_reassigned

    @property
    def moves_that_wait(self) -> AbstractSet[TopicPartition]:
        """Those of them whose last step failed."""
        return self._moves_that_wait

    @property
    def watched_states(self) -> AbstractSet[TopicPartition]:
        """Partitions whose state znode is watched, which every read of it re-arms."""
        return self._watched_states

    # --- leadership

    def leadership(self, tp: TopicPartition) -> LeaderAndIsr | None:
        """Leader and ISR as last read or written; None while the partition never had a leader."""
        led = self._leadership.get(tp[0])
        return None if led is None else led.get(tp[1])

    def topic_leaderships(self, topic: str) -> Mapping[int, LeaderAndIsr]:
        """As `leadership`, of the partitions of a topic that have any, unordered."""
        return self._leadership.get(topic, {})

    @property
    def leaderships(self) -> Mapping[TopicPartition, LeaderAndIsr]:
        """All that is believed of leadership now, made anew: for who checks."""
        return {TopicPartition(topic, p): found for topic, led in self._leadership.items() for p, found in led.items()}

    def partitions_with_leaders(self) -> list[TopicPartition]:
        """Partitions with known leadership (even leaderless), those queued for deletion excepted, sorted."""
        topics = sorted(self._leadership.keys() - self._topics_to_be_deleted)
        return [TopicPartition(topic, p) for topic in topics for p in sorted(self._leadership[topic])]

    def partitions_led_by(self, broker_id: BrokerId) -> list[TopicPartition]:
        """Partitions that broker leads, sorted."""
        topics = sorted(self._leadership.items())
        return [TopicPartition(t, p) for t, led in topics for p in sorted(led) if led[p].leader == broker_id]

    def partitions_with_offline_leader(self) -> list[TopicPartition]:
        """Partitions whose leader is not online (or that have none), those queued for deletion excepted, sorted."""
        live = frozenset(filter(self.is_live, self._live_brokers))
        failed = [(leader, tp) for leader in live & self._offline_dirs.keys() for tp in self._offline_dirs[leader]]
        found = [tp for leader, tp in failed if (was := self.leadership(tp)) is not None and was.leader == leader]
        for topic, led in self._leadership.items():  # most topics are led by live brokers alone
            if not live.issuperset([was.leader for was in led.values()]):
                found += [TopicPartition(topic, p) for p, was in led.items() if was.leader not in live]
        return sorted(tp for tp in found if tp.topic not in self._topics_to_be_deleted)

    # --- states

    def partition_state(self, tp: TopicPartition) -> PartitionState:
        """NON_EXISTENT for an unknown partition."""
        for state, members in self._unusual_partitions.items():
            if tp in members:
                return state
        return self._usual_partition_state(tp)

    def _usual_partition_state(self, tp: TopicPartition) -> PartitionState:
        is_usual = self._partitions_have_states and tp[1] in self._assignments.get(tp[0], ())
        return PartitionState.ONLINE if is_usual else PartitionState.NON_EXISTENT

    def partitions_in(self, *states: PartitionState) -> list[TopicPartition]:
        """Partitions in one of these states, sorted."""
        found = [tp for state in states for tp in self._unusual_partitions[state]]
        if PartitionState.ONLINE in states:
            found += [tp for tp in self.all_partitions() if self.partition_state(tp) is PartitionState.ONLINE]
        return sorted(found)

    def replica_state(self, replica: PartitionReplica) -> ReplicaState:
        """NON_EXISTENT for an unknown replica."""
        return self.replica_states(replica.replica, (replica.topic_partition,))[0]

    def is_begun(self, tp: TopicPartition, broker_id: BrokerId) -> bool:
        """Whether the replica was new at some time: who is added by a move is not, until phase A begins it."""
        return self.replica_state(PartitionReplica(tp, broker_id)) is not ReplicaState.NON_EXISTENT

    def begun_elsewhere(self, tp: TopicPartition) -> list[BrokerId]:
        """Brokers on which it is begun though they are none of its replicas, sorted: a move could not stop it there."""
        replicas = self.assignment(tp).replicas
        return sorted(b for b, unusual in self._unusual_replicas.items() if tp in unusual and b not in replicas)

    def replica_states(self, broker_id: BrokerId, partitions: Iterable[TopicPartition]) -> list[ReplicaState]:
        """As `replica_state`, of a broker's replicas of these partitions."""
        unusual, usual = self._unusual_replicas.get(broker_id, {}), self._usual_replica_state
        return [unusual[tp] if tp in unusual else usual(broker_id, tp) for tp in partitions]

    def _usual_replica_state(self, broker_id: BrokerId, tp: TopicPartition) -> ReplicaState:
        is_usual = self._replicas_have_states and broker_id in self.assignment(tp).replicas
        return ReplicaState.ONLINE if is_usual else ReplicaState.NON_EXISTENT

    def replicas_in(self, topic: str, state: ReplicaState) -> list[PartitionReplica]:
        """Assigned replicas of a topic in that state, sorted."""
        return [r for r in self.replicas_of(self.partitions_of((topic,))) if self.replica_state(r) is state]

    # --- deletion

    @property
    def topics_to_be_deleted(self) -> AbstractSet[str]:
        """Topics that an operator asked to delete and that are still there."""
        return self._topics_to_be_deleted

    @property
    def topics_with_deletion_started(self) -> AbstractSet[str]:
        """Those of them whose brokers were told."""
        return self._topics_with_deletion_started

    @property
    def topics_ineligible_for_deletion(self) -> AbstractSet[str]:
        """Those of them whose deletion waits for something."""
        return self._topics_ineligible_for_deletion

    def is_queued_for_deletion(self, topic: str) -> bool:
        """Whether an operator asked for the topic's deletion."""
        return topic in self._topics_to_be_deleted

    def deletion_states(self, topic: str) -> set[ReplicaState]:
        """The states that the assigned replicas of a topic queued for deletion are in."""
        return self._deletion_counts.states(topic)

    # --- counters

    def _counts_as_imbalanced(self, tp: TopicPartition) -> bool:
        leadership, assignment = self.leadership(tp), self.assignment(tp)
        if leadership is None or not assignment.replicas or tp[0] in self._topics_to_be_deleted:
            return False
        preferred = assignment.replicas[0]
        if preferred in assignment.adding_replicas:
            return preferred in leadership.isr
        return leadership.leader != preferred

    def gauges(self) -> dict[str, int]:
        """The gauges of `kafka.controller:type=KafkaController` by Kafka's names; all 0 when not active, except
        `ZkMigrationState`, which is 4 (no migration) always."""
        queued = self._topics_to_be_deleted
        return {
            "ActiveControllerCount": int(self._serving),
            "OfflinePartitionsCount": len(self._offline),
            "PreferredReplicaImbalanceCount": len(self._imbalanced),
            "GlobalTopicCount": len(self._topics),
            "GlobalPartitionCount": sum(map(len, self._leadership.values())),
            "TopicsToDeleteCount": len(queued),
            "ReplicasToDeleteCount": self._deletion_counts.waiting(),
            "TopicsIneligibleToDeleteCount": len(self._topics_ineligible_for_deletion & queued),
            "ReplicasIneligibleToDeleteCount": self._deletion_counts.ineligible(),
            "ActiveBrokerCount": len(self._live_brokers),
            "FencedBrokerCount": 0,
            "ZkMigrationState": 4,
        }

    def recount(self) -> dict[str, int]:
        """The counters that are kept incrementally, from scratch: the oracle of the tests."""
        queued = self._topics_to_be_deleted
        waiting = [self.replica_state(r) for r in self.replicas_of(self.partitions_of(queued))]
        return {
            "OfflinePartitionsCount": sum(tp.topic not in queued for tp in self.partitions_in(PartitionState.OFFLINE)),
            "PreferredReplicaImbalanceCount": sum(self._counts_as_imbalanced(tp) for tp in self.all_partitions()),
            "ReplicasToDeleteCount": sum(s is not ReplicaState.DELETION_SUCCESSFUL for s in waiting),
            "ReplicasIneligibleToDeleteCount": sum(s is ReplicaState.DELETION_INELIGIBLE for s in waiting),
        }
