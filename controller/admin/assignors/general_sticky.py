"""The sticky assignors' general algorithm, for members that subscribe to different topics. Pure.

Keep what was owned and is still wanted; give the rest to whoever has least; then move partitions while that makes the
shares more even, and go back to what was before the moves if in the end it did not.
Source: Kafka 3.9 `AbstractStickyAssignor.GeneralAssignmentBuilder`, `PartitionMovements` (without racks).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from controller.admin.assignors.members import Member, PartitionCounts, Shares, hash_order, partition_hash
from controller.rules.hashing import java_hash
from controller.wire.types import TopicPartition


def general_shares(
    members: Sequence[Member], topics: PartitionCounts, owned: Mapping[str, Sequence[TopicPartition]]
) -> Shares:
    """The shares. `topics` are those subscribed to with their partition counts, `owned` the accepted claims."""
    return _General(members, topics, owned).build()


@dataclass(slots=True)
class _Moves:
    """Which partition went from whom to whom, so that one moving back is taken rather than another moving, too."""

    by_pair: dict[tuple[str, str, str], list[TopicPartition]] = field(default_factory=lambda: defaultdict(list))
    of: dict[TopicPartition, tuple[str, str]] = field(default_factory=dict)

    def record(self, partition: TopicPartition, old: str, new: str) -> None:
        """`partition` went from `old` to `new`; a chain counts as one move, a way back as none."""
        source = old
        if partition in self.of:
            source, target = self.of.pop(partition)
            self.by_pair[partition.topic, source, target].remove(partition)
            if source == new:
                return
        self.of[partition] = (source, new)
        self.by_pair[partition.topic, source, new].append(partition)

    def actual(self, partition: TopicPartition, old: str, new: str) -> TopicPartition:
        """The partition to move instead: one of that topic that came from `new`, if there is one."""
        source = self.of[partition][0] if partition in self.of else old
        back = self.by_pair.get((partition.topic, new, source))
        return hash_order(back, partition_hash)[0] if back else partition


class _General:
    def __init__(
        self, members: Sequence[Member], topics: PartitionCounts, owned: Mapping[str, Sequence[TopicPartition]]
    ) -> None:
        self.topics = topics
        self.wants = {m.member_id: [t for t in m.topics if t in topics] for m in members}
        self.takers = {t: [m for m, topics_of_member in self.wants.items() if t in topics_of_member] for t in topics}
        self.shares: Shares = {m.member_id: list(owned.get(m.member_id, ())) for m in members}
        self.holder = {p: m for m, listed in self.shares.items() for p in listed}
        ordered = sorted(topics, key=lambda t: (len(self.takers[t]), t))
        self.partitions = [TopicPartition(t, n) for t in ordered for n in range(topics[t])]
        self.moves = _Moves()
        self.open: list[str] = []
        self.previous = self._previous(members)

    @staticmethod
    def _previous(members: Sequence[Member]) -> dict[TopicPartition, str]:
        """Who owned a partition in a generation before the highest one; the latest of those, of equals the first."""
        highest = max(m.generation for m in members)
        owners: dict[TopicPartition, tuple[int, str]] = {}
        for member in hash_order(members, lambda m: java_hash(m.member_id)):
            if member.generation < highest:
                for partition in member.owned:
                    if partition not in owners or member.generation > owners[partition][0]:
                        owners[partition] = (member.generation, member.member_id)
        return {partition: member for partition, (_, member) in owners.items()}

    def build(self) -> Shares:
        """Keep, give, balance."""
        revocation = self._keep_what_is_wanted()
        kept = {p for listed in self.shares.values() for p in listed}
        unassigned = [p for p in self.partitions if p not in kept]
        self.open = list(self.shares)
        initializing = not any(self.shares.values())
        for partition in unassigned:
            taker = next((m for m in self._by_load() if partition.topic in self.wants[m]), None)
            if taker is not None:
                self.shares[taker].append(partition)
                self.holder[partition] = taker
        self._balance(unassigned, initializing=initializing, revocation=revocation)
        return self.shares

    def _keep_what_is_wanted(self) -> bool:
        """Drops partitions whose holder no longer subscribes; whether there were any."""
        revocation = False
        for member, listed in self.shares.items():
            for partition in list(listed):
                if partition.topic not in self.wants[member]:
                    listed.remove(partition)
                    revocation = True
        return revocation

    def _by_load(self) -> list[str]:
        return sorted(self.open, key=lambda m: (len(self.shares[m]), m))

    def _balance(self, unassigned: Sequence[TopicPartition], *, initializing: bool, revocation: bool) -> None:
        movable = {t for t, takers in self.takers.items() if len(takers) >= 2}
        self.open = [m for m in self.shares if self._may_change(m, movable)]
        before = {m: list(self.shares[m]) for m in self.open}
        if not self.open:
            return
        if not revocation:
            self._move([p for p in unassigned if p.topic in movable])
        moved = self._move([p for p in self.partitions if p.topic in movable])
        after = {m: self.shares[m] for m in self.open}
        if not initializing and moved and unevenness(after) >= unevenness(before):
            self.shares.update(before)

    def _most(self, member: str) -> int:
        return sum(self.topics[t] for t in self.wants[member])

    def _may_change(self, member: str, movable: set[str]) -> bool:
        return len(self.shares[member]) < self._most(member) or any(p.topic in movable for p in self.shares[member])

    def _move(self, partitions: Sequence[TopicPartition]) -> bool:
        """Moves partitions to who has less by at least two, until that changes nothing or all is even."""
        any_moved, modified = False, True
        while modified:
            modified = False
            for partition in partitions:
                if self._is_balanced():
                    break
                mine = len(self.shares[self.holder[partition]])
                before = self.previous.get(partition)
                if before in self.shares and mine > len(self.shares[before]) + 1:
                    self._reassign(partition, before)
                elif any(mine > len(self.shares[other]) + 1 for other in self.takers[partition.topic]):
                    self._reassign(partition, next(m for m in self._by_load() if partition.topic in self.wants[m]))
                else:
                    continue
                any_moved = modified = True
        return any_moved

    def _reassign(self, partition: TopicPartition, new: str) -> None:
        moved = self.moves.actual(partition, self.holder[partition], new)
        old = self.holder[moved]
        self.moves.record(moved, old, new)
        self.shares[old].remove(moved)
        self.shares[new].append(moved)
        self.holder[moved] = new

    def _is_balanced(self) -> bool:
        order = self._by_load()
        if len(self.shares[order[0]]) >= len(self.shares[order[-1]]) - 1:
            return True
        for member in order:
            mine = len(self.shares[member])
            if mine == self._most(member):  # also where some of it is what it wants no more
                continue
            for topic in self.wants[member]:
                for number in range(self.topics[topic]):
                    holder = self.holder[TopicPartition(topic, number)]
                    if holder != member and mine + 1 < len(self.shares[holder]):
                        return False
        return True


def unevenness(shares: Mapping[str, Sequence[TopicPartition]]) -> int:
    """The sum of the differences in size of all pairs (`getBalanceScore`): 0 when all have the same."""
    sizes = [len(listed) for listed in shares.values()]
    return sum(abs(a - b) for at, a in enumerate(sizes) for b in sizes[at + 1 :])
