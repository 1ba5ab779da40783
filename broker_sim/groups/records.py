"""Records of `__consumer_offsets`: keys and values to and from bytes. Pure.

Written as Kafka 3.9 does at inter.broker.protocol 2.6: offset keys 1, values 3, or 1 where the client said how long the
offset is to be kept; group keys 2, values 3. Read: offset values 0 to 3 and group values 0 to 3.
Source: `OffsetCommitKey/Value.json`, `GroupMetadataKey/Value.json`; spec clients.md §8.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from controller.wire.types import TopicPartition

_I16, _I32, _I64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
#: Bytes of a text: more than names have, but not more than a newer request may carry.
_LONGEST: Final = 2**15 - 1
OFFSET_KEY_VERSION: Final = 1
OFFSET_VALUE_VERSION: Final = 3
#: The one that says how long the offset is kept, and does not know leader epochs.
EXPIRING_OFFSET_VERSION: Final = 1
GROUP_KEY_VERSION: Final = 2
GROUP_VALUE_VERSION: Final = 3


class RecordError(ValueError):
    """A record of another format than these, or one that none of them can say. The message says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """What a group committed for a partition. `leader_epoch` -1: not known; `expire_timestamp` -1: the broker says."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp: int = -1
    expire_timestamp: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMember:
    """A member as the log has it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGroup:
    """A group as the log has it."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_changed_ms: int
    members: tuple[StoredMember, ...]


@dataclass(frozen=True, slots=True)
class OffsetKey:
    """Key of a committed offset."""

    group_id: str
    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True)
class GroupKey:
    """Key of a group's metadata."""

    group_id: str


# -- to bytes --------------------------------------------------------------------------------------------------------


def _text(text: str | None) -> bytes:
    if text is None:
        return _I16.pack(-1)
    data = text.encode()
    if len(data) > _LONGEST:
        raise RecordError(f"text of {len(data)} bytes; at most {_LONGEST} can be written")
    return _I16.pack(len(data)) + data


def _bytes(data: bytes) -> bytes:
    return _I32.pack(len(data)) + data


def encode_offset_key(key: OffsetKey) -> bytes:
    """Version 1."""
    topic, partition = key.topic_partition
    return _I16.pack(OFFSET_KEY_VERSION) + _text(key.group_id) + _text(topic) + _I32.pack(partition)


def encode_offset_value(value: CommittedOffset) -> bytes:
    """Version 3; 1 for one that expires at a time of its own. Source: Kafka 3.9 `offsetCommitValue`."""
    offset, rest = _I64.pack(value.offset), _text(value.metadata) + _I64.pack(value.commit_timestamp)
    if value.expire_timestamp != -1:
        return _I16.pack(EXPIRING_OFFSET_VERSION) + offset + rest + _I64.pack(value.expire_timestamp)
    return _I16.pack(OFFSET_VALUE_VERSION) + offset + _I32.pack(value.leader_epoch) + rest


def encode_group_key(group_id: str) -> bytes:
    """Version 2."""
    return _I16.pack(GROUP_KEY_VERSION) + _text(group_id)


def encode_group_value(group: StoredGroup) -> bytes:
    """Version 3. Raises RecordError, for names that are too long."""
    return b"".join(
        (
            _I16.pack(GROUP_VALUE_VERSION),
            _text(group.protocol_type),
            _I32.pack(group.generation),
            _text(group.protocol),
            _text(group.leader),
            _I64.pack(group.state_changed_ms),
            _I32.pack(len(group.members)),
            *_members(group.members),
        )
    )


def _members(members: Iterable[StoredMember]) -> Iterable[bytes]:
    for member in members:
        yield _text(member.member_id) + _text(member.group_instance_id)
        yield _text(member.client_id) + _text(member.client_host)
        yield _I32.pack(member.rebalance_timeout_ms) + _I32.pack(member.session_timeout_ms)
        yield _bytes(member.subscription) + _bytes(member.assignment)


# -- from bytes ------------------------------------------------------------------------------------------------------


class _Reader:
    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._data):
            raise RecordError(f"{size} bytes wanted at {self._at} of {len(self._data)}")
        self._at += size
        return self._data[self._at - size : self._at]

    def i16(self) -> int:
        return int(_I16.unpack(self._take(2))[0])

    def i32(self) -> int:
        return int(_I32.unpack(self._take(4))[0])

    def i64(self) -> int:
        return int(_I64.unpack(self._take(8))[0])

    def text(self) -> str | None:
        size = self.i16()
        try:
            return None if size == -1 else self._take(size).decode()
        except UnicodeDecodeError as error:
            raise RecordError(f"text that is no UTF-8: {error}") from error

    def word(self) -> str:
        return self.text() or ""

    def data(self) -> bytes:
        return self._take(self.i32())


def decode_key(data: bytes | None) -> OffsetKey | GroupKey:
    """Raises RecordError for a key of a kind or version that is not known here."""
    reader = _Reader(data or b"")
    version = reader.i16()
    if version in (0, 1):
        group_id = reader.word()
        return OffsetKey(group_id, TopicPartition(reader.word(), reader.i32()))
    if version == GROUP_KEY_VERSION:
        return GroupKey(reader.word())
    raise RecordError(f"key version {version} is not known")


def decode_offset_value(data: bytes) -> CommittedOffset:
    """Raises RecordError."""
    reader = _Reader(data)
    version = reader.i16()
    if not 0 <= version <= OFFSET_VALUE_VERSION:
        raise RecordError(f"offset value version {version} is not known")
    offset = reader.i64()
    leader_epoch = reader.i32() if version >= 3 else -1
    return CommittedOffset(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=reader.word(),
        commit_timestamp=reader.i64(),
        expire_timestamp=reader.i64() if version == EXPIRING_OFFSET_VERSION else -1,
    )


def decode_group_value(data: bytes) -> StoredGroup:
    """Raises RecordError."""
    reader = _Reader(data)
    version = reader.i16()
    if not 0 <= version <= GROUP_VALUE_VERSION:
        raise RecordError(f"group value version {version} is not known")
    head = (reader.word(), reader.i32(), reader.text(), reader.text())
    state_changed_ms = reader.i64() if version >= 2 else -1
    members = tuple(_read_member(reader, version) for _ in range(reader.i32()))
    return StoredGroup(
        protocol_type=head[0],
        generation=head[1],
        protocol=head[2],
        leader=head[3],
        state_changed_ms=state_changed_ms,
        members=members,
    )


def _read_member(reader: _Reader, version: int) -> StoredMember:
    member_id = reader.word()
    group_instance_id = reader.text() if version >= 3 else None
    client_id, client_host = reader.word(), reader.word()
    rebalance_timeout_ms = reader.i32() if version >= 1 else None
    session_timeout_ms = reader.i32()
    return StoredMember(
        member_id=member_id,
        group_instance_id=group_instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=session_timeout_ms if rebalance_timeout_ms is None else rebalance_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=reader.data(),
        assignment=reader.data(),
    )
