"""What goes in and out of the replicas: requests and answers per partition, and the ports that they are given.

Values and Protocols only. The APIs (`apis/`) translate between these and the wire; `isr_writer.ZkIsrWriter` implements
`IsrWriter`, `metadata_cache.MetadataCache` is the `MetadataView`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol

from broker_sim.log.files import Files
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, Endpoint, LeaderAndIsr, TopicPartition

#: `replica_id` of a fetch or ListOffsets by a client.
CONSUMER_REPLICA_ID: Final = -1
#: `replica_id` of a ListOffsets that any replica answers, of its whole log.
DEBUGGING_REPLICA_ID: Final = -2
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

    async def propagate(self, partitions: Collection[TopicPartition]) -> bool:
        """Creates one `/isr_change_notification/isr_change_` node that names these partitions (§9.2).

        Returns whether it did: not where ZooKeeper refuses it. Waits as `write_isr` does.
        """
        ...


def _nothing(*_: object) -> None:
    """What is called when nobody listens."""


async def _at_once(work: Callable[[], None]) -> None:
    work()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaHooks:
    """What the replicas tell the broker around them, and ask it."""

    #: (path of the dir), once per failed dir: write the ZooKeeper notification there.
    on_log_dir_failure: Callable[[str], None] = _nothing
    #: (became leader, became follower), after a LeaderAndIsr or a StopReplica with delete (whose partitions count as
    #: followers): for group coordination.
    on_leadership_change: Callable[[Collection[TopicPartition], Collection[TopicPartition]], None] = _nothing
    #: whether this broker's own fetchers leave a partition alone now.
    is_paused: Callable[[TopicPartition], bool] = lambda topic_partition: False
    #: (log dir, bytes): how long the disk takes longer than it does, now, for so many bytes.
    disk_wait_s: Callable[[str, int], float] = lambda log_dir, size_bytes: 0.0
    #: waits for disks where that does not stop the event loop; here: at once.
    off_loop: Callable[[Callable[[], None]], Awaitable[None]] = _at_once
    #: the file system; None: the real one.
    files: Files | None = None


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


class FetchPartition(NamedTuple):
    """One partition of a Fetch request. `current_leader_epoch` -1: not checked."""

    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    log_start_offset: int = -1


class FetchResult(NamedTuple):
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
