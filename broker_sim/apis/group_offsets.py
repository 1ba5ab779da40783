"""OffsetCommit (8) 2-8, OffsetFetch (9) 1-7, OffsetDelete (47) 0: offsets that groups committed.

OffsetCommit: v2 to v4 say how long the offsets are kept (-1: as the broker says); v6 added leader epochs, v7 static
members.
Versions 0 and 1 (offsets in ZooKeeper) are not offered. OffsetFetch: v2 added the group's error (then no topic is
listed) and null for all topics, v5 leader epochs, v7 RequireStable, which changes nothing without transactions; v0
read ZooKeeper.
Source: spec clients.md §8.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from broker_sim.apis.context import BrokerContext, by_topic
from broker_sim.groups.records import CommittedOffset
from broker_sim.groups.subscriptions import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from broker_sim.groups.values import GroupState
from broker_sim.server import Answer, Call
from controller.wire.errors import ErrorCode
from controller.wire.longs import as_long
from controller.wire.types import TopicPartition

OFFSET_COMMIT_VERSIONS: Final = (2, 8)
OFFSET_FETCH_VERSIONS: Final = (1, 7)
OFFSET_DELETE_VERSIONS: Final = (0, 0)


async def handle_offset_commit(context: BrokerContext, call: Call) -> Answer:
    """Stores what can be stored; the rest gets its error. Where no partition is known, no group is asked, nor made. Of
    a partition that is named twice the last row counts (`GroupCoordinatorAdapter.commitOffsets`)."""
    body = call.body
    errors: dict[TopicPartition, ErrorCode] = {}
    offsets: dict[TopicPartition, CommittedOffset] = {}
    now_ms = context.clock.now_ms()
    expires_ms = _expiry(now_ms, int(getattr(body, "retention_time", -1)))
    rows = {TopicPartition(topic.name, int(p.partition_index)): p for topic in body.topics for p in topic.partitions}
    for tp, p in rows.items():
        text = p.committed_metadata or ""
        if not context.metadata.knows(tp):
            errors[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif _length(text) > context.settings.offset_metadata_max_bytes:
            errors[tp] = ErrorCode.OFFSET_METADATA_TOO_LARGE
        else:
            offsets[tp] = CommittedOffset(
                offset=int(p.committed_offset),
                leader_epoch=int(getattr(p, "committed_leader_epoch", -1)),
                metadata=text,
                commit_timestamp=now_ms,
                expire_timestamp=expires_ms,
            )
    too_large = [tp for tp, error in errors.items() if error is ErrorCode.OFFSET_METADATA_TOO_LARGE]
    if not too_large and not offsets:
        return {"topics": _partitions(body, lambda tp: {"error_code": errors[tp]})}
    commit = partial(
        context.groups.commit,
        body.group_id,
        member_id=body.member_id,
        group_instance_id=getattr(body, "group_instance_id", None),
        generation=_generation(body),
    )
    if too_large and (refusal := await commit({})):  # before it looks at what is committed
        errors.update(dict.fromkeys((*too_large, *offsets), refusal))
    else:
        errors.update(dict.fromkeys(offsets, await commit(offsets)))
    return {"topics": _partitions(body, lambda tp: {"error_code": errors[tp]})}


def _expiry(now_ms: int, retention_ms: int) -> int:
    """-1: the broker says. Source: Kafka 3.9 `GroupCoordinatorAdapter.commitOffsets`, which adds as Java does: beyond
    the greatest int64 comes the least."""
    return -1 if retention_ms == -1 else as_long(now_ms + retention_ms)


def _length(text: str) -> int:
    """As Java counts, in units of UTF-16: whatever its name, `offset.metadata.max.bytes` limits no bytes.

    Source: Kafka 3.9 `GroupMetadataManager.validateOffsetMetadataLength`.
    """
    return len(text.encode("utf-16-le")) // 2


def _generation(body: Any) -> int:
    """The schema renamed the field for the groups of Kafka 4."""
    return int(getattr(body, "generation_id_or_member_epoch", getattr(body, "generation_id", -1)))


def _partitions(body: Any, answer: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": topic.name,
            "partitions": [
                {
                    "partition_index": int(p.partition_index),
                    **answer(TopicPartition(topic.name, int(p.partition_index))),
                }
                for p in topic.partitions
            ],
        }
        for topic in body.topics
    ]


_NONE_COMMITTED: Final = CommittedOffset(offset=-1)


async def handle_offset_fetch(context: BrokerContext, call: Call) -> Answer:
    """Offset -1 where nothing was committed."""
    body = call.body
    error = context.groups.error_for(body.group_id, may_be_empty=True) or ErrorCode.NONE
    entry = context.groups.entry(body.group_id)
    committed: Mapping[TopicPartition, CommittedOffset] = {}
    if error is ErrorCode.NONE and entry is not None:
        committed = entry.offsets
    if body.topics is None or (error is not ErrorCode.NONE and call.version >= 2):
        listed_partitions = sorted(committed)
    else:
        listed_partitions = [TopicPartition(t.name, int(p)) for t in body.topics for p in t.partition_indexes]
    topics = [
        {"name": topic, "partitions": [_fetched(tp.partition, committed.get(tp), error) for tp in group]}
        for topic, group in by_topic(listed_partitions)
    ]
    return {"error_code": error, "topics": topics}


def _fetched(index: int, offset: CommittedOffset | None, error: ErrorCode) -> dict[str, Any]:
    found = offset or _NONE_COMMITTED
    return {
        "partition_index": index,
        "committed_offset": found.offset,
        "committed_leader_epoch": found.leader_epoch,
        "metadata": found.metadata,
        "error_code": error,
    }


async def handle_offset_delete(context: BrokerContext, call: Call) -> Answer:
    """Refuses topics that a member still subscribes to, or may: where some subscription cannot be read."""
    body = call.body
    entry = context.groups.entry(body.group_id)
    error = context.groups.error_for(body.group_id)
    if error is not None or entry is None:
        return {"error_code": error or ErrorCode.GROUP_ID_NOT_FOUND}
    group = entry.group
    if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return {"error_code": ErrorCode.NON_EMPTY_GROUP}
    subscribed = subscribed_topics(member.metadata(group.protocol_name) for member in group.members.values())
    listed_partitions = [TopicPartition(t.name, int(p.partition_index)) for t in body.topics for p in t.partitions]
    errors = {tp: _delete_error(context, tp, subscribed) for tp in listed_partitions}
    context.groups.delete_offsets(entry, [tp for tp in listed_partitions if errors[tp] is ErrorCode.NONE])
    return {"topics": _partitions(body, lambda tp: {"error_code": errors[tp]})}


def _delete_error(context: BrokerContext, tp: TopicPartition, subscribed: frozenset[str] | None) -> ErrorCode:
    if not context.metadata.knows(tp):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    is_subscribed = subscribed is None or tp.topic in subscribed
    return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE
