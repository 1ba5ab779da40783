"""The segments of one log in order, and what is looked up across them. Methods may raise OSError.

Source: Kafka 3.9 `LogSegments`, `LocalLog.read`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from broker_sim.log.segment import Segment
from controller.wire import records


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRecord:
    """What a lookup by time found. `leader_epoch`: that of its batch, also where the cache has forgotten it."""

    offset: int
    timestamp: int
    leader_epoch: int


class Segments:
    """Oldest first; the last one, the active one, is written to."""

    def __init__(self) -> None:
        self._all: list[Segment] = []
        self._bases: list[int] = []

    def __iter__(self) -> Iterator[Segment]:
        return iter(tuple(self._all))

    def __len__(self) -> int:
        return len(self._all)

    @property
    def all(self) -> tuple[Segment, ...]:
        """All of them."""
        return tuple(self._all)

    @property
    def active(self) -> Segment:
        """The one that is written to."""
        return self._all[-1]

    @property
    def first(self) -> Segment:
        """The oldest."""
        return self._all[0]

    @property
    def bases(self) -> tuple[int, ...]:
        """Their base offsets."""
        return tuple(self._bases)

    @property
    def size_bytes(self) -> int:
        """The sum of the `.log` files."""
        return sum(s.size for s in self._all)

    def add(self, segment: Segment) -> None:
        """One more, with a higher base offset than all."""
        self._all.append(segment)
        self._bases.append(segment.base_offset)

    def remove(self, segment: Segment) -> None:
        """Takes one out; its files stay."""
        index = self._all.index(segment)
        del self._all[index], self._bases[index]

    def replace(self, new: Segment, old: Sequence[Segment]) -> None:
        """`new` stands where the neighbours `old` stood."""
        index = self._all.index(old[0])
        self._all[index : index + len(old)] = [new]
        self._bases[index : index + len(old)] = [new.base_offset]

    def starting_with(self, offset: int) -> tuple[Segment, ...]:
        """The one that `offset` belongs to, and all after it."""
        return tuple(self._all[max(bisect_right(self._bases, offset) - 1, 0) :])

    # -- looking up ------------------------------------------------------------------------------------------------

    def locate(self, offset: int, *, max_bytes: int, bound: int, min_one: bool) -> tuple[Segment, int, int] | None:
        """(segment, from, to) of whole batches from the one that holds `offset`; None when there are none to give."""
        for segment in self.starting_with(offset):
            found = segment.find(offset)
            if found is not None:
                end = segment.end_of_whole_batches(found[0], max_bytes=max_bytes, bound=bound, min_one=min_one)
                return (segment, found[0], end) if end > found[0] else None
        return None

    def find_by_time(self, timestamp: int, *, start: int, bound: int) -> TimedRecord | None:
        """The first record at or after `timestamp`, from offset `start`, below `bound`; None when there is none."""
        newer = (segment for segment in self._all if segment.max_timestamp >= timestamp)
        return _below(bound, chain.from_iterable(_records(segment, timestamp, start) for segment in newer))

    def find_newest(self, *, bound: int) -> TimedRecord | None:
        """The first record with the largest timestamp, also below the log start; None when there is none, or it is not
        below `bound`. Source: `UnifiedLog.fetchOffsetByTimestamp`, which does not ask for the log start here."""
        segment = max(self._all, key=lambda each: each.max_timestamp)
        return _below(bound, _records(segment, segment.max_timestamp, segment.base_offset))


def _records(segment: Segment, timestamp: int, start: int) -> Iterator[TimedRecord]:
    """The records of a segment at or after both."""
    for position, header in segment.find_time(timestamp, from_offset=start):
        for record in records.records_of(segment.read(position, header.size)):
            if record.timestamp >= timestamp and record.offset >= start:
                yield TimedRecord(
                    offset=record.offset, timestamp=record.timestamp, leader_epoch=header.partition_leader_epoch
                )


def _below(bound: int, found: Iterator[TimedRecord]) -> TimedRecord | None:
    first = next(found, None)
    return first if first is not None and first.offset < bound else None
