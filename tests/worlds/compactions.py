"""Logs that are compacted: a dir with one log, or several, and the cleaner that would compact them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from broker_sim.config import ReplicaSettings
from broker_sim.log.cleaner_plan import CleaningPlan, plan_cleaning
from broker_sim.log.config import LogConfig
from broker_sim.log.dirs import LogDirs
from broker_sim.log.files import Files
from broker_sim.replicas.log_cleaner import LogCleaner
from controller.wire.compression import Codec
from controller.wire.records import Record, build_batch, iterate
from controller.wire.types import TopicPartition

TP = TopicPartition("t", 0)
NOW = 1_000_000
COMPACT = LogConfig(
    cleanup_policy="compact", segment_bytes=400, segment_index_bytes=1_000, index_interval_bytes=100,
    min_cleanable_dirty_ratio=0.01, delete_retention_ms=1_000,
)  # fmt: skip


class World:
    """One log in one dir, and the cleaner that would compact it."""

    def __init__(
        self, folder: Path, config: LogConfig = COMPACT, files: Files | None = None, *, map_bytes: int = 1 << 27,
        others: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        """`others`: further log dirs."""
        self.now_ms, self.failed, self.events = NOW, [], []
        #: what happens while the disk is waited for
        self.meanwhile: Callable[[], object] = lambda: None
        self.dirs = LogDirs((str(folder), *others), random.Random(1), files)
        self.dirs.open(broker_id=1, cluster_id="c", config_of=lambda topic: config, now_ms=NOW)
        self.log = self.dirs.get(TP) or self.dirs.create(TP, config)
        self.partition = SimpleNamespace(log=self.log, hw=0)
        self.settings = ReplicaSettings(log_dirs=(str(folder),), log_cleaner_dedupe_buffer_size=map_bytes)
        self.partitions = {TP: self.partition}
        table = SimpleNamespace(
            settings=self.settings,
            dirs=self.dirs,
            partitions=self.partitions,
            now_ms=lambda: self.now_ms,
            off_loop=self._off_loop,
            on_storage_failure=self.failed.append,
            log=SimpleNamespace(
                info=lambda event, **keys: self.events.append((event, keys)),
                error=lambda event, **keys: self.events.append((event, keys)),
            ),
        )
        self.cleaner = LogCleaner(table)

    async def _off_loop(self, work: Any) -> None:
        self.meanwhile()
        work()

    def write(
        self, *pairs: Any, producer: int = -1, sequence: int = -1, codec: Codec = Codec.NONE, at: int = NOW
    ) -> None:
        found = [Record(n, at, key, value) for n, (key, value) in enumerate(pairs)]
        epoch = 0 if producer >= 0 else -1
        batch = build_batch(found, codec=codec, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        self.log.append_as_leader(batch, leader_epoch=0, now_ms=self.now_ms)
        self.partition.hw = self.log.leo

    def beside(self, number: int) -> None:
        """A further log, which is written to from now on."""
        self.log = self.dirs.create(TopicPartition("t", number), COMPACT)
        self.partition = self.partitions[self.log.topic_partition] = SimpleNamespace(log=self.log, hw=0)

    def plan(self, partition: Any) -> CleaningPlan:
        log = partition.log
        return plan_cleaning(
            log.segments, log.config, cleaned_up_to=self.dirs.cleaned_up_to(log), log_start=log.log_start_offset,
            leo=log.leo, high_watermark=partition.hw, now_ms=self.now_ms,
        )  # fmt: skip

    def clean(self) -> bool:
        return asyncio.run(self.cleaner.clean_one())

    def records(self) -> list[Record]:
        return list(iterate(b"".join(self.log.batches())))

    def table(self) -> dict[bytes, bytes]:
        return newest(self.records())

    def reopened(self, *, clean: bool = False) -> World:
        self.dirs.close(clean=clean, broker_epoch=1, high_watermarks={TP: self.partition.hw})
        again = World(Path(self.settings.log_dirs[0]), self.log.config)
        again.partition.hw = self.partition.hw
        return again


def newest(records: Any) -> dict[bytes, bytes]:
    found = {}
    for record in records:
        found[record.key] = record.value
    return {key: value for key, value in found.items() if value is not None}
