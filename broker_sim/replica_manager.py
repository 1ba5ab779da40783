"""All replicas of one broker: what the controller makes of them, and what clients and followers ask of them.

Source: spec broker.md §6, 7, 9.2, 10-15; Kafka 3.9 `ReplicaManager`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from broker_sim.replica_types import (
    CONSUMER_REPLICA_ID,
    DeleteRecordsResult,
    EpochEnd,
    FetchPartition,
    FetchResult,
    IsrWriter,
    ListedOffset,
    LogDirDescription,
    MetadataView,
    ProduceResult,
    ReplicaSettings,
)
from broker_sim.trace import TraceWriter
from controller.wire.control import LeaderAndIsrEntry, StopReplicaEntry
from controller.wire.errors import ErrorCode
from controller.wire.ports import Clock, Network
from controller.wire.types import Broker, BrokerId, TopicPartition


class ReplicaManager:
    """The data plane of one broker. All methods run on one event loop; the order of calls is the order of effects.

    Life: construct, `load_logs()` (reads the disk), `startup()` (timers start; before the broker registers), serve,
    `shutdown()`.
    """

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        settings: ReplicaSettings,
        clock: Clock,
        network: Network,
        rng: random.Random,
        isr_writer: IsrWriter,
        metadata: MetadataView,
        trace: TraceWriter,
        on_log_dir_failure: Callable[[str], None] = lambda path: None,
        on_leadership_change: Callable[[Collection[TopicPartition], Collection[TopicPartition]], None] = (
            lambda leaders, followers: None
        ),
        is_paused: Callable[[TopicPartition], bool] = lambda topic_partition: False,
    ) -> None:
        """`on_log_dir_failure(path)` is called once per failed dir (write the ZooKeeper notification there).

        `on_leadership_change(became_leader, became_follower)` is called after a LeaderAndIsr (or StopReplica with
        delete: the partition counts as a follower) for group coordination. `is_paused` stops the fetching of a partition
        by this broker's own fetchers while it says True.
        """
        raise NotImplementedError

    # -- life ----------------------------------------------------------------------------------------------------

    def load_logs(self, *, cluster_id: str) -> None:
        """Locks the log dirs, checks `meta.properties`, loads all logs (recovers the unclean ones).

        Raises: LogDirsUnusable (from log.dirs) when no dir can be used, another process holds one, or the cluster or
        broker id differs.
        """
        raise NotImplementedError

    def startup(self) -> None:
        """Starts the periodic work: isr-expiration (first run at once), ISR propagation, checkpoints, retention."""
        raise NotImplementedError

    async def shutdown(self, *, clean: bool = True, broker_epoch: int = -1) -> None:
        """Stops fetchers and timers, completes what waits, checkpoints, closes logs and trace. Idempotent.

        `clean=False` leaves the disk as a kill would: no checkpoint, no clean-shutdown marker.
        """
        raise NotImplementedError

    # -- the controller's requests ----------------------------------------------------------------------------------

    def leader_and_isr(
        self,
        controller_id: BrokerId,
        controller_epoch: int,
        entries: Sequence[LeaderAndIsrEntry],
        live_leaders: Sequence[Broker] = (),
    ) -> dict[TopicPartition, ErrorCode]:
        """§6, per partition; the caller has checked broker and controller epoch. One answer per entry.

        A follower's leader is looked up in the metadata cache (§6.5), not in `live_leaders`.
        """
        raise NotImplementedError

    def stop_replica(self, entries: Sequence[StopReplicaEntry]) -> dict[TopicPartition, ErrorCode]:
        """§7, per partition; the caller has checked broker and controller epoch."""
        raise NotImplementedError

    def alive_brokers_changed(self) -> None:
        """The metadata cache has another set of live brokers: call after every UpdateMetadata."""
        raise NotImplementedError

    # -- clients and followers ---------------------------------------------------------------------------------------

    async def produce(
        self,
        records: Mapping[TopicPartition, bytes],
        *,
        acks: int,
        timeout_ms: int,
        is_internal: bool = False,
        zstd_allowed: bool = True,
    ) -> dict[TopicPartition, ProduceResult]:
        """Appends one batch per partition and waits as `acks` says (clients.md §3, broker.md §12.6).

        `is_internal`: written by this broker itself (group offsets), so internal topics are allowed.
        """
        raise NotImplementedError

    async def fetch(
        self,
        partitions: Mapping[TopicPartition, FetchPartition],
        *,
        replica_id: int = CONSUMER_REPLICA_ID,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        read_committed: bool = False,
        version: int = 11,
    ) -> dict[TopicPartition, FetchResult]:
        """Reads in the order of `partitions`, and waits for `min_bytes` up to `max_wait_ms` (clients.md §4).

        A `replica_id` >= 0 is a follower: its fetch is recorded on arrival (broker.md §12.2).
        """
        raise NotImplementedError

    def list_offsets(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        *,
        replica_id: int = CONSUMER_REPLICA_ID,
        current_leader_epoch: int = -1,
        read_committed: bool = False,
        version: int = 5,
    ) -> ListedOffset:
        """One partition of ListOffsets (clients.md §5)."""
        raise NotImplementedError

    def offset_for_leader_epoch(
        self, topic_partition: TopicPartition, *, leader_epoch: int, current_leader_epoch: int = -1
    ) -> EpochEnd:
        """One partition of OffsetForLeaderEpoch (broker.md §14)."""
        raise NotImplementedError

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_ms: int
    ) -> dict[TopicPartition, DeleteRecordsResult]:
        """Raises log start offsets (-1: to the high watermark) and waits until all live followers have them."""
        raise NotImplementedError

    def read_records(self, topic_partition: TopicPartition) -> Iterable[bytes]:
        """The whole batches of a local log, in order, from its start to its end (to load group offsets).

        Empty when there is no such log. `broker_sim.log.records.iterate` decodes them.
        """
        raise NotImplementedError

    # -- log dirs -------------------------------------------------------------------------------------------------------

    def describe_log_dirs(self, partitions: Collection[TopicPartition] | None = None) -> list[LogDirDescription]:
        """One entry per configured dir, with these replicas (None: all)."""
        raise NotImplementedError

    def alter_replica_log_dirs(self, moves: Mapping[TopicPartition, str]) -> dict[TopicPartition, ErrorCode]:
        """§11.2. `moves` maps a partition to the target dir."""
        raise NotImplementedError

    def fail_log_dir(self, path: str) -> None:
        """Takes a dir offline as an I/O error would (§11.1); for faults. Ignores an unknown or failed path."""
        raise NotImplementedError

    # -- configuration ------------------------------------------------------------------------------------------------------

    def set_topic_config(self, topic: str, overrides: Mapping[str, str]) -> None:
        """The topic's overrides are now exactly these (`min.insync.replicas`, `segment.bytes`, ...).

        Unknown keys are kept for nobody. Does not touch throttles: they follow the change notification (§15).
        """
        raise NotImplementedError

    def set_throttled_replicas(self, topic: str, leader: str, follower: str) -> None:
        """The topic's throttled lists, as in its config: `p:b,p:b`, `*` or empty. Raises ValueError for another form."""
        raise NotImplementedError

    def set_throttle_rates(
        self, *, leader: int | None = None, follower: int | None = None, alter_log_dirs: int | None = None
    ) -> None:
        """Bytes per second; None: no limit. All three are set."""
        raise NotImplementedError

    # -- questions -----------------------------------------------------------------------------------------------------------

    def is_leader(self, topic_partition: TopicPartition) -> bool:
        """Whether this broker leads the partition now."""
        raise NotImplementedError

    def led_partitions(self) -> list[TopicPartition]:
        """All that this broker leads, sorted."""
        raise NotImplementedError

    def under_replicated_count(self) -> int:
        """Kafka's UnderReplicatedPartitions gauge."""
        raise NotImplementedError

    @property
    def all_log_dirs_failed(self) -> bool:
        """Whether the broker must halt (§11.1)."""
        raise NotImplementedError

    @property
    def trace_path(self) -> Path | None:
        """The file of the trace, if any."""
        raise NotImplementedError
