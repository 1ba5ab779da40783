"""The log dirs of one broker: which logs lie where, where a new one goes, how one moves, what a failure takes along.

Source: spec broker.md §10, §11; Kafka 3.9 `LogManager`.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from broker_sim.log import checkpoints
from broker_sim.log.config import LogConfig
from broker_sim.log.errors import LogDirsUnusable, StorageFailure, storage_failures
from broker_sim.log.files import Files
from broker_sim.log.loading import Repair
from broker_sim.log.log import Log
from broker_sim.log.log_dir import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    LogDir,
    folder_name,
    future_name,
    is_deleted_name,
    parse_folder_name,
    parse_future_name,
    set_aside_name,
)
from broker_sim.log.stored_log import LogHooks, StoredLog
from controller.wire.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """What had to be repaired when the logs were loaded; no topic for files of the dir itself."""

    repairs: tuple[tuple[TopicPartition | None, Repair], ...] = ()


class LogDirs:
    """All log dirs. After `open` every log found is loaded; a dir that fails is offline until the next start.

    `doom(log, names)` is told segment files that were renamed away and are to be removed later; None: at once.
    `rolled(log)` is told that a log has a full segment more, whose bytes should reach the disk.
    """

    def __init__(self, paths: tuple[str, ...], rng: random.Random, files: Files | None = None) -> None:
        self.files = files if files is not None else Files()
        self._dirs = {path: LogDir(Path(path), path, self.files) for path in paths}
        self._by_path = {log_dir.path: log_dir for log_dir in self._dirs.values()}
        self._rng = rng
        self._preferred: dict[TopicPartition, str] = {}
        self.doom: Callable[[StoredLog, list[str]], None] | None = None
        self.rolled: Callable[[StoredLog], None] = lambda log: None
        self._hooks = LogHooks(doom=self._doom, cut=self._was_cut, rolled=self._was_rolled, jitter_of=rng.randrange)

    # -- start and end -------------------------------------------------------------------------------------------

    def open(
        self, *, broker_id: int, cluster_id: str, config_of: Callable[[str], LogConfig], now_ms: int
    ) -> LoadReport:
        """Locks, checks and loads all dirs; returns what had to be repaired.

        Raises: LogDirsUnusable for a dir in use, of another broker or cluster, or when none is left. A dir that fails
        with an I/O error is offline.
        """
        repairs: list[tuple[TopicPartition | None, Repair]] = []
        for log_dir in self._dirs.values():
            try:
                log_dir.claim(broker_id=broker_id, cluster_id=cluster_id)
                repairs += self._load_one(log_dir, config_of, now_ms)
            except (OSError, StorageFailure):
                self.take_offline(log_dir.name)
        if not any(d.is_online for d in self._dirs.values()):
            raise LogDirsUnusable(f"none of the log dirs can be used: {', '.join(self._dirs)}")
        return LoadReport(repairs=tuple(repairs))

    def _load_one(
        self, log_dir: LogDir, config_of: Callable[[str], LogConfig], now_ms: int
    ) -> Iterator[tuple[TopicPartition | None, Repair]]:
        log_dir.was_clean = checkpoints.take_clean_shutdown(log_dir.path)
        unreadable: list[Repair] = []
        log_dir.high_watermarks = log_dir.read_checkpoint(checkpoints.HIGH_WATERMARK_FILE, unreadable)
        log_dir.cleaned = log_dir.read_checkpoint(checkpoints.CLEANER_FILE, unreadable)
        starts = log_dir.read_checkpoint(checkpoints.LOG_START_FILE, unreadable)
        points = log_dir.read_checkpoint(checkpoints.RECOVERY_POINT_FILE, unreadable)
        yield from ((None, repair) for repair in unreadable)
        for folder in sorted(p for p in log_dir.path.iterdir() if p.is_dir()):
            if is_deleted_name(folder.name):
                shutil.rmtree(folder)
                continue
            current, future = parse_folder_name(folder.name), parse_future_name(folder.name)
            if (tp := current or future) is None:
                continue
            other = self.get(tp) if current is not None else self.future(tp)
            if other is not None:
                raise LogDirsUnusable(
                    f"two logs of {tp}: {other.folder} and {folder}; remove the one that was moved from or is older"
                )
            log = self._new_log(tp, folder, config_of(tp.topic))
            found = log.load(
                is_clean=log_dir.was_clean,
                log_start_offset=starts.get(tp, 0),
                recovery_point=points.get(tp, 0),
                now_ms=now_ms,
            )
            (log_dir.logs if current is not None else log_dir.futures)[tp] = log
            yield from ((tp, repair) for repair in found)
        for log in log_dir.all_logs():  # once all of them are there, since a checkpoint is written with all
            log_dir.was_cut(log)
        log_dir.is_loaded = True

    def _new_log(self, topic_partition: TopicPartition, folder: Path, config: LogConfig) -> Log:
        return Log(topic_partition, folder, config, files=self.files, hooks=self._hooks)

    def _doom(self, log: StoredLog, names: list[str]) -> None:
        if self.doom is not None:
            self.doom(log, names)
        else:
            log.purge(names)

    def _was_rolled(self, log: StoredLog) -> None:
        self.rolled(log)

    def _was_cut(self, log: StoredLog) -> None:
        for log_dir in self._online():
            if log_dir.holds(log):
                log_dir.was_cut(log)

    def close(
        self,
        *,
        clean: bool,
        broker_epoch: int,
        high_watermarks: Mapping[TopicPartition, int],
        future_high_watermarks: Mapping[TopicPartition, int] | None = None,
    ) -> list[Path]:
        """Gives the dirs up; `clean` flushes, checkpoints and leaves the marker. Returns dirs that failed meanwhile.

        A dir that `open` has not loaded, as it is another's or another one was refused, stays as it was found.
        """
        failed: list[Path] = []
        for log_dir in self._dirs.values():
            if clean and log_dir.is_online and log_dir.is_loaded:
                try:
                    self._close_one(log_dir, broker_epoch, high_watermarks, future_high_watermarks or {})
                except (StorageFailure, OSError):
                    failed.append(log_dir.path)
            log_dir.unlock()
        return failed

    def unlock(self) -> None:
        """Lets another process have the dirs. Idempotent."""
        for log_dir in self._dirs.values():
            log_dir.unlock()

    @staticmethod
    def _close_one(
        log_dir: LogDir,
        broker_epoch: int,
        current: Mapping[TopicPartition, int],
        future: Mapping[TopicPartition, int],
    ) -> None:
        for log in log_dir.all_logs():
            log.close()
        log_dir.write_high_watermarks(current, future)
        log_dir.write_recovery_points()
        log_dir.write_log_starts()
        checkpoints.write_clean_shutdown(log_dir.path, broker_epoch)

    # -- questions -----------------------------------------------------------------------------------------------

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """The log of a partition in an online dir."""
        return next((d.logs[topic_partition] for d in self._online() if topic_partition in d.logs), None)

    def future(self, topic_partition: TopicPartition) -> Log | None:
        """The log that is to replace the partition's, while it is being copied."""
        return next((d.futures[topic_partition] for d in self._online() if topic_partition in d.futures), None)

    def __iter__(self) -> Iterator[LogDir]:
        return iter(self._dirs.values())

    def _online(self) -> Iterator[LogDir]:
        return (d for d in self._dirs.values() if d.is_online)

    def dir_of(self, log: StoredLog) -> LogDir:
        """The dir that holds a log."""
        return self._by_path[log.log_dir]

    def by_name(self, name: str) -> LogDir | None:
        """A dir by its configured path, by another spelling of it, or by its absolute path."""
        as_path = Path(name)
        found = (d for d in self._dirs.values() if d.path == as_path or d.path.absolute() == as_path)
        return self._dirs.get(name) or next(found, None)

    def all_logs(self) -> Iterator[Log]:
        """The current and future logs of all online dirs."""
        for log_dir in self._online():
            yield from log_dir.all_logs()

    @property
    def any_offline(self) -> bool:
        """Whether a dir has failed."""
        return any(not d.is_online for d in self._dirs.values())

    @property
    def all_offline(self) -> bool:
        """Whether no dir is left."""
        return all(not d.is_online for d in self._dirs.values())

    def checkpointed_high_watermark(self, log: Log) -> int:
        """What the checkpoint of the log's dir says, else 0, between the log's start and end."""
        saved = self.dir_of(log).high_watermarks.get(log.topic_partition, 0)
        return min(max(saved, log.log_start_offset), log.leo)

    # -- logs come and go ----------------------------------------------------------------------------------------

    def prefer(self, topic_partition: TopicPartition, name: str) -> None:
        """Where the log is to be created, should it be; forgotten when one of its logs lies there already."""
        for log in (self.get(topic_partition), self.future(topic_partition)):
            if log is not None and self.dir_of(log).name == name:
                return
        self._preferred[topic_partition] = name

    def create(self, topic_partition: TopicPartition, config: LogConfig, *, now_ms: int = 0) -> Log:
        """A new, empty log in the preferred dir, else in the one with the fewest logs (ties in configured order).

        Raises: StorageFailure of the dir chosen: take it offline and try again while another is online.
        """
        preferred = self.by_name(self._preferred.get(topic_partition, ""))
        candidates = sorted(self._online(), key=lambda d: (d is not preferred, len(d.logs) + len(d.futures)))
        if not candidates:
            raise StorageFailure(Path(), OSError("no log dir is online"))
        log_dir = candidates[0]
        log_dir.begins_anew(topic_partition)
        log = self._new_log(topic_partition, log_dir.path / folder_name(topic_partition), config)
        log.create(now_ms=now_ms)
        log_dir.logs[topic_partition] = log
        self._preferred.pop(topic_partition, None)
        return log

    def create_future(self, topic_partition: TopicPartition, log_dir: LogDir, *, now_ms: int = 0) -> Log:
        """An empty log that is to replace the partition's current one. Raises StorageFailure of that dir."""
        current = self.get(topic_partition)
        assert current is not None and self.future(topic_partition) is None, topic_partition
        log_dir.begins_anew(topic_partition)
        folder = log_dir.path / future_name(topic_partition, self._unique())
        log = self._new_log(topic_partition, folder, current.config)
        log.create(now_ms=now_ms)
        log_dir.futures[topic_partition] = log
        self._preferred.pop(topic_partition, None)
        return log

    def _unique(self) -> str:
        return f"{self._rng.getrandbits(128):032x}"

    def replace_by_future(self, topic_partition: TopicPartition, *, high_watermark: int) -> Path:
        """The future log takes the name and place of the current one, whose renamed folder is to be purged later.

        The new name comes first: a broker that dies between the two renames finds both logs, never none.
        Raises: StorageFailure of either dir.
        """
        current, future = self.get(topic_partition), self.future(topic_partition)
        assert current is not None and future is not None, topic_partition
        source, target = self.dir_of(current), self.dir_of(future)
        future.move(target.path / folder_name(topic_partition))
        del target.futures[topic_partition]
        target.logs[topic_partition] = future
        cleaned = source.cleaned.pop(topic_partition, None)
        if cleaned is not None:
            target.cleaned[topic_partition] = cleaned
            target.write_cleaned()
        # What the old dir's checkpoints said of the log, those of the new one must say before the old log goes.
        target.write_high_watermarks({topic_partition: high_watermark}, {})
        target.write_log_starts()
        folder = self._rename_away(current, source)
        for log_dir in (source, target):
            log_dir.write_recovery_points()
        source.write_log_starts()
        return folder

    def delete(self, log: Log) -> Path:
        """Renames a log to `-delete`; the folder returned is to be removed by `purge` later. Raises StorageFailure."""
        return self._rename_away(log, self.dir_of(log))

    def put_aside(self, log: Log) -> Path:
        """Renames a log to `-stray`: no start loads it, and nobody removes it. Raises StorageFailure."""
        return self._rename_away(log, self.dir_of(log), STRAY_SUFFIX)

    def _rename_away(self, log: Log, log_dir: LogDir, suffix: str = DELETE_SUFFIX) -> Path:
        log.move(log_dir.path / set_aside_name(log.topic_partition, self._unique(), suffix))
        log_dir.forget(log)
        return log.folder

    def purge(self, folder: Path) -> None:
        """Removes what `delete` renamed. Raises StorageFailure."""
        log_dir = next(d for d in self._dirs.values() if d.path == folder.parent)
        if log_dir.is_online:
            with storage_failures(log_dir.path):
                self.files.remove_folder(folder)

    def purge_files(self, log: StoredLog, names: list[str]) -> None:
        """Removes segment files that were renamed away, unless their dir is offline. Raises StorageFailure."""
        log_dir = self.dir_of(log)
        if log_dir.is_online:
            with storage_failures(log_dir.path):
                log.purge(names)

    def take_offline(self, name: str) -> list[TopicPartition] | None:
        """Gives up a dir; returns the partitions whose current log it held, None when it was offline already."""
        log_dir = self._dirs[name]
        if not log_dir.is_online:
            return None
        log_dir.is_online = False
        log_dir.unlock()
        partitions = list(log_dir.logs)
        log_dir.logs.clear()
        log_dir.futures.clear()
        return partitions

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def high_watermark_writers(
        self, current: Mapping[TopicPartition, int], future: Mapping[TopicPartition, int]
    ) -> list[Callable[[], None]]:
        """What writes `replication-offset-checkpoint`, for each online dir; may be called in another thread."""
        return [log_dir.high_watermarks_writer(current, future) for log_dir in self._online()]

    def cleaned_up_to(self, log: Log) -> int | None:
        """The offset below which a log is compacted, None while it never was."""
        return self.dir_of(log).cleaned.get(log.topic_partition)

    def set_cleaned_up_to(self, log: Log, offset: int) -> None:
        """Writes it to `cleaner-offset-checkpoint`. Raises StorageFailure."""
        log_dir = self.dir_of(log)
        log_dir.cleaned[log.topic_partition] = offset
        log_dir.write_cleaned()
