"""Which log is compacted next, and how far: arithmetic on segments, checkpoints, settings and the time. Of a segment
that is asked for the time of its records the file is looked at where that is not known: then OSError may be raised.

Source: Kafka 3.9 `LogCleanerManager.cleanableOffsets`, `maxCompactionDelay`, `grabFilthiestCompactedLog`,
`Cleaner.groupSegmentsBySize`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from broker_sim.log.config import LogConfig
from broker_sim.log.rolling import largest_timestamp
from broker_sim.log.segment import MAX_RELATIVE_OFFSET, Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningPlan:
    """What a compaction of one log would do: offsets from `first_dirty` up to `first_uncleanable`, where a segment
    begins, are new to it."""

    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    cleanable_bytes: int
    #: `max.compaction.lag.ms` is over
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        """The part of the bytes below `first_uncleanable` that is not compacted yet."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        """Whether it is worth while, by the topic's settings."""
        if not self.cleanable_bytes:
            return False
        return self.is_overdue or self.dirty_ratio > config.min_cleanable_dirty_ratio


def plan_cleaning(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    cleaned_up_to: int | None,
    log_start: int,
    leo: int,
    high_watermark: int,
    now_ms: int,
) -> CleaningPlan:
    """How far a log can be compacted: whole segments, never the one that is written to, nor one with anything above the
    high watermark, since what is not committed may be cut off again.

    `cleaned_up_to` is the checkpoint; one that lies outside of the log counts for nothing. May raise OSError.
    """
    first_dirty = log_start if cleaned_up_to is None or not log_start <= cleaned_up_to <= leo else cleaned_up_to
    dirty = _closed_from(segments, first_dirty)
    bounds = [high_watermark, segments[-1].base_offset]
    if config.min_compaction_lag_ms > 0:
        bounds += [s.base_offset for s in dirty if largest_timestamp(s) > now_ms - config.min_compaction_lag_ms][:1]
    beyond = _closed_from(segments, max(first_dirty, min(bounds)))
    bound = beyond[0].base_offset if beyond else segments[-1].base_offset
    return CleaningPlan(
        first_dirty=first_dirty,
        first_uncleanable=bound,
        # A segment that is compacted in part counts on both sides, as in Kafka.
        clean_bytes=sum(s.size for s in segments if s.base_offset < first_dirty),
        cleanable_bytes=sum(s.size for s in _closed_from(segments, min(first_dirty, bound)) if s.base_offset < bound),
        is_overdue=_is_overdue(dirty, config, now_ms),
    )


def _closed_from(segments: Sequence[Segment], offset: int) -> list[Segment]:
    """The segments, the last one left out, from the one that `offset` belongs to on."""
    start = max((i for i, s in enumerate(segments) if s.base_offset <= offset), default=0)
    return list(segments[start:-1])


def _is_overdue(dirty: Sequence[Segment], config: LogConfig, now_ms: int) -> bool:
    first = min((t for s in dirty if (t := s.first_timestamp) > 0), default=None)
    return first is not None and first < now_ms - config.max_compaction_lag_ms


def group_segments(
    segments: Sequence[Segment], *, max_bytes: int, max_index_bytes: int, end: int
) -> list[list[Segment]]:
    """Neighbours that fit into one segment together: by bytes, by index entries, by the range of their offsets.

    `segments` are those below the end of the cleaning, `end` is the first offset that is not cleaned.
    """
    groups: list[list[Segment]] = []
    for index, segment in enumerate(segments):
        last_offset = (segments[index + 1].base_offset if index + 1 < len(segments) else end) - 1
        if groups and _fits(groups[-1], segment, max_bytes, max_index_bytes, last_offset):
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return groups


def _fits(group: Sequence[Segment], segment: Segment, max_bytes: int, max_index_bytes: int, last_offset: int) -> bool:
    together = [*group, segment]
    return (
        sum(s.size for s in together) <= max_bytes
        and sum(s.index_bytes[0] for s in together) <= max_index_bytes
        and sum(s.index_bytes[1] for s in together) <= max_index_bytes
        and (segment.size == 0 or last_offset - group[0].base_offset <= MAX_RELATIVE_OFFSET)
    )
