"""What clients were told of records and offsets, and what contradicts it.

One observation is enough to make a record permanent: once a consumer has read it, or acks=all has acknowledged it, that
offset of that partition holds that value for ever, whoever leads. An unclean election ends the promise for its
partition: another one begins with what its leader, or a later one, tells. A loss of what acks=1 acknowledged breaks
none.
Source: Kafka's guarantees ("messages are committed once in all in-sync replicas"); spec clients.md §3, §4, §6.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from controller.wire.errors import ErrorCode

Partition = tuple[str, int]
#: Where groups keep what they committed.
OFFSETS_TOPIC = "__consumer_offsets"


@dataclass(frozen=True, slots=True)
class Sent:
    """A value that a producer sent: by whom, the how-manieth of its partition, and whether doubles are excluded."""

    producer: str
    partition: Partition
    sequence: int
    idempotent: bool


@dataclass(slots=True)
class Ledger:
    """Collects; what contradicts is added to `broken` at once."""

    #: partition -> offset -> value, as acknowledged with acks=all or read by a consumer
    permanent: defaultdict[Partition, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    #: partition -> offset -> value, acknowledged with acks=all
    acked: defaultdict[Partition, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    sent: dict[bytes, Sent] = field(default_factory=dict)
    #: (group, partition) -> the highest offset whose commit was acknowledged
    stored: dict[tuple[str, Partition], int] = field(default_factory=dict)
    #: (group, partition) -> the highest of those, and of what was said to be committed
    committed: dict[tuple[str, Partition], int] = field(default_factory=dict)
    #: (group, partition) -> when its last acknowledged commit was sent, where that was by who is no member
    committed_alone_s: dict[tuple[str, Partition], float] = field(default_factory=dict)
    #: (group, generation, partition) -> the member that was told that it owns it
    owners: dict[tuple[str, int, int], str] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    #: Partitions whose promise an unclean election ended, and those of them that nobody promises anything of any more;
    #: shared with the history of the cluster.
    unclean: set[Partition] = field(default_factory=set)
    lost: set[Partition] = field(default_factory=set)
    #: Whether this broker leads a partition whose promise ended, in the epoch of that election or later.
    leads_anew: Callable[[Partition, int], bool] = lambda partition, broker: False
    reads: int = 0
    #: Groups whose deletion was acknowledged; they never commit again.
    deleted_groups: list[str] = field(default_factory=list)
    #: Called with (broker, partition, error, when it was sent) for each error that acks=all was answered;
    #: and with (broker, partition, end offset, when its turn came) for each answer to acks=all without an error.
    on_error: list[Callable[[int, Partition, ErrorCode, float], None]] = field(default_factory=list)
    on_ack: list[Callable[[int, Partition, int, float], None]] = field(default_factory=list)

    def forget(self) -> None:
        """The topic is gone, and nobody reads it or commits any more: nothing is promised."""
        of_groups = self.stored, self.committed, self.committed_alone_s, self.owners
        for promised in (self.permanent, self.acked, self.sent, *of_groups):
            promised.clear()
        self.deleted_groups.clear()

    def begins_again(self, partition: Partition) -> None:
        """Its leader comes from outside the ISR: what was told before may be gone."""
        self.permanent.pop(partition, None)

    def was_acked(self, partition: Partition, base_offset: int, values: Sequence[bytes], *, broker: int) -> None:
        """acks=all was answered without an error."""
        for offset, value in enumerate(values, base_offset):
            self.acked[partition][offset] = value
            self._observe(partition, offset, value, "acknowledged", broker)

    def was_read(self, partition: Partition, offset: int, value: bytes, *, broker: int) -> None:
        """A consumer got it."""
        self.reads += 1
        sent = self.sent.get(value)
        if sent is None or sent.partition != partition:
            self.broken.append(f"{_name(partition)} offset {offset} holds {value!r}, which nobody sent there")
        self._observe(partition, offset, value, "read", broker)

    def _observe(self, partition: Partition, offset: int, value: bytes, how: str, broker: int) -> None:
        if partition in self.lost or (partition in self.unclean and not self.leads_anew(partition, broker)):
            return
        before = self.permanent[partition].setdefault(offset, value)
        if before != value:
            self.broken.append(f"{_name(partition)} offset {offset} was {before!r}, then {value!r} was {how} there")

    @property
    def groups_are_lost(self) -> bool:
        """An unclean election of a partition of the groups' own topic took what some of them had stored."""
        return any(topic == OFFSETS_TOPIC for topic, _ in self.unclean)

    def claimed(self, group: str, generation: int, partitions: Iterable[int], member: str) -> None:
        """A member was assigned these in a generation. Nobody else may be. Source: clients.md §7."""
        for partition in partitions:
            owner = self.owners.setdefault((group, generation, partition), member)
            if owner != member and not self.groups_are_lost:
                self.broken.append(f"group {group}: {owner} and {member} own {partition} in generation {generation}")

    def group_deleted(self, group: str) -> None:
        """The next one of that name counts its generations from 1 again. Source: `GroupMetadataManager`, method
        `cleanupGroupMetadata`."""
        self._forget_generations(lambda other: other == group)

    def reads_are_lost(self, of: Callable[[str], bool]) -> None:
        """A coordinator has told of these groups what it had read in its log before all replicas had it, and the next
        one does not have it: generations may come again, and what was committed is what was acknowledged. Source:
        `GroupMetadataManager.doLoadGroupsAndOffsets`, which reads up to the end of the log."""
        self._forget_generations(of)
        for key in [key for key in self.committed if of(key[0])]:
            self.committed[key] = self.stored.get(key, -1)

    def _forget_generations(self, of: Callable[[str], bool]) -> None:
        self.owners = {key: member for key, member in self.owners.items() if not of(key[0])}

    def commit_acked(self, group: str, partition: Partition, offset: int, *, sent_alone_s: float | None = None) -> None:
        """The coordinator stored it. `sent_alone_s`: when it was sent, by somebody who is no member of the group."""
        key = group, partition
        if sent_alone_s is not None:
            self.committed_alone_s[key] = sent_alone_s
        self.stored[key] = max(offset, self.stored.get(key, -1))
        self.committed[key] = max(offset, self.committed.get(key, -1))

    def commit_fetched(
        self, group: str, partition: Partition, offset: int, *, least: int, forgotten_before_s: float = -math.inf
    ) -> None:
        """The coordinator said that this is committed; `least` had been acknowledged when it was asked.

        Where an unclean election has taken records, consumers themselves begin again, and commit less. A group without
        members has nothing committed any more when its last commit is older than brokers keep it, be it that all
        later ones were refused: `forgotten_before_s`. Source: `GroupMetadata.removeExpiredOffsets`.
        """
        key = group, partition
        before = self.committed.get(key, -1)
        self.committed[key] = max(offset, before)  # what was read once is committed for good
        if offset == -1 and self.committed_alone_s.get(key, math.inf) <= forgotten_before_s:
            return
        least = min(least, before)  # less, where reads were lost meanwhile
        if offset < least and partition not in self.unclean and not self.groups_are_lost:
            self.broken.append(f"group {group}: {_name(partition)} is committed at {offset}, {least} was acknowledged")

    def check_log(self, partition: Partition, records: Iterable[tuple[int, bytes]]) -> list[str]:
        """What is wrong with a partition's whole committed log: lost, changed, doubled or disordered records. Where an
        unclean election took some, a producer may have sent them once more."""
        if partition in self.lost:
            return []
        name, by_offset = _name(partition), dict(records)
        wrong: list[str] = []
        lost = {o: v for o, v in self.permanent[partition].items() if by_offset.get(o) != v}
        for offset, value in sorted(lost.items())[:5]:
            wrong.append(f"{name} offset {offset} was {value!r}, now {by_offset.get(offset)!r} ({len(lost)} of such)")
        if sorted(by_offset) != list(range(max(by_offset, default=-1) + 1)):
            wrong.append(f"{name} has gaps between its offsets, or does not begin at 0")
        last: dict[str, int] = {}
        for offset, value in sorted(by_offset.items()):
            sent = self.sent.get(value)
            if sent is None:
                wrong.append(f"{name} offset {offset} holds {value!r}, which nobody sent")
            elif sent.idempotent and partition not in self.unclean:
                if sent.sequence <= last.get(sent.producer, -1):
                    wrong.append(f"{name} offset {offset}: {value!r} of {sent.producer} a second time, or too late")
                last[sent.producer] = sent.sequence
        return wrong[:10]


def _name(partition: Partition) -> str:
    return f"{partition[0]}-{partition[1]}"
