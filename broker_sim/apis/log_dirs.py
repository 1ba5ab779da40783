"""Log directories of this broker: DescribeLogDirs (35) versions 0-2, AlterReplicaLogDirs (34) versions 0-1.

v1 of both changed only throttling, v2 of DescribeLogDirs is flexible. What is decided about moves is in
`replicas.log_dir_moves`. Source: spec broker.md §11.2, §11.3.
"""

from __future__ import annotations

from typing import Any, Final

from broker_sim.apis.context import BrokerContext, by_topic
from broker_sim.replicas.types import LogDirDescription, ReplicaOnDisk
from broker_sim.server import Answer, Call
from controller.wire.types import TopicPartition

DESCRIBE_LOG_DIRS_VERSIONS: Final = (0, 2)
ALTER_REPLICA_LOG_DIRS_VERSIONS: Final = (0, 1)


async def handle_describe_log_dirs(context: BrokerContext, call: Call) -> Answer:
    """One result per configured dir, also for one that holds none of the replicas asked for."""
    partitions = None
    if call.body.topics is not None:
        partitions = {TopicPartition(t.topic, int(p)) for t in call.body.topics for p in t.partitions}
    return {"results": [_dir(description) for description in context.replicas.describe_log_dirs(partitions)]}


def _dir(description: LogDirDescription) -> dict[str, Any]:
    replicas: dict[TopicPartition, list[ReplicaOnDisk]] = {}
    for replica in description.replicas:
        replicas.setdefault(replica.topic_partition, []).append(replica)
    return {
        "error_code": description.error,
        "log_dir": description.path,
        "topics": [
            {"name": topic, "partitions": [_replica(replica) for tp in group for replica in replicas[tp]]}
            for topic, group in by_topic(sorted(replicas))
        ],
    }


def _replica(replica: ReplicaOnDisk) -> dict[str, Any]:
    return {
        "partition_index": replica.topic_partition.partition,
        "partition_size": replica.size_bytes,
        "offset_lag": replica.offset_lag,
        "is_future_key": replica.is_future,
    }


async def handle_alter_replica_log_dirs(context: BrokerContext, call: Call) -> Answer:
    """Starts moves between dirs of this broker; the last dir named for a partition counts."""
    moves = {
        TopicPartition(topic.name, int(partition)): log_dir.path
        for log_dir in call.body.dirs
        for topic in log_dir.topics
        for partition in topic.partitions
    }
    results = context.replicas.moves.alter(moves)
    return {
        "results": [
            {
                "topic_name": topic,
                "partitions": [{"partition_index": tp.partition, "error_code": results[tp]} for tp in group],
            }
            for topic, group in by_topic(sorted(results))
        ]
    }
