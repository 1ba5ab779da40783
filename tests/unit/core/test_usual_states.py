"""Of states only the unusual ones are kept: whoever asks hears the same as if each were."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import product
from random import Random

import pytest

from controller.core.settings import ControllerSettings
from controller.core.state import ClusterState
from controller.core.transitions import PartitionState, ReplicaState, legal_partition, legal_replica
from controller.wire.types import BrokerId, LeaderAndIsr, PartitionReplica, ReplicaAssignment, TopicPartition
from controller.wire.znodes import TopicAssignment
from tests.worlds import figures

TOPICS, BROKERS = ("a", "b"), tuple(map(BrokerId, range(1, 6)))
PARTITIONS = [TopicPartition(topic, p) for topic, p in product(TOPICS, range(4))]


class Told:
    """The state, and each state of a partition or replica as it was told."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.state = ClusterState(BrokerId(100), ControllerSettings())
        self.state.office_won(1, 1)
        self.partitions = dict.fromkeys(PARTITIONS, PartitionState.NON_EXISTENT)
        self.replicas = dict.fromkeys(product(PARTITIONS, BROKERS), ReplicaState.NON_EXISTENT)

    def drawn(self) -> ReplicaAssignment:
        replicas = tuple(self.chance.sample(BROKERS, self.chance.randrange(1, 4)))
        return ReplicaAssignment(replicas=replicas, adding_replicas=self.chance.choice(((), replicas[:1])))

    def learns(self) -> None:
        found = {p: self.drawn() for p in self.chance.sample(range(4), self.chance.randrange(4))}
        self.state.topic_learnt(self.chance.choice(TOPICS), TopicAssignment(partitions=found))

    def forgets(self) -> None:
        topic = self.chance.choice(TOPICS)
        for tp in self.state.partitions_of((topic,)):
            self.partitions[tp] = PartitionState.NON_EXISTENT
            for broker_id in BROKERS:  # of those, too, that were dropped and not stopped
                self.replicas[tp, broker_id] = ReplicaState.NON_EXISTENT
        self.state.topic_gone(topic)

    def assigns(self) -> None:
        self.state.assign(self.chance.choice(PARTITIONS), self.drawn())

    def moves_partitions(self) -> None:
        target = self.chance.choice(list(PartitionState))
        able = [tp for tp in self.state.all_partitions() if legal_partition(self.partitions[tp], target)]
        moved = self.chance.sample(able, self.chance.randrange(len(able) + 1))
        before = tuple(self.partitions[tp] for tp in moved)
        assert self.state.put_partition_states(moved, target).before == before
        self.partitions.update(dict.fromkeys(moved, target))

    def moves_replicas(self) -> None:
        target, broker_id = self.chance.choice(list(ReplicaState)), self.chance.choice(BROKERS)
        able = [tp for tp in PARTITIONS if legal_replica(self.replicas[tp, broker_id], target)]
        moved = self.chance.sample(able, self.chance.randrange(len(able) + 1))
        before = tuple(self.replicas[tp, broker_id] for tp in moved)
        assert self.state.put_replica_states(broker_id, moved, target).before == before
        self.replicas.update({(tp, broker_id): target for tp in moved})

    def leads(self) -> None:
        tp = self.chance.choice(PARTITIONS)
        if replicas := self.state.assignment(tp).replicas:
            self.state.lead(tp, LeaderAndIsr(leader=self.chance.choice((None, *BROKERS)), isr=replicas))

    def queues(self) -> None:
        self.state.deletion_queued({self.chance.choice(TOPICS)} & self.state.topics)

    def start(self) -> None:
        """A failover: whose state is not told is online."""
        for _ in range(2):
            self.learns()
        self.queues()
        assigned = list(self.state.all_partitions())
        new = self.chance.sample(assigned, len(assigned) // 2)
        self.partitions.update(dict.fromkeys(assigned, PartitionState.ONLINE))
        self.partitions.update(dict.fromkeys(new, PartitionState.NEW))
        dead = BROKERS[0]
        for replica in self.state.replicas_of(assigned):
            self.replicas[replica] = ReplicaState.OFFLINE if replica.replica == dead else ReplicaState.ONLINE
        self.state.start_replica_states(self.state.replicas_on((dead,)), ReplicaState.OFFLINE)
        self.state.start_partition_states({PartitionState.NEW: new})

    def check(self) -> None:
        state = self.state
        assert {tp: state.partition_state(tp) for tp in PARTITIONS} == self.partitions
        assert {each: state.replica_state(PartitionReplica(*each)) for each in self.replicas} == self.replicas
        for broker_id in BROKERS:
            told = [self.replicas[tp, broker_id] for tp in PARTITIONS]
            assert state.replica_states(broker_id, PARTITIONS) == told
        for tp in PARTITIONS:
            others = [b for b in BROKERS if b not in state.assignment(tp).replicas]
            begun = [b for b in others if self.replicas[tp, b] is not ReplicaState.NON_EXISTENT]
            assert state.begun_elsewhere(tp) == begun
        for current in set(PartitionState) - {PartitionState.NON_EXISTENT}:
            assert state.partitions_in(current) == [tp for tp in PARTITIONS if self.partitions[tp] is current]
        figures.check(state)


@pytest.mark.parametrize("seed", range(150))
def test_states_are_as_told(seed: int) -> None:
    told = Told(seed)
    acts: list[Callable[[], None]] = [
        told.learns, told.assigns, told.assigns, told.moves_partitions, told.moves_partitions,
        told.moves_replicas, told.moves_replicas, told.moves_replicas, told.leads, told.queues, told.forgets,
    ]  # fmt: skip
    told.start()
    told.check()
    for _ in range(40):
        told.chance.choice(acts)()
        told.check()


def said_of(state: ClusterState, topic: str) -> dict[str, object]:
    """What the state shows of a topic, by name."""
    names = [name for name in dir(ClusterState) if isinstance(inspect.getattr_static(ClusterState, name), property)]
    found: dict[str, object] = {name: getattr(state, name) for name in names}
    return {name: each for name, each in found.items() if f"'{topic}'" in repr(each)} | {"gauges": state.gauges()}


def test_of_a_topic_that_is_gone_nothing_is_believed() -> None:
    """Whatever was: a topic of the same name is another. What a broker said of its disk stays until it says more."""
    told = Told(1)
    state, partitions = told.state, [TopicPartition("a", p) for p in range(2)]
    state.topic_learnt("b", TopicAssignment(partitions={0: ReplicaAssignment(replicas=BROKERS[:2])}))
    state.start_partition_states({})
    state.start_replica_states({}, ReplicaState.OFFLINE)
    alone = said_of(state, "a")
    moving = ReplicaAssignment(replicas=BROKERS[:2], adding_replicas=BROKERS[:1])
    state.topic_learnt("a", TopicAssignment(partitions=dict.fromkeys(range(2), moving), topic_id="id", rest={"x": 1}))
    for target in (PartitionState.NEW, PartitionState.OFFLINE):
        state.put_partition_states(partitions, target)
    state.put_replica_states(BROKERS[0], partitions, ReplicaState.NEW)
    for tp in partitions:
        state.lead(tp, LeaderAndIsr(leader=BROKERS[1], isr=BROKERS[:2]))
        state.move_started(tp)
    state.move_waits(partitions[0])
    state.deletion_queued(["a"])
    state.deletion_started(["a"])
    state.deletion_waits(["a"])
    shown = {"topics", "topic_ids", "leaderships", "partitions_being_reassigned", "moves_that_wait", "watched_states"}
    deletion = {"topics_to_be_deleted", "topics_with_deletion_started", "topics_ineligible_for_deletion"}
    assert said_of(state, "a").keys() == {*shown, *deletion, "gauges"}
    state.topic_gone("a")
    assert said_of(state, "a") == alone
    assert state.topic_content("a") == TopicAssignment()
    assert {state.partition_state(tp) for tp in partitions} == {PartitionState.NON_EXISTENT}
    assert {state.replica_state(PartitionReplica(tp, BROKERS[0])) for tp in partitions} == {ReplicaState.NON_EXISTENT}
    figures.check(state)
