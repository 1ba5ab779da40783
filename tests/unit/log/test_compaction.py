"""Compaction: which records stay, what stays of a batch, when a log is due, and what a kill in the middle leaves."""

from __future__ import annotations

import gc
import tempfile
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_sim.log.cleaner_plan import group_segments, plan_cleaning
from broker_sim.log.compaction import ENTRY_BYTES, OffsetMap, Retention, compacted
from broker_sim.log.errors import StorageFailure
from broker_sim.log.files import Files
from broker_sim.log.log import Log
from controller.wire.compression import Codec
from controller.wire.records import Record, build_batch, parse_header, records_of
from tests.worlds.compactions import COMPACT, NOW, World, newest

KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
WRITES = st.lists(
    st.tuples(
        st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=40)), min_size=1, max_size=4),
        st.sampled_from(list(Codec)),
        st.sampled_from([-1, 7, 8]),
    ),
    min_size=5,
    max_size=40,
)


def filled(folder: Path, writes: Any, files: Files | None = None) -> World:
    world, sequences = World(folder, files=files), {7: 0, 8: 0}
    for pairs, codec, producer in writes:
        world.write(*pairs, codec=codec, producer=producer, sequence=sequences.get(producer, -1))
        if producer in sequences:
            sequences[producer] += len(pairs)
    return world


@settings(max_examples=15, deadline=None)
@given(WRITES, st.integers(0, 3_000))
def test_the_newest_record_of_each_key_stays_at_its_offset_and_no_key_is_twice_below_the_end(
    writes: Any, later: Any
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = filled(Path(folder), writes)
        before, active = world.records(), world.log.segments[-1].base_offset
        producers = {p: (s.epoch, s.batches[-1]) for p, s in world.log.producers}
        while world.clean():
            world.now_ms += later
        after = world.records()
        assert newest(after) == newest(before)
        assert set(after) <= set(before)
        assert [r for r in after if r.offset >= active] == [r for r in before if r.offset >= active]
        done = world.dirs.cleaned_up_to(world.log) or 0
        old = [r.key for r in after if r.offset < done]
        assert len(old) == len(set(old))
        for clean in (False, True):
            world = world.reopened(clean=clean)
            assert world.records() == after
            assert {p: (s.epoch, s.batches[-1]) for p, s in world.log.producers} == producers
            assert world.dirs.cleaned_up_to(world.log) == (done or None)


@settings(max_examples=25, deadline=None)
@given(WRITES, WRITES, st.floats(0, 1), st.sampled_from(["goes on", "is killed", "is stopped"]))
def test_what_is_written_after_a_cut_is_dirty(writes: Any, more: Any, part: float, then: str) -> None:
    """A log that was compacted is cut, anywhere, and written to: it is compacted again from there, restart or not."""
    with tempfile.TemporaryDirectory() as folder:
        world = filled(Path(folder), writes)
        while world.clean():
            pass
        world.log.truncate(round(part * world.log.leo))
        for pairs, codec, _ in more:
            world.write(*pairs, codec=codec)
        if then != "goes on":
            world = world.reopened(clean=then == "is stopped")
        before = world.records()
        while world.clean():
            pass
        assert newest(world.records()) == newest(before)
        done = world.dirs.cleaned_up_to(world.log) or 0
        old = [record.key for record in world.records() if record.offset < done]
        assert len(old) == len(set(old))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=2, max_size=5))
def test_of_several_logs_the_one_with_the_largest_dirty_part_is_compacted_first(counts: Any) -> None:
    """Whether it has more bytes than others or not."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        for number, (clean, dirty) in enumerate(counts, start=1):
            world.beside(number)
            for count in (clean, dirty):
                world.dirs.set_cleaned_up_to(world.log, world.log.leo)
                for _ in range(count):
                    world.write((b"a", b"x" * 60))
        for _ in range(20):
            plans = {tp.partition: world.plan(partition) for tp, partition in world.partitions.items()}
            due = {number: plan.dirty_ratio for number, plan in plans.items() if plan.is_due(COMPACT)}
            assert world.clean() == bool(due)
            if not due:
                return
            assert due[world.events[-1][1]["partition"]] == max(due.values())


MANY_KEYS = st.sampled_from([bytes([letter]) for letter in b"abcdefghijklmnop"])


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.lists(st.tuples(MANY_KEYS, st.binary(max_size=40)), min_size=1, max_size=4), min_size=12, max_size=40),
    st.integers(5, 9),
)
def test_what_a_small_map_has_no_room_for_is_compacted_the_next_time(writes: Any, keys: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), map_bytes=ENTRY_BYTES * keys)
        for pairs in writes:
            world.write(*pairs)
        before = world.records()
        while world.clean():
            assert newest(world.records()) == newest(before)
        done = world.dirs.cleaned_up_to(world.log) or 0
        old = [record.key for record in world.records() if record.offset < done]
        assert len(old) == len(set(old))


@settings(max_examples=15, deadline=None)
@given(WRITES, st.data())
def test_a_disk_that_fails_at_any_step_of_a_compaction_loses_nothing(writes: Any, data: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = filled(Path(folder), writes)
        wanted, steps, before = world.table(), [], world.records()
        fails_at = data.draw(st.integers(0, 60))

        def fail(operation: str, path: Path) -> None:
            steps.append(operation)
            if len(steps) > fails_at:
                raise OSError(28, "No space left on device")

        world.dirs.files.before = fail
        world.clean()
        world.dirs.files.before = None
        assert bool(world.failed) == (len(steps) > fails_at)
        world.dirs.unlock()
        again = World(Path(folder))
        assert again.table() == wanted
        assert set(again.records()) <= set(before)
        assert again.log.leo == world.log.leo
        assert not [p for p in again.log.folder.iterdir() if p.suffix in (".cleaned", ".swap", ".deleted")]


def test_tombstones_stay_until_their_time_is_over(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write((b"gone", b"1"))
    world.write((b"gone", None), (b"kept", b"2"))
    for _ in range(12):
        world.write((b"filler", b"x" * 60))
    assert world.clean()
    assert [(r.key, r.value, r.timestamp) for r in world.records()][:2] == [(b"gone", None, NOW), (b"kept", b"2", NOW)]
    first = parse_header(next(world.log.batches()))
    assert (first.base_offset, first.last_offset, first.delete_horizon_ms) == (1, 2, NOW + 1_000)
    for waited, is_there in ((999, True), (1_000, False)):
        world.now_ms = NOW + waited
        for _ in range(12):
            world.write((b"filler", b"x" * 60))
        assert world.clean()
        assert (b"gone" in {r.key for r in world.records()}) is is_there


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("count", [1, 2])
def test_the_last_batch_of_a_producer_stays_without_records(tmp_path: Path, count: int, codec: Codec) -> None:
    world, pairs = World(tmp_path), ((b"a", b"1"), (b"b", b"1"))[:count]
    world.write(*pairs, producer=7, sequence=0, codec=codec)
    for _ in range(12):
        world.write((b"a", b"x" * 60), (b"b", b"y"))
    assert world.clean()
    header = parse_header(next(world.log.batches()))
    assert (header.count, header.base_offset, header.last_offset, header.producer_id) == (0, 0, count - 1, 7)
    assert (header.base_sequence, header.last_sequence, header.size) == (0, count - 1, 61)
    assert min(record.offset for record in world.records()) >= count
    again = world.reopened()
    again.write(*pairs, producer=7, sequence=0)
    assert again.log.leo == world.log.leo, "a batch sent again is known"


def left_alone(world: World) -> None:
    """Writes records, one of a transaction among them, and has the cleaner meet them."""
    for _ in range(12):
        world.write((b"a", b"x" * 60))
    segment = world.log.segments[0]
    data = bytearray(segment.log_path.read_bytes())
    data[22] |= 0x10
    segment.log_path.write_bytes(data)
    assert world.clean()


def test_a_log_with_transactions_is_left_alone(tmp_path: Path) -> None:
    world = World(tmp_path)
    left_alone(world)
    assert world.events[-1][0] == "log.cleaning_aborted"
    assert not world.clean()
    assert len(world.records()) == 12


def test_a_log_that_was_left_alone_is_not_kept_when_it_is_deleted(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.beside(1)
    left_alone(world)
    deleted = weakref.ref(world.log)
    world.dirs.delete(world.log)
    del world.partitions[world.log.topic_partition], world.log, world.partition
    gc.collect()
    assert deleted() is None


def test_a_log_that_is_cut_under_the_cleaner_stays_as_it_is(tmp_path: Path) -> None:
    world = World(tmp_path)
    for _ in range(12):
        world.write((b"a", b"x" * 60))

    def cut(operation: str, path: Path) -> None:
        if path.name.endswith(".log.cleaned") and operation == "create":
            world.dirs.files.before = None
            world.log.truncate(7)

    world.dirs.files.before = cut
    assert world.clean()
    assert world.events[-1] == (
        "log.cleaning_aborted", {"topic": "t", "partition": 0, "reason": "the log changed"}
    )  # fmt: skip
    assert [r.offset for r in world.records()] == list(range(7))
    assert world.reopened().log.leo == 7


#: what happens to a log while the cleaner waits for the disk
MEANWHILE: dict[str, Callable[[World], object]] = {
    "it is cut": lambda world: world.log.truncate(7),
    "it begins anew": lambda world: world.log.truncate_fully(50),
    "it is deleted": lambda world: world.dirs.delete(world.log),
    "its oldest segments go": lambda world: world.log.delete_old_segments(now_ms=NOW, high_watermark=world.log.leo),
}


@pytest.mark.parametrize("what", MEANWHILE)
def test_what_happens_to_a_log_while_its_cleaner_waits_for_the_disk_is_no_failure_of_that(
    tmp_path: Path, what: str
) -> None:
    world = World(tmp_path)
    for _ in range(12):
        world.write((b"a", b"x" * 60))
    world.log.raise_log_start(5)
    world.meanwhile = lambda: MEANWHILE[what](world)
    assert world.clean()
    assert not world.failed
    assert world.events[-1][0] == "log.cleaning_aborted"
    assert world.dirs.cleaned_up_to(world.log) is None
    assert not list(tmp_path.glob("*/*.cleaned")), "who waits for its disk has room on it"


def segments_of(*sizes_and_times: tuple[int, int]) -> Any:
    """Segments of ten offsets each."""
    return [
        SimpleNamespace(
            base_offset=10 * n,
            size=size,
            max_timestamp=time,
            first_timestamp=time,
            index_bytes=(8, 12),
            last_modified_s=lambda n=n: 1.0 + n,
        )
        for n, (size, time) in enumerate(sizes_and_times)
    ]


THREE = segments_of((100, 1_000), (100, 2_000), (100, 3_000), (50, 4_000))
PLANS = [
    ("everything but the active segment", None, 40, {}, (0, 30, 0, 300)),
    ("what is above the checkpoint", 20, 40, {}, (20, 30, 200, 100)),
    ("a segment that is clean in part counts twice", 15, 40, {}, (15, 30, 200, 200)),
    ("no segment with anything above the high watermark", None, 25, {}, (0, 20, 0, 200)),
    ("nothing, where the watermark is in the first", None, 5, {}, (0, 0, 0, 0)),
    ("a checkpoint above the end counts for nothing", 45, 40, {}, (0, 30, 0, 300)),
    ("a checkpoint below the start counts for nothing", 3, 40, {"log_start": 10}, (10, 30, 100, 200)),
    ("not what is younger than min.compaction.lag.ms", None, 40, {"min_compaction_lag_ms": 8_500}, (0, 10, 0, 100)),
    ("nothing is dirty", 30, 40, {}, (30, 30, 300, 0)),
]


@pytest.mark.parametrize(("_", "cleaned", "hw", "changes", "expected"), PLANS, ids=[row[0] for row in PLANS])
def test_how_far_a_log_is_compacted(_: Any, cleaned: Any, hw: Any, changes: Any, expected: Any) -> None:
    log_start = changes.get("log_start", 0)
    config = replace(COMPACT, **{name: value for name, value in changes.items() if name != "log_start"})
    plan = plan_cleaning(
        THREE, config, cleaned_up_to=cleaned, log_start=log_start, leo=40, high_watermark=hw, now_ms=10_000
    )
    assert (plan.first_dirty, plan.first_uncleanable, plan.clean_bytes, plan.cleanable_bytes) == expected


@pytest.mark.parametrize(("lag_ms", "end"), [(0, 30), (6_999, 30), (7_000, 30), (7_001, 20), (8_001, 10), (9_001, 0)])
def test_records_without_a_time_are_left_alone_while_their_file_is_young(lag_ms: int, end: int) -> None:
    """The files were written 9, 8 and 7 seconds ago."""
    segments = segments_of((100, -1), (100, -1), (100, -1), (50, -1))
    plan = plan_cleaning(
        segments, replace(COMPACT, min_compaction_lag_ms=lag_ms), cleaned_up_to=None, log_start=0, leo=40,
        high_watermark=40, now_ms=10_000,
    )  # fmt: skip
    assert plan.first_uncleanable == end


def test_a_segment_that_compaction_has_emptied_expires_with_its_file(tmp_path: Path) -> None:
    """Else it would keep for ever what lies behind it."""
    world = World(tmp_path, replace(COMPACT, cleanup_policy="compact,delete", retention_ms=500))
    for _ in range(12):
        world.write((b"a", b"x" * 60))
    for segment in world.log.segments:
        segment.set_last_modified(NOW / 1000)
    while world.clean():
        pass
    first, *others = world.log.segments
    assert (first.size, first.max_timestamp) == (0, -1) and len(others) > 1
    assert world.log.delete_old_segments(now_ms=NOW + 500, high_watermark=world.log.leo) == 0
    assert world.log.delete_old_segments(now_ms=NOW + 501, high_watermark=world.log.leo) == 1 + len(others)
    assert (world.records(), world.log.log_start_offset) == ([], 12)


def test_a_disk_that_does_not_say_when_a_file_was_written_has_failed(tmp_path: Path) -> None:
    world = World(tmp_path, replace(COMPACT, cleanup_policy="compact,delete", min_compaction_lag_ms=1))
    for _ in range(12):
        world.write((b"a", b"x" * 60), at=-1)
    world.log.segments[0].log_path.unlink()
    with pytest.raises(StorageFailure):
        world.log.delete_old_segments(now_ms=NOW, high_watermark=world.log.leo)
    assert not world.clean()
    assert [type(failure) for failure in world.failed] == [StorageFailure]


def test_a_log_is_due_by_its_dirty_part_or_by_age() -> None:
    def plan(**changes: Any) -> Any:
        config = replace(COMPACT, **changes)
        return plan_cleaning(
            THREE, config, cleaned_up_to=20, log_start=0, leo=40, high_watermark=40, now_ms=10_000
        ).is_due(config)

    assert plan(min_cleanable_dirty_ratio=0.3)
    assert not plan(min_cleanable_dirty_ratio=0.34)
    assert plan(min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=6_999)
    assert not plan(min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=7_000)


def test_neighbours_are_compacted_into_one_segment_as_far_as_they_fit() -> None:
    def bases(**limits: int) -> list[list[int]]:
        found = {"max_bytes": 10_000, "max_index_bytes": 1_000, "end": 40, **limits}
        return [[s.base_offset for s in group] for group in group_segments(THREE, **found)]

    assert bases() == [[0, 10, 20, 30]]
    assert bases(max_bytes=200) == [[0, 10], [20, 30]]
    assert bases(max_index_bytes=24) == [[0, 10], [20, 30]]
    assert bases(end=(1 << 31) + 1) == [[0, 10, 20], [30]]


def test_a_map_that_is_full_ends_the_cleaning_before_the_batch_that_does_not_fit(tmp_path: Path) -> None:
    newest_offsets = OffsetMap(2)
    batch = build_batch([Record(0, 1, b"a", b"1"), Record(1, 1, b"b", b"1")])
    assert newest_offsets.put_batch(batch, parse_header(batch), 0)
    other = build_batch([Record(2, 1, b"a", b"2"), Record(3, 1, b"c", b"1")])
    assert not newest_offsets.put_batch(other, parse_header(other), 0)
    assert newest_offsets.latest_offset == 1
    kept = compacted(other, parse_header(other), Retention(newest=newest_offsets, now_ms=0, delete_retention_ms=0))
    assert kept == other, "what is above the map's end is not judged"


def test_a_rewritten_batch_keeps_its_codec_and_the_time_of_its_records() -> None:
    newest_offsets = OffsetMap(9)
    found = [Record(5, 70, b"a", b"1"), Record(6, 50, b"b", None), Record(7, 60, b"a", b"2")]
    batch = build_batch(found, codec=Codec.ZSTD, partition_leader_epoch=3)
    newest_offsets.put_batch(batch, parse_header(batch), 0)
    kept = compacted(
        batch, parse_header(batch), Retention(newest=newest_offsets, now_ms=100, delete_retention_ms=11)
    )  # fmt: skip
    assert kept is not None
    header = parse_header(kept)
    assert records_of(kept) == found[1:]
    assert (header.codec, header.base_offset, header.last_offset) == (Codec.ZSTD, 5, 7)
    assert (header.partition_leader_epoch, header.max_timestamp, header.delete_horizon_ms) == (3, 60, 111)


def test_a_storage_failure_is_told_to_the_broker(tmp_path: Path) -> None:
    world = World(tmp_path)
    for _ in range(12):
        world.write((b"a", b"x" * 60))

    def fail(operation: str, path: Path) -> None:
        if operation == "sync":
            raise OSError(5, "Input/output error")

    world.dirs.files.before = fail
    assert world.clean()
    assert isinstance(world.failed[0], StorageFailure)
    assert isinstance(world.log, Log)
