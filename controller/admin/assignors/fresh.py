"""Range and round-robin: they know nothing of what was before. Pure.

Source: Kafka 3.9 `RangeAssignor` (without racks), `RoundRobinAssignor`; spec clients.md §10.
"""

from __future__ import annotations

from collections.abc import Sequence

from controller.admin.assignors.members import Member, PartitionCounts, Shares, in_order, subscribed
from controller.wire.types import TopicPartition


def range_shares(members: Sequence[Member], counts: PartitionCounts) -> Shares:
    """Each topic by itself: consecutive partitions to its members in order; the first ones get the remainder."""
    shares: Shares = {m.member_id: [] for m in members}
    for topic, count in subscribed(members, counts).items():
        takers = [m.member_id for m in in_order(members) if topic in m.topics]
        each, more = divmod(count, len(takers))
        for at, taker in enumerate(takers):
            first = each * at + min(at, more)
            shares[taker] += [TopicPartition(topic, n) for n in range(first, first + each + (at < more))]
    return shares


def round_robin_shares(members: Sequence[Member], counts: PartitionCounts) -> Shares:
    """All partitions of all topics in turn; a member that does not subscribe to a topic is passed over."""
    shares: Shares = {m.member_id: [] for m in members}
    ring, at = in_order(members), 0
    for topic, count in subscribed(members, counts).items():
        for number in range(count):
            while topic not in ring[at % len(ring)].topics:
                at += 1
            shares[ring[at % len(ring)].member_id].append(TopicPartition(topic, number))
            at += 1
    return shares
