"""What the periodic work of a broker asks of it, and little else: one log dir, virtual time, events that are kept."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import structlog

from broker_sim.config import ReplicaSettings
from broker_sim.log.config import LogConfig
from broker_sim.log.dirs import LogDirs
from controller.wire.records import Record, build_batch
from controller.wire.types import TopicPartition
from controller.world.supervisor import Supervisor


def table(folder: Path, config: LogConfig | None = None, **settings: Any) -> Any:
    """What periodic work asks of a broker: one dir, no partitions yet; its time is the loop's."""
    config = config or LogConfig()
    log = structlog.get_logger()
    dirs = LogDirs((str(folder),), random.Random(1))
    dirs.open(broker_id=1, cluster_id="c", config_of=lambda topic: config, now_ms=0)
    events: list[tuple[str, Any]] = []

    async def at_once(work: Callable[[], None]) -> None:
        work()

    def told(event: str, **keys: Any) -> None:
        events.append((event, keys))

    return SimpleNamespace(
        settings=ReplicaSettings(log_dirs=(str(folder),), **settings), dirs=dirs, partitions={}, events=events,
        supervisor=Supervisor(log), off_loop=at_once, on_storage_failure=events.append,
        now_ms=lambda: round(asyncio.get_running_loop().time() * 1000),
        log=SimpleNamespace(info=told, error=told, warning=told),
        trace=SimpleNamespace(row=lambda *columns, **more: None),
    )  # fmt: skip


def written(broker: Any, tp: TopicPartition, count: int, *, size: int = 10, keys: int = 1, **changes: Any) -> Any:
    """A partition whose log has so many batches of one record."""
    log = broker.dirs.create(tp, LogConfig(**changes))
    for number in range(count):
        data = build_batch([Record(0, 1, b"%d" % (number % keys), b"x" * size)])
        log.append_as_leader(data, leader_epoch=0, now_ms=1)
    broker.partitions[tp] = SimpleNamespace(
        topic_partition=tp, log=log, hw=log.leo, future_log=None, future_hw=0
    )  # fmt: skip
    return broker.partitions[tp]
