"""Index files: which are believed, what is looked up in them, when they are full; batches far into a file."""

from __future__ import annotations

import itertools
import os
import random
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from broker_sim.log.config import LogConfig
from broker_sim.log.files import Files
from broker_sim.log.indexes import Indexes
from broker_sim.log.log import Log
from broker_sim.log.segment import Segment
from broker_sim.log.segment_shape import SegmentShape
from controller.wire.records import BatchHeader, Record, build_batch, parse_header, place
from controller.wire.types import TopicPartition
from tests.worlds.logs import append, new_log

Pairs = list[tuple[int, int]]
BASE = 5


def indexes(folder: Path, *, max_bytes: int = 100) -> Indexes:
    return Indexes(folder / "i.index", folder / "i.timeindex", BASE, max_bytes=max_bytes, files=Files())


def wrong(offsets: Pairs, times: Pairs, size: int) -> str | None:
    """Why these entries, relative as they stand in the files, cannot be right for a log file of that size."""
    for before, after in itertools.pairwise(offsets):
        if after[0] <= before[0] or after[1] <= before[1]:
            return "i.index does not rise"
    if offsets and (offsets[0][0] < 0 or offsets[-1][1] < 0 or offsets[-1][1] >= size):
        return "i.index points outside of the segment"
    for before, after in itertools.pairwise(times):
        if after[0] <= before[0] or after[1] < before[1]:
            return "i.timeindex does not rise"
    if times and times[0][1] < 0:
        return "i.timeindex points outside of the segment"
    return None


def lists(entries: Pairs) -> list[Pairs]:
    """All of up to two, and some of three."""
    few = [list(found) for size in range(3) for found in itertools.product(entries, repeat=size)]
    return few + random.Random(1).sample([list(found) for found in itertools.combinations(entries, 3)], 20)


OFFSETS = lists([(-1, 0), (0, -1), (0, 0), (1, 0), (1, 10), (2, 9), (2, 20)])
TIMES = lists([(-1, 0), (0, -1), (0, 0), (0, 1), (7, 0), (7, 1), (8, 1)])


@pytest.mark.parametrize("size", [20, 21])
def test_files_are_believed_if_their_entries_can_be_right(tmp_path: Path, size: int) -> None:
    cases = [(offsets, []) for offsets in OFFSETS] + [([(0, 0)], times) for times in TIMES]
    for offsets, times in cases:
        (tmp_path / "i.index").write_bytes(b"".join(struct.pack(">ii", *entry) for entry in offsets))
        (tmp_path / "i.timeindex").write_bytes(b"".join(struct.pack(">qi", *entry) for entry in times))
        found = indexes(tmp_path)
        assert found.read(log_size=size) == wrong(offsets, times, size), (offsets, times)
        if wrong(offsets, times, size) is None:
            assert found.offsets == [offset + BASE for offset, _ in offsets]
            assert found.positions == [position for _, position in offsets]
            assert found.times == [(time, offset + BASE) for time, offset in times]
            assert found.size_bytes == (8 * len(offsets), 12 * len(times))
            assert found.last_position == (offsets[-1][1] if offsets else 0)
            assert found.last_time == (found.times[-1] if times else (-1, -1))
        else:
            assert (found.offsets, found.positions, found.times) == ([], [], [])


def test_files_that_are_missing_or_torn_are_not_believed(tmp_path: Path) -> None:
    one, two = tmp_path / "i.index", tmp_path / "i.timeindex"
    assert indexes(tmp_path).read(log_size=9) == f"{one} is missing"
    one.write_bytes(b"")
    assert indexes(tmp_path).read(log_size=9) == f"{two} is missing"
    for left, right in ((1, 0), (7, 12), (8, 11), (0, 13), (9, 13)):
        one.write_bytes(bytes(left))
        two.write_bytes(bytes(right))
        assert indexes(tmp_path).read(log_size=9) == "an index file's length is no multiple of its entries"


def test_lookups(tmp_path: Path) -> None:
    chance = random.Random(1)
    for _ in range(200):
        size = chance.randint(0, 4)
        found = indexes(tmp_path)
        for offset, position in zip(
            sorted(chance.sample(range(BASE, BASE + 8), size)), sorted(chance.sample(range(1, 9), size)), strict=True
        ):
            found.add(offset, position)
        for time in [chance.randint(-1, 6) for _ in range(chance.randint(0, 4))]:
            offset = max([BASE, *(o + chance.randint(0, 1) for _, o in found.times)])
            is_news = all(time > known for known, _ in found.times) and time >= 0
            before = list(found.times)
            assert found.add_time(time, offset) is is_news
            assert found.times == before + ([(time, offset)] if is_news else [])
        entries = list(zip(found.offsets, found.positions, strict=True))

        def at(offset: int, entries: Pairs = entries) -> int:
            return max((position for known, position in entries if known <= offset), default=0)

        for offset in range(BASE - 1, BASE + 9):
            assert found.position_of(offset) == at(offset)
        for time in range(-2, 9):
            older = [offset for known, offset in found.times if known < time]
            assert found.position_for_time(time) == (at(older[-1]) if older else 0)
        cut, times = chance.randint(BASE - 1, BASE + 9), found.times
        found.forget(cut)
        assert list(zip(found.offsets, found.positions, strict=True)) == [e for e in entries if e[0] < cut]
        assert found.times == [entry for entry in times if entry[1] < cut]
        found.clear()
        assert (found.offsets, found.positions, found.times) == ([], [], [])


@pytest.mark.parametrize("max_bytes", [24, 25, 31, 32, 35, 36, 48])
def test_when_they_are_full_and_how_long_their_files_are(tmp_path: Path, max_bytes: int) -> None:
    for offsets, times in itertools.product(range(7), range(5)):
        found = indexes(tmp_path, max_bytes=max_bytes)
        found.create()
        lengths = [path.stat().st_size for path in (found.index_path, found.time_path)]
        assert lengths == [max_bytes - max_bytes % 8, max_bytes - max_bytes % 12]
        for number in range(offsets):
            found.add(BASE + number, 1 + number)
            found.write_last()
        for number in range(times):
            found.add_time(number, BASE + number)
            found.write_last_time()
        assert found.is_full is (8 * (offsets + 1) > max_bytes or 12 * (times + 2) > max_bytes)
        written = (
            b"".join(struct.pack(">ii", number, 1 + number) for number in range(offsets)),
            b"".join(struct.pack(">qi", number, number) for number in range(times)),
        )
        paths = found.index_path, found.time_path
        assert [path.read_bytes() for path in paths] == [
            content.ljust(length, b"\0") for content, length in zip(written, lengths, strict=True)
        ]
        for change in (found.trim, found.rewrite):
            found.stretch()
            assert [path.stat().st_size for path in paths] == [
                max(length, len(content)) for content, length in zip(written, lengths, strict=True)
            ]
            change()
            assert [path.read_bytes() for path in paths] == list(written)


# -- batches, far into a file -----------------------------------------------------------------------------------------


def long_log(
    folder: Path, sizes: list[int], *, index_interval_bytes: int = 1 << 30
) -> tuple[Log, list[tuple[int, BatchHeader]]]:
    """Batches of two records, of values that long; one segment, without an index entry unless asked for."""
    limits = {"max_message_bytes": 1 << 23, "segment_bytes": 1 << 24}
    log = new_log(folder, LogConfig(index_interval_bytes=index_interval_bytes, **limits))
    expected, position = [], 0
    for number, size in enumerate(sizes):
        found = [Record(0, 1_000 + number, None, b""), Record(1, 1_000 + number, None, b"x" * size)]
        batch = place(build_batch(found), base_offset=log.leo, partition_leader_epoch=0)
        expected.append((position, parse_header(batch)))
        log.append_as_follower(batch, now_ms=1)
        position += len(batch)
    return log, expected


LONG = {
    "a window of lookups, many batches": [n % 57 for n in range(400)],
    "windows of a start": [20_000 + 1_000 * (n % 7) for n in range(150)],
    "batches above any window": [10, 9_000, 1_300_000, 10, 8_131, 2_200_000, 10, 10],
}


@pytest.mark.parametrize("name", LONG)
def test_batches_are_found_wherever_they_lie(tmp_path: Path, name: str) -> None:
    log, expected = long_log(tmp_path, LONG[name])
    log.close()
    total = log.size_bytes
    for is_clean in (True, False):
        again = Log(TopicPartition("t", 0), log.folder, log.config)
        assert again.load(is_clean=is_clean, recovery_point=0) == []
        (segment,) = again.segments
        assert (segment.size, segment.next_offset, segment.measured_end()) == (total, 2 * len(expected), again.leo)
        assert list(segment.headers()) == expected
        assert (segment.first_timestamp, segment.max_timestamp) == (1_000, 999 + len(expected))
        for number in {0, 1, len(expected) // 2, len(expected) - 2, len(expected) - 1}:
            for offset in (2 * number, 2 * number + 1):
                assert segment.find(offset) == expected[number]
                assert list(segment.headers(offset)) == expected[number:]
            later = list(segment.find_time(1_000 + number, from_offset=2 * number + 2))
            assert later == expected[number + 1 :]
            record = again.find_by_time(1_000 + number, bound=again.leo)
            assert record is not None and record.offset == 2 * number
        assert segment.find(again.leo) is None
        assert b"".join(again.batches()) == segment.log_path.read_bytes()
        for number in (0, len(expected) // 3, len(expected) - 2):
            most = expected[number + 1][0] - expected[number][0] + expected[number + 1][1].size
            data = again.read(2 * number + 1, max_bytes=most, bound=again.leo)
            assert data == segment.read(expected[number][0], most)


Reads = list[tuple[int, int]]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """(length, position) of each read of a file."""
    found: Reads = []
    pread = os.pread

    def count(handle: int, length: int, position: int) -> bytes:
        found.append((length, position))
        return pread(handle, length, position)

    monkeypatch.setattr(os, "pread", count)
    return found


def pieces(batches: list[tuple[int, BatchHeader]], end: int, piece: int, *, whole: bool) -> Reads:
    """What is read where a piece is read as soon as a header, or (`whole`) its batch, is not in the last one."""
    found, known = Reads(), 0
    for position, header in batches:
        if position + 61 > known:
            found.append((min(piece, end - position), position))
            known = position + min(piece, end - position)
        if whole and position + header.size > known:
            found.append((max(piece, header.size), position))
            known = min(end, position + max(piece, header.size))
    return found


@pytest.mark.parametrize("name", LONG)
def test_a_log_is_read_in_pieces(tmp_path: Path, reads: Reads, name: str) -> None:
    """Of 1 MiB by who reads all of it, of 8 KiB by who looks for a place; no piece twice."""
    log, expected = long_log(tmp_path, LONG[name])
    log.close()
    end, again = log.size_bytes, Log(TopicPartition("t", 0), log.folder, log.config)
    reads.clear()
    again.load(is_clean=False, recovery_point=0)
    assert reads == pieces(expected, end, 1 << 20, whole=True)
    again.close()
    again = Log(TopicPartition("t", 0), log.folder, log.config)
    again.load(is_clean=True)
    (segment,) = again.segments
    reads.clear()
    assert len(list(segment.headers())) == len(expected)
    assert reads == pieces(expected, end, 1 << 20, whole=False)
    reads.clear()
    assert segment.first_timestamp == 1_000 and reads == [(min(1 << 13, end), 0)]
    for number in (0, len(expected) // 2, len(expected) - 1):
        reads.clear()
        assert segment.find(2 * number) == expected[number]
        assert reads == pieces(expected[: number + 1], end, 1 << 13, whole=False)
    reads.clear()
    assert sum(len(batch) for batch in again.batches()) == end
    assert all(length <= max(1 << 20, *(header.size for _, header in expected)) for length, _ in reads)
    taken = [length for length, _ in reads if length > 1 << 13]
    assert all(before + after > 1 << 20 for before, after in itertools.pairwise(taken))


@pytest.mark.parametrize("count", range(2, 42))
def test_the_last_batches_are_found_without_a_look_into_the_file(tmp_path: Path, reads: Reads, count: int) -> None:
    """Eight at least, twice as many at most: a reader at the end of a log, of which there are many, costs nothing."""
    log, expected = long_log(tmp_path, [9] * count, index_interval_bytes=0)
    (segment,) = log.segments
    kept = count if count <= 16 else 9 + (count - 17) % 8
    for number in range(count):
        for offset in (2 * number, 2 * number + 1):
            reads.clear()
            assert segment.find(offset) == expected[number]
            starts_at = number if offset % 2 else max(number - 1, 0)
            assert (reads == []) is (starts_at >= count - kept or number == count - 1)
    for number in range(max(1, count - kept + 1), count):
        reads.clear()
        start = expected[number][0]
        assert segment.end_of_whole_batches(start, max_bytes=1 << 20, bound=log.leo, min_one=False) == log.size_bytes
        assert reads == []


# -- the life of a segment --------------------------------------------------------------------------------------------


def test_a_segment_that_is_not_made_yet_and_one_that_is(tmp_path: Path) -> None:
    shape = SegmentShape(index_interval_bytes=50, max_index_bytes=48)
    lazy = Segment(tmp_path, 7, shape=shape, files=Files(), created_ms=5_500)
    lazy.create(lazily=True)
    lazy.activate()
    lazy.seal()
    assert (list(tmp_path.iterdir()), lazy.last_modified_s(), lazy.is_made) == ([], 5.5, False)
    assert (lazy.path("x").name, lazy.rename(".a"), lazy.path("x").name) == (f"{7:020d}.x", [], f"{7:020d}.x.a")
    lazy.rename("")
    batch = place(build_batch([Record(0, 9, None, b"v")]), base_offset=7, partition_leader_epoch=0)
    lazy.append(batch, parse_header(batch))
    assert lazy.is_made and sorted(path.suffix for path in tmp_path.iterdir()) == [".index", ".log", ".timeindex"]
    lazy.set_last_modified(77.5)
    assert lazy.last_modified_s() == 77.5
    assert {path.stat().st_mtime for path in tmp_path.iterdir()} == {77.5}
    txn = lazy.path("txnindex")
    txn.write_bytes(b"")
    assert lazy.rename(".deleted") == [f"{7:020d}.{kind}.deleted" for kind in ("index", "timeindex", "txnindex", "log")]
    lazy.delete()
    assert list(tmp_path.iterdir()) == []
    eager = Segment(tmp_path, 7, shape=shape, files=Files())
    eager.create()
    assert (eager.is_made, len(list(tmp_path.iterdir()))) == (True, 3)


def test_an_append_that_fails_leaves_no_part_of_a_batch(tmp_path: Path) -> None:
    log = new_log(tmp_path, replace(LogConfig(), segment_bytes=10_000))
    append(log)
    size, files = log.size_bytes, log.files

    def torn(operation: str, path: Path) -> None:
        if operation == "append":
            path.write_bytes(path.read_bytes() + b"a part")
            raise OSError(28, "No space left on device")

    files.before = torn
    with pytest.raises(Exception, match="No space left"):
        append(log)
    files.before = None
    assert log.segments[0].log_path.stat().st_size == size
    log.segments[0].log_path.unlink()
    files.before = lambda operation, path: (_ for _ in ()).throw(OSError(5, "gone")) if operation == "append" else None
    with pytest.raises(Exception, match="gone"):
        append(log)
    assert not log.segments[0].log_path.exists()
