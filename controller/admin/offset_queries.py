"""Offsets of partitions and consumer groups, as functions over an AdminClient. Source: Kafka `KafkaAdminClient`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from controller.admin.cluster import AdminClient, Node
from controller.admin.failures import Refused, check
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, TopicPartition


async def list_offsets(
    admin: AdminClient, leader: BrokerId, partitions: Collection[TopicPartition], timestamp: int
) -> dict[TopicPartition, int | Refused]:
    """The offset at a time (-1 latest, -2 earliest) of partitions that this broker leads; -1 when there is none."""
    topics: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for p in sorted(partitions):
        topics[p.topic].append(
            {"partition_index": p.partition, "current_leader_epoch": -1, "timestamp": timestamp, "max_num_offsets": 1}
        )
    body = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": name, "partitions": listed} for name, listed in topics.items()],
    }
    answer = await admin.call_broker(leader, ApiKey.LIST_OFFSETS, body)
    found: dict[TopicPartition, int | Refused] = {}
    for topic in answer.topics:
        for p in topic.partitions:
            code = ErrorCode.of(p.error_code)
            found[TopicPartition(topic.name, p.partition_index)] = p.offset if code is ErrorCode.NONE else Refused(code)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """One member of a group."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A consumer group as its coordinator describes it. `state` in Kafka's words: Stable, Empty, Dead, ..."""

    group_id: str
    state: str
    strategy: str
    members: tuple[GroupMember, ...]
    coordinator: Node


async def list_groups(admin: AdminClient) -> dict[str, str]:
    """Every consumer group by name, with the broker's word for its state (empty for an old broker). Raises Refused."""
    groups: dict[str, str] = {}
    for broker in await admin.brokers():
        answer = await admin.call_broker(broker, ApiKey.LIST_GROUPS, {})
        check(answer.error_code)
        for group in answer.groups:
            if group.protocol_type in ("", "consumer"):
                groups[group.group_id] = getattr(group, "group_state", "")
    return dict(sorted(groups.items()))


async def find_coordinator(admin: AdminClient, group: str) -> Node:
    """The broker that coordinates a group. Raises Refused."""
    answer = await admin.call_any(ApiKey.FIND_COORDINATOR, {"key": group, "key_type": 0})
    check(answer.error_code, getattr(answer, "error_message", None))
    return Node(broker_id=BrokerId(answer.node_id), host=answer.host, port=answer.port)


async def describe_group(admin: AdminClient, group: str) -> Group:
    """Raises Refused."""
    coordinator = await find_coordinator(admin, group)
    answer = await admin.call_broker(coordinator.broker_id, ApiKey.DESCRIBE_GROUPS, {"groups": [group]})
    for described in answer.groups:
        check(described.error_code)
        return Group(
            group_id=group,
            state=described.group_state,
            strategy=described.protocol_data,
            coordinator=coordinator,
            members=tuple(_member(m) for m in sorted(described.members, key=lambda m: str(m.member_id))),
        )
    raise Refused(ErrorCode.GROUP_ID_NOT_FOUND)


def _member(member: Any) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        group_instance_id=getattr(member, "group_instance_id", None),
        client_id=member.client_id,
        host=member.client_host,
        assignment=parse_member_assignment(member.member_assignment),
    )


def parse_member_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of `ConsumerProtocolAssignment`; none for bytes that are not one (another protocol's)."""
    reader = _Reader(data)
    try:
        reader.number(2)
        found = []
        for _ in range(reader.number(4)):
            topic = reader.text()
            found += [TopicPartition(topic, reader.number(4)) for _ in range(reader.number(4))]
    except (EOFError, UnicodeDecodeError):
        return ()
    return tuple(sorted(found))


class _Reader:
    """Big-endian numbers and strings out of bytes; EOFError at their end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big", signed=True)

    def text(self) -> str:
        return self._take(self.number(2)).decode()

    def _take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if size < 0 or len(taken) != size:
            raise EOFError
        self._at += size
        return taken


async def committed_offsets(admin: AdminClient, group: Group) -> dict[TopicPartition, int]:
    """The offsets that a group has committed. Raises Refused."""
    body = {"group_id": group.group_id, "topics": None, "require_stable": False}
    answer = await admin.call_broker(group.coordinator.broker_id, ApiKey.OFFSET_FETCH, body)
    check(answer.error_code)
    return {
        TopicPartition(topic.name, p.partition_index): p.committed_offset
        for topic in answer.topics
        for p in topic.partitions
        if p.error_code == ErrorCode.NONE and p.committed_offset >= 0
    }
