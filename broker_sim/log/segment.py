"""One segment of a log: Kafka's `.log`, `.index` and `.timeindex` files, and their life from creation to removal.

Files are opened per operation, so a broker with thousands of partitions needs no file handles while they are quiet, and
each append has reached the operating system when it returns. Every method may raise OSError.
Source: spec broker.md §10.1, §10.2, Kafka 3.9 `LogSegment`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from broker_sim.log.files import Files
from broker_sim.log.indexes import Indexes
from broker_sim.log.segment_shape import Loaded, SegmentShape
from controller.wire.records import HEADER_BYTES, NO_TIMESTAMP, BatchHeader, CorruptBatch, check_crc, parse_header

_SCAN_BYTES: Final = 1 << 20
_SEEK_BYTES: Final = 1 << 13
#: Batches at the end of a segment whose headers stay in memory, at least; twice as many at most.
_RECENT: Final = 8
MAX_RELATIVE_OFFSET: Final = 0x7FFFFFFF
#: The files of a segment beside `.log`; `.txnindex` is only there where Kafka wrote transactions.
COMPANIONS: Final = ("index", "timeindex", "txnindex")
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"


def file_name(base_offset: int, suffix: str) -> str:
    """Such as `00000000000000000042.log`."""
    return f"{base_offset:020d}.{suffix}"


class Segment:
    """Batches from `base_offset` on, in one file. `next_offset` is the offset after its last batch."""

    def __init__(
        self,
        folder: Path,
        base_offset: int,
        *,
        shape: SegmentShape,
        files: Files,
        suffix: str = "",
        created_ms: int = 0,
    ) -> None:
        """Describes a segment; `create` or `load` makes it usable. `suffix` is that of a segment being swapped in."""
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.max_timestamp = NO_TIMESTAMP
        self.created_ms = created_ms
        self.jitter_ms = 0
        self.is_made = True  # whether its files are there
        self._folder, self._suffix, self._shape, self._files = folder, suffix, shape, files
        self._offset_of_max = base_offset
        self._since_entry = 0
        #: (offset, position) from which a search may begin: the newest batch, and what follows what was read last
        self._newest = self._read_on = base_offset, 0
        #: the last batches that were written: what is read at the end of a log needs no look into the file
        self._recent: list[tuple[int, BatchHeader]] = []
        self._first_timestamp: int | None = NO_TIMESTAMP
        # Most segments of a large cluster get no batch for long, and need neither until then: 1.3 KiB of a replica less
        # (docs/scale.md, "memory").
        self._lazy_log_path: Path | None = None
        self._lazy_indexes: Indexes | None = None

    @property
    def log_path(self) -> Path:
        """The batches."""
        if self._lazy_log_path is None:
            self._lazy_log_path = self.path("log")
        return self._lazy_log_path

    @property
    def _indexes(self) -> Indexes:
        if self._lazy_indexes is None:
            paths, max_bytes = (self.path("index"), self.path("timeindex")), self._shape.max_index_bytes
            self._lazy_indexes = Indexes(*paths, self.base_offset, max_bytes=max_bytes, files=self._files)
        return self._lazy_indexes

    def _place(self) -> None:
        """After a change of folder or suffix."""
        self._lazy_log_path = None
        if self._lazy_indexes is not None:
            self._lazy_indexes.index_path, self._lazy_indexes.time_path = self.path("index"), self.path("timeindex")

    def path(self, suffix: str) -> Path:
        """Where the file with that suffix lies."""
        return self._folder / (file_name(self.base_offset, suffix) + self._suffix)

    @property
    def index_path(self) -> Path:
        """The offset index."""
        return self._indexes.index_path

    @property
    def time_path(self) -> Path:
        """The time index."""
        return self._indexes.time_path

    # -- life ----------------------------------------------------------------------------------------------------

    def create(self, *, lazily: bool = False) -> None:
        """Makes the files, empty; the segment may be written to. `lazily`: they are made with the first batch."""
        self.is_made = not lazily
        if not lazily:
            self._files.create(self.log_path)
            self._indexes.create()

    def load(
        self, *, is_trusted: bool, on_batch: Callable[[BatchHeader], None], before_cut: Callable[[int], None]
    ) -> Loaded:
        """Reads what is on disk and cuts off what is no whole batch; `before_cut(position)` may raise instead.

        A trusted segment was written completely: its indexes are taken if they fit, and only the batches after their
        last entry are looked at. Of any other every checksum is verified, `on_batch` is told every batch that stays,
        and the indexes are built anew.
        """
        end = self.log_path.stat().st_size
        wrong = self._indexes.read(log_size=end) if is_trusted else "it was not closed cleanly"
        if wrong is None:
            start = self._indexes.last_position
            self.size, self.next_offset = start, self.base_offset
            self.max_timestamp, self._offset_of_max = self._newest_indexed()
            self._first_timestamp = None
            self._read_tail(start, end)
        else:
            self._indexes.clear()
            for position, header in self._walk(0, end, check=True):
                self._note(header, position)
                on_batch(header)
        if self.size == 0:
            self._first_timestamp = NO_TIMESTAMP
        torn = end - self.size
        if torn:
            before_cut(self.size)
            self._files.resize(self.log_path, self.size)
        if wrong is not None or torn:
            self._indexes.rewrite()
        return Loaded(torn_bytes=torn, rebuilt=wrong)

    def measured_end(self) -> int:
        """The offset after the last whole batch in the file. For a segment that is not loaded: nothing is changed."""
        end = self.base_offset
        for _, header in self._walk(0, self.log_path.stat().st_size, check=True):
            end = header.next_offset
        return end

    def _newest_indexed(self) -> tuple[int, int]:
        timestamp, offset = self._indexes.last_time
        return (timestamp, offset) if timestamp >= 0 else (NO_TIMESTAMP, self.base_offset)

    def _read_tail(self, start: int, end: int) -> None:
        """The state after the batches from an index entry on."""
        for position, header in self._walk(start, end, check=False):
            self.size, self.next_offset = position + header.size, header.next_offset
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self._offset_of_max = header.max_timestamp, header.last_offset
        self._since_entry = self.size - start

    def activate(self) -> None:
        """The last segment of a log: it is written to, so its index files are made as long as they may get."""
        if self.is_made:
            self._indexes.stretch()

    def seal(self) -> None:
        """No more appends: the time index gets the newest timestamp as its last entry, the files end with theirs."""
        if not self.is_made:
            return
        if self._indexes.add_time(self.max_timestamp, self._offset_of_max):
            self._indexes.write_last_time()
        self._indexes.trim()
        self._recent = []

    def sync(self) -> None:
        """Waits until the files are on the disk."""
        for path in (self.log_path, self.index_path, self.time_path):
            self._files.sync(path)

    def delete(self) -> None:
        """Removes the files, the log first: an index without it is removed at the next start."""
        for suffix in ("log", *COMPANIONS):
            self._files.remove(self.path(suffix))

    def rename(self, suffix: str) -> list[str]:
        """Gives the files another suffix; returns their new names. The log comes last: it makes the rest count."""
        names: list[str] = []
        for kind in (*COMPANIONS, "log"):
            path = self.path(kind)
            if path.exists():
                to = self._folder / (file_name(self.base_offset, kind) + suffix)
                self._files.rename(path, to)
                names.append(to.name)
        self._suffix = suffix
        self._place()
        return names

    def move(self, folder: Path) -> None:
        """The folder has been renamed: the files are found there from now on."""
        self._folder = folder
        self._place()

    # -- writing -------------------------------------------------------------------------------------------------

    def append(self, batch: bytes, header: BatchHeader) -> None:
        """Writes one batch at the end. After an OSError the file is cut back, if the disk lets it."""
        if not self.is_made:
            self.create()
        try:
            self._files.append(self.log_path, batch)
        except OSError:
            if self.log_path.exists():
                os.truncate(self.log_path, self.size)
            raise
        entries, times = len(self._indexes.offsets), len(self._indexes.times)
        self._note(header, self.size)
        if len(self._indexes.offsets) > entries:
            self._indexes.write_last()
        if len(self._indexes.times) > times:
            self._indexes.write_last_time()

    def _note(self, header: BatchHeader, position: int) -> None:
        """The state after a batch at `position`, with an index entry when the last one is far enough back."""
        if self.size == 0:
            self._first_timestamp = header.max_timestamp
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp, self._offset_of_max = header.max_timestamp, header.last_offset
        if self._since_entry > self._shape.index_interval_bytes and not self._indexes.is_full:
            self._indexes.add(header.last_offset, position)
            self._indexes.add_time(self.max_timestamp, self._offset_of_max)
            self._since_entry = 0
        self._since_entry += header.size
        self.size = position + header.size
        self.next_offset = header.next_offset
        self._newest = header.base_offset, position
        self._recent.append((position, header))
        if len(self._recent) > 2 * _RECENT:
            del self._recent[:_RECENT]

    def truncate(self, offset: int) -> int:
        """Cuts off every batch that holds `offset` or a later one; returns the bytes removed. It may be written to."""
        found = self.find(offset)
        if found is None:
            self.activate()
            return 0
        removed = self.size - found[0]
        self._files.resize(self.log_path, found[0])
        self._indexes.forget(offset)
        self._restate(found[0])
        self._indexes.rewrite()
        self.activate()
        return removed

    def _restate(self, size: int) -> None:
        """The state that follows from the first `size` bytes and the entries kept."""
        self.size, self.next_offset = size, self.base_offset
        self._newest = self._read_on = self.base_offset, 0
        self._recent.clear()
        self.max_timestamp, self._offset_of_max = self._newest_indexed()
        position = self._indexes.last_position
        self._since_entry = size - position
        # What lies before the batch of the last time entry is not newer than that entry.
        start = self._indexes.position_of(self._indexes.last_time[1]) if self._indexes.times else 0
        for _, header in self._walk(min(start, position), size, check=False):
            self.next_offset = header.next_offset
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self._offset_of_max = header.max_timestamp, header.last_offset
        if size == 0:
            self._first_timestamp = NO_TIMESTAMP

    # -- reading -------------------------------------------------------------------------------------------------

    @property
    def first_timestamp(self) -> int:
        """The newest timestamp of the first batch, -1 without one."""
        if self._first_timestamp is None:
            first = next(self._walk(0, self.size, check=False, chunk=_SEEK_BYTES), None)
            self._first_timestamp = NO_TIMESTAMP if first is None else first[1].max_timestamp
        return self._first_timestamp

    @property
    def index_entries(self) -> list[tuple[int, int]]:
        """(offset, position) of the offset index."""
        return list(zip(self._indexes.offsets, self._indexes.positions, strict=True))

    @property
    def time_entries(self) -> list[tuple[int, int]]:
        """(timestamp, offset) of the time index."""
        return list(self._indexes.times)

    @property
    def indexes_are_full(self) -> bool:
        """Whether the index files take no more entries."""
        return self._indexes.is_full

    @property
    def index_bytes(self) -> tuple[int, int]:
        """The bytes of the entries of the offset index and of the time index."""
        return self._indexes.size_bytes

    def last_modified_s(self) -> float:
        """When the log file was written to last, in seconds since the epoch by the file system's clock."""
        return self.log_path.stat().st_mtime if self.is_made else self.created_ms / 1000

    def set_last_modified(self, seconds: float) -> None:
        """A rewritten segment keeps the time of what it was made from."""
        for path in (self.log_path, self.index_path, self.time_path):
            os.utime(path, (seconds, seconds))

    def find(self, offset: int) -> tuple[int, BatchHeader] | None:
        """(position, header) of the first batch whose last offset is `offset` or later; None when there is none."""
        if offset >= self.next_offset:
            return None
        start = self._indexes.position_of(offset)
        for first, position in (self._newest, self._read_on):
            if first <= offset and position > start:
                start = position
        for position, header in self._seek(start):
            if header.last_offset >= offset:
                return position, header
        return None

    def headers(self, offset: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of the batches from the one that holds `offset` on."""
        found = (0, None) if offset is None else self.find(offset)
        if found is not None:
            yield from self._walk(found[0], self.size, check=False)

    def read(self, position: int, length: int) -> bytes:
        """Exactly these bytes of the log file. Raises OSError when it is shorter."""
        return self._files.read(self.log_path, length, position)

    def end_of_whole_batches(self, position: int, *, max_bytes: int, bound: int, min_one: bool) -> int:
        """Where a read from the batch at `position` must end: whole batches below `bound`, of at most `max_bytes`.

        With `min_one` the first batch counts however large it is.
        """
        end = position
        for at, header in self._seek(position):
            first, next_offset = min_one and at == position, header.next_offset
            if next_offset > bound or (at + header.size - position > max_bytes and not first):
                break
            end = at + header.size
            self._read_on = next_offset, end
            if end - position >= max_bytes:
                break
        return end

    def _seek(self, start: int) -> Iterable[tuple[int, BatchHeader]]:
        """The batches from a position on at which one begins."""
        recent = self._recent
        if not recent or start < recent[0][0]:
            return self._walk(start, self.size, check=False, chunk=_SEEK_BYTES)
        at = len(recent)
        while at and recent[at - 1][0] >= start:
            at -= 1
        return recent[at:]

    def _walk(
        self, start: int, end: int, *, check: bool, chunk: int = _SCAN_BYTES
    ) -> Iterator[tuple[int, BatchHeader]]:
        """The batches between two positions, as far as they are whole, in order and (with `check`) intact."""
        if start + HEADER_BYTES > end:
            return
        handle = os.open(self.log_path, os.O_RDONLY)
        window, window_at, position, least = b"", start, start, self.base_offset
        try:
            while position + HEADER_BYTES <= end:
                if position + HEADER_BYTES > window_at + len(window):
                    window, window_at = os.pread(handle, min(chunk, end - position), position), position
                header = parse_header(window, position - window_at)
                if position + header.size > end or header.base_offset < least:
                    return
                if header.last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
                    return
                if check:
                    if position + header.size > window_at + len(window):
                        window = os.pread(handle, max(chunk, header.size), position)
                        window_at = position
                    check_crc(window, header, position - window_at)
                yield position, header
                position, least = position + header.size, header.next_offset
        except CorruptBatch:
            return
        finally:
            os.close(handle)

    def find_time(self, timestamp: int, *, from_offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of batches that may hold a record at or after both `timestamp` and `from_offset`."""
        for position, header in self._walk(self._indexes.position_for_time(timestamp), self.size, check=False):
            if header.max_timestamp >= timestamp and header.last_offset >= from_offset:
                yield position, header
