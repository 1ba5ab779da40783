"""Which log is compacted next, how much of it, at which rate, and when it is looked again."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker_sim.config import ReplicaSettings
from broker_sim.log.config import LogConfig
from broker_sim.replicas.log_cleaner import LogCleaner
from controller.wire.records import Record, build_batch, iterate
from controller.wire.types import TopicPartition
from controller.world.simulated.loop import run
from tests.worlds.chores import table, written
from tests.worlds.compactions import World

TP = TopicPartition("t", 0)
COMPACT: dict[str, Any] = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.01}


def cleaned(broker: Any) -> list[tuple[int, int, int]]:
    """(partition, first offset that was dirty, where it ended) of each compaction that was done."""
    done = [keys for event, keys in broker.events if event == "log.cleaned"]
    return [(keys["partition"], keys["first_dirty"], keys["offset"]) for keys in done]


def test_the_dirtiest_is_compacted_first_and_others_are_passed_over(tmp_path: Path) -> None:
    async def main() -> None:
        broker = table(tmp_path)
        cleaner = LogCleaner(broker)
        tps = [TopicPartition("t", number) for number in range(7)]
        for tp, count in zip(tps, (9, 9, 9, 9, 15, 30, 20), strict=True):
            policy = {**COMPACT, **({"cleanup_policy": "delete"} if tp.partition == 1 else {})}
            written(broker, tp, count, segment_bytes=300, **policy)
        broker.partitions[tps[0]].log = None
        broker.dirs.create_future(tps[2], next(iter(broker.dirs)))
        broker.partitions[tps[3]].hw = 0
        for tp, offset in ((tps[4], 9), (tps[5], 3), (tps[6], 9)):
            broker.dirs.set_cleaned_up_to(broker.partitions[tp].log, offset)
        bases = {tp.partition: broker.partitions[tp].log.segments[-1].base_offset for tp in tps[4:]}
        while await cleaner.clean_one():
            assert len(cleaned(broker)) < 9
        assert cleaned(broker) == [(5, 3, bases[5]), (6, 9, bases[6]), (4, 9, bases[4])]
        assert [broker.dirs.cleaned_up_to(broker.partitions[tp].log) for tp in tps[4:]] == list(bases.values())
        for event, keys in broker.events:
            assert keys["bytes_after"] < keys["bytes_before"], event

    run(main())


@pytest.mark.parametrize(
    ("policy", "is_compacted"),
    [("compact", True), ("compact,delete", True), ("delete,compact", True), ("delete", False), ("", False)],
)
def test_a_log_is_compacted_where_its_policy_says_so_whatever_else_it_is(
    tmp_path: Path, policy: str, is_compacted: bool
) -> None:
    async def main() -> None:
        broker = table(tmp_path)
        written(broker, TP, 9, segment_bytes=300, **{**COMPACT, "cleanup_policy": policy})
        log = broker.partitions[TP].log
        before = log.size_bytes
        assert await LogCleaner(broker).clean_one() is is_compacted
        assert (log.size_bytes < before) is is_compacted

    run(main())


def test_a_log_that_cannot_be_compacted_keeps_no_other_from_it(tmp_path: Path) -> None:
    async def main() -> None:
        broker = table(tmp_path, log_cleaner_dedupe_buffer_size=24 * 5, log_cleaner_io_buffer_load_factor=1.0)
        cleaner = LogCleaner(broker)
        log = broker.dirs.create(TP, LogConfig(**COMPACT, segment_bytes=400))
        for keys in (6, 6, 6):
            records = [Record(n, 1, b"%d" % n, b"x" * 30) for n in range(keys)]
            log.append_as_leader(build_batch(records), leader_epoch=0, now_ms=1)
        broker.partitions[TP] = SimpleNamespace(topic_partition=TP, log=log, hw=log.leo)
        written(broker, TopicPartition("t", 1), 9, segment_bytes=300, **COMPACT)
        while await cleaner.clean_one():
            assert len(broker.events) < 5
        assert [event for event, _ in broker.events] == ["log.cleaning_aborted", "log.cleaned"]
        assert "too small" in broker.events[0][1]["reason"] and log.leo == 18

    run(main())


def test_a_log_is_compacted_by_one_at_a_time(tmp_path: Path) -> None:
    """Each of them has the next one that is due, and a log that was compacted may be so again."""

    async def main() -> None:
        broker = table(tmp_path, log_cleaner_io_max_bytes_per_second=100_000.0)
        for number in range(2):
            written(broker, TopicPartition("t", number), 30, size=9_000, segment_bytes=90_000, **COMPACT)
        cleaner = LogCleaner(broker)
        assert await asyncio.gather(*(cleaner.clean_one() for _ in range(3))) == [True, True, False]
        assert sorted(partition for partition, _, _ in cleaned(broker)) == [0, 1]
        written(broker, TP._replace(partition=2), 9, segment_bytes=300, **COMPACT)
        assert await cleaner.clean_one() and not await cleaner.clean_one()

    run(main())


#: threads, load factor, keys that fit: the buffer has room for 24
ROOMS = [(1, 1.0, 24), (2, 1.0, 12), (3, 0.5, 4), (0, 0.26, 6)]


@pytest.mark.parametrize(("threads", "load", "room"), ROOMS)
def test_each_thread_has_its_part_of_the_buffer(tmp_path: Path, threads: int, load: float, room: int) -> None:
    async def main() -> None:
        broker = table(
            tmp_path, log_cleaner_threads=threads, log_cleaner_io_buffer_load_factor=load,
            log_cleaner_dedupe_buffer_size=24 * 24,
        )  # fmt: skip
        written(broker, TP, 60, keys=60, segment_bytes=300, **COMPACT)
        cleaner = LogCleaner(broker)
        assert await cleaner.clean_one()
        assert cleaned(broker) == [(0, 0, room)]
        cleaner.start()
        assert len(broker.supervisor.running) == threads
        await cleaner.stop()

    run(main())


@pytest.mark.parametrize("change", ["before the start", "after it", "none"])
def test_another_number_of_threads_counts_from_the_next_start_on_and_so_do_their_parts(
    tmp_path: Path, change: str
) -> None:
    """Else the one that there is would have the part of one of many, in which the keys of a batch may find no room."""

    async def main() -> None:
        broker = table(tmp_path, log_cleaner_dedupe_buffer_size=24 * 24, log_cleaner_io_buffer_load_factor=1.0)
        cleaner, more = LogCleaner(broker), replace(broker.settings, log_cleaner_threads=2)
        broker.settings = more if change == "before the start" else broker.settings
        cleaner.start()
        broker.settings = more if change == "after it" else broker.settings
        written(broker, TP, 60, keys=60, segment_bytes=300, **COMPACT)
        threads = len(broker.supervisor.running)
        await asyncio.sleep(1)
        assert (threads, cleaned(broker)[0]) == ((2, (0, 0, 12)) if change == "before the start" else (1, (0, 0, 24)))
        await cleaner.stop()

    run(main())


@pytest.mark.parametrize("watermark", range(10))
def test_no_record_gives_way_to_one_that_is_not_committed(tmp_path: Path, watermark: int) -> None:
    """It may be cut off again, and then the key would have no value at all. Segments end at 3, 6 and 9."""

    async def main() -> None:
        broker = table(tmp_path)
        partition = written(broker, TP, 9, segment_bytes=300, **COMPACT)
        partition.hw = watermark
        while await LogCleaner(broker).clean_one():
            pass
        partition.log.truncate(watermark)
        assert [r.offset for batch in partition.log.batches() for r in iterate(batch)][-1:] == [
            watermark - 1 for _ in range(watermark and 1)
        ]

    run(main())


@pytest.mark.parametrize("rate", [50_000.0, 1_000.0, 0.5])
def test_compaction_keeps_to_its_rate_and_the_time_of_what_it_rewrites(tmp_path: Path, rate: float) -> None:
    """It pauses after each 64 KiB that it has read of a segment, twice: for the keys, and to rewrite it."""

    async def main() -> None:
        broker = table(tmp_path, log_cleaner_io_max_bytes_per_second=rate)
        log = written(broker, TP, 47, size=9_000, segment_bytes=300_000, segment_index_bytes=1_000, **COMPACT).log
        first, last = log.segments
        first.set_last_modified(1_234.0)
        paused, since = 0, 0
        for _, header in first.headers():
            since += header.size
            if since >= 1 << 16:
                paused, since = paused + since, 0
        assert await LogCleaner(broker).clean_one()
        assert asyncio.get_running_loop().time() == pytest.approx(2 * paused / max(rate, 1.0))
        assert log.segments[0].last_modified_s() == 1_234.0 and log.segments[-1] is last
        assert log.segments[0].size < first.size or first.size == 0

    run(main())


@pytest.mark.parametrize("waits", range(3))
def test_no_key_comes_back_in_a_log_that_moves_to_another_dir_while_it_is_compacted(tmp_path: Path, waits: int) -> None:
    """The copy has what was there when it was made, and takes over how far the log is compacted: from then on nothing
    below that is looked at again, so a value would outlive the tombstone above it."""
    world, left = World(tmp_path / "a", others=(str(tmp_path / "b"),)), iter(range(waits, -1, -1))
    for value in (b"1", b"2", None, *(b"" for _ in range(9))):
        world.write((b"gone" if value != b"" else b"filler", value), (b"filler", b"x" * 60))

    def begin_to_move() -> None:
        if not next(left, True):
            future = world.dirs.create_future(TP, list(world.dirs)[1])
            future.append_as_follower(b"".join(world.log.batches()), now_ms=1)

    world.meanwhile = begin_to_move
    assert world.clean()
    assert world.dirs.future(TP) is not None
    world.dirs.replace_by_future(TP, high_watermark=world.log.leo)
    log = world.dirs.get(TP)
    assert log is not None
    world.log = world.partition.log = log
    for _ in range(3):
        for _ in range(9):
            world.write((b"filler", b"x" * 60))
        world.now_ms += 2_000
        assert world.clean()
    assert {record.key for record in world.records()} == {b"filler"}


def test_segments_that_become_one_have_the_time_of_the_last_of_them(tmp_path: Path) -> None:
    """Retention counts from that time. Source: Kafka 3.9 `Cleaner.cleanSegments`."""

    async def main() -> None:
        broker = table(tmp_path)
        log = written(broker, TP, 12, segment_bytes=200, **COMPACT).log
        log.config = replace(log.config, segment_bytes=100_000)
        sealed = log.segments[:-1]
        assert len(sealed) > 3
        for number, segment in enumerate(sealed):
            segment.set_last_modified(1_000.0 + number)
        assert await LogCleaner(broker).clean_one()
        assert [s.last_modified_s() for s in log.segments[:-1]] == [1_000.0 + len(sealed) - 1]

    run(main())


def test_the_cleaner_looks_again_after_its_backoff(tmp_path: Path) -> None:
    async def main() -> None:
        broker = table(tmp_path, log_cleaner_backoff_ms=15_000)
        cleaner, times = LogCleaner(broker), list[int]()
        broker.now_ms = lambda: times.append(round(asyncio.get_running_loop().time() * 1000)) or 0
        cleaner.start()
        await asyncio.sleep(50)
        assert times == [0, 15_000, 30_000, 45_000]
        await cleaner.stop()
        broker.settings = ReplicaSettings(log_dirs=(), log_cleaner_enable=False)
        other = LogCleaner(broker)
        other.start()
        assert broker.supervisor.running == []

    run(main())
