"""What is asked of and told to consumer groups: lists, descriptions, offsets, deletions. Functions over an AdminClient.

Source: Kafka 3.9 `KafkaAdminClient`; spec clients.md §7-8.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from controller.admin.cluster.client import AdminClient, Node
from controller.admin.cluster.failures import Refused, check
from controller.admin.cluster.queries import Outcomes, outcome
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """One member of a group. `epoch` and `target`, what it is to have, are those of the protocol of KIP-848 alone.

    `upgraded`: whether it speaks that protocol itself; None where brokers do not say, and of a classic group.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    epoch: int | None = None
    target: tuple[TopicPartition, ...] = ()
    upgraded: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A consumer group as its coordinator describes it. `state` in Kafka's words: Stable, Empty, Dead, ...

    `epoch`, and that of its targets, are those of the protocol of KIP-848 alone.
    """

    group_id: str
    state: str
    strategy: str
    members: tuple[GroupMember, ...]
    coordinator: Node
    epoch: int | None = None
    target_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """A group as ListGroups has it: its state and type, Unknown where the broker is too old to say."""

    state: str
    type: str


def _code(answer: Any) -> list[int]:
    return [answer.error_code]


def _codes_of_partitions(answer: Any) -> list[int]:
    return [p.error_code for topic in answer.topics for p in topic.partitions]


def groups_in(answer: Any) -> dict[str, Listed]:
    """The consumer groups that one broker coordinates, of its answer to ListGroups. Raises Refused."""
    check(answer.error_code)
    return {
        group.group_id: Listed(
            getattr(group, "group_state", "") or "Unknown",
            (getattr(group, "group_type", "") or "Classic").capitalize(),
        )
        for group in answer.groups
        if group.protocol_type in ("", "consumer")
    }


async def list_groups(admin: AdminClient) -> dict[str, Listed]:
    """Every consumer group by name, sorted. Raises Refused."""
    groups: dict[str, Listed] = {}
    for broker in await admin.brokers():
        groups |= groups_in(await admin.call_broker(broker, ApiKey.LIST_GROUPS, {}, _code))
    return dict(sorted(groups.items()))


async def describe_group(admin: AdminClient, group: str) -> Group:
    """As a group of the protocol of KIP-848, else of the classic one, as Kafka's client asks. Raises Refused."""
    if await admin.serves(ApiKey.CONSUMER_GROUP_DESCRIBE) and (newer := await _of_kip_848(admin, group)) is not None:
        return newer
    body = {"groups": [group]}
    coordinator, answer = await admin.call_coordinator(
        group, ApiKey.DESCRIBE_GROUPS, body, lambda a: [g.error_code for g in a.groups]
    )
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


_NOT_SUCH: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


async def _of_kip_848(admin: AdminClient, group: str) -> Group | None:
    """None for a group that is no such one, and where brokers know of none. Raises Refused."""
    body = {"group_ids": [group], "include_authorized_operations": False}
    try:
        coordinator, answer = await admin.call_coordinator(
            group, ApiKey.CONSUMER_GROUP_DESCRIBE, body, lambda a: [g.error_code for g in a.groups]
        )
    except Refused as refused:
        if refused.code is ErrorCode.UNSUPPORTED_VERSION:
            return None
        raise
    for described in answer.groups:
        if described.error_code in _NOT_SUCH:
            return None
        check(described.error_code, described.error_message)
        return Group(
            group_id=group,
            state=described.group_state,
            strategy=described.assignor_name,
            coordinator=coordinator,
            epoch=described.group_epoch,
            target_epoch=described.assignment_epoch,
            members=tuple(_newer_member(m) for m in sorted(described.members, key=lambda m: str(m.member_id))),
        )
    return None


#: `memberType` of ConsumerGroupDescribe where the coordinator does not know it, and of a member of KIP-848's protocol.
_UNKNOWN_TYPE: Final = -1
_CONSUMER_TYPE: Final = 1


def _newer_member(member: Any) -> GroupMember:
    kind = getattr(member, "member_type", _UNKNOWN_TYPE)
    return GroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=_partitions_of(member.assignment),
        epoch=member.member_epoch,
        target=_partitions_of(member.target_assignment),
        upgraded=None if kind == _UNKNOWN_TYPE else kind == _CONSUMER_TYPE,
    )


def _partitions_of(assignment: Any) -> tuple[TopicPartition, ...]:
    rows = [TopicPartition(t.topic_name, n) for t in assignment.topic_partitions for n in t.partitions]
    return tuple(sorted(rows))


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
        partitions = []
        for _ in range(reader.number(4)):
            topic = reader.text()
            partitions += [TopicPartition(topic, reader.number(4)) for _ in range(reader.number(4))]
    except (EOFError, UnicodeDecodeError):
        return ()
    return tuple(sorted(partitions))


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
        piece = self._data[self._at : self._at + size]
        if size < 0 or len(piece) != size:
            raise EOFError
        self._at += size
        return piece


@dataclass(frozen=True, slots=True)
class Committed:
    """An offset, and the leader epoch that was committed with it, if any."""

    offset: int
    leader_epoch: int | None


async def committed_offsets(admin: AdminClient, group: Group) -> dict[TopicPartition, int]:
    """What a group has committed. Raises Refused."""
    return {partition: of.offset for partition, of in (await committed_with_epochs(admin, group)).items()}


async def committed_with_epochs(admin: AdminClient, group: Group) -> dict[TopicPartition, Committed]:
    """As `committed_offsets`. Raises Refused."""
    body = {"group_id": group.group_id, "topics": None, "require_stable": False}
    _, answer = await admin.call_coordinator(group.group_id, ApiKey.OFFSET_FETCH, body, _code)
    check(answer.error_code)
    return {
        TopicPartition(topic.name, p.partition_index): Committed(
            p.committed_offset, epoch if (epoch := getattr(p, "committed_leader_epoch", -1)) >= 0 else None
        )
        for topic in answer.topics
        for p in topic.partitions
        if p.error_code == ErrorCode.NONE and p.committed_offset >= 0
    }


async def commit_offsets(admin: AdminClient, group: Group, offsets: Mapping[TopicPartition, int]) -> Outcomes:
    """Commits offsets for a group without members, as nobody's member. One outcome each."""
    if not offsets:
        return {}
    topics: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for partition, offset in sorted(offsets.items()):
        topics[partition.topic].append(
            {
                "partition_index": partition.partition,
                "committed_offset": offset,
                "committed_leader_epoch": -1,
                "committed_metadata": "",
            }
        )
    body = {
        "group_id": group.group_id,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": name, "partitions": listed} for name, listed in topics.items()],
    }
    _, answer = await admin.call_coordinator(group.group_id, ApiKey.OFFSET_COMMIT, body, _codes_of_partitions)
    return {
        TopicPartition(topic.name, p.partition_index): outcome(p.error_code)
        for topic in answer.topics
        for p in topic.partitions
    }


async def delete_offsets(admin: AdminClient, group: str, partitions: Collection[TopicPartition]) -> Outcomes:
    """Forgets what a group has committed for these partitions. One outcome each.

    Raises: Refused when all are refused as one.
    """
    topics: dict[str, list[dict[str, int]]] = defaultdict(list)
    for partition in sorted(partitions):
        topics[partition.topic].append({"partition_index": partition.partition})
    body = {"group_id": group, "topics": [{"name": name, "partitions": listed} for name, listed in topics.items()]}
    _, answer = await admin.call_coordinator(
        group, ApiKey.OFFSET_DELETE, body, lambda a: [*_code(a), *_codes_of_partitions(a)]
    )
    check(answer.error_code)
    return {
        TopicPartition(topic.name, p.partition_index): outcome(p.error_code)
        for topic in answer.topics
        for p in topic.partitions
    }


async def delete_group(admin: AdminClient, group: str) -> Refused | None:
    """Deletes a group without members; None for success, else the refusal."""
    body = {"groups_names": [group]}
    _, answer = await admin.call_coordinator(
        group, ApiKey.DELETE_GROUPS, body, lambda a: [result.error_code for result in a.results]
    )
    return next((outcome(result.error_code) for result in answer.results), Refused(ErrorCode.GROUP_ID_NOT_FOUND))
