"""Java's string hash, by which Kafka places groups and fetchers. Pure. Source: `String.hashCode`, `Utils.abs`."""

from __future__ import annotations


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
