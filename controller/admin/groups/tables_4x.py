"""The tables of kafka-consumer-groups --describe of 4.x: with leader epochs, epochs of groups, and targets. Pure.

Groups of the classic protocol have no epochs and no targets: a dash stands there.
Source: Kafka 4.1 `ConsumerGroupCommand.printOffsets`, `printMembers`, `printStates`; recordings of 4.1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from controller.admin.groups.queries import Group
from controller.admin.groups.tables import MISSING, OffsetRow, cell, offset_table, table
from controller.wire.types import TopicPartition


def offsets(rows: Sequence[OffsetRow], *, verbose: bool) -> str:
    """Offsets and lag per partition; `verbose` adds the leader epochs that were committed."""
    if not verbose:
        return offset_table(rows)
    header = (
        "GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST",
        "CLIENT-ID",
    )  # fmt: skip
    cells = [(*(all_ := row.cells())[:3], cell(row.leader_epoch), *all_[3:]) for row in rows]
    return table(header, (15, 15, 10, 15, 15, 15, 15, 15, 15, 0), cells, grow=(0, 1, 7, 8))


def members(group: Group) -> str:
    """The members with what they have and are to have; where some of them are upgraded and some not, who is."""
    static = any(m.group_instance_id for m in group.members)
    instance = ["GROUP-INSTANCE-ID"] if static else []
    header = (
        "GROUP", "CONSUMER-ID", *instance, "HOST", "CLIENT-ID", "#PARTITIONS", "CURRENT-EPOCH", "CURRENT-ASSIGNMENT",
        "TARGET-EPOCH", "TARGET-ASSIGNMENT", *(["UPGRADED"] if (mixed := _is_mixed(group)) else []),
    )  # fmt: skip
    least = (15, 15, *([17] if static else []), 15, 15, 15, 15, 20, 15, 20, *([0] if mixed else []))
    rows = [
        (
            group.group_id, m.member_id, *([m.group_instance_id or ""] if static else []), m.host, m.client_id,
            str(len(m.assignment)), cell(m.epoch), _listed(m.assignment), cell(group.target_epoch), _listed(m.target),
            *([_in_javas_words(m.upgraded)] if mixed else []),
        )
        for m in group.members
    ]  # fmt: skip
    grow = tuple(at for at, name in enumerate(header) if name not in _FIXED)
    return table(header, least, rows, grow=grow)


#: Columns as wide as they are, whatever stands in them.
_FIXED = ("#PARTITIONS", "CURRENT-EPOCH", "TARGET-EPOCH", "UPGRADED")


def _is_mixed(group: Group) -> bool:
    return {True, False} <= {m.upgraded for m in group.members}


def _in_javas_words(upgraded: bool | None) -> str:
    return MISSING if upgraded is None else str(upgraded).lower()


def _listed(partitions: Sequence[TopicPartition]) -> str:
    topics: dict[str, list[int]] = defaultdict(list)
    for partition in partitions:
        topics[partition.topic].append(partition.partition)
    return ";".join(sorted(f"{topic}:{','.join(map(str, sorted(of)))}" for topic, of in topics.items())) or MISSING


def state(group: Group, *, verbose: bool) -> str:
    """The state of a group; two spaces stand before the coordinator's id."""
    coordinator = f"{group.coordinator.host}:{group.coordinator.port}  ({group.coordinator.broker_id})"
    own = [cell(group.epoch), cell(group.target_epoch)] if verbose else []
    epochs = ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"] if verbose else []
    header = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", *epochs, "#MEMBERS")
    row = (
        group.group_id, coordinator, group.strategy or MISSING, group.state, *own,
        str(len(group.members)),
    )  # fmt: skip
    return table(header, (15, 25, 20, 20, *((15, 25) if verbose else ()), 0), [row], grow=(0, 1))
