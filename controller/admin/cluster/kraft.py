"""What only brokers of KRaft answer: eligible leader replicas, and the quorum of the controllers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from controller.admin.cluster.client import AdminClient
from controller.admin.cluster.failures import Refused, check
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, TopicPartition

#: Partitions in one answer; brokers give no more than `max.request.partition.size.limit`, which is 2000.
_PARTITIONS_MAX: Final = 2_000
_METADATA_TOPIC: Final = "__cluster_metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class EligibleLeaders:
    """Replicas outside the ISR that may lead without loss (KIP-966), and those that were the last known to."""

    elr: tuple[BrokerId, ...] | None
    last_known_elr: tuple[BrokerId, ...] | None


async def eligible_leaders(admin: AdminClient, topics: Collection[str]) -> dict[TopicPartition, EligibleLeaders]:
    """Of each partition of these topics; empty where brokers do not answer DescribeTopicPartitions.

    Raises: ClusterUnreachable, Refused.
    """
    found: dict[TopicPartition, EligibleLeaders] = {}
    cursor: dict[str, Any] | None = None
    while True:
        body = {
            "topics": [{"name": name} for name in sorted(topics)],
            "response_partition_limit": _PARTITIONS_MAX,
            "cursor": cursor,
        }
        try:
            answer = await admin.call_any(ApiKey.DESCRIBE_TOPIC_PARTITIONS, body)
        except Refused as refused:
            if refused.code is ErrorCode.UNSUPPORTED_VERSION:
                return {}
            raise
        for topic in answer.topics:
            for p in topic.partitions:
                place = TopicPartition(topic.name, p.partition_index)
                found[place] = EligibleLeaders(
                    elr=_ids(p.eligible_leader_replicas), last_known_elr=_ids(p.last_known_elr)
                )
        if answer.next_cursor is None:
            return found
        cursor = {
            "topic_name": answer.next_cursor.topic_name,
            "partition_index": answer.next_cursor.partition_index,
        }


def _ids(brokers: Any) -> tuple[BrokerId, ...] | None:
    return None if brokers is None else tuple(map(BrokerId, brokers))


async def describe_quorum(admin: AdminClient) -> Any:
    """What DescribeQuorum says of the metadata log; None where brokers do not answer it, as in ZooKeeper mode.

    Raises: ClusterUnreachable, Refused (also where a broker has no controller to ask: such an answer has no topics).
    """
    body = {"topics": [{"topic_name": _METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]}
    try:
        answer = await admin.call_any(ApiKey.DESCRIBE_QUORUM, body)
    except Refused as refused:
        if refused.code is ErrorCode.UNSUPPORTED_VERSION:
            return None
        raise
    partitions = [partition for topic in answer.topics for partition in topic.partitions]
    for code in (answer.error_code, *(partition.error_code for partition in partitions)):
        check(code)
    if not partitions:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return answer
