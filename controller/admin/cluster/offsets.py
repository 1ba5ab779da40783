"""Offsets of partitions at a time, as functions over an AdminClient. Source: Kafka `KafkaAdminClient`."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection
from typing import Any

from controller.admin.cluster.client import AdminClient
from controller.admin.cluster.failures import Refused
from controller.admin.cluster.queries import TopicInfo, describe_topics
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, TopicPartition


async def list_offsets(
    admin: AdminClient, leader: BrokerId, partitions: Collection[TopicPartition], timestamp: int
) -> dict[TopicPartition, int | Refused]:
    """The offset at a time (-1 latest, -2 earliest) of partitions that this broker leads; -1 when there is none."""
    topics: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for p in sorted(partitions):
        topics[p.topic].append(
            {"partition_index": p.partition, "current_leader_epoch": -1, "timestamp": timestamp, "max_num_offsets": 1}
        )
    body = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": name, "partitions": listed} for name, listed in topics.items()],
    }
    answer = await admin.call_broker(leader, ApiKey.LIST_OFFSETS, body)
    offsets: dict[TopicPartition, int | Refused] = {}
    for topic in answer.topics:
        for p in topic.partitions:
            code = ErrorCode.of(p.error_code)
            offsets[TopicPartition(topic.name, p.partition_index)] = (
                p.offset if code is ErrorCode.NONE else Refused(code)
            )
    return offsets


async def offsets_at(
    admin: AdminClient, partitions: Collection[TopicPartition], timestamp: int
) -> dict[TopicPartition, int]:
    """The offset at a time (-1 latest, -2 earliest) of each partition, from its leader; -1 when there is none.

    Raises: Refused for a topic, a partition or a leader that there is not, and for the first refusal.
    """
    by_leader: dict[BrokerId, list[TopicPartition]] = defaultdict(list)
    topics = await describe_topics(admin, {p.topic for p in partitions})
    for partition in sorted(partitions):
        by_leader[_leader(partition, topics[partition.topic])].append(partition)
    answers = await asyncio.gather(*(list_offsets(admin, b, p, timestamp) for b, p in sorted(by_leader.items())))
    offsets: dict[TopicPartition, int] = {}
    for partition, offset in sorted((item for answer in answers for item in answer.items()), key=lambda i: i[0]):
        if isinstance(offset, Refused):
            raise offset
        offsets[partition] = offset
    return offsets


def _leader(partition: TopicPartition, topic: TopicInfo | Refused) -> BrokerId:
    fetch = f"Failed to fetch metadata for partition {partition}"
    if isinstance(topic, Refused):
        if topic.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            why = f"because metadata for topic `{partition.topic}` could not be found"
            raise Refused(topic.code, f"{fetch} {why}")
        if topic.code is ErrorCode.INVALID_TOPIC_EXCEPTION:
            raise Refused(topic.code, f"{fetch} due to invalid topic `{partition.topic}`")
        raise topic
    leader = next((p.leader for p in topic.partitions if p.partition == partition.partition), None)
    if leader is None:
        # Kafka's client asks again until its time is up; what is not there now is said at once.
        raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, f"{fetch}: it does not exist or has no leader")
    return leader
