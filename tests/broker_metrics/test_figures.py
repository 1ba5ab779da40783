"""The figures on the pages are what a recount gives: by the clients, from ZooKeeper, and from the files."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from controller.embedded.handles import KafkaCluster
from tests.broker_metrics.running import RECORDS, TOPIC, Running

TOPICS, MANAGER, PARTITION = "kafka_server_brokertopicmetrics", "kafka_server_replicamanager", "kafka_cluster_partition"
REQUESTS = "kafka_network_requestmetrics"
OFFSETS = "__consumer_offsets"


def test_records_are_counted_once(running: Running) -> None:
    assert running.total(f"{TOPICS}_messagesin_total", topic=TOPIC) == RECORDS
    of_groups = running.total(f"{TOPICS}_messagesin_total", topic=OFFSETS)
    assert running.total(f"{TOPICS}_messagesin_total") == RECORDS + of_groups > RECORDS


def test_bytes_are_those_of_the_logs(running: Running) -> None:
    size = {
        page["kafka_log_log_size", frozenset({("topic", TOPIC), ("partition", str(n))})]
        for n in range(3)
        for page in running.brokers()
        if ("kafka_log_log_size", frozenset({("topic", TOPIC), ("partition", str(n))})) in page
    }
    written = sum(running_sizes(running))
    assert running.total(f"{TOPICS}_bytesin_total", topic=TOPIC) == written == sum(size)
    assert running.total(f"{TOPICS}_bytesout_total", topic=TOPIC) == written
    copied = running.total(f"{TOPICS}_replicationbytesin_total")
    assert copied == running.total(f"{TOPICS}_replicationbytesout_total") >= written


def running_sizes(running: Running) -> list[int]:
    """The files of one replica of each partition."""
    found = {}
    for path in Path(running.cluster.folder).glob(f"broker-*/data-*/{TOPIC}-*"):
        found[path.name] = sum(file.stat().st_size for file in path.glob("*.log"))
    assert len(found) == 3
    return list(found.values())


def test_partitions_are_those_of_zookeeper(running: Running) -> None:
    leaders = [running.cluster.leader(TOPIC, n) for n in range(3)]
    for number, page in enumerate(running.brokers(), 1):
        for n, leader in enumerate(leaders):
            labels = frozenset({("topic", TOPIC), ("partition", str(n))})
            isr = page.get((f"{PARTITION}_insyncreplicascount", labels))
            if leader == number:
                assert isr == len(running.cluster.isr(TOPIC, n)) == 2
            else:
                assert isr in (0, None)
        assert page[f"{MANAGER}_leadercount", frozenset()] >= leaders.count(number)
    assert running.total(f"{MANAGER}_leadercount") == 3 + 4
    assert running.total(f"{MANAGER}_partitioncount") == 3 * 2 + 4 * 3
    assert running.total(f"{MANAGER}_underreplicatedpartitions") == 0


def test_requests_are_counted_by_name_version_and_error(running: Running) -> None:
    for page in running.brokers():
        fetches = {version(labels): value for (name, labels), value in page.items() if is_count(name, labels, "Fetch")}
        parts = [
            {version(labels): value for (name, labels), value in page.items() if is_count(name, labels, each)}
            for each in ("FetchConsumer", "FetchFollower")
        ]
        for api_version, value in fetches.items():
            assert value == sum(part.get(api_version, 0) for part in parts)
        produced = sum(value for (name, labels), value in page.items() if is_count(name, labels, "Produce"))
        assert produced > 0
        for stage in ("totaltimems", "localtimems", "remotetimems", "requestqueuetimems", "throttletimems"):
            assert page[f"{REQUESTS}_{stage}_count", frozenset({("request", "Produce")})] == produced
    groups = "kafka_coordinator_group_groupmetadatamanager"
    assert running.total(f"{groups}_numgroups") == running.total(f"{groups}_numgroupsstable") == 1
    assert running.total(f"{groups}_numoffsets") == 3
    assert running.total(f"{REQUESTS}_errors_total", request="JoinGroup", error="MEMBER_ID_REQUIRED") == 1
    worked = running.total(f"{REQUESTS}_localtimems_sum", request="Fetch")
    assert running.total(f"{REQUESTS}_remotetimems_sum", request="Fetch") > worked > 0


def version(labels: frozenset[tuple[str, str]]) -> str:
    return dict(labels)["version"]


def is_count(name: str, labels: frozenset[tuple[str, str]], request: str) -> bool:
    return name == f"{REQUESTS}_requests_total" and dict(labels)["request"] == request


@pytest.fixture
def broken() -> KafkaCluster:
    return KafkaCluster(brokers=3, metrics=True, settings={"replica.lag.time.max.ms": "1000"})


def until(holds: Callable[[], bool], what: str) -> None:
    limit = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < limit, what
        time.sleep(0.05)


def test_an_isr_that_shrinks_and_a_broker_that_dies_are_seen(broken: KafkaCluster) -> None:
    with broken as cluster:
        running = Running(cluster)
        cluster.create_topic("t", replicas={0: [1, 2, 3]}, configs={"min.insync.replicas": "2"})
        paused = cluster.pause_replication(3)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "1"})
        producer.produce("t", b"what broker 3 lacks")
        assert producer.flush(10) == 0
        until(lambda: len(cluster.isr("t")) == 2, "the ISR shrinks")
        labels = {"topic": "t", "partition": "0"}
        assert running.total(f"{PARTITION}_underreplicated", **labels) == 1
        assert running.total(f"{PARTITION}_atminisr", **labels) == 1
        assert running.total(f"{PARTITION}_insyncreplicascount", **labels) == 2
        assert running.total(f"{PARTITION}_replicascount", **labels) == 3
        assert running.total(f"{MANAGER}_underreplicatedpartitions") == 1
        assert running.total(f"{MANAGER}_isrshrinks_total") == 1
        assert running.total(f"{MANAGER}_isrexpands_total") == 0
        cluster.heal(paused)
        cluster.wait_for_full_isr("t")
        assert running.total(f"{MANAGER}_isrexpands_total") == 1
        cluster.kill_broker(1)
        until(lambda: "broker-1" not in cluster.metrics, "its page ends with it")
        until(lambda: cluster.leader("t") not in (1, None), "another leads")
        assert running.samples("controller-901")["kafka_controller_kafkacontroller_activebrokercount", frozenset()] == 2
        cluster.start_broker(1)
        cluster.wait_for_full_isr("t")
        assert "broker-1" in cluster.metrics
