"""All replicas of one broker: what the controller makes of them, and what clients and followers ask of them.

Source: spec broker.md §6, 7, 9.2, 10-15; Kafka 3.9 `ReplicaManager`.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import structlog

from broker_sim.config import ReplicaSettings
from broker_sim.log.dirs import LogDirs
from broker_sim.log.errors import StorageFailure
from broker_sim.log.log import Log
from broker_sim.log.log_dir import LogDir
from broker_sim.replicas.configs import ReplicaConfigs
from broker_sim.replicas.fetcher import FetcherManager
from broker_sim.replicas.housekeeping import Housekeeping
from broker_sim.replicas.isr_updates import IsrUpdates
from broker_sim.replicas.log_dir_moves import LogDirMoves
from broker_sim.replicas.offsets import Offsets
from broker_sim.replicas.produce_and_fetch import Fetching, Producing
from broker_sim.replicas.quota import ReplicationQuota
from broker_sim.replicas.roles import ReplicaRoles, RoleChanges
from broker_sim.replicas.table import ReplicaTable
from broker_sim.replicas.types import IsrWriter, LogDirDescription, MetadataView, ReplicaHooks, ReplicaOnDisk
from broker_sim.trace import TraceWriter
from controller.wire import log_events as ev
from controller.wire.control import LeaderAndIsrEntry, StopReplicaEntry
from controller.wire.errors import ErrorCode
from controller.wire.trace import STOP_KEEP, TraceEvent
from controller.wire.types import NO_EPOCH, BrokerId, TopicPartition
from controller.world.ports import Clock, Network
from controller.world.supervisor import Supervisor


class ReplicaManager:
    """The data plane of one broker. All methods run on one event loop; the order of calls is the order of effects.

    Its parts have doors of their own: `producing`, `fetching` and `offsets` for clients and followers, `moves` between
    log dirs, `configs` for settings of topics and dynamic settings of the broker.

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
        hooks: ReplicaHooks | None = None,
        supervisor: Supervisor | None = None,
        log: Any = None,
    ) -> None:
        log = log if log is not None else structlog.get_logger().bind(broker_id=broker_id)
        trace.on_failure = lambda error: log.error(ev.TRACE_ENDED, reason=str(error))
        self._hooks = hooks = hooks if hooks is not None else ReplicaHooks()
        self.table = ReplicaTable(
            broker_id=broker_id,
            settings=settings,
            clock=clock,
            rng=rng,
            metadata=metadata,
            trace=trace,
            log=log,
            supervisor=supervisor if supervisor is not None else Supervisor(log),
            on_storage_failure=self._storage_failed,
            disk_wait_s=hooks.disk_wait_s,
            off_loop=hooks.off_loop,
            dirs=LogDirs(settings.log_dirs, rng, hooks.files),
            leader_quota=_quota(broker_id, settings),
            follower_quota=_quota(broker_id, settings),
            alter_log_dirs_quota=_quota(broker_id, settings),
        )
        self.fetchers = FetcherManager(self.table, network, hooks.is_paused)
        self.configs = ReplicaConfigs(self.table, self.fetchers)
        self.isr_updates = IsrUpdates(self.table, isr_writer)
        self._housekeeping = Housekeeping(self.table)
        self.moves = LogDirMoves(self.table, self._housekeeping.purge_later)
        self._roles = ReplicaRoles(self.table, self.fetchers, self._housekeeping.delete_later)
        self.producing = Producing(self.table)
        self.fetching = Fetching(self.table, self.isr_updates)
        self.offsets = Offsets(self.table)
        self._has_started = self._has_ended = False
        self._alive: frozenset[BrokerId] | None = None

    # -- life ---------------------------------------------------------------------------------------------------------

    def load_logs(self, *, cluster_id: str) -> None:
        """Locks the log dirs, checks `meta.properties`, loads all logs (recovers the unclean ones).

        Raises: LogDirsUnusable (from log.dirs) when no dir can be used, another process holds one, or the cluster or
        broker id differs.
        """
        table = self.table
        report = table.dirs.open(
            broker_id=table.broker_id, cluster_id=cluster_id, config_of=table.config_of, now_ms=table.now_ms()
        )
        for topic_partition, repair in report.repairs:
            topic, partition = topic_partition if topic_partition is not None else (None, None)
            table.log.warning(
                ev.LOG_RECOVERED,
                topic=topic,
                partition=partition,
                path=str(repair.path),
                lost_bytes=repair.lost_bytes,
                reason=repair.reason,
            )
        for log_dir in table.dirs:
            if not log_dir.is_online:
                self._tell_failure(log_dir.name, "cannot be read")

    def startup(self) -> None:
        """Starts the periodic work: isr-expiration (first run at once), ISR propagation, checkpoints, retention."""
        table = self.table
        self._has_started = True
        settings = {
            "replica.lag.time.max.ms": str(table.settings.replica_lag_time_max_ms),
            "min.insync.replicas": str(table.settings.min_insync_replicas),
        }
        table.trace.start(table.now_ms(), settings=settings)
        self.configs.trace_all()
        for log_dir in table.dirs:
            if not log_dir.is_online:
                self._hooks.on_log_dir_failure(log_dir.name)
        self.isr_updates.start()
        self._housekeeping.start()

    async def shutdown(self, *, clean: bool = True, broker_epoch: int = -1) -> None:
        """Stops fetchers and timers, completes what waits, checkpoints, closes logs and trace. Idempotent.

        `clean=False` leaves the disk as a kill would: no checkpoint, no clean-shutdown marker.
        """
        if self._has_ended:
            return
        self._has_ended = True
        table = self.table
        await self.fetchers.stop()
        await self.moves.stop()
        await self.isr_updates.stop()
        await self._housekeeping.stop()
        watermarks, future_watermarks = self._housekeeping.watermarks(), self._housekeeping.future_watermarks()
        if clean and self._has_started:
            table.trace.row(TraceEvent.DOWN, table.now_ms())
        for partition in table.partitions.values():
            partition.stop_leading()
            partition.wake_all()
        for path in table.dirs.close(
            clean=clean,
            broker_epoch=broker_epoch,
            high_watermarks=watermarks,
            future_high_watermarks=future_watermarks,
        ):
            table.log.error(ev.LOG_DIR_FAILED, log_dir=str(path), reason="not closed cleanly")
        table.trace.close()

    def abandon(self) -> None:
        """Gives up the locks of the log dirs, as the end of a process would; for the simulation of a kill only."""
        self._has_ended = True
        self.table.dirs.unlock()

    # -- the controller's requests ------------------------------------------------------------------------------------

    def leader_and_isr(self, entries: Sequence[LeaderAndIsrEntry]) -> dict[TopicPartition, ErrorCode]:
        """§6, per partition; the caller has checked broker and controller epoch. One answer per entry.

        A follower's leader is looked up in the metadata cache (§6.5), not among the request's live leaders.
        """
        self._housekeeping.start_watermarks()
        changes = self._roles.leader_and_isr(entries)
        # Also where the leader is unavailable: who copies needs no leader.
        self.moves.resume(tp for tp, error in changes.errors.items() if error is ErrorCode.NONE)
        return self._apply(changes)

    def stop_replica(self, entries: Sequence[StopReplicaEntry]) -> dict[TopicPartition, ErrorCode]:
        """§7, per partition; the caller has checked broker and controller epoch."""
        changes = self._roles.stop_replica(entries)
        # Where the log could not be deleted, as its dir has failed, its move ends all the same: the future log, in a
        # good dir, would count as the move of a later topic of that name.
        ended = (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
        stopped = [e for e in entries if changes.errors[e.topic_partition] in ended]
        self.moves.pause(e.topic_partition for e in stopped)
        for topic_partition in (e.topic_partition for e in stopped if e.delete_partition):
            try:
                self.moves.drop(topic_partition)
            except StorageFailure as failure:
                self._storage_failed(failure)
                changes.errors[topic_partition] = failure.code
        return self._apply(changes)

    def _apply(self, changes: RoleChanges) -> dict[TopicPartition, ErrorCode]:
        if changes.became_leader or changes.became_follower:
            self._hooks.on_leadership_change(changes.became_leader, changes.became_follower)
        return changes.errors

    def alive_brokers_changed(self) -> None:
        """The metadata cache may have another set of live brokers: call after every UpdateMetadata."""
        alive = frozenset(self.table.metadata.alive_brokers())
        if alive == self._alive:
            return
        self._alive = alive
        self.table.trace_aliveness()
        for partition in self.table.led():
            if partition.led is not None:
                partition.led.alive = alive
            partition.log_starts_changed.wake()

    # -- what is on the disks -----------------------------------------------------------------------------------------

    def local_partitions(self) -> set[TopicPartition]:
        """Those that are hosted here, and those whose logs lie on the disks without being served."""
        on_disk = (tp for log_dir in self.table.dirs for tp in log_dir.logs)
        return {*on_disk, *(tp for tp, partition in self.table.partitions.items() if not partition.is_offline)}

    def is_here(self, topic_partition: TopicPartition) -> bool:
        """Whether it is hosted, or has a log that is served or not."""
        return topic_partition in self.table.partitions or self.table.dirs.get(topic_partition) is not None

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        """Of the newest LeaderAndIsr that it was hosted by, NO_EPOCH when it is not hosted."""
        partition = self.table.partitions.get(topic_partition)
        return NO_EPOCH if partition is None else partition.leader_epoch

    def put_aside(self, topic_partition: TopicPartition) -> Path | None:
        """Hosts it no longer, and renames its log (if there is one) to `-stray`; returns where that is then."""
        folder = None
        try:
            self.moves.drop(topic_partition)
            folder = self._roles.put_aside(topic_partition)
        except StorageFailure as failure:
            self._storage_failed(failure)
        self._hooks.on_leadership_change([], [topic_partition])
        return folder

    def read_records(self, topic_partition: TopicPartition) -> Iterable[bytes]:
        """The whole batches of a local log, in order, from its start to its end (to load group offsets).

        Empty when there is no such log. `controller.wire.records.iterate` decodes them.
        """
        log = self.table.dirs.get(topic_partition)
        return iter(()) if log is None else log.batches()

    @property
    def log_dir_names(self) -> list[str]:
        """The configured log dirs, in their order, failed ones too."""
        return [log_dir.name for log_dir in self.table.dirs]

    def compression_type(self, topic_partition: TopicPartition) -> str | None:
        """The topic's `compression.type` as it is in force here; None without a log here."""
        partition = self.table.partitions.get(topic_partition)
        log = partition.log if partition is not None else None
        return log.config.compression_type if log is not None else None

    def describe_log_dirs(self, partitions: Collection[TopicPartition] | None = None) -> list[LogDirDescription]:
        """One entry per configured dir, with these replicas (None: all)."""
        return [self._describe(log_dir, partitions) for log_dir in self.table.dirs]

    def _describe(self, log_dir: LogDir, partitions: Collection[TopicPartition] | None) -> LogDirDescription:
        path = str(log_dir.path.absolute())
        if not log_dir.is_online:
            return LogDirDescription(path=path, error=ErrorCode.KAFKA_STORAGE_ERROR)
        found = sorted([*((tp, False) for tp in log_dir.logs), *((tp, True) for tp in log_dir.futures)])
        replicas = tuple(
            self._replica_on_disk(tp, log_dir.futures[tp] if is_future else log_dir.logs[tp], is_future)
            for tp, is_future in found
            if partitions is None or tp in partitions
        )
        total, usable = log_dir.space()
        return LogDirDescription(path=path, replicas=replicas, total_bytes=total, usable_bytes=usable)

    def _replica_on_disk(self, topic_partition: TopicPartition, log: Log, is_future: bool) -> ReplicaOnDisk:
        """A lag of -1: the replica's current log is not served, so there is nothing to compare with."""
        partition = self.table.partitions.get(topic_partition)
        lag = -1
        if partition is not None and partition.log is not None:
            lag = partition.log.leo - log.leo if is_future else max(partition.hw - log.leo, 0)
        return ReplicaOnDisk(
            topic_partition=topic_partition, size_bytes=log.size_bytes, offset_lag=lag, is_future=is_future
        )

    def fail_log_dir(self, path: str) -> None:
        """Takes a dir offline as an I/O error would (§11.1); for faults. Ignores an unknown or failed path."""
        log_dir = self.table.dirs.by_name(path)
        if log_dir is not None:
            self._storage_failed(StorageFailure(log_dir.path, OSError("failed on purpose")))

    def _storage_failed(self, failure: StorageFailure) -> None:
        log_dir = next((d for d in self.table.dirs if d.path == failure.log_dir), None)
        if log_dir is None or not log_dir.is_online:
            return
        self.moves.dir_failed(log_dir)
        partitions = self.table.dirs.take_offline(log_dir.name) or []
        self.fetchers.remove(partitions)
        for topic_partition in partitions:
            if (partition := self.table.partitions.get(topic_partition)) is not None:
                self._trace_stop(topic_partition, partition.leader_epoch)
                partition.go_offline()
        self._tell_failure(log_dir.name, str(failure))

    def _trace_stop(self, topic_partition: TopicPartition, epoch: int) -> None:
        self.table.trace.row(TraceEvent.STOP, self.table.now_ms(), topic_partition, epoch=epoch, value=STOP_KEEP)

    def _tell_failure(self, name: str, reason: str) -> None:
        self.table.log.error(ev.LOG_DIR_FAILED, log_dir=name, reason=reason)
        if self._has_started:
            self._hooks.on_log_dir_failure(name)

    # -- questions ----------------------------------------------------------------------------------------------------

    def is_leader(self, topic_partition: TopicPartition) -> bool:
        """Whether this broker leads the partition now."""
        partition = self.table.partitions.get(topic_partition)
        return partition is not None and partition.led is not None

    @property
    def all_log_dirs_failed(self) -> bool:
        """Whether the broker must halt (§11.1)."""
        return self.table.dirs.all_offline


def _quota(broker_id: BrokerId, settings: ReplicaSettings) -> ReplicationQuota:
    return ReplicationQuota(
        broker_id,
        samples=settings.replication_quota_window_num,
        window_ms=settings.replication_quota_window_size_seconds * 1000,
    )
