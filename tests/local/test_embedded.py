"""A cluster in this process: it stands quickly, and each handle does to it what its name says."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from controller.admin.cluster.failures import Refused
from controller.embedded.handles import KafkaCluster
from controller.local.cluster_file import ClusterError
from controller.wire.fault_rows import FaultError

#: Seconds of a start on an idle machine: 0.1.
START_MAX_S = 0.5


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(controllers=2, racks=["a", "b", "c"], log_dirs=2, seed=1) as started:
        yield started


def until(what: str, holds: Callable[[], bool], limit_s: float = 20) -> None:
    limit = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < limit, what
        threading.Event().wait(0.02)


def produce(cluster: KafkaCluster, topic: str, **settings: object) -> BaseException | None:
    """The error of one record, None if it was acknowledged."""
    errors: list[BaseException | None] = []
    own = {"bootstrap.servers": cluster.bootstrap_servers, "message.timeout.ms": 5000, "log_level": 0}
    producer = Producer({**own, **settings})
    producer.produce(topic, b"x", on_delivery=lambda error, message: errors.append(error))
    producer.flush(10)
    return errors[0]


def test_it_stands_at_once_and_leaves_nothing() -> None:
    began = time.perf_counter()
    cluster = KafkaCluster().start()
    took, servers = time.perf_counter() - began, cluster.bootstrap_servers
    folder = Path(next(e for e in cluster.events() if e["event"] == "broker.started")["log_dirs"][0])
    assert folder.is_dir()
    assert {1, 2, 3} <= set(AdminClient({"bootstrap.servers": servers}).list_topics(timeout=5).brokers)
    cluster.stop()
    cluster.stop()
    assert took < 4 * START_MAX_S, "on a machine that does something else, too"
    assert not folder.exists()
    for address in servers.split(","):
        host, port = address.split(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port))).close()
    with pytest.raises(RuntimeError, match="does not run"):
        cluster.create_topic("t")


def test_a_program_that_ends_without_stopping_it_ends() -> None:
    code = "from controller.embedded.handles import KafkaCluster; KafkaCluster(brokers=1).start()"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_a_killed_broker_is_missed_and_comes_back(cluster: KafkaCluster) -> None:
    cluster.create_topic("killed", replicas={0: [2, 3, 1]})
    cluster.kill_broker(2)
    cluster.wait_for_leader("killed")
    assert cluster.leader("killed") == 3
    assert cluster.isr("killed") == {1, 3}
    assert "broker 2 is not alive" in cluster.why("killed")
    cluster.start_broker(2)
    cluster.wait_for_full_isr("killed")
    with pytest.raises(ValueError, match="broker 2 is not down"):
        cluster.start_broker(2)


def test_a_stopped_broker_hands_over(cluster: KafkaCluster) -> None:
    cluster.create_topic("stopped", replicas={0: [1, 2]})
    cluster.stop_broker(1)
    until("another leader", lambda: cluster.leader("stopped") == 2)
    assert any(e["event"] == "broker.shutdown_controlled" for e in cluster.events())
    cluster.heal()
    cluster.wait_for_full_isr("stopped")


def test_the_other_controller_takes_over(cluster: KafkaCluster) -> None:
    killed = cluster.kill_controller()
    until("a topic can be made again", lambda: _can_create(cluster, "by-another"))
    elected = [e for e in cluster.events() if e["event"] == "controller.elected"]
    assert elected[-1]["controller"] != killed
    cluster.start_controller(killed)


def _can_create(cluster: KafkaCluster, name: str) -> bool:
    try:
        cluster.create_topic(name)
    except (Refused, OSError, Exception):
        return name in AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=5).topics
    return True


def test_paused_replication_shrinks_the_isr(cluster: KafkaCluster) -> None:
    cluster.create_topic("paused", replicas={0: [1, 2, 3]})
    pause = cluster.pause_replication(3, "paused")
    assert produce(cluster, "paused", acks=1) is None
    until("a smaller ISR", lambda: cluster.isr("paused") == {1, 2})
    cluster.heal(pause)
    cluster.wait_for_full_isr("paused")
    told = [row["ev"] for row in cluster.isr_history("paused")]
    assert told.index("isr_shrink") < told.index("isr_expand")


def test_a_failed_log_dir_takes_its_replicas_offline(cluster: KafkaCluster) -> None:
    cluster.create_topic("disks", replicas={0: [1, 2], 1: [1, 2], 2: [1, 2], 3: [1, 2]})
    failed = cluster.fail_log_dir(1, 2)
    until("some led by the other", lambda: {cluster.leader("disks", n) for n in range(4)} == {1, 2})
    cluster.heal(failed)
    cluster.kill_broker(1)
    cluster.wait_for_leader("disks")
    cluster.start_broker(1)
    cluster.wait_for_full_isr()


def test_an_expired_session_gives_a_new_epoch(cluster: KafkaCluster) -> None:
    def epochs() -> list[int]:
        registered = [e for e in cluster.events() if e["event"] == "broker.registered"]
        return [e["broker_epoch"] for e in registered if e["broker_id"] == 3]

    before = epochs()
    name = cluster.expire_session(3)
    until("registered again", lambda: max(epochs(), default=0) > max(before, default=0))
    cluster.heal(name)


def test_links_and_errors_reach_clients(cluster: KafkaCluster) -> None:
    cluster.create_topic("links", replicas={0: [1]})
    wrong = cluster.api_error("Produce", "MESSAGE_TOO_LARGE", broker_id=1)
    error = produce(cluster, "links", acks=1, retries=0)
    assert error is not None and error.name() == "MSG_SIZE_TOO_LARGE"  # type: ignore[attr-defined]
    cluster.heal(wrong)
    cut = cluster.cut_link(1)
    assert produce(cluster, "links", acks=1, **{"message.timeout.ms": 1000}) is not None
    cluster.heal(cut)
    slow = cluster.slow_link(1, delay_ms=300)
    began = time.monotonic()
    assert produce(cluster, "links", acks=1) is None
    assert time.monotonic() - began > 0.3
    cluster.heal(slow)


def test_what_cannot_be_meant_is_refused(cluster: KafkaCluster) -> None:
    with pytest.raises(FaultError, match="no API is called 'Produced'"):
        cluster.api_error("Produced", "NONE")
    with pytest.raises(Refused, match=r"[Rr]eplication factor"):
        cluster.create_topic("wide", replication_factor=9)
    with pytest.raises(TimeoutError, match="there is no topic nosuch"):
        cluster.wait_for_full_isr("nosuch", timeout_s=0.1)
    with pytest.raises(Exception, match=r"min.insync.replica"):
        KafkaCluster(settings={"min.insync.replica": "2"}).start()


@pytest.mark.slow
def test_the_same_handles_for_real_processes(tmp_path: Path) -> None:
    with KafkaCluster(brokers=2, mode="processes", folder=tmp_path / "data") as cluster:
        cluster.create_topic("t", replicas={0: [1, 2]})
        cluster.kill_broker(1)
        until("another leader", lambda: cluster.leader("t") == 2)
        cluster.start_broker(1)
        cluster.wait_for_full_isr("t")
        assert cluster.kill_controller() == 901
        cluster.start_controller(901)
        assert [row["ev"] for row in cluster.isr_history("t")].count("isr_expand") >= 1


CLUSTER_FILE = """
configs: {replica.lag.time.max.ms: "1500"}
brokers:
  - {id: 7, rack: a, log_dirs: [{path: /a}, {path: /b}]}
  - {id: 3, rack: b}
topics:
  orders:
    configs: {min.insync.replicas: "2"}
    partitions: [{replicas: [7, 3], bytes: 30000}, {replicas: [3, 7], bytes: 0}]
"""


def test_a_cluster_like_a_file_has_its_brokers_topics_and_data(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER_FILE)
    with KafkaCluster(like=path, scale="1/10") as cluster:
        assert cluster.broker_ids == (7, 3)
        cluster.wait_for_full_isr("orders")
        assert [cluster.isr("orders", n) for n in (0, 1)] == [{3, 7}, {3, 7}]
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"})
        ends = [consumer.get_watermark_offsets(TopicPartition("orders", n), timeout=10)[1] for n in (0, 1)]
        consumer.close()
        assert ends == [3, 0]
        cluster.kill_broker(7)
        cluster.wait_for_leader("orders")
        assert cluster.leader("orders", 0) == 3


def test_what_a_file_says_is_not_said_again(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER_FILE)
    with pytest.raises(ValueError, match="brokers is not for like="):
        KafkaCluster(like=path, brokers=2)
    with pytest.raises(ClusterError, match="cannot be read"):
        KafkaCluster(like=tmp_path / "absent.yaml")
