"""What a broker begins with, against what lay on its disk: sound logs agree, and each kind of difference is named."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker_sim.log import checkpoints
from broker_sim.log.config import LogConfig
from broker_sim.log.log import Log
from broker_sim.log.producers import ProducerStates
from controller.sim.disk import SimulatedDisk
from controller.sim.oracles.restarts import Found, Restarts, differences, read_plainly
from controller.sim.steps.ruins import RUINS
from controller.wire import log_events as ev
from controller.wire.records import Record, build_batch
from controller.wire.trace import TraceEvent
from controller.wire.types import BrokerId, TopicPartition
from controller.wire.zk_operations import SetData, ZkCode, ZkResult

pytestmark = pytest.mark.sim

TP = TopicPartition("side-1", 0)
CONFIG = LogConfig(segment_bytes=300, segment_index_bytes=1_000, index_interval_bytes=100, retention_ms=-1)
POINT = 3


def written(folder: Path) -> Log:
    """Twelve batches of one record, in three epochs and several segments, by two producers; nobody closed it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = Log(TP, folder, CONFIG)
    log.create()
    for number in range(12):
        records = [Record(0, 1, b"key", b"value" * 9)]
        batch = build_batch(records, producer_id=7 + number % 2, producer_epoch=0, base_sequence=number // 2)
        log.append_as_leader(batch, leader_epoch=number // 5, now_ms=1)
    assert len(log.segments) > 4
    return log


def started(folder: Path, *, start: int = 0, clean: bool = False) -> tuple[Found, Log]:
    """What must be found, and what a start makes of it."""
    found = read_plainly(folder, start=start, checked_from=None if clean else POINT)
    log = Log(TP, folder, CONFIG)
    log.load(is_clean=clean, log_start_offset=start, recovery_point=POINT)
    return found, log


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("start", [0, 4, 40])
def test_a_log_starts_with_what_is_on_its_disk(tmp_path: Path, start: int, clean: bool) -> None:
    folder = tmp_path / "side-1-0"
    written(folder)
    found, log = started(folder, start=start, clean=clean)
    assert list(differences(found, log)) == []
    assert log.leo == (40 if start == 40 else 12)


def test_a_log_of_a_former_topic_that_goes_on_under_a_later_one(tmp_path: Path) -> None:
    """It is as long as it was, and the epochs of the later one are its last."""
    folder = tmp_path / "side-1-0"
    written(folder).append_as_leader(build_batch([Record(0, 1, b"key", b"value")]), leader_epoch=0, now_ms=1)
    found, log = started(folder)
    assert log.leo == 13 and log.epochs.epoch_for(12) == 0
    assert list(differences(found, log)) == []


@pytest.mark.parametrize("ruin", sorted(set(RUINS), key=lambda each: str(each)))
def test_whatever_was_ruined(tmp_path: Path, ruin: Callable[[Any, Path], bool]) -> None:
    """A start makes of it what a plain reading does."""
    damaged: list[tuple[str, int]] = []
    for seed in range(40):
        folder = tmp_path / str(seed) / "side-1-0"
        written(folder)
        point = folder.parent / checkpoints.RECOVERY_POINT_FILE
        point.write_text(checkpoints.offsets_text({TP: POINT}))
        turn: Any = SimpleNamespace(
            chance=random.Random(seed), cluster=SimpleNamespace(on_damaged=damaged.append), name=str
        )
        assert ruin(turn, folder)
        found, log = started(folder)
        assert list(differences(found, log)) == [], seed
        assert damaged or log.leo == 12


def _without_the_end(log: Log) -> None:
    log.truncate(9)


def _wrong(name: str, value: object) -> Callable[[Log], None]:
    return lambda log: setattr(log, name, value)


@pytest.mark.parametrize(
    ("break_it", "complaint"),
    [
        (_without_the_end, "9 batches, on disk are"),
        (_wrong("log_start_offset", 5), "goes from 5 to 12, on disk from 0 to 12"),
        (_wrong("leo", 13), "goes from 0 to 13"),
        (_wrong("recovery_point", 12), "takes what is below 12 for synced, which is so below 3"),
        (_wrong("producers", ProducerStates()), "remembers None of producer 7"),
        (lambda log: log.epochs.entries.pop(), "takes 10 for one of epoch [1], not 2"),
        (lambda log: log.epochs.entries.append((9, 13)), "knows an epoch above its end 12"),
    ],
)
def test_what_is_not_on_the_disk_is_named(tmp_path: Path, break_it: Callable[[Log], None], complaint: str) -> None:
    folder = tmp_path / "side-1-0"
    written(folder)
    found, log = started(folder)
    break_it(log)
    assert any(complaint in wrong for wrong in differences(found, log)), list(differences(found, log))


def watched(tmp_path: Path) -> tuple[Restarts, Any, Path]:
    """The oracle of a broker with two dirs, its cluster, and the log's folder in the first one."""
    folder = tmp_path / "broker-2" / "side-1-0"
    (tmp_path / "broker-2-2").mkdir()
    (tmp_path / "broker-2").mkdir()
    written(folder)
    (folder.parent / checkpoints.RECOVERY_POINT_FILE).write_text(checkpoints.offsets_text({TP: POINT}))
    topic = {"partitions": {"0": [1, 2]}, "adding_replicas": {}}
    cluster: Any = SimpleNamespace(
        log_dirs=lambda number: [tmp_path / f"broker-{number}", tmp_path / f"broker-{number}-2"],
        disks={2: SimulatedDisk(random.Random(1), lambda: 0.0)},
        brokers={},
        content_of=lambda name: topic,
        world=SimpleNamespace(zookeeper=SimpleNamespace(tree={"/brokers/topics/side-1": SimpleNamespace(czxid=5)})),
    )
    return Restarts(cluster), cluster, folder


def runs_with(restarts: Restarts, cluster: Any, folder: Path, logs: list[Any]) -> None:
    """The broker has loaded these."""
    log_dir = SimpleNamespace(is_online=True, path=folder.parent, all_logs=lambda: logs)
    hosting = SimpleNamespace(table=SimpleNamespace(dirs=[log_dir]))
    cluster.brokers[2] = SimpleNamespace(replicas=hosting)
    restarts.row(BrokerId(2), TraceEvent.START, 1, None, {})


def test_a_log_that_is_not_loaded_is_missed(tmp_path: Path) -> None:
    restarts, cluster, folder = watched(tmp_path)
    restarts.reads(2)
    _, log = started(folder)
    runs_with(restarts, cluster, folder, [log])
    assert (restarts.broken, restarts.logs) == ([], 1)
    restarts.reads(2)
    runs_with(restarts, cluster, folder, [])
    assert restarts.broken == ["broker 2 starts: side-1-0 is on its disk, and not loaded"]


@pytest.mark.parametrize(
    ("how", "complains"),
    [("again", True), ("sound", False), ("added", False), ("was removed", False), ("another topic", False)],
)
def test_a_log_is_not_made_beside_one_in_a_dir_that_failed(tmp_path: Path, how: str, complains: bool) -> None:
    restarts, cluster, folder = watched(tmp_path)
    topic = cluster.content_of("side-1")
    made = {"event": ev.LOG_CREATED, "broker_id": 2, "topic": "side-1", "partition": 0}
    restarts.event(made)
    if how != "sound":
        cluster.disks[2].failing[folder.parent] = errno.EIO
    if how == "added":
        topic["adding_replicas"] = {"0": [2]}
    if how == "was removed":
        for replicas in ([1], [1, 2]):
            topic["partitions"] = {"0": replicas}
            op = SetData("/brokers/topics/side-1", b"", 1)
            restarts.operation(None, op, ZkResult(ZkCode.OK))
    if how == "another topic":
        cluster.world.zookeeper.tree["/brokers/topics/side-1"].czxid = 6
    restarts.event(made)
    assert restarts.broken == (
        ["broker 2 makes a log of side-1-0, it has one in broker-2, which has failed"] if complains else []
    )
