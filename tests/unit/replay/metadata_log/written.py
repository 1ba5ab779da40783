"""Records of a metadata log as bytes: the encoding beside the decoder, written from the same table, for tests only."""

from __future__ import annotations

import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from typing import Any

import crc32c

from broker_sim.replay.metadata_log import schemas
from broker_sim.replay.metadata_log.schemas import SCHEMAS, Field
from controller.wire import records
from controller.wire.records import Record

FIXED = {"bool": ">?", "int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "int64": ">q", "float64": ">d"}


def topic_id(number: int) -> str:
    return urlsafe_b64encode(number.to_bytes(16, "big")).rstrip(b"=").decode()


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def encode(api_key: int, version: int, **fields: Any) -> bytes:
    """A record's value; a tagged field is written where it is given."""
    return uvarint(1) + uvarint(api_key) + uvarint(version) + _fields(SCHEMAS[api_key].fields, version, fields)


def _fields(of: tuple[Field, ...], version: int, values: dict[str, Any]) -> bytes:
    there = [field for field in of if version >= field.since]
    plain = b"".join(_value(f.type, f.many, values[f.name], version) for f in there if f.tag is None)
    given = [f for f in there if f.tag is not None and f.name in values]
    tagged = [(f.tag, _value(f.type, f.many, values[f.name], version)) for f in given]
    return plain + uvarint(len(tagged)) + b"".join(uvarint(tag) + uvarint(len(b)) + b for tag, b in sorted(tagged))


def _value(kind: Any, many: bool, value: Any, version: int) -> bytes:
    if isinstance(kind, tuple):
        return uvarint(len(value) + 1) + b"".join(_fields(kind, version, one) for one in value)
    if kind.startswith("[]"):
        if value is None:
            return uvarint(0)
        return uvarint(len(value) + 1) + b"".join(_value(kind[2:], False, one, version) for one in value)
    if kind in FIXED:
        return struct.pack(FIXED[kind], value)
    if kind == "uuid":
        return urlsafe_b64decode(value + "==")
    if value is None:
        return uvarint(0)
    content = value.encode() if kind == "string" else value
    return uvarint(len(content) + 1) + content


def partition(topic: int, number: int, isr: Iterable[int], *, leader: int | None = None, **fields: Any) -> bytes:
    isr = list(isr)
    said = {"replicas": isr, "removingReplicas": [], "addingReplicas": [], "leaderEpoch": 0, "partitionEpoch": 0}
    whole = {**said, "leader": isr[0] if leader is None else leader, "isr": isr, "directories": [], **fields}
    return encode(schemas.PARTITION, 2, partitionId=number, topicId=topic_id(topic), **whole)


def change(topic: int, number: int, **fields: Any) -> bytes:
    return encode(schemas.PARTITION_CHANGE, 2, partitionId=number, topicId=topic_id(topic), **fields)


def topic(number: int, name: str) -> bytes:
    return encode(schemas.TOPIC, 0, name=name, topicId=topic_id(number))


def config(topic: str, key: str, value: str | None) -> bytes:
    return encode(schemas.CONFIG, 0, resourceType=2, resourceName=topic, name=key, value=value)


def broker_change(broker: int, **fields: Any) -> bytes:
    return encode(schemas.BROKER_REGISTRATION_CHANGE, 2, brokerId=broker, brokerEpoch=7, **fields)


def batch(offset: int, ts: int, *values: bytes, epoch: int = 1) -> bytes:
    """One batch of these values, appended at `ts`."""
    content = [Record(offset + i, ts, None, value) for i, value in enumerate(values)]
    return records.build_batch(content, partition_leader_epoch=epoch)


def control(offset: int, ts: int, kind: int, value: bytes, *, epoch: int = 1) -> bytes:
    """A batch with one control record."""
    key = struct.pack(">hh", 0, kind)
    plain = records.build_batch([Record(offset, ts, key, value)], partition_leader_epoch=epoch)
    header = records.parse_header(plain)
    body = struct.pack(">h", header.attributes | 0x20) + plain[23:]
    return plain[:17] + struct.pack(">I", crc32c.crc32c(body)) + body


def elected(offset: int, ts: int, leader: int, *, epoch: int = 1) -> bytes:
    """The first batch of an epoch of the quorum."""
    value = struct.pack(">hi", 0, leader) + uvarint(1) + uvarint(1) + uvarint(0)
    return control(offset, ts, schemas.LEADER_CHANGE, value, epoch=epoch)


def snapshot(until: int, *values: bytes, is_whole: bool = True) -> bytes:
    """A snapshot whose last record was appended at `until`."""
    header = control(0, until, schemas.SNAPSHOT_HEADER, struct.pack(">hq", 0, until) + uvarint(0))
    footer = control(len(values) + 1, until, schemas.SNAPSHOT_FOOTER, struct.pack(">h", 0) + uvarint(0))
    return header + (batch(1, until, *values) if values else b"") + (footer if is_whole else b"")
