"""Log directories of brokers as a client sees them, and moving replicas between them. Source: spec broker.md §11."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from controller.admin.cluster.client import AdminClient
from controller.admin.cluster.failures import Refused, check
from controller.admin.cluster.queries import by_topic, outcome
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, PartitionReplica, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLog:
    """One replica in one directory. `offset_lag` as DescribeLogDirs has it; `is_future`: a copy being made there."""

    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDir:
    """A directory of a broker: its replicas, or why it cannot be read; of its volume what a broker from 3.3 on says."""

    path: str
    replicas: tuple[ReplicaLog, ...]
    error: Refused | None = None
    total_bytes: int | None = None
    usable_bytes: int | None = None


async def describe_log_dirs(
    admin: AdminClient, brokers: Iterable[BrokerId], partitions: Collection[TopicPartition] | None = None
) -> dict[BrokerId, list[LogDir]]:
    """The directories of these brokers with these replicas or (None) all, asked at the same time. Raises Refused."""
    listed = sorted(set(brokers))
    answers = await asyncio.gather(*(_describe(admin, broker, partitions) for broker in listed))
    return dict(zip(listed, answers, strict=True))


async def _describe(
    admin: AdminClient, broker: BrokerId, partitions: Collection[TopicPartition] | None
) -> list[LogDir]:
    return read_log_dirs(await admin.call_broker(broker, ApiKey.DESCRIBE_LOG_DIRS, log_dirs_of(partitions)))


def log_dirs_of(partitions: Collection[TopicPartition] | None) -> dict[str, Any]:
    """The request for these replicas or (None) all."""
    if partitions is None:
        return {"topics": None}
    return {"topics": [{"topic": t, "partitions": n} for t, n in by_topic(partitions).items()]}


def read_log_dirs(answer: Any) -> list[LogDir]:
    """What an answer to it says. Raises Refused."""
    check(getattr(answer, "error_code", 0))
    if not answer.results:
        # Before version 3 there is no place for a failure as a whole; Kafka's `KafkaAdminClient` reads it so too.
        check(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return [_log_dir(result) for result in sorted(answer.results, key=lambda r: str(r.log_dir))]


def _log_dir(result: Any) -> LogDir:
    replicas = [
        ReplicaLog(
            partition=TopicPartition(topic.name, p.partition_index),
            size_bytes=p.partition_size,
            offset_lag=p.offset_lag,
            is_future=p.is_future_key,
        )
        for topic in result.topics
        for p in topic.partitions
    ]
    return LogDir(
        path=result.log_dir,
        replicas=tuple(sorted(replicas, key=lambda r: (r.partition, r.is_future))),
        error=outcome(result.error_code),
        total_bytes=_size_or_none(getattr(result, "total_bytes", -1)),
        usable_bytes=_size_or_none(getattr(result, "usable_bytes", -1)),
    )


def _size_or_none(size: int) -> int | None:
    """A size, where -1 stands for one that nobody says."""
    return size if size >= 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPlace:
    """In which directory a replica is, and to which it is being moved."""

    current: str | None
    future: str | None


async def replica_places(
    admin: AdminClient, replicas: Collection[PartitionReplica]
) -> dict[PartitionReplica, ReplicaPlace]:
    """Where these replicas are. Raises Refused."""
    partitions: dict[BrokerId, set[TopicPartition]] = defaultdict(set)
    for replica in replicas:
        partitions[replica.replica].add(replica.topic_partition)
    current: dict[PartitionReplica, str] = {}
    future: dict[PartitionReplica, str] = {}
    for broker in sorted(partitions):
        described = await describe_log_dirs(admin, [broker], partitions[broker])
        for log_dir in described[broker]:
            for log in log_dir.replicas:
                (future if log.is_future else current)[PartitionReplica(log.partition, broker)] = log_dir.path
    return {r: ReplicaPlace(current=current.get(r), future=future.get(r)) for r in sorted(replicas)}


async def alter_log_dirs(
    admin: AdminClient, targets: Mapping[PartitionReplica, str]
) -> dict[PartitionReplica, Refused | None]:
    """Asks each broker to move its replicas to these directories. One outcome each."""
    outcomes: dict[PartitionReplica, Refused | None] = {}
    for broker in sorted({replica.replica for replica in targets}):
        dirs: dict[str, list[TopicPartition]] = defaultdict(list)
        for replica, path in targets.items():
            if replica.replica == broker:
                dirs[path].append(replica.topic_partition)
        body = {
            "dirs": [
                {"path": path, "topics": [{"name": t, "partitions": n} for t, n in by_topic(partitions).items()]}
                for path, partitions in sorted(dirs.items())
            ]
        }
        answer = await admin.call_broker(broker, ApiKey.ALTER_REPLICA_LOG_DIRS, body)
        for topic in answer.results:
            for p in topic.partitions:
                replica = PartitionReplica(TopicPartition(topic.topic_name, p.partition_index), broker)
                outcomes[replica] = outcome(p.error_code)
    return outcomes
