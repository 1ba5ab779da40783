"""The log of one partition: its segments, where it starts and ends, its leader epochs and producers.

Everything that touches the disk raises StorageFailure when the disk fails; the log dir is then to be given up. Requests
that cannot be met raise KafkaError. Source: spec broker.md §10, §13, §14; Kafka 3.9 `UnifiedLog`, `LocalLog`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from broker_sim.log import produced, records
from broker_sim.log.checkpoints import CheckpointError
from broker_sim.log.config import LogConfig
from broker_sim.log.errors import OffsetOutOfRange, storage_failures
from broker_sim.log.files import Files
from broker_sim.log.leader_epochs import FILE_NAME as EPOCH_FILE_NAME
from broker_sim.log.leader_epochs import EpochFile, LeaderEpochs
from broker_sim.log.loading import Repair, load_segments, tidy_up
from broker_sim.log.producers import ProducerStates
from broker_sim.log.records import BatchHeader, Record
from broker_sim.log.replicated import whole_batches
from broker_sim.log.rolling import count_deletable, must_roll
from broker_sim.log.segment import DELETED_SUFFIX, SWAP_SUFFIX, Segment, SegmentShape
from broker_sim.log.segments import Segments
from broker_sim.log.snapshots import Snapshots
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """What an append did. A duplicate of an idempotent producer was not written again."""

    base_offset: int
    #: the offset after the batch
    end_offset: int
    leo: int
    size_bytes: int
    log_append_time_ms: int = -1
    is_duplicate: bool = False


class UnexpectedOffset(KafkaError):
    """A follower was given batches that do not continue its log."""

    def __init__(self, offset: int, leo: int) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, f"batch at {offset} does not continue a log that ends at {leo}")


def _purge_at_once(log: Log, names: list[str]) -> None:
    log.purge(names)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogHooks:
    """What a log asks of who holds it.

    `doom(log, names)` is told the files that were renamed away and are to be removed after `file.delete.delay.ms`;
    `cut(log)` that the log was shortened. `jitter_of(limit_ms)` draws a segment's part of `segment.jitter.ms`.
    """

    doom: Callable[[Log, list[str]], None] = _purge_at_once
    cut: Callable[[Log], None] = lambda log: None
    jitter_of: Callable[[int], int] = lambda limit_ms: 0


class Log:
    """An open log. `leo` is the next offset to be written; offsets below `log_start_offset` are not readable.

    `version` rises whenever something is cut off or moved: a compaction that began before is void.
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
        self.config = config
        self.files = files if files is not None else Files()
        self.log_start_offset = 0
        self.leo = 0
        self.recovery_point = 0
        self.flushed_ms = 0
        self.version = 0
        self.epochs = LeaderEpochs()
        self.producers = ProducerStates()
        self._hooks = hooks if hooks is not None else LogHooks()
        self._segments = Segments()
        self._snapshots = Snapshots(folder, self.files)

    @property
    def log_dir(self) -> Path:
        """The log dir it lies in."""
        return self.folder.parent

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
        return SegmentShape(
            index_interval_bytes=self.config.index_interval_bytes, max_index_bytes=self.config.segment_index_bytes
        )

    # -- life ----------------------------------------------------------------------------------------------------

    def create(self, *, now_ms: int = 0) -> None:
        """Makes the folder and a first, empty segment."""
        with storage_failures(self.log_dir):
            self.files.make_folder(self.folder)
            self._add_segment(0, now_ms)

    def load(
        self, *, is_clean: bool, log_start_offset: int = 0, recovery_point: int = 0, now_ms: int = 0
    ) -> list[Repair]:
        """Opens what is on disk and returns what had to be repaired.

        Not clean: from the recovery point on every batch is checked, the log ends before the first that is not
        intact, indexes are rebuilt. Segments after a cut are removed, as in Kafka.
        """
        with storage_failures(self.log_dir):
            return self._load(
                is_clean=is_clean, log_start_offset=log_start_offset, recovery_point=recovery_point, now_ms=now_ms
            )

    def _load(self, *, is_clean: bool, log_start_offset: int, recovery_point: int, now_ms: int) -> list[Repair]:
        repairs = tidy_up(self.folder, shape=self.shape, files=self.files)
        rebuilt = LeaderEpochs()

        def note(header: BatchHeader) -> None:
            rebuilt.assign(header.partition_leader_epoch, header.base_offset)

        repairs += load_segments(
            self.folder,
            self._segments,
            shape=self.shape,
            files=self.files,
            trusted_below=None if is_clean else recovery_point,
            on_batch=note,
        )
        lost = any(repair.lost_bytes for repair in repairs)
        if len(self._segments) and self._segments.active.next_offset < log_start_offset:
            repairs += self._give_up(log_start_offset)
        if not len(self._segments):
            self._add_segment(log_start_offset, now_ms)
        else:
            self._segments.active.activate()
        self.leo = self._segments.active.next_offset
        self.log_start_offset = min(max(log_start_offset, self._segments.first.base_offset), self.leo)
        repairs += self._load_epochs(rebuilt, is_trusted=is_clean and not lost)
        self.recovery_point = self.leo if is_clean and not lost else min(recovery_point, self.leo)
        self._snapshots.find()
        self._snapshots.remove_strays(self._segments.bases)
        self._load_producers(now_ms)
        return repairs

    def _give_up(self, log_start_offset: int) -> list[Repair]:
        """The checkpoint says that the log starts above where it ends: files are missing, what is there is no use."""
        lost = self.size_bytes
        for segment in self._segments:
            self._remove(segment)
        self.epochs = LeaderEpochs()
        reason = f"the log ends below its start offset {log_start_offset}"
        return [Repair(path=self.folder, reason=reason, lost_bytes=lost)]

    def _load_epochs(self, rebuilt: LeaderEpochs, *, is_trusted: bool) -> list[Repair]:
        """The file may know an epoch without records; the batches know what a cut left."""
        repairs: list[Repair] = []
        try:
            self.epochs = self._epoch_file.read()
        except CheckpointError as error:
            repairs.append(Repair(path=self._epoch_file.path, reason=f"rebuilt from the batches: {error}"))
            self.epochs, is_trusted = LeaderEpochs(), False
        before = list(self.epochs.entries)
        if not self.epochs.entries:
            rebuilt = LeaderEpochs()
            for segment in self._segments:
                for _, header in segment.headers():
                    rebuilt.assign(header.partition_leader_epoch, header.base_offset)
        for epoch, start in rebuilt.entries:
            if epoch > self.epochs.latest:
                self.epochs.assign(epoch, start)
        self.epochs.entries = [(e, o) for e, o in self.epochs.entries if o <= self.leo]
        self.epochs.truncate_from_start(self.log_start_offset)
        if not is_trusted or before != self.epochs.entries:
            self._write_epochs()
        return repairs

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
        self.recovery_point = self.leo

    def unflushed(self, *, include_active: bool = False) -> list[Path]:
        """The files of the segments above the recovery point, the one that is written to left out unless included."""
        return [
            path
            for segment in self._segments.starting_with(self.recovery_point)
            if include_active or segment is not self._segments.active
            for path in (segment.log_path, segment.index_path, segment.time_path)
        ]

    def flushed(self, offset: int) -> None:
        """Everything below `offset` is on the disk."""
        self.recovery_point = max(self.recovery_point, min(offset, self.leo))

    def move(self, folder: Path) -> None:
        """The log's folder is renamed. Raises StorageFailure."""
        with storage_failures(self.log_dir):
            self.files.rename(self.folder, folder)
        self.folder = self._snapshots.folder = folder
        self.version += 1
        for segment in self._segments:
            segment.move(folder)

    @property
    def _epoch_file(self) -> EpochFile:
        return EpochFile(self.folder / EPOCH_FILE_NAME, self.files)

    def _write_epochs(self) -> None:
        self._epoch_file.write(self.epochs)

    def _add_segment(self, base_offset: int, now_ms: int) -> None:
        segment = Segment(self.folder, base_offset, shape=self.shape, files=self.files, created_ms=now_ms)
        limit_ms = min(self.config.segment_jitter_ms, self.config.max_segment_ms)
        segment.jitter_ms = self._hooks.jitter_of(limit_ms) if limit_ms > 0 else 0
        segment.create()
        self._segments.add(segment)

    # -- appending -----------------------------------------------------------------------------------------------

    def append_as_leader(self, batch: bytes, *, leader_epoch: int, now_ms: int, is_client: bool = True) -> Appended:
        """Checks a produced batch and writes it at the end, under `leader_epoch`.

        A batch of this broker itself (not `is_client`) is one of the coordinator: intact, with keys.
        Raises: KafkaError as `produced.prepare`, and for sequences (`ProducerStates`), nothing written; StorageFailure.
        """
        if is_client:
            prepared = produced.prepare(batch, self.config, self.topic_partition, now_ms=now_ms)
            batch, header = prepared.batch, prepared.header
        else:
            header = self._own_header(batch)
        duplicate = self.producers.duplicate_of(header)
        if duplicate is not None:
            return Appended(
                base_offset=duplicate,
                end_offset=duplicate + header.count,
                leo=self.leo,
                size_bytes=0,
                is_duplicate=True,
            )
        batch = records.place(batch, base_offset=self.leo, partition_leader_epoch=leader_epoch)
        base_offset = self.leo
        with storage_failures(self.log_dir):
            self._write(batch, records.parse_header(batch), now_ms)
            self._flush_if_due(now_ms)
        return Appended(
            base_offset=base_offset,
            end_offset=self.leo,
            leo=self.leo,
            size_bytes=len(batch),
            log_append_time_ms=now_ms if self.config.is_log_append_time else -1,
        )

    def _own_header(self, batch: bytes) -> BatchHeader:
        if len(batch) > self.config.max_message_bytes:
            limit = self.config.max_message_bytes
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"batch of {len(batch)} bytes is above {limit}")
        return records.parse_header(batch)

    def append_as_follower(self, data: bytes, *, now_ms: int) -> int:
        """Writes batches of the leader as they are; returns the bytes written. Checks all before it writes any.

        A torn last batch is left out (the leader may have cut the answer).
        Raises: CorruptBatch, UnexpectedOffset, StorageFailure.
        """
        taken = whole_batches(data)
        expected = self.leo
        for header, _ in taken:
            if header.base_offset < expected:
                raise UnexpectedOffset(header.base_offset, expected)
            expected = header.next_offset
        with storage_failures(self.log_dir):
            for header, batch in taken:
                self._write(batch, header, now_ms)
            self._flush_if_due(now_ms)
        return sum(header.size for header, _ in taken)

    def _write(self, batch: bytes, header: BatchHeader, now_ms: int) -> None:
        if must_roll(self._segments.active, header, self.config, now_ms=now_ms) is not None:
            self._roll(header.base_offset, now_ms)
        self._segments.active.append(batch, header)
        self.leo = header.next_offset
        self.producers.appended(header)
        self._assign_epoch(header.partition_leader_epoch, header.base_offset)

    def _roll(self, base_offset: int, now_ms: int) -> None:
        """A new segment, which begins at `base_offset`; an empty one that cannot take it is replaced."""
        active = self._segments.active
        if active.size == 0:
            self._segments.remove(active)
            active.delete()
        else:
            active.seal()
            self._snapshots.take(base_offset, self.producers)
        self._add_segment(base_offset, now_ms)
        if len(self._segments) == 1:
            self.log_start_offset = base_offset

    def _flush_if_due(self, now_ms: int) -> None:
        if self.leo - self.recovery_point >= self.config.flush_messages:
            self.flush(now_ms=now_ms)

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """A leader epoch starts at that offset (§14)."""
        with storage_failures(self.log_dir):
            self._assign_epoch(epoch, start_offset)

    def _assign_epoch(self, epoch: int, start_offset: int) -> None:
        if self.epochs.assign(epoch, start_offset):
            self._write_epochs()

    # -- reading -------------------------------------------------------------------------------------------------

    def read(self, offset: int, *, max_bytes: int, bound: int, min_one: bool = False) -> bytes:
        """Whole batches from the one that holds `offset`, below offset `bound`, of one segment.

        With `min_one` the first batch is returned however large. Raises: OffsetOutOfRange, StorageFailure.
        """
        place = self._locate(offset, max_bytes=max_bytes, bound=bound, min_one=min_one)
        if place is None:
            return b""
        segment, start, end = place
        with storage_failures(self.log_dir):
            return segment.read(start, end - start)

    def readable_bytes(self, offset: int, *, max_bytes: int, bound: int) -> int:
        """About how much `read` would return, without reading it (at least one batch). Raises as `read`."""
        place = self._locate(offset, max_bytes=max_bytes, bound=bound, min_one=True)
        return 0 if place is None else place[2] - place[1]

    def _locate(self, offset: int, *, max_bytes: int, bound: int, min_one: bool) -> tuple[Segment, int, int] | None:
        if not self.log_start_offset <= offset <= self.leo:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.leo)
        if offset >= min(bound, self.leo) or (max_bytes <= 0 and not min_one):
            return None
        with storage_failures(self.log_dir):
            return self._segments.locate(offset, max_bytes=max_bytes, bound=bound, min_one=min_one)

    def batches(self) -> Iterator[bytes]:
        """All batches that hold readable records, in order."""
        offset = self.log_start_offset
        while data := self.read(offset, max_bytes=1 << 20, bound=self.leo, min_one=True):
            for at, header in records.batches(data):
                yield data[at : at + header.size]
                offset = header.next_offset

    def find_by_time(self, timestamp: int, *, bound: int) -> Record | None:
        """The first record at or after `timestamp`, below offset `bound`; None when there is none."""
        with storage_failures(self.log_dir):
            return self._segments.find_by_time(timestamp, start=self.log_start_offset, bound=bound)

    def find_newest(self, *, bound: int) -> Record | None:
        """The first record with the largest timestamp, None when there is none or it is not below `bound`."""
        newest = self._segments.newest_timestamp
        return None if newest < 0 else self.find_by_time(newest, bound=bound)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """§14's `endOffsetFor`."""
        return self.epochs.end_offset_for(epoch, leo=self.leo)

    # -- cutting -------------------------------------------------------------------------------------------------

    def truncate(self, offset: int) -> int:
        """Removes every batch that holds `offset` or later; the log then ends at `offset`. Returns the bytes removed.

        Epochs that start at or after `offset` go even if the log is not shortened.
        """
        with storage_failures(self.log_dir):
            if self.epochs.truncate_from_end(offset):
                self._write_epochs()
            if offset >= self.leo:
                return 0
            self.version += 1
            if offset < self.log_start_offset:
                size = self.size_bytes
                self._replace_all(offset)
                return size
            removed = 0
            while len(self._segments) > 1 and self._segments.active.base_offset > offset:
                removed += self._segments.active.size
                self._remove(self._segments.active)
            removed += self._segments.active.truncate(offset)
            self.leo = offset
            self.recovery_point = min(self.recovery_point, offset)
            if len(self.producers):
                self._load_producers(0)
            else:
                self._snapshots.load(up_to=offset, above=self.log_start_offset, oldest_ms=0)
            self._hooks.cut(self)
        return removed

    def truncate_fully(self, new_start: int) -> None:
        """Empties the log, which then starts and ends at `new_start`."""
        with storage_failures(self.log_dir):
            self.version += 1
            self._replace_all(new_start)

    def _replace_all(self, new_start: int) -> None:
        for segment in self._segments:
            self._remove(segment)
        self._snapshots.clear()
        self._add_segment(new_start, 0)
        self.leo = self.log_start_offset = new_start
        self.recovery_point = min(self.recovery_point, new_start)
        self.producers = ProducerStates()
        self.epochs.entries = []
        self._write_epochs()
        self._hooks.cut(self)

    def _remove(self, segment: Segment) -> None:
        """Takes a segment out: its files are renamed now and removed later."""
        self._segments.remove(segment)
        names = segment.rename(DELETED_SUFFIX) + self._snapshots.doom(segment.base_offset, DELETED_SUFFIX)
        self._hooks.doom(self, names)

    def purge(self, names: Sequence[str]) -> None:
        """Removes files that were renamed away, wherever the log is now."""
        for name in names:
            self.files.remove(self.folder / name)

    def raise_log_start(self, offset: int) -> bool:
        """Records below `offset` are no longer readable. Returns whether it rose.

        Raises: OffsetOutOfRange above the end of the log.
        """
        if offset > self.leo:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.leo)
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        with storage_failures(self.log_dir):
            if self.epochs.truncate_from_start(offset):
                self._write_epochs()
        return True

    def delete_old_segments(self, *, now_ms: int, high_watermark: int) -> int:
        """Retention by time, size and log start offset; returns how many segments went."""
        count = count_deletable(
            self.segments,
            self.config,
            now_ms=now_ms,
            high_watermark=high_watermark,
            leo=self.leo,
            log_start=self.log_start_offset,
        )
        if not count:
            return 0
        with storage_failures(self.log_dir):
            self.version += 1
            if count == len(self._segments):
                self._roll(self.leo, now_ms)
            for segment in self.segments[:count]:
                self._remove(segment)
        self.raise_log_start(self._segments.first.base_offset)
        return count

    # -- compaction ------------------------------------------------------------------------------------------------

    def new_cleaned_segment(self, base_offset: int, suffix: str) -> Segment:
        """An empty segment beside the others, for a compaction to fill."""
        segment = Segment(self.folder, base_offset, shape=self.shape, files=self.files, suffix=suffix)
        segment.create()
        return segment

    def swap_in(self, cleaned: Segment, old: Sequence[Segment]) -> None:
        """A compacted segment, sealed and synced, takes the place of those it was made from.

        A broker that dies in the middle finds either the old segments or a `.swap` segment that replaces them.
        """
        with storage_failures(self.log_dir):
            cleaned.rename(SWAP_SUFFIX)
            self._segments.replace(cleaned, old)
            for segment in old:
                names = segment.rename(DELETED_SUFFIX)
                if segment.base_offset != cleaned.base_offset:
                    names += self._snapshots.doom(segment.base_offset, DELETED_SUFFIX)
                self._hooks.doom(self, names)
            cleaned.rename("")
