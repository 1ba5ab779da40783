"""Members of a consumer group and what they get. Pure. Source: Kafka 3.9 `ConsumerPartitionAssignor`; clients §10."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from controller.rules.hashing import java_hash
from controller.wire.types import TopicPartition

_Key = TypeVar("_Key")
#: What a member without a generation counts as (`AbstractStickyAssignor.DEFAULT_GENERATION`).
NO_GENERATION: Final = -1
#: Java's HashMap: first size and load factor.
_BUCKETS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One member: what it subscribes to, and what it says it owned in which generation."""

    member_id: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION


#: Partitions by member id; every member is in it. The order of the partitions is that in which they were given.
Shares = dict[str, list[TopicPartition]]
#: Number of partitions by topic.
PartitionCounts = Mapping[str, int]
Assignor = Callable[[Sequence[Member], PartitionCounts], Shares]


def in_order(members: Iterable[Member]) -> list[Member]:
    """Static members by instance id, then dynamic ones by member id (`MemberInfo.compareTo`)."""
    return sorted(members, key=lambda m: (m.instance_id is None, m.instance_id or m.member_id))


def subscribed(members: Iterable[Member], counts: PartitionCounts) -> dict[str, int]:
    """The topics that somebody subscribes to and that have partitions, by name."""
    topics = {topic for member in members for topic in member.topics}
    return {topic: counts[topic] for topic in sorted(topics) if counts.get(topic, 0) > 0}


def hash_order(keys: Iterable[_Key], hash_of: Callable[[_Key], int]) -> list[_Key]:
    """The order in which Java's HashMap gives these keys, put in in the given order.

    Kafka's sticky assignors walk over such maps, so who keeps a surplus partition hangs on it. Source: `HashMap.hash`,
    `resize` (which keeps the order inside a bucket); buckets that became trees are not looked at.
    """
    listed = list(dict.fromkeys(keys))
    buckets = _BUCKETS
    while len(listed) > buckets * 3 // 4:
        buckets *= 2

    def bucket(key: _Key) -> int:
        value = hash_of(key) & 0xFFFFFFFF
        return (value ^ value >> 16) & (buckets - 1)

    return sorted(listed, key=bucket)


def partition_hash(partition: TopicPartition) -> int:
    """`TopicPartition.hashCode`."""
    return (31 * (31 + partition.partition) + java_hash(partition.topic)) & 0xFFFFFFFF
