"""One look at what grows: end offsets, log sizes, committed offsets; and the rates between two looks. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.wire.types import TopicPartition

#: Committed offsets by group.
Committed = Mapping[str, Mapping[TopicPartition, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A look, at a time in seconds. What was not told is missing; `first` are the earliest offsets."""

    at_s: float
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    first: Mapping[TopicPartition, int] = field(default_factory=dict)
    sizes: Mapping[TopicPartition, int] = field(default_factory=dict)
    committed: Committed = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Bytes per second that producers write to a partition and consumer groups read from it."""

    in_bytes_per_s: float = 0.0
    out_bytes_per_s: float = 0.0


def flows(before: Reading, after: Reading) -> dict[TopicPartition, Flow]:
    """The rates of the partitions that both looks know. Offsets count records; a record's size is that of the log.

    A log that retention shortened meanwhile tells no growth: there the mean size of all its records counts.
    """
    took_s = after.at_s - before.at_s
    if took_s <= 0:
        return {}
    result = {}
    for partition, end in after.ends.items():
        if partition not in before.ends:
            continue
        records = max(0, end - before.ends[partition])
        size = record_bytes(partition, before, after)
        read = sum(
            max(0, offsets[partition] - before.committed[group][partition])
            for group, offsets in after.committed.items()
            if partition in offsets and partition in before.committed.get(group, {})
        )
        result[partition] = Flow(
            in_bytes_per_s=round(records * size / took_s, 1), out_bytes_per_s=round(read * size / took_s, 1)
        )
    return result


def record_bytes(partition: TopicPartition, before: Reading, after: Reading) -> float:
    """The size of a record of a partition: of those that came between the looks, else of all that are there."""
    came = after.ends.get(partition, 0) - before.ends.get(partition, 0)
    grown = after.sizes.get(partition, 0) - before.sizes.get(partition, 0)
    if came > 0 and grown > 0:
        return grown / came
    there = after.ends.get(partition, 0) - after.first.get(partition, 0)
    return after.sizes.get(partition, 0) / there if there > 0 else 0.0


def lags(reading: Reading) -> dict[str, dict[TopicPartition, int]]:
    """How many records each group is behind, by partition."""
    return {
        group: {p: max(0, reading.ends[p] - offset) for p, offset in sorted(offsets.items()) if p in reading.ends}
        for group, offsets in reading.committed.items()
    }
