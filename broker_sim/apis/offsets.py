"""Offsets: ListOffsets (2) versions 1-9, OffsetForLeaderEpoch (23) versions 0-3, DeleteRecords (21) 0-2.

ListOffsets: v2 added the isolation level, v4 leader epochs, v5 OFFSET_NOT_AVAILABLE, v7 the newest timestamp, v8 and v9
where the local log begins and tiered storage (there is none) ends, v6 is flexible; v0 (a list per partition) has had no
client for years and is not offered. OffsetForLeaderEpoch: v1 added the epoch to the answer, v2 the client's epoch, v3
the replica id. DeleteRecords: v2 is flexible. Source: spec clients.md §5, broker.md §14.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from broker_sim.apis.context import BrokerContext
from broker_sim.replicas.offsets import OffsetQuestion
from broker_sim.replicas.types import DeleteRecordsResult, ListedOffset
from broker_sim.server import Answer, Call
from controller.wire.errors import ErrorCode
from controller.wire.types import INTERNAL_TOPICS, TopicPartition

LIST_OFFSETS_VERSIONS: Final = (1, 9)
OFFSET_FOR_LEADER_EPOCH_VERSIONS: Final = (0, 3)
DELETE_RECORDS_VERSIONS: Final = (0, 2)


async def handle_list_offsets(context: BrokerContext, call: Call) -> Answer:
    """Offsets by time. A partition that is named twice is refused."""
    body = call.body
    named = Counter(TopicPartition(t.name, int(p.partition_index)) for t in body.topics for p in t.partitions)

    def look_up(topic: str, partition: Any) -> dict[str, Any]:
        tp = TopicPartition(topic, int(partition.partition_index))
        if named[tp] > 1:
            return _listed(tp.partition, ListedOffset(error=ErrorCode.INVALID_REQUEST))
        question = OffsetQuestion(
            timestamp=int(partition.timestamp),
            replica_id=int(body.replica_id),
            current_leader_epoch=int(getattr(partition, "current_leader_epoch", -1)),
            version=call.version,
        )
        return _listed(tp.partition, context.offsets.list_offset(tp, question))

    return {"topics": [{"name": t.name, "partitions": [look_up(t.name, p) for p in t.partitions]} for t in body.topics]}


def _listed(index: int, found: ListedOffset) -> dict[str, Any]:
    return {
        "partition_index": index,
        "error_code": found.error,
        "timestamp": found.timestamp,
        "offset": found.offset,
        "leader_epoch": found.leader_epoch,
    }


async def handle_offset_for_leader_epoch(context: BrokerContext, call: Call) -> Answer:
    """Where an epoch ends in the leader's log."""

    def look_up(topic: str, partition: Any) -> dict[str, Any]:
        end = context.offsets.epoch_end(
            TopicPartition(topic, int(partition.partition)),
            leader_epoch=int(partition.leader_epoch),
            current_leader_epoch=int(getattr(partition, "current_leader_epoch", -1)),
        )
        return {
            "partition": int(partition.partition),
            "error_code": end.error,
            "leader_epoch": end.leader_epoch,
            "end_offset": end.end_offset,
        }

    return {
        "topics": [
            {"topic": t.topic, "partitions": [look_up(t.topic, p) for p in t.partitions]} for t in call.body.topics
        ]
    }


def _deletion_refusal(context: BrokerContext, tp: TopicPartition) -> DeleteRecordsResult | None:
    """Kafka's `KafkaApis.handleDeleteRecordsRequest` and `deleteRecordsOnLocalLog`, before a log is asked."""
    if not context.metadata.knows(tp):
        return DeleteRecordsResult(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if tp.topic in INTERNAL_TOPICS:
        return DeleteRecordsResult(error=ErrorCode.INVALID_TOPIC_EXCEPTION)
    return None


async def handle_delete_records(context: BrokerContext, call: Call) -> Answer:
    """Raises log start offsets."""
    body = call.body
    offsets = {TopicPartition(t.name, int(p.partition_index)): int(p.offset) for t in body.topics for p in t.partitions}
    results = {tp: error for tp in offsets if (error := _deletion_refusal(context, tp)) is not None}
    allowed = {tp: offset for tp, offset in offsets.items() if tp not in results}
    results |= await context.offsets.delete_records(allowed, timeout_ms=body.timeout)

    def answer(topic: str, index: int) -> dict[str, Any]:
        result = results[TopicPartition(topic, index)]
        return {"partition_index": index, "low_watermark": result.low_watermark, "error_code": result.error}

    return {
        "topics": [
            {"name": t.name, "partitions": [answer(t.name, int(p.partition_index)) for p in t.partitions]}
            for t in body.topics
        ]
    }
