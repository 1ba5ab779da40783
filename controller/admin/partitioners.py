"""Which partition a record goes to: the producers' rules as pure functions.

A given partition is used as it is; a key is hashed over all partitions; a record with neither goes round those that
are available. Source: Kafka 3.9 `Utils.murmur2`, `BuiltInPartitioner`, `RoundRobinPartitioner`; librdkafka
`rd_kafka_msg_partitioner_consistent_random`; spec clients.md §11.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Final

from controller.rules.placement import Chance

_MASK: Final = 0xFFFFFFFF
_SEED, _M, _R = 0x9747B28C, 0x5BD1E995, 24


def murmur2(key: bytes) -> int:
    """Kafka's hash of a key, as a signed 32-bit number."""
    value = _SEED ^ len(key)
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        part = int.from_bytes(key[at : at + 4], "little") * _M & _MASK
        part = (part ^ part >> _R) * _M & _MASK
        value = (value * _M & _MASK) ^ part
    if rest := key[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * _M & _MASK
    value = (value ^ value >> 13) * _M & _MASK
    value ^= value >> 15
    return value - (1 << 32) if value >= 1 << 31 else value


def keyed(key: bytes, partitions: int) -> int:
    """Where Java's clients, kafka-python and aiokafka put a key: over all partitions, available or not."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def keyed_by_crc32(key: bytes, partitions: int) -> int | None:
    """Where librdkafka puts a key unless told `partitioner=murmur2_random`: CRC-32, that of zip, over all of them.

    None: an empty key goes anywhere, as no key does.
    """
    return zlib.crc32(key) % partitions if key else None


def round_robin(available: Sequence[int], start: int, records: int) -> list[int]:
    """The partitions of so many records without a key (Java before 2.4, `RoundRobinPartitioner`)."""
    return [available[(start + n) % len(available)] for n in range(records)]


def sticky(available: Sequence[int], records: int, per_batch: int, chance: Chance) -> Iterator[int]:
    """The same since Java 2.4: one partition for a batch, then another one, drawn among those available.

    The new one differs from the old one while there are others, as `StickyPartitionCache` has it.
    """
    now: int | None = None
    for number in range(records):
        if number % per_batch == 0:
            others = [p for p in available if p != now] or list(available)
            now = others[chance.randrange(len(others))]
        assert now is not None, "set with the first record"
        yield now
