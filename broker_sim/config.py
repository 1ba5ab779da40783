"""The settings of a simulated broker, under Kafka's property names, with Kafka's defaults.

A field's name is the property with underscores for dots. Values may be strings as in a properties file. Where several
properties mean one thing (`log.retention.ms|minutes|hours`), the method here resolves them as Kafka does. What the logs
and replicas need of them is `ReplicaSettings`, a plain value.
Source: spec broker.md §18, §17.2; Kafka 3.9 `KafkaConfig`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from controller.rules.configs.broker import (
    NO_CONNECTIONS,
    NO_RETENTION,
    NO_ROOM_TO_CLEAN,
    check_listener_configs,
    per_address_limits,
)

LONG_MAX: Final = 2**63 - 1
INT_MAX: Final = 2**31 - 1
_MIB: Final = 1 << 20

NonNegative = Annotated[int, Field(ge=0, le=LONG_MAX)]
Positive = Annotated[int, Field(ge=1, le=LONG_MAX)]
FromMinusOne = Annotated[int, Field(ge=-1, le=LONG_MAX)]


def _checked_limits(text: str) -> str:
    """Raises ValueError, for what lists no limits of addresses."""
    per_address_limits(text)
    return text


AddressLimits = Annotated[str, AfterValidator(_checked_limits)]


class SettingsError(ValueError):
    """A property has a value that it cannot have. One line per property, with name, value and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """The static settings of the data plane, under Kafka's property names with `.` as `_`; Kafka's defaults."""

    log_dirs: tuple[str, ...]
    num_replica_fetchers: int = 1
    replica_lag_time_max_ms: int = 30_000
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_min_bytes: int = 1
    replica_fetch_max_bytes: int = 1_048_576
    replica_fetch_response_max_bytes: int = 10_485_760
    replica_fetch_backoff_ms: int = 1_000
    replica_socket_timeout_ms: int = 30_000
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    replication_quota_window_num: int = 11
    replication_quota_window_size_seconds: int = 1
    fetch_max_bytes: int = 57_671_680
    max_incremental_fetch_session_cache_slots: int = 1_000
    min_insync_replicas: int = 1
    log_segment_bytes: int = 1_073_741_824
    log_roll_ms: int = 604_800_000
    log_retention_ms: int = 604_800_000
    log_retention_bytes: int = -1
    log_retention_check_interval_ms: int = 300_000
    log_cleanup_policy: str = "delete"
    log_index_interval_bytes: int = 4_096
    log_index_size_max_bytes: int = 10_485_760
    log_segment_delete_delay_ms: int = 60_000
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_roll_jitter_ms: int | None = None
    log_roll_jitter_hours: int = 0
    log_flush_interval_messages: int = 9_223_372_036_854_775_807
    log_flush_interval_ms: int | None = None
    log_flush_scheduler_interval_ms: int = 9_223_372_036_854_775_807
    log_flush_start_offset_checkpoint_interval_ms: int = 60_000
    log_cleaner_enable: bool = True
    log_cleaner_backoff_ms: int = 15_000
    log_cleaner_dedupe_buffer_size: int = 134_217_728
    log_cleaner_io_buffer_load_factor: float = 0.9
    log_cleaner_io_max_bytes_per_second: float = float("inf")
    log_cleaner_threads: int = 1
    log_cleaner_delete_retention_ms: int = 86_400_000
    log_cleaner_min_cleanable_ratio: float = 0.5
    log_cleaner_min_compaction_lag_ms: int = 0
    log_cleaner_max_compaction_lag_ms: int = 9_223_372_036_854_775_807
    num_replica_alter_log_dirs_threads: int | None = None
    log_message_timestamp_type: str = "CreateTime"
    log_message_timestamp_difference_max_ms: int = 9_223_372_036_854_775_807
    log_message_timestamp_before_max_ms: int = 9_223_372_036_854_775_807
    log_message_timestamp_after_max_ms: int = 9_223_372_036_854_775_807
    log_initial_task_delay_ms: int = 30_000
    message_max_bytes: int = 1_048_588
    compression_type: str = "producer"
    producer_id_expiration_ms: int = 86_400_000


class BrokerSettings(BaseModel):
    """What a broker reads at start. Durations in the unit that the name ends with; sizes in bytes."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=lambda name: name.replace("_", "."), populate_by_name=True
    )

    # Topics that brokers create, and what topics inherit
    num_partitions: Positive = 1
    default_replication_factor: Positive = 1
    auto_create_topics_enable: bool = True
    delete_topic_enable: bool = True
    min_insync_replicas: Positive = 1
    unclean_leader_election_enable: bool = False
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_max_bytes: NonNegative = 1_048_588
    log_cleanup_policy: str = "delete"
    log_retention_ms: FromMinusOne | None = None
    log_retention_minutes: FromMinusOne | None = None
    log_retention_hours: FromMinusOne = 168
    log_retention_bytes: FromMinusOne = -1
    log_retention_check_interval_ms: Positive = 300_000
    log_initial_task_delay_ms: NonNegative = 30_000
    log_segment_bytes: Annotated[int, Field(ge=14, le=INT_MAX)] = 1_073_741_824
    log_segment_delete_delay_ms: NonNegative = 60_000
    log_roll_ms: Positive | None = None
    log_roll_hours: Positive = 168
    log_roll_jitter_ms: NonNegative | None = None
    log_roll_jitter_hours: NonNegative = 0
    log_index_interval_bytes: NonNegative = 4096
    log_index_size_max_bytes: NonNegative = 10_485_760
    log_message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = "CreateTime"
    log_message_timestamp_difference_max_ms: NonNegative = LONG_MAX
    log_message_timestamp_before_max_ms: NonNegative = LONG_MAX
    log_message_timestamp_after_max_ms: NonNegative = LONG_MAX
    log_message_downconversion_enable: bool = True
    log_preallocate: bool = False
    log_cleaner_enable: bool = True
    log_cleaner_backoff_ms: NonNegative = 15_000
    log_cleaner_dedupe_buffer_size: Annotated[int, Field(ge=1_048_577, le=LONG_MAX)] = 134_217_728
    log_cleaner_io_buffer_load_factor: Annotated[float, Field(gt=0, le=1)] = 0.9
    log_cleaner_io_max_bytes_per_second: Annotated[float, Field(ge=0)] = float("inf")
    log_cleaner_threads: Positive = 1
    log_cleaner_delete_retention_ms: NonNegative = 86_400_000
    log_cleaner_min_cleanable_ratio: Annotated[float, Field(ge=0, le=1)] = 0.5
    log_cleaner_min_compaction_lag_ms: NonNegative = 0
    log_cleaner_max_compaction_lag_ms: Positive = LONG_MAX
    log_flush_interval_messages: Positive = LONG_MAX
    log_flush_interval_ms: NonNegative | None = None
    log_flush_scheduler_interval_ms: NonNegative = LONG_MAX
    log_flush_offset_checkpoint_interval_ms: NonNegative = 60_000
    log_flush_start_offset_checkpoint_interval_ms: NonNegative = 60_000

    # Replication
    num_replica_fetchers: Positive = 1
    replica_lag_time_max_ms: Positive = 30_000
    replica_fetch_wait_max_ms: NonNegative = 500
    replica_fetch_min_bytes: NonNegative = 1
    replica_fetch_max_bytes: NonNegative = 1_048_576
    replica_fetch_response_max_bytes: NonNegative = 10_485_760
    replica_fetch_backoff_ms: NonNegative = 1000
    replica_socket_timeout_ms: Positive = 30_000
    replica_high_watermark_checkpoint_interval_ms: Positive = 5000
    replication_quota_window_num: Positive = 11
    replication_quota_window_size_seconds: Positive = 1
    leader_replication_throttled_rate: NonNegative = LONG_MAX
    follower_replication_throttled_rate: NonNegative = LONG_MAX
    replica_alter_log_dirs_io_max_bytes_per_second: NonNegative = LONG_MAX
    num_replica_alter_log_dirs_threads: Positive | None = None

    # Server
    fetch_max_bytes: Annotated[int, Field(ge=1024)] = 57_671_680
    max_incremental_fetch_session_cache_slots: NonNegative = 1000
    socket_request_max_bytes: Positive = 104_857_600
    queued_max_request_bytes: FromMinusOne = -1
    connections_max_idle_ms: FromMinusOne = 600_000
    max_connections: NonNegative = INT_MAX
    max_connections_per_ip: NonNegative = INT_MAX
    max_connections_per_ip_overrides: AddressLimits = ""
    max_connection_creation_rate: NonNegative = INT_MAX
    socket_listen_backlog_size: Positive = 50
    listeners: str | None = None
    advertised_listeners: str | None = None
    listener_security_protocol_map: str | None = None
    inter_broker_listener_name: str | None = None
    security_inter_broker_protocol: str = "PLAINTEXT"
    control_plane_listener_name: str | None = None
    broker_rack: str | None = None
    request_timeout_ms: Positive = 30_000
    controller_socket_timeout_ms: Positive = 30_000
    controlled_shutdown_enable: bool = True
    controlled_shutdown_max_retries: NonNegative = 3
    controlled_shutdown_retry_backoff_ms: NonNegative = 5000

    # ZooKeeper
    zookeeper_session_timeout_ms: Positive = 18_000
    zookeeper_connection_timeout_ms: Positive | None = None
    zookeeper_max_in_flight_requests: Positive = 100

    # Groups
    offsets_topic_num_partitions: Positive = 50
    offsets_topic_replication_factor: Positive = 3
    offsets_topic_segment_bytes: Positive = 104_857_600
    producer_id_expiration_ms: Positive = 86_400_000
    offsets_retention_minutes: Positive = 10_080
    offsets_retention_check_interval_ms: Positive = 600_000
    offsets_commit_timeout_ms: Positive = 5000
    offset_metadata_max_bytes: NonNegative = 4096
    group_min_session_timeout_ms: NonNegative = 6000
    group_max_session_timeout_ms: NonNegative = 1_800_000
    group_initial_rebalance_delay_ms: NonNegative = 3000
    group_max_size: Positive = INT_MAX

    _given: dict[str, str] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        for is_refused, reason in self._refusals():
            if is_refused:
                raise ValueError(reason)
        return self

    def _refusals(self) -> Iterator[tuple[bool, str]]:
        """Settings that do not go together. Source: Kafka 3.9 `KafkaConfig.validateValues`."""
        yield (
            self.replica_fetch_wait_max_ms > self.replica_lag_time_max_ms,
            "replica.fetch.wait.max.ms must be at most replica.lag.time.max.ms",
        )
        yield (
            self.replica_fetch_wait_max_ms > self.replica_socket_timeout_ms,
            "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to prevent unnecessary "
            "socket timeouts",
        )
        yield (
            0 < self.queued_max_request_bytes < self.socket_request_max_bytes,
            "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
        )
        yield self.log_cleaner_dedupe_buffer_size // self.log_cleaner_threads <= _MIB, NO_ROOM_TO_CLEAN
        no_overrides = not per_address_limits(self.max_connections_per_ip_overrides)
        yield self.max_connections_per_ip == 0 and no_overrides, NO_CONNECTIONS
        yield (
            self.group_min_session_timeout_ms > self.group_max_session_timeout_ms,
            "group.min.session.timeout.ms must be at most group.max.session.timeout.ms",
        )
        yield self.retention_ms == 0, NO_RETENTION

    @classmethod
    def parse(cls, properties: Mapping[str, Any]) -> Self:
        """The settings of these properties; what kwob does not use is ignored (`rules.configs.settings` names it).

        Raises: SettingsError, for a value that its property cannot have.
        """
        try:
            check_listener_configs({name: property_text(value) for name, value in properties.items()})
        except ValueError as error:
            raise SettingsError(str(error)) from error
        try:
            settings = cls.model_validate(dict(properties))
            settings._given = {name: property_text(value) for name, value in properties.items()}
            return settings
        except ValidationError as error:
            raise SettingsError("\n".join(_explain(e) for e in error.errors())) from error

    @property
    def retention_ms(self) -> int:
        """`log.retention.ms`, else minutes, else hours; -1 is for ever."""
        if self.log_retention_ms is not None:
            return self.log_retention_ms
        if self.log_retention_minutes is not None:
            return _scaled(self.log_retention_minutes, 60_000)
        return _scaled(self.log_retention_hours, 3_600_000)

    @property
    def roll_ms(self) -> int:
        """`log.roll.ms`, else hours."""
        return self.log_roll_ms if self.log_roll_ms is not None else self.log_roll_hours * 3_600_000

    def of_replicas(self, log_dirs: Iterable[Path]) -> ReplicaSettings:
        """The part that the data plane has; names are the same but where Kafka has several for one."""
        values = self.model_dump()
        shared = {field.name: values[field.name] for field in fields(ReplicaSettings) if field.name in values}
        shared.update(
            log_dirs=tuple(str(path) for path in log_dirs), log_roll_ms=self.roll_ms, log_retention_ms=self.retention_ms
        )
        return ReplicaSettings(**shared)

    def given_values(self) -> dict[str, str]:
        """The properties that were set, as text, those too that are not used: Kafka's static broker configs."""
        values = self.model_dump(by_alias=True, exclude_unset=True)
        used = {name: property_text(value) for name, value in values.items() if value is not None}
        return {**self._given, **used}


def property_text(value: Any) -> str:
    """A value as Kafka prints it (`true`, not `True`)."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _scaled(value: int, unit_ms: int) -> int:
    return -1 if value < 0 else value * unit_ms


def _explain(error: Any) -> str:
    name = ".".join(str(part) for part in error["loc"]) or "settings"
    if error["type"] == "value_error":
        return f"{name}: {error['ctx']['error']}"
    return f"Invalid value {error['input']} for configuration {name}: {error['msg']}"
