"""Short names for what a collector yields, and the names of Kafka's MBeans as jmx_exporter's usual rules write them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

from controller.wire.times import Times
from controller.world.metrics_page import add_times

REPLICA_MANAGER: Final = "kafka_server_replicamanager"
TOPICS: Final = "kafka_server_brokertopicmetrics"
PARTITION: Final = "kafka_cluster_partition"
FETCHERS: Final = "kafka_server_replicafetchermanager"
FETCHER_LAG: Final = "kafka_server_fetcherlagmetrics"
MOVERS: Final = "kafka_server_replicaalterlogdirsmanager"
REQUESTS: Final = "kafka_network_requestmetrics"
SOCKETS: Final = "kafka_network_socketserver"
HANDLERS: Final = "kafka_server_kafkarequesthandlerpool"
PURGATORY: Final = "kafka_server_delayedoperationpurgatory"
FETCH_SESSIONS: Final = "kafka_server_fetchsessioncache"
GROUPS: Final = "kafka_coordinator_group_groupmetadatamanager"
LOG: Final = "kafka_log_log"
LOG_MANAGER: Final = "kafka_log_logmanager"
SERVER: Final = "kafka_server_kafkaserver"
SESSIONS: Final = "kafka_server_sessionexpirelistener"
ZK_CLIENT: Final = "kafka_server_zookeeperclientmetrics"


def gauge(name: str, text: str, value: float) -> Metric:
    """A gauge without labels."""
    return GaugeMetricFamily(name, text, value)


def gauges(name: str, text: str, labels: tuple[str, ...], rows: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    """One row per set of label values."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def counter(name: str, text: str, value: float) -> Metric:
    """A counter without labels; the page adds `_total` to its name."""
    return CounterMetricFamily(name, text, value)


def counters(name: str, text: str, labels: tuple[str, ...], rows: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    """As `gauges`."""
    family = CounterMetricFamily(name, text, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def times(name: str, text: str, rows: Iterable[tuple[Mapping[str, str], Times]]) -> Metric:
    """Kafka's timers and histograms, one per set of labels."""
    family = SummaryMetricFamily(name, text)
    for labels, each in rows:
        add_times(family, labels, each)
    return family
