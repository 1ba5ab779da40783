"""The three requests of the controller to its brokers: LeaderAndIsr v4, UpdateMetadata v6, StopReplica v3.

Values on both sides; what is the same for several brokers is encoded once.

Source: spec controller.md §7, broker.md §1.3.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

from controller.wire.types import (
    LEADER_DURING_DELETE,
    NO_LEADER,
    Broker,
    BrokerId,
    Endpoint,
    LeaderAndIsr,
    ReplicaAssignment,
    TopicPartition,
)

LEADER_AND_ISR_VERSION: Final = 4
UPDATE_METADATA_VERSION: Final = 6
STOP_REPLICA_VERSION: Final = 3
CONTROLLED_SHUTDOWN_VERSION: Final = 3


class LeaderAndIsrEntry(NamedTuple):
    """What one broker is told of one partition it replicates. `is_new` lets it create the log."""

    topic_partition: TopicPartition
    state: LeaderAndIsr
    assignment: ReplicaAssignment
    is_new: bool = False


class UpdateMetadataEntry(NamedTuple):
    """What every broker is told of one partition. `being_deleted` goes out as leader -2, leader epoch 0, epoch 0."""

    topic_partition: TopicPartition
    state: LeaderAndIsr
    replicas: tuple[BrokerId, ...]
    offline_replicas: tuple[BrokerId, ...] = ()
    being_deleted: bool = False


class StopReplicaEntry(NamedTuple):
    """One replica to stop. `leader_epoch` may be NO_EPOCH or EPOCH_DURING_DELETE."""

    topic_partition: TopicPartition
    leader_epoch: int
    delete_partition: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrRequest:
    """`to` is the addressee; `live_leaders` are the live brokers that lead a partition of this request."""

    to: BrokerId
    controller_id: BrokerId
    controller_epoch: int
    broker_epoch: int
    partition_states: tuple[LeaderAndIsrEntry, ...]
    live_leaders: tuple[Broker, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataRequest:
    """The same entries and live brokers go to every addressee; only `to` and `broker_epoch` differ."""

    to: BrokerId
    controller_id: BrokerId
    controller_epoch: int
    broker_epoch: int
    partition_states: tuple[UpdateMetadataEntry, ...]
    live_brokers: tuple[Broker, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaRequest:
    """Replicas for one broker to stop, some of them to delete."""

    to: BrokerId
    controller_id: BrokerId
    controller_epoch: int
    broker_epoch: int
    partition_states: tuple[StopReplicaEntry, ...]


ControlRequest = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


# --- to bytes: flexible encodings, packed by hand because a failover sends one entry per partition and replica

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

    __slots__ = ("_rests", "_tail")

    def __init__(self) -> None:
        self._rests = _Rests()
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
        return b"".join((_head(request), _by_topic(states, self._rests, _leader_and_isr_rest), *leaders, b"\x00"))

    def _update_metadata_tail(self, request: UpdateMetadataRequest) -> bytes:
        """What follows the epochs: the same for every addressee of a batch."""
        states, live = request.partition_states, request.live_brokers
        kept = self._tail
        if kept is not None and (kept[0] is states or kept[0] == states) and kept[1] == live:
            return kept[2]
        brokers = [_live_broker(broker) for broker in live]
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


# --- from decoded bodies (kio entities, read by attribute), for the brokers


def decode_leader_and_isr(body: Any, to: BrokerId) -> LeaderAndIsrRequest:
    """The values of a LeaderAndIsr body, version 4. Listener names are not part of this request."""
    entries = tuple(
        LeaderAndIsrEntry(
            topic_partition=TopicPartition(topic.topic_name, int(s.partition_index)),
            state=LeaderAndIsr(
                leader=_read_leader(s.leader),
                isr=tuple(s.isr),
                leader_epoch=int(s.leader_epoch),
                partition_epoch=int(s.partition_epoch),
                controller_epoch=int(s.controller_epoch),
            ),
            assignment=ReplicaAssignment(
                replicas=tuple(s.replicas),
                adding_replicas=tuple(s.adding_replicas),
                removing_replicas=tuple(s.removing_replicas),
            ),
            is_new=bool(s.is_new),
        )
        for topic in body.topic_states
        for s in topic.partition_states
    )
    leaders = tuple(
        Broker(
            broker_id=BrokerId(int(b.broker_id)), endpoints=(Endpoint(host=b.host_name, port=int(b.port), listener=""),)
        )
        for b in body.live_leaders
    )
    return LeaderAndIsrRequest(to=to, partition_states=entries, live_leaders=leaders, **_read_head(body))


def decode_update_metadata(body: Any, to: BrokerId) -> UpdateMetadataRequest:
    """The values of an UpdateMetadata body, version 6."""
    entries = tuple(
        UpdateMetadataEntry(
            topic_partition=TopicPartition(topic.topic_name, int(s.partition_index)),
            state=LeaderAndIsr(
                leader=_read_leader(s.leader),
                isr=tuple(s.isr),
                leader_epoch=int(s.leader_epoch),
                partition_epoch=int(s.zk_version),
                controller_epoch=int(s.controller_epoch),
            ),
            replicas=tuple(s.replicas),
            offline_replicas=tuple(s.offline_replicas),
            being_deleted=s.leader == LEADER_DURING_DELETE,
        )
        for topic in body.topic_states
        for s in topic.partition_states
    )
    brokers = tuple(
        Broker(
            broker_id=BrokerId(int(b.id_)),
            endpoints=tuple(
                Endpoint(host=e.host, port=int(e.port), listener=e.listener, security_protocol=int(e.security_protocol))
                for e in b.endpoints
            ),
            rack=b.rack,
        )
        for b in body.live_brokers
    )
    return UpdateMetadataRequest(to=to, partition_states=entries, live_brokers=brokers, **_read_head(body))


def decode_stop_replica(body: Any, to: BrokerId) -> StopReplicaRequest:
    """The values of a StopReplica body, version 3."""
    entries = tuple(
        StopReplicaEntry(
            topic_partition=TopicPartition(topic.topic_name, int(s.partition_index)),
            leader_epoch=int(s.leader_epoch),
            delete_partition=bool(s.delete_partition),
        )
        for topic in body.topic_states
        for s in topic.partition_states
    )
    return StopReplicaRequest(to=to, partition_states=entries, **_read_head(body))


def _read_leader(leader: int) -> BrokerId | None:
    return None if leader < 0 else BrokerId(int(leader))


def _read_head(body: Any) -> dict[str, Any]:
    return {
        "controller_id": BrokerId(int(body.controller_id)),
        "controller_epoch": int(body.controller_epoch),
        "broker_epoch": int(body.broker_epoch),
    }
