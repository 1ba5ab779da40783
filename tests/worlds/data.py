"""The small world of the core's tests, with brokers that keep records: they lead, follow, cut and delete logs as they
are told, and a record counts as acknowledged when all in sync have it. So a test sees what a decision costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from controller.core import events
from controller.core.events import ElectionTrigger, ElectionType
from controller.wire.control import LeaderAndIsrRequest, StopReplicaRequest
from controller.wire.types import BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition
from controller.wire.zk_operations import Create, SetData
from controller.wire.znodes import (
    IsrChangeNotificationZNode,
    LogDirEventNotificationZNode,
    ReassignPartitionsZNode,
    TopicPartitionStateZNode,
    TopicZNode,
    encode_partitions,
)
from tests.worlds.stage import Stage

BROKERS = (1, 2, 3, 4)
TOPICS = {"t": {"p0": (1, 2), "p1": (2, 3)}, "u": {"p0": (3, 1)}}
PARTITIONS = tuple(TopicPartition(topic, n) for topic, partitions in TOPICS.items() for n in range(len(partitions)))


@dataclass
class Replica:
    """What a broker holds of a partition, and what it was told last."""

    records: frozenset[int] = frozenset()
    state: LeaderAndIsr | None = None
    replicas: tuple[BrokerId, ...] = ()


class Cluster(Stage):
    """Brokers 1 to 4 with two topics, a controller in office, and one acknowledged record in each partition. Where they
    have other ids, the scenes below are played by those."""

    def __init__(self, *, brokers: Sequence[int] = BROKERS, **settings: Any) -> None:
        self.brokers = brokers
        self.replicas: dict[tuple[int, TopicPartition], Replica] = {}
        #: partition -> records that were acknowledged, since its topic was made
        self.acked: dict[TopicPartition, set[int]] = {}
        self.records = 0
        super().__init__(**settings)
        self.broker_starts(*self.brokers)
        for topic, partitions in TOPICS.items():
            self.topic(topic, **{name: tuple(map(self.id_of, replicas)) for name, replicas in partitions.items()})
        self.start()
        self.produce()

    def id_of(self, number: int) -> BrokerId:
        """Of the first broker, the second and so on."""
        return BrokerId(self.brokers[number - 1])

    # --- brokers

    def _send(self, requests: Any) -> None:
        for request in requests:
            if request.to not in self.broker_sessions or request.to not in self.channels:
                continue
            if isinstance(request, LeaderAndIsrRequest):
                for entry in request.partition_states:
                    self._told(request.to, entry.topic_partition, entry.state, entry.assignment.replicas)
            elif isinstance(request, StopReplicaRequest):
                for stop in request.partition_states:
                    self._stopped(request.to, stop.topic_partition, stop.delete_partition)
        super()._send(tuple(request for request in requests if request.to in self.channels))

    def _told(self, broker: int, tp: TopicPartition, state: LeaderAndIsr, replicas: tuple[BrokerId, ...]) -> None:
        replica = self.replicas.setdefault((broker, tp), Replica())
        if replica.state is None or state.leader_epoch > replica.state.leader_epoch:
            replica.state, replica.replicas = state, replicas

    def _stopped(self, broker: int, tp: TopicPartition, is_deleted: bool) -> None:
        if is_deleted:
            self.replicas.pop((broker, tp), None)
        elif (replica := self.replicas.get((broker, tp))) is not None and replica.state is not None:
            replica.state = None

    def broker_starts(self, *broker_ids: int) -> None:
        """A broker that was started knows nothing but its logs."""
        for broker, tp in self.replicas:
            if broker in broker_ids:
                self.replicas[broker, tp].state = None
        super().broker_starts(*broker_ids)

    def leader_of(self, tp: TopicPartition) -> int | None:
        """The broker that leads by what it was told last, and by the state znode (else nothing is acknowledged)."""
        found = self.state_in_zk(tp)
        leader = found.leader if found is not None else None
        replica = self.replicas.get((leader, tp)) if leader in self.broker_sessions and leader is not None else None
        if found is None or replica is None or replica.state is None or replica.state.leader != leader:
            return None
        return leader if replica.state.leader_epoch == found.leader_epoch else None

    def state_in_zk(self, tp: TopicPartition) -> LeaderAndIsr | None:
        znode = self.tree.get(TopicPartitionStateZNode.path(tp))
        return TopicPartitionStateZNode.decode(znode.payload, znode.version) if znode is not None else None

    def fetch(self) -> None:
        """Followers catch up with the leaders that they were told of, and cut what those do not have."""
        for (broker, tp), replica in self.replicas.items():
            leader = replica.state.leader if replica.state is not None and broker in self.broker_sessions else None
            if leader is not None and leader != broker and leader == self.leader_of(tp):
                replica.records = self.replicas[leader, tp].records

    def expand(self, *, notice: bool = True) -> None:
        """Leaders take all followers that live into their ISR."""
        changed = []
        for tp in sorted({tp for _, tp in self.replicas}):
            leader, found = self.leader_of(tp), self.state_in_zk(tp)
            if leader is None or found is None:
                continue
            asked = self.replicas[leader, tp].replicas
            isr = tuple(r for r in asked if r in found.isr or self._follows(r, tp, leader))
            if set(isr) > set(found.isr):
                data = TopicPartitionStateZNode.encode(
                    LeaderAndIsr(
                        leader=found.leader,
                        isr=isr,
                        leader_epoch=found.leader_epoch,
                        controller_epoch=found.controller_epoch,
                    )
                )
                self.others_write(SetData(TopicPartitionStateZNode.path(tp), data, found.partition_epoch))
                changed.append(tp)
        if changed and notice:
            data = encode_partitions(changed)
            self.others_write(Create(IsrChangeNotificationZNode.sequence_path, data, sequence=True))

    def _follows(self, broker: int, tp: TopicPartition, leader: int) -> bool:
        replica = self.replicas.get((broker, tp))
        known = replica.state if replica is not None and broker in self.broker_sessions else None
        return known is not None and known.leader == leader

    def produce(self) -> None:
        """One record to each partition with acks=all: acknowledged where all in sync have it."""
        for tp in sorted({tp for _, tp in self.replicas}):
            leader, found = self.leader_of(tp), self.state_in_zk(tp)
            if leader is None or found is None:
                continue
            self.records += 1
            self.replicas[leader, tp].records |= {self.records}
            self.fetch()
            in_sync = [self.replicas.get((r, tp)) for r in found.isr]
            if all(replica is not None and self.records in replica.records for replica in in_sync):
                self.acked.setdefault(tp, set()).add(self.records)

    # --- time

    def go_on(self, *, seconds: int = 4) -> None:
        """Everything that follows: queued events, timers, followers that fetch."""
        for _ in range(seconds):
            self.run()
            self.fetch()
            self.expand()
            self.run()
            self.now_ms += 1_000
            waiting, self.timers = self.timers, []
            self.run(*(timer.event for timer in waiting))

    def lost(self) -> dict[TopicPartition, set[int]]:
        """What was acknowledged and cannot be read from the leader, of topics that are not deleted."""
        lost = {}
        for tp, acked in self.acked.items():
            leader = self.leader_of(tp)
            there = self.replicas[leader, tp].records if leader is not None else frozenset()
            if missing := acked - there:
                lost[tp] = missing
        return lost


# --- what is done to a cluster


def failover(cluster: Cluster) -> None:
    cluster.new_controller()
    cluster.start()


def session_lost(cluster: Cluster) -> None:
    cluster.expire()


def bounce(cluster: Cluster) -> None:
    first = cluster.id_of(1)
    if first in cluster.broker_sessions:
        cluster.broker_dies(first)
        cluster.go_on(seconds=1)
    cluster.broker_starts(first)
    cluster.run()


def move_by_request(cluster: Cluster) -> None:
    target = (cluster.id_of(3), cluster.id_of(4))
    cluster.run(events.ApiPartitionReassignment({TopicPartition("t", 0): target}, 1))


def move_by_znode(cluster: Cluster) -> None:
    target = {TopicPartition("t", 1): (cluster.id_of(4), cluster.id_of(1)), TopicPartition("u", 0): (cluster.id_of(2),)}
    cluster.make("/admin/reassign_partitions", ReassignPartitionsZNode.encode(target))
    cluster.run()


def elect_by_znode(cluster: Cluster) -> None:
    cluster.make("/admin/preferred_replica_election", encode_partitions(PARTITIONS))
    cluster.run()


def delete(cluster: Cluster) -> None:
    cluster.acked = {tp: acked for tp, acked in cluster.acked.items() if tp.topic != "u"}
    cluster.make("/admin/delete_topics/u")
    cluster.run()


def create(cluster: Cluster) -> None:
    cluster.topic("n", p0=(cluster.id_of(1), cluster.id_of(3)), p1=(cluster.id_of(4),))
    cluster.run()


def grow(cluster: Cluster) -> None:
    """As a tool does, which reads first."""
    znode = cluster.tree.get("/brokers/topics/t")
    found = TopicZNode.decode(znode.payload if znode is not None else None)
    if found.partitions and not found.refused:
        added = ReplicaAssignment(replicas=(cluster.id_of(1), cluster.id_of(4)))
        partitions = {**found.partitions, len(found.partitions): added}
        cluster.make("/brokers/topics/t", TopicZNode.encode(replace(found, partitions=partitions)))
        cluster.run()


def dir_fails(cluster: Cluster) -> None:
    second = cluster.id_of(2)
    cluster.failed_dirs[second] = {TopicPartition("t", 1)}
    data = LogDirEventNotificationZNode.encode(second)
    cluster.others_write(Create(LogDirEventNotificationZNode.sequence_path, data, sequence=True))
    cluster.run()
    cluster.failed_dirs.clear()
    if second in cluster.broker_sessions:  # with a good disk it is started again
        cluster.broker_dies(second)
    cluster.broker_starts(second)


def isr_change(cluster: Cluster) -> None:
    cluster.others_write(Create(IsrChangeNotificationZNode.sequence_path, encode_partitions(PARTITIONS), sequence=True))
    cluster.run()


def elect_by_request(cluster: Cluster) -> None:
    for kind in ElectionType:
        cluster.run(events.ReplicaLeaderElection(frozenset(PARTITIONS), kind, ElectionTrigger.ADMIN_CLIENT, 2))


def shut_down(cluster: Cluster) -> None:
    second = cluster.id_of(2)
    cluster.run(events.ControlledShutdown(second, -1, 3))
    cluster.broker_dies(second) if second in cluster.broker_sessions else None
    cluster.run()
    cluster.broker_starts(second)


def balance(cluster: Cluster) -> None:
    cluster.run(events.AutoPreferredReplicaLeaderElection())


SCENES: dict[str, Callable[[Cluster], None]] = {
    each.__name__: each
    for each in (
        *(failover, session_lost, bounce, move_by_request, move_by_znode, elect_by_znode, delete, create, grow),
        *(dir_fails, isr_change, elect_by_request, shut_down, balance),
    )
}
