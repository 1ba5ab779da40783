"""What clients were told of records and offsets, and what contradicts it.

One observation is enough to make a record permanent: once a consumer has read it, or acks=all has acknowledged it, that
offset of that partition holds that value for ever, whoever leads. An unclean election ends the promise for its
partition, a loss of what acks=1 acknowledged breaks none.
Source: Kafka's guarantees ("messages are committed once in all in-sync replicas"); spec clients.md §3, §4, §6.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Partition = tuple[str, int]


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
    committed: dict[tuple[str, Partition], int] = field(default_factory=dict)
    #: (group, generation, partition) -> the member that was told that it owns it
    owners: dict[tuple[str, int, int], str] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    #: Partitions whose promise an unclean election ended; shared with the history of the cluster.
    unclean: set[Partition] = field(default_factory=set)
    reads: int = 0

    def was_acked(self, partition: Partition, base_offset: int, values: Sequence[bytes]) -> None:
        """acks=all was answered without an error."""
        for offset, value in enumerate(values, base_offset):
            self.acked[partition][offset] = value
            self._observe(partition, offset, value, "acknowledged")

    def was_read(self, partition: Partition, offset: int, value: bytes) -> None:
        """A consumer got it."""
        self.reads += 1
        sent = self.sent.get(value)
        if sent is None or sent.partition != partition:
            self.broken.append(f"{_name(partition)} offset {offset} holds {value!r}, which nobody sent there")
        self._observe(partition, offset, value, "read")

    def _observe(self, partition: Partition, offset: int, value: bytes, how: str) -> None:
        before = self.permanent[partition].setdefault(offset, value)
        if before != value and partition not in self.unclean:
            self.broken.append(f"{_name(partition)} offset {offset} was {before!r}, then {value!r} was {how} there")

    def claimed(self, group: str, generation: int, partitions: Iterable[int], member: str) -> None:
        """A member was assigned these in a generation. Nobody else may be. Source: clients.md §7."""
        for partition in partitions:
            owner = self.owners.setdefault((group, generation, partition), member)
            if owner != member:
                self.broken.append(f"group {group}: {owner} and {member} own {partition} in generation {generation}")

    def commit_acked(self, group: str, partition: Partition, offset: int) -> None:
        """The coordinator stored it."""
        key = group, partition
        self.committed[key] = max(offset, self.committed.get(key, -1))

    def commit_fetched(self, group: str, partition: Partition, offset: int, *, least: int) -> None:
        """The coordinator said that this is committed; `least` had been acknowledged when it was asked."""
        if offset < least and ("__consumer_offsets", 0) not in self.unclean:
            self.broken.append(f"group {group}: {_name(partition)} is committed at {offset}, {least} was acknowledged")

    def check_log(self, partition: Partition, records: Iterable[tuple[int, bytes]], *, start: int = 0) -> list[str]:
        """What is wrong with a partition's whole committed log: lost, changed, doubled or disordered records."""
        if partition in self.unclean:
            return []
        name, held = _name(partition), dict(records)
        wrong: list[str] = []
        lost = {o: v for o, v in self.permanent[partition].items() if o >= start and held.get(o) != v}
        for offset, value in sorted(lost.items())[:5]:
            wrong.append(f"{name} offset {offset} was {value!r}, now {held.get(offset)!r} ({len(lost)} of such)")
        if sorted(held) != list(range(min(held, default=0), max(held, default=-1) + 1)):
            wrong.append(f"{name} has gaps between its offsets")
        last: dict[str, int] = {}
        for offset, value in sorted(held.items()):
            sent = self.sent.get(value)
            if sent is None:
                wrong.append(f"{name} offset {offset} holds {value!r}, which nobody sent")
            elif sent.idempotent:
                if sent.sequence <= last.get(sent.producer, -1):
                    wrong.append(f"{name} offset {offset}: {value!r} of {sent.producer} a second time, or too late")
                last[sent.producer] = sent.sequence
        return wrong[:10]


def _name(partition: Partition) -> str:
    return f"{partition[0]}-{partition[1]}"
