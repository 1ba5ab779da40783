"""Three real Kafka brokers that this controller drives, worked on by Kafka's unmodified tools."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from .cluster import LIMIT_S, Cluster, until
from .records import Writer, assert_nothing_lost, consume

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(400)]
OURS, REAL = 100, (1, 2, 3)


@pytest.fixture(scope="module")
def shared(new_cluster: Callable[[], Cluster]) -> Cluster:
    made = new_cluster()
    made.controller(OURS)
    made.start(OURS)
    until("this controller is in office", lambda: made.active_controller() == OURS)
    for broker in REAL:
        made.real_broker(broker)
    made.start(*REAL)
    return made


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    """With all three brokers alive and this controller in office before and after."""
    yield shared
    for node in shared.nodes.values():
        if not node.alive:
            node.start()
        node.signal(signal.SIGCONT)
    if shared.active_controller() != OURS:
        take_office(shared)
    until("all brokers are registered", lambda: shared.live() == set(REAL))


def take_office(cluster: Cluster) -> None:
    """`/controller` is deleted while Kafka's candidates are held up."""
    candidates = [cluster.nodes[broker] for broker in REAL if cluster.nodes[broker].alive]
    for node in candidates:
        node.signal(signal.SIGSTOP)
    if cluster.active_controller() != OURS:
        cluster.zk.delete("/controller")
    until("this controller is in office", lambda: cluster.active_controller() == OURS)
    for node in candidates:
        node.signal(signal.SIGCONT)


def until_agreed(cluster: Cluster, *topics: str) -> None:
    """Waits until Kafka's tool describes the topics as ZooKeeper holds them (an ISR is told some seconds later)."""
    for topic in topics:
        until(f"the brokers know {topic}", lambda topic=topic: cluster.describe(topic) == cluster.partitions(topic))


def test_what_the_tools_create_is_what_they_describe(cluster: Cluster) -> None:
    cluster.create("created", "--partitions", "6", "--replication-factor", "3", "--config", "segment.bytes=100000")
    until_agreed(cluster, "created")
    assert {row.leader for row in cluster.partitions("created").values()} == {1, 2, 3}
    again = cluster.try_tool("topics", "--create", "--topic", "created")
    assert "Topic 'created' already exists." in again.stdout
    altered = cluster.tool(
        "configs", "--alter", "--entity-type", "topics", "--entity-name", "created",
        "--add-config", "min.insync.replicas=2",
    )  # fmt: skip
    assert altered == "Completed updating config for topic created.\n"
    until(
        "the brokers know the topic's config",
        lambda: "min.insync.replicas=2" in cluster.tool("topics", "--describe", "--topic", "created"),
        30,
    )


def test_a_topic_that_a_broker_creates_by_itself_has_no_replica_on_this_controller(cluster: Cluster) -> None:
    """Real brokers of this protocol version place `__consumer_offsets` themselves, on all brokers that they know."""
    cluster.create("grouped", "--replica-assignment", "1:2:3")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(10):
        producer.produce("grouped", value=str(number))
    assert producer.flush(LIMIT_S) == 0
    # librdkafka keeps asking the one node that it is connected to: here, this controller
    controller = f"127.0.0.1:{cluster.nodes[OURS].port}"
    for group, bootstrap in (("a", controller), ("b", None), ("c", None), ("d", None)):
        assert consume(cluster, "grouped", group, 10, bootstrap=bootstrap) == [str(number) for number in range(10)]
    for partition in cluster.partitions("__consumer_offsets").values():
        assert set(partition.replicas) == set(REAL)
    cluster.until_in_sync("__consumer_offsets")
    until_agreed(cluster, "__consumer_offsets")
    assert sorted(cluster.tool("consumer-groups", "--list").split()) == ["a", "b", "c", "d"]


def test_no_acknowledged_record_is_lost_when_a_broker_is_killed_and_returns(cluster: Cluster) -> None:
    cluster.create(
        "killed", "--partitions", "3", "--replication-factor", "3", "--config", "min.insync.replicas=2"
    )  # fmt: skip
    with Writer(cluster.bootstrap, "killed") as writer:
        writer.until_more()
        cluster.kill(2)
        cluster.until_in_sync("killed", among={1, 3})
        writer.until_more()
        until_agreed(cluster, "killed")
        cluster.start(2)
        cluster.until_in_sync("killed")
        writer.until_more()
    assert_nothing_lost(cluster, writer)
    until_agreed(cluster, "killed")


def test_a_reassignment_with_throttle(cluster: Cluster) -> None:
    cluster.create("moved", "--replica-assignment", "1:2,2:1,1:2")
    targets = [[2, 3], [3, 1], [3, 1]]
    with Writer(cluster.bootstrap, "moved") as writer:
        writer.until_more()
        file = cluster.reassign({"moved": targets}, "--throttle", "10000000")
        printed = cluster.until_reassigned(file)
        writer.until_more()
    assert "Reassignment of partition moved-2 is completed." in printed
    assert "Clearing topic-level throttles on topic moved" in printed
    assert [list(row.replicas) for row in cluster.partitions("moved").values()] == targets
    cluster.until_in_sync("moved")
    until_agreed(cluster, "moved")
    assert_nothing_lost(cluster, writer)
    until(
        "the replicas that moved away are deleted",
        lambda: sorted(path.parent.parent.name for path in _folders(cluster, "moved-2")) == ["broker-1", "broker-3"],
    )


def _folders(cluster: Cluster, partition: str) -> list[Path]:
    return list(cluster.folder.glob(f"broker-*/logs/{partition}"))


def fill(cluster: Cluster, topic: str) -> None:
    """3 MB in each partition: a move that is throttled to 1 kB/s does not end."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for partition in cluster.partitions(topic):
        for number in range(300):
            producer.produce(topic, key=str(number), value=os.urandom(10_000), partition=partition)
    assert producer.flush(LIMIT_S) == 0


def test_a_reassignment_under_way_is_listed_and_cancelled(cluster: Cluster) -> None:
    cluster.create("stuck", "--replica-assignment", "1:2,2:1")
    fill(cluster, "stuck")
    file = cluster.reassign({"stuck": [[1, 3], [2, 3]]}, "--throttle", "1000")
    listed = cluster.tool("reassign-partitions", "--list")
    assert "stuck-0: replicas: 1,3,2. adding: 3. removing: 2." in listed
    cancelled = cluster.tool("reassign-partitions", "--cancel", "--reassignment-json-file", str(file))
    assert "Successfully cancelled partition reassignments for: stuck-0,stuck-1" in cancelled
    assert cluster.tool("reassign-partitions", "--list") == "No partition reassignments found.\n"
    assert {number: row.replicas for number, row in cluster.partitions("stuck").items()} == {0: (1, 2), 1: (2, 1)}
    until_agreed(cluster, "stuck")
    until("the new replicas are deleted", lambda: not list(cluster.data(3).glob("stuck-?")))


def test_controlled_shutdown_and_preferred_election(cluster: Cluster) -> None:
    cluster.create("shut", "--replica-assignment", "1:2:3,2:3:1,3:1:2")
    with Writer(cluster.bootstrap, "shut") as writer:
        before = len(cluster.nodes[1].text())
        status = cluster.nodes[1].stop()
        log = cluster.nodes[1].text(before)
        assert status in (0, 143), log[-2000:]
        assert "Controlled shutdown request returned successfully" in log
        assert "Proceeding to do an unclean shutdown" not in log
        assert {number: row.leader for number, row in cluster.partitions("shut").items()} == {0: 2, 1: 2, 2: 3}
        cluster.until_in_sync("shut", among={2, 3})
        until_agreed(cluster, "shut")
        cluster.start(1)
        cluster.until_in_sync("shut")
        assert cluster.partitions("shut")[0].leader == 2
        elected = cluster.elect_preferred("shut")
        assert "Successfully completed leader election (PREFERRED) for partitions shut-0\n" in elected
        assert {number: row.leader for number, row in cluster.partitions("shut").items()} == {0: 1, 1: 2, 2: 3}
        until_agreed(cluster, "shut")
        writer.until_more()
    assert_nothing_lost(cluster, writer)


def test_an_unclean_election_when_asked_for(cluster: Cluster) -> None:
    cluster.create("unclean", "--replica-assignment", "1:2")
    cluster.nodes[2].stop()
    cluster.until_in_sync("unclean", among={1})
    cluster.kill(1)
    cluster.start(2)
    until("2 knows the partition", lambda: cluster.partitions("unclean")[0].leader == -1)
    one = ("--topic", "unclean", "--partition", "0")
    refused = cluster.try_tool("leader-election", "--election-type", "preferred", *one)
    assert "PreferredLeaderNotAvailableException" in refused.stdout + refused.stderr
    elected = cluster.tool("leader-election", "--election-type", "unclean", *one)
    assert elected == "Successfully completed leader election (UNCLEAN) for partitions unclean-0\n"
    assert cluster.partitions("unclean")[0].leader == 2
    cluster.start(1)
    cluster.until_in_sync("unclean")
    until_agreed(cluster, "unclean")


def test_partitions_are_added(cluster: Cluster) -> None:
    cluster.create("grown", "--replica-assignment", "1:2")
    cluster.tool("topics", "--alter", "--topic", "grown", "--partitions", "3", "--replica-assignment", "1:2,2:3,3:1")
    until("the new partitions have leaders", lambda: len(cluster.partitions("grown")) == 3)
    cluster.until_in_sync("grown")
    assert [row.leader for row in cluster.partitions("grown").values()] == [1, 2, 3]
    until_agreed(cluster, "grown")
    with Writer(cluster.bootstrap, "grown") as writer:
        writer.until_more()
    assert_nothing_lost(cluster, writer)


def test_a_deleted_topic_is_gone_everywhere_and_can_come_again(cluster: Cluster) -> None:
    cluster.create("gone", "--partitions", "4", "--replication-factor", "3")
    with Writer(cluster.bootstrap, "gone") as writer:
        writer.until_more()
    cluster.tool("topics", "--delete", "--topic", "gone")
    until("ZooKeeper forgets the topic", lambda: not cluster.zk.exists("/brokers/topics/gone"))
    assert not cluster.zk.exists("/admin/delete_topics/gone")
    assert not cluster.zk.exists("/config/topics/gone")
    until("the folders go", lambda: not _folders(cluster, "gone-*"))
    assert "gone" not in cluster.tool("topics", "--list").split()
    cluster.create("gone", "--partitions", "2", "--replication-factor", "2")
    until_agreed(cluster, "gone")


def test_a_topic_with_a_dead_replica_is_deleted_when_it_returns(cluster: Cluster) -> None:
    cluster.create("waits", "--replica-assignment", "1:3,2:3")
    cluster.kill(3)
    cluster.tool("topics", "--delete", "--topic", "waits")
    until("the live replicas go", lambda: {p.parent.parent.name for p in _folders(cluster, "waits-?")} == {"broker-3"})
    assert cluster.zk.exists("/admin/delete_topics/waits")
    cluster.start(3)
    until("ZooKeeper forgets the topic", lambda: not cluster.zk.exists("/brokers/topics/waits"))
    until("the folders go", lambda: not _folders(cluster, "waits-*"))


def test_tools_that_ask_every_node_take_this_controller_for_one(cluster: Cluster) -> None:
    cluster.create("asked", "--replica-assignment", "1:2:3")
    printed = cluster.tool("log-dirs", "--describe", "--topic-list", "asked")
    dirs = json.loads(printed.splitlines()[-1])
    holders = {row["broker"] for row in dirs["brokers"] if any(d["partitions"] for d in row["logDirs"])}
    assert holders == {1, 2, 3}
    assert "a" in cluster.tool("consumer-groups", "--list").split()
    versions = cluster.tool("broker-api-versions")
    assert f"(id: {OURS} rack: null) -> (" in versions
    assert "ERROR" not in versions
    assert cluster.tool("get-offsets", "--topic", "asked") == "asked:0:0\n"


def test_this_controller_and_kafkas_hand_over_to_each_other(cluster: Cluster) -> None:
    cluster.create(
        "handed", "--partitions", "3", "--replication-factor", "3", "--config", "min.insync.replicas=2"
    )  # fmt: skip
    controller = cluster.nodes[OURS]
    bootstrap = ",".join(f"127.0.0.1:{cluster.nodes[broker].port}" for broker in REAL)
    with Writer(bootstrap, "handed") as writer:
        assert controller.stop() == 0
        until("Kafka's controller is in office", lambda: cluster.active_controller() in REAL)
        cluster.create("by-kafka", "--replica-assignment", "1:2,2:3,3:1")
        writer.until_more()
        # A move that Kafka's controller begins and this one ends.
        fill(cluster, "by-kafka")
        plan = {"by-kafka": [[1, 3], [2, 1], [3, 2]]}
        file = cluster.reassign(plan, "--throttle", "1000")
        controller.start()
        take_office(cluster)
        assert "by-kafka-0: replicas: 1,3,2. adding: 3. removing: 2." in cluster.tool("reassign-partitions", "--list")
        cluster.reassign(plan, "--throttle", "100000000", "--additional")
        assert "Reassignment of partition by-kafka-1 is completed." in cluster.until_reassigned(file)
        cluster.until_in_sync("by-kafka", "handed")
        cluster.create("by-ours", "--partitions", "3", "--replication-factor", "2")
        writer.until_more()
        # And one that this controller begins and Kafka's ends.
        cluster.reassign({"by-kafka": [[2, 3]]}, "--throttle", "1000")
        assert controller.stop() == 0
        until("Kafka's controller is in office", lambda: cluster.active_controller() in REAL)
        file = cluster.reassign({"by-kafka": [[2, 3]]}, "--throttle", "100000000", "--additional")
        assert "Reassignment of partition by-kafka-0 is completed." in cluster.until_reassigned(file)
        cluster.until_in_sync("by-kafka", "handed")
        controller.start()
        take_office(cluster)
        writer.until_more()
    until_agreed(cluster, "by-kafka", "handed", "by-ours")
    assert_nothing_lost(cluster, writer)


def test_the_office_goes_round(cluster: Cluster) -> None:
    """`/controller` deleted again and again: some candidate always takes it, and no record is lost."""
    cluster.create("offices", "--replica-assignment", "1:2:3,2:3:1")
    with Writer(cluster.bootstrap, "offices") as writer:
        for _ in range(4):
            version = int(cluster.zk.get("/controller_epoch")[0])
            cluster.zk.delete("/controller")
            until("there is another controller", lambda v=version: int(cluster.zk.get("/controller_epoch")[0]) > v)
            until("it is in office", lambda: cluster.active_controller() is not None)
            writer.until_more(50)
        take_office(cluster)
        writer.until_more()
    cluster.until_in_sync("offices")
    until_agreed(cluster, "offices")
    assert_nothing_lost(cluster, writer)
