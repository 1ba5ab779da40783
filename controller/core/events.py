"""Everything that can happen to a controller, as values: they print, store and replay.

Events say what may have changed, not what did: the recipe that handles one reads the world again. The shell makes them
from ZooKeeper's watches, from answers of brokers, from requests of clients and from timers. An event that somebody
waits for carries `reply_to`, a number that the shell knows; the answer goes out as `effects.Reply`.

Source: Kafka 3.9 `ControllerEvent`, `ControllerState`; spec controller.md §4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from controller.wire.errors import ErrorCode
from controller.wire.types import NO_BROKER_EPOCH, Broker, BrokerId, TopicPartition


class ControllerState(Enum):
    """What the controller is doing; the value is that of Kafka's `ControllerState` gauge."""

    IDLE = 0
    CONTROLLER_CHANGE = 1
    BROKER_CHANGE = 2
    TOPIC_CHANGE = 3
    TOPIC_DELETION = 4
    ALTER_PARTITION_REASSIGNMENT = 5
    AUTO_LEADER_BALANCE = 6
    MANUAL_LEADER_BALANCE = 7
    CONTROLLED_SHUTDOWN = 8
    ISR_CHANGE = 9
    LEADER_AND_ISR_RESPONSE_RECEIVED = 10
    LOG_DIR_CHANGE = 11
    CONTROLLER_SHUTDOWN = 12
    UNCLEAN_LEADER_ELECTION_ENABLE = 13
    TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE = 14
    LIST_PARTITION_REASSIGNMENT = 15
    UPDATE_METADATA_RESPONSE_RECEIVED = 16


class ElectionType(Enum):
    """`ElectLeadersRequest.ElectionType`."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectionTrigger(Enum):
    """Who asked for an election of leaders."""

    AUTO = "auto"
    ZK = "zk"
    ADMIN_CLIENT = "admin_client"


@dataclass(frozen=True, slots=True)
class Startup:
    """The process came up: where it listens, and its first session."""

    session_id: int | None = None
    endpoint: Broker | None = None


@dataclass(frozen=True, slots=True)
class ControllerChange:
    """`/controller` was created or changed."""


@dataclass(frozen=True, slots=True)
class Reelect:
    """`/controller` was deleted."""


@dataclass(frozen=True, slots=True)
class RegisterBrokerAndReelect:
    """A new session replaced an expired one. This controller is no broker, so only the election is left to do."""

    session_id: int | None = None


@dataclass(frozen=True, slots=True)
class Expire:
    """The session expired."""


@dataclass(frozen=True, slots=True)
class BrokerChange:
    """The children of `/brokers/ids` changed."""


@dataclass(frozen=True, slots=True)
class BrokerModifications:
    """The data of `/brokers/ids/<id>` changed."""

    broker_id: BrokerId


@dataclass(frozen=True, slots=True)
class TopicChange:
    """The children of `/brokers/topics` changed."""


@dataclass(frozen=True, slots=True)
class PartitionModifications:
    """The data of `/brokers/topics/<topic>` changed."""

    topic: str


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    """The children of `/admin/delete_topics` changed."""


@dataclass(frozen=True, slots=True)
class TopicDeletionStopReplicaResponseReceived:
    """A broker answered the deletion of replicas. `partition_errors` covers only entries sent with delete_partition."""

    broker_id: BrokerId
    request_error: ErrorCode
    partition_errors: Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class ZkPartitionReassignment:
    """`/admin/reassign_partitions` was created, or was deleted by this controller."""


@dataclass(frozen=True, slots=True)
class ApiPartitionReassignment:
    """AlterPartitionReassignments: target replicas per partition, None to cancel. Answer: ReassignmentAnswer."""

    reassignments: Mapping[TopicPartition, tuple[BrokerId, ...] | None]
    reply_to: int


@dataclass(frozen=True, slots=True)
class PartitionReassignmentIsrChange:
    """The state znode of a partition that is being reassigned changed; those of `others` too, when their events were
    waiting right behind: the shell takes them together, so that one step serves them all."""

    topic_partition: TopicPartition
    others: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class ListPartitionReassignments:
    """ListPartitionReassignments: of these partitions, or of all (None). Answer: ListingAnswer."""

    partitions: frozenset[TopicPartition] | None
    reply_to: int


@dataclass(frozen=True, slots=True)
class ReplicaLeaderElection:
    """Election of leaders: of these partitions; None means those of the znode (ZK trigger). Answer: ElectionAnswer."""

    partitions: frozenset[TopicPartition] | None
    election_type: ElectionType
    trigger: ElectionTrigger
    reply_to: int | None = None


@dataclass(frozen=True, slots=True)
class AutoPreferredReplicaLeaderElection:
    """The balance timer fired."""


@dataclass(frozen=True, slots=True)
class UncleanLeaderElectionEnable:
    """The cluster's default of `unclean.leader.election.enable` has another value."""

    enabled: bool


@dataclass(frozen=True, slots=True)
class TopicUncleanLeaderElectionEnable:
    """A topic's `unclean.leader.election.enable` became true, or its leaderless partitions are tried again."""

    topic: str


@dataclass(frozen=True, slots=True)
class ControlledShutdown:
    """A broker wants to leave. Answer: ShutdownAnswer."""

    broker_id: BrokerId
    broker_epoch: int
    reply_to: int


@dataclass(frozen=True, slots=True)
class LeaderAndIsrResponseReceived:
    """A broker answered LeaderAndIsr. Partitions that are not listed had no error. `broker_epoch`: of the registration
    that was asked; NO_BROKER_EPOCH for whichever is there."""

    broker_id: BrokerId
    request_error: ErrorCode
    partition_errors: Mapping[TopicPartition, ErrorCode]
    broker_epoch: int = NO_BROKER_EPOCH


@dataclass(frozen=True, slots=True)
class UpdateMetadataResponseReceived:
    """A broker answered UpdateMetadata."""

    broker_id: BrokerId
    request_error: ErrorCode


@dataclass(frozen=True, slots=True)
class IsrChangeNotification:
    """The children of `/isr_change_notification` changed. `again`: partitions to look at again, without a notice."""

    again: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class LogDirEventNotification:
    """The children of `/log_dir_event_notification` changed."""


Event = (
    Startup
    | ControllerChange
    | Reelect
    | RegisterBrokerAndReelect
    | Expire
    | BrokerChange
    | BrokerModifications
    | TopicChange
    | PartitionModifications
    | TopicDeletion
    | TopicDeletionStopReplicaResponseReceived
    | ZkPartitionReassignment
    | ApiPartitionReassignment
    | PartitionReassignmentIsrChange
    | ListPartitionReassignments
    | ReplicaLeaderElection
    | AutoPreferredReplicaLeaderElection
    | UncleanLeaderElectionEnable
    | TopicUncleanLeaderElectionEnable
    | ControlledShutdown
    | LeaderAndIsrResponseReceived
    | UpdateMetadataResponseReceived
    | IsrChangeNotification
    | LogDirEventNotification
)
