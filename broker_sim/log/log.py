"""The log of one partition: what is appended, read, cut off and given up.

Everything that touches the disk raises StorageFailure when the disk fails; the log dir is then to be given up. Requests
that cannot be met raise KafkaError. Source: spec broker.md §10, §13, §14; Kafka 3.9 `UnifiedLog`, `LocalLog`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from broker_sim.log import produced
from broker_sim.log.errors import OffsetOutOfRange, storage_failures
from broker_sim.log.producers import ProducerStates
from broker_sim.log.replicated import whole_batches
from broker_sim.log.rolling import count_deletable, must_roll
from broker_sim.log.segment import DELETED_SUFFIX, SWAP_SUFFIX, Segment
from broker_sim.log.segments import TimedRecord
from broker_sim.log.stored_log import StoredLog
from controller.wire import records
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.records import BatchHeader

#: How much of a log is read at a time by who reads it whole.
_READ_BYTES: Final = 1 << 20


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


class Log(StoredLog):
    """An open log that is written and read. `create` or `load` makes it usable."""

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

        A torn last batch is left out (the leader may have cut the answer). An empty log that is to start within the
        first batch, since the leader's does, starts with that batch: nobody can have a part of it.
        Raises: CorruptBatch, UnexpectedOffset, StorageFailure.
        """
        taken = whole_batches(data)
        if self._starts_within(taken):
            self.truncate_fully(taken[0][0].base_offset)
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

    def _starts_within(self, taken: Sequence[tuple[BatchHeader, bytes]]) -> bool:
        """Source: Kafka 3.9 `Partition.appendRecordsToFollowerOrFutureReplica`."""
        is_empty = self.log_start_offset == self.leo
        return bool(taken) and is_empty and taken[0][0].base_offset < self.leo < taken[-1][0].next_offset

    def _write(self, batch: bytes, header: BatchHeader, now_ms: int) -> None:
        # Of a segment that a start found, or that a cut has left, the age counts from its next batch.
        self._segments.active.created_ms = self._segments.active.created_ms or now_ms
        if must_roll(self._segments.active, header, self.config, now_ms=now_ms) is not None:
            self._roll(header.base_offset, now_ms)
        active = self._segments.active
        is_first = not active.is_made
        active.append(batch, header)
        self.leo = header.next_offset
        self.producers.appended(header)
        self._assign_epoch(header.partition_leader_epoch, header.base_offset)
        if is_first:
            self._write_epochs()

    def _roll(self, base_offset: int, now_ms: int) -> None:
        """A new segment, which begins at `base_offset`; an empty one that cannot take it is replaced."""
        active = self._segments.active
        if active.size == 0:
            self._segments.remove(active)
            active.delete()
        else:
            active.seal()
            self._snapshots.take(base_offset, self.producers)
            self._hooks.rolled(self)
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
        """Epochs of a log that never had a batch are not written down: they say nothing that 0 does not say."""
        if self.epochs.assign(epoch, start_offset) and self._segments.active.is_made:
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

    def has_segment_between(self, offset: int, bound: int) -> bool:
        """Whether a segment begins above `offset` and not above `bound`: then a read from `offset` ends before it."""
        return any(offset < segment.base_offset <= bound for segment in self.segments[1:])

    def batches(self) -> Iterator[bytes]:
        """All batches that hold readable records, in order."""
        offset = self.log_start_offset
        while data := self.read(offset, max_bytes=_READ_BYTES, bound=self.leo, min_one=True):
            for at, header in records.batches(data):
                yield data[at : at + header.size]
                offset = header.next_offset

    def find_by_time(self, timestamp: int, *, bound: int) -> TimedRecord | None:
        """The first record at or after `timestamp`, below offset `bound`; None when there is none."""
        with storage_failures(self.log_dir):
            return self._segments.find_by_time(timestamp, start=self.log_start_offset, bound=bound)

    def find_newest(self, *, bound: int) -> TimedRecord | None:
        """See `Segments.find_newest`."""
        with storage_failures(self.log_dir):
            return self._segments.find_newest(bound=bound)

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
        with storage_failures(self.log_dir):
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
            self.version += 1
            cleaned.rename(SWAP_SUFFIX)
            self._segments.replace(cleaned, old)
            for segment in old:
                names = segment.rename(DELETED_SUFFIX)
                if segment.base_offset != cleaned.base_offset:
                    names += self._snapshots.doom(segment.base_offset, DELETED_SUFFIX)
                self._hooks.doom(self, names)
            cleaned.rename("")
