"""What goes in and out of `ReplicaManager`: requests and answers per partition, settings, and the ports it is given.

Values and Protocols only. The APIs (`apis/`) translate between these and the wire; `zk.py` implements `IsrWriter`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, Endpoint, LeaderAndIsr, TopicPartition

#: `replica_id` of a fetch or ListOffsets by a client (and by a debugging consumer).
CONSUMER_REPLICA_ID: Final = -1
DEBUGGING_CONSUMER_ID: Final = -2
LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5


class IsrWriteOutcome(Enum):
    """What became of an ISR write. `NO_NODE`: the state znode is gone (the topic is being deleted)."""

    WRITTEN = "written"
    REFUSED = "refused"
    NO_NODE = "no_node"


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrWriteResult:
    """The answer of `IsrWriter.write_isr`. `partition_epoch` is the version now stored, when it was written."""

    outcome: IsrWriteOutcome
    partition_epoch: int = -1


class IsrWriter(Protocol):
    """The leader's two writes to ZooKeeper."""

    async def write_isr(
        self, topic_partition: TopicPartition, new: LeaderAndIsr, expected_partition_epoch: int
    ) -> IsrWriteResult:
        """Writes `new` to the partition's state znode if its version is the expected one (spec broker.md §9.1).

        On a version conflict reads back: the wanted leader, epoch and ISR already there count as written, with the
        version read. Waits for ZooKeeper as long as it takes, over reconnections and new sessions; never raises but
        CancelledError.
        """
        ...

    async def propagate(self, partitions: Collection[TopicPartition]) -> None:
        """Creates one `/isr_change_notification/isr_change_` node that names these partitions (§9.2)."""
        ...


class MetadataView(Protocol):
    """What the metadata cache tells of the cluster."""

    def alive_brokers(self) -> Collection[BrokerId]:
        """Ids of the live brokers of the last UpdateMetadata. A `set` or `frozenset`, for `in` is asked per fetch."""
        ...

    def endpoint(self, broker_id: BrokerId) -> Endpoint | None:
        """Where a live broker listens for other brokers; None when it is not alive."""
        ...

    def knows(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition is in the cache."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """The static settings of the data plane, under Kafka's property names with `.` as `_`; Kafka's defaults."""

    log_dirs: tuple[str, ...]
    num_replica_fetchers: int = 1
    replica_lag_time_max_ms: int = 30_000
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_min_bytes: int = 1
    replica_fetch_max_bytes: int = 1_048_576
    replica_fetch_response_max_bytes: int = 10_485_760
    replica_fetch_backoff_ms: int = 1_000
    replica_socket_timeout_ms: int = 30_000
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    replication_quota_window_num: int = 11
    replication_quota_window_size_seconds: int = 1
    fetch_max_bytes: int = 57_671_680
    max_incremental_fetch_session_cache_slots: int = 1_000
    min_insync_replicas: int = 1
    log_segment_bytes: int = 1_073_741_824
    log_roll_ms: int = 604_800_000
    log_retention_ms: int = 604_800_000
    log_retention_bytes: int = -1
    log_retention_check_interval_ms: int = 300_000
    log_cleanup_policy: str = "delete"
    log_index_interval_bytes: int = 4_096
    log_index_size_max_bytes: int = 10_485_760
    log_segment_delete_delay_ms: int = 60_000
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_roll_jitter_ms: int | None = None
    log_roll_jitter_hours: int = 0
    log_flush_interval_messages: int = 9_223_372_036_854_775_807
    log_flush_interval_ms: int | None = None
    log_flush_scheduler_interval_ms: int = 9_223_372_036_854_775_807
    log_flush_start_offset_checkpoint_interval_ms: int = 60_000
    log_cleaner_enable: bool = True
    log_cleaner_backoff_ms: int = 15_000
    log_cleaner_dedupe_buffer_size: int = 134_217_728
    log_cleaner_io_buffer_load_factor: float = 0.9
    log_cleaner_io_max_bytes_per_second: float = float("inf")
    log_cleaner_threads: int = 1
    log_cleaner_delete_retention_ms: int = 86_400_000
    log_cleaner_min_cleanable_ratio: float = 0.5
    log_cleaner_min_compaction_lag_ms: int = 0
    log_cleaner_max_compaction_lag_ms: int = 9_223_372_036_854_775_807
    num_replica_alter_log_dirs_threads: int | None = None
    log_message_timestamp_type: str = "CreateTime"
    log_message_timestamp_before_max_ms: int = 9_223_372_036_854_775_807
    log_message_timestamp_after_max_ms: int = 9_223_372_036_854_775_807
    log_initial_task_delay_ms: int = 30_000
    message_max_bytes: int = 1_048_588
    compression_type: str = "producer"
    producer_id_expiration_ms: int = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceResult:
    """One partition of a Produce answer. With an error, `base_offset` is -1.

    `message` and `record_errors` (place in the batch, what is wrong with it) come with errors of single records.
    """

    error: ErrorCode = ErrorCode.NONE
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    message: str | None = None
    record_errors: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPartition:
    """One partition of a Fetch request. `current_leader_epoch` -1: not checked."""

    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    log_start_offset: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResult:
    """One partition of a Fetch answer. `records` are whole batches, empty when there are none."""

    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: bytes = b""
    preferred_read_replica: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedOffset:
    """One partition of a ListOffsets answer. `offset` -1 without an error: no such record."""

    error: ErrorCode = ErrorCode.NONE
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnd:
    """One partition of an OffsetForLeaderEpoch answer."""

    error: ErrorCode = ErrorCode.NONE
    leader_epoch: int = -1
    end_offset: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsResult:
    """One partition of a DeleteRecords answer."""

    error: ErrorCode = ErrorCode.NONE
    low_watermark: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaOnDisk:
    """One replica in a log dir, for DescribeLogDirs."""

    topic_partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    """One configured log dir: KAFKA_STORAGE_ERROR and no replicas when it is offline. Bytes -1: not known."""

    path: str
    error: ErrorCode = ErrorCode.NONE
    replicas: tuple[ReplicaOnDisk, ...] = ()
    total_bytes: int = -1
    usable_bytes: int = -1
