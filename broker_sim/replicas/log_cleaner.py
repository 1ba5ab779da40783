"""The log cleaner: compacts the logs of compacted topics, the dirtiest first, a little at a time on the event loop.

What is done is decided in `log.cleaner_plan` and `log.compaction`; this file reads, writes and swaps. A log that is
cut, moved or deleted meanwhile is left as it was, and looked at again.
Source: Kafka 3.9 `LogCleaner`, `LogCleanerManager`; spec broker.md §10.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakSet

from broker_sim.log.cleaner_plan import CleaningPlan, group_segments, plan_cleaning
from broker_sim.log.compaction import ENTRY_BYTES, OffsetMap, Retention, compacted
from broker_sim.log.errors import StorageFailure, storage_failures
from broker_sim.log.log import Log
from broker_sim.log.segment import CLEANED_SUFFIX, Segment
from broker_sim.replicas.partition import Partition
from broker_sim.replicas.table import ReplicaTable
from controller.wire import log_events as ev
from controller.wire.errors import KafkaError
from controller.wire.records import BatchHeader, parse_header
from controller.world.tasks import Tasks

#: After so many bytes the loop gets to do something else.
_STEP_BYTES: Final = 1 << 16


class Uncleanable(Exception):
    """The log is not compacted until the broker starts again; the message says why."""


class _Aborted(Exception):
    """The log changed under the cleaner, or another one is to take its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """What a compaction did."""

    end_offset: int
    bytes_before: int
    bytes_after: int


class LogCleaner:
    """`log.cleaner.threads` tasks. A log at a time each; none is compacted by two."""

    def __init__(self, table: ReplicaTable) -> None:
        self._table = table
        self._tasks = Tasks()
        self._busy: set[Log] = set()
        self._uncleanable: WeakSet[Log] = WeakSet()  # not after they are deleted
        self._threads = table.settings.log_cleaner_threads

    def start(self) -> None:
        """Starts the tasks, unless `log.cleaner.enable` is false: as many as there are to be then."""
        settings = self._table.settings
        self._threads = settings.log_cleaner_threads
        if settings.log_cleaner_enable:
            for number in range(self._threads):
                self._tasks.add(self._table.supervisor.keep(f"log-cleaner-{number}", self._run))

    def serves(self, log: Log) -> bool:
        """Whether old segments of the log may go: of a compacted one not where nobody compacts, nor when that failed.

        Source: Kafka 3.9 `LogManager.cleanupLogs`, `LogCleanerManager.deletableLogs`.
        """
        is_served = self._table.settings.log_cleaner_enable and log not in self._uncleanable
        return is_served or not log.config.is_compacted

    async def stop(self) -> None:
        """Ends the tasks; a compaction under way is undone at the next start. Idempotent."""
        await self._tasks.cancel()

    async def _run(self) -> None:
        while True:
            if not await self.clean_one():
                await asyncio.sleep(self._table.settings.log_cleaner_backoff_ms / 1000)

    async def clean_one(self) -> bool:
        """Compacts the dirtiest log that is due; False when there is none."""
        found = self._dirtiest()
        if found is None:
            return False
        partition, log, plan = found
        topic, number = log.topic_partition
        self._busy.add(log)
        try:
            done = await self._clean(partition, log, plan)
        except StorageFailure as failure:
            self._table.on_storage_failure(failure)
        except (_Aborted, FileNotFoundError):
            self._table.log.info(ev.LOG_CLEANING_ABORTED, topic=topic, partition=number, reason="the log changed")
        except (Uncleanable, KafkaError) as error:
            self._uncleanable.add(log)
            self._table.log.error(ev.LOG_CLEANING_ABORTED, topic=topic, partition=number, reason=str(error))
        else:
            self._table.log.info(
                ev.LOG_CLEANED,
                topic=topic,
                partition=number,
                first_dirty=plan.first_dirty,
                offset=done.end_offset,
                bytes_before=done.bytes_before,
                bytes_after=done.bytes_after,
            )
        finally:
            self._busy.discard(log)
        return True

    def _dirtiest(self) -> tuple[Partition, Log, CleaningPlan] | None:
        now_ms = self._table.now_ms()
        best: tuple[Partition, Log, CleaningPlan] | None = None
        for partition in list(self._table.partitions.values()):
            log = partition.log
            if log is None or not log.config.is_compacted or log in self._busy or log in self._uncleanable:
                continue
            if self._table.dirs.future(log.topic_partition) is not None:
                continue
            try:
                plan = self._plan(log, partition.hw, now_ms)
            except StorageFailure as failure:
                self._table.on_storage_failure(failure)
                continue
            if plan.is_due(log.config) and (best is None or plan.dirty_ratio > best[2].dirty_ratio):
                best = partition, log, plan
        return best

    def _plan(self, log: Log, high_watermark: int, now_ms: int) -> CleaningPlan:
        with storage_failures(log.log_dir):
            return plan_cleaning(
                log.segments,
                log.config,
                cleaned_up_to=self._table.dirs.cleaned_up_to(log),
                log_start=log.log_start_offset,
                leo=log.leo,
                high_watermark=high_watermark,
                now_ms=now_ms,
            )

    # -- one log -----------------------------------------------------------------------------------------------------

    async def _clean(self, partition: Partition, log: Log, plan: CleaningPlan) -> Cleaned:
        version, before = log.version, log.size_bytes
        newest = await self._map(log, plan, version)
        end = newest.latest_offset + 1
        retention = Retention(
            newest=newest,
            now_ms=self._table.now_ms(),
            delete_retention_ms=log.config.delete_retention_ms,
            last_offsets=log.producers.last_offsets(),
        )
        groups = group_segments(
            [s for s in log.segments if s.base_offset < end],
            max_bytes=log.config.segment_bytes,
            max_index_bytes=log.config.segment_index_bytes,
            end=plan.first_uncleanable,
        )
        for group in groups:
            version = await self._rewrite(log, group, retention, version)
        if partition.log is not log or log.version != version:
            raise _Aborted
        self._table.dirs.set_cleaned_up_to(log, end)
        return Cleaned(end_offset=end, bytes_before=before, bytes_after=log.size_bytes)

    async def _map(self, log: Log, plan: CleaningPlan, version: int) -> OffsetMap:
        """The newest offset of each key from the first dirty offset on, as far as the map has room."""
        settings = self._table.settings
        room = settings.log_cleaner_dedupe_buffer_size // max(self._threads, 1) // ENTRY_BYTES
        newest = OffsetMap(int(room * settings.log_cleaner_io_buffer_load_factor))
        newest.latest_offset = plan.first_dirty - 1
        for segment in [s for s in log.segments if s.base_offset < plan.first_uncleanable]:
            if segment.next_offset <= plan.first_dirty:
                continue  # its batches would not be taken either, but looking for them reads the file
            async for header, batch in self._batches(log, segment, version, start=plan.first_dirty):
                if header.is_transactional:
                    raise Uncleanable("it holds transactions, which this broker does not know the outcome of")
                if not newest.put_batch(batch, header, plan.first_dirty):
                    if newest.latest_offset < plan.first_dirty:
                        raise Uncleanable("log.cleaner.dedupe.buffer.size is too small for the keys of one batch")
                    return newest
        newest.latest_offset = max(newest.latest_offset, plan.first_uncleanable - 1)
        return newest

    async def _rewrite(self, log: Log, group: Sequence[Segment], retention: Retention, version: int) -> int:
        """Makes one segment of a group of them and swaps it in; returns the log's version then."""
        with storage_failures(log.log_dir):
            cleaned = log.new_cleaned_segment(group[0].base_offset, CLEANED_SUFFIX)
        try:
            for segment in group:
                async for header, batch in self._batches(log, segment, version):
                    if (kept := compacted(batch, header, retention)) is not None:
                        with storage_failures(log.log_dir):
                            cleaned.append(kept, parse_header(kept))
            with storage_failures(log.log_dir):
                modified = group[-1].last_modified_s()
                cleaned.seal()
            await self._sync(log, cleaned, version)
            self._check(log, version)
        except BaseException:
            with contextlib.suppress(OSError):  # what stays behind is removed at the next start
                cleaned.move(log.folder)
                cleaned.delete()
            raise
        with storage_failures(log.log_dir):
            cleaned.set_last_modified(modified)
        log.swap_in(cleaned, group)
        return log.version

    async def _sync(self, log: Log, segment: Segment, version: int) -> None:
        def sync() -> None:
            with storage_failures(log.log_dir):
                segment.sync()

        try:
            await self._table.off_loop(sync)
        except StorageFailure as failure:
            if not log.has_moved_on(version, failure):
                raise
            raise _Aborted from failure

    async def _batches(
        self, log: Log, segment: Segment, version: int, *, start: int | None = None
    ) -> AsyncIterator[tuple[BatchHeader, bytes]]:
        """The batches of a segment (from the one that holds `start` on), with pauses. Raises _Aborted."""
        rate = self._table.settings.log_cleaner_io_max_bytes_per_second
        since_pause = 0
        self._check(log, version)
        for position, header in segment.headers(None if start is None else max(start, segment.base_offset)):
            with storage_failures(log.log_dir):
                batch = segment.read(position, header.size)
            yield header, batch
            since_pause += header.size
            if since_pause >= _STEP_BYTES:
                await asyncio.sleep(since_pause / max(rate, 1.0))
                since_pause = 0
            self._check(log, version)

    def _check(self, log: Log, version: int) -> None:
        """A log that begins to move is let alone: what is copied already would count as compacted in its new place.

        Raises: _Aborted. Source: Kafka 3.9 `LogCleaner.abortAndPauseCleaning` of `ReplicaManager.alterReplicaLogDirs`.
        """
        if log.version != version or self._table.dirs.future(log.topic_partition) is not None:
            raise _Aborted
