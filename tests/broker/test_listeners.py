"""Brokers with a listener among themselves and one for clients, as processes: a client sees only the second."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.worlds.programs import Program, until_served

pytestmark = pytest.mark.zk
LIMIT_S = 60.0
SETTINGS = [
    part
    for setting in (
        "inter.broker.listener.name=INTERNAL",
        "listener.security.protocol.map=INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,CONTROL:PLAINTEXT",
        "control.plane.listener.name=CONTROL",
        "controlled.shutdown.retry.backoff.ms=100",
    )
    for part in ("--override", setting)
]


def test_clients_and_brokers_each_use_their_listener(
    zk_connect: str, tmp_path: Path, program: Callable[..., Program]
) -> None:
    brokers = program(
        "broker_sim", "run", "--zookeeper", zk_connect, "--broker-id", "1-2", "--log-dirs", str(tmp_path),
        "--listener", "INTERNAL://127.0.0.1:0,EXTERNAL://127.0.0.1:0,CONTROL://127.0.0.1:0", *SETTINGS,
    )  # fmt: skip
    told_of_controller = "INTERNAL://127.0.0.1:0,EXTERNAL://localhost:0,CONTROL://127.0.0.1:0"
    program(
        "controller", "run", "--zookeeper", zk_connect, "--controller-id", "100", "--listener", "127.0.0.1:0",
        *SETTINGS, "--override", f"advertised.listeners={told_of_controller}",
    )  # fmt: skip
    started = [brokers.wait_for("broker.started") for _ in range(2)]
    ports = [dict(text.rsplit(":", 1) for text in line["listeners"]) for line in started]
    external = sorted(int(each["EXTERNAL://127.0.0.1"]) for each in ports)
    until_served(
        {line["broker_id"]: int(each["EXTERNAL://127.0.0.1"]) for line, each in zip(started, ports, strict=True)}
    )
    assert len({port for each in ports for port in each.values()}) == 6

    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{external[0]}"})
    admin.create_topics([NewTopic("orders", 1, 2)])["orders"].result(LIMIT_S)
    told = admin.list_topics(timeout=LIMIT_S)
    assert sorted(broker.port for broker in told.brokers.values()) == external, "the controller is no broker"
    assert {broker.host for broker in told.brokers.values()} == {"127.0.0.1"}
    assert told.controller_id in told.brokers
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{external[1]}", "acks": "all"})
    producer.produce("orders", value=b"v")
    assert producer.flush(LIMIT_S) == 0, "acks=all: the follower has it, by the listener between brokers"
    consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{external[0]}", "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition("orders", 0, OFFSET_BEGINNING)])
    message = consumer.poll(LIMIT_S)
    consumer.close()
    assert message is not None and message.value() == b"v"
    assert brokers.stop() == 0
    left = [line for line in brokers.lines if '"broker.shutdown_controlled"' in line]
    assert left, "the controller was found and let one go (the last one has nobody to hand over to)"
