"""The three requests of the controller to its brokers: LeaderAndIsr v4, UpdateMetadata v6, StopReplica v3.

Values on both sides; what is the same for several brokers is encoded once. Source: spec controller.md §7, broker.md §1.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from controller.wire.types import Broker, BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition

LEADER_AND_ISR_VERSION: Final = 4
UPDATE_METADATA_VERSION: Final = 6
STOP_REPLICA_VERSION: Final = 3
CONTROLLED_SHUTDOWN_VERSION: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrEntry:
    """What one broker is told of one partition it replicates. `is_new` lets it create the log."""

    topic_partition: TopicPartition
    state: LeaderAndIsr
    assignment: ReplicaAssignment
    is_new: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataEntry:
    """What every broker is told of one partition. `being_deleted` goes out as leader -2, leader epoch 0, epoch 0."""

    topic_partition: TopicPartition
    state: LeaderAndIsr
    replicas: tuple[BrokerId, ...]
    offline_replicas: tuple[BrokerId, ...] = ()
    being_deleted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaEntry:
    """One replica to stop. `leader_epoch` may be NO_EPOCH or EPOCH_DURING_DELETE."""

    topic_partition: TopicPartition
    leader_epoch: int
    delete_partition: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrRequest:
    """`to` is the addressee; `live_leaders` are the live brokers that lead a partition of this request."""

    to: BrokerId
    controller_id: BrokerId
    controller_epoch: int
    broker_epoch: int
    partition_states: tuple[LeaderAndIsrEntry, ...]
    live_leaders: tuple[Broker, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataRequest:
    """The same entries and live brokers go to every addressee; only `to` and `broker_epoch` differ."""

    to: BrokerId
    controller_id: BrokerId
    controller_epoch: int
    broker_epoch: int
    partition_states: tuple[UpdateMetadataEntry, ...]
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
