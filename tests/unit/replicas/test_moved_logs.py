"""Whatever happens to a log while it moves to another dir, the log that takes its place is the same, also on disk."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from controller.wire.errors import ErrorCode
from tests.unit.replicas.test_log_dir_moves import PIECES, TP, move, moved, throttle
from tests.worlds.replicas import Cluster

KINDS = ["append", "append", "epoch", "cut", "begin anew", "delete records", "retention", "restart"]


def look(log: Any) -> dict[str, Any]:
    """All that readers, followers and producers can see of a log."""
    return {
        "batches": list(log.batches()),
        "start and end": (log.log_start_offset, log.leo),
        "epochs": [log.end_offset_for_epoch(epoch) for epoch in range(-1, 12)],
        "producers": {p: (s.epoch, s.batches[-1]) for p, s in log.producers},
    }


class Story:
    """A replica that follows a leader that is not there; what that one would send is appended here."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.epoch, self.sequence = cluster, 0, 0

    @property
    def partition(self) -> Any:
        return self.cluster.nodes[1].partition(TP)

    def append(self, count: int) -> None:
        now_ms = self.cluster.world.clock.now_ms()
        for _ in range(count):
            batch = self.cluster.batch([b"%d" % self.partition.log.leo + b"x" * 900])
            self.partition.log.append_as_leader(batch, leader_epoch=self.epoch, now_ms=now_ms)
        self.partition.follow_watermark(self.partition.log.leo)

    async def step(self, what: str, number: int) -> None:
        log = self.partition.log
        match what:
            case "append":
                self.append(number)
            case "epoch":
                self.epoch += 1
                self.cluster.appoint(TP, 9, (9,), (9, 1), to=(1,))
            case "cut":
                self.partition.truncate(max(log.leo - number, log.log_start_offset))
            case "begin anew":
                self.partition.truncate_fully(log.leo + number)
            case "delete records":
                log.raise_log_start(min(log.log_start_offset + number, self.partition.hw))
            case "retention":
                keep = {"retention.bytes": "5000", "file.delete.delay.ms": "100"}
                self.cluster.nodes[1].manager.configs.set_topic_config("t", keep)
                log.delete_old_segments(now_ms=self.cluster.world.clock.now_ms(), high_watermark=self.partition.hw)
                self.cluster.nodes[1].manager.configs.set_topic_config("t", {})
            case _:
                for log_dir in self.cluster.nodes[1].manager.table.dirs:
                    log_dir.write_log_starts()  # else a kill may bring deleted records back, in one place alone
                await self.cluster.stop(1, clean=bool(number % 2))
                await self.cluster.start(1)
                self.cluster.appoint(TP, 9, (9,), (9, 1), to=(1,))
                self.epoch += 1
                throttle(self.cluster, 600)


@pytest.mark.parametrize("seed", range(30))
def test_a_log_that_moved_is_what_it_would_be_without(cluster_of: type[Cluster], tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)

    async def scenario(cluster: Cluster) -> None:
        story = Story(cluster)
        cluster.appoint(TP, 9, (9,), (9, 1), to=(1,), is_new=True)
        story.append(20)
        throttle(cluster, 600)
        assert move(cluster, tmp_path, "b") is ErrorCode.NONE
        for _ in range(8):
            await cluster.world.sleep(chance.choice((0.1, 1, 2)))
            await story.step(chance.choice(KINDS), chance.randint(1, 6))
        expected, hw = look(story.partition.log), story.partition.hw
        throttle(cluster, None)
        await moved(cluster, "b")
        assert (look(story.partition.log), story.partition.hw) == (expected, hw)
        await cluster.stop(1)
        await cluster.start(1)
        cluster.appoint(TP, 9, (9,), (9, 1), to=(1,))
        assert story.partition.log.log_dir.name == "1-b"
        assert (look(story.partition.log), story.partition.hw) == (expected, hw)

    cluster_of.run(tmp_path, scenario, brokers=(1,), dirs=("a", "b"), **PIECES)
