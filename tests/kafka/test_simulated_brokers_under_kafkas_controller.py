"""Kafka's own controller, in the real broker 0, drives three simulated brokers; then both kinds share topics."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from controller.rules.hashing import group_partition

from .cluster import LIMIT_S, Cluster, until
from .records import Reader, Writer, assert_nothing_lost, consume, consume_nothing, read_all

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


def test_a_groups_coordinator_moves_between_the_kinds(cluster: Cluster) -> None:
    """The partition of a group that reads all the time is led by a simulated broker, the real one, and back."""
    group, partition = "wanderers", group_partition("wanderers", 8)
    cluster.create("followed", "--replica-assignment", "1:2,2:3")
    assert consume_nothing(cluster, "followed", group) == 0  # so that __consumer_offsets is there
    cluster.until_in_sync("__consumer_offsets")
    with Writer(cluster.bootstrap, "followed") as writer, Reader(cluster.bootstrap, "followed", group) as reader:
        reader.until_more()
        for target in ([1, REAL], [REAL, 2], [2, REAL, 3], [REAL, 3]):
            cluster.until_reassigned(cluster.reassign_one("__consumer_offsets", partition, target))
            cluster.elect_preferred("__consumer_offsets")
            until(
                f"broker {target[0]} coordinates",
                lambda target=target: cluster.partitions("__consumer_offsets")[partition].leader == target[0],
            )
            reader.until_more()
    reader.until_read(writer.acknowledged)
    printed = cluster.tool("consumer-groups", "--describe", "--group", group)
    lags = [int(line.split()[5]) for line in printed.splitlines() if line.startswith(group)]
    assert lags == [0, 0], printed
    assert_nothing_lost(cluster, writer)


def test_a_paused_broker_is_replaced_and_comes_back_as_a_follower(cluster: Cluster) -> None:
    """SIGSTOP for longer than its session: its leadership goes on without it, and its return loses nothing."""
    cluster.create("paused", "--replica-assignment", "2:1:3,2:3:1", "--config", "min.insync.replicas=2")
    with Writer(cluster.bootstrap, "paused") as writer:
        writer.until_more()
        cluster.nodes[2].signal(signal.SIGSTOP)
        until("ZooKeeper forgets broker 2", lambda: 2 not in cluster.live())
        cluster.until_in_sync("paused", among={1, 3})
        assert all(row.leader != 2 for row in cluster.partitions("paused").values())
        writer.until_more()
        cluster.nodes[2].signal(signal.SIGCONT)
        until("it registers again", lambda: 2 in cluster.live())
        cluster.until_in_sync("paused")
        writer.until_more()
    assert_nothing_lost(cluster, writer)
    until_agreed(cluster, "paused")


def test_configs_set_by_kafkas_tool_count_at_simulated_brokers(cluster: Cluster) -> None:
    cluster.create("limited", "--replica-assignment", "1:2")

    def size_is_taken(size: int) -> bool:
        failed = []
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "message.max.bytes": 2_000_000})
        producer.produce("limited", value=b"x" * size, on_delivery=lambda e, _: e and failed.append(e.name()))
        assert producer.flush(LIMIT_S) == 0
        assert failed in ([], ["MSG_SIZE_TOO_LARGE"])
        return not failed

    one = f"127.0.0.1:{cluster.nodes[1].port}"
    assert size_is_taken(5_000)
    cluster.tool("configs", "--alter", "--topic", "limited", "--add-config", "max.message.bytes=1000")
    until("the topic's limit counts", lambda: not size_is_taken(5_000))
    cluster.tool("configs", "--alter", "--topic", "limited", "--delete-config", "max.message.bytes")
    until("it no longer counts", lambda: size_is_taken(5_000))
    cluster.tool("configs", "--alter", "--broker-defaults", "--add-config", "message.max.bytes=2000", bootstrap=one)
    until("the limit of all brokers counts", lambda: not size_is_taken(5_000))
    printed = cluster.tool("configs", "--describe", "--all", "--broker", "1", bootstrap=one)
    assert (
        "message.max.bytes=2000 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=2000"
        in printed
    )
    cluster.tool("configs", "--alter", "--broker-defaults", "--delete-config", "message.max.bytes", bootstrap=one)
    until("it no longer counts", lambda: size_is_taken(5_000))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_javas_clients(cluster: Cluster, codec: str) -> None:
    """kafka-console-producer (idempotent, acks=all) writes; kafka-console-consumer reads as a group."""
    topic = f"java-{codec}"
    cluster.create(topic, "--replica-assignment", "1:2:3,2:3:1")
    lines = [f"{codec} {number} {'x' * (number % 50)}" for number in range(200)]
    cluster.tool("console-producer", "--topic", topic, "--compression-codec", codec, stdin="\n".join(lines) + "\n")
    words = ("--topic", topic, "--group", topic, "--from-beginning", "--max-messages", "200", "--timeout-ms", "60000")
    assert sorted(cluster.tool("console-consumer", *words).splitlines()) == sorted(lines)


def test_kafkas_controller_has_no_complaint(cluster: Cluster) -> None:
    assert not complaints(cluster)
