"""A cluster with pages of metrics, after clients did what makes every metric appear."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import Consumer, Producer

from controller.embedded.handles import KafkaCluster
from tests.broker_metrics.pages import Sample, samples

RECORDS = 60
TOPIC = "orders"


@dataclass
class Running:
    """The cluster with its pages."""

    cluster: KafkaCluster

    def page(self, name: str) -> str:
        """A page, as Prometheus gets it."""
        with urllib.request.urlopen(f"http://{self.cluster.metrics[name]}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    def samples(self, name: str) -> dict[Sample, float]:
        return samples(self.page(name))

    def brokers(self) -> list[dict[Sample, float]]:
        """The pages of all brokers."""
        return [self.samples(name) for name in self.cluster.metrics if name.startswith("broker")]

    def total(self, name: str, **labels: str) -> float:
        """The sum over the brokers."""
        return sum(page.get((name, frozenset(labels.items())), 0.0) for page in self.brokers())


@contextmanager
def running_cluster() -> Iterator[Running]:
    """Produced, consumed and committed to by clients that are not ours."""
    with KafkaCluster(brokers=3, metrics=True, settings={"num.partitions": "3"}) as cluster:
        cluster.create_topic(TOPIC, partitions=3, replication_factor=2)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "linger.ms": 5})
        for number in range(RECORDS):
            producer.produce(TOPIC, b"x" * (10 + number), partition=number % 3)
        assert producer.flush(20) == 0
        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([TOPIC])
        taken = 0
        while taken < RECORDS:
            message = consumer.poll(10)
            assert message is not None and message.error() is None
            taken += 1
        consumer.commit(asynchronous=False)
        yield Running(cluster)
        consumer.close()
