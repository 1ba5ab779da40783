"""The service against a cluster that breaks. `kafka_cluster` comes with kwob's pytest plugin: nothing to import."""

import json
from collections.abc import Iterator

import pytest
from billing import Billing
from confluent_kafka import Producer


@pytest.fixture
def billing(kafka_cluster) -> Iterator[Billing]:
    kafka_cluster.create_topic("orders", partitions=3)
    service = Billing(kafka_cluster.bootstrap_servers)
    yield service
    service.close()


def send(cluster, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "enable.idempotence": True})
    for number in range(first, first + count):
        order = {"id": str(number), "customer": f"c{number % 2}", "amount": 1}
        producer.produce("orders", json.dumps(order), key=str(number))
    assert producer.flush(30) == 0


def test_orders_are_summed(kafka_cluster, billing):
    send(kafka_cluster, 0, 100)
    assert billing.take(100) == 100
    assert billing.totals == {"c0": 50, "c1": 50}


def test_no_order_is_lost_or_counted_twice_when_a_broker_dies(kafka_cluster, billing):
    send(kafka_cluster, 0, 100)
    assert billing.take(100) == 100
    kafka_cluster.kill_broker(kafka_cluster.leader("orders"))
    send(kafka_cluster, 100, 100)
    assert billing.take(100) == 100
    assert billing.totals == {"c0": 100, "c1": 100}


def test_a_lost_answer_does_not_count_an_order_twice(kafka_cluster, billing):
    kafka_cluster.api_error("Produce", "NOT_LEADER_OR_FOLLOWER", nth=1)
    send(kafka_cluster, 0, 50)
    assert billing.take(50) == 50
    assert sum(billing.totals.values()) == 50
