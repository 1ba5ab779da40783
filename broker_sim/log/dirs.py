"""The log dirs of one broker: who holds them, which logs lie where, where a new one goes, what a failure takes along.

Source: spec broker.md §10, §11; Kafka 3.9 `LogManager`.
"""

from __future__ import annotations

import fcntl
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from broker_sim.log import checkpoints
from broker_sim.log.config import LogConfig
from broker_sim.log.errors import LogDirsUnusable, StorageFailure, storage_failures
from broker_sim.log.log import Log
from controller.wire.types import TopicPartition

LOCK_FILE: Final = ".lock"
_MAX_NAME: Final = 255
_DELETE_SUFFIX: Final = "-delete"
_SPECIAL: Final = re.compile(r"\.[0-9a-f]{32}-(delete|future|stray)$")


def folder_name(topic_partition: TopicPartition) -> str:
    """The name of a log's folder, such as `orders-7`."""
    return f"{topic_partition.topic}-{topic_partition.partition}"


def parse_folder_name(name: str) -> TopicPartition | None:
    """The partition whose log a folder holds; None for every other name, renamed logs included."""
    topic, dash, number = name.rpartition("-")
    if not topic or not dash or not number.isdigit() or _SPECIAL.search(name):
        return None
    return TopicPartition(topic, int(number))


def deleted_name(topic_partition: TopicPartition, unique: str) -> str:
    """`<topic>-<p>.<unique>-delete`, the topic cut so that file systems take the name."""
    tail = f"-{topic_partition.partition}.{unique}{_DELETE_SUFFIX}"
    return topic_partition.topic[: _MAX_NAME - len(tail)] + tail


@dataclass(slots=True)
class LogDir:
    """One configured log dir. `high_watermarks` is what its checkpoint said at start."""

    path: Path
    name: str
    is_online: bool = True
    was_clean: bool = True
    lock: int | None = None
    logs: dict[TopicPartition, Log] = field(default_factory=dict)
    high_watermarks: dict[TopicPartition, int] = field(default_factory=dict)
    written: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)

    def space(self) -> tuple[int, int]:
        """(total, usable) bytes of the volume; -1 where it cannot be asked."""
        try:
            usage = shutil.disk_usage(self.path)
        except OSError:
            return -1, -1
        return usage.total, usage.free


class LogDirs:
    """All log dirs. After `open` every log found is loaded; a dir that fails is offline until the next start."""

    def __init__(self, paths: tuple[str, ...], rng: random.Random) -> None:
        self._dirs = {path: LogDir(Path(path), path) for path in paths}
        self._rng = rng
        self._preferred: dict[TopicPartition, str] = {}

    # -- start and end -------------------------------------------------------------------------------------------

    def open(
        self, *, broker_id: int, cluster_id: str, config_of: Callable[[str], LogConfig], now_ms: int
    ) -> dict[TopicPartition, int]:
        """Locks, checks and loads all dirs; returns the logs that lost bytes in recovery, and how many.

        Raises: LogDirsUnusable for a dir in use, of another broker or cluster, or when none is left. A dir that fails
        with an I/O error is offline.
        """
        lost: dict[TopicPartition, int] = {}
        for log_dir in self._dirs.values():
            try:
                self._open_one(log_dir, broker_id=broker_id, cluster_id=cluster_id)
                lost |= self._load_one(log_dir, config_of, now_ms)
            except (OSError, StorageFailure):
                self.take_offline(log_dir.name)
        if not any(d.is_online for d in self._dirs.values()):
            raise LogDirsUnusable(f"none of the log dirs can be used: {', '.join(self._dirs)}")
        return lost

    def _open_one(self, log_dir: LogDir, *, broker_id: int, cluster_id: str) -> None:
        log_dir.path.mkdir(parents=True, exist_ok=True)
        log_dir.lock = self._lock(log_dir.path)
        meta_path = log_dir.path / checkpoints.META_FILE
        wanted = checkpoints.MetaProperties(broker_id=broker_id, cluster_id=cluster_id)
        try:
            found = checkpoints.read_meta(meta_path)
        except checkpoints.CheckpointError as error:
            raise LogDirsUnusable(str(error)) from error
        if found is not None and found.cluster_id not in (None, cluster_id):
            raise LogDirsUnusable(f"{meta_path}: cluster.id is {found.cluster_id}, but this cluster is {cluster_id}")
        if found is not None and found.broker_id != broker_id:
            raise LogDirsUnusable(f"{meta_path}: broker.id is {found.broker_id}, but this broker is {broker_id}")
        if found != wanted:
            checkpoints.write_meta(meta_path, wanted)

    @staticmethod
    def _lock(path: Path) -> int:
        handle = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(handle)
            raise LogDirsUnusable(f"{path} is in use by another process") from error
        return handle

    def _load_one(
        self, log_dir: LogDir, config_of: Callable[[str], LogConfig], now_ms: int
    ) -> dict[TopicPartition, int]:
        log_dir.was_clean = checkpoints.take_clean_shutdown(log_dir.path)
        log_dir.high_watermarks = _read_or_nothing(log_dir.path / checkpoints.HIGH_WATERMARK_FILE)
        starts = _read_or_nothing(log_dir.path / checkpoints.LOG_START_FILE)
        lost: dict[TopicPartition, int] = {}
        for folder in sorted(p for p in log_dir.path.iterdir() if p.is_dir()):
            topic_partition = parse_folder_name(folder.name)
            if folder.name.endswith(_DELETE_SUFFIX):
                shutil.rmtree(folder)
            elif topic_partition is not None:
                self._refuse_double(topic_partition, folder)
                log = Log(topic_partition, folder, config_of(topic_partition.topic))
                torn = log.load(
                    is_clean=log_dir.was_clean, log_start_offset=starts.get(topic_partition, 0), now_ms=now_ms
                )
                log_dir.logs[topic_partition] = log
                if torn:
                    lost[topic_partition] = torn
        return lost

    def _refuse_double(self, topic_partition: TopicPartition, folder: Path) -> None:
        if (log := self.get(topic_partition)) is not None:
            raise LogDirsUnusable(f"two logs of {topic_partition}: {log.folder} and {folder}")

    def close(self, *, clean: bool, broker_epoch: int, high_watermarks: Mapping[TopicPartition, int]) -> list[Path]:
        """Gives the dirs up; `clean` flushes, checkpoints and leaves the marker. Returns dirs that failed meanwhile."""
        failed: list[Path] = []
        for log_dir in self._dirs.values():
            if clean and log_dir.is_online:
                try:
                    self._close_one(log_dir, broker_epoch, high_watermarks)
                except (StorageFailure, OSError):
                    failed.append(log_dir.path)
            self._unlock(log_dir)
        return failed

    def unlock(self) -> None:
        """Lets another process have the dirs. Idempotent."""
        for log_dir in self._dirs.values():
            self._unlock(log_dir)

    def _close_one(self, log_dir: LogDir, broker_epoch: int, high_watermarks: Mapping[TopicPartition, int]) -> None:
        for log in log_dir.logs.values():
            log.flush()
        self._write_high_watermarks(log_dir, high_watermarks)
        self._write_recovery_points(log_dir)
        checkpoints.write_clean_shutdown(log_dir.path, broker_epoch)

    @staticmethod
    def _unlock(log_dir: LogDir) -> None:
        if log_dir.lock is not None:
            os.close(log_dir.lock)
            log_dir.lock = None

    # -- questions -----------------------------------------------------------------------------------------------

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """The log of a partition in an online dir."""
        return next((d.logs[topic_partition] for d in self._online() if topic_partition in d.logs), None)

    def __iter__(self) -> Iterator[LogDir]:
        return iter(self._dirs.values())

    def _online(self) -> Iterator[LogDir]:
        return (d for d in self._dirs.values() if d.is_online)

    def dir_of(self, log: Log) -> LogDir:
        """The dir that holds a log."""
        return next(d for d in self._dirs.values() if d.path == log.log_dir)

    def by_name(self, name: str) -> LogDir | None:
        """A dir by its configured path, or by another spelling of it."""
        wanted = Path(name)
        return self._dirs.get(name) or next((d for d in self._dirs.values() if d.path == wanted), None)

    def all_logs(self) -> Iterator[Log]:
        """The logs of all online dirs."""
        for log_dir in self._online():
            yield from list(log_dir.logs.values())

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
        """Where the log is to be created, should it be."""
        self._preferred[topic_partition] = name

    def create(self, topic_partition: TopicPartition, config: LogConfig) -> Log:
        """A new, empty log in the preferred dir, else in the one with the fewest logs (ties in configured order).

        Raises: StorageFailure of the dir chosen: take it offline and try again while another is online.
        """
        preferred = self.by_name(self._preferred.get(topic_partition, ""))
        candidates = sorted(self._online(), key=lambda d: (d is not preferred, len(d.logs)))
        if not candidates:
            raise StorageFailure(Path(), OSError("no log dir is online"))
        log_dir = candidates[0]
        log = Log(topic_partition, log_dir.path / folder_name(topic_partition), config)
        log.create()
        log_dir.logs[topic_partition] = log
        log_dir.high_watermarks.pop(topic_partition, None)
        self._preferred.pop(topic_partition, None)
        return log

    def delete(self, log: Log) -> Path:
        """Renames a log to `-delete`; the folder returned is to be removed by `purge` later."""
        log_dir = self.dir_of(log)
        unique = f"{self._rng.getrandbits(128):032x}"
        renamed = log.folder.with_name(deleted_name(log.topic_partition, unique))
        with storage_failures(log_dir.path):
            log.folder.rename(renamed)
        del log_dir.logs[log.topic_partition]
        log_dir.high_watermarks.pop(log.topic_partition, None)
        return renamed

    def purge(self, folder: Path) -> None:
        """Removes what `delete` renamed. Raises StorageFailure."""
        log_dir = next(d for d in self._dirs.values() if d.path == folder.parent)
        if log_dir.is_online:
            with storage_failures(log_dir.path):
                shutil.rmtree(folder)

    def take_offline(self, name: str) -> list[TopicPartition] | None:
        """Gives up a dir; returns the partitions it held, None when it was offline already."""
        log_dir = self._dirs[name]
        if not log_dir.is_online:
            return None
        log_dir.is_online = False
        self._unlock(log_dir)
        partitions = list(log_dir.logs)
        log_dir.logs.clear()
        return partitions

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Writes `replication-offset-checkpoint` of each online dir. Raises StorageFailure."""
        for log_dir in self._online():
            self._write_high_watermarks(log_dir, high_watermarks)

    def _write_high_watermarks(self, log_dir: LogDir, high_watermarks: Mapping[TopicPartition, int]) -> None:
        for topic_partition in log_dir.logs:
            if topic_partition in high_watermarks:
                log_dir.high_watermarks[topic_partition] = high_watermarks[topic_partition]
        kept = {tp: hw for tp, hw in log_dir.high_watermarks.items() if tp in log_dir.logs}
        self._write(log_dir, checkpoints.HIGH_WATERMARK_FILE, kept)

    def checkpoint_recovery_points(self) -> None:
        """Writes `recovery-point-` and `log-start-offset-checkpoint` of each online dir. Raises StorageFailure."""
        for log_dir in self._online():
            self._write_recovery_points(log_dir)

    def _write_recovery_points(self, log_dir: LogDir) -> None:
        points = {tp: log.recovery_point for tp, log in log_dir.logs.items()}
        starts = {
            tp: log.log_start_offset
            for tp, log in log_dir.logs.items()
            if log.log_start_offset > log.segments[0].base_offset
        }
        self._write(log_dir, checkpoints.RECOVERY_POINT_FILE, points)
        self._write(log_dir, checkpoints.LOG_START_FILE, starts)

    @staticmethod
    def _write(log_dir: LogDir, name: str, offsets: dict[TopicPartition, int]) -> None:
        """Writes and syncs, unless the file says the same already."""
        if log_dir.written.get(name) == offsets:
            return
        with storage_failures(log_dir.path):
            checkpoints.write_offsets(log_dir.path / name, offsets)
        log_dir.written[name] = dict(offsets)


def _read_or_nothing(path: Path) -> dict[TopicPartition, int]:
    """A checkpoint that cannot be read is as good as none: recovery starts from the log's start."""
    try:
        return checkpoints.read_offsets(path)
    except checkpoints.CheckpointError:
        return {}
