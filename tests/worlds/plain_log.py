"""A log in plain lists: what `broker_sim.log.log.Log` is to hold after each operation, worked out anew from the rules.

Source: spec broker.md §10, §13, §14; Kafka 3.9 `LogSegment`, `UnifiedLog`, `ProducerStateManager`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from broker_sim.log.config import LogConfig

OFFSET_ENTRY, TIME_ENTRY = 8, 12


class Batch(NamedTuple):
    """A batch as it is stored; `stamps` has the time of each record."""

    base: int
    stamps: tuple[int, ...]
    data: bytes
    epoch: int
    producer: int = -1
    sequence: int = -1

    @property
    def next(self) -> int:
        return self.base + len(self.stamps)


@dataclass
class PlainSegment:
    base: int
    created_ms: int = 0
    jitter_ms: int = 0
    is_made: bool = True
    is_closed: bool = False
    batches: list[Batch] = field(default_factory=list)
    index: list[tuple[int, int]] = field(default_factory=list)
    times: list[tuple[int, int]] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(len(batch.data) for batch in self.batches)

    @property
    def next(self) -> int:
        return self.batches[-1].next if self.batches else self.base

    @property
    def newest(self) -> tuple[int, int]:
        """The largest time, and the last offset of the first batch that has it; (-1, base) without any time."""
        best = (-1, self.base)
        for batch in self.batches:
            if max(batch.stamps) > best[0]:
                best = max(batch.stamps), batch.next - 1
        return best

    def is_full(self, config: LogConfig) -> bool:
        room = config.segment_index_bytes
        return len(self.index) >= room // OFFSET_ENTRY or len(self.times) >= room // TIME_ENTRY - 1

    def add(self, batch: Batch, config: LogConfig) -> None:
        position = self.size
        since = position - (self.index[-1][1] if self.index else 0)
        self.batches.append(batch)
        if since > config.index_interval_bytes and not self.is_full(config):
            self.index.append((batch.next - 1, position))
            self.add_time()

    def add_time(self) -> None:
        if self.newest[0] > (self.times[-1][0] if self.times else -1):
            self.times.append(self.newest)

    def close(self) -> None:
        if self.is_made:
            self.add_time()
            self.is_closed = True

    def rebuild(self, config: LogConfig) -> None:
        """As if its batches were appended anew."""
        batches, self.batches, self.index, self.times = self.batches, [], [], []
        for batch in batches:
            self.add(batch, config)

    def cut(self, offset: int) -> int:
        before = self.size
        if self.next > offset:
            self.batches = [batch for batch in self.batches if batch.next <= offset]
            self.index = [entry for entry in self.index if entry[0] < offset]
            self.times = [entry for entry in self.times if entry[1] < offset]
        self.is_closed = False
        return before - self.size

    @property
    def state(self) -> dict[str, object]:
        first = max(self.batches[0].stamps) if self.batches else -1
        return {
            "base": self.base, "next": self.next, "size": self.size, "newest": self.newest[0], "first": first,
            "created": self.created_ms, "jitter": self.jitter_ms, "index": self.index, "times": self.times,
        }  # fmt: skip


#: of one producer id: its epoch is always 0; (last sequence, last offset, records but one, newest time) of its batches
Known = dict[int, list[tuple[int, int, int, int]]]


class PlainLog:
    """`jitter` is what the log's hook draws."""

    def __init__(self, config: LogConfig, now_ms: int) -> None:
        self.config = config
        self.start = self.end = self.recovery = self.flushed_ms = self.version = 0
        #: how often its owner was told that a segment is full, and that it was cut
        self.rolls = self.cuts = 0
        self.epochs: list[tuple[int, int]] = []
        self.epoch_file: list[tuple[int, int]] | None = None
        self.is_epoch_file_unsynced = False
        self.producers: Known = {}
        self.snapshots: dict[int, Known] = {}
        self.segments: list[PlainSegment] = []
        self.begin(0, now_ms)

    @staticmethod
    def jitter(limit_ms: int) -> int:
        return limit_ms - 1

    @property
    def active(self) -> PlainSegment:
        return self.segments[-1]

    @property
    def batches(self) -> list[Batch]:
        return [batch for segment in self.segments for batch in segment.batches]

    # -- appends -------------------------------------------------------------------------------------------------

    def begin(self, base: int, now_ms: int) -> None:
        limit = min(self.config.segment_jitter_ms, self.config.segment_ms)
        self.segments.append(PlainSegment(base, now_ms, self.jitter(limit) if limit else 0, is_made=base != 0))

    def append(self, batches: list[Batch], now_ms: int) -> None:
        for batch in batches:
            self._append(batch, now_ms)
        if self.end - self.recovery >= self.config.flush_messages:
            self.flush(now_ms)

    def _append(self, batch: Batch, now_ms: int) -> None:
        self.active.created_ms = self.active.created_ms or now_ms
        if self.must_roll(batch, now_ms):
            self.roll(batch.base, now_ms)
        is_first, self.active.is_made = not self.active.is_made, True
        self.active.add(batch, self.config)
        self.end = batch.next
        self.take_note_of(batch)
        if self.assign(batch.epoch, batch.base) or is_first:
            self.write_epochs()

    def must_roll(self, batch: Batch, now_ms: int) -> bool:
        active, config = self.active, self.config
        if batch.next - 1 - active.base >= 1 << 31:
            return True
        if not active.batches:
            return False
        first = max(active.batches[0].stamps)
        age = max(batch.stamps) - first if first >= 0 else now_ms - active.created_ms if active.created_ms else 0
        is_old = age > config.segment_ms - active.jitter_ms
        return active.size + len(batch.data) > config.segment_bytes or is_old or active.is_full(config)

    def roll(self, base: int, now_ms: int) -> None:
        if self.active.batches:
            self.active.close()
            self.take_snapshot(base)
            self.rolls += 1
        else:
            self.segments.pop()
        self.begin(base, now_ms)
        if len(self.segments) == 1:
            self.start = base

    # -- producers -----------------------------------------------------------------------------------------------

    def take_note_of(self, batch: Batch) -> None:
        if batch.producer >= 0:
            count = len(batch.stamps)
            last = batch.sequence + count - 1, batch.next - 1, count - 1, max(batch.stamps)
            self.producers[batch.producer] = [*self.producers.get(batch.producer, []), last][-5:]

    def take_snapshot(self, offset: int) -> None:
        if offset > max(self.snapshots, default=0):
            self.snapshots[offset] = {producer: known[-1:] for producer, known in self.producers.items()}

    def load_producers(self, oldest_ms: int) -> None:
        usable = max((offset for offset in self.snapshots if self.start < offset <= self.end), default=None)
        self.snapshots = {o: known for o, known in self.snapshots.items() if usable is not None and o <= usable}
        at, self.producers = self.start, {}
        if usable is not None:
            at, found = usable, self.snapshots[usable]
            self.producers = {p: list(known) for p, known in found.items() if known[-1][3] >= oldest_ms}
        for batch in self.batches:
            if batch.base >= at:
                self.take_note_of(batch)

    # -- epochs --------------------------------------------------------------------------------------------------

    def assign(self, epoch: int, start: int) -> bool:
        """Whether it is to be written down."""
        if self.epochs and self.epochs[-1][0] == epoch and self.epochs[-1][1] <= start:
            return False
        self.epochs = [*((e, o) for e, o in self.epochs if e < epoch and o < start), (epoch, start)]
        return self.active.is_made

    def write_epochs(self) -> None:
        self.epoch_file, self.is_epoch_file_unsynced = list(self.epochs), True

    # -- cuts ----------------------------------------------------------------------------------------------------

    def truncate(self, offset: int) -> int:
        if any(o >= offset for _, o in self.epochs):
            self.epochs = [(e, o) for e, o in self.epochs if o < offset]
            self.write_epochs()
        if offset >= self.end:
            return 0
        if offset < self.start:
            return self.empty(offset)
        self.version += 1
        self.cuts += 1
        removed = 0
        while len(self.segments) > 1 and self.active.base > offset:
            removed += self.active.size
            self.snapshots.pop(self.active.base, None)
            self.segments.pop()
        removed += self.active.cut(offset)
        self.end, self.recovery = offset, min(self.recovery, offset)
        known = bool(self.producers)
        self.load_producers(-1 << 62)
        if not known:
            self.producers = {}
        return removed

    def empty(self, offset: int) -> int:
        removed = sum(segment.size for segment in self.segments)
        self.version += 1
        self.cuts += 1
        self.segments, self.snapshots, self.producers, self.epochs = [], {}, {}, []
        self.begin(offset, 0)
        self.start = self.end = offset
        self.recovery = min(self.recovery, offset)
        self.write_epochs()
        return removed

    def raise_start(self, offset: int) -> bool:
        if offset <= self.start:
            return False
        self.start = offset
        at = [epoch for epoch, o in self.epochs if o <= offset]
        if at:
            collapsed = [(at[-1], offset), *((e, o) for e, o in self.epochs if o > offset)]
            if collapsed != self.epochs:
                self.epochs = collapsed
                self.write_epochs()
        return True

    def retain(self, now_ms: int, high_watermark: int) -> int:
        excess = sum(segment.size for segment in self.segments) - self.config.retention_bytes
        going: list[PlainSegment] = []
        for number, segment in enumerate(self.segments):
            is_last = number == len(self.segments) - 1
            end = self.end if is_last else self.segments[number + 1].base
            is_old = 0 <= segment.newest[0] < now_ms - self.config.retention_ms
            if end > high_watermark or (is_last and not segment.batches):
                break
            if not (is_old or excess >= segment.size or (end <= self.start and not is_last)):
                break
            excess -= segment.size
            going.append(segment)
        if going:
            self.version += 1
            if len(going) == len(self.segments):
                self.roll(self.end, now_ms)
            self.segments = self.segments[len(going) :]
            for segment in going:
                self.snapshots.pop(segment.base, None)
            self.raise_start(self.segments[0].base)
        return len(going)

    # -- the disk ------------------------------------------------------------------------------------------------

    def unflushed(self, *, include_active: bool) -> list[str]:
        """The names of the files, in order."""
        last = max((n for n, segment in enumerate(self.segments) if segment.base <= self.recovery), default=0)
        segments = self.segments[last:] if include_active else self.segments[last:-1]
        names = [f"{s.base:020d}.{kind}" for s in segments for kind in ("log", "index", "timeindex")]
        return [*names, "leader-epoch-checkpoint"] if names and self.is_epoch_file_unsynced else names

    def flush(self, now_ms: int) -> None:
        self.flushed_ms = now_ms
        if self.recovery != self.end:
            self.recovery, self.is_epoch_file_unsynced = self.end, False

    def close(self) -> None:
        self.flush(0)
        self.active.close()
        self.take_snapshot(self.end)

    def load(self, now_ms: int, recovery: int | None) -> bool:
        """A new life, with this checkpoint of the recovery point (None: the log was closed). Whether all was lost."""
        self.segments = [segment for segment in self.segments if segment.is_made]
        read: list[Batch] = []
        for number, segment in enumerate(self.segments):
            end = self.segments[number + 1].base if segment is not self.active else None
            limit = min(self.config.segment_jitter_ms, self.config.segment_ms)
            segment.created_ms, segment.jitter_ms = 0, self.jitter(limit) if limit else 0
            if recovery is not None and (end is None or end > recovery):
                segment.rebuild(self.config)
                read += segment.batches
            segment.is_closed = True
        self.flushed_ms = self.version = 0
        is_given_up = bool(self.segments) and self.active.next < self.start
        if is_given_up:
            self.segments, self.snapshots = [], {}
        if self.segments:
            self.active.is_closed = False
        else:
            self.begin(self.start, now_ms)
        self.end = self.active.next
        self.start = min(max(self.start, self.segments[0].base), self.end)
        self.recovery = self.end if recovery is None else min(recovery, self.end)
        self._load_epochs(read, is_clean=recovery is None)
        bases = [segment.base for segment in self.segments]
        strays = sorted(offset for offset in self.snapshots if offset not in bases)
        for offset in strays:
            if offset != strays[-1] or offset < bases[-1]:
                del self.snapshots[offset]
        self.load_producers(now_ms - self.config.producer_id_expiration_ms + 1)
        return is_given_up

    def _load_epochs(self, read: list[Batch], *, is_clean: bool) -> None:
        """What was read goes before the file; where the file begins too late, what is below it is read too."""
        before, self.is_epoch_file_unsynced = list(self.epoch_file or []), False
        first = before[0][1] if before else self.end
        read = read + [batch for batch in self.batches if batch.base < first and first > self.start]
        found = dict(before)
        for batch in read:
            found[batch.epoch] = min(found.get(batch.epoch, batch.base), batch.base)
        self.epochs = sorted((e, o) for e, o in found.items() if o <= self.end)
        at = [epoch for epoch, o in self.epochs if o <= self.start]
        if at:
            self.epochs = [(at[-1], self.start), *((e, o) for e, o in self.epochs if o > self.start)]
        if self.active.is_made and (not is_clean or before != self.epochs):
            self.write_epochs()
