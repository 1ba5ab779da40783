"""Moves of replicas between the log dirs of one broker: a future log is copied from the current one and replaces it.

A move survives a restart: the future log is found on disk and goes on at the next LeaderAndIsr. Asked for the dir where
the replica is, or for another one, a move is given up. Copying is throttled and goes in pieces on the event loop; the
swap happens between two pieces, so nothing is appended or cut in between.
Source: spec broker.md §11.2, §15; Kafka 3.9 `ReplicaManager.alterReplicaLogDirs`, `ReplicaAlterLogDirsThread`,
`LocalLeaderEndPoint`, `LogManager.replaceCurrentWithFutureLog`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from broker_sim.log.errors import StorageFailure
from broker_sim.log.log import Log
from broker_sim.log.log_dir import LogDir, has_future_name
from broker_sim.replicas.fetcher import fetcher_id, truncation_point
from broker_sim.replicas.partition import Partition
from broker_sim.replicas.table import ReplicaTable
from broker_sim.replicas.types import EpochEnd
from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.types import TopicPartition


class LogDirMoves:
    """All moves of one broker. `purge_later(log, folder)` removes the folder of a log that was renamed away."""

    def __init__(self, table: ReplicaTable, purge_later: Callable[[Log, Path], None]) -> None:
        self._table, self._purge_later = table, purge_later
        self._movers: dict[int, _Mover] = {}

    @property
    def _movers_wanted(self) -> int:
        settings = self._table.settings
        return settings.num_replica_alter_log_dirs_threads or len(settings.log_dirs)

    async def stop(self) -> None:
        """Ends the copying; it goes on after the next start. Idempotent."""
        movers, self._movers = list(self._movers.values()), {}
        await asyncio.gather(*(mover.stop() for mover in movers))

    # -- what is asked for -------------------------------------------------------------------------------------------

    def alter(self, targets: Mapping[TopicPartition, str]) -> dict[TopicPartition, ErrorCode]:
        """AlterReplicaLogDirs: the wanted dir of each partition; one code each."""
        results: dict[TopicPartition, ErrorCode] = {}
        for topic_partition, target in targets.items():
            try:
                self._alter(topic_partition, target)
                results[topic_partition] = ErrorCode.NONE
            except KafkaError as error:
                self._table.note_failure(error)
                code = error.code
                absent = code is ErrorCode.NOT_LEADER_OR_FOLLOWER
                results[topic_partition] = ErrorCode.REPLICA_NOT_AVAILABLE if absent else code
                self._log(ev.REQUEST_REFUSED, topic_partition, log_dir=target, reason=str(error))
        return results

    def _alter(self, topic_partition: TopicPartition, target: str) -> None:
        """The checks in Kafka's order, then the move. Raises KafkaError."""
        table = self._table
        if not has_future_name(topic_partition):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        log_dir = table.dirs.by_name(target)
        if log_dir is None:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"Log dir {target} is not found in the config.")
        if not log_dir.is_online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {target} is offline")
        partition = table.partitions.get(topic_partition)
        if partition is not None:
            if partition.is_offline:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Partition {topic_partition} is offline")
            if partition.future_log is not None and table.dirs.dir_of(partition.future_log) is not log_dir:
                self._cancel(partition, partition.future_log, reason="another log dir was asked for")
        table.dirs.prefer(topic_partition, log_dir.name)
        self._start(table.get(topic_partition), log_dir)

    def _start(self, partition: Partition, log_dir: LogDir) -> None:
        table = self._table
        log = partition.local_log(needs_leader=False)
        if table.dirs.dir_of(log) is log_dir or partition.future_log is not None:
            return
        if table.dirs.any_offline:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{partition.topic_partition} is not moved while a log dir is offline"
            )
        future = table.dirs.create_future(partition.topic_partition, log_dir, now_ms=table.now_ms())
        partition.attach_future(future, 0)
        self._log(ev.LOG_MOVE_STARTED, partition.topic_partition, log_dir=log_dir.name, from_log_dir=str(log.log_dir))
        self._copy(partition)

    def _cancel(self, partition: Partition, future: Log, *, reason: str) -> None:
        """Gives a move up: the future log goes."""
        self.pause([partition.topic_partition])
        partition.future_log = None
        self._log(ev.LOG_MOVE_CANCELLED, partition.topic_partition, log_dir=str(future.log_dir), reason=reason)
        partition.log_starts_changed.wake()
        self._purge_later(future, self._table.dirs.delete(future))

    # -- what happens to replicas ------------------------------------------------------------------------------------

    def resume(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """A LeaderAndIsr was applied to these: moves found on disk or paused go on, under the new leader epoch."""
        dirs = self._table.dirs
        for topic_partition in topic_partitions:
            partition, future = self._table.partitions.get(topic_partition), dirs.future(topic_partition)
            if future is None or partition is None or partition.log is None:
                continue
            if partition.future_log is None:
                partition.attach_future(future, dirs.checkpointed_high_watermark(future))
                self._log(ev.LOG_MOVE_STARTED, topic_partition, log_dir=str(future.log_dir), offset=future.leo)
            self._copy(partition)

    def pause(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """The replicas are stopped, or their dir failed: nothing is copied until they are resumed."""
        for topic_partition in topic_partitions:
            for mover in self._movers.values():
                mover.remove(topic_partition)

    def drop(self, topic_partition: TopicPartition) -> None:
        """The replica is deleted: its future log goes too. Raises StorageFailure."""
        self.pause([topic_partition])
        if (future := self._table.dirs.future(topic_partition)) is not None:
            self._purge_later(future, self._table.dirs.delete(future))

    def dir_failed(self, log_dir: LogDir) -> None:
        """A dir is about to be given up: moves from it and to it end."""
        self.pause([*log_dir.logs, *log_dir.futures])
        for topic_partition in (*log_dir.logs, *log_dir.futures):
            if (partition := self._table.partitions.get(topic_partition)) is not None:
                partition.future_log = None
                partition.log_starts_changed.wake()

    def _copy(self, partition: Partition) -> None:
        number = fetcher_id(partition.topic_partition, self._movers_wanted)
        if number not in self._movers:
            self._movers[number] = _Mover(self._table, self._replace)
        self._movers[number].add(partition)

    def _replace(self, partition: Partition, current: Log, future: Log) -> None:
        """The future log has caught up: it is the replica's log from now on. Raises StorageFailure."""
        for epoch, start in current.epochs.entries:
            if epoch > future.epochs.latest:
                future.assign_epoch(epoch, start)
        dirs = self._table.dirs
        folder = dirs.replace_by_future(partition.topic_partition, high_watermark=partition.hw)
        partition.log, partition.future_log = future, None
        self._purge_later(current, folder)
        self._log(ev.LOG_MOVED, partition.topic_partition, log_dir=str(future.log_dir), offset=future.leo)

    def _log(self, event: str, topic_partition: TopicPartition, **keys: object) -> None:
        topic, partition = topic_partition
        self._table.log.info(event, topic=topic, partition=partition, **keys)


class _Mover:
    """One task that copies its partitions one after another, in the order of topic and partition."""

    def __init__(self, table: ReplicaTable, replace: Callable[[Partition, Log, Log], None]) -> None:
        self._table, self._replace = table, replace
        self._partitions: dict[TopicPartition, Partition] = {}
        self._to_truncate: set[TopicPartition] = set()
        self._in_progress: TopicPartition | None = None
        self._changed = asyncio.Event()
        self._task = table.supervisor.keep("log-dir-move", self._run)

    def add(self, partition: Partition) -> None:
        """Copies this one too, after its future log has been cut to what the current log has."""
        self._partitions[partition.topic_partition] = partition
        self._to_truncate.add(partition.topic_partition)
        self._changed.set()

    def remove(self, topic_partition: TopicPartition) -> None:
        """No longer copies it."""
        self._partitions.pop(topic_partition, None)

    async def stop(self) -> None:
        """Ends the task. Idempotent."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        backoff_s = self._table.settings.replica_fetch_backoff_ms / 1000
        while True:
            if not self._partitions:
                self._changed.clear()
                await self._changed.wait()
            elif self._table.alter_log_dirs_quota.is_exceeded(self._table.now_ms()):
                await asyncio.sleep(backoff_s)
            else:
                if self._in_progress not in self._partitions:
                    self._in_progress = min(self._partitions)
                copied = self._step(self._partitions[self._in_progress])
                await self._table.wait_for_disks([(self._in_progress, copied)])
                await asyncio.sleep(0 if copied or self._in_progress not in self._partitions else backoff_s)

    def _step(self, partition: Partition) -> int:
        """Copies a piece, or swaps the logs; returns the bytes copied. A disk that fails is taken offline."""
        topic_partition, current, future = partition.topic_partition, partition.log, partition.future_log
        if current is None or future is None:
            self.remove(topic_partition)
            return 0
        try:
            begins = topic_partition in self._to_truncate
            self._to_truncate.discard(topic_partition)
            cut_to_current(partition, current, future, by_epochs=begins)
            data = self._next(current, future)
            if data:
                future.append_as_follower(data, now_ms=self._table.now_ms())
                self._table.alter_log_dirs_quota.record(len(data), self._table.now_ms())
            if current.log_start_offset > future.log_start_offset and current.log_start_offset <= future.leo:
                future.raise_log_start(current.log_start_offset)
            partition.future_hw = min(partition.hw, future.leo)
            partition.log_starts_changed.wake()
            if future.leo == current.leo:
                self._replace(partition, current, future)
                self.remove(topic_partition)
            return len(data)
        except StorageFailure as failure:
            self._table.on_storage_failure(failure)
        except KafkaError as error:
            # The current log cannot be read as a leader's would be: no use in trying again before it is told anew.
            self._table.log.error(
                ev.FETCHER_FAILED, topic=topic_partition.topic, partition=topic_partition.partition, reason=str(error)
            )
        self.remove(topic_partition)
        return 0

    def _next(self, current: Log, future: Log) -> bytes:
        if future.leo >= current.leo:
            return b""
        settings = self._table.settings
        limit = min(settings.replica_fetch_max_bytes, settings.replica_fetch_response_max_bytes)
        return current.read(future.leo, max_bytes=limit, bound=current.leo, min_one=True)


def cut_to_current(partition: Partition, current: Log, future: Log, *, by_epochs: bool) -> None:
    """Cuts the future log to what it has in common with the current one: where it just begins, `by_epochs`.

    Raises: StorageFailure.
    """
    if by_epochs:
        _truncate_by_epochs(current, future, partition.future_hw)
    if partition.future_cut is not None:
        future.truncate(min(partition.future_cut, future.leo))
        partition.future_cut = None
    if future.leo > current.leo:
        future.truncate(current.leo)
    if future.leo < current.log_start_offset:
        future.truncate_fully(current.log_start_offset)


def _truncate_by_epochs(current: Log, future: Log, initial_offset: int) -> None:
    """As a follower does with its leader (spec broker.md §13.1), the current log being the leader."""
    is_done = False
    while not is_done:
        epoch = future.epochs.latest
        if epoch < 0:
            future.truncate(min(initial_offset, future.leo))
            return
        leader_epoch, end_offset = current.end_offset_for_epoch(epoch)
        offset, is_done = truncation_point(
            EpochEnd(leader_epoch=leader_epoch, end_offset=end_offset),
            initial_offset=initial_offset,
            leo=future.leo,
            local=future.end_offset_for_epoch(leader_epoch),
        )
        future.truncate(offset)
