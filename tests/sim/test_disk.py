"""A disk that loses its power keeps what was synced, and of the rest whatever it likes."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from broker_sim.log.config import LogConfig
from broker_sim.log.log import Log
from broker_sim.log.rolling import count_deletable, largest_timestamp
from controller.sim.disk import WRITE_BACK_S, SimulatedDisk, give_way
from controller.wire.records import Record, build_batch
from controller.wire.types import TopicPartition
from controller.world.simulated.clock import START_MS


class Power:
    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.now_s = 0.0
        self.disk = SimulatedDisk(random.Random(seed), lambda: self.now_s)
        self.log, self.checkpoint = folder / "log", folder / "checkpoint"


def test_what_is_synced_survives_and_what_is_not_may_go(tmp_path: Path) -> None:
    lengths = set()
    for seed in range(40):
        folder = tmp_path / str(seed)
        folder.mkdir()
        power = Power(folder, seed)
        power.disk.append(power.log, b"synced")
        power.disk.sync(power.log)
        power.disk.append(power.log, b"lost")
        assert power.disk.synced_bytes(power.log) == 6
        power.disk.lose_power()
        content = power.log.read_bytes()
        assert content.startswith(b"synced")
        assert content[6:] == b"lost"[: len(content) - 6] or content.endswith(b"\0")
        lengths.add(content[6:])
        assert power.disk.synced_bytes(power.log) is None
    assert {b"", b"lost"} < lengths, "all, nothing, and parts"
    assert any(b"\0" in rest for rest in lengths), "torn ends"


def test_a_replaced_file_without_a_sync_may_be_the_old_one_for_a_while(tmp_path: Path) -> None:
    def content(seed: int, *, sync: bool, later_s: float, synced_later: bool = False) -> bytes:
        power = Power(tmp_path, seed)
        power.disk.replace(power.checkpoint, b"old", sync=True)
        power.disk.replace(power.checkpoint, b"new", sync=sync)
        power.now_s += later_s
        if synced_later:
            power.disk.sync(power.checkpoint)
        power.disk.lose_power()
        return power.checkpoint.read_bytes()

    assert {content(seed, sync=False, later_s=1) for seed in range(20)} == {b"old", b"new"}
    assert {content(seed, sync=True, later_s=1) for seed in range(20)} == {b"new"}
    assert {content(seed, sync=False, later_s=WRITE_BACK_S + 1) for seed in range(20)} == {b"new"}
    assert {content(seed, sync=False, later_s=1, synced_later=True) for seed in range(20)} == {b"new"}


def test_what_is_known_of_a_file_goes_with_its_folder(tmp_path: Path) -> None:
    power = Power(tmp_path)
    old, new = tmp_path / "t-0", tmp_path / "t-0.x-delete"
    power.disk.make_folder(old)
    power.disk.append(old / "log", b"12345")
    power.disk.rename(old, new)
    assert power.disk.synced_bytes(new / "log") == 0 and power.disk.synced_bytes(old / "log") is None


def test_a_file_cut_below_its_synced_end_has_no_more_than_that(tmp_path: Path) -> None:
    power = Power(tmp_path)
    power.disk.append(power.log, b"123456")
    power.disk.sync(power.log)
    power.disk.append(power.log, b"78")
    power.disk.resize(power.log, 4)
    assert power.disk.synced_bytes(power.log) is None, "what is left was synced"
    power.disk.append(power.log, b"9")
    assert power.disk.synced_bytes(power.log) == 4
    power.disk.lose_power()
    assert power.log.read_bytes()[:4] == b"1234"


def test_a_failing_folder(tmp_path: Path) -> None:
    power = Power(tmp_path)
    power.disk.append(power.log, b"1")
    power.disk.failing[tmp_path] = errno.ENOSPC
    power.disk.sync(power.log)
    with pytest.raises(OSError, match="No space left"):
        power.disk.append(power.log, b"2")
    assert power.disk.synced_bytes(power.log) is None, "nothing was added to what is synced"
    assert power.disk.read(power.log, 1, 0) == b"1", "a full disk can be read"
    power.disk.failing[tmp_path] = errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        power.disk.read(power.log, 1, 0)


def test_a_folder_that_fails_midway_has_failed_for_good(tmp_path: Path) -> None:
    power = Power(tmp_path)
    power.disk.fail_at(tmp_path, "append", 2, errno.EIO)
    power.disk.append(power.log, b"1")
    assert not power.disk.has_failed
    with pytest.raises(OSError, match="Input/output error"):
        power.disk.append(power.log, b"2")
    power.disk.failing.clear()
    assert power.disk.has_failed, "whoever starts meanwhile does not know of the logs in it"


def test_of_two_logs_of_a_partition_the_one_in_the_dir_that_failed_goes(tmp_path: Path) -> None:
    failed, other = tmp_path / "broker-1", tmp_path / "broker-1-2"
    for folder in (failed / "t-0", failed / "t-1", failed / "cleaner", other / "t-0", other / "cleaner"):
        folder.mkdir(parents=True)
    give_way([failed, tmp_path / "none"], [other])
    assert sorted(folder.name for folder in failed.iterdir()) == ["cleaner", "t-1"]
    assert sorted(folder.name for folder in other.iterdir()) == ["cleaner", "t-0"]


def test_where_both_dirs_have_failed_the_log_in_the_first_of_them_goes(tmp_path: Path) -> None:
    first, second, other = (tmp_path / f"broker-1{suffix}" for suffix in ("", "-2", "-3"))
    for folder in (first / "t-0", second / "t-0", second / "t-1", other / "t-1"):
        folder.mkdir(parents=True)
    give_way([first, second], [other])
    assert [sorted(each.name for each in folder.iterdir()) for folder in (first, second, other)] == [
        [],
        ["t-0"],
        ["t-1"],
    ]


def test_what_waits_for_a_sync_is_known_by_the_first_segment_of_each_log(tmp_path: Path) -> None:
    power, names = Power(tmp_path), [f"{base:020d}.log" for base in (0, 7, 12)]
    for name in (*names[::-1], f"{3:020d}.index"):
        power.disk.append(tmp_path / name, b"records")
    assert power.disk.unsynced_from() == {str(tmp_path): 0}
    power.disk.sync(tmp_path / names[0])
    assert power.disk.unsynced_from() == {str(tmp_path): 7}
    for name in names[1:]:
        power.disk.sync(tmp_path / name)
    assert power.disk.unsynced_from() == {}, "indexes are built anew"


def test_files_have_the_time_of_day_of_their_machine(tmp_path: Path) -> None:
    """Else what has no time of its own is years younger than the world, and never expires."""
    day_ms = [START_MS]
    disk = SimulatedDisk(random.Random(1), lambda: 0.0, lambda: day_ms[0])
    log = Log(TopicPartition("t", 0), tmp_path / "t-0", LogConfig(segment_bytes=100, retention_ms=2000), files=disk)
    log.create()
    for _ in range(3):
        log.append_as_leader(build_batch([Record(0, -1, None, b"of no time")]), leader_epoch=0, now_ms=day_ms[0])
    first, last = log.segments[0], log.segments[-1]
    assert first is not last and largest_timestamp(first) == START_MS
    day_ms[0] += 1500
    disk.append(last.log_path, b"")
    assert largest_timestamp(last) == START_MS + 1500
    found = [first, last]
    count = count_deletable(found, log.config, now_ms=START_MS + 2500, high_watermark=9, leo=9, log_start=0)
    assert count == 1, "the first is old enough, the last is not"
    day_ms[0] += 500
    disk.lose_power()
    assert first.last_modified_s() * 1000 in (START_MS, START_MS + 2000), "cut, or as it was"
