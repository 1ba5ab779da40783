"""The tables of kafka-consumer-groups --describe. Pure. Source: Kafka `ConsumerGroupCommand`; spec admin.md §4.5."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controller.admin.groups.queries import Group, GroupMember, Listed
from controller.wire.types import TopicPartition

#: What stands for nothing.
MISSING: Final = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRow:
    """One partition of a group; what is not known is None."""

    group: str
    partition: TopicPartition
    current: int | None
    end: int | None
    member: GroupMember | None
    #: That was committed with the offset.
    leader_epoch: int | None = None

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
            cell(self.current),
            cell(self.end),
            cell(self.lag),
            member.member_id if member else MISSING,
            member.host if member else MISSING,
            member.client_id if member else MISSING,
        )


def listing(groups: Mapping[str, Listed], *, with_type: bool, with_state: bool) -> str:
    """The groups with their types and states."""
    header = ["GROUP", *(["TYPE"] if with_type else []), *(["STATE"] if with_state else [])]
    width = max([15, *map(len, groups)]) + 10
    rows = [header]
    for name, listed in groups.items():
        rows.append([name, *([listed.type] if with_type else []), *([listed.state] if with_state else [])])
    return "\n".join(" ".join([f"{row[0]:<{width}}", *(f"{cell:<20}" for cell in row[1:])]) for row in rows)


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
    return table(header, (15, 15, 10, 15, 15, 15, 15, 15, 0), [r.cells() for r in rows], grow=(0, 1, 6, 7))


def member_table(group: Group, *, verbose: bool) -> str:
    """The members; `verbose` adds the numbers of their partitions. Rows end with a blank, as in Kafka."""
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
        instance = [m.group_instance_id or ""] if with_instance else []
        row = [group.group_id, m.member_id, *instance, m.host, m.client_id, str(len(m.assignment))]
        rows.append((*row, *([_assignment(m)] if verbose else [])))
    header.append("ASSIGNMENT" if verbose else "")
    widths.append(0)
    rows = [(*row, *([] if verbose else [""])) for row in rows]
    return table(tuple(header), tuple(widths), rows, grow=tuple(range(len(header) - 2)))


def _assignment(member: GroupMember) -> str:
    """Partition numbers per topic, sorted as strings; Kafka 3.9 leaves the topics out."""
    topics: dict[str, list[str]] = defaultdict(list)
    for partition in member.assignment:
        topics[partition.topic].append(str(partition.partition))
    return ", ".join(sorted(f"({','.join(sorted(numbers))})" for numbers in topics.values())) or MISSING


def state_table(group: Group) -> str:
    """The state of a group; two spaces stand before the coordinator's id."""
    coordinator = f"{group.coordinator.host}:{group.coordinator.port}  ({group.coordinator.broker_id})"
    header = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
    row = (group.group_id, coordinator, group.strategy, group.state, str(len(group.members)))
    # Kafka 3.9 gives the group the width of the coordinator, and the coordinator 25.
    return table(header, (max(25, len(coordinator)), 25, 20, 15, 0), [row], grow=())


def cell(value: int | None) -> str:
    """A number that may not be known."""
    return MISSING if value is None else str(value)


def table(
    header: tuple[str, ...], least: tuple[int, ...], rows: Sequence[tuple[str, ...]], grow: tuple[int, ...]
) -> str:
    """Left-aligned columns, one space between; the columns in `grow` take the width of their longest value."""
    widths = [max([w, *(len(row[at]) for row in rows)]) if at in grow else w for at, w in enumerate(least)]
    lines = [header, *rows]
    return "\n".join(" ".join(f"{cell:<{w}}" for cell, w in zip(line, widths, strict=True)) for line in lines)
