"""The periodic work on the disk: what is flushed, checkpointed, aged out and removed later; a disk that fails in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker_sim.log import checkpoints
from broker_sim.replicas.housekeeping import Housekeeping
from controller.wire.errors import ErrorCode
from controller.wire.records import iterate
from controller.wire.types import TopicPartition
from tests.worlds.replicas import Cluster

TP = TopicPartition("t", 0)
SOON = {"log_segment_bytes": 2_000, "log_initial_task_delay_ms": 0}


def run(cluster_of: type[Cluster], tmp_path: Path, scenario: Any, *, dirs: Any = ("a", "b"), **settings: Any) -> Any:
    async def filled(cluster: Cluster) -> Any:
        cluster.appoint(TP, 1, (1,), (1,), is_new=True)
        for number in range(10):
            await cluster.produce(TP, 1, [b"%d" % number + b"x" * 900])
        return await scenario(cluster)

    return cluster_of.run(tmp_path, filled, brokers=(1,), dirs=dirs, **{**SOON, **settings})


def offsets(cluster: Cluster) -> list[int]:
    return [r.offset for r in iterate(b"".join(cluster.nodes[1].manager.read_records(TP)))]


def test_old_segments_are_renamed_and_removed_after_the_delay(cluster_of: type[Cluster], tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.nodes[1].manager.configs.set_topic_config("t", {"retention.bytes": "3000"})
        folder = tmp_path / "1-a" / "t-0"
        await cluster.world.until(lambda: bool(list(folder.glob("*.deleted"))), within_s=3, what="segments go")
        assert offsets(cluster) == [6, 7, 8, 9]
        await cluster.world.sleep(3)
        assert {p.name.split(".")[1] for p in folder.glob("*.deleted")} == {"log", "index", "timeindex", "snapshot"}
        await cluster.world.sleep(3)
        assert not list(folder.glob("*.deleted"))

    run(
        cluster_of, tmp_path, scenario, log_retention_check_interval_ms=1_000, log_segment_delete_delay_ms=5_000
    )  # fmt: skip


@pytest.mark.parametrize(("enabled", "damaged", "policy", "goes"), [
    (True, False, "compact,delete", True),
    (True, True, "compact,delete", False),
    (False, False, "compact,delete", False),
    (False, False, "delete", True),
])  # fmt: skip
def test_segments_of_a_compacted_log_go_where_it_can_be_compacted(
    cluster_of: type[Cluster], tmp_path: Path, enabled: bool, damaged: bool, policy: str, goes: bool
) -> None:
    """Source: Kafka 3.9 `LogManager.cleanupLogs`, `LogCleanerManager.deletableLogs`."""

    async def scenario(cluster: Cluster) -> None:
        folder = tmp_path / "1-a" / "t-0"
        configs = cluster.nodes[1].manager.configs
        if damaged:
            with min(folder.glob("*.log")).open("r+b") as file:
                file.seek(21)
                file.write(b"\x00\x07")  # a compression that does not exist
            configs.set_topic_config("t", {"cleanup.policy": policy, "min.cleanable.dirty.ratio": "0"})
            await cluster.world.sleep(3)
        settings = {"cleanup.policy": policy, "retention.bytes": "3000", "min.cleanable.dirty.ratio": "1"}
        configs.set_topic_config("t", settings)
        await cluster.world.sleep(3)
        assert bool(list(folder.glob("*.deleted"))) is goes

    run(
        cluster_of, tmp_path, scenario, log_retention_check_interval_ms=1_000, log_cleaner_backoff_ms=1_000,
        log_cleaner_enable=enabled,
    )  # fmt: skip


def test_closed_segments_are_flushed_before_the_recovery_point_says_so(
    cluster_of: type[Cluster], tmp_path: Path
) -> None:
    async def scenario(cluster: Cluster) -> None:
        synced: list[str] = []
        log = cluster.nodes[1].partition(TP).log
        cluster.nodes[1].manager.table.dirs.files.before = lambda operation, path: (
            synced.append(path.name) if operation == "sync" else None
        )
        path = tmp_path / "1-a" / checkpoints.RECOVERY_POINT_FILE
        await cluster.world.until(lambda: bool(checkpoints.read_offsets(path).get(TP)), within_s=3, what="written")
        assert checkpoints.read_offsets(path) == {TP: log.segments[-1].base_offset}
        assert {n for n in synced if n.endswith(".log")} == {s.log_path.name for s in log.segments[:-1]}
        before = len(synced)
        await cluster.world.sleep(5)
        assert len(synced) == before, "what is flushed is not flushed again"

    run(cluster_of, tmp_path, scenario, log_flush_offset_checkpoint_interval_ms=1_000)


def test_a_full_segment_reaches_the_disk_without_waiting_for_the_checkpoint(
    cluster_of: type[Cluster], tmp_path: Path
) -> None:
    """Else a loss of power may take the end of one segment and leave the next: a gap that no recovery sees."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.world.sleep(1)
        log = cluster.nodes[1].partition(TP).log
        assert len(log.segments) > 2 and log.recovery_point == log.segments[-1].base_offset

    run(cluster_of, tmp_path, scenario, log_initial_task_delay_ms=3_600_000)


def test_a_disk_that_fails_in_a_flush_is_taken_offline(cluster_of: type[Cluster], tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        def broken(operation: str, path: Any) -> None:
            if operation == "sync":
                raise OSError(5, "Input/output error")

        cluster.nodes[1].manager.table.dirs.files.before = broken
        await cluster.world.until(lambda: bool(cluster.nodes[1].failed_dirs), within_s=3, what="the dir has failed")
        assert (await cluster.produce(TP, 1)).error is ErrorCode.KAFKA_STORAGE_ERROR

    run(cluster_of, tmp_path, scenario, log_flush_offset_checkpoint_interval_ms=1_000)


@pytest.mark.parametrize("broken_dirs", [{"1-a"}, {"1-b"}, {"1-c"}, {"1-a", "1-b"}, {"1-a", "1-c"}])
def test_a_disk_that_fails_in_a_flush_that_is_due_keeps_no_other_log_from_it(
    cluster_of: type[Cluster], tmp_path: Path, broken_dirs: set[str]
) -> None:
    """Source: Kafka 3.9 `LogManager.flushDirtyLogs`."""

    async def scenario(cluster: Cluster) -> None:
        manager = cluster.nodes[1].manager
        partitions = [TopicPartition("u", number) for number in range(6)]
        for tp in partitions:
            cluster.appoint(tp, 1, (1,), (1,), is_new=True)
            await cluster.produce(tp, 1)
        manager.configs.set_topic_config("u", {"flush.ms": "0"})
        logs = [manager.table.partitions[tp].log for tp in partitions]

        def broken(operation: str, path: Path) -> None:
            if operation == "sync" and path.parts[len(tmp_path.parts)] in broken_dirs:
                raise OSError(5, "Input/output error")

        manager.table.dirs.files.before = broken
        Housekeeping(manager.table).flush_due()
        assert sorted(cluster.nodes[1].failed_dirs) == [str(tmp_path / name) for name in sorted(broken_dirs)]
        flushed = {log.log_dir.name for log in logs if log.recovery_point == log.leo}
        assert flushed == {"1-a", "1-b", "1-c"} - broken_dirs

    run(cluster_of, tmp_path, scenario, dirs=("a", "b", "c"))


def test_a_full_disk_refuses_the_record_and_takes_the_dir_offline(cluster_of: type[Cluster], tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        def full(operation: str, path: Any) -> None:
            if operation in ("append", "create") and "1-a" in str(path):
                raise OSError(28, "No space left on device")

        files = cluster.nodes[1].manager.table.dirs.files
        files.before = full
        assert (await cluster.produce(TP, 1, acks=-1)).error is ErrorCode.KAFKA_STORAGE_ERROR
        assert cluster.nodes[1].failed_dirs == [str(tmp_path / "1-a")]
        files.before = None
        await cluster.stop(1, clean=False)
        await cluster.start(1)
        cluster.appoint(TP, 1, (1,), (1,))
        assert offsets(cluster) == list(range(10)), "what was acknowledged is there when the disk is mended"

    run(cluster_of, tmp_path, scenario)


def test_a_compacted_topic_is_compacted_by_and_by(cluster_of: type[Cluster], tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.nodes[1].manager.configs.set_topic_config(
            "t", {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
        )
        await cluster.world.until(lambda: len(offsets(cluster)) < 10, within_s=5, what="it is compacted")
        assert offsets(cluster) == [8, 9], "records without a key go, but for those of the active segment"
        path = tmp_path / "1-a" / checkpoints.CLEANER_FILE
        assert checkpoints.read_offsets(path) == {TP: 8}
        await cluster.produce(TP, 1, [b"more"])

    run(cluster_of, tmp_path, scenario, log_cleaner_backoff_ms=1_000)
