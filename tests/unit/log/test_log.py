"""A log on disk: appends, reads, rolls, cuts, retention, and what is left after a kill at any byte."""

from __future__ import annotations

import os
import struct
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_sim.config import ReplicaSettings
from broker_sim.log.config import LogConfig, log_config
from broker_sim.log.errors import OffsetOutOfRange, StorageFailure
from broker_sim.log.log import Log, UnexpectedOffset
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.records import CorruptBatch, batches, build_batch, build_values, iterate
from controller.wire.types import TopicPartition

TP = TopicPartition("t", 0)
SMALL = LogConfig(segment_bytes=1_000, segment_index_bytes=10_000, index_interval_bytes=150, retention_ms=-1)


def new_log(folder: Path, config: LogConfig = SMALL) -> Log:
    log = Log(TP, folder / "t-0", config)
    log.create()
    return log


def reopened(log: Log, *, is_clean: bool) -> tuple[Log, int]:
    """The log as a new start finds it, and how many bytes it lost."""
    again = Log(TP, log.folder, log.config)
    return again, sum(repair.lost_bytes for repair in again.load(is_clean=is_clean))


def append(log: Log, count: int = 1, *, size: int = 10, timestamp: int = 1_000, epoch: int = 0) -> None:
    log.append_as_leader(
        build_values([(None, b"x" * size)] * count, timestamp=timestamp), leader_epoch=epoch, now_ms=timestamp
    )


def everything(log: Log) -> list[tuple[int, int]]:
    return [(r.offset, r.timestamp) for r in iterate(b"".join(log.batches()))]


BATCHES = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 120), st.integers(0, 50)), min_size=1, max_size=25)


def filled(folder: Path, plan: Any) -> Log:
    log = new_log(folder)
    for count, size, timestamp in plan:
        append(log, count, size=size, timestamp=1_000 + timestamp)
    return log


@settings(max_examples=30, deadline=None)
@given(BATCHES, st.data())
def test_what_was_read_before_changes_no_read(plan: Any, data: Any) -> None:
    """A search may begin where the last one ended, also after a cut and new batches; it finds what a new start does."""
    with tempfile.TemporaryDirectory() as folder:
        log = filled(Path(folder), plan)
        for _ in range(6):
            if data.draw(st.booleans()):
                log.truncate(data.draw(st.integers(0, log.leo)))
                for size in data.draw(st.lists(st.integers(0, 60), min_size=4, max_size=12)):
                    append(log, 2, size=size)
            offset = data.draw(st.integers(0, log.leo - 1))
            limits = {"max_bytes": data.draw(st.integers(1, 600)), "bound": log.leo, "min_one": True}
            again, _ = reopened(log, is_clean=True)
            assert log.read(offset, **limits) == again.read(offset, **limits)


@settings(max_examples=30, deadline=None)
@given(BATCHES, st.data())
def test_reads_agree_with_a_linear_scan(plan: Any, data: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = filled(Path(folder), plan)
        stored = [(h.base_offset, h.next_offset, h.size) for s in log.segments for _, h in s.headers()]
        offset = data.draw(st.integers(0, log.leo))
        bound = data.draw(st.integers(0, log.leo))
        max_bytes = data.draw(st.integers(0, 600))
        got = [
            (h.base_offset, h.next_offset, h.size)
            for _, h in batches(log.read(offset, max_bytes=max_bytes, bound=bound, min_one=True))
        ]
        whole = [b for b in stored if b[1] > offset and b[1] <= bound] if offset < bound else []
        assert got == whole[: len(got)]
        assert bool(got) == bool(whole)
        assert len(got) <= 1 or sum(b[2] for b in got) <= max_bytes
        assert log.readable_bytes(offset, max_bytes=max_bytes, bound=bound) == sum(b[2] for b in got)


@settings(max_examples=25, deadline=None)
@given(BATCHES)
def test_indexes_point_at_the_batches_and_survive_a_clean_and_an_unclean_start(plan: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = filled(Path(folder), plan)
        for segment in log.segments:
            places = {h.last_offset: position for position, h in segment.headers()}
            assert all(places[offset] == position for offset, position in segment.index_entries)
            raw = segment.index_path.read_bytes()[: 8 * len(segment.index_entries)]
            assert [(o + segment.base_offset, p) for o, p in struct.iter_unpack(">ii", raw)] == segment.index_entries
        for is_clean in (True, False):
            again, lost = reopened(log, is_clean=is_clean)
            assert lost == 0
            assert everything(again) == everything(log)
            assert [s.index_entries for s in again.segments] == [s.index_entries for s in log.segments]
            assert [s.max_timestamp for s in again.segments] == [s.max_timestamp for s in log.segments]
            assert (again.leo, again.epochs.entries) == (log.leo, log.epochs.entries)


@settings(max_examples=25, deadline=None)
@given(BATCHES, st.data())
def test_lookups_by_time_agree_with_a_linear_scan(plan: Any, data: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = filled(Path(folder), plan)
        wanted = data.draw(st.integers(995, 1_060))
        found = log.find_by_time(wanted, bound=log.leo)
        expected = next((r for r in everything(log) if r[1] >= wanted), None)
        assert (None if found is None else (found.offset, found.timestamp)) == expected
        newest = log.find_newest(bound=log.leo)
        most = max(t for _, t in everything(log))
        assert (newest.offset, newest.timestamp) == next(r for r in everything(log) if r[1] == most)


@settings(max_examples=30, deadline=None)
@given(BATCHES, st.data())
def test_truncation_agrees_with_a_list(plan: Any, data: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = filled(Path(folder), plan)
        offset = data.draw(st.integers(0, log.leo))
        whole = [(h.base_offset, h.next_offset) for s in log.segments for _, h in s.headers()]
        log.truncate(offset)
        assert log.leo == offset
        kept = [(h.base_offset, h.next_offset) for s in log.segments for _, h in s.headers()]
        assert kept == [b for b in whole if b[1] <= offset]
        again, _ = reopened(log, is_clean=True)
        assert [s.max_timestamp for s in again.segments] == [s.max_timestamp for s in log.segments]
        append(log)
        assert [r[0] for r in everything(log)] == [o for b in kept for o in range(*b)] + [offset]


def test_a_torn_tail_at_every_byte_is_cut_to_the_last_whole_batch(tmp_path: Path) -> None:
    log = new_log(tmp_path, replace(SMALL, segment_bytes=10_000))
    for _ in range(3):
        append(log, 2)
    path, ends = log.segments[0].log_path, [0, *(p + h.size for p, h in log.segments[0].headers())]
    content = path.read_bytes()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        again, lost = reopened(log, is_clean=False)
        whole = max(e for e in ends if e <= size)
        assert (lost, again.leo) == (size - whole, 2 * ends.index(whole))
        assert path.stat().st_size == whole


def test_a_flipped_byte_anywhere_ends_an_unclean_log_before_its_batch(tmp_path: Path) -> None:
    log = new_log(tmp_path, replace(SMALL, segment_bytes=10_000))
    for _ in range(3):
        append(log, 1)
    path = log.segments[0].log_path
    content = path.read_bytes()
    size = len(content) // 3
    for at in range(size, 2 * size):
        if at - size in (*range(5, 8), *range(12, 16)):
            continue  # the low bytes of the offset and the leader epoch are not under the checksum
        damaged = bytearray(content)
        damaged[at] ^= 0x80
        path.write_bytes(damaged)
        again, lost = reopened(log, is_clean=False)
        assert again.leo == 1, at
        assert lost == len(content) - again.segments[0].size


def test_segments_after_a_corrupt_one_are_removed(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for _ in range(30):
        append(log, 1, size=60)
    assert len(log.segments) > 2
    first = log.segments[0]
    os.truncate(first.log_path, first.size - 1)
    again, lost = reopened(log, is_clean=False)
    assert lost > 1_000
    assert len(again.segments) == 1
    assert sorted(p.name for p in log.folder.iterdir()) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "leader-epoch-checkpoint",
    ]


@pytest.mark.parametrize("damage", [b"", b"abc", b"\x7f" * 16])
def test_a_damaged_index_is_rebuilt_even_after_a_clean_stop(tmp_path: Path, damage: Any) -> None:
    log = new_log(tmp_path, replace(SMALL, segment_bytes=10_000))
    for _ in range(20):
        append(log, 1, size=60)
    entries = log.segments[0].index_entries
    assert entries
    if damage:
        log.segments[0].index_path.write_bytes(damage)
    else:
        log.segments[0].index_path.unlink()
    again, _ = reopened(log, is_clean=True)
    assert again.segments[0].index_entries == entries
    again.close()
    assert log.segments[0].index_path.stat().st_size == 8 * len(entries)


def test_a_follower_copies_batches_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    leader, follower = new_log(tmp_path / "1"), new_log(tmp_path / "2")
    append(leader, 2, epoch=0)
    append(leader, 3, epoch=4)
    data = b"".join(leader.batches())
    assert follower.append_as_follower(data + data[:30], now_ms=0) == len(data)
    assert b"".join(follower.batches()) == data
    assert follower.epochs.entries == [(0, 0), (4, 2)]
    with pytest.raises(UnexpectedOffset):
        follower.append_as_follower(data, now_ms=0)


def test_a_follower_writes_nothing_of_an_answer_with_a_corrupt_batch(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    good = build_values([(None, b"v")], timestamp=1)
    bad = build_batch([next(iterate(good))])[:-1] + b"!"
    with pytest.raises(CorruptBatch):
        log.append_as_follower(good + struct.pack(">q", 1) + bad[8:], now_ms=0)
    assert (log.leo, log.size_bytes) == (0, 0)


def test_an_idempotent_batch_sent_twice_is_stored_once(tmp_path: Path) -> None:
    log = new_log(tmp_path)

    def send(sequence: int, epoch: int = 0) -> Any:
        record = next(iterate(build_values([(None, b"v")], timestamp=1)))
        batch = build_batch([record], producer_id=7, producer_epoch=epoch, base_sequence=sequence)
        return log.append_as_leader(batch, leader_epoch=0, now_ms=1)

    for sequence in range(7):
        assert send(sequence).base_offset == sequence
    again = send(4)
    assert (again.is_duplicate, again.base_offset, again.end_offset, log.leo) == (True, 4, 5, 7)
    for sequence, epoch, code in ((1, 0, 45), (9, 0, 45), (3, 1, 45)):
        with pytest.raises(KafkaError) as caught:
            send(sequence, epoch)
        assert caught.value.code == code
    assert send(0, 1).base_offset == 7
    with pytest.raises(KafkaError) as caught:
        send(7, 0)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    log, _ = reopened(log, is_clean=True)
    assert send(0, 1).is_duplicate


REFUSED = [
    pytest.param({"max_message_bytes": 90}, ErrorCode.MESSAGE_TOO_LARGE, id="above max.message.bytes"),
    pytest.param({"segment_bytes": 90}, ErrorCode.RECORD_LIST_TOO_LARGE, id="above segment.bytes"),
    pytest.param({"message_timestamp_before_max_ms": 10}, ErrorCode.INVALID_TIMESTAMP, id="too old"),
    pytest.param({"cleanup_policy": "compact"}, ErrorCode.INVALID_RECORD, id="no key on a compacted topic"),
]


@pytest.mark.parametrize(("changes", "code"), REFUSED)
def test_a_leader_refuses_and_writes_nothing(tmp_path: Path, changes: Any, code: Any) -> None:
    log = new_log(tmp_path, replace(LogConfig(), **changes))
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(build_values([(None, b"x" * 40)], timestamp=1), leader_epoch=0, now_ms=100)
    assert (caught.value.code, log.leo, log.size_bytes) == (code, 0, 0)


def test_log_append_time_stamps_records(tmp_path: Path) -> None:
    log = new_log(tmp_path, replace(SMALL, message_timestamp_type="LogAppendTime"))
    done = log.append_as_leader(build_values([(None, b"v")], timestamp=1), leader_epoch=0, now_ms=77)
    assert (done.log_append_time_ms, everything(log)) == (77, [(0, 77)])


@pytest.mark.feature("004-04")
def test_a_log_rolls_by_size_age_and_full_index(tmp_path: Path) -> None:
    by_age = new_log(tmp_path, LogConfig(segment_ms=100))
    append(by_age, timestamp=1_000)
    append(by_age, timestamp=1_100)
    append(by_age, timestamp=1_101)
    assert [s.base_offset for s in by_age.segments] == [0, 2]
    (tmp_path / "i").mkdir()
    by_index = new_log(tmp_path / "i", LogConfig(index_interval_bytes=1, segment_index_bytes=24))
    for _ in range(5):
        append(by_index)
    # room for two time entries, the last of which is for the roll
    assert [s.base_offset for s in by_index.segments] == [0, 2, 4]


@pytest.mark.parametrize(
    ("changes", "hw", "expected_start"),
    [
        pytest.param({"retention_ms": 500}, 100, 20, id="by age"),
        pytest.param({"retention_ms": 500}, 9, 9, id="by age, up to the high watermark"),
        pytest.param({"retention_bytes": 1_500}, 100, None, id="by size"),
        pytest.param({"retention_ms": 500, "cleanup_policy": "compact"}, 100, 0, id="not a compacted topic"),
    ],
)
def test_retention_deletes_whole_segments_from_the_start(
    tmp_path: Path, changes: Any, hw: Any, expected_start: Any
) -> None:
    log = new_log(tmp_path)
    for at in range(20):
        log.append_as_leader(build_values([(b"k", b"x" * 100)], timestamp=1_000 + at), leader_epoch=0, now_ms=1_000)
    before = log.size_bytes
    log.config = replace(log.config, **changes)
    log.delete_old_segments(now_ms=5_000, high_watermark=hw)
    if expected_start is None:
        assert before > log.size_bytes >= 1_500
    elif expected_start == 9:
        assert 0 < log.log_start_offset <= 9
    else:
        assert log.log_start_offset == expected_start
    assert [r[0] for r in everything(log)] == list(range(log.log_start_offset, 20))


def test_the_log_start_bounds_reads_and_survives_as_a_checkpoint(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, 5)
    append(log, 5)
    assert log.raise_log_start(3)
    assert not log.raise_log_start(2)
    with pytest.raises(OffsetOutOfRange):
        log.read(2, max_bytes=100, bound=10)
    assert [h.base_offset for _, h in batches(log.read(3, max_bytes=1_000, bound=10))] == [0, 5]
    with pytest.raises(OffsetOutOfRange):
        log.raise_log_start(11)
    log.truncate_fully(42)
    assert (log.log_start_offset, log.leo, log.size_bytes) == (42, 42, 0)
    append(log)
    assert everything(log) == [(42, 1_000)]


def test_a_disk_that_fails_is_named(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.segments[0].log_path.mkdir()
    with pytest.raises(StorageFailure) as caught:
        append(log)
    assert caught.value.log_dir == tmp_path
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.leo == 0


def test_overrides_of_a_topic_are_above_the_brokers_settings() -> None:
    settings_ = ReplicaSettings(log_dirs=("x",), log_segment_bytes=5_000, min_insync_replicas=2)
    config = log_config(settings_, {"segment.bytes": "700", "retention.bytes": "9", "unclean.x": "1"})
    assert (config.segment_bytes, config.retention_bytes, config.min_insync_replicas) == (700, 9, 2)


#: what is stored, as Kafka stores and takes it -> the field of the log's config, and its value
BLANKS = {
    "compression.type": (" gzip ", "gzip"),
    "message.timestamp.type": ("LogAppendTime ", "LogAppendTime"),
    "cleanup.policy": (" compact,delete ", "compact,delete"),
    "segment.bytes": (" +700", 700),
    "min.cleanable.dirty.ratio": (" 0.25 ", 0.25),
}


@pytest.mark.parametrize("name", BLANKS)
def test_blanks_around_a_value_mean_nothing(name: str) -> None:
    stored, meant = BLANKS[name]
    config = log_config(ReplicaSettings(log_dirs=("x",)), {name: stored})
    assert getattr(config, name.replace(".", "_")) == meant
    assert config.is_log_append_time == (name == "message.timestamp.type")


#: the broker's limits (difference, before), the topic's (difference, before) -> what counts (before, after)
LIMITS = [
    ((None, None), ("10", None), (10, 10)),
    ((None, None), ("10", "5"), (5, 10)),
    ((20, None), (None, None), (20, 20)),
    ((20, 7), (None, None), (7, 20)),
    ((None, 7), ("10", None), (7, 10)),
    ((20, None), (None, "5"), (5, 20)),
    ((20, None), (None, str((1 << 63) - 1)), (20, 20)),
]


@pytest.mark.parametrize(("broker", "topic", "counts"), LIMITS)
def test_the_older_limit_of_timestamps_counts_where_the_newer_ones_are_not_set(
    broker: tuple[int | None, int | None], topic: tuple[str | None, str | None], counts: tuple[int, int]
) -> None:
    names = ("log_message_timestamp_difference_max_ms", "log_message_timestamp_before_max_ms")
    given = {name: value for name, value in zip(names, broker, strict=True) if value is not None}
    topic_names = ("message.timestamp.difference.max.ms", "message.timestamp.before.max.ms")
    overrides = {name: value for name, value in zip(topic_names, topic, strict=True) if value is not None}
    config = log_config(ReplicaSettings(log_dirs=("x",), **given), overrides)
    assert (config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms) == counts
