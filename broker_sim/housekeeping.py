"""The periodic work on the disk: checkpoints, retention, the removal of deleted logs. Runs as timers on the loop.

Source: spec broker.md §6.6, §10.2, §10.4; Kafka 3.9 `LogManager.startup`, `ReplicaManager.checkpointHighWatermarks`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from broker_sim.log.errors import StorageFailure
from broker_sim.log.log import Log
from broker_sim.replica_table import ReplicaTable
from broker_sim.replica_tasks import report_failure
from controller.wire import log_events as ev
from controller.wire.types import TopicPartition


class Housekeeping:
    """Timers of one broker's log dirs. A disk that fails in them is taken offline, and they go on."""

    def __init__(self, table: ReplicaTable) -> None:
        self._table = table
        self._tasks: set[asyncio.Task[None]] = set()
        self._deletions: dict[Path, asyncio.TimerHandle] = {}
        self._has_watermarks = False

    def start(self) -> None:
        """Starts what runs from the broker's start on."""
        settings = self._table.settings
        delay_ms = settings.log_initial_task_delay_ms
        self._every(settings.log_retention_check_interval_ms, self.delete_old_segments, delay_ms)
        self._every(
            settings.log_flush_offset_checkpoint_interval_ms, self._table.dirs.checkpoint_recovery_points, delay_ms
        )

    def start_watermarks(self) -> None:
        """Starts the high watermark checkpoint: at the first LeaderAndIsr. Idempotent."""
        if not self._has_watermarks:
            self._has_watermarks = True
            interval_ms = self._table.settings.replica_high_watermark_checkpoint_interval_ms
            self._every(interval_ms, self.checkpoint_watermarks, interval_ms)

    async def stop(self) -> None:
        """Ends all timers. What is still to be deleted is deleted at the next start. Idempotent."""
        for timer in self._deletions.values():
            timer.cancel()
        self._deletions.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _every(self, interval_ms: int, work: Callable[[], None], delay_ms: int) -> None:
        async def run() -> None:
            await asyncio.sleep(delay_ms / 1000)
            while True:
                self._guarded(work)
                await asyncio.sleep(interval_ms / 1000)

        task = asyncio.ensure_future(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(report_failure)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except StorageFailure as failure:
            self._table.on_storage_failure(failure)

    # -- the work ------------------------------------------------------------------------------------------------

    def watermarks(self) -> dict[TopicPartition, int]:
        """The high watermark of every replica with a log."""
        return {tp: p.hw for tp, p in self._table.partitions.items() if p.log is not None}

    def checkpoint_watermarks(self) -> None:
        """Writes `replication-offset-checkpoint`."""
        self._table.dirs.checkpoint_high_watermarks(self.watermarks())

    def delete_old_segments(self) -> None:
        """Retention of all logs that are served; the others have no high watermark to go by."""
        now_ms = self._table.now_ms()
        oldest_producer_ms = now_ms - self._table.settings.producer_id_expiration_ms
        for partition in list(self._table.partitions.values()):
            if partition.log is not None:
                partition.log.delete_old_segments(now_ms=now_ms, high_watermark=partition.hw)
                partition.log.producers.expire(oldest_producer_ms)

    def delete_later(self, log: Log) -> None:
        """Renames a log away now and removes it after `file.delete.delay.ms`. Raises StorageFailure."""
        folder = self._table.dirs.delete(log)
        topic, partition = log.topic_partition
        self._table.log.info(ev.LOG_DELETED, topic=topic, partition=partition, log_dir=str(folder))
        loop = asyncio.get_running_loop()
        self._deletions[folder] = loop.call_later(log.config.file_delete_delay_ms / 1000, self._purge, folder)

    def _purge(self, folder: Path) -> None:
        self._deletions.pop(folder, None)
        self._guarded(lambda: self._table.dirs.purge(folder))
