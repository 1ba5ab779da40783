"""Which committed offsets are kept no longer, and which groups may go with their last one. Pure.

Source: Kafka 3.9 `GroupMetadata.removeExpiredOffsets`, `GroupMetadataManager.cleanupGroupMetadata`; spec clients.md §8.
"""

from __future__ import annotations

from broker_sim.groups.records import CommittedOffset
from broker_sim.groups.registry import GroupEntry
from broker_sim.groups.subscriptions import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from broker_sim.groups.values import GroupState
from controller.wire.types import TopicPartition


def may_die(entry: GroupEntry) -> bool:
    """Whether nothing but stored offsets keeps the group. Who was only told its id does not: it is unknown then."""
    return entry.group.state is GroupState.EMPTY and not entry.commits_under_way


def expired_offsets(entry: GroupEntry, before_ms: int, now_ms: int) -> set[TopicPartition]:
    """Offsets that retention drops: of an empty group when it has been empty since before, of a group that never had
    members when they were committed before; of a stable group of consumers those of topics to which certainly nobody
    subscribes. Of these an offset whose client said how long it is kept goes then. What is being committed again stays.
    Source: `removeExpiredOffsets`."""
    group = entry.group
    if group.state is GroupState.STABLE and group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        topics = subscribed_topics(member.metadata(group.protocol_name) for member in group.members.values())
    else:
        topics = frozenset() if group.state is GroupState.EMPTY else None
    if topics is None:
        return set()
    is_left = group.state is GroupState.EMPTY and group.protocol_type is not None and group.state_changed_ms >= 0
    under_way = set().union(*entry.commits_under_way)

    def is_over(offset: CommittedOffset) -> bool:
        if offset.expire_timestamp != -1:
            return offset.expire_timestamp <= now_ms
        return (group.state_changed_ms if is_left else offset.commit_timestamp) <= before_ms

    return {
        tp for tp, offset in entry.offsets.items() if is_over(offset) and tp.topic not in topics and tp not in under_way
    }
