"""The two indexes of a segment, in memory and in Kafka's files: where an offset lies, and which offset a time has.

While a segment is written to, its index files are as large as they may get, with zeros after the last entry (the file
system stores none of them); they are cut to their entries when the segment is closed. Every method may raise OSError.
Source: spec broker.md §10.1; Kafka 3.9 `AbstractIndex`, `OffsetIndex`, `TimeIndex`.
"""

from __future__ import annotations

import itertools
import struct
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import Final

from broker_sim.log.files import Files

OFFSET_ENTRY: Final = struct.Struct(">ii")
TIME_ENTRY: Final = struct.Struct(">qi")
NO_TIME: Final = (-1, -1)


class Indexes:
    """(offset, position) entries and (timestamp, offset) entries, each strictly rising; offsets are absolute."""

    def __init__(self, index_path: Path, time_path: Path, base_offset: int, *, max_bytes: int, files: Files) -> None:
        """Describes the indexes; they are empty. `max_bytes` is `segment.index.bytes`, for each of the two files."""
        self.index_path, self.time_path = index_path, time_path
        self.offsets: list[int] = []
        self.positions: list[int] = []
        self.times: list[tuple[int, int]] = []
        self._base_offset, self._max_bytes, self._files = base_offset, max_bytes, files

    @property
    def is_full(self) -> bool:
        """Whether a file takes no more entries; the time index keeps room for the one that is added at the end."""
        return (
            len(self.offsets) >= self._max_bytes // OFFSET_ENTRY.size
            or len(self.times) >= self._max_bytes // TIME_ENTRY.size - 1
        )

    @property
    def last_position(self) -> int:
        """The position of the last entry, 0 without one."""
        return self.positions[-1] if self.positions else 0

    @property
    def last_time(self) -> tuple[int, int]:
        """The last (timestamp, offset), (-1, -1) without one."""
        return self.times[-1] if self.times else NO_TIME

    @property
    def size_bytes(self) -> tuple[int, int]:
        """The bytes of the entries of each file."""
        return len(self.offsets) * OFFSET_ENTRY.size, len(self.times) * TIME_ENTRY.size

    # -- files -----------------------------------------------------------------------------------------------------

    def create(self) -> None:
        """Both files, empty and at their full length."""
        self._files.create(self.index_path, _whole(self._max_bytes, OFFSET_ENTRY))
        self._files.create(self.time_path, _whole(self._max_bytes, TIME_ENTRY))

    def stretch(self) -> None:
        """The segment is written to (again): both files get their full length."""
        self._files.resize(self.index_path, max(_whole(self._max_bytes, OFFSET_ENTRY), self.size_bytes[0]))
        self._files.resize(self.time_path, max(_whole(self._max_bytes, TIME_ENTRY), self.size_bytes[1]))

    def trim(self) -> None:
        """The segment is closed: both files end with their last entry."""
        self._files.resize(self.index_path, self.size_bytes[0])
        self._files.resize(self.time_path, self.size_bytes[1])

    def rewrite(self) -> None:
        """Both files anew, with these entries only."""
        pairs = zip(self.offsets, self.positions, strict=True)
        self._files.create(self.index_path)
        self._files.append(self.index_path, b"".join(self._offset_entry(o, p) for o, p in pairs))
        self._files.create(self.time_path)
        self._files.append(self.time_path, b"".join(self._time_entry(t, o) for t, o in self.times))

    def read(self, *, log_size: int) -> str | None:
        """Takes what the files say, if it can be right for a log file of that size; else says what is wrong.

        A file of zeros after the last entry is what a broker leaves that was killed: it is not taken.
        """
        try:
            index, times = self.index_path.read_bytes(), self.time_path.read_bytes()
        except FileNotFoundError as error:
            return f"{error.filename} is missing"
        if len(index) % OFFSET_ENTRY.size or len(times) % TIME_ENTRY.size:
            return "an index file's length is no multiple of its entries"
        entries = [(self._base_offset + o, p) for o, p in OFFSET_ENTRY.iter_unpack(index)]
        time_entries = [(t, self._base_offset + o) for t, o in TIME_ENTRY.iter_unpack(times)]
        if any(a[0] >= b[0] or a[1] >= b[1] for a, b in itertools.pairwise(entries)):
            return f"{self.index_path.name} does not rise"
        if entries and (entries[0][0] < self._base_offset or not 0 <= entries[-1][1] < log_size):
            return f"{self.index_path.name} points outside of the segment"
        if any(a[0] >= b[0] or a[1] > b[1] for a, b in itertools.pairwise(time_entries)):
            return f"{self.time_path.name} does not rise"
        if time_entries and time_entries[0][1] < self._base_offset:
            return f"{self.time_path.name} points outside of the segment"
        self.offsets, self.positions = [e[0] for e in entries], [e[1] for e in entries]
        self.times = time_entries
        return None

    # -- entries ---------------------------------------------------------------------------------------------------

    def add(self, offset: int, position: int) -> None:
        """The batch that ends with `offset` lies at `position`. In memory; `write_last` brings it to the file."""
        self.offsets.append(offset)
        self.positions.append(position)

    def add_time(self, timestamp: int, offset: int) -> bool:
        """Nothing up to `offset` is newer than `timestamp`. Returns whether that is news; in memory as `add`."""
        if timestamp <= self.last_time[0]:
            return False
        self.times.append((timestamp, offset))
        return True

    def write_last(self) -> None:
        """Writes the newest offset entry."""
        at = len(self.offsets) - 1
        entry = self._offset_entry(self.offsets[at], self.positions[at])
        self._files.write_at(self.index_path, entry, at * OFFSET_ENTRY.size)

    def write_last_time(self) -> None:
        """Writes the newest time entry."""
        at = len(self.times) - 1
        self._files.write_at(self.time_path, self._time_entry(*self.times[at]), at * TIME_ENTRY.size)

    def forget(self, offset: int) -> None:
        """Drops what is at or after `offset`, in memory."""
        keep = bisect_left(self.offsets, offset)
        del self.offsets[keep:], self.positions[keep:]
        self.times = [(t, o) for t, o in self.times if o < offset]

    def clear(self) -> None:
        """No entries, in memory."""
        self.offsets, self.positions, self.times = [], [], []

    def position_of(self, offset: int) -> int:
        """A position at or before the batch that holds `offset`."""
        at = bisect_right(self.offsets, offset) - 1
        return self.positions[at] if at >= 0 else 0

    def position_for_time(self, timestamp: int) -> int:
        """A position at or before the first batch with a record at or after `timestamp`."""
        at = bisect_left(self.times, (timestamp, -1)) - 1
        return self.position_of(self.times[at][1]) if at >= 0 else 0

    def _offset_entry(self, offset: int, position: int) -> bytes:
        return OFFSET_ENTRY.pack(offset - self._base_offset, position)

    def _time_entry(self, timestamp: int, offset: int) -> bytes:
        return TIME_ENTRY.pack(timestamp, offset - self._base_offset)


def _whole(max_bytes: int, entry: struct.Struct) -> int:
    return max_bytes // entry.size * entry.size
