"""What the parts of the data plane share: the table of partitions, the log dirs, the quotas and what was passed in."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from broker_sim.config import ReplicaSettings
from broker_sim.log.config import LogConfig, log_config
from broker_sim.log.dirs import LogDirs
from broker_sim.log.errors import StorageFailure
from broker_sim.replicas.first_fetches import FirstFetches
from broker_sim.replicas.partition import Partition
from broker_sim.replicas.quota import ReplicationQuota
from broker_sim.replicas.types import MetadataView
from broker_sim.topic_meters import TopicMeters
from broker_sim.trace import TraceWriter
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.trace import TraceEvent
from controller.wire.types import BrokerId, TopicPartition
from controller.world.ports import Clock
from controller.world.supervisor import Supervisor


@dataclass(slots=True, kw_only=True)
class ReplicaTable:
    """All replicas of one broker. `on_storage_failure` takes the dir of a failure offline.

    `off_loop(work)` does what would stop the event loop for long (waiting for a disk) where it does not.
    """

    broker_id: BrokerId
    settings: ReplicaSettings
    clock: Clock
    rng: random.Random
    metadata: MetadataView
    trace: TraceWriter
    log: Any
    supervisor: Supervisor
    on_storage_failure: Callable[[StorageFailure], None]
    disk_wait_s: Callable[[str, int], float]
    off_loop: Callable[[Callable[[], None]], Awaitable[None]]
    dirs: LogDirs
    leader_quota: ReplicationQuota
    follower_quota: ReplicationQuota
    alter_log_dirs_quota: ReplicationQuota
    partitions: dict[TopicPartition, Partition] = field(default_factory=dict)
    first_fetches: FirstFetches = field(default_factory=FirstFetches)
    meters: TopicMeters = field(default_factory=TopicMeters)
    overrides: dict[str, dict[str, str]] = field(default_factory=dict)
    _traced_dead: set[BrokerId] = field(default_factory=set)
    #: what topics without overrides have, and the settings that say so
    _default: tuple[ReplicaSettings, LogConfig] | None = None

    def now_ms(self) -> int:
        """The broker's time of day."""
        return self.clock.now_ms()

    def config_of(self, topic: str) -> LogConfig:
        """The settings of a topic's logs: one value for all topics without overrides."""
        overrides = self.overrides.get(topic)
        if overrides:
            return log_config(self.settings, overrides)
        if self._default is None or self._default[0] is not self.settings:
            self._default = self.settings, log_config(self.settings, {})
        return self._default[1]

    def get(self, topic_partition: TopicPartition) -> Partition:
        """The partition hosted here. Raises KafkaError: offline 56, hosted elsewhere 6, unknown 3."""
        partition = self.partitions.get(topic_partition)
        if partition is None:
            is_elsewhere = self.metadata.knows(topic_partition)
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER if is_elsewhere else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{topic_partition} is not hosted by broker {self.broker_id}",
            )
        if partition.is_offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log dir of {topic_partition} is offline")
        return partition

    async def wait_for_disks(self, sizes: Iterable[tuple[TopicPartition, int]]) -> None:
        """Waits as long as slow disks take for so many bytes of these partitions; not at all where none is slow."""
        by_dir: dict[str, int] = {}
        for topic_partition, size_bytes in sizes:
            partition = self.partitions.get(topic_partition)
            if size_bytes and partition is not None and partition.log is not None:
                log_dir = self.dirs.dir_of(partition.log).name
                by_dir[log_dir] = by_dir.get(log_dir, 0) + size_bytes
        wait_s = max((self.disk_wait_s(name, size_bytes) for name, size_bytes in by_dir.items()), default=0.0)
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    def led(self) -> Iterator[Partition]:
        """All partitions that this broker leads."""
        return (p for p in list(self.partitions.values()) if p.led is not None)

    def note_failure(self, error: KafkaError) -> None:
        """Takes the log dir offline where `error` is that of a disk; does nothing for any other."""
        if isinstance(error, StorageFailure):
            self.on_storage_failure(error)

    def trace_aliveness(self) -> None:
        """Rows for the brokers that the rules take for dead, or no longer; only replicas of led partitions matter."""
        alive = self.metadata.alive_brokers()
        watched = {r for p in self.led() if p.led is not None for r in p.led.followers}
        self._trace_aliveness(watched, alive)

    def trace_aliveness_of(self, replicas: tuple[BrokerId, ...]) -> None:
        """As `trace_aliveness`, for the replicas of a partition about to be led."""
        self._trace_aliveness({r for r in replicas if r != self.broker_id}, self.metadata.alive_brokers())

    def _trace_aliveness(self, watched: set[BrokerId], alive: Any) -> None:
        now_ms = self.now_ms()
        for broker_id in sorted(watched | self._traced_dead):
            is_dead, was_dead = broker_id not in alive, broker_id in self._traced_dead
            if is_dead == was_dead:
                continue
            self.trace.row(TraceEvent.BROKER_DOWN if is_dead else TraceEvent.BROKER_UP, now_ms, replica=broker_id)
            (self._traced_dead.add if is_dead else self._traced_dead.discard)(broker_id)
