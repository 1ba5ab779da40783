"""Kafka's own controller, in the real broker 0, drives three simulated brokers; then both kinds share topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from .cluster import LIMIT_S, Cluster, until
from .records import Writer, assert_nothing_lost, consume, read_all

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(400)]
REAL, SIMULATED = 0, (1, 2, 3)


@pytest.fixture(scope="module")
def shared(new_cluster: Callable[[], Cluster]) -> Cluster:
    made = new_cluster()
    made.real_broker(REAL)
    for broker in SIMULATED:
        made.simulated_broker(broker)
    made.start(REAL)
    until("Kafka's controller is in office", lambda: made.active_controller() == REAL)
    made.start(*SIMULATED)
    until("all are registered", lambda: made.live() == {REAL, *SIMULATED})
    return made


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    """With all brokers before and after."""
    yield shared
    for broker in (REAL, *SIMULATED):
        if not shared.nodes[broker].alive:
            shared.start(broker)
    until("all are registered", lambda: shared.live() == {REAL, *SIMULATED})


def until_agreed(cluster: Cluster, *topics: str) -> None:
    """Waits until a simulated broker alone describes the topics as ZooKeeper holds them."""
    one = f"127.0.0.1:{cluster.nodes[3].port}"
    for topic in topics:
        until(
            f"broker 3 knows {topic}",
            lambda topic=topic: cluster.describe(topic, bootstrap=one) == cluster.partitions(topic),
        )


def complaints(cluster: Cluster) -> list[str]:
    """What Kafka's controller logged as errors."""
    lines = cluster.nodes[REAL].text().splitlines()
    return [line for line in lines if "] ERROR" in line and ("state.change" in line or "kafka.controller" in line)]


def test_a_topic_survives_a_killed_broker(cluster: Cluster) -> None:
    cluster.create("killed", "--replica-assignment", "1:2:3,2:3:1,3:1:2", "--config", "min.insync.replicas=2")
    until_agreed(cluster, "killed")
    with Writer(cluster.bootstrap, "killed") as writer:
        writer.until_more()
        cluster.kill(2)
        cluster.until_in_sync("killed", among={1, 3})
        writer.until_more()
        cluster.start(2)
        cluster.until_in_sync("killed")
        writer.until_more()
    assert_nothing_lost(cluster, writer)
    until_agreed(cluster, "killed")
    assert "killed-1" in cluster.elect_preferred("killed")
    assert [row.leader for row in cluster.partitions("killed").values()] == [1, 2, 3]


def test_a_reassignment(cluster: Cluster) -> None:
    cluster.create("moved", "--replica-assignment", "1:2,2:1")
    with Writer(cluster.bootstrap, "moved") as writer:
        writer.until_more()
        printed = cluster.until_reassigned(cluster.reassign({"moved": [[2, 3], [3, 1]]}, "--throttle", "10000000"))
        writer.until_more()
    assert "Reassignment of partition moved-1 is completed." in printed
    cluster.until_in_sync("moved")
    until_agreed(cluster, "moved")
    assert_nothing_lost(cluster, writer)
    until("the old replica's folder goes", lambda: not list(cluster.data(1).glob("moved-0")))


def test_controlled_shutdown(cluster: Cluster) -> None:
    cluster.create("shut", "--replica-assignment", "1:2:3,2:3:1")
    with Writer(cluster.bootstrap, "shut") as writer:
        before = len(cluster.nodes[REAL].text())
        assert cluster.nodes[1].stop() == 0
        assert [row.leader for row in cluster.partitions("shut").values()] == [2, 2]
        assert "Shutting down broker 1" in cluster.nodes[REAL].text(before)
        cluster.until_in_sync("shut", among={2, 3})
        cluster.start(1)
        cluster.until_in_sync("shut")
        writer.until_more()
    assert_nothing_lost(cluster, writer)


def test_partitions_are_added_and_the_topic_is_deleted(cluster: Cluster) -> None:
    cluster.create("grown", "--replica-assignment", "1:2")
    cluster.tool("topics", "--alter", "--topic", "grown", "--partitions", "2", "--replica-assignment", "1:2,2:3")
    until("the new partition has a leader", lambda: len(cluster.partitions("grown")) == 2)
    cluster.until_in_sync("grown")
    until_agreed(cluster, "grown")
    cluster.tool("topics", "--delete", "--topic", "grown")
    until("ZooKeeper forgets the topic", lambda: not cluster.zk.exists("/brokers/topics/grown"))
    until("the folders go", lambda: not list(cluster.folder.glob("broker-*/logs/grown-*")))


def test_a_real_leader_and_simulated_followers(cluster: Cluster) -> None:
    _replicates(cluster, "real-leads", "0:1:2,0:2:3")


def test_a_simulated_leader_and_a_real_follower(cluster: Cluster) -> None:
    _replicates(cluster, "simulated-leads", "1:0:2,2:0:3")


def _replicates(cluster: Cluster, topic: str, assignment: str) -> None:
    """Written, moved to the other replicas' leadership by a shutdown, and back: the same records everywhere."""
    cluster.create(topic, "--replica-assignment", assignment, "--config", "min.insync.replicas=2")
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "compression.type": codec})
        for number in range(50):
            producer.produce(topic, value=f"{codec} {number}", partition=number % 2)
        assert producer.flush(LIMIT_S) == 0
    wanted = sorted(f"{codec} {n}" for codec in ("none", "gzip", "snappy", "lz4", "zstd") for n in range(50))
    assert sorted(read_all(cluster.bootstrap, topic, 2)) == wanted
    with Writer(cluster.bootstrap, topic) as writer:
        writer.until_more()
        cluster.kill(2)
        cluster.until_in_sync(topic, among={0, 1, 3})
        writer.until_more()
        file = cluster.reassign({topic: [[1, 0], [3, 0]] if assignment.startswith("0") else [[0, 1], [0, 3]]})
        cluster.until_reassigned(file)
        cluster.elect_preferred(topic)
        leaders = [row.leader for row in cluster.partitions(topic).values()]
        assert leaders == ([1, 3] if assignment.startswith("0") else [0, 0])
        writer.until_more()
        cluster.start(2)
        writer.until_more()
    assert not writer.failed
    values = read_all(cluster.bootstrap, topic, 2)
    assert sorted(values) == sorted([*wanted, *writer.acknowledged])
    cluster.until_in_sync(topic)
    until_agreed(cluster, topic)


def test_a_group_on_a_mixed_cluster(cluster: Cluster) -> None:
    """`__consumer_offsets` lies on both kinds; its group comes back to the committed place after a broker died."""
    cluster.create("grouped", "--replica-assignment", "1:0:2")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(20):
        producer.produce("grouped", value=str(number))
    assert producer.flush(LIMIT_S) == 0
    assert consume(cluster, "grouped", "mixed", 10) == [str(number) for number in range(10)]
    cluster.until_in_sync("__consumer_offsets")
    cluster.kill(1)
    cluster.until_in_sync("__consumer_offsets", "grouped", among={0, 2, 3})
    assert consume(cluster, "grouped", "mixed", 10) == [str(number) for number in range(10, 20)]
    printed = cluster.tool("consumer-groups", "--describe", "--group", "mixed")
    assert [line.split()[:6] for line in printed.splitlines() if "grouped" in line] == [
        ["mixed", "grouped", "0", "20", "20", "0"]
    ]


def test_kafkas_controller_has_no_complaint(cluster: Cluster) -> None:
    assert not complaints(cluster)
