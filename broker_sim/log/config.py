"""The settings of one log: the broker's defaults under the topic's overrides. Source: Kafka 3.9 `LogConfig`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from broker_sim.config import LONG_MAX, ReplicaSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Under the topic properties' names, with `.` as `_`. -1 means without limit where Kafka means it."""

    segment_bytes: int = 1_073_741_824
    segment_ms: int = 604_800_000
    segment_index_bytes: int = 10_485_760
    index_interval_bytes: int = 4_096
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    max_message_bytes: int = 1_048_588
    min_insync_replicas: int = 1
    file_delete_delay_ms: int = 60_000
    cleanup_policy: str = "delete"
    compression_type: str = "producer"
    segment_jitter_ms: int = 0
    flush_messages: int = 9_223_372_036_854_775_807
    flush_ms: int = 9_223_372_036_854_775_807
    delete_retention_ms: int = 86_400_000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 9_223_372_036_854_775_807
    producer_id_expiration_ms: int = 86_400_000
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = 9_223_372_036_854_775_807
    message_timestamp_after_max_ms: int = 9_223_372_036_854_775_807

    @property
    def is_compacted(self) -> bool:
        """Whether records need keys."""
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """Whether old segments are deleted by age and size."""
        return "delete" in self.cleanup_policy

    @property
    def max_segment_ms(self) -> int:
        """The age that closes a segment; sooner than `segment.ms` where its records must be compacted sooner."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    @property
    def is_log_append_time(self) -> bool:
        """Whether the broker stamps records."""
        return self.message_timestamp_type == "LogAppendTime"


#: topic property -> (field, parser). Blanks around a value mean nothing (`ConfigDef.parseType`).
_PROPERTIES: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "segment.bytes": ("segment_bytes", int),
    "segment.ms": ("segment_ms", int),
    "segment.index.bytes": ("segment_index_bytes", int),
    "index.interval.bytes": ("index_interval_bytes", int),
    "retention.ms": ("retention_ms", int),
    "retention.bytes": ("retention_bytes", int),
    "max.message.bytes": ("max_message_bytes", int),
    "min.insync.replicas": ("min_insync_replicas", int),
    "file.delete.delay.ms": ("file_delete_delay_ms", int),
    "cleanup.policy": ("cleanup_policy", str.strip),
    "compression.type": ("compression_type", str.strip),
    "segment.jitter.ms": ("segment_jitter_ms", int),
    "flush.messages": ("flush_messages", int),
    "flush.ms": ("flush_ms", int),
    "delete.retention.ms": ("delete_retention_ms", int),
    "min.cleanable.dirty.ratio": ("min_cleanable_dirty_ratio", float),
    "min.compaction.lag.ms": ("min_compaction_lag_ms", int),
    "max.compaction.lag.ms": ("max_compaction_lag_ms", int),
    "message.timestamp.type": ("message_timestamp_type", str.strip),
    "message.timestamp.before.max.ms": ("message_timestamp_before_max_ms", int),
    "message.timestamp.after.max.ms": ("message_timestamp_after_max_ms", int),
}
#: Deprecated: both limits of timestamps in one.
_DIFFERENCE: Final = "message.timestamp.difference.max.ms"


def log_config(settings: ReplicaSettings, overrides: Mapping[str, str]) -> LogConfig:
    """The config of a topic's logs. Overrides that are no log's business are passed over.

    Raises: ValueError for a value of the wrong type (they are validated where they are set).
    """
    defaults = LogConfig(
        segment_bytes=settings.log_segment_bytes,
        segment_ms=settings.log_roll_ms,
        segment_index_bytes=settings.log_index_size_max_bytes,
        index_interval_bytes=settings.log_index_interval_bytes,
        retention_ms=settings.log_retention_ms,
        retention_bytes=settings.log_retention_bytes,
        max_message_bytes=settings.message_max_bytes,
        min_insync_replicas=settings.min_insync_replicas,
        file_delete_delay_ms=settings.log_segment_delete_delay_ms,
        cleanup_policy=settings.log_cleanup_policy,
        compression_type=settings.compression_type,
        segment_jitter_ms=_jitter_ms(settings),
        flush_messages=settings.log_flush_interval_messages,
        flush_ms=_flush_ms(settings),
        delete_retention_ms=settings.log_cleaner_delete_retention_ms,
        min_cleanable_dirty_ratio=settings.log_cleaner_min_cleanable_ratio,
        min_compaction_lag_ms=settings.log_cleaner_min_compaction_lag_ms,
        max_compaction_lag_ms=settings.log_cleaner_max_compaction_lag_ms,
        producer_id_expiration_ms=settings.producer_id_expiration_ms,
        message_timestamp_type=settings.log_message_timestamp_type,
        message_timestamp_before_max_ms=settings.log_message_timestamp_before_max_ms,
        message_timestamp_after_max_ms=settings.log_message_timestamp_after_max_ms,
    )
    changes = {field: parse(overrides[name]) for name, (field, parse) in _PROPERTIES.items() if name in overrides}
    brokers_ms = settings.log_message_timestamp_difference_max_ms
    config = replace(_with_difference(defaults, brokers_ms), **changes)
    return _with_difference(config, int(overrides.get(_DIFFERENCE, brokers_ms)))


def _with_difference(config: LogConfig, difference_ms: int) -> LogConfig:
    """The older limit counts for either side that has none of its own (`LogConfig.getMessageTimestampBeforeMaxMs`)."""
    before_ms, after_ms = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    return replace(
        config,
        message_timestamp_before_max_ms=difference_ms if before_ms == LONG_MAX else before_ms,
        message_timestamp_after_max_ms=difference_ms if after_ms == LONG_MAX else after_ms,
    )


def _jitter_ms(settings: ReplicaSettings) -> int:
    """`log.roll.jitter.ms`, else hours."""
    hours = settings.log_roll_jitter_hours
    return hours * 3_600_000 if settings.log_roll_jitter_ms is None else settings.log_roll_jitter_ms


def _flush_ms(settings: ReplicaSettings) -> int:
    """`log.flush.interval.ms`, else how often it is looked."""
    every = settings.log_flush_interval_ms
    return settings.log_flush_scheduler_interval_ms if every is None else every
