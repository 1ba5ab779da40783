"""LeaderAndIsr and StopReplica, partition by partition: which check comes first, and what each leaves (§6, §7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller.wire.control import LeaderAndIsrEntry
from controller.wire.errors import ErrorCode
from controller.wire.types import LeaderAndIsr, ReplicaAssignment, TopicPartition
from tests.worlds.replicas import Cluster

TP, NEW = TopicPartition("t", 0), TopicPartition("u", 0)
EPOCH, VERSION = 3, 8
OK, STALE, UNKNOWN, STORAGE, FENCED = (
    ErrorCode.NONE,
    ErrorCode.STALE_CONTROLLER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
)


def run(cluster_of: type[Cluster], tmp_path: Path, scenario: Any) -> Any:
    """Broker 1 has two log dirs; it leads `TP` at `EPOCH`, whose state has `VERSION`."""

    async def appointed(cluster: Cluster) -> Any:
        state = LeaderAndIsr(leader=1, isr=(1, 2), leader_epoch=EPOCH, partition_epoch=VERSION)
        assert become(cluster, TP, state) is OK
        return await scenario(cluster)

    return cluster_of.run(tmp_path, appointed, brokers=(1, 2), dirs=("a", "b"))


def become(cluster: Cluster, tp: Any, state: Any, replicas: Any = (1, 2), *, is_new: Any = False) -> ErrorCode:
    entry = LeaderAndIsrEntry(
        topic_partition=tp, state=state, assignment=ReplicaAssignment(replicas=replicas), is_new=is_new
    )
    return cluster.nodes[1].manager.leader_and_isr([entry])[tp]


def fail_dir_of_tp(cluster: Cluster) -> None:
    manager = cluster.nodes[1].manager
    manager.fail_log_dir(str(cluster.nodes[1].partition(TP).log.log_dir))


#: what, leader, leader epoch and state version of the request, replicas, is the dir offline, answer, epoch then
ROLES = [
    ("offline comes before an old epoch", 1, 1, 9, (1, 2), True, STORAGE, EPOCH),
    ("offline comes before a new epoch", 2, 9, 9, (1, 2), True, STORAGE, EPOCH),
    ("an old epoch comes before a list without us", 2, 1, 9, (2,), False, STALE, EPOCH),
    ("the same epoch with another ISR changes nothing", 1, EPOCH, 9, (1, 2), False, STALE, EPOCH),
    ("a new epoch, but no replica of ours", 2, 4, 9, (2,), False, UNKNOWN, EPOCH),
    ("a new epoch with an older state version is passed over", 2, 4, VERSION - 1, (1, 2), False, OK, EPOCH),
    ("a new epoch with the same version", 1, 4, VERSION, (1, 2), False, OK, 4),
    ("a new leader", 2, 4, 9, (1, 2), False, OK, 4),
    ("a leader that is not alive: the epoch stays", 9, 4, 9, (1, 2, 9), False, OK, EPOCH),
    ("no leader: the epoch stays", None, 4, 9, (1, 2), False, OK, EPOCH),
]


@pytest.mark.parametrize(
    ("_", "leader", "epoch", "version", "replicas", "is_offline", "answer", "left"), ROLES, ids=[r[0] for r in ROLES]
)
def test_leader_and_isr(
    cluster_of: type[Cluster],
    tmp_path: Path,
    _: Any,
    leader: Any,
    epoch: Any,
    version: Any,
    replicas: Any,
    is_offline: Any,
    answer: Any,
    left: Any,
) -> None:
    async def scenario(cluster: Cluster) -> None:
        if is_offline:
            fail_dir_of_tp(cluster)
        state = LeaderAndIsr(leader=leader, isr=(2,), leader_epoch=epoch, partition_epoch=version)
        assert become(cluster, TP, state, replicas) is answer
        assert cluster.nodes[1].partition(TP).leader_epoch == left
        leads = leader == 1 if left == epoch and answer is OK else not is_offline
        assert cluster.nodes[1].manager.is_leader(TP) is leads

    run(cluster_of, tmp_path, scenario)


#: is the partition new, is a dir offline -> answer, has it a log
CREATIONS = [(True, True, OK, True), (False, True, STORAGE, False), (False, False, OK, True), (True, False, OK, True)]


@pytest.mark.parametrize(("is_new", "is_offline", "answer", "has_log"), CREATIONS)
def test_a_log_is_created_unless_it_may_be_on_a_failed_disk(
    cluster_of: type[Cluster], tmp_path: Path, is_new: Any, is_offline: Any, answer: Any, has_log: Any
) -> None:
    async def scenario(cluster: Cluster) -> None:
        if is_offline:
            fail_dir_of_tp(cluster)
        state = LeaderAndIsr(leader=1, isr=(1,), leader_epoch=0)
        assert become(cluster, NEW, state, is_new=is_new) is answer
        assert (cluster.nodes[1].manager.table.dirs.get(NEW) is not None) is has_log

    run(cluster_of, tmp_path, scenario)


#: what comes after the answer that the log may be on a failed disk -> (leader epoch, is it new, or is it deleted)
AFTERWARDS = {
    "the same again": (0, False, False),
    "it is new": (1, True, False),
    "another leader epoch": (1, False, False),
    "its topic is deleted": (-2, False, True),
    "it is moved away": (1, False, True),
}


@pytest.mark.parametrize("what", AFTERWARDS)
def test_what_may_be_on_a_failed_disk_is_offline_until_the_next_start(
    cluster_of: type[Cluster], tmp_path: Path, what: str
) -> None:
    """Else its log counts as deleted, and is there again with the disk; or there are two of them then."""
    epoch, is_new, is_deleted = AFTERWARDS[what]

    async def scenario(cluster: Cluster) -> None:
        fail_dir_of_tp(cluster)
        assert become(cluster, NEW, LeaderAndIsr(leader=1, isr=(1,), leader_epoch=0)) is STORAGE
        if is_deleted:
            assert cluster.stop_replica(NEW, 1, delete=True, epoch=epoch) is STORAGE
        else:
            state = LeaderAndIsr(leader=1, isr=(1,), leader_epoch=epoch, partition_epoch=epoch)
            assert become(cluster, NEW, state, is_new=is_new) is STORAGE
        assert cluster.nodes[1].partition(NEW).is_offline

    run(cluster_of, tmp_path, scenario)
    assert not list(tmp_path.rglob("u-0*"))


#: what, partition, epoch of the request, delete, is the dir offline, answer, is the log there, is the replica served
STOPS = [
    ("offline comes before an old epoch", TP, 1, False, True, STORAGE, True, True),
    ("an older epoch", TP, EPOCH - 1, True, False, FENCED, True, True),
    ("the same epoch", TP, EPOCH, False, False, OK, True, True),
    ("the same epoch, deleted", TP, EPOCH, True, False, OK, False, False),
    ("a newer epoch", TP, EPOCH + 1, True, False, OK, False, False),
    ("no epoch is never old", TP, -1, True, False, OK, False, False),
    ("a topic being deleted", TP, -2, True, False, OK, False, False),
    ("a partition that is not here", NEW, 0, True, False, OK, False, False),
    ("a log that nobody was told of yet", NEW, 0, True, False, OK, False, False),
    ("the same, kept", NEW, 0, False, False, OK, True, False),
]


@pytest.mark.parametrize(
    ("what", "tp", "epoch", "delete", "is_offline", "answer", "has_log", "is_served"), STOPS, ids=[s[0] for s in STOPS]
)
def test_stop_replica(
    cluster_of: type[Cluster],
    tmp_path: Path,
    what: Any,
    tp: Any,
    epoch: Any,
    delete: Any,
    is_offline: Any,
    answer: Any,
    has_log: Any,
    is_served: Any,
) -> None:
    async def scenario(cluster: Cluster) -> None:
        manager = cluster.nodes[1].manager
        if is_offline:
            fail_dir_of_tp(cluster)
        if tp is NEW and "not here" not in what:
            manager.table.dirs.create(NEW, manager.table.config_of("u"))
        folders = [tmp_path / f"1-{name}" / f"{tp.topic}-0" for name in "ab"]
        assert cluster.stop_replica(tp, 1, delete=delete, epoch=epoch) is answer
        assert any(folder.exists() for folder in folders) is has_log
        assert (tp in manager.table.partitions) is is_served

    run(cluster_of, tmp_path, scenario)
