"""One segment of a log: Kafka's `.log`, `.index` and `.timeindex` files, and the two indexes in memory.

Files are opened per operation, so a broker with thousands of partitions needs no file handles while they are quiet, and
each append has reached the operating system when it returns. Index files hold only their entries (Kafka preallocates
those of the active segment and trims them at the roll). Every method may raise OSError.
Source: spec broker.md §10.1, Kafka 3.9 `LogSegment`, `OffsetIndex`, `TimeIndex`.
"""

from __future__ import annotations

import itertools
import os
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from broker_sim.log.records import (
    HEADER_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptBatch,
    check_crc,
    parse_header,
)

_INDEX_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_SCAN_BYTES: Final = 1 << 20
_SEEK_BYTES: Final = 1 << 13
MAX_RELATIVE_OFFSET: Final = 0x7FFFFFFF


def file_name(base_offset: int, suffix: str) -> str:
    """Such as `00000000000000000042.log`."""
    return f"{base_offset:020d}.{suffix}"


class Segment:
    """Batches from `base_offset` on, in one file. `next_offset` is the offset after its last batch."""

    def __init__(self, folder: Path, base_offset: int, *, index_interval_bytes: int) -> None:
        """Describes a segment; `create` or `load` makes it usable."""
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.max_timestamp = NO_TIMESTAMP
        self.first_timestamp = NO_TIMESTAMP
        self.log_path = folder / file_name(base_offset, "log")
        self.index_path = folder / file_name(base_offset, "index")
        self.time_path = folder / file_name(base_offset, "timeindex")
        self._interval = index_interval_bytes
        self._offset_of_max = base_offset
        self._since_entry = 0
        self._offsets: list[int] = []
        self._positions: list[int] = []
        self._times: list[tuple[int, int]] = []

    # -- life ----------------------------------------------------------------------------------------------------

    def create(self) -> None:
        """Makes the three files, empty."""
        for path in (self.log_path, self.index_path, self.time_path):
            path.write_bytes(b"")

    def load(self, *, check: bool, on_batch: Callable[[BatchHeader], None]) -> int:
        """Reads what is on disk, cuts off what is no whole batch, and returns how many bytes that were.

        With `check` every checksum is verified and the indexes are rebuilt; without, the index files are taken if
        they fit the log. `on_batch` is told every batch that stays.
        """
        end = self.log_path.stat().st_size
        for position, header in self._walk(0, end, check=check):
            self._note(header, position)
            on_batch(header)
        torn = end - self.size
        if torn:
            os.truncate(self.log_path, self.size)
        if check or torn or not self._index_files_fit():
            self._rewrite_indexes()
        return torn

    def _index_files_fit(self) -> bool:
        try:
            index, times = self.index_path.read_bytes(), self.time_path.read_bytes()
        except FileNotFoundError:
            return False
        if len(index) % _INDEX_ENTRY.size or len(times) % _TIME_ENTRY.size:
            return False
        entries = list(_INDEX_ENTRY.iter_unpack(index))
        time_entries = [(t, self.base_offset + o) for t, o in _TIME_ENTRY.iter_unpack(times)]
        offsets, positions = [self.base_offset + e[0] for e in entries], [e[1] for e in entries]
        rising = all(a < b for a, b in itertools.pairwise(offsets))
        if not rising or (offsets and (offsets[-1] >= self.next_offset or positions[-1] >= self.size)):
            return False
        if time_entries != sorted(time_entries) or (time_entries and time_entries[-1][1] >= self.next_offset):
            return False
        self._offsets, self._positions, self._times = offsets, positions, time_entries
        self._since_entry = self.size - (positions[-1] if positions else 0)
        return True

    def _rewrite_indexes(self) -> None:
        self.index_path.write_bytes(
            b"".join(
                _INDEX_ENTRY.pack(o - self.base_offset, p) for o, p in zip(self._offsets, self._positions, strict=True)
            )
        )
        self.time_path.write_bytes(b"".join(_TIME_ENTRY.pack(t, o - self.base_offset) for t, o in self._times))

    def seal(self) -> None:
        """No more appends: the time index gets the segment's newest timestamp as its last entry."""
        self._add_time_entry()

    def sync(self) -> None:
        """Waits until the three files are on the disk."""
        for path in (self.log_path, self.index_path, self.time_path):
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def delete(self) -> None:
        """Removes the files."""
        for path in (self.log_path, self.index_path, self.time_path):
            path.unlink(missing_ok=True)

    # -- writing -------------------------------------------------------------------------------------------------

    def append(self, batch: bytes, header: BatchHeader) -> None:
        """Writes one batch at the end. After an OSError the file is cut back, if the disk lets it."""
        try:
            _append(self.log_path, batch)
        except OSError:
            os.truncate(self.log_path, self.size)
            raise
        entries, times = len(self._offsets), len(self._times)
        self._note(header, self.size)
        if len(self._offsets) > entries:
            _append(self.index_path, _INDEX_ENTRY.pack(self._offsets[-1] - self.base_offset, self._positions[-1]))
        if len(self._times) > times:
            self._write_last_time()

    def _note(self, header: BatchHeader, position: int) -> None:
        """The state after a batch at `position`, with an index entry when the last one is far enough back."""
        if self.size == 0:
            self.first_timestamp = header.max_timestamp
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp, self._offset_of_max = header.max_timestamp, header.last_offset
        if self._since_entry > self._interval:
            self._offsets.append(header.last_offset)
            self._positions.append(position)
            if not self._times or self.max_timestamp > self._times[-1][0]:
                self._times.append((self.max_timestamp, self._offset_of_max))
            self._since_entry = 0
        self._since_entry += header.size
        self.size = position + header.size
        self.next_offset = header.next_offset

    def _add_time_entry(self) -> None:
        if self.max_timestamp > (self._times[-1][0] if self._times else NO_TIMESTAMP):
            self._times.append((self.max_timestamp, self._offset_of_max))
            self._write_last_time()

    def _write_last_time(self) -> None:
        timestamp, offset = self._times[-1]
        _append(self.time_path, _TIME_ENTRY.pack(timestamp, offset - self.base_offset))

    def truncate(self, offset: int) -> int:
        """Cuts off every batch that holds `offset` or a later one; returns the bytes removed."""
        found = self.find(offset)
        if found is None:
            return 0
        removed = self.size - found[0]
        os.truncate(self.log_path, found[0])
        keep = bisect_left(self._offsets, offset)
        del self._offsets[keep:], self._positions[keep:]
        self._times = [(t, o) for t, o in self._times if o < offset]
        self._restate(found[0])
        self._rewrite_indexes()
        return removed

    def _restate(self, size: int) -> None:
        """The state that follows from the first `size` bytes and the entries kept."""
        self.size, self.next_offset = size, self.base_offset
        self.max_timestamp, self._offset_of_max = self._times[-1] if self._times else (NO_TIMESTAMP, self.base_offset)
        position = self._positions[-1] if self._positions else 0
        self._since_entry = size - position
        # What lies before the batch of the last time entry is not newer than that entry.
        start = self._position_of(self._times[-1][1]) if self._times else 0
        for _, header in self._walk(start, size, check=False):
            self.next_offset = header.next_offset
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self._offset_of_max = header.max_timestamp, header.last_offset
        if size == 0:
            self.first_timestamp = NO_TIMESTAMP

    # -- reading -------------------------------------------------------------------------------------------------

    @property
    def index_entries(self) -> list[tuple[int, int]]:
        """(offset, position) of the offset index."""
        return list(zip(self._offsets, self._positions, strict=True))

    @property
    def time_entries(self) -> list[tuple[int, int]]:
        """(timestamp, offset) of the time index."""
        return list(self._times)

    def _position_of(self, offset: int) -> int:
        """A position at or before the batch that holds `offset`."""
        at = bisect_right(self._offsets, offset) - 1
        return self._positions[at] if at >= 0 else 0

    def find(self, offset: int) -> tuple[int, BatchHeader] | None:
        """(position, header) of the first batch whose last offset is `offset` or later; None when there is none."""
        if offset >= self.next_offset:
            return None
        for position, header in self._walk(self._position_of(offset), self.size, check=False, chunk=_SEEK_BYTES):
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
        handle = os.open(self.log_path, os.O_RDONLY)
        try:
            data = os.pread(handle, length, position)
        finally:
            os.close(handle)
        if len(data) != length:
            raise OSError(f"{self.log_path} ends before byte {position + length}")
        return data

    def end_of_whole_batches(self, position: int, *, max_bytes: int, bound: int, min_one: bool) -> int:
        """Where a read from the batch at `position` must end: whole batches below `bound`, of at most `max_bytes`.

        With `min_one` the first batch counts however large it is.
        """
        end = position
        for at, header in self._walk(position, self.size, check=False, chunk=_SEEK_BYTES):
            first = min_one and at == position
            if header.next_offset > bound or (at + header.size - position > max_bytes and not first):
                break
            end = at + header.size
            if end - position >= max_bytes:
                break
        return end

    def _walk(
        self, start: int, end: int, *, check: bool, chunk: int = _SCAN_BYTES
    ) -> Iterator[tuple[int, BatchHeader]]:
        """The batches between two positions, as far as they are whole, in order and (with `check`) intact."""
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

    def position_for_time(self, timestamp: int) -> int:
        """A position at or before the first batch with a record at or after `timestamp`."""
        at = bisect_left(self._times, (timestamp, -1)) - 1
        return self._position_of(self._times[at][1]) if at >= 0 else 0

    def find_time(self, timestamp: int, *, from_offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of batches that may hold a record at or after both `timestamp` and `from_offset`."""
        for position, header in self._walk(self.position_for_time(timestamp), self.size, check=False):
            if header.max_timestamp >= timestamp and header.last_offset >= from_offset:
                yield position, header


def _append(path: Path, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(handle, rest) :]
    finally:
        os.close(handle)
