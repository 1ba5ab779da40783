"""The three control requests as bytes: LeaderAndIsr v4, UpdateMetadata v6, StopReplica v3.

Flexible encodings, packed by hand because a failover sends one entry per partition and replica; what is the same for
several brokers, or for many partitions, is encoded once.

Source: spec controller.md §7, broker.md §1.3.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar

from controller.wire.control import (
    ControlRequest,
    EntriesByTopic,
    Fact,
    LeaderAndIsrByTopic,
    LeaderAndIsrEntry,
    LeaderAndIsrRequest,
    StopReplicaEntry,
    StopReplicaRequest,
    UpdateMetadataByTopic,
    UpdateMetadataEntry,
    UpdateMetadataRequest,
)
from controller.wire.types import LEADER_DURING_DELETE, NO_LEADER, Broker, BrokerId, LeaderAndIsr

_HEAD: Final = struct.Struct(">iiq")
_I32: Final = struct.Struct(">i")


def _varint(number: int) -> bytes:
    if number < 0x80:
        return _ONE_BYTE[number]
    parts = bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


_ONE_BYTE: Final = tuple(bytes((n,)) for n in range(0x80))


def _text(text: str) -> bytes:
    data = text.encode()
    return _varint(len(data) + 1) + data


@lru_cache(maxsize=4_096)
def _ids(ids: tuple[BrokerId, ...]) -> bytes:
    return _varint(len(ids) + 1) + struct.pack(f">{len(ids)}i", *ids)


_Item = TypeVar("_Item", LeaderAndIsrEntry, UpdateMetadataEntry)


class _Rests:
    """What follows the number of a partition: many entries differ in nothing else, so that is put into bytes once.

    Most of those have the same objects in common (`settled`, `TopicPartitionStateZNode.decode`), which are looked up by
    identity: hashing what they say takes twice as long (bench: failover, warm). Who is kept keeps its identity.
    """

    __slots__ = ("by_identity", "by_value")

    def __init__(self) -> None:
        self.by_identity: dict[tuple[int, int, object, object], tuple[object, object, bytes]] = {}
        self.by_value: dict[tuple[object, ...], bytes] = {}

    def of(self, entry: LeaderAndIsrEntry | UpdateMetadataEntry, encode: Callable[[Any], bytes]) -> bytes:
        """The bytes of an entry that is not there by identity, and is from now on."""
        state, replicas, others = entry[1], entry[2], (entry[3], entry[-1])
        rest = self.by_value.get(entry[1:])
        if rest is None:
            rest = self.by_value[entry[1:]] = encode(entry)
        self.by_identity[(id(state), id(replicas), *others)] = (state, replicas, rest)
        return rest


class _Columns:
    """As `_Rests`, of entries that come topic by topic: what follows the number of a partition is looked up by the
    identity of leadership and assignment alone (bench: failover, warm). Who is kept keeps its identity."""

    __slots__ = ("_kept", "_rests")

    def __init__(self) -> None:
        self._rests: dict[tuple[int, int], bytes] = {}
        self._kept: list[Fact] = []

    def encode(self, entries: EntriesByTopic[_Item], rest_of: Callable[[_Item], bytes]) -> bytes:
        """As `_by_topic`."""
        parts: list[bytes] = [_varint(len(entries.topics) + 1)]
        for topic, facts in entries.topics:
            try:
                items: list[bytes] = self._items(facts)
            except KeyError:
                for each in facts:
                    self._rests[id(each[1]), id(each[2])] = rest_of(entries.entry(topic, each))
                self._kept += facts
                items = self._items(facts)
            parts += (_text(topic), _varint(len(items) + 1), *items, b"\x00")
        return b"".join(parts)

    def _items(self, facts: Sequence[Fact]) -> list[bytes]:
        """Raises: KeyError, where something is not known yet."""
        rests, pack = self._rests, _I32.pack
        return [pack(partition) + rests[id(state), id(assignment)] for partition, state, assignment in facts]


def _by_topic(entries: Iterable[_Item], rests: _Rests, rest_of: Callable[[_Item], bytes]) -> bytes:
    """Entries grouped by topic, in the order in which topics and entries come. What follows the number of a partition
    is put into bytes once for all that have it in common."""
    topics: dict[str, list[bytes]] = {}
    items: list[bytes] = []
    last, pack, encoded = None, _I32.pack, rests.by_identity
    for entry in entries:
        (topic, partition), state, replicas = entry[:3]
        if topic is not last:
            items, last = topics.setdefault(topic, []), topic
        key = (id(state), id(replicas), entry[3], entry[-1])
        kept = encoded.get(key)
        items.append(pack(partition) + (rests.of(entry, rest_of) if kept is None else kept[2]))
    return _grouped(topics)


def _grouped(topics: Mapping[str, Sequence[bytes]]) -> bytes:
    """The entries of each topic, already in bytes."""
    parts: list[bytes] = [_varint(len(topics) + 1)]
    for topic, items in topics.items():
        parts += (_text(topic), _varint(len(items) + 1), *items, b"\x00")
    return b"".join(parts)


def _leader(state: LeaderAndIsr) -> int:
    return NO_LEADER if state.leader is None else state.leader


_STATE: Final = struct.Struct(">iii")
_STOP: Final = struct.Struct(">ii?B")

#: The bytes of a body, in two parts: what is its addressee's own, and what others of the same batch get, too.
Body = tuple[bytes, bytes]


class Encoder:
    """Puts the requests of one batch into bytes: what is the same for several brokers, or partitions, once.

    The one owner of such bytes: they live as long as the batch has requests to be sent. Requests of several batches do
    no harm, since all is looked up by what it says.
    """

    __slots__ = ("_columns", "_rests", "_tail")

    def __init__(self) -> None:
        self._rests = _Rests()
        self._columns = _Columns()
        #: The partition states and live brokers of the last UpdateMetadata, with their bytes.
        self._tail: tuple[object, object, bytes] | None = None

    def encode(self, request: ControlRequest) -> Body:
        """The body. Raises: struct.error, ValueError, OverflowError, for what does not fit the schema."""
        match request:
            case LeaderAndIsrRequest():
                return self._leader_and_isr(request), b""
            case UpdateMetadataRequest():
                return _head(request), self._update_metadata_tail(request)
            case StopReplicaRequest():
                states = request.partition_states
                return _head(request) + _grouped(_stop_items(states)) + b"\x00", b""

    def _leader_and_isr(self, request: LeaderAndIsrRequest) -> bytes:
        leaders = [_varint(len(request.live_leaders) + 1)]
        for broker in request.live_leaders:
            endpoint = broker.endpoints[0]
            leaders.append(_I32.pack(broker.broker_id) + _text(endpoint.host) + _I32.pack(endpoint.port) + b"\x00")
        states = request.partition_states
        if isinstance(states, LeaderAndIsrByTopic):
            items: bytes = self._columns.encode(states, _leader_and_isr_rest)
        else:
            items = _by_topic(states, self._rests, _leader_and_isr_rest)
        return b"".join((_head(request), items, *leaders, b"\x00"))

    def _update_metadata_tail(self, request: UpdateMetadataRequest) -> bytes:
        """What follows the epochs: the same for every addressee of a batch."""
        states, live = request.partition_states, request.live_brokers
        kept = self._tail
        if kept is not None and (kept[0] is states or kept[0] == states) and kept[1] == live:
            return kept[2]
        brokers = [_live_broker(broker) for broker in live]
        if isinstance(states, UpdateMetadataByTopic) and not states.deleted:
            items: bytes = _Columns().encode(states, _update_metadata_rest)
        else:
            items = _by_topic(states, _Rests(), _update_metadata_rest)
        tail = b"".join((items, _varint(len(brokers) + 1), *brokers, b"\x00"))
        self._tail = (states, live, tail)
        return tail


def encode(request: ControlRequest) -> bytes:
    """The body of one request alone, in the version that this module speaks."""
    return b"".join(Encoder().encode(request))


def _head(request: ControlRequest) -> bytes:
    return _HEAD.pack(request.controller_id, request.controller_epoch, request.broker_epoch)


def _leader_and_isr_rest(entry: LeaderAndIsrEntry) -> bytes:
    state, assignment = entry.state, entry.assignment
    return b"".join(
        (
            _STATE.pack(state.controller_epoch, _leader(state), state.leader_epoch),
            _ids(state.isr),
            _I32.pack(state.partition_epoch),
            _ids(assignment.replicas),
            _ids(assignment.adding_replicas),
            _ids(assignment.removing_replicas),
            b"\x01\x00" if entry.is_new else b"\x00\x00",
        )
    )


def _update_metadata_rest(entry: UpdateMetadataEntry) -> bytes:
    state = entry.state
    leader, leader_epoch, partition_epoch = _leader(state), state.leader_epoch, state.partition_epoch
    if entry.being_deleted:
        leader, leader_epoch, partition_epoch = LEADER_DURING_DELETE, 0, 0
    return b"".join(
        (
            _STATE.pack(state.controller_epoch, leader, leader_epoch),
            _ids(state.isr),
            _I32.pack(partition_epoch),
            _ids(entry.replicas),
            _ids(entry.offline_replicas),
            b"\x00",
        )
    )


def _live_broker(broker: Broker) -> bytes:
    endpoints = [
        _I32.pack(e.port) + _text(e.host) + _text(e.listener) + struct.pack(">h", e.security_protocol) + b"\x00"
        for e in broker.endpoints
    ]
    rack = b"\x00" if broker.rack is None else _text(broker.rack)
    return b"".join((_I32.pack(broker.broker_id), _varint(len(endpoints) + 1), *endpoints, rack, b"\x00"))


def _stop_items(entries: Iterable[StopReplicaEntry]) -> dict[str, list[bytes]]:
    topics: dict[str, list[bytes]] = {}
    for (topic, partition), leader_epoch, delete_partition in entries:
        topics.setdefault(topic, []).append(_STOP.pack(partition, leader_epoch, delete_partition, 0))
    return topics
