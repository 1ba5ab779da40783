"""The three requests of the controller to its brokers: LeaderAndIsr v4, UpdateMetadata v6, StopReplica v3.

Values on both sides; `control_bytes` puts them into bytes.

Source: spec controller.md §7, broker.md §1.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from operator import eq
from typing import Any, Final, NamedTuple, TypeVar, overload

from controller.wire.types import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    NO_EPOCH,
    Broker,
    BrokerId,
    Endpoint,
    LeaderAndIsr,
    ReplicaAssignment,
    TopicPartition,
)

LEADER_AND_ISR_VERSION: Final = 4
UPDATE_METADATA_VERSION: Final = 6
STOP_REPLICA_VERSION: Final = 3
CONTROLLED_SHUTDOWN_VERSION: Final = 3


class LeaderAndIsrEntry(NamedTuple):
    """What one broker is told of one partition it replicates. `is_new` lets it create the log."""

    topic_partition: TopicPartition
    state: LeaderAndIsr
    assignment: ReplicaAssignment
    is_new: bool = False


class UpdateMetadataEntry(NamedTuple):
    """What every broker is told of one partition. `being_deleted` goes out as leader -2, leader epoch 0, epoch 0."""

    topic_partition: TopicPartition
    state: LeaderAndIsr
    replicas: tuple[BrokerId, ...]
    offline_replicas: tuple[BrokerId, ...] = ()
    being_deleted: bool = False


class StopReplicaEntry(NamedTuple):
    """One replica to stop. `leader_epoch` may be NO_EPOCH or EPOCH_DURING_DELETE."""

    topic_partition: TopicPartition
    leader_epoch: int
    delete_partition: bool

    def is_stale(self, leader_epoch: int) -> bool:
        """Whether a replica that was told of this leader epoch is not to be stopped by it (broker.md §7)."""
        return self.leader_epoch not in (NO_EPOCH, EPOCH_DURING_DELETE) and self.leader_epoch < leader_epoch


_Entry = TypeVar("_Entry", LeaderAndIsrEntry, UpdateMetadataEntry)
#: What is told of a partition whose topic is known from elsewhere: its number, leadership and assignment.
Fact = tuple[int, LeaderAndIsr, ReplicaAssignment]


class EntriesByTopic(Sequence[_Entry]):
    """Entries of very many partitions, held topic by topic: the bytes need no more, and who looks at an entry gets it
    made (bench: failover, warm). Equal to every other sequence of the same entries."""

    __slots__ = ("topics",)

    def __init__(self, topics: Sequence[tuple[str, Sequence[Fact]]]) -> None:
        """Each topic once, sorted, as are its partitions."""
        self.topics = topics

    def entry(self, topic: str, fact: Fact) -> _Entry:
        """The entry of one partition."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[_Entry]:
        return (self.entry(topic, each) for topic, facts in self.topics for each in facts)

    def __len__(self) -> int:
        return sum(len(facts) for _, facts in self.topics)

    @overload
    def __getitem__(self, index: int) -> _Entry: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[_Entry]: ...
    def __getitem__(self, index: int | slice) -> _Entry | Sequence[_Entry]:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))


class LeaderAndIsrByTopic(EntriesByTopic[LeaderAndIsrEntry]):
    """Of replicas none of which is new."""

    __slots__ = ()

    def entry(self, topic: str, fact: Fact) -> LeaderAndIsrEntry:
        """The entry of one partition."""
        return LeaderAndIsrEntry(TopicPartition(topic, fact[0]), fact[1], fact[2])


class UpdateMetadataByTopic(EntriesByTopic[UpdateMetadataEntry]):
    """`offline_of` finds the offline ones of a list of replicas, `deleted` are the topics that are being deleted."""

    __slots__ = ("deleted", "offline_of")

    def __init__(
        self,
        topics: Sequence[tuple[str, Sequence[Fact]]],
        offline_of: Callable[[tuple[BrokerId, ...]], tuple[BrokerId, ...]],
        deleted: AbstractSet[str],
    ) -> None:
        super().__init__(topics)
        self.offline_of, self.deleted = offline_of, deleted

    def entry(self, topic: str, fact: Fact) -> UpdateMetadataEntry:
        """The entry of one partition."""
        partition, state, assignment = fact
        replicas = assignment.replicas
        tp = TopicPartition(topic, partition)
        return UpdateMetadataEntry(tp, state, replicas, self.offline_of(replicas), topic in self.deleted)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrRequest:
    """`to` is the addressee; `live_leaders` are the live brokers that lead a partition of this request."""

    to: BrokerId
    controller_id: BrokerId
    controller_epoch: int
    broker_epoch: int
    partition_states: Sequence[LeaderAndIsrEntry]
    live_leaders: tuple[Broker, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataRequest:
    """The same entries and live brokers go to every addressee; only `to` and `broker_epoch` differ."""

    to: BrokerId
    controller_id: BrokerId
    controller_epoch: int
    broker_epoch: int
    partition_states: Sequence[UpdateMetadataEntry]
    live_brokers: tuple[Broker, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaRequest:
    """Replicas for one broker to stop, some of them to delete."""

    to: BrokerId
    controller_id: BrokerId
    controller_epoch: int
    broker_epoch: int
    partition_states: tuple[StopReplicaEntry, ...]


ControlRequest = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


# --- from decoded bodies (kio entities, read by attribute), for the brokers


def decode_leader_and_isr(body: Any, to: BrokerId) -> LeaderAndIsrRequest:
    """The values of a LeaderAndIsr body, version 4. Listener names are not part of this request."""
    entries = tuple(
        LeaderAndIsrEntry(
            topic_partition=TopicPartition(topic.topic_name, int(s.partition_index)),
            state=LeaderAndIsr(
                leader=_read_leader(s.leader),
                isr=tuple(s.isr),
                leader_epoch=int(s.leader_epoch),
                partition_epoch=int(s.partition_epoch),
                controller_epoch=int(s.controller_epoch),
            ),
            assignment=ReplicaAssignment(
                replicas=tuple(s.replicas),
                adding_replicas=tuple(s.adding_replicas),
                removing_replicas=tuple(s.removing_replicas),
            ),
            is_new=bool(s.is_new),
        )
        for topic in body.topic_states
        for s in topic.partition_states
    )
    leaders = tuple(
        Broker(
            broker_id=BrokerId(int(b.broker_id)), endpoints=(Endpoint(host=b.host_name, port=int(b.port), listener=""),)
        )
        for b in body.live_leaders
    )
    return LeaderAndIsrRequest(to=to, partition_states=entries, live_leaders=leaders, **_read_head(body))


def decode_update_metadata(body: Any, to: BrokerId) -> UpdateMetadataRequest:
    """The values of an UpdateMetadata body, version 6."""
    entries = tuple(
        UpdateMetadataEntry(
            topic_partition=TopicPartition(topic.topic_name, int(s.partition_index)),
            state=LeaderAndIsr(
                leader=_read_leader(s.leader),
                isr=tuple(s.isr),
                leader_epoch=int(s.leader_epoch),
                partition_epoch=int(s.zk_version),
                controller_epoch=int(s.controller_epoch),
            ),
            replicas=tuple(s.replicas),
            offline_replicas=tuple(s.offline_replicas),
            being_deleted=s.leader == LEADER_DURING_DELETE,
        )
        for topic in body.topic_states
        for s in topic.partition_states
    )
    brokers = tuple(
        Broker(
            broker_id=BrokerId(int(b.id_)),
            endpoints=tuple(
                Endpoint(host=e.host, port=int(e.port), listener=e.listener, security_protocol=int(e.security_protocol))
                for e in b.endpoints
            ),
            rack=b.rack,
        )
        for b in body.live_brokers
    )
    return UpdateMetadataRequest(to=to, partition_states=entries, live_brokers=brokers, **_read_head(body))


def decode_stop_replica(body: Any, to: BrokerId) -> StopReplicaRequest:
    """The values of a StopReplica body, version 3."""
    entries = tuple(
        StopReplicaEntry(
            topic_partition=TopicPartition(topic.topic_name, int(s.partition_index)),
            leader_epoch=int(s.leader_epoch),
            delete_partition=bool(s.delete_partition),
        )
        for topic in body.topic_states
        for s in topic.partition_states
    )
    return StopReplicaRequest(to=to, partition_states=entries, **_read_head(body))


def _read_leader(leader: int) -> BrokerId | None:
    return None if leader < 0 else BrokerId(int(leader))


def _read_head(body: Any) -> dict[str, Any]:
    return {
        "controller_id": BrokerId(int(body.controller_id)),
        "controller_epoch": int(body.controller_epoch),
        "broker_epoch": int(body.broker_epoch),
    }
