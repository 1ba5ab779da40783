"""Sticky and cooperative-sticky where all members subscribe to the same topics; else `general_sticky` decides. Pure.

Source: Kafka 3.9 `AbstractStickyAssignor` (without racks), `CooperativeStickyAssignor`; spec clients.md §10.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from controller.admin.assignors.general_sticky import general_shares
from controller.admin.assignors.members import Member, PartitionCounts, Shares, hash_order, subscribed
from controller.rules.hashing import java_hash
from controller.wire.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class StickyShares:
    """The shares, and the partitions that change hands: they are the new owner's once the old one gave them up."""

    shares: Shares
    transferring: Mapping[TopicPartition, str]


def sticky_shares(members: Sequence[Member], counts: PartitionCounts) -> Shares:
    """Everything to its new owner at once (eager: all members have given up all before)."""
    return assign(members, counts).shares


def cooperative_shares(members: Sequence[Member], counts: PartitionCounts) -> Shares:
    """The same, but what changes hands is withheld: its new owner gets it in the rebalance that follows."""
    result = assign(members, counts)
    return {
        member: [p for p in shares if result.transferring.get(p) != member]
        for member, shares in result.shares.items()
    }  # fmt: skip


def assign(members: Sequence[Member], counts: PartitionCounts) -> StickyShares:
    """What both assignors compute first."""
    topics = subscribed(members, counts)
    owned, claimed_twice = _claims(members, topics)
    subscriptions = {frozenset(m.topics) for m in members}
    if len(subscriptions) > 1:
        shares = general_shares(members, topics, owned)
        return StickyShares(shares=shares, transferring=_changing_hands(members, shares))
    return _Equal(topics, owned, claimed_twice).build()


def _claims(
    members: Sequence[Member], topics: PartitionCounts
) -> tuple[dict[str, list[TopicPartition]], set[TopicPartition]]:
    """Who owned what: a higher generation wins a partition, an equal one makes it nobody's."""
    owned: dict[str, list[TopicPartition]] = {}
    owner: dict[TopicPartition, Member] = {}
    twice: set[TopicPartition] = set()
    for member in hash_order(members, lambda m: java_hash(m.member_id)):
        mine = owned.setdefault(member.member_id, [])
        for partition in member.owned:
            if partition.topic not in topics:
                continue
            other = owner.get(partition)
            if other is None:
                mine.append(partition)
                owner[partition] = member
            elif other.generation <= member.generation:
                if partition in owned[other.member_id]:
                    owned[other.member_id].remove(partition)
                if other.generation == member.generation:
                    twice.add(partition)
                else:
                    mine.append(partition)
                owner[partition] = member
    return owned, twice


def _changing_hands(members: Sequence[Member], shares: Shares) -> dict[TopicPartition, str]:
    owned = {m.member_id: set(m.owned) for m in members}
    added = {p: member for member, listed in shares.items() for p in listed if p not in owned[member]}
    revoked = {p for member, listed in shares.items() for p in owned[member] - set(listed)}
    return {p: member for p, member in added.items() if p in revoked}


@dataclass(slots=True)
class _Equal:
    """Kafka's `ConstrainedAssignmentBuilder`: nobody gets less than the quota, and only so many one more."""

    topics: PartitionCounts
    owned: Mapping[str, list[TopicPartition]]
    claimed_twice: set[TopicPartition]
    shares: Shares = field(default_factory=dict)
    under: list[str] = field(default_factory=list)
    exactly: deque[str] = field(default_factory=deque)
    revoked: dict[TopicPartition, str] = field(default_factory=dict)
    transferring: dict[TopicPartition, str] = field(default_factory=dict)

    def build(self) -> StickyShares:
        total = sum(self.topics.values())
        least, over = divmod(total, len(self.owned))
        self._keep(least, over)
        self.under.sort()
        self.exactly = deque(sorted(self.exactly))
        kept = {p for listed in self.shares.values() for p in listed}
        everything = (TopicPartition(t, n) for t, count in self.topics.items() for n in range(count))
        self._deal([p for p in everything if p not in kept], least)
        return StickyShares(shares=self.shares, transferring=self.transferring)

    def _keep(self, least: int, over: int) -> None:
        """Each member keeps up to its quota of what it owned, in order of partition, then topic."""
        with_more = 0
        for member in hash_order(self.owned, java_hash):
            mine = sorted(self.owned[member], key=lambda p: (p.partition, p.topic))
            mine = [p for p in mine if p not in self.claimed_twice]
            if len(mine) < least:
                keeps = len(mine)
                self.under.append(member)
            elif len(mine) > least and with_more < over:
                keeps = least + 1
                with_more += 1
            else:
                keeps = least
                self.exactly.append(member)
            self.shares[member] = mine[:keeps]
            self.revoked |= dict.fromkeys(mine[keeps:], member)

    def _deal(self, unassigned: Sequence[TopicPartition], least: int) -> None:
        """One at a time round those below the quota; then one more to those at it, who came there first first."""
        at = 0
        for partition in unassigned:
            if self.under:
                at = at if at < len(self.under) else 0
                member = self.under[at]
                at += 1
            else:
                member = self.exactly.popleft()
            self.shares[member].append(partition)
            if self.revoked.get(partition, member) != member or partition in self.claimed_twice:
                self.transferring[partition] = member
            if len(self.shares[member]) == least:
                at -= 1
                self.under.remove(member)
                self.exactly.append(member)
