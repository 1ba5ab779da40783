"""The tables of kafka-consumer-groups --describe. Pure. Source: Kafka `ConsumerGroupCommand`; spec admin.md §4.5."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from controller.admin.offset_queries import Group, GroupMember
from controller.wire.types import TopicPartition

_MISSING: Final = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRow:
    """One partition of a group; what is not known is None."""

    group: str
    partition: TopicPartition
    current: int | None
    end: int | None
    member: GroupMember | None

    @property
    def lag(self) -> int | None:
        """Records not yet consumed."""
        return None if self.current is None or self.end is None else self.end - self.current

    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        member = self.member
        return (
            self.group,
            self.partition.topic,
            str(self.partition.partition),
            _cell(self.current),
            _cell(self.end),
            _cell(self.lag),
            member.member_id if member else _MISSING,
            member.host if member else _MISSING,
            member.client_id if member else _MISSING,
        )


def offset_table(rows: Sequence[OffsetRow]) -> str:
    """Offsets and lag per partition. Each row starts on a new line and the last ends without one."""
    header = (
        "GROUP",
        "TOPIC",
        "PARTITION",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "CONSUMER-ID",
        "HOST",
        "CLIENT-ID",
    )
    return _table(header, (15, 15, 10, 15, 15, 15, 15, 15, 0), [r.cells() for r in rows], grow=(0, 1, 6, 7))


def member_table(group: Group, *, verbose: bool) -> str:
    """The members; `verbose` adds their partitions, with topics (which Kafka 3.9 omits)."""
    with_instance = any(m.group_instance_id for m in group.members)
    header = [
        "GROUP",
        "CONSUMER-ID",
        *(["GROUP-INSTANCE-ID"] if with_instance else []),
        "HOST",
        "CLIENT-ID",
        "#PARTITIONS",
    ]
    widths = [15, 15, *([17] if with_instance else []), 15, 15, 15]
    rows = []
    for m in group.members:
        instance = [m.group_instance_id or _MISSING] if with_instance else []
        row = [group.group_id, m.member_id, *instance, m.host, m.client_id, str(len(m.assignment))]
        rows.append((*row, *([_assignment(m)] if verbose else [])))
    if verbose:
        header.append("ASSIGNMENT")
        widths.append(0)
    return _table(tuple(header), tuple(widths), rows, grow=tuple(range(len(header) - (2 if verbose else 1))))


def _assignment(member: GroupMember) -> str:
    topics: dict[str, list[str]] = defaultdict(list)
    for partition in member.assignment:
        topics[partition.topic].append(str(partition.partition))
    return ", ".join(f"{topic}({','.join(numbers)})" for topic, numbers in topics.items()) or _MISSING


def state_table(group: Group) -> str:
    """The state of a group; two spaces stand before the coordinator's id."""
    coordinator = f"{group.coordinator.host}:{group.coordinator.port}  ({group.coordinator.broker_id})"
    header = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
    row = (group.group_id, coordinator, group.strategy, group.state, str(len(group.members)))
    return _table(header, (15, 25, 20, 15, 0), [row], grow=(0, 1))


def _cell(value: int | None) -> str:
    return _MISSING if value is None else str(value)


def _table(
    header: tuple[str, ...], least: tuple[int, ...], rows: Sequence[tuple[str, ...]], grow: tuple[int, ...]
) -> str:
    """Left-aligned columns, one space between; the columns in `grow` take the width of their longest value."""
    widths = [max([w, *(len(row[at]) for row in rows)]) if at in grow else w for at, w in enumerate(least)]
    lines = [header, *rows]
    return "\n".join(" ".join(f"{cell:<{w}}" for cell, w in zip(line, widths, strict=True)) for line in lines)
