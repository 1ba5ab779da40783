"""`kwob load`, `produce` and `consume` against a cluster: what they print, and what they say is missing."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from controller.embedded.handles import KafkaCluster
from controller.local.load import client, command, hand
from controller.wire.types import TopicPartition


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster() as started:
        yield started


def load(cluster: KafkaCluster, capsys: pytest.CaptureFixture[str], topic: str, *more: str) -> tuple[int, Any]:
    argv = ["--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--json", *more]
    code = command.main(argv)
    return code, json.loads(capsys.readouterr().out)


def test_what_was_acknowledged_is_there_although_a_leader_was_killed(
    cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.create_topic("kept", partitions=3)
    killing = threading.Timer(1.0, cluster.kill_broker, [cluster.leader("kept", 0)])
    killing.start()
    code, summary = load(
        cluster, capsys, "kept", "--duration", "4s", "--rate", "200", "--producers", "2", "--groups", "2", "--keys", "9"
    )
    killing.join()
    cluster.heal()
    cluster.wait_for_full_isr("kept")  # the controller knows the broker again
    assert code == 0
    assert summary["missing"] == 0 and summary["acknowledged"] == summary["sent"] > 600
    assert summary["pauses"][0]["seconds"] > 1, "the killed leader's partition"
    assert [got >= summary["acknowledged"] for got in summary["consumed"].values()] == [True, True]


def test_records_that_are_gone_are_missed(cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]) -> None:
    """The topic is deleted and created again below the load: what the first one acknowledged is lost."""
    cluster.create_topic("lost", partitions=1)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})

    def replace() -> None:
        reader = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader"})
        reader.assign([ClientPartition("lost", 0, 0)])
        assert len(reader.consume(100, timeout=20)) == 100, "so many are acknowledged"
        reader.close()
        admin.delete_topics(["lost"])["lost"].result(20)  # the producer's next question for it creates it again

    replacing = threading.Thread(target=replace)
    replacing.start()
    code, summary = load(cluster, capsys, "lost", "--duration", "4s", "--groups", "0")
    replacing.join()
    assert code == 1
    assert summary["missing"] >= 50 or summary["not_checked"]


def test_a_topic_or_a_cluster_that_there_is_not_is_told_in_one_line(
    cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--bootstrap-server", cluster.bootstrap_servers, "--topic", "nosuch"]) == 1
    said = capsys.readouterr().err
    assert "there is no topic nosuch; next: kwob topics --bootstrap-server" in said and said.count("\n") == 1


def test_single_records_by_hand(
    cluster: KafkaCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create_topic("hand", partitions=2)
    servers = ["--bootstrap-server", cluster.bootstrap_servers, "--topic", "hand"]
    assert hand.produce_main([*servers, "--partition", "1", "first"]) == 0
    assert capsys.readouterr().out == "hand-1 offset 0\n"
    monkeypatch.setattr("sys.stdin", io.StringIO("k:second\nthird\n"))
    assert hand.produce_main([*servers, "--partition", "1", "--key-separator", ":"]) == 0
    capsys.readouterr()
    assert hand.consume_main([*servers, "--from-beginning", "--until-end", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [
        (0, None, "first"), (1, "k", "second"), (2, None, "third")
    ]  # fmt: skip
    assert hand.consume_main([*servers, "--partition", "1", "--offset", "2", "--max-messages", "1"]) == 0
    assert capsys.readouterr().out.endswith(" third\n")
    assert hand.consume_main([*servers, "--partition", "2"]) == 1
    assert "hand has 2 partitions" in capsys.readouterr().err


def test_a_record_that_is_refused_is_told(cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.create_topic("strict", replicas={0: [1]}, configs={"max.message.bytes": "100"})
    argv = ["--bootstrap-server", cluster.bootstrap_servers, "--topic", "strict", "--timeout", "1s", "x" * 500]
    assert hand.produce_main(argv) == 1
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("kwob produce: ") and said.err.count("\n") == 1


@pytest.mark.parametrize("code", ["COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"])
def test_a_coordinator_that_is_not_ready_is_waited_for(
    cluster: KafkaCluster, capsys: pytest.CaptureFixture[str], code: str
) -> None:
    """As on a fresh cluster, whose brokers are made coordinators one by one."""
    cluster.create_topic(f"waited-{code}", partitions=1)
    for nth in (1, 2, 3):
        cluster.fault(fault="api", api="OffsetCommit", action="error", error_code=code, nth=nth)
    try:
        exit_code, summary = load(cluster, capsys, f"waited-{code}", "--duration", "1s")
    finally:
        cluster.heal()
    assert exit_code == 0
    assert summary["missing"] == 0
    assert [got == summary["acknowledged"] > 0 for got in summary["consumed"].values()] == [True]


def test_a_group_without_a_coordinator_cannot_be_started(cluster: KafkaCluster) -> None:
    cluster.create_topic("uncoordinated", partitions=1)
    cluster.fault(fault="api", api="OffsetCommit", action="error", error_code="NOT_COORDINATOR")
    try:
        with pytest.raises(client.LoadError, match="the group g cannot be started: NOT_COORDINATOR"):
            client.start_group(cluster.bootstrap_servers, "g", {TopicPartition("uncoordinated", 0): 0}, patience_s=0.3)
    finally:
        cluster.heal()
