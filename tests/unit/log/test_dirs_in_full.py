"""Several dirs with several logs: all that they say after each kind of end, where logs go, how dirs are named."""

from __future__ import annotations

import os
import random
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from broker_sim.log import checkpoints
from broker_sim.log.config import LogConfig
from broker_sim.log.dirs import LogDirs
from broker_sim.log.errors import StorageFailure
from broker_sim.log.files import Files
from broker_sim.log.log import Log
from broker_sim.log.log_dir import (
    LogDir,
    future_name,
    has_future_name,
    parse_folder_name,
    parse_future_name,
    set_aside_name,
)
from broker_sim.log.stored_log import LogHooks
from controller.wire.records import build_values
from controller.wire.types import TopicPartition
from tests.forked import forked_off
from tests.worlds.logs import append, new_log, reopened

HEX = "0123456789abcdef" * 2
A, B, C, D = (TopicPartition(topic, number) for topic, number in (("a", 0), ("b", 1), ("c-d", 2), ("d", 10)))


def opened(folder: Path, names: str = "xy", files: Files | None = None, seed: int = 1) -> LogDirs:
    dirs = LogDirs(tuple(str(folder / name) for name in names), random.Random(seed), files)
    dirs.open(broker_id=1, cluster_id="c", config_of=lambda topic: LogConfig(segment_bytes=300), now_ms=7)
    return dirs


def filled(dirs: LogDirs, tp: TopicPartition, count: int, start: int = 0) -> Log:
    """A log of so many batches of one record, which begins at `start`."""
    log = dirs.create(tp, LogConfig(segment_bytes=300), now_ms=5)
    for _ in range(count):
        log.append_as_leader(build_values([(b"k", b"v" * 30)], timestamp=1), leader_epoch=0, now_ms=1)
    log.raise_log_start(start)
    return log


# -- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a-0", A), ("c-d-2", C), ("d-010", D), ("-0", None), ("a", None), ("a-", None), ("a-x", None), ("-", None),
     (f"a-0.{HEX}-stray", None), (f"a-0.{HEX}-0", TopicPartition(f"a-0.{HEX}", 0)), ("a-1x", None)],
)  # fmt: skip
def test_names_of_folders(name: str, expected: TopicPartition | None) -> None:
    assert parse_folder_name(name) == expected
    assert parse_future_name(f"{name}.{HEX}-future") == expected
    assert parse_future_name(name) is parse_future_name(f"{name}.{HEX}-delete") is None
    assert parse_future_name(f"{name}.{HEX}0-future") is parse_future_name(f"{name}.{HEX[1:]}-future") is None


@pytest.mark.parametrize("partition", [0, 12])
def test_names_have_255_characters_at_most(partition: int) -> None:
    room = 255 - len(f"-{partition}.{HEX}-future")
    for size in (1, room - 1, room, room + 1, 249):
        tp = TopicPartition("t" * size, partition)
        assert future_name(tp, HEX) == f"{'t' * size}-{partition}.{HEX}-future"
        assert has_future_name(tp) is (len(future_name(tp, HEX)) <= 255)
        for suffix in ("-delete", "-stray"):
            tail = f"-{partition}.{HEX}{suffix}"
            assert set_aside_name(tp, HEX, suffix) == "t" * min(size, 255 - len(tail)) + tail


def test_names_that_no_two_logs_share(tmp_path: Path) -> None:
    for seed in range(12):
        dirs = opened(tmp_path / str(seed), "x", seed=seed)
        dirs.create(A, LogConfig())
        future = dirs.create_future(A, next(iter(dirs)))
        assert re.fullmatch(r"a-0\.[0-9a-f]{32}-future", future.folder.name)
        assert re.fullmatch(r"a-0\.[0-9a-f]{32}-stray", dirs.put_aside(future).name)
        dirs.unlock()


def test_dirs_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dirs = LogDirs(("x", str(tmp_path / "y")), random.Random(1))
    x, y = dirs
    for name, expected in (
        ("x", x), ("./x", x), ("x/", x), (str(tmp_path / "x"), x), (str(tmp_path / "y"), y), (f"{tmp_path}/y/", y),
        ("y", None), ("z", None), ("", None),
    ):  # fmt: skip
        assert dirs.by_name(name) is expected, name


# -- what comes back --------------------------------------------------------------------------------------------------


def told(dirs: LogDirs) -> dict[str, dict[TopicPartition, tuple[Any, ...]]]:
    """By dir: start, end, recovery point, high watermark and cleaned offset of each log; of future ones too."""
    return {
        log_dir.path.name: {
            log.topic_partition: (
                log.log_start_offset, log.leo, log.recovery_point, dirs.checkpointed_high_watermark(log),
                dirs.cleaned_up_to(log) if log is dirs.get(log.topic_partition) else "future",
            )
            for log in log_dir.all_logs()
        }
        for log_dir in dirs
    }  # fmt: skip


@pytest.mark.parametrize("is_clean", [True, False])
def test_each_log_comes_back_with_what_was_said_of_it(tmp_path: Path, is_clean: bool) -> None:
    dirs = opened(tmp_path)
    x, _ = dirs
    a, b, c, _ = filled(dirs, A, 9, 4), filled(dirs, B, 5), filled(dirs, C, 6, 1), filled(dirs, D, 2, 2)
    assert [log.log_dir.name for log in (a, b, c)] == ["x", "y", "x"]
    future = dirs.create_future(B, x)
    future.append_as_follower(b"".join(b.batches())[:-1], now_ms=1)
    for log in (a, c):
        log.flushed(3)
    dirs.set_cleaned_up_to(a, 8)
    watermarks, future_watermarks = {A: 7, B: 5, C: 99, TopicPartition("gone", 0): 5}, {B: 3, A: 1}
    for write in dirs.high_watermark_writers(watermarks, {B: 2}):
        write()
    for log_dir in dirs:
        log_dir.write_recovery_points()
        log_dir.write_log_starts()
    said = [checkpoints.read_offsets(tmp_path / name / checkpoints.LOG_START_FILE) for name in "xy"]
    assert said == [{A: 4, C: 1}, {D: 2}], "those that start above their first segment"
    strangers = {"lost+found", f"b-0.{HEX}-stray", "0", "backup-delete", "a-0-delete", f"a-0.{HEX}-delete-later"}
    for name in (*strangers, f"a-0.{HEX}-delete"):
        (tmp_path / "x" / name).mkdir()
    (tmp_path / "x" / "e-0").write_text("no folder")
    if is_clean:
        assert dirs.close(
            clean=True, broker_epoch=3, high_watermarks=watermarks, future_high_watermarks=future_watermarks
        ) == []  # fmt: skip
    dirs.unlock()
    again = opened(tmp_path)
    assert told(again) == {
        "x": {
            A: (4, 9, 9 if is_clean else 3, 7, 8), C: (1, 6, 6 if is_clean else 3, 6, None),
            B: (0, 4, 4 if is_clean else 0, 3 if is_clean else 2, "future"),
        },
        "y": {B: (0, 5, 5 if is_clean else 0, 5, None), D: (2, 2, 2 if is_clean else 0, 2, None)},
    }  # fmt: skip
    assert [d.was_clean for d in again] == [is_clean] * 2
    names = {path.name for path in (tmp_path / "x").iterdir()}
    assert strangers <= names and f"a-0.{HEX}-delete" not in names
    again.unlock()


def test_a_watermark_lies_within_its_log(tmp_path: Path) -> None:
    dirs = opened(tmp_path, "x")
    log, log_dir = filled(dirs, A, 9, 4), next(iter(dirs))
    for saved, expected in ((None, 4), (0, 4), (4, 4), (6, 6), (9, 9), (10, 9)):
        log_dir.high_watermarks = {} if saved is None else {A: saved}
        assert dirs.checkpointed_high_watermark(log) == expected
    empty = dirs.create(B, LogConfig())
    assert dirs.checkpointed_high_watermark(empty) == 0
    dirs.unlock()


def test_a_log_without_a_new_watermark_keeps_its_own_and_one_that_is_gone_has_none(tmp_path: Path) -> None:
    dirs = opened(tmp_path, "x")
    (log_dir,) = dirs
    for tp in (A, B, C):
        filled(dirs, tp, 5)
    path = tmp_path / "x" / checkpoints.HIGH_WATERMARK_FILE
    for current, gone, expected in (
        ({A: 1, B: 2, C: 3}, None, {A: 1, B: 2, C: 3}),
        ({B: 4}, None, {A: 1, B: 4, C: 3}),
        ({A: 2}, B, {A: 2, C: 3}),
        ({}, C, {A: 2}),
    ):
        if gone is not None:
            log = dirs.get(gone)
            assert log is not None and log_dir.holds(log)
            dirs.delete(log)
            assert not log_dir.holds(log)
        log_dir.write_high_watermarks(current, {})
        assert checkpoints.read_offsets(path) == expected
    dirs.unlock()


def test_a_cut_of_a_log_that_moves_takes_back_what_the_checkpoint_of_its_dir_says(tmp_path: Path) -> None:
    """Both lie in dirs of their own; what a kill finds above the cut was never on the disk for certain."""
    dirs = opened(tmp_path)
    log = filled(dirs, A, 9)
    future = dirs.create_future(A, next(each for each in dirs if each is not dirs.dir_of(log)), now_ms=0)
    for batch in log.batches():
        future.append_as_follower(batch, now_ms=0)
    for each in (log, future):
        each.flush()
        dirs.dir_of(each).write_recovery_points()
    for cut, end, expected in ((log, 7, [7, 9]), (future, 5, [7, 5])):
        cut.truncate(end)
        paths = [dirs.dir_of(each).path / checkpoints.RECOVERY_POINT_FILE for each in (log, future)]
        assert [checkpoints.read_offsets(path)[A] for path in paths] == expected
    dirs.unlock()


def test_a_cut_takes_back_what_checkpoints_say_and_nothing_else(tmp_path: Path) -> None:
    written: list[str] = []
    files = Files(lambda operation, path: written.append(path.name) if operation == "replace" else None)
    dirs = opened(tmp_path, "x", files)
    log, other = filled(dirs, A, 9), filled(dirs, B, 9)
    for each in (log, other):
        each.flush()
        dirs.set_cleaned_up_to(each, 6)
    dirs.dir_of(log).write_recovery_points()
    for end, points, cleaned, files_written in (
        (9, 9, 6, []),
        (8, 8, 6, [checkpoints.RECOVERY_POINT_FILE]),
        (6, 6, 6, [checkpoints.RECOVERY_POINT_FILE]),
        (5, 5, 5, [checkpoints.RECOVERY_POINT_FILE, checkpoints.CLEANER_FILE]),
    ):
        written.clear()
        log.truncate(end)
        assert [name for name in written if "epoch" not in name] == files_written
        said = [
            checkpoints.read_offsets(tmp_path / "x" / name)
            for name in (checkpoints.RECOVERY_POINT_FILE, checkpoints.CLEANER_FILE)
        ]
        assert said == [{A: points, B: 9}, {A: cleaned, B: 6}]
    dirs.unlock()


@pytest.mark.parametrize("kept", [9, 8, 6, 5, 0])
def test_a_start_that_finds_a_log_shorter_takes_back_what_checkpoints_say_of_it(tmp_path: Path, kept: int) -> None:
    """Else what is written there next is not looked at after a kill, and counts as compacted."""
    dirs = opened(tmp_path, "x")
    log, other = filled(dirs, A, 9), filled(dirs, B, 9)
    for each in (log, other):
        each.flush()
        dirs.set_cleaned_up_to(each, 6)
    dirs.dir_of(log).write_recovery_points()
    dirs.unlock()
    for segment in log.segments:
        left, whole = kept - segment.base_offset, segment.next_offset - segment.base_offset
        if left <= 0:
            segment.log_path.unlink()
        elif left < whole:
            os.truncate(segment.log_path, segment.size // whole * left)
    dirs = opened(tmp_path, "x")
    found = dirs.get(A)
    assert found is not None and found.leo == kept
    said = [
        checkpoints.read_offsets(tmp_path / "x" / name)
        for name in (checkpoints.RECOVERY_POINT_FILE, checkpoints.CLEANER_FILE)
    ]
    assert said == [{A: kept, B: 9}, {A: min(kept, 6), B: 6}]
    dirs.unlock()


# -- dirs that fail ---------------------------------------------------------------------------------------------------


def test_a_dir_that_fails_is_let_alone_and_its_logs_are_gone(tmp_path: Path) -> None:
    dirs = opened(tmp_path)
    filled(dirs, A, 3)
    filled(dirs, B, 3)
    dirs.create_future(B, next(iter(dirs)))
    assert (dirs.any_offline, dirs.all_offline) == (False, False)
    x, y = (d.name for d in dirs)
    assert dirs.take_offline(x) == [A] and dirs.take_offline(x) is None
    assert (dirs.any_offline, dirs.all_offline, dirs.get(A), dirs.future(B)) == (True, False, None, None)
    assert [log.topic_partition for log in dirs.all_logs()] == [B]
    assert dirs.create(C, LogConfig()).log_dir.name == "y"
    other = opened(tmp_path, "x")
    other.unlock()
    assert dirs.close(clean=True, broker_epoch=1, high_watermarks={}) == []
    marks = [(tmp_path / name / checkpoints.CLEAN_SHUTDOWN_FILE).exists() for name in "xy"]
    assert marks == [False, True], "nobody writes there"
    opened(tmp_path, "y").unlock()
    dirs.take_offline(y)
    assert dirs.all_offline
    with pytest.raises(StorageFailure, match="no log dir is online"):
        dirs.create(D, LogConfig())


@pytest.mark.parametrize("failing", ["x", "y"])
def test_a_dir_that_fails_while_it_is_closed_keeps_no_other_from_it(tmp_path: Path, failing: str) -> None:
    dirs = opened(tmp_path)
    for tp in (A, B):
        filled(dirs, tp, 3)

    def broken(operation: str, path: Path) -> None:
        if operation == "sync" and tmp_path / failing in path.parents:
            raise OSError(5, "Input/output error")

    dirs.files.before = broken
    assert dirs.close(clean=True, broker_epoch=1, high_watermarks={A: 1, B: 2}) == [tmp_path / failing]
    marks = {name: (tmp_path / name / checkpoints.CLEAN_SHUTDOWN_FILE).exists() for name in "xy"}
    assert marks == {name: name != failing for name in "xy"}
    opened(tmp_path).unlock()


def test_where_a_log_is_wanted(tmp_path: Path) -> None:
    dirs = opened(tmp_path, "xyz")
    y, z = (str(tmp_path / name) for name in "yz")
    dirs.prefer(A, z)
    assert [dirs.create(tp, LogConfig()).log_dir.name for tp in (B, A, C)] == ["x", "z", "y"]
    future = dirs.create_future(A, dirs.by_name(y))
    for name in (z, y):
        dirs.prefer(A, name)
    dirs.put_aside(future)
    dirs.delete(dirs.get(A))
    assert dirs.create(A, LogConfig()).log_dir.name == "z", "the fewest: there it lay, so nothing was remembered"
    dirs.prefer(D, y)
    assert dirs.create(D, LogConfig()).log_dir.name == "y"
    dirs.delete(dirs.get(D))
    assert dirs.create(D, LogConfig()).log_dir.name == "x", "the wish was for once"
    dirs.unlock()


# -- one dir ----------------------------------------------------------------------------------------------------------


def test_a_dir_is_made_locked_and_marked_once(tmp_path: Path) -> None:
    log_dir = LogDir(tmp_path / "new" / "x", "x", Files())
    assert (log_dir.is_online, log_dir.was_clean, log_dir.lock, log_dir.space()) == (True, True, None, (-1, -1))
    before = os.umask(0)
    try:
        log_dir.claim(broker_id=1, cluster_id="c")
        assert stat.S_IMODE((log_dir.path / ".lock").stat().st_mode) == 0o644
    finally:
        os.umask(before)
    total, usable = log_dir.space()
    assert 0 < usable <= total
    meta = log_dir.path / checkpoints.META_FILE
    log_dir.unlock()
    log_dir.unlock()
    for text in ("broker.id=1\ncluster.id=c\n#kept\nversion=0\n", "broker.id=1\nversion=0\n"):
        meta.write_text(text)
        log_dir.claim(broker_id=1, cluster_id="c")
        is_kept = "#kept" in text
        assert (meta.read_text() == text) is is_kept
        assert checkpoints.read_meta(meta) == checkpoints.MetaProperties(broker_id=1, cluster_id="c")
        log_dir.unlock()


def test_each_segment_has_its_part_of_the_jitter_before_and_after_a_start(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=300, segment_jitter_ms=1_000)
    dirs = opened(tmp_path, "x")
    log = dirs.create(A, config)
    for _ in range(20):
        log.append_as_leader(build_values([(b"k", b"v" * 30)], timestamp=1), leader_epoch=0, now_ms=1)
    dirs.unlock()
    again = LogDirs((str(tmp_path / "x"),), random.Random(2))
    again.open(broker_id=1, cluster_id="c", config_of=lambda topic: config, now_ms=7)
    found = again.get(A)
    assert found is not None
    for segments in (log.segments, found.segments):
        parts = {segment.jitter_ms for segment in segments}
        assert len(parts) > len(segments) // 2 and 0 <= min(parts) <= max(parts) < 1_000
    again.unlock()


def test_who_was_forked_meanwhile_does_not_keep_a_dir(tmp_path: Path) -> None:
    log_dir = LogDir(tmp_path / "x", "x", Files())
    log_dir.claim(broker_id=1, cluster_id="c")
    with forked_off():
        log_dir.unlock()
        log_dir.claim(broker_id=1, cluster_id="c")
        log_dir.unlock()


def test_a_log_for_which_nothing_is_said(tmp_path: Path) -> None:
    hooks, dirs = LogHooks(), opened(tmp_path / "dirs", "x")
    assert hooks.jitter_of(9) == 0
    assert [dirs.create(tp, LogConfig()).segments[0].created_ms for tp in (A, B)] == [0, 0]
    assert dirs.create_future(A, next(iter(dirs))).segments[0].created_ms == 0
    assert dirs.create(C, LogConfig(), now_ms=5).segments[0].created_ms == 5
    assert dirs.create_future(C, next(iter(dirs)), now_ms=6).segments[0].created_ms == 6
    dirs.unlock()
    log = new_log(tmp_path)
    state = log.log_start_offset, log.leo, log.recovery_point, log.flushed_ms, log.version, log.size_bytes
    assert (state, log.segments[0].base_offset, log.segments[0].created_ms) == ((0,) * 6, 0, 0)
    again, repairs = reopened(log)
    assert (again.segments[0].created_ms, again.leo, again.recovery_point, repairs) == (0, 0, 0, [])
    for at in (5, 5, 9):
        append(log, at=at)
    assert log.read(0, max_bytes=1, bound=3) == b"" != log.read(0, max_bytes=1, bound=3, min_one=True)
    assert log.unflushed() == [] and len(log.unflushed(include_active=True)) == 4
    log.flush(now_ms=8)
    log.flush()
    assert (log.flushed_ms, log.recovery_point) == (0, 3)
    again, _ = reopened(log)
    assert (again.log_start_offset, again.recovery_point) == (0, 0)
    for length, expected in ((0, False), (40, True)):
        (tmp_path / f"many{length}").mkdir()
        many = new_log(tmp_path / f"many{length}")
        for _ in range(length):
            append(many)
        assert (len(many.segments) > 1) is expected


def test_an_offset_that_fits_no_file_name_is_passed_over(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log)
    for name in (f"{9:019d}.log", f"{9:021d}.log", "x" * 20 + ".log", f"{9:020d}.other", f"{9:020d}x.index", "log"):
        (log.folder / name).write_bytes(b"x")
    again, repairs = reopened(log)
    assert (again.leo, repairs, len(again.segments)) == (1, [], 1)
    orphans = [f"{9:020d}.{kind}" for kind in ("index", "timeindex", "txnindex")]
    for name in orphans:
        (log.folder / name).write_bytes(b"x")
    _, repairs = reopened(log)
    assert [(repair.path.name, repair.lost_bytes) for repair in repairs] == [(name, 0) for name in orphans]
    assert not [name for name in orphans if (log.folder / name).exists()]
