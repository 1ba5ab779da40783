"""Java's string hash, by which Kafka places groups and fetchers, and what follows from it. Pure.

Source: `String.hashCode`, `Utils.abs`; Scala 2.13 `HashMap`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def _signed(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def java_hash(text: str) -> int:
    """The hash over UTF-16 units, as a signed 32-bit number."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return _signed(value)


def positive(value: int) -> int:
    """The absolute value in 32 bits; that of the least int, which has none, is 0."""
    value = _signed(value)
    return 0 if value == -(1 << 31) else abs(value)


def group_partition(group_id: str, partitions: int) -> int:
    """The partition of `__consumer_offsets` that keeps a group; its leader coordinates it. Source: clients.md §6."""
    return positive(java_hash(group_id)) % partitions


def scala_order(keys: Sequence[T], hash_of: Callable[[T], int], shift: int = 0) -> list[T]:
    """Different keys in the order in which a hash set or map of Scala has them: a trie of five bits of the hash at a
    time, in which who has a place alone comes before those that share one. Of equal hashes the first given."""
    if len(keys) < 2 or shift >= 32:
        return list(keys)
    places: dict[int, list[T]] = {}
    for key in keys:
        places.setdefault(_mixed(hash_of(key)) >> shift & 31, []).append(key)
    in_turn = sorted(places.items(), key=lambda place: (len(place[1]) > 1, place[0]))
    return [key for _, sharing in in_turn for key in scala_order(sharing, hash_of, shift + 5)]


def _mixed(value: int) -> int:
    """Scala's `Hashing.improve`, without a sign."""
    value = (value + ~(value << 9)) & 0xFFFFFFFF
    value ^= value >> 14
    value = (value + (value << 4)) & 0xFFFFFFFF
    return value ^ value >> 10
