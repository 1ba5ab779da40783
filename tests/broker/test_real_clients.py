"""Real clients, unmodified, against simulated brokers and the controller."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

pytestmark = pytest.mark.zk
LIMIT_S = 90.0


def create(bootstrap: str, topic: str, partitions: int = 4) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions, 3)], request_timeout=30).values():
        future.result(timeout=LIMIT_S)


def produce(bootstrap: str, topic: str, count: int) -> None:
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(count):
        producer.produce(
            topic, key=str(number), value=f"value {number}", on_delivery=lambda e, _: e and errors.append(e)
        )
    assert producer.flush(LIMIT_S) == 0
    assert not errors


def consume(consumers: list[Consumer], count: int, until: Any = lambda: True) -> set[str]:
    values: set[str] = set()
    deadline = time.monotonic() + LIMIT_S
    while (len(values) < count or not until()) and time.monotonic() < deadline:
        for consumer in consumers:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                values.add(message.value().decode())
    return values


def test_confluent_kafka_creates_produces_and_consumes_by_group_with_a_rebalance(bootstrap: str) -> None:
    create(bootstrap, "orders")
    produce(bootstrap, "orders", 100)
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "readers",
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 30_000,
        "heartbeat.interval.ms": 200,
    }
    first, second = Consumer(settings), Consumer(settings)
    try:
        first.subscribe(["orders"])
        assert len(consume([first], 100)) == 100
        second.subscribe(["orders"])
        consume([first, second], 0, lambda: len(first.assignment()) == len(second.assignment()) == 2)
        assert sorted(len(c.assignment()) for c in (first, second)) == [2, 2]
    finally:
        first.close()
        second.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kafka_python_creates_produces_and_consumes_by_group(bootstrap: str) -> None:
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer  # warns when it is imported
    from kafka import TopicPartition as PythonPartition
    from kafka.admin import NewTopic as PythonTopic

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([PythonTopic("events", num_partitions=2, replication_factor=2)])
    admin.close()
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    sent = [producer.send("events", key=str(n).encode(), value=f"value {n}".encode()) for n in range(50)]
    assert all(future.get(timeout=LIMIT_S).offset >= 0 for future in sent)
    producer.close()
    consumer = KafkaConsumer("events", bootstrap_servers=bootstrap, group_id="python", auto_offset_reset="earliest")
    values: set[bytes] = set()
    deadline = time.monotonic() + LIMIT_S
    while len(values) < 50 and time.monotonic() < deadline:
        for records in consumer.poll(timeout_ms=500).values():
            values.update(record.value for record in records)
    assert len(values) == 50
    consumer.commit()
    partitions = [PythonPartition("events", n) for n in range(2)]
    assert sum(consumer.committed(tp) for tp in partitions) == 50
    consumer.close()
