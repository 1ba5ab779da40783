"""Metrics of the replicas of one broker: partitions, topics, fetchers, logs.

What Kafka computes when it is asked is computed here when the page is. Source: Kafka 3.9 `ReplicaManager`, `Partition`,
`BrokerTopicMetrics`, `AbstractFetcherManager`, `UnifiedLog`, `LogManager`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

from prometheus_client.core import Metric

from broker_sim.isr import IsrChangeKind
from broker_sim.metrics.families import (
    FETCHER_LAG,
    FETCHERS,
    LOG,
    LOG_MANAGER,
    MOVERS,
    PARTITION,
    REPLICA_MANAGER,
    TOPICS,
    counter,
    counters,
    gauge,
    gauges,
)
from broker_sim.replicas.manager import ReplicaManager
from broker_sim.replicas.partition import Partition
from broker_sim.topic_meters import TopicMeter

_TOPIC_PARTITION = ("topic", "partition")
_DIRECTORY = ("logDirectory",)
_TOPIC_METERS = {field.name: field.name.replace("_", "") for field in fields(TopicMeter)}
#: Meters of `BrokerTopicMetrics` that count what never happens here, and why.
_NEVER = {
    "bytesrejected": "a batch that is too large is refused before it is counted, as by Kafka",
    "fetchmessageconversions": "old formats are not served",
    "producemessageconversions": "old formats are not served",
}


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """What Kafka's gauges of one `Partition` say; all zero where another broker leads."""

    insyncreplicascount: int = 0
    replicascount: int = 0
    underreplicated: int = 0
    underminisr: int = 0
    atminisr: int = 0
    laststableoffsetlag: int = 0

    @classmethod
    def of(cls, partition: Partition) -> PartitionRow:
        """As it is now."""
        led = partition.led
        if led is None:
            return _FOLLOWED
        replicas = led.replication_factor
        return cls(
            insyncreplicascount=len(led.isr),
            replicascount=replicas,
            underreplicated=int(replicas > len(led.isr)),
            underminisr=int(len(led.isr) < led.effective_min_isr),
            atminisr=int(len(led.isr) == led.effective_min_isr),
        )


_FOLLOWED = PartitionRow()


def families(replicas: ReplicaManager) -> Iterator[Metric]:
    """All of them."""
    partitions = list(replicas.table.partitions.values())
    rows = [(_labels(partition), PartitionRow.of(partition)) for partition in partitions]
    yield from _of_partitions(rows)
    yield from _of_manager(replicas, partitions, [row for _, row in rows])
    yield from _of_topics(replicas)
    yield from _of_fetchers(replicas, partitions)
    yield from _of_logs(replicas)


def _labels(partition: Partition) -> tuple[str, str]:
    topic, number = partition.topic_partition
    return topic, str(number)


def _of_partitions(rows: list[tuple[tuple[str, str], PartitionRow]]) -> Iterator[Metric]:
    for field in fields(PartitionRow):
        values = ((labels, getattr(row, field.name)) for labels, row in rows)
        yield gauges(f"{PARTITION}_{field.name}", "of the leader; 0 at followers", _TOPIC_PARTITION, values)


def _of_manager(replicas: ReplicaManager, partitions: list[Partition], rows: list[PartitionRow]) -> Iterator[Metric]:
    led = [partition for partition in partitions if partition.led is not None]
    moved = sum(partition.assignment.is_being_reassigned for partition in led)
    producers = sum(len(p.log.producers) for p in partitions if p.log is not None)
    for name, text, value in (
        ("leadercount", "partitions led here", len(led)),
        ("partitioncount", "replicas here", len(partitions)),
        ("offlinereplicacount", "replicas whose log directory failed", sum(p.is_offline for p in partitions)),
        ("underreplicatedpartitions", "led here, not all replicas in sync", sum(r.underreplicated for r in rows)),
        ("underminisrpartitioncount", "led here, fewer in sync than needed", sum(r.underminisr for r in rows)),
        ("atminisrpartitioncount", "led here, just as many in sync as needed", sum(r.atminisr for r in rows)),
        ("reassigningpartitions", "led here and being reassigned", moved),
        ("produceridcount", "idempotent producers that the logs know", producers),
        ("partitionswithlatetransactionscount", "there are no transactions", 0),
    ):
        yield gauge(f"{REPLICA_MANAGER}_{name}", text, value)
    updates = replicas.isr_updates
    yield counter(f"{REPLICA_MANAGER}_isrshrinks", "ISRs that lost a replica", updates.written[IsrChangeKind.SHRINK])
    yield counter(f"{REPLICA_MANAGER}_isrexpands", "ISRs that got a replica", updates.written[IsrChangeKind.EXPAND])
    yield counter(f"{REPLICA_MANAGER}_failedisrupdates", "ISR changes that ZooKeeper refused", updates.refused)


def _of_topics(replicas: ReplicaManager) -> Iterator[Metric]:
    meters = replicas.table.meters
    meters.keep({tp.topic for tp in replicas.table.partitions})  # as they are now: the page began a while ago
    for field, name in _TOPIC_METERS.items():
        family = counters(f"{TOPICS}_{name}", "in all, and per topic", ("topic",), _per_topic(meters.topics, field))
        family.add_sample(f"{family.name}_total", {}, getattr(meters.all, field))
        yield family
    for name in ("replication_bytes_in", "replication_bytes_out", "reassignment_bytes_in", "reassignment_bytes_out"):
        yield counter(f"{TOPICS}_{name.replace('_', '')}", "between brokers", getattr(meters, name))
    for name, reason in _NEVER.items():
        yield counter(f"{TOPICS}_{name}", reason, 0)


def _per_topic(topics: dict[str, TopicMeter], field: str) -> Iterable[tuple[tuple[str], int]]:
    """Those that counted something, as Kafka makes such a meter when it is first marked."""
    return (((topic,), value) for topic, meter in topics.items() if (value := getattr(meter, field)))


def _of_fetchers(replicas: ReplicaManager, partitions: list[Partition]) -> Iterator[Metric]:
    fetchers = replicas.fetchers.fetchers
    lags = [
        ((f"ReplicaFetcherThread-{number}-{leader}", tp.topic, str(tp.partition)), lag)
        for (leader, number), fetcher in fetchers.items()
        for tp, lag in fetcher.lags
    ]
    failed = sum(fetcher.failed_partitions for fetcher in fetchers.values())
    copies = [p.log.leo - p.future_log.leo for p in partitions if p.log is not None and p.future_log is not None]
    for prefix, client, name, text, value in (
        (FETCHERS, "Replica", "maxlag", "records that the worst follower here lacks", max((0, *(n for _, n in lags)))),
        (FETCHERS, "Replica", "failedpartitionscount", "not followed until the next LeaderAndIsr", failed),
        (FETCHERS, "Replica", "deadthreadcount", "a fetcher that fails is started again", 0),
        (MOVERS, "ReplicaAlterLogDirs", "maxlag", "records that the worst copy lacks", max((0, *copies))),
        (MOVERS, "ReplicaAlterLogDirs", "deadthreadcount", "a copy that fails is started again", 0),
    ):  # fmt: skip
        yield gauges(f"{prefix}_{name}", text, ("clientId",), [((client,), value)])
    yield gauges(
        f"{FETCHER_LAG}_consumerlag", "records that a follower here lacks", ("clientId", *_TOPIC_PARTITION), lags
    )


def _of_logs(replicas: ReplicaManager) -> Iterator[Metric]:
    dirs = replicas.table.dirs
    logs = [((tp.topic, str(tp.partition)), log) for log_dir in dirs for tp, log in log_dir.logs.items()]
    for name, text, values in (
        ("logstartoffset", "the first offset", ((labels, log.log_start_offset) for labels, log in logs)),
        ("logendoffset", "the next offset", ((labels, log.leo) for labels, log in logs)),
        ("size", "in bytes", ((labels, log.size_bytes) for labels, log in logs)),
        ("numlogsegments", "files", ((labels, len(log.segments)) for labels, log in logs)),
    ):
        yield gauges(f"{LOG}_{name}", text, _TOPIC_PARTITION, values)
    offline = [((f'"{log_dir.path.absolute()}"',), int(not log_dir.is_online)) for log_dir in dirs]
    yield gauges(f"{LOG_MANAGER}_logdirectoryoffline", "1 once it has failed", _DIRECTORY, offline)
    yield gauge(f"{LOG_MANAGER}_offlinelogdirectorycount", "failed ones", sum(n for _, n in offline))
