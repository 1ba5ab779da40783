"""When a log starts a new segment, and which old segments it gives up. Pure, but for the time of a file.

Source: Kafka 3.9 `LogSegment.shouldRoll`, `LogSegment.largestTimestamp`, `UnifiedLog.deleteOldSegments`; spec
broker.md §10.1.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker_sim.log.config import LogConfig
from broker_sim.log.segment import MAX_RELATIVE_OFFSET, Segment
from controller.wire.records import BatchHeader


def must_roll(active: Segment, header: BatchHeader, config: LogConfig, *, now_ms: int) -> str | None:
    """Why this batch goes to a new segment, None when it fits into the active one."""
    if header.last_offset - active.base_offset > MAX_RELATIVE_OFFSET:
        return "offset"
    if active.size == 0:
        return None
    if active.size + header.size > config.segment_bytes:
        return "size"
    if _age_ms(active, header, now_ms) > config.max_segment_ms - active.jitter_ms:
        return "time"
    return "index" if active.indexes_are_full else None


def _age_ms(active: Segment, header: BatchHeader, now_ms: int) -> int:
    """By the records' own time where they have one, else by the broker's."""
    if active.first_timestamp >= 0:
        return header.max_timestamp - active.first_timestamp
    return now_ms - active.created_ms if active.created_ms else 0


def largest_timestamp(segment: Segment) -> int:
    """The newest record's. Where no record has a time, or none is left by a compaction: when the file was last written
    to. May raise OSError, then only."""
    return segment.max_timestamp if segment.max_timestamp >= 0 else int(segment.last_modified_s() * 1000)


def count_deletable(
    segments: Sequence[Segment], config: LogConfig, *, now_ms: int, high_watermark: int, leo: int, log_start: int
) -> int:
    """How many segments from the oldest on are to go, by time, size and the log's start offset.

    Only segments wholly below the high watermark go; the last one goes, for an empty one, when it is expired, or where
    nothing at all is to be kept (`retention.bytes` 0). May raise OSError. Source: Kafka 3.9
    `UnifiedLog.deletableSegments`.
    """
    size = sum(s.size for s in segments)
    excess = size - config.retention_bytes if config.retention_bytes >= 0 else -1
    count = 0
    for segment in segments:
        is_last = count + 1 == len(segments)
        end = leo if is_last else segments[count + 1].base_offset
        if end > high_watermark or (is_last and segment.size == 0):
            break
        is_expired = config.retention_ms >= 0 and largest_timestamp(segment) < now_ms - config.retention_ms
        is_excess = excess >= segment.size
        is_below_start = end <= log_start and not is_last
        if not (is_below_start or (config.deletes and (is_expired or is_excess))):
            break
        excess -= segment.size
        count += 1
    return count
