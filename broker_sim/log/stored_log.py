"""A log on disk: its folder of segments, epochs and producers, from creation over recovery to a clean end.

What is written to it and read from it is `log.Log`. Everything that touches the disk raises StorageFailure.
Source: spec broker.md §4.2, §10; Kafka 3.9 `UnifiedLog`, `LogLoader`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from broker_sim.log.checkpoints import CheckpointError
from broker_sim.log.config import LogConfig
from broker_sim.log.errors import StorageFailure, storage_failures
from broker_sim.log.files import Files
from broker_sim.log.leader_epochs import FILE_NAME as EPOCH_FILE_NAME
from broker_sim.log.leader_epochs import EpochFile, LeaderEpochs
from broker_sim.log.loading import Repair, load_segments, names_in, tidy_up
from broker_sim.log.producers import ProducerStates
from broker_sim.log.segment import DELETED_SUFFIX, Segment
from broker_sim.log.segment_shape import SegmentShape
from broker_sim.log.segments import Segments
from broker_sim.log.snapshots import Snapshots
from controller.wire.records import BatchHeader
from controller.wire.types import TopicPartition


@lru_cache(maxsize=64)
def _shape(index_interval_bytes: int, max_index_bytes: int) -> SegmentShape:
    """One value for all logs that are built alike."""
    return SegmentShape(index_interval_bytes=index_interval_bytes, max_index_bytes=max_index_bytes)


def _purge_at_once(log: StoredLog, names: list[str]) -> None:
    log.purge(names)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogHooks:
    """What a log asks of who holds it.

    `doom(log, names)` is told the files that were renamed away and are to be removed after `file.delete.delay.ms`;
    `cut(log)` that the log was shortened; `rolled(log)` that a segment is full, and wants to be on the disk.
    `jitter_of(limit_ms)` draws a segment's part of `segment.jitter.ms`.
    """

    doom: Callable[[StoredLog, list[str]], None] = _purge_at_once
    cut: Callable[[StoredLog], None] = lambda log: None
    rolled: Callable[[StoredLog], None] = lambda log: None
    jitter_of: Callable[[int], int] = lambda limit_ms: 0


class StoredLog:
    """`leo` is the next offset to be written; offsets below `log_start_offset` are not readable.

    `version` rises whenever something is cut off, moved or compacted: what was begun before with its files is void.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        folder: Path,
        config: LogConfig,
        *,
        files: Files | None = None,
        hooks: LogHooks | None = None,
    ) -> None:
        """Describes a log; `create` or `load` makes it usable."""
        self.topic_partition = topic_partition
        self.folder = folder
        #: The log dir it lies in.
        self.log_dir = folder.parent
        self.config = config
        self.files = files if files is not None else Files()
        self.log_start_offset = 0
        self.leo = 0
        self.recovery_point = 0
        self.flushed_ms = 0
        self.version = 0
        self.epochs = LeaderEpochs()
        #: Whether the file of epochs was written since it was last synced for certain.
        self._epochs_unsynced = False
        self.producers = ProducerStates()
        self._hooks = hooks if hooks is not None else LogHooks()
        self._segments = Segments()
        self._snapshots = Snapshots(folder, self.files)

    @property
    def size_bytes(self) -> int:
        """The sum of its `.log` files."""
        return self._segments.size_bytes

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Oldest first; the last one is appended to."""
        return self._segments.all

    @property
    def shape(self) -> SegmentShape:
        """How its new segments are built."""
        return _shape(self.config.index_interval_bytes, self.config.segment_index_bytes)

    # -- life ----------------------------------------------------------------------------------------------------

    def create(self, *, now_ms: int = 0) -> None:
        """Makes the folder. The files come with the first batch: most logs of a large cluster get none for long."""
        with storage_failures(self.log_dir):
            self.files.make_folder(self.folder)
            self._add_segment(0, now_ms)

    def load(
        self, *, is_clean: bool, log_start_offset: int = 0, recovery_point: int = 0, now_ms: int = 0
    ) -> list[Repair]:
        """Opens what is on disk and returns what had to be repaired.

        Not clean: from the recovery point on every batch is checked, the log ends before the first that is not
        intact, indexes are rebuilt. Segments after a cut are removed there, but not below the recovery point, as in
        Kafka.
        """
        with storage_failures(self.log_dir):
            return self._load(
                is_clean=is_clean, log_start_offset=log_start_offset, recovery_point=recovery_point, now_ms=now_ms
            )

    def _load(self, *, is_clean: bool, log_start_offset: int, recovery_point: int, now_ms: int) -> list[Repair]:
        repairs = tidy_up(self.folder, shape=self.shape, files=self.files)
        rebuilt = LeaderEpochs()
        last_offsets: dict[int, int] = {}

        def note(header: BatchHeader) -> None:
            rebuilt.assign(header.partition_leader_epoch, header.base_offset)
            last_offsets[header.partition_leader_epoch] = header.last_offset

        names = names_in(self.folder)
        repairs += load_segments(
            self.folder,
            names,
            self._segments,
            shape=self.shape,
            files=self.files,
            trusted_below=None if is_clean else recovery_point,
            on_batch=note,
        )
        for segment in self._segments:
            segment.jitter_ms = self._draw_jitter_ms()
        lost = any(repair.lost_bytes for repair in repairs)
        if len(self._segments) and self._segments.active.next_offset < log_start_offset:
            repairs += self._give_up(log_start_offset)
        if not len(self._segments):
            self._add_segment(log_start_offset, now_ms)
        else:
            self._segments.active.activate()
        self.leo = self._segments.active.next_offset
        self.log_start_offset = min(max(log_start_offset, self._segments.first.base_offset), self.leo)
        repairs += self._load_epochs(rebuilt, last_offsets, is_trusted=is_clean and not lost)
        self.recovery_point = self.leo if is_clean and not lost else min(recovery_point, self.leo)
        self._snapshots.found(names)
        self._snapshots.remove_strays(self._segments.bases)
        self._load_producers(now_ms)
        return repairs

    def _give_up(self, log_start_offset: int) -> list[Repair]:
        """The checkpoint says that the log starts above where it ends: files are missing, what is there is no use."""
        lost = self.size_bytes
        for segment in self._segments:
            self._remove(segment)
        reason = f"the log ends below its start offset {log_start_offset}"
        return [Repair(path=self.folder, reason=reason, lost_bytes=lost)]

    def _load_epochs(self, rebuilt: LeaderEpochs, last_offsets: Mapping[int, int], *, is_trusted: bool) -> list[Repair]:
        """The file may know an epoch without records; the batches know what a cut left. `last_offsets`: epoch -> the
        last offset of it in what was read."""
        repairs: list[Repair] = []
        try:
            self.epochs = self._epoch_file.read()
        except CheckpointError as error:
            repairs.append(Repair(path=self._epoch_file.path, reason=f"rebuilt from the batches: {error}"))
            is_trusted = False
        before = list(self.epochs.entries)
        # A loss of power may have brought back what was cut: the batches that were read say what is so.
        for epoch, start in rebuilt.entries:
            self.epochs.found(epoch, start, last_offsets[epoch])
        kept = self.epochs.entries
        if (first := kept[0][1] if kept else self.leo) > self.log_start_offset:
            # No file, or one of before; or a kill took the log start back to its checkpoint: what is older is there.
            # A lower epoch than theirs is that of the next topic of the name: it ends them, as when it was written.
            self.epochs = self._epochs_below(first)
            for epoch, start in kept:
                self.epochs.assign(epoch, start)
        self.epochs.entries = [(e, o) for e, o in self.epochs.entries if o <= self.leo]
        self.epochs.truncate_from_start(self.log_start_offset)
        if self._segments.active.is_made and (not is_trusted or before != self.epochs.entries):
            self._write_epochs()
        return repairs

    def _epochs_below(self, offset: int) -> LeaderEpochs:
        """As the batches tell that begin below it; later ones are not read."""
        found = LeaderEpochs()
        for segment in self._segments:
            if segment.base_offset >= offset:
                break
            below = itertools.takewhile(lambda entry: entry[1].base_offset < offset, segment.headers())
            for _, header in below:
                found.assign(header.partition_leader_epoch, header.base_offset)
        return found

    def _load_producers(self, now_ms: int) -> None:
        """From the newest snapshot, and the batches after it."""
        at, self.producers = self._snapshots.load(
            up_to=self.leo,
            above=self.log_start_offset,
            oldest_ms=now_ms - self.config.producer_id_expiration_ms + 1,
        )
        if at >= self.leo:
            return
        for segment in self._segments.starting_with(at):
            for _, header in segment.headers(max(at, segment.base_offset)):
                if header.base_offset >= at:
                    self.producers.appended(header)

    def close(self) -> None:
        """A clean end: everything is on the disk, the producers are written down, indexes end with their entries."""
        self.flush()
        with storage_failures(self.log_dir):
            self._segments.active.seal()
            self._snapshots.take(self.leo, self.producers)

    def flush(self, *, now_ms: int = 0) -> None:
        """Waits until everything is on the disk."""
        self.flushed_ms = now_ms
        if self.recovery_point == self.leo:
            return
        with storage_failures(self.log_dir):
            for path in self.unflushed(include_active=True):
                self.files.sync(path)
        self._epochs_unsynced = False
        self.recovery_point = self.leo

    def unflushed(self, *, include_active: bool = False) -> list[Path]:
        """The files of the segments above the recovery point, the one that is written to left out unless included.

        With them the epochs: a start reads the batches above the recovery point, and takes the file's word below it.
        """
        paths = [
            path
            for segment in self._segments.starting_with(self.recovery_point)
            if include_active or segment is not self._segments.active
            for path in (segment.log_path, segment.index_path, segment.time_path)
        ]
        return [*paths, self._epoch_file.path] if paths and self._epochs_unsynced else paths

    def flushed(self, offset: int) -> None:
        """Everything below `offset` is on the disk."""
        self.recovery_point = max(self.recovery_point, min(offset, self.leo))

    def has_moved_on(self, version: int, failure: StorageFailure) -> bool:
        """Whether work that began at that version failed for files that were renamed or deleted meanwhile, which says
        nothing of the disk."""
        return self.version != version and isinstance(failure.__cause__, FileNotFoundError)

    def move(self, folder: Path) -> None:
        """The log's folder is renamed. Raises StorageFailure."""
        with storage_failures(self.log_dir):
            self.files.rename(self.folder, folder)
        self.folder = self._snapshots.folder = folder
        self.log_dir = folder.parent
        self.version += 1
        for segment in self._segments:
            segment.move(folder)

    @property
    def _epoch_file(self) -> EpochFile:
        return EpochFile(self.folder / EPOCH_FILE_NAME, self.files)

    def _write_epochs(self) -> None:
        self._epoch_file.write(self.epochs)
        self._epochs_unsynced = True

    def _add_segment(self, base_offset: int, now_ms: int) -> None:
        segment = Segment(self.folder, base_offset, shape=self.shape, files=self.files, created_ms=now_ms)
        segment.jitter_ms = self._draw_jitter_ms()
        # An empty log that does not begin at 0 has its start in the name of a file, which a kill must not take away.
        segment.create(lazily=base_offset == 0)
        self._segments.add(segment)

    def _draw_jitter_ms(self) -> int:
        """`LogConfig.randomSegmentJitter`, which each segment has, also one that a start finds."""
        limit_ms = min(self.config.segment_jitter_ms, self.config.max_segment_ms)
        return self._hooks.jitter_of(limit_ms) if limit_ms > 0 else 0

    def _remove(self, segment: Segment) -> None:
        """Takes a segment out: its files are renamed now and removed later."""
        self._segments.remove(segment)
        names = segment.rename(DELETED_SUFFIX) + self._snapshots.doom(segment.base_offset, DELETED_SUFFIX)
        self._hooks.doom(self, names)

    def purge(self, names: Sequence[str]) -> None:
        """Removes files that were renamed away, wherever the log is now."""
        for name in names:
            self.files.remove(self.folder / name)
