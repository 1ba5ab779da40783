"""Log dirs: whose they are, where logs go, what comes back after a start."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from broker_sim.log import checkpoints
from broker_sim.log.config import LogConfig
from broker_sim.log.dirs import LogDirs
from broker_sim.log.errors import LogDirsUnusable
from broker_sim.log.log_dir import folder_name, parse_folder_name, parse_future_name, set_aside_name
from controller.wire.records import build_values
from controller.wire.types import TopicPartition

TP = TopicPartition("t", 0)


def checkpoint_high_watermarks(dirs: LogDirs, offsets: Any) -> None:
    for write in dirs.high_watermark_writers(offsets, {}):
        write()


def opened(tmp_path: Path, *names: str, broker_id: int = 1, cluster_id: str = "c") -> LogDirs:
    dirs = LogDirs(tuple(str(tmp_path / name) for name in names or ("a", "b")), random.Random(1))
    dirs.open(broker_id=broker_id, cluster_id=cluster_id, config_of=lambda topic: LogConfig(), now_ms=0)
    return dirs


def closed(dirs: LogDirs, *, clean: bool = True, **watermarks: int) -> None:
    known = {log.topic_partition: watermarks.get(log.topic_partition.topic, 0) for log in dirs.all_logs()}
    assert dirs.close(clean=clean, broker_epoch=3, high_watermarks=known) == []


@pytest.mark.feature("003-15")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-7", TopicPartition("orders", 7)),
        ("a-b-10", TopicPartition("a-b", 10)),
        ("__consumer_offsets-0", TopicPartition("__consumer_offsets", 0)),
        ("t-0.0123456789abcdef0123456789abcdef-delete", None),
        ("t-0.0123456789abcdef0123456789abcdef-future", None),
        ("t-0.0123456789abcdef0123456789abcdef-stray", None),
        ("lost+found", None),
        ("-3", None),
        ("t-\u00b2", None),
        ("t-\u0663", None),
    ],
)
def test_folder_names(name: Any, expected: Any) -> None:
    assert parse_folder_name(name) == expected
    if expected is not None:
        assert folder_name(expected) == name


def test_the_name_of_a_deleted_log_fits() -> None:
    name = set_aside_name(TopicPartition("t" * 249, 12), "0" * 32, "-delete")
    assert len(name) == 255
    assert name.endswith("-12." + "0" * 32 + "-delete")


@pytest.mark.feature("002-31")
def test_a_new_log_goes_where_the_fewest_are(tmp_path: Path) -> None:
    dirs = opened(tmp_path)
    places = [dirs.create(TopicPartition("t", p), LogConfig()).log_dir.name for p in range(4)]
    assert places == ["a", "b", "a", "b"]
    dirs.prefer(TP._replace(partition=9), str(tmp_path / "b"))
    assert dirs.create(TP._replace(partition=9), LogConfig()).log_dir.name == "b"
    closed(dirs)


@pytest.mark.parametrize("seed", range(6))
def test_where_new_logs_go_as_logs_come_and_go(tmp_path: Path, seed: int) -> None:
    """To the dir that was wished for, which counts for the next log alone; else to the first with the fewest."""
    dirs, chance, names = opened(tmp_path, *"abc"), random.Random(seed), [str(tmp_path / name) for name in "abc"]
    wishes: dict[TopicPartition, str] = {}
    for _ in range(80):
        tp, name = TopicPartition("t", chance.randrange(6)), chance.choice(names)
        log, future = dirs.get(tp), dirs.future(tp)
        held = [str(each.log_dir) for each in dirs.all_logs()]
        match chance.randrange(4):
            case 0:
                dirs.prefer(tp, name)
                if name not in {str(each.log_dir) for each in (log, future) if each is not None}:
                    wishes[tp] = name
            case 1 if log is None:
                expected = wishes.pop(tp, min(names, key=held.count))
                assert str(dirs.create(tp, LogConfig()).log_dir) == expected
            case 2 if log is not None and future is None and str(log.log_dir) != name:
                target = dirs.by_name(name)
                assert target is not None and str(dirs.create_future(tp, target).log_dir) == name
                wishes.pop(tp, None)
            case 3:
                for each in (log, future):
                    if each is not None:
                        dirs.delete(each)
    closed(dirs)


def test_a_future_log_counts_where_it_lies_and_takes_the_place_of_the_other(tmp_path: Path) -> None:
    dirs = opened(tmp_path)
    log = dirs.create(TP, LogConfig())
    log.append_as_leader(build_values([(None, b"v")] * 5, timestamp=1), leader_epoch=0, now_ms=1)
    log.raise_log_start(2)
    other = dirs.by_name(str(tmp_path / "b"))
    future = dirs.create_future(TP, other)
    future.append_as_follower(b"".join(log.batches()), now_ms=1)
    future.raise_log_start(2)
    assert (dirs.get(TP), dirs.future(TP)) == (log, future)
    assert parse_future_name(future.folder.name) == TP
    assert dirs.create(TP._replace(partition=1), LogConfig()).log_dir.name == "a", "each dir holds one"
    assert dirs.create(TP._replace(partition=2), LogConfig()).log_dir.name == "b"
    dirs.set_cleaned_up_to(log, 4)
    for log_dir in dirs:
        log_dir.write_recovery_points()
        log_dir.write_log_starts()
    folder = dirs.replace_by_future(TP, high_watermark=5)
    assert (dirs.get(TP), dirs.future(TP), future.folder) == (future, None, tmp_path / "b" / "t-0")
    assert folder.name.endswith("-delete")
    written = {
        name: checkpoints.read_offsets(tmp_path / "b" / name).get(TP)
        for name in (checkpoints.HIGH_WATERMARK_FILE, checkpoints.LOG_START_FILE, checkpoints.CLEANER_FILE)
    }
    assert list(written.values()) == [5, 2, 4]
    for name in (checkpoints.RECOVERY_POINT_FILE, checkpoints.LOG_START_FILE):
        assert TP not in checkpoints.read_offsets(tmp_path / "a" / name)
    dirs.unlock()
    again = opened(tmp_path)
    assert (again.get(TP).leo, again.get(TP).log_start_offset) == (5, 2)
    closed(again)


@pytest.mark.parametrize("clean", [True, False])
def test_logs_and_checkpoints_come_back(tmp_path: Path, clean: Any) -> None:
    dirs = opened(tmp_path)
    log = dirs.create(TP, LogConfig())
    log.append_as_leader(build_values([(None, b"v")] * 5, timestamp=1), leader_epoch=0, now_ms=1)
    log.raise_log_start(2)
    checkpoint_high_watermarks(dirs, {TP: 4})
    for log_dir in dirs:
        log_dir.write_recovery_points()
        log_dir.write_log_starts()
    closed(dirs, clean=clean, t=4)
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists() is clean
    assert (tmp_path / "a" / "replication-offset-checkpoint").read_text() == "0\n1\nt 0 4\n"
    assert (tmp_path / "a" / "log-start-offset-checkpoint").read_text() == "0\n1\nt 0 2\n"
    again = opened(tmp_path)
    found = again.get(TP)
    assert (found.leo, found.log_start_offset, again.checkpointed_high_watermark(found)) == (5, 2, 4)
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    closed(again, t=4)


def test_a_dir_in_use_is_refused(tmp_path: Path) -> None:
    first = opened(tmp_path)
    with pytest.raises(LogDirsUnusable, match="in use"):
        opened(tmp_path)
    closed(first)
    closed(opened(tmp_path))


@pytest.mark.parametrize(
    ("who", "message"),
    [({"broker_id": 2}, "broker.id is 1"), ({"cluster_id": "d"}, "cluster.id is c")],
)
def test_a_dir_of_another_broker_or_cluster_is_refused(tmp_path: Path, who: Any, message: Any) -> None:
    closed(opened(tmp_path))
    with pytest.raises(LogDirsUnusable, match=message):
        opened(tmp_path, **who)


#: why the second of three dirs is refused -> whose it is, whether its owner still has it
REFUSALS = {"in use": (1, "c", True), "of another broker": (2, "c", False), "of another cluster": (1, "d", False)}


@pytest.mark.parametrize("why", REFUSALS)
def test_a_refused_start_changes_no_dir_that_it_has_not_loaded(tmp_path: Path, why: str) -> None:
    """Neither that of somebody else, who may serve from it and be killed, nor the own one behind it."""
    broker_id, cluster_id, is_in_use = REFUSALS[why]
    for name, who in (("b", (broker_id, cluster_id)), ("c", (1, "c"))):
        owner = opened(tmp_path, name, broker_id=who[0], cluster_id=who[1])
        log = owner.create(TP._replace(topic=name), LogConfig())
        log.append_as_leader(build_values([(None, b"v")] * 9, timestamp=1), leader_epoch=0, now_ms=1)
        log.raise_log_start(4)
        checkpoint_high_watermarks(owner, {log.topic_partition: 7})
        owner.dir_of(log).write_log_starts()
        if name == "c" or not is_in_use:
            owner.unlock()  # as a kill leaves it
    before = {path: path.read_bytes() for name in "bc" for path in (tmp_path / name).rglob("*") if path.is_file()}
    late = LogDirs(tuple(str(tmp_path / name) for name in "abc"), random.Random(1))
    with pytest.raises(LogDirsUnusable):
        late.open(broker_id=1, cluster_id="c", config_of=lambda topic: LogConfig(), now_ms=0)
    closed(late)
    after = {path: path.read_bytes() for name in "bc" for path in (tmp_path / name).rglob("*") if path.is_file()}
    assert after == before
    assert (tmp_path / "a" / checkpoints.CLEAN_SHUTDOWN_FILE).exists(), "that one was loaded"
    owner.unlock()


def test_kafkas_own_meta_properties_are_read(tmp_path: Path) -> None:
    path = tmp_path / "meta.properties"
    path.write_text("#\n#Sat Jan 01 00:00:00 UTC 2022\ncluster.id=abc\nversion=0\nbroker.id=4\n")
    assert checkpoints.read_meta(path) == checkpoints.MetaProperties(broker_id=4, cluster_id="abc")
    path.write_text("version=0\n")
    with pytest.raises(checkpoints.CheckpointError, match=r"broker\.id"):
        checkpoints.read_meta(path)


@pytest.mark.parametrize("version", [1, 7])
def test_a_dir_of_another_version_is_refused_and_left_as_it_is(tmp_path: Path, version: int) -> None:
    closed(opened(tmp_path))
    metas = sorted(tmp_path.rglob("meta.properties"))
    text = metas[0].read_text().replace("version=0", f"version={version}")
    for meta in metas:
        meta.write_text(text)
    with pytest.raises(LogDirsUnusable, match=f"version {version}; a broker in ZooKeeper mode reads version 0"):
        opened(tmp_path)
    assert [meta.read_text() for meta in metas] == [text] * len(metas)


def test_a_dir_that_cannot_be_read_is_offline_and_the_others_serve(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("a file where a dir should be")
    dirs = opened(tmp_path)
    assert [d.is_online for d in dirs] == [True, False]
    assert dirs.any_offline
    closed(dirs)
    with pytest.raises(LogDirsUnusable, match="none of the log dirs"):
        opened(tmp_path, "b")


def test_a_deleted_log_is_renamed_then_removed_at_the_latest_by_the_next_start(tmp_path: Path) -> None:
    dirs = opened(tmp_path, "a")
    renamed = dirs.delete(dirs.create(TP, LogConfig()))
    assert renamed.exists()
    assert dirs.get(TP) is None
    assert dirs.create(TP, LogConfig()).leo == 0
    dirs.purge(renamed)
    assert not renamed.exists()
    left = dirs.delete(dirs.get(TP))
    closed(dirs)
    closed(opened(tmp_path, "a"))
    assert not left.exists()


@pytest.mark.parametrize("meanwhile", ["nothing", "the broker starts again", "the first checkpoint is being written"])
def test_checkpoints_of_a_deleted_log_are_not_those_of_its_successor(tmp_path: Path, meanwhile: str) -> None:
    """Else a kill before the next checkpoint would take the new log for one that begins, and is synced, far above."""
    others = [TopicPartition("other", partition) for partition in range(3)]
    dirs = opened(tmp_path, "a")
    for tp in (TP, *others):
        log = dirs.create(tp, LogConfig())
        log.append_as_leader(build_values([(None, b"v")] * 9, timestamp=1), leader_epoch=0, now_ms=1)
        log.flush()
        log.raise_log_start(7)
        dirs.dir_of(log).cleaned[tp] = 6
    dirs.dir_of(log).write_cleaned()
    late = dirs.high_watermark_writers(dict.fromkeys((TP, *others), 8), {})
    if meanwhile != "the first checkpoint is being written":
        late.pop()()
    for log_dir in dirs:
        log_dir.write_recovery_points()
        log_dir.write_log_starts()
    dirs.purge(dirs.delete(dirs.get(TP)))
    assert all(kept.keys() == set(others) for each in dirs for kept in (each.high_watermarks, each.cleaned))
    if meanwhile == "the broker starts again":
        dirs.unlock()
        dirs = opened(tmp_path, "a")
    new = dirs.create(TP, LogConfig())
    new.append_as_leader(build_values([(None, b"v")] * 8, timestamp=1), leader_epoch=0, now_ms=1)
    for write in late:
        write()
    dirs.unlock()
    again = opened(tmp_path, "a")
    found = again.get(TP)
    assert (found.log_start_offset, found.leo, found.recovery_point) == (0, 8, 0)
    assert again.checkpointed_high_watermark(found) == 0 and again.cleaned_up_to(found) is None
    for tp in others:
        kept = again.get(tp)
        assert (kept.log_start_offset, kept.leo, again.checkpointed_high_watermark(kept)) == (7, 9, 8)
        assert again.cleaned_up_to(kept) == 6
    closed(again)


def test_the_next_checkpoint_names_no_log_that_is_not_there(tmp_path: Path) -> None:
    dirs = opened(tmp_path, "a")
    for partition in range(3):
        dirs.create(TP._replace(partition=partition), LogConfig())
    gone = dirs.get(TP._replace(partition=2))
    dirs.create_future(TP, next(iter(dirs)))
    checkpoint_high_watermarks(dirs, dict.fromkeys(dirs.dir_of(gone).logs, 0))
    dirs.set_cleaned_up_to(gone, 0)
    dirs.unlock()
    shutil.rmtree(gone.folder)
    again = opened(tmp_path, "a")
    checkpoint_high_watermarks(again, {TP: 0})
    found = checkpoints.read_offsets(tmp_path / "a" / checkpoints.HIGH_WATERMARK_FILE)
    assert found == {TP: 0, TP._replace(partition=1): 0}
    again.set_cleaned_up_to(again.get(TP), 0)
    again.delete(again.get(TP))
    again.set_cleaned_up_to(again.get(TP._replace(partition=1)), 0)
    assert checkpoints.read_offsets(tmp_path / "a" / checkpoints.CLEANER_FILE) == {TP._replace(partition=1): 0}
    assert checkpoints.offsets_text(
        {TopicPartition("b", 0): 1, TopicPartition("a", 10): 2, TopicPartition("a", 9): 3}
    ) == ("0\n3\na 9 3\na 10 2\nb 0 1\n")
    closed(again)


def test_two_logs_of_one_partition_are_refused(tmp_path: Path) -> None:
    dirs = opened(tmp_path)
    dirs.create(TP, LogConfig())
    closed(dirs)
    (tmp_path / "b" / "t-0").mkdir()
    with pytest.raises(LogDirsUnusable, match="two logs of t-0"):
        opened(tmp_path)


@pytest.mark.parametrize("text", ["0\n1\n", "0\n1\nt 0\n", "0\n1\nt x 1\n", "2\n0\n"])
def test_a_damaged_checkpoint_is_an_error_that_names_the_file(tmp_path: Path, text: Any) -> None:
    path = tmp_path / "replication-offset-checkpoint"
    path.write_text(text)
    with pytest.raises(checkpoints.CheckpointError, match="replication-offset-checkpoint"):
        checkpoints.read_offsets(path)
    path.unlink()
    assert checkpoints.read_offsets(path) == {}


def test_a_checkpoint_that_was_overtaken_is_not_written(tmp_path: Path) -> None:
    """Writers run in threads: one that comes late must not bring an old content back."""
    dirs = opened(tmp_path)
    dirs.create(TP, LogConfig()).append_as_leader(
        build_values([(None, b"v")] * 5, timestamp=1), leader_epoch=0, now_ms=1
    )
    late = dirs.high_watermark_writers({TP: 3}, {})
    checkpoint_high_watermarks(dirs, {TP: 4})
    for write in late:
        write()
    path = tmp_path / "a" / checkpoints.HIGH_WATERMARK_FILE
    assert checkpoints.read_offsets(path) == {TP: 4}
    later = dirs.high_watermark_writers({TP: 5}, {})
    closed(dirs, clean=False)
    for write in later:
        write()
    assert checkpoints.read_offsets(path) == {TP: 4}, "the dir may be another process's by now"


def test_the_id_that_the_dirs_hold_is_one_or_none(tmp_path: Path) -> None:
    one, other, empty, torn = (tmp_path / name for name in ("one", "other", "empty", "torn"))
    for folder, cluster_id in ((one, "abc"), (other, "xyz"), (empty, None), (torn, None)):
        folder.mkdir()
        if cluster_id is not None:
            checkpoints.write_meta(
                folder / checkpoints.META_FILE, checkpoints.MetaProperties(broker_id=4, cluster_id=cluster_id)
            )
    (torn / checkpoints.META_FILE).write_bytes(b"broker.id=\xff")
    assert checkpoints.cluster_id_of([]) is None
    assert checkpoints.cluster_id_of([tmp_path / "none", empty, torn]) is None
    assert checkpoints.cluster_id_of([empty, one, torn]) == "abc"
    assert checkpoints.cluster_id_of([one, other]) is None, "which of them is right, nobody knows"
