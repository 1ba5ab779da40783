"""How files are written, whatever the system takes at a time; the small files of a log dir; settings of logs."""

from __future__ import annotations

import dataclasses
import importlib
import os
import pkgutil
import random
import stat
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import broker_sim.log
from broker_sim.config import ReplicaSettings
from broker_sim.log import checkpoints
from broker_sim.log.checkpoints import CheckpointError, MetaProperties
from broker_sim.log.config import LogConfig, log_config
from broker_sim.log.dirs import LogDirs
from broker_sim.log.files import Files, write_whole
from controller.wire.records import build_values
from controller.wire.types import TopicPartition

TP = TopicPartition("t", 0)

# -- files ------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=[1, 3, 1 << 20])
def at_a_time(request: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """So many bytes the system takes of what it is given."""
    write, pwrite = os.write, os.pwrite
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[: request.param]))
    monkeypatch.setattr(os, "pwrite", lambda handle, data, at: pwrite(handle, data[: request.param], at))
    return int(request.param)


@pytest.mark.usefixtures("at_a_time")
def test_all_of_it_is_written(tmp_path: Path) -> None:
    files, path = Files(), tmp_path / "f"
    for content in (b"0123456789", b"abc", b""):
        write_whole(path, content)
        assert path.read_bytes() == content
        files.write(path, content + b"!")
        assert path.read_bytes() == content + b"!"
        checkpoints.write_atomically(path, content)
        assert path.read_bytes() == content
    files.append(path, b"0123456789")
    files.append(path, b"abcdefg")
    assert path.read_bytes() == b"0123456789abcdefg"
    files.write_at(path, b"ABCDE", 8)
    assert path.read_bytes() == b"01234567ABCDEdefg"
    files.write_at(path, b"XYZ", 20)
    assert path.read_bytes() == b"01234567ABCDEdefg\0\0\0XYZ"
    assert [files.read(path, length, at) for length, at in ((3, 0), (4, 8), (2, 21), (0, 23))] == [
        b"012", b"ABCD", b"YZ", b"",
    ]  # fmt: skip
    for length, at in ((3, 21), (1, 23)):
        with pytest.raises(OSError, match=f"ends before byte {length + at}"):
            files.read(path, length, at)
    files.resize(path, 4)
    assert path.read_bytes() == b"0123"
    files.create(path)
    assert path.read_bytes() == b""
    files.create(path, 5)
    assert path.read_bytes() == bytes(5)
    for text in ("ä" * 9, "x"):
        checkpoints.write_atomically(path, text, sync=False)
        assert path.read_text() == text
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


@pytest.mark.usefixtures("at_a_time")
@pytest.mark.parametrize("left", [b"", b"x", b"0123456789" * 9])
def test_what_a_kill_left_of_an_earlier_write_is_not_in_the_next(tmp_path: Path, left: bytes) -> None:
    path = tmp_path / "f"
    for write in (checkpoints.write_atomically, Files().replace):
        for sync in (False, True):
            (tmp_path / "f.tmp").write_bytes(left)
            write(path, b"abc", sync=sync)
            assert path.read_bytes() == b"abc" and [p.name for p in tmp_path.iterdir()] == ["f"]


def test_files_are_for_their_owner_to_write_and_each_operation_is_asked_for(tmp_path: Path) -> None:
    asked: list[tuple[str, str]] = []
    files = Files(lambda operation, path: asked.append((operation, path.name)))
    before = os.umask(0)
    try:
        files.create(tmp_path / "a")
        files.append(tmp_path / "b", b"x")
        files.write_at(tmp_path / "c", b"x", 0)
        files.replace(tmp_path / "d", b"x", sync=False)
        files.write(tmp_path / "e", b"x")
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert modes == {"a": 0o644, "b": 0o644, "c": 0o644, "d": 0o644, "e": 0o666}
    files.read(tmp_path / "b", 1, 0)
    files.resize(tmp_path / "b", 0)
    files.rename(tmp_path / "b", tmp_path / "a")
    files.remove(tmp_path / "a")
    files.remove(tmp_path / "a")
    files.make_folder(tmp_path / "g")
    (tmp_path / "g" / "h").write_text("x")
    files.sync(tmp_path / "g")
    files.remove_folder(tmp_path / "g")
    files.remove_folder(tmp_path / "g")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "d", "e"]
    assert asked == [
        ("create", "a"), ("append", "b"), ("write_at", "c"), ("replace", "d"), ("write", "e"), ("read", "b"),
        ("resize", "b"), ("rename", "b"), ("remove", "a"), ("remove", "a"), ("make_folder", "g"), ("sync", "g"),
        ("remove_folder", "g"), ("remove_folder", "g"),
    ]  # fmt: skip


def test_what_must_outlive_a_loss_of_power_is_synced_and_its_folder_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def sync(handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        assert not list(path.glob("*.tmp")), "what is in a folder has its name by the time that this is made to last"
        synced.append(path.name)

    monkeypatch.setattr(os, "fsync", sync)

    def of(work: Any) -> list[str]:
        synced.clear()
        work()
        return list(synced)

    path, folder = tmp_path / "f", tmp_path.name
    assert of(lambda: checkpoints.write_atomically(path, "x")) == ["f.tmp", folder]
    assert of(lambda: checkpoints.write_atomically(path, "x", sync=False)) == []
    assert of(lambda: Files().replace(path, b"x", sync=True)) == ["f.tmp", folder]
    assert of(lambda: Files().replace(path, b"x", sync=False)) == []
    assert of(lambda: Files().sync(path)) == ["f"]
    assert of(lambda: checkpoints.sync_dir(tmp_path)) == [folder]
    meta = MetaProperties(broker_id=1, cluster_id="c")
    assert of(lambda: checkpoints.write_meta(path, meta)) == ["f.tmp", folder]
    assert of(lambda: checkpoints.write_clean_shutdown(tmp_path, 7)) == [".kafka_cleanshutdown.tmp", folder]
    assert (tmp_path / ".kafka_cleanshutdown").read_text() == '{"version": 0, "brokerEpoch": 7}'
    assert [checkpoints.take_clean_shutdown(tmp_path) for _ in range(2)] == [True, False]
    dirs = LogDirs((str(tmp_path / "dir"),), random.Random(1))
    dirs.open(broker_id=1, cluster_id="c", config_of=lambda topic: LogConfig(), now_ms=0)
    log = dirs.create(TP, LogConfig())
    log.append_as_leader(build_values([(b"k", b"v")] * 2, timestamp=1), leader_epoch=0, now_ms=1)
    log.raise_log_start(1)
    for write, name in (
        (dirs.dir_of(log).write_recovery_points, checkpoints.RECOVERY_POINT_FILE),
        (dirs.dir_of(log).write_log_starts, checkpoints.LOG_START_FILE),
        (dirs.high_watermark_writers({TP: 0}, {})[0], checkpoints.HIGH_WATERMARK_FILE),
        (lambda: dirs.set_cleaned_up_to(log, 1), checkpoints.CLEANER_FILE),
    ):
        assert of(write) == [f"{name}.tmp", "dir"]
        assert of(write) == [], "it says so already"
    dirs.unlock()


# -- checkpoints ------------------------------------------------------------------------------------------------------

#: content -> what it says, None where it is refused. Source: Kafka 3.9 `CheckpointFile.CheckpointReadBuffer.read`.
CHECKPOINTS: list[tuple[str, dict[tuple[str, int], int] | None]] = [
    ("0\n0\n", {}),
    ("", {}),
    ("0\n", {}),
    ("0\n0\nt 0 1\n", None),
    ("0\n1\nt 0 1\nt 1 1\n", None),
    ("0\n1\nt 0 1\n\n", None),
    ("\n0\n", None),
    ("1\n", None),
    ("0\n1\nt 0 1\n", {("t", 0): 1}),
    ("0\n1\nt 0 1", {("t", 0): 1}),
    ("0\n2\nt 0 1\na-b 12 0\n", {("t", 0): 1, ("a-b", 12): 0}),
    ("0\n2\nt 0 1\nt 0 2\n", {("t", 0): 2}),
    ("0\n2\nt 0 1\n", None),
    ("0\n1\nt 0 1 2\n", None),
    ("0\n-1\n", None),
    ("1\n1\nt 0 1\n", None),
    ("-1\n0\n", None),
    ("x\n0\n", None),
    ("0\nx\n", None),
]


@pytest.mark.parametrize(("text", "says"), CHECKPOINTS)
def test_an_offset_checkpoint(tmp_path: Path, text: str, says: dict[tuple[str, int], int] | None) -> None:
    path = tmp_path / "checkpoint"
    path.write_text(text)
    if says is None:
        with pytest.raises(CheckpointError):
            checkpoints.read_offsets(path)
        return
    found = checkpoints.read_offsets(path)
    assert found == says
    path.write_text(checkpoints.offsets_text(found))
    assert checkpoints.read_offsets(path) == found


#: content -> broker id and cluster id, None where it is refused
METAS: list[tuple[str, tuple[int, str | None] | None]] = [
    ("version=0\nbroker.id=3\ncluster.id=c\n", (3, "c")),
    ("broker.id=3", (3, None)),
    ("#version=1\nbroker.id = 3 \ncluster.id= a=b \nno pair\n", (3, "a=b")),
    ("# broker.id=4\nversion=0\n", None),
    ("version=0\nbroker.id=x\n", None),
    ("version=1\nbroker.id=3\n", None),
    ("version=-1\nbroker.id=3\n", None),
    ("version=\nbroker.id=3\n", None),
    ("version=00\nbroker.id=3\n", None),
    ("", None),
]


@pytest.mark.parametrize(("text", "says"), METAS)
def test_meta_properties(tmp_path: Path, text: str, says: tuple[int, str | None] | None) -> None:
    path = tmp_path / "meta.properties"
    assert checkpoints.read_meta(path) is None
    path.write_text(text)
    if says is None:
        with pytest.raises(CheckpointError, match="meta"):
            checkpoints.read_meta(path)
        return
    meta = MetaProperties(broker_id=says[0], cluster_id=says[1])
    assert checkpoints.read_meta(path) == meta
    checkpoints.write_meta(path, meta)
    assert path.read_text() == f"#\nversion=0\nbroker.id={says[0]}\ncluster.id={says[1]}\n"


def handles_open() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("name", ["there", "absent"])
def test_no_operation_on_files_leaves_a_handle_open_whether_it_succeeds_or_not(tmp_path: Path, name: str) -> None:
    """A broker has thousands of logs, and does each of these for each of them again and again."""
    files, path = Files(), tmp_path / "folder" / "file"
    operations: list[Callable[[], object]] = [
        lambda: files.create(path, 9), lambda: files.create(path), lambda: files.write(path, b"abc"),
        lambda: files.append(path, b"def"), lambda: files.write_at(path, b"x", 8), lambda: files.read(path, 5, 1),
        lambda: files.read(path, 99, 1), lambda: files.sync(path), lambda: files.sync(path.parent),
        lambda: files.replace(path, b"new", sync=True), lambda: files.replace(path, b"newer", sync=False),
        lambda: files.resize(path, 2), lambda: files.rename(path, path.with_name("other")),
    ]  # fmt: skip
    if name == "there":
        path.parent.mkdir()
    failed, before = [], handles_open()
    for number, operation in enumerate(operations):
        try:
            operation()
        except OSError:
            failed.append(number)
        assert handles_open() == before, number
    assert failed == ([6] if name == "there" else [*range(len(operations))])


# -- settings ---------------------------------------------------------------------------------------------------------

#: the broker's setting -> the topic's property, Kafka's default
SETTINGS: dict[str, tuple[str, Any]] = {
    "log_segment_bytes": ("segment.bytes", 1 << 30),
    "log_roll_ms": ("segment.ms", 7 * 86_400_000),
    "log_index_size_max_bytes": ("segment.index.bytes", 10 << 20),
    "log_index_interval_bytes": ("index.interval.bytes", 4_096),
    "log_retention_ms": ("retention.ms", 7 * 86_400_000),
    "log_retention_bytes": ("retention.bytes", -1),
    "message_max_bytes": ("max.message.bytes", (1 << 20) + 12),
    "min_insync_replicas": ("min.insync.replicas", 1),
    "log_segment_delete_delay_ms": ("file.delete.delay.ms", 60_000),
    "log_cleanup_policy": ("cleanup.policy", "delete"),
    "compression_type": ("compression.type", "producer"),
    "log_roll_jitter_ms": ("segment.jitter.ms", 0),
    "log_flush_interval_messages": ("flush.messages", (1 << 63) - 1),
    "log_flush_interval_ms": ("flush.ms", (1 << 63) - 1),
    "log_cleaner_delete_retention_ms": ("delete.retention.ms", 86_400_000),
    "log_cleaner_min_cleanable_ratio": ("min.cleanable.dirty.ratio", 0.5),
    "log_cleaner_min_compaction_lag_ms": ("min.compaction.lag.ms", 0),
    "log_cleaner_max_compaction_lag_ms": ("max.compaction.lag.ms", (1 << 63) - 1),
    "log_message_timestamp_type": ("message.timestamp.type", "CreateTime"),
    "log_message_timestamp_before_max_ms": ("message.timestamp.before.max.ms", (1 << 63) - 1),
    "log_message_timestamp_after_max_ms": ("message.timestamp.after.max.ms", (1 << 63) - 1),
}
BROKER = ReplicaSettings(log_dirs=("x",))


def test_settings_are_kafkas_by_default() -> None:
    assert log_config(BROKER, {}) == LogConfig()
    values = {field.name.replace("_", "."): getattr(LogConfig(), field.name) for field in fields(LogConfig)}
    assert values.pop("producer.id.expiration.ms") == 86_400_000
    assert values == dict(SETTINGS.values())


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_of_the_broker_counts_and_one_of_the_topic_above_it(name: str) -> None:
    topic_name, default = SETTINGS[name]
    other, another = ("other", "another") if isinstance(default, str) else (type(default)(77), type(default)(5))
    field = topic_name.replace(".", "_")
    broker = dataclasses.replace(BROKER, **{name: other})
    assert log_config(broker, {}) == dataclasses.replace(LogConfig(), **{field: other})
    assert log_config(broker, {topic_name: str(another)}) == dataclasses.replace(LogConfig(), **{field: another})


def test_settings_in_other_units_and_what_follows_from_settings() -> None:
    def of(**changes: Any) -> LogConfig:
        return log_config(dataclasses.replace(BROKER, **changes), {"unknown": "x"})

    assert of(log_roll_jitter_hours=2).segment_jitter_ms == 7_200_000
    assert of(log_roll_jitter_hours=2, log_roll_jitter_ms=0).segment_jitter_ms == 0
    assert of(log_flush_scheduler_interval_ms=9).flush_ms == 9
    assert of(log_flush_scheduler_interval_ms=9, log_flush_interval_ms=0).flush_ms == 0
    assert of(producer_id_expiration_ms=8).producer_id_expiration_ms == 8
    for policy, compacts, deletes in (
        ("delete", False, True),
        ("compact", True, False),
        ("compact,delete", True, True),
    ):
        config = of(log_cleanup_policy=policy, log_cleaner_max_compaction_lag_ms=8)
        assert (config.is_compacted, config.deletes) == (compacts, deletes)
        assert config.max_segment_ms == (8 if compacts else 604_800_000)
    assert of(log_cleanup_policy="compact", log_roll_ms=5, log_cleaner_max_compaction_lag_ms=8).max_segment_ms == 5
    assert [of(log_message_timestamp_type=kind).is_log_append_time for kind in ("CreateTime", "LogAppendTime")] == [
        False, True,
    ]  # fmt: skip


# -- values -----------------------------------------------------------------------------------------------------------

#: Those that change, and those that are built by position; all others are frozen and built by name.
CHANGING = {"LeaderEpochs", "LogDir", "Producer", "Scan"}
BY_POSITION = {"EpochFile", "LeaderEpochs", "LogDir", "Prepared", "RecordFault", "Scan"}


def test_values_are_frozen_and_lean() -> None:
    """Thousands of logs have some of each: none has a dict of its own."""
    found: dict[str, Any] = {}
    for module in pkgutil.iter_modules(broker_sim.log.__path__, "broker_sim.log."):
        for each in vars(importlib.import_module(module.name)).values():
            if dataclasses.is_dataclass(each) and getattr(each, "__module__", "") == module.name:
                found[getattr(each, "__name__", "")] = each
    assert len(found) > 15
    for name, each in found.items():
        assert "__dict__" not in dir(each) and hasattr(each, "__slots__"), name
        assert each.__dataclass_params__.frozen is (name not in CHANGING), name
        assert all(field.kw_only for field in fields(each)) is (name not in BY_POSITION), name


@pytest.mark.parametrize("garbage", [bytes(64), b"0\n1\nt 0 \xff\xfe\n"], ids=["zeros", "bytes that are no text"])
@pytest.mark.parametrize(
    "name",
    [
        *(checkpoints.HIGH_WATERMARK_FILE, checkpoints.RECOVERY_POINT_FILE, checkpoints.LOG_START_FILE),
        *(checkpoints.CLEANER_FILE, "t-0/leader-epoch-checkpoint"),
    ],
)
def test_a_start_goes_on_without_a_file_that_a_loss_of_power_left_as_garbage(
    tmp_path: Path, name: str, garbage: bytes
) -> None:
    def opened() -> tuple[LogDirs, list[str]]:
        dirs = LogDirs((str(tmp_path / "a"),), random.Random(1))
        found = dirs.open(broker_id=1, cluster_id="c", config_of=lambda topic: LogConfig(), now_ms=0)
        return dirs, [repair.path.name for _, repair in found.repairs]

    before, _ = opened()
    log = before.create(TP, LogConfig())
    log.append_as_leader(build_values([(None, b"v")] * 9, timestamp=1), leader_epoch=5, now_ms=1)
    before.unlock()
    path = tmp_path / "a" / name
    path.write_bytes(garbage)
    after, repaired = opened()
    found = after.get(TP)
    assert found is not None
    assert (found.log_start_offset, found.leo, found.epochs.entries) == (0, 9, [(5, 0)])
    assert repaired[0] == path.name
    after.unlock()


def test_a_comment_in_meta_properties_is_in_the_letters_of_java(tmp_path: Path) -> None:
    path = tmp_path / checkpoints.META_FILE
    path.write_bytes("#Müllers Rechner\nversion=0\nbroker.id=4\ncluster.id=abc\n".encode("iso-8859-1"))
    assert checkpoints.read_meta(path) == MetaProperties(broker_id=4, cluster_id="abc")
