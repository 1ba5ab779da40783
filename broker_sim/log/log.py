"""The log of one partition: its segments, where it starts and ends, its leader epochs and producers.

Everything that touches the disk raises StorageFailure when the disk fails; the log dir is then to be given up. Requests
that cannot be met raise KafkaError. Source: spec broker.md §10, §13, §14; Kafka 3.9 `UnifiedLog`, `LocalLog`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from broker_sim.log import produced, records
from broker_sim.log.checkpoints import CheckpointError
from broker_sim.log.config import LogConfig
from broker_sim.log.errors import OffsetOutOfRange, storage_failures
from broker_sim.log.leader_epochs import FILE_NAME as EPOCH_FILE_NAME
from broker_sim.log.leader_epochs import EpochFile, LeaderEpochs
from broker_sim.log.producers import ProducerStates
from broker_sim.log.records import BatchHeader, Record
from broker_sim.log.segment import MAX_RELATIVE_OFFSET, Segment
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


class Log:
    """An open log. `leo` is the next offset to be written; offsets below `log_start_offset` are not readable."""

    def __init__(self, topic_partition: TopicPartition, folder: Path, config: LogConfig) -> None:
        """Describes a log; `create` or `load` makes it usable."""
        self.topic_partition = topic_partition
        self.folder = folder
        self.config = config
        self.log_start_offset = 0
        self.leo = 0
        self.recovery_point = 0
        self.epochs = LeaderEpochs()
        self.producers = ProducerStates()
        self._segments: list[Segment] = []
        self._bases: list[int] = []

    @property
    def log_dir(self) -> Path:
        """The log dir it lies in."""
        return self.folder.parent

    @property
    def size_bytes(self) -> int:
        """The sum of its `.log` files."""
        return sum(s.size for s in self._segments)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Oldest first; the last one is appended to."""
        return tuple(self._segments)

    # -- life ----------------------------------------------------------------------------------------------------

    def create(self) -> None:
        """Makes the folder and a first, empty segment."""
        with storage_failures(self.log_dir):
            self.folder.mkdir()
            self._add_segment(0)

    def load(self, *, is_clean: bool, log_start_offset: int = 0, now_ms: int = 0) -> int:
        """Opens what is on disk and returns how many bytes were torn or corrupt and are cut off.

        Not clean: every batch is checked, the log ends before the first that is not intact, indexes are rebuilt.
        Segments after a cut are removed, as in Kafka.
        """
        with storage_failures(self.log_dir):
            return self._load(is_clean=is_clean, log_start_offset=log_start_offset, now_ms=now_ms)

    def _load(self, *, is_clean: bool, log_start_offset: int, now_ms: int) -> int:
        bases = sorted(int(p.stem) for p in self.folder.glob("*.log") if p.stem.isdigit())
        rebuilt, lost, is_cut = LeaderEpochs(), 0, False

        def note(header: BatchHeader) -> None:
            self.producers.appended(header, now_ms)
            rebuilt.assign(header.partition_leader_epoch, header.base_offset)

        for base in bases:
            segment = Segment(self.folder, base, index_interval_bytes=self.config.index_interval_bytes)
            if is_cut or (self._segments and base < self._segments[-1].next_offset):
                lost += segment.log_path.stat().st_size
                segment.delete()
                continue
            torn = segment.load(check=not is_clean, on_batch=note)
            lost, is_cut = lost + torn, is_cut or torn > 0
            self._keep_segment(segment)
        if not self._segments:
            self._add_segment(0)
        self.leo = self._segments[-1].next_offset
        self.log_start_offset = min(max(log_start_offset, self._segments[0].base_offset), self.leo)
        self._load_epochs(rebuilt, trust_file=is_clean and not lost)
        self.recovery_point = self.leo if is_clean and not lost else 0
        return lost

    def _load_epochs(self, rebuilt: LeaderEpochs, *, trust_file: bool) -> None:
        """The file may know an epoch without records; the batches know what a cut left."""
        try:
            self.epochs = self._epoch_file.read()
        except CheckpointError:
            self.epochs, trust_file = rebuilt, False
        before = list(self.epochs.entries)
        for epoch, start in rebuilt.entries:
            if epoch > self.epochs.latest:
                self.epochs.assign(epoch, start)
        self.epochs.entries = [(e, o) for e, o in self.epochs.entries if o <= self.leo]
        if not trust_file or before != self.epochs.entries:
            self._epoch_file.write(self.epochs)

    def flush(self) -> None:
        """Waits until everything is on the disk."""
        if self.recovery_point == self.leo:
            return
        with storage_failures(self.log_dir):
            for segment in self._segments:
                if segment.next_offset > self.recovery_point or segment is self._segments[-1]:
                    segment.sync()
        self.recovery_point = self.leo

    @property
    def _epoch_file(self) -> EpochFile:
        return EpochFile(self.folder / EPOCH_FILE_NAME)

    def _add_segment(self, base_offset: int) -> None:
        segment = Segment(self.folder, base_offset, index_interval_bytes=self.config.index_interval_bytes)
        segment.create()
        self._keep_segment(segment)

    def _keep_segment(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._bases.append(segment.base_offset)

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
        taken: list[tuple[BatchHeader, bytes]] = []
        at, expected = 0, self.leo
        while len(data) - at >= records.HEADER_BYTES:
            header = records.parse_header(data, at)
            if len(data) - at < header.size:
                break
            records.check_crc(data, header, at)
            if header.base_offset < expected:
                raise UnexpectedOffset(header.base_offset, expected)
            taken.append((header, data[at : at + header.size]))
            at, expected = at + header.size, header.next_offset
        with storage_failures(self.log_dir):
            for header, batch in taken:
                self._write(batch, header, now_ms)
        return at

    def _write(self, batch: bytes, header: BatchHeader, now_ms: int) -> None:
        self._roll_if_due(header)
        self._segments[-1].append(batch, header)
        self.leo = header.next_offset
        self.producers.appended(header, now_ms)
        self._assign_epoch(header.partition_leader_epoch, header.base_offset)

    def _roll_if_due(self, header: BatchHeader) -> None:
        active = self._segments[-1]
        is_old = active.first_timestamp >= 0 and (
            header.max_timestamp - active.first_timestamp > self.config.segment_ms
        )
        is_full = len(active.index_entries) >= self.config.segment_index_bytes // 8
        if active.size == 0:
            if header.last_offset - active.base_offset > MAX_RELATIVE_OFFSET:
                self._replace_all(header.base_offset)
            return
        if (
            active.size + header.size > self.config.segment_bytes
            or is_old
            or is_full
            or header.last_offset - active.base_offset > MAX_RELATIVE_OFFSET
        ):
            active.seal()
            self._add_segment(header.base_offset)

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """A leader epoch starts at that offset (§14)."""
        with storage_failures(self.log_dir):
            self._assign_epoch(epoch, start_offset)

    def _assign_epoch(self, epoch: int, start_offset: int) -> None:
        if self.epochs.assign(epoch, start_offset):
            self._epoch_file.write(self.epochs)

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
            for segment in self._segments[max(bisect_right(self._bases, offset) - 1, 0) :]:
                found = segment.find(offset)
                if found is not None:
                    end = segment.end_of_whole_batches(found[0], max_bytes=max_bytes, bound=bound, min_one=min_one)
                    return (segment, found[0], end) if end > found[0] else None
        return None

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
            for segment in self._segments:
                if segment.max_timestamp < timestamp:
                    continue
                for position, header in segment.find_time(timestamp, from_offset=self.log_start_offset):
                    for record in records.records_of(segment.read(position, header.size)):
                        if record.timestamp >= timestamp and record.offset >= self.log_start_offset:
                            return record if record.offset < bound else None
        return None

    def find_newest(self, *, bound: int) -> Record | None:
        """The first record with the largest timestamp, None when there is none or it is not below `bound`."""
        newest = max((s.max_timestamp for s in self._segments), default=records.NO_TIMESTAMP)
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
                self._epoch_file.write(self.epochs)
            if offset >= self.leo:
                return 0
            if offset < self.log_start_offset:
                size = self.size_bytes
                self._replace_all(offset)
                return size
            removed = 0
            while len(self._segments) > 1 and self._segments[-1].base_offset > offset:
                removed += self._drop(len(self._segments) - 1)
            removed += self._segments[-1].truncate(offset)
        self.leo = offset
        self.recovery_point = min(self.recovery_point, offset)
        self.producers.truncated(offset)
        return removed

    def truncate_fully(self, new_start: int) -> None:
        """Empties the log, which then starts and ends at `new_start`."""
        with storage_failures(self.log_dir):
            self._replace_all(new_start)

    def _replace_all(self, new_start: int) -> None:
        for index in reversed(range(len(self._segments))):
            self._drop(index)
        self._add_segment(new_start)
        self.leo = self.log_start_offset = new_start
        self.recovery_point = min(self.recovery_point, new_start)
        self.producers = ProducerStates()
        self.epochs.entries = []
        self._epoch_file.write(self.epochs)

    def _drop(self, index: int) -> int:
        segment = self._segments.pop(index)
        self._bases.pop(index)
        segment.delete()
        return segment.size

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
                self._epoch_file.write(self.epochs)
        return True

    def delete_old_segments(self, *, now_ms: int, high_watermark: int) -> int:
        """Retention by time, size and log start offset; returns how many segments went.

        Only segments wholly below the high watermark go; the last one goes only when it is expired, for an empty one.
        """
        with storage_failures(self.log_dir):
            count = self._count_deletable(now_ms=now_ms, high_watermark=high_watermark)
            if count == len(self._segments):
                self._segments[-1].seal()
                self._add_segment(self.leo)
            for _ in range(count):
                self._drop(0)
        if count:
            self.raise_log_start(self._segments[0].base_offset)
        return count

    def _count_deletable(self, *, now_ms: int, high_watermark: int) -> int:
        excess = self.size_bytes - self.config.retention_bytes if self.config.retention_bytes >= 0 else -1
        count = 0
        for segment in self._segments:
            is_last = segment is self._segments[-1]
            end = self.leo if is_last else self._bases[count + 1]
            if end > high_watermark or (is_last and segment.size == 0):
                break
            is_expired = (
                self.config.retention_ms >= 0 and 0 <= segment.max_timestamp < now_ms - self.config.retention_ms
            )
            is_excess = excess >= segment.size and not is_last
            is_below_start = end <= self.log_start_offset and not is_last
            if not (is_below_start or (self.config.deletes and (is_expired or is_excess))):
                break
            excess -= segment.size
            count += 1
        return count
