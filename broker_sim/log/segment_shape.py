"""How a segment is built, and what loading one found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentShape:
    """How a log's segments are built: distance of index entries and room for them, both in bytes."""

    index_interval_bytes: int = 4_096
    max_index_bytes: int = 10_485_760


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What loading a segment found: bytes cut off its end, and why its indexes were rebuilt (None: they were not)."""

    torn_bytes: int = 0
    rebuilt: str | None = None
