"""What configs make of the replicas of one broker: settings of topics, dynamic settings of the broker, throttles.

`config_store.DynamicConfigs` reads and follows them. Source: spec broker.md §15, §17; Kafka 3.9 `TopicConfigHandler`,
`DynamicLogConfig`, `DynamicThreadPool`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final

from broker_sim.config import ReplicaSettings
from broker_sim.replicas.fetcher import FetcherManager
from broker_sim.replicas.partition import Partition
from broker_sim.replicas.quota import ReplicationQuota, parse_throttled_replicas
from broker_sim.replicas.table import ReplicaTable
from controller.rules.configs.broker import broker_config_type
from controller.rules.configs.topic import parse_as
from controller.wire.trace import TraceEvent

#: Of the leader's, the follower's and the log dirs' quota, in this order.
_RATE_KEYS: Final = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)


class ReplicaConfigs:
    """Puts configs into force. Changes of `min.insync.replicas` and of throttles are traced once `is_tracing`."""

    def __init__(self, table: ReplicaTable, fetchers: FetcherManager) -> None:
        self._table, self._fetchers, self._settings = table, fetchers, table.settings
        self.is_tracing = False

    def trace_all(self) -> None:
        """The overrides of all topics that are known by now, at the start of a trace."""
        self.is_tracing = True
        for topic in sorted(self._table.overrides):
            self._trace_min_isr(topic, None)
        for key, quota in self._quotas().items():
            if quota.bound is not None:
                self._trace_rate(key, quota.bound)

    def set_topic_config(self, topic: str, overrides: Mapping[str, str]) -> None:
        """The topic's overrides are now exactly these (`min.insync.replicas`, `segment.bytes`, ...).

        Unknown keys are kept for nobody. Does not touch throttles: they follow the change notification (§15).
        """
        table = self._table
        before = table.overrides.get(topic, {})
        if overrides == before:
            return
        if overrides:
            table.overrides[topic] = dict(overrides)
        else:
            table.overrides.pop(topic, None)
        config = table.config_of(topic)
        for log in table.dirs.all_logs():
            if log.topic_partition.topic == topic:
                log.config = config
        if self.is_tracing:
            self._trace_min_isr(topic, before.get("min.insync.replicas"))
        for topic_partition, partition in table.partitions.items():
            if topic_partition.topic == topic:
                self._set_min_isr(partition, config.min_insync_replicas)

    def _trace_min_isr(self, topic: str, before: str | None) -> None:
        now = self._table.overrides.get(topic, {}).get("min.insync.replicas")
        if now != before:
            key = "*" if now is None else "min.insync.replicas"
            self._table.trace.topic_config(self._table.now_ms(), topic, key, now)

    def set_broker_config(self, values: Mapping[str, str]) -> None:
        """The broker's dynamic configs are now exactly these; what is not among them is again as at the start.

        They count for what looks at the settings from now on: logs, retention, cleaning, the number of fetchers.
        """
        table, setting_names = self._table, {field.name for field in fields(ReplicaSettings)}
        changes = {
            name: _setting(key, text)
            for key, text in values.items()
            if (name := key.replace(".", "_")) in setting_names
        }
        before, now = table.settings, replace(self._settings, **changes)
        if now == before:
            return
        table.settings = now
        for log in table.dirs.all_logs():
            log.config = table.config_of(log.topic_partition.topic)
        for partition in table.partitions.values():
            self._set_min_isr(partition, table.config_of(partition.topic_partition.topic).min_insync_replicas)
        if now.num_replica_fetchers != before.num_replica_fetchers:
            self._spread_over_fetchers()

    def _spread_over_fetchers(self) -> None:
        """All that this broker follows, over the fetchers that there are to be now; a stopped replica stays stopped.

        Source: Kafka 3.9 `AbstractFetcherManager.resizeThreadPool`.
        """
        following = [p for p in self._table.partitions.values() if self._fetchers.follows(p.topic_partition)]
        self._fetchers.remove([partition.topic_partition for partition in following])
        for partition in following:
            if partition.leader is not None:
                self._fetchers.add(partition, partition.leader)
        self._fetchers.stop_idle()

    @staticmethod
    def _set_min_isr(partition: Partition, min_insync_replicas: int) -> None:
        partition.min_insync_replicas = min_insync_replicas
        if partition.led is not None:
            partition.led.min_insync_replicas = min_insync_replicas

    def set_throttled_replicas(self, topic: str, leader: str, follower: str) -> None:
        """The topic's throttled lists, as in its config: `p:b,p:b`, `*` or empty. Raises ValueError otherwise."""
        for text in (leader, follower):
            parse_throttled_replicas(text, self._table.broker_id)
        self._table.leader_quota.set_throttled(topic, leader)
        self._table.follower_quota.set_throttled(topic, follower)

    def set_throttle_rates(
        self, *, leader: int | None = None, follower: int | None = None, alter_log_dirs: int | None = None
    ) -> None:
        """Bytes per second; None: no limit. All three are set."""
        new_rates = dict(zip(_RATE_KEYS, (leader, follower, alter_log_dirs), strict=True))
        for key, quota in self._quotas().items():
            if quota.bound == new_rates[key]:
                continue
            quota.bound = new_rates[key]
            if self.is_tracing:
                self._trace_rate(key, quota.bound)

    def _quotas(self) -> dict[str, ReplicationQuota]:
        table = self._table
        quotas = (table.leader_quota, table.follower_quota, table.alter_log_dirs_quota)
        return dict(zip(_RATE_KEYS, quotas, strict=True))

    def _trace_rate(self, key: str, rate: int | None) -> None:
        table, value = self._table, None if rate is None else str(rate)
        table.trace.row(TraceEvent.CONFIG, table.now_ms(), replica=table.broker_id, key=key, value=value)


def _setting(name: str, text: str) -> Any:
    """The value of a property as the settings hold it: a list stays text."""
    value = parse_as(broker_config_type(name), name, text)
    return text if isinstance(value, list) else value
