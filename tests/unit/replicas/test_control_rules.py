"""LeaderAndIsr and StopReplica, partition by partition: which check comes first, and what each leaves (§6, §7)."""

from __future__ import annotations

import asyncio
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


@pytest.mark.parametrize("leader", [1, 2])
def test_a_replica_that_is_anothers_leaves_nothing_here(cluster_of: type[Cluster], tmp_path: Path, leader: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        manager = cluster.nodes[1].manager
        state = LeaderAndIsr(leader=leader, isr=(2,), leader_epoch=EPOCH, partition_epoch=VERSION)
        assert become(cluster, NEW, state, (2,), is_new=True) is UNKNOWN
        assert not manager.is_here(NEW) and manager.local_partitions() == {TP}
        assert set(manager.table.partitions) == {TP}

    run(cluster_of, tmp_path, scenario)


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
        node = cluster.nodes[1]
        node.newly_led.clear()
        state = LeaderAndIsr(leader=leader, isr=(2,), leader_epoch=epoch, partition_epoch=version)
        assert become(cluster, TP, state, replicas) is answer
        is_taken = answer is OK and left == epoch
        assert (node.newly_led, node.no_longer_led) == (
            [TP] * (is_taken and leader == 1),
            [TP] * (is_taken and leader == 2),
        )
        assert cluster.nodes[1].partition(TP).leader_epoch == left
        leads = leader == 1 if left == epoch and answer is OK else not is_offline
        assert cluster.nodes[1].manager.is_leader(TP) is leads

    run(cluster_of, tmp_path, scenario)


#: is the partition new, has it a log, is a dir offline -> answer, has it a log then
CREATIONS = [
    (True, False, True, OK, True),
    (False, False, True, STORAGE, False),
    (False, False, False, OK, True),
    (True, False, False, OK, True),
    (False, True, True, OK, True),
    (False, True, False, OK, True),
]


@pytest.mark.parametrize(("is_new", "is_there", "is_offline", "answer", "has_log"), CREATIONS)
def test_a_log_is_created_unless_it_may_be_on_a_failed_disk(
    cluster_of: type[Cluster], tmp_path: Path, is_new: Any, is_there: Any, is_offline: Any, answer: Any, has_log: Any
) -> None:
    """One that is there is served, whatever became of other disks."""

    async def scenario(cluster: Cluster) -> None:
        if is_offline:
            fail_dir_of_tp(cluster)
        if is_there:
            cluster.nodes[1].manager.table.dirs.create(NEW, cluster.nodes[1].manager.table.config_of("u"))
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


@pytest.mark.parametrize("role", ["leader", "follower", "hosted nowhere", "not here"])
def test_a_replica_that_is_put_aside_is_hosted_no_longer_and_its_log_is_kept(
    cluster_of: type[Cluster], tmp_path: Path, role: str
) -> None:
    async def scenario(cluster: Cluster) -> None:
        node, manager = cluster.nodes[1], cluster.nodes[1].manager
        tp = TP if role in ("leader", "follower") else NEW
        if role == "follower":
            become(cluster, TP, LeaderAndIsr(leader=2, isr=(1, 2), leader_epoch=4, partition_epoch=9))
        if role == "hosted nowhere":
            manager.table.dirs.create(NEW, manager.table.config_of("u"))
        waiting = asyncio.ensure_future(cluster.produce(TP, 1, acks=-1))
        await cluster.world.sleep(0.1)
        rows = len(cluster.rows(1))
        folder = manager.put_aside(tp)
        assert (folder is None) is (role == "not here")
        if folder is not None:
            assert folder.is_dir() and folder.name.startswith(f"{tp.topic}-0.") and folder.name.endswith("-stray")
        assert not manager.is_here(tp) and tp in node.no_longer_led
        assert not manager.fetchers.follows(tp) and len(manager.fetchers.fetchers) == 0
        stops = [(row["ev"], row["epoch"], row["value"]) for row in cluster.rows(1)[rows:] if row["ev"] == "stop"]
        assert stops == ([("stop", 4 if role == "follower" else EPOCH, "delete")] if tp is TP else [])
        await cluster.world.sleep(0.1)
        assert waiting.done() is (tp is TP), "who waited for it waits no longer"
        if role == "leader":
            assert waiting.result().error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        waiting.cancel()

    run(cluster_of, tmp_path, scenario)


def test_a_disk_that_fails_within_a_request_ends_what_the_request_has_begun_on_it(
    cluster_of: type[Cluster], tmp_path: Path
) -> None:
    """The first partition is to be followed, and its dir fails when the log of the second is made there."""

    async def scenario(cluster: Cluster) -> None:
        manager, partition = cluster.nodes[1].manager, cluster.nodes[1].partition(TP)
        failing = str(partition.log.log_dir)
        manager.table.dirs.prefer(NEW, failing)

        def broken(operation: str, path: Path) -> None:
            if str(path).startswith(failing):
                raise OSError(5, "Input/output error")

        manager.table.dirs.files.before = broken
        states = {
            TP: LeaderAndIsr(leader=2, isr=(1, 2), leader_epoch=4, partition_epoch=9),
            NEW: LeaderAndIsr(leader=1, isr=(1, 2), leader_epoch=0),
        }
        assignment = ReplicaAssignment(replicas=(1, 2))
        answers = manager.leader_and_isr(
            [
                LeaderAndIsrEntry(topic_partition=tp, state=state, assignment=assignment, is_new=True)
                for tp, state in states.items()
            ]
        )
        assert answers == {TP: OK, NEW: OK} and manager.is_leader(NEW), "there is another disk"
        assert partition.is_offline and str(cluster.nodes[1].partition(NEW).log.log_dir) != failing
        assert not manager.fetchers.follows(TP) and len(manager.fetchers.fetchers) == 0

    run(cluster_of, tmp_path, scenario)
