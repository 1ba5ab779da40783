"""What the checkpoints of dirs say: no more than is on the disk, and of each dir whatever befalls the others."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_sim.log import checkpoints
from broker_sim.log.log import Log
from broker_sim.replicas.log_cleaner import LogCleaner
from controller.wire.types import TopicPartition
from tests.worlds.replicas import Cluster

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
SMALL = {"log_segment_bytes": 2_000, "log_initial_task_delay_ms": 0, "log_flush_offset_checkpoint_interval_ms": 1_000}


class Disk:
    """What was synced of each file: its size then."""

    def __init__(self, cluster: Cluster) -> None:
        self.synced: dict[Path, int] = {}
        cluster.nodes[1].manager.table.dirs.files.before = self._before

    def _before(self, operation: str, path: Path) -> None:
        if operation == "sync":
            self.synced[path] = path.stat().st_size
        elif operation == "resize":
            self.synced.pop(path, None)

    def check(self, log: Log, where: str) -> None:
        """All below the recovery point is on the disk, in memory's words and in those of the checkpoint."""
        saved = checkpoints.read_offsets(log.log_dir / checkpoints.RECOVERY_POINT_FILE).get(log.topic_partition, 0)
        assert saved <= log.recovery_point <= log.leo, where
        for segment in log.segments:
            if segment.next_offset <= log.recovery_point:
                assert self.synced.get(segment.log_path, 0) >= segment.size, f"{segment.log_path.name} {where}"


async def compact(cluster: Cluster) -> None:
    manager = cluster.nodes[1].manager
    larger = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "20000"}
    manager.configs.set_topic_config("t", larger)
    assert await LogCleaner(manager.table).clean_one()
    manager.configs.set_topic_config("t", {})


#: what happens to the log while a disk is waited for
MEANWHILE: dict[str, Callable[[Cluster, Log, Callable[[int], None]], object]] = {
    "nothing": lambda cluster, log, append: None,
    "it grows": lambda cluster, log, append: append(1),
    "it is rolled": lambda cluster, log, append: append(3),
    "it is cut": lambda cluster, log, append: log.truncate(log.leo - 2),
    "it is cut below what is flushed, and grows": lambda cluster, log, append: (log.truncate(3), append(6)),
    "it begins anew": lambda cluster, log, append: (log.truncate_fully(log.leo), append(3)),
    "it is compacted": lambda cluster, log, append: compact(cluster),
}


@pytest.mark.parametrize("when", ["before the sync", "after it"])
@pytest.mark.parametrize("what", MEANWHILE)
def test_the_recovery_point_never_passes_what_is_on_the_disk(
    cluster_of: type[Cluster], tmp_path: Path, what: str, when: str
) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, (1,), (1,), is_new=True)
        table, disk = cluster.nodes[1].manager.table, Disk(cluster)
        log, todo = table.partitions[TP].log, [MEANWHILE[what]] * 3
        assert log is not None

        def append(count: int) -> None:
            for _ in range(count):
                table.partitions[TP].append(
                    cluster.batch([b"x" * 900]), now_ms=table.now_ms(), needs_min_isr=False, is_client=True
                )

        async def slowly(work: Callable[[], None]) -> None:
            happens = todo.pop() if todo else MEANWHILE["nothing"]
            if what == "it is compacted" and len(todo) < 2:
                happens = MEANWHILE["nothing"]  # a compaction waits for the disk itself
            await cluster.world.sleep(0.1)
            if when == "after it":
                work()
            if inspect.isawaitable(done := happens(cluster, log, append)):
                await done
            if when == "before the sync":
                work()
            await cluster.world.sleep(0.1)

        table.off_loop = slowly
        append(10)
        for step in range(60):
            disk.check(log, f"at {step}")
            await cluster.world.sleep(0.05)
        await cluster.world.until(lambda: not log.unflushed(), within_s=10, what="all that is full is flushed")
        disk.check(log, "at the end")
        assert not cluster.nodes[1].failed_dirs

    cluster_of.run(tmp_path, scenario, brokers=(1,), **SMALL)


def test_a_log_that_goes_before_its_turn_is_no_failure_of_the_disk(cluster_of: type[Cluster], tmp_path: Path) -> None:
    """Its files may be removed while the disk is waited for: nobody can move a log that is gone."""

    async def scenario(cluster: Cluster) -> None:
        for tp in (TP, OTHER):
            cluster.appoint(tp, 1, (1,), (1,), is_new=True)
        table = cluster.nodes[1].manager.table
        gone = table.partitions[TP].log
        assert gone is not None

        async def slowly(work: Callable[[], None]) -> None:
            await cluster.world.sleep(1.0)
            work()

        table.off_loop = slowly
        for tp in (OTHER, TP):  # both have full segments; the second waits for its turn
            for _ in range(6):
                await cluster.produce(tp, 1, [b"x" * 900])
        cluster.stop_replica(TP, 1, delete=True)
        await cluster.world.sleep(8)
        assert not cluster.nodes[1].failed_dirs and not gone.folder.exists()

    later = {"log_initial_task_delay_ms": 3_600_000, "log_segment_delete_delay_ms": 500}
    cluster_of.run(tmp_path, scenario, brokers=(1,), **{**SMALL, **later})


@pytest.mark.parametrize("failing", ["a", "b"])
@pytest.mark.parametrize(
    "name", [checkpoints.HIGH_WATERMARK_FILE, checkpoints.RECOVERY_POINT_FILE, checkpoints.LOG_START_FILE]
)
def test_a_dir_that_fails_keeps_no_other_from_its_checkpoint(
    cluster_of: type[Cluster], tmp_path: Path, name: str, failing: str
) -> None:
    """At once: the next checkpoint may come after a loss of power."""

    async def scenario(cluster: Cluster) -> None:
        node = cluster.nodes[1]
        for tp in (TP, OTHER):
            cluster.appoint(tp, 1, (1,), (1,), is_new=True)
            for _ in range(6):
                await cluster.produce(tp, 1, [b"x" * 900])
            node.partition(tp).log.raise_log_start(5)
        logs = {node.partition(tp).log.log_dir.name: node.partition(tp).log for tp in (TP, OTHER)}
        assert set(logs) == {"1-a", "1-b"}

        def fails(operation: str, path: Any) -> None:
            if path == tmp_path / f"1-{failing}" / name and operation == "replace":
                raise OSError(5, "Input/output error")

        node.manager.table.dirs.files.before = fails
        await cluster.world.sleep(10.5)
        assert node.failed_dirs == [str(tmp_path / f"1-{failing}")]
        whole = logs["1-b" if failing == "a" else "1-a"]
        expected = {
            checkpoints.HIGH_WATERMARK_FILE: 6,
            checkpoints.RECOVERY_POINT_FILE: whole.segments[-1].base_offset,
            checkpoints.LOG_START_FILE: 5,
        }
        assert checkpoints.read_offsets(whole.log_dir / name) == {whole.topic_partition: expected[name]}

    cluster_of.run(
        tmp_path, scenario, brokers=(1,), dirs=("a", "b"), log_segment_bytes=2_000, log_initial_task_delay_ms=10_000,
        replica_high_watermark_checkpoint_interval_ms=10_000,
    )  # fmt: skip
