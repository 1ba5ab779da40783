"""One configured log dir: whose it is, which logs and future logs lie in it, and its checkpoint files.

Methods raise StorageFailure when the disk fails. Source: spec broker.md §10.1, §10.2; Kafka 3.9 `LogManager`.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from broker_sim.log import checkpoints
from broker_sim.log.errors import LogDirsUnusable, storage_failures
from broker_sim.log.files import Files
from broker_sim.log.loading import Repair
from broker_sim.log.log import Log
from broker_sim.log.stored_log import StoredLog
from controller.wire.types import TopicPartition
from controller.wire.whole import whole

LOCK_FILE: Final = ".lock"
DELETE_SUFFIX: Final = "-delete"
FUTURE_SUFFIX: Final = "-future"
STRAY_SUFFIX: Final = "-stray"
MAX_NAME: Final = 255
_SPECIAL: Final = re.compile(r"\.[0-9a-f]{32}-(delete|future|stray)$")
_FUTURE: Final = re.compile(r"(?P<plain>.+)\.[0-9a-f]{32}-future$")


def folder_name(topic_partition: TopicPartition) -> str:
    """The name of a log's folder, such as `orders-7`."""
    return f"{topic_partition.topic}-{topic_partition.partition}"


def parse_folder_name(name: str) -> TopicPartition | None:
    """The partition whose log a folder holds; None for every other name, renamed logs included."""
    topic, _, number = name.rpartition("-")
    partition = whole(number)
    if not topic or partition is None or _SPECIAL.search(name):
        return None
    return TopicPartition(topic, partition)


def parse_future_name(name: str) -> TopicPartition | None:
    """The partition whose future log a folder holds, None for every other name."""
    match = _FUTURE.fullmatch(name)
    return None if match is None else parse_folder_name(match["plain"])


def is_deleted_name(name: str) -> bool:
    """Whether a folder is that of a log that was deleted."""
    return (match := _SPECIAL.search(name)) is not None and match[1] == "delete"


def set_aside_name(topic_partition: TopicPartition, unique: str, suffix: str) -> str:
    """`<topic>-<p>.<unique>-delete` or `-stray`, the topic cut so that file systems take the name."""
    tail = f"-{topic_partition.partition}.{unique}{suffix}"
    return topic_partition.topic[: MAX_NAME - len(tail)] + tail


def future_name(topic_partition: TopicPartition, unique: str) -> str:
    """`<topic>-<p>.<unique>-future`, which may be too long for a file system."""
    return f"{folder_name(topic_partition)}.{unique}{FUTURE_SUFFIX}"


def has_future_name(topic_partition: TopicPartition) -> bool:
    """Whether the log can be moved: its future folder's name is at most 255 characters long."""
    return len(future_name(topic_partition, "0" * 32)) <= MAX_NAME


@dataclass(slots=True)
class LogDir:
    """One configured log dir. `high_watermarks` and `cleaned` are what its checkpoints say."""

    path: Path
    name: str
    files: Files
    is_online: bool = True
    was_clean: bool = True
    #: whether all that lies in it has been read: else its files say more than what is known here
    is_loaded: bool = False
    lock: int | None = None
    logs: dict[TopicPartition, Log] = field(default_factory=dict)
    futures: dict[TopicPartition, Log] = field(default_factory=dict)
    high_watermarks: dict[TopicPartition, int] = field(default_factory=dict)
    cleaned: dict[TopicPartition, int] = field(default_factory=dict)
    written: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    #: what each checkpoint file is to say; and held while one of them is written, be it in another thread.
    newest: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    writing: threading.Lock = field(default_factory=threading.Lock)

    def space(self) -> tuple[int, int]:
        """(total, usable) bytes of the volume; -1 where it cannot be asked."""
        try:
            usage = shutil.disk_usage(self.path)
        except OSError:
            return -1, -1
        return usage.total, usage.free

    def all_logs(self) -> Iterator[Log]:
        """Current and future logs."""
        yield from list(self.logs.values())
        yield from list(self.futures.values())

    def holds(self, log: StoredLog) -> bool:
        """Whether exactly this log lies here, as the current or as the future one."""
        tp = log.topic_partition
        return self.logs.get(tp) is log or self.futures.get(tp) is log

    def forget(self, log: Log) -> None:
        """The log is no longer here, nor in the next checkpoints, nor is anything kept of it."""
        tp = log.topic_partition
        if self.logs.get(tp) is log:
            del self.logs[tp]
            self.cleaned.pop(tp, None)
        if self.futures.get(tp) is log:
            del self.futures[tp]
        self.high_watermarks.pop(tp, None)

    # -- start and end -------------------------------------------------------------------------------------------

    def claim(self, *, broker_id: int, cluster_id: str) -> None:
        """Makes the dir, locks it, and checks or writes `meta.properties`.

        Raises: LogDirsUnusable for a dir in use or of another broker or cluster, OSError.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        self.lock = _lock(self.path)
        meta_path = self.path / checkpoints.META_FILE
        own = checkpoints.MetaProperties(broker_id=broker_id, cluster_id=cluster_id)
        try:
            found = checkpoints.read_meta(meta_path)
        except checkpoints.CheckpointError as error:
            raise LogDirsUnusable(str(error)) from error
        if found is not None and found.cluster_id not in (None, cluster_id):
            raise LogDirsUnusable(f"{meta_path}: cluster.id is {found.cluster_id}, but this cluster is {cluster_id}")
        if found is not None and found.broker_id != broker_id:
            raise LogDirsUnusable(f"{meta_path}: broker.id is {found.broker_id}, but this broker is {broker_id}")
        if found != own:
            checkpoints.write_meta(meta_path, own)

    def unlock(self) -> None:
        """Lets another process have the dir; what is still being written of checkpoints is not. Idempotent."""
        with self.writing:
            self.newest.clear()
        if self.lock is not None:
            fcntl.flock(self.lock, fcntl.LOCK_UN)  # a process that was forked meanwhile has the file, too
            os.close(self.lock)
            self.lock = None

    def read_checkpoint(self, name: str, repairs: list[Repair]) -> dict[TopicPartition, int]:
        """A checkpoint's entries. One that cannot be read is as good as none, and is reported."""
        path = self.path / name
        try:
            found = checkpoints.read_offsets(path)
        except checkpoints.CheckpointError as error:
            repairs.append(Repair(path=path, reason=f"taken as empty: {error}"))
            return {}
        self.written[name] = dict(found)
        return found

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def write_high_watermarks(
        self, current: Mapping[TopicPartition, int], future: Mapping[TopicPartition, int]
    ) -> None:
        """`replication-offset-checkpoint`; a log without a new value keeps its old one."""
        self.high_watermarks_writer(current, future)()

    def high_watermarks_writer(
        self, current: Mapping[TopicPartition, int], future: Mapping[TopicPartition, int]
    ) -> Callable[[], None]:
        """As `write_high_watermarks`, but what waits for the disk is returned, to be done beside the event loop."""
        for logs, saved in ((self.logs, current), (self.futures, future)):
            for tp in logs:
                if tp in saved:
                    self.high_watermarks[tp] = saved[tp]
        kept = {tp: hw for tp, hw in self.high_watermarks.items() if tp in self.logs or tp in self.futures}
        return self._writer(checkpoints.HIGH_WATERMARK_FILE, kept)

    def write_recovery_points(self) -> None:
        """`recovery-point-offset-checkpoint`."""
        points = {log.topic_partition: log.recovery_point for log in self.all_logs()}
        self._write(checkpoints.RECOVERY_POINT_FILE, points)

    def write_log_starts(self) -> None:
        """`log-start-offset-checkpoint`: only logs that start above their first segment."""
        starts = {
            log.topic_partition: log.log_start_offset
            for log in self.all_logs()
            if log.log_start_offset > log.segments[0].base_offset
        }
        self._write(checkpoints.LOG_START_FILE, starts)

    def write_cleaned(self) -> None:
        """`cleaner-offset-checkpoint`."""
        self._write(checkpoints.CLEANER_FILE, {tp: o for tp, o in self.cleaned.items() if tp in self.logs})

    def was_cut(self, log: StoredLog) -> None:
        """A log is shorter now, or a start found it so: checkpoints on disk must not claim what will be written there
        next."""
        tp = log.topic_partition
        if self.written.get(checkpoints.RECOVERY_POINT_FILE, {}).get(tp, 0) > log.recovery_point:
            self.write_recovery_points()
        if self.logs.get(tp) is log and self.cleaned.get(tp, 0) > log.leo:
            self.cleaned[tp] = log.leo
            self.write_cleaned()

    def begins_anew(self, topic_partition: TopicPartition) -> None:
        """A log of that name is about to be created: what checkpoints on disk say of one before it, or are about to,
        must not be taken for it after a kill. One write serves all logs that are gone. Raises: StorageFailure.
        """
        self.high_watermarks.pop(topic_partition, None)
        self.cleaned.pop(topic_partition, None)
        writers: dict[str, Callable[[], None]] = {
            checkpoints.RECOVERY_POINT_FILE: self.write_recovery_points,
            checkpoints.LOG_START_FILE: self.write_log_starts,
            checkpoints.CLEANER_FILE: self.write_cleaned,
            checkpoints.HIGH_WATERMARK_FILE: partial(self.write_high_watermarks, {}, {}),
        }
        for name, write in writers.items():
            if any(topic_partition in content.get(name, {}) for content in (self.written, self.newest)):
                write()

    def _write(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        self._writer(name, offsets)()

    def _writer(self, name: str, offsets: dict[TopicPartition, int]) -> Callable[[], None]:
        """What writes and syncs, unless the file says the same already, or is to say something newer by then."""
        self.newest[name] = offsets

        def write() -> None:
            with self.writing:
                if self.newest.get(name) is not offsets:
                    return
                if self.written.get(name) == offsets:
                    return
                with storage_failures(self.path):
                    self.files.replace(self.path / name, checkpoints.offsets_text(offsets).encode(), sync=True)
                self.written[name] = offsets

        return write


def _lock(path: Path) -> int:
    handle = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise LogDirsUnusable(f"{path} is in use by another process") from error
    return handle
