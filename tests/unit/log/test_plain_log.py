"""Whatever is done to a log, it holds what plain lists hold (`tests.worlds.plain_log`), in memory and on the disk."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from broker_sim.log.config import LogConfig
from broker_sim.log.errors import OffsetOutOfRange
from broker_sim.log.files import Files
from broker_sim.log.leader_epochs import EpochFile
from broker_sim.log.log import Log
from broker_sim.log.stored_log import LogHooks
from controller.wire.records import Record, build_batch, place
from controller.wire.types import TopicPartition
from tests.worlds.plain_log import Batch, PlainLog, PlainSegment

TP = TopicPartition("t", 0)
CONFIG = LogConfig(
    segment_bytes=1_000, segment_index_bytes=70, index_interval_bytes=100, segment_ms=400, segment_jitter_ms=50,
    flush_messages=25, retention_ms=900, retention_bytes=3_000, producer_id_expiration_ms=300,
)  # fmt: skip
OPERATIONS = {
    "append": 12, "follow": 3, "truncate": 2, "empty": 0.2, "raise": 1, "retain": 1, "flush": 0.5, "epoch": 0.5,
    "kill": 1, "restart": 1, "far": 0.1,
}  # fmt: skip


class Twin:
    """A log and its plain twin, to which the same is done."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now_ms = 1_000
        self.epoch = 0
        self.config = replace(CONFIG, segment_jitter_ms=self.chance.choice([0, 50, 500]))
        self.synced: list[str] = []
        self.rolls = self.cuts = 0
        self.log = self.opened(folder / "t-0")
        self.log.create(now_ms=self.now_ms)
        self.plain = PlainLog(self.config, self.now_ms)

    def opened(self, folder: Path) -> Log:
        files = Files(lambda operation, path: self.synced.append(path.name) if operation == "sync" else None)
        hooks = LogHooks(jitter_of=PlainLog.jitter, rolled=self._rolled, cut=self._cut)
        return Log(TP, folder, self.config, files=files, hooks=hooks)

    def _rolled(self, log: object) -> None:
        self.rolls += 1

    def _cut(self, log: object) -> None:
        self.cuts += 1

    def batch(self, base: int, producers: tuple[int, ...] = (-1, -1, 7, 8)) -> Batch:
        chance, count = self.chance, self.chance.randint(1, 4)
        newest = -1 if chance.random() < 0.1 else self.now_ms + 20 * chance.randint(-3, 3)
        stamps = tuple(max(-1, newest - chance.choice([0, 0, 30])) for _ in range(count))
        producer = chance.choice(producers)
        known = self.plain.producers.get(producer)
        sequence = -1 if producer < 0 else known[-1][0] + 1 if known else 0
        records = [Record(n, at, None, b"x" * chance.choice([0, 10, 90])) for n, at in enumerate(stamps)]
        data = build_batch(records, producer_id=producer, producer_epoch=min(producer, 0), base_sequence=sequence)
        data = place(data, base_offset=base, partition_leader_epoch=self.epoch)
        return Batch(base, stamps, data, self.epoch, producer, sequence)

    # -- what is done ----------------------------------------------------------------------------------------------

    def do(self, operation: str) -> None:
        """One of `OPERATIONS`, each of which is a method here."""
        getattr(self, f"do_{operation}")()

    @property
    def somewhere(self) -> int:
        """Mostly within the log."""
        return self.chance.randint(max(self.plain.start - 2, 0), self.plain.end + 1)

    def do_append(self) -> None:
        batch = self.batch(self.plain.end)
        sent = place(batch.data, base_offset=0, partition_leader_epoch=-1)
        told = self.log.append_as_leader(sent, leader_epoch=self.epoch, now_ms=self.now_ms)
        self.plain.append([batch], self.now_ms)
        assert (told.base_offset, told.end_offset, told.leo) == (batch.base, batch.next, batch.next)

    def do_follow(self, gap: int = 0) -> None:
        """Compaction leaves gaps."""
        taken = [self.batch(self.plain.end + gap + self.chance.randint(0, 3))]
        taken += [self.batch(taken[0].next, (-1,)) for _ in range(self.chance.randint(0, 1))]
        data = b"".join(batch.data for batch in taken)
        assert self.log.append_as_follower(data + b"torn", now_ms=self.now_ms) == len(data)
        self.plain.append(taken, self.now_ms)

    def do_far(self) -> None:
        self.do_follow((1 << 31) - 2)

    def do_truncate(self) -> None:
        offset = self.somewhere
        assert self.log.truncate(offset) == self.plain.truncate(offset)

    def do_empty(self) -> None:
        offset = self.somewhere
        self.log.truncate_fully(offset)
        self.plain.empty(offset)

    def do_raise(self) -> None:
        offset = min(self.somewhere, self.plain.end)
        assert self.log.raise_log_start(offset) is self.plain.raise_start(offset)

    def do_retain(self) -> None:
        watermark = self.chance.choice([self.somewhere, self.plain.end])
        count = self.log.delete_old_segments(now_ms=self.now_ms, high_watermark=watermark)
        assert count == self.plain.retain(self.now_ms, watermark)

    def do_flush(self) -> None:
        self.synced.clear()
        expected = self.plain.unflushed(include_active=True) if self.plain.recovery != self.plain.end else []
        self.log.flush(now_ms=self.now_ms)
        self.plain.flush(self.now_ms)
        assert self.synced == expected

    def do_epoch(self) -> None:
        self.epoch += self.chance.randint(0, 2)
        self.log.assign_epoch(self.epoch, self.log.leo)
        if self.plain.assign(self.epoch, self.plain.end):
            self.plain.write_epochs()

    def do_kill(self) -> None:
        self.start_again(self.chance.randint(0, self.plain.recovery))

    def do_restart(self) -> None:
        self.log.close()
        self.plain.close()
        self.start_again(None)

    def start_again(self, point: int | None) -> None:
        self.log = self.opened(self.log.folder)
        repairs = self.log.load(
            is_clean=point is None, log_start_offset=self.plain.start, recovery_point=point or 0, now_ms=self.now_ms
        )
        assert len(repairs) == self.plain.load(self.now_ms, point)

    # -- what is compared ----------------------------------------------------------------------------------------

    def check(self) -> None:
        log, plain = self.log, self.plain
        assert [segment.state for segment in plain.segments] == [
            {
                "base": s.base_offset, "next": s.next_offset, "size": s.size, "newest": s.max_timestamp,
                "first": s.first_timestamp, "created": s.created_ms, "jitter": s.jitter_ms,
                "index": s.index_entries, "times": s.time_entries,
            }
            for s in log.segments
        ]  # fmt: skip
        assert (log.log_start_offset, log.leo, log.recovery_point) == (plain.start, plain.end, plain.recovery)
        assert (log.version, log.flushed_ms) == (plain.version, plain.flushed_ms)
        assert (self.rolls, self.cuts) == (plain.rolls, plain.cuts)
        assert log.size_bytes == sum(segment.size for segment in plain.segments)
        assert log.epochs.entries == plain.epochs
        assert {p: [tuple(b) for b in known.batches] for p, known in log.producers} == plain.producers
        for is_included in (False, True):
            names = [path.name for path in log.unflushed(include_active=is_included)]
            assert names == plain.unflushed(include_active=is_included)
        self.check_files()

    def check_files(self) -> None:
        folder, plain = self.log.folder, self.plain
        expected = {f"{offset:020d}.snapshot" for offset in plain.snapshots}
        for segment in plain.segments:
            if segment.is_made:
                expected |= {f"{segment.base:020d}.{kind}" for kind in ("log", "index", "timeindex")}
                self.check_segment(folder / f"{segment.base:020d}.log", segment)
        if plain.epoch_file is not None:
            expected.add("leader-epoch-checkpoint")
            assert EpochFile(folder / "leader-epoch-checkpoint").read().entries == plain.epoch_file
        assert {path.name for path in folder.iterdir()} == expected

    def check_segment(self, path: Path, segment: PlainSegment) -> None:
        assert path.read_bytes() == b"".join(batch.data for batch in segment.batches)
        for suffix, form, entries in (
            (".index", ">ii", [(o - segment.base, p) for o, p in segment.index]),
            (".timeindex", ">qi", [(t, o - segment.base) for t, o in segment.times]),
        ):
            data, size = path.with_suffix(suffix).read_bytes(), struct.calcsize(form)
            content = b"".join(struct.pack(form, *entry) for entry in entries)
            room = 0 if segment.is_closed else self.config.segment_index_bytes // size * size
            assert data == content.ljust(room, b"\0")

    def check_reads(self) -> None:
        log, plain, chance = self.log, self.plain, self.chance
        for offset in (plain.start - 1, plain.end + 1):
            with pytest.raises(OffsetOutOfRange):
                log.read(offset, max_bytes=99, bound=plain.end, min_one=True)
        for _ in range(6):
            offset, bound = (chance.randint(plain.start, plain.end) for _ in range(2))
            bound = chance.choice([bound, plain.end, plain.end + 5])
            limit, is_first = chance.choice([0, 1, 80, 200, 400, 2_000]), chance.random() < 0.5
            expected = self.readable(offset, limit, bound, is_first)
            assert log.read(offset, max_bytes=limit, bound=bound, min_one=is_first) == expected
            at_least = len(self.readable(offset, limit, bound, True))
            assert log.readable_bytes(offset, max_bytes=limit, bound=bound) == at_least
            self.check_times(self.now_ms + chance.randint(-900, 70), bound)
        newest = max(plain.segments, key=lambda segment: segment.newest[0])
        for bound in (plain.end, plain.end // 2):
            self.check_newest(newest, bound)
        readable = [batch.data for batch in plain.batches if batch.next > plain.start]
        assert list(log.batches()) == readable

    def readable(self, offset: int, limit: int, bound: int, is_first: bool) -> bytes:
        """Whole batches of one segment."""
        if offset >= min(bound, self.plain.end) or (limit <= 0 and not is_first):
            return b""
        segments = [s for s in self.plain.segments if s.next > offset]
        taken = b""
        for batch in segments[0].batches if segments else []:
            if batch.next <= offset:
                continue
            if batch.next > bound or (len(taken) + len(batch.data) > limit and not (is_first and not taken)):
                break
            taken += batch.data
        return taken

    def check_times(self, at: int, bound: int) -> None:
        plain = self.plain
        first = next(((o, t) for o, t in of_times(plain.batches) if t >= at and o >= plain.start), None)
        expected = first if first is not None and first[0] < bound else None
        found = self.log.find_by_time(at, bound=bound)
        assert (None if found is None else (found.offset, found.timestamp)) == expected

    def check_newest(self, newest: PlainSegment, bound: int) -> None:
        """In the first segment that has it, also below the log start."""
        first = next(((o, t) for o, t in of_times(newest.batches) if t == newest.newest[0]), None)
        found = self.log.find_newest(bound=bound)
        expected = first if first is not None and first[0] < bound else None
        assert (None if found is None else (found.offset, found.timestamp)) == expected


def of_times(batches: Iterable[Batch]) -> list[tuple[int, int]]:
    """(offset, timestamp) of each record."""
    return [(batch.base + n, t) for batch in batches for n, t in enumerate(batch.stamps)]


@pytest.mark.parametrize("seed", range(16))
def test_a_log_is_what_its_plain_twin_is(tmp_path: Path, seed: int) -> None:
    twin = Twin(tmp_path, seed)
    for _ in range(70):
        twin.now_ms += twin.chance.choice([0, 0, 20, 60])
        (operation,) = twin.chance.choices(list(OPERATIONS), list(OPERATIONS.values()))
        twin.do(operation)
        twin.check()
        if twin.chance.random() < 0.3:
            twin.check_reads()
