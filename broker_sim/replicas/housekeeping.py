"""The periodic work on the disk: checkpoints, flushes, retention, the removal of what was renamed away.

Runs as timers on the loop; what waits for a disk goes beside it (`ReplicaTable.off_loop`).
Source: spec broker.md §6.6, §10.2, §10.4; Kafka 3.9 `LogManager.startup`, `ReplicaManager.checkpointHighWatermarks`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from broker_sim.log.errors import StorageFailure, storage_failures
from broker_sim.log.log import Log
from broker_sim.log.log_dir import LogDir
from broker_sim.log.stored_log import StoredLog
from broker_sim.replicas.log_cleaner import LogCleaner
from broker_sim.replicas.table import ReplicaTable
from controller.wire import log_events as ev
from controller.wire.types import TopicPartition
from controller.world.tasks import Tasks

#: An interval of this many ms or more is never, as Kafka's default for flushes is.
_NEVER_MS: Final = 1 << 53


class Housekeeping:
    """Timers of one broker's log dirs. A disk that fails in them is taken offline, and they go on."""

    def __init__(self, table: ReplicaTable) -> None:
        self._table = table
        self._tasks = Tasks()
        self._removals: set[asyncio.TimerHandle] = set()
        self._has_watermarks = False
        self.cleaner = LogCleaner(table)
        self._rolled: dict[StoredLog, None] = {}
        self._flusher: asyncio.Task[None] | None = None
        table.dirs.doom = self._remove_later
        table.dirs.rolled = self._flush_soon

    def start(self) -> None:
        """Starts what runs from the broker's start on."""
        settings = self._table.settings
        delay_ms = settings.log_initial_task_delay_ms
        self._every("log-retention", settings.log_retention_check_interval_ms, self.delete_old_segments, delay_ms)
        self._every("log-flusher", settings.log_flush_scheduler_interval_ms, self.flush_due, delay_ms)
        points_ms = settings.log_flush_offset_checkpoint_interval_ms
        self._every("recovery-point-checkpoint", points_ms, self.checkpoint_recovery_points, delay_ms)
        starts_ms = settings.log_flush_start_offset_checkpoint_interval_ms
        self._every("log-start-offset-checkpoint", starts_ms, self.checkpoint_log_starts, delay_ms)
        self.cleaner.start()

    def start_watermarks(self) -> None:
        """Starts the high watermark checkpoint: at the first LeaderAndIsr. Idempotent."""
        if not self._has_watermarks:
            self._has_watermarks = True
            interval_ms = self._table.settings.replica_high_watermark_checkpoint_interval_ms
            self._every("highwatermark-checkpoint", interval_ms, self.checkpoint_watermarks, interval_ms)

    async def stop(self) -> None:
        """Ends all timers. What is still to be deleted is deleted at the next start. Idempotent."""
        for timer in self._removals:
            timer.cancel()
        self._removals.clear()
        await self.cleaner.stop()
        await self._tasks.cancel()

    def _every(self, name: str, interval_ms: int, work: Callable[[], Awaitable[None] | None], delay_ms: int) -> None:
        if interval_ms >= _NEVER_MS:
            return

        async def run() -> None:
            await asyncio.sleep(delay_ms / 1000)
            while True:
                await self._guarded(work)
                await asyncio.sleep(interval_ms / 1000)

        self._tasks.add(self._table.supervisor.keep(name, run))

    async def _guarded(self, work: Callable[[], Awaitable[None] | None]) -> None:
        try:
            if (rest := work()) is not None:
                await rest
        except StorageFailure as failure:
            self._table.on_storage_failure(failure)

    # -- checkpoints and flushes -----------------------------------------------------------------------------------

    def watermarks(self) -> dict[TopicPartition, int]:
        """The high watermark of every replica with a log."""
        return {tp: p.hw for tp, p in self._table.partitions.items() if p.log is not None}

    def future_watermarks(self) -> dict[TopicPartition, int]:
        """The high watermark of every future log."""
        return {tp: p.future_hw for tp, p in self._table.partitions.items() if p.future_log is not None}

    async def checkpoint_watermarks(self) -> None:
        """Writes `replication-offset-checkpoint`, beside the event loop: a disk takes milliseconds to sync it."""
        for write in self._table.dirs.high_watermark_writers(self.watermarks(), self.future_watermarks()):
            await self._guarded(partial(self._table.off_loop, write))

    async def checkpoint_recovery_points(self) -> None:
        """Brings the segments that are no longer written to onto the disk, then writes the recovery points."""
        for log in list(self._table.dirs.all_logs()):
            if log.unflushed():
                await self._guarded(partial(self._flush_sealed, log))
        await self._in_each_dir(LogDir.write_recovery_points)

    async def checkpoint_log_starts(self) -> None:
        """Writes where logs start that start above their first segment."""
        await self._in_each_dir(LogDir.write_log_starts)

    async def _in_each_dir(self, write: Callable[[LogDir], None]) -> None:
        """A dir that fails keeps no other from it. Source: Kafka 3.9 `LogManager.checkpointRecoveryOffsetsInDir`."""
        for log_dir in self._table.dirs:
            if log_dir.is_online:
                await self._guarded(partial(write, log_dir))

    def _flush_soon(self, log: StoredLog) -> None:
        """A segment is full. No loss of power shall take what lies between two segments (`UnifiedLog.roll`)."""
        self._rolled[log] = None
        if self._flusher is None or self._flusher.done():
            self._flusher = self._table.supervisor.once("flush-log", self._flush_rolled)
            self._tasks.add(self._flusher)

    async def _flush_rolled(self) -> None:
        while self._rolled:
            log, _ = self._rolled.popitem()
            await self._guarded(partial(self._flush_sealed, log))

    async def _flush_sealed(self, log: StoredLog) -> None:
        """Everything below the active segment reaches the disk, unless the log is cut or compacted meanwhile, or was
        deleted before its turn came: its files may be removed while they are synced."""
        if not self._table.dirs.dir_of(log).holds(log):
            return
        paths, version, end = log.unflushed(), log.version, log.segments[-1].base_offset

        def sync() -> None:
            with storage_failures(log.log_dir):
                for path in paths:
                    log.files.sync(path)

        try:
            await self._table.off_loop(sync)
        except StorageFailure as failure:
            if not log.has_moved_on(version, failure):
                raise
        else:
            if log.version == version:
                log.flushed(end)

    def flush_due(self) -> None:
        """Flushes the logs whose `flush.ms` has passed since their last flush; a dir that fails keeps no other from it.

        Source: Kafka 3.9 `LogManager.flushDirtyLogs`.
        """
        now_ms = self._table.now_ms()
        for log_dir in self._table.dirs:
            due = [log for log in log_dir.all_logs() if now_ms - log.flushed_ms >= log.config.flush_ms]
            try:
                for log in due if log_dir.is_online else ():
                    log.flush(now_ms=now_ms)
            except StorageFailure as failure:
                self._table.on_storage_failure(failure)

    # -- what goes away ----------------------------------------------------------------------------------------------

    def delete_old_segments(self) -> None:
        """Retention of all logs that are served; the others have no high watermark to go by."""
        now_ms = self._table.now_ms()
        oldest_producer_ms = now_ms - self._table.settings.producer_id_expiration_ms + 1
        for partition in list(self._table.partitions.values()):
            if partition.log is not None:
                if self.cleaner.serves(partition.log):
                    partition.log.delete_old_segments(now_ms=now_ms, high_watermark=partition.hw)
                partition.log.producers.expire(oldest_producer_ms)
            if partition.future_log is not None and self.cleaner.serves(partition.future_log):
                partition.future_log.delete_old_segments(now_ms=now_ms, high_watermark=partition.future_hw)

    def delete_later(self, log: Log) -> None:
        """Renames a log away now and removes it after `file.delete.delay.ms`. Raises StorageFailure."""
        self.purge_later(log, self._table.dirs.delete(log))

    def purge_later(self, log: Log, folder: Path) -> None:
        """Removes the folder of a log, renamed away before, after `file.delete.delay.ms`."""
        topic, partition = log.topic_partition
        self._table.log.info(ev.LOG_DELETED, topic=topic, partition=partition, log_dir=str(folder))
        self._later(log, lambda: self._table.dirs.purge(folder))

    def _remove_later(self, log: StoredLog, names: Sequence[str]) -> None:
        """Segment files that were renamed away."""
        self._later(log, lambda: self._table.dirs.purge_files(log, list(names)))

    def _later(self, log: StoredLog, work: Callable[[], None]) -> None:
        timer: asyncio.TimerHandle

        def run() -> None:
            self._removals.discard(timer)
            try:
                work()
            except StorageFailure as failure:
                self._table.on_storage_failure(failure)

        timer = asyncio.get_running_loop().call_later(log.config.file_delete_delay_ms / 1000, run)
        self._removals.add(timer)
