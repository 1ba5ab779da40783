"""What the tests do to the cluster in containers, as clients of it, and what they see."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

RECORDS = 300
CLIENT_LIMIT_S = 60.0
#: Prints the id in `/controller`.
WHO_IS_ACTIVE = """
import json
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
client = KazooClient("zookeeper:2181")
client.start(30)
try:
    print(json.loads(client.get("/controller")[0])["brokerid"])
except NoNodeError:
    print(-1)
client.stop()
"""
#: Prints who is registered: the transaction that made each broker's node, by id.
WHO_IS_REGISTERED = """
import json
from kazoo.client import KazooClient
client = KazooClient("zookeeper:2181")
client.start(30)
print(json.dumps({i: client.get("/brokers/ids/" + i)[1].czxid for i in client.get_children("/brokers/ids")}))
client.stop()
"""
#: A client in the network: prints the addresses that it is told, produces a record and reads all there are.
INSIDE = """
import json, sys, time
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
bootstrap, topic, value, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
told = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=60).brokers.values()
producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
producer.produce(topic, value)
assert producer.flush(60) == 0
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "inside", "auto.offset.reset": "earliest"})
consumer.subscribe([topic])
found, limit = set(), time.monotonic() + 60
while len(found) < count and time.monotonic() < limit:
    found |= {message.value().decode() for message in consumer.consume(500, 0.5) if message.error() is None}
consumer.close()
print(json.dumps({"told": sorted(f"{b.id} {b.host}:{b.port}" for b in told), "found": sorted(found)}))
"""


def get(url: str) -> str:
    """What is there."""
    with urllib.request.urlopen(url, timeout=20) as answer:
        text: str = answer.read().decode()
        return text


def partitions(cluster: Any, topic: str) -> list[Any]:
    """The topic's partitions as broker 1 lists them."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap.split(",")[0]})
    return list(admin.list_topics(topic, timeout=CLIENT_LIMIT_S).topics[topic].partitions.values())


def produce(cluster: Any, topic: str, first: int) -> None:
    """`RECORDS` records, numbered from `first`, each acknowledged by all in-sync replicas."""
    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(first, first + RECORDS):
        producer.produce(topic, str(number), on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(CLIENT_LIMIT_S) == 0
    assert failed == []


def consume(cluster: Any, topic: str, group: str, count: int) -> set[int]:
    """What a new group reads from the beginning, up to `count` different numbers."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    found: set[int] = set()
    limit = time.monotonic() + CLIENT_LIMIT_S
    try:
        while len(found) < count and time.monotonic() < limit:
            found |= {int(message.value()) for message in consumer.consume(500, 0.5) if message.error() is None}
    finally:
        consumer.close()
    return found


def active_controller(cluster: Any) -> int:
    """Whom `/controller` names, -1 for nobody. Clients are not told: they see brokers alone."""
    words = ["run", "--rm", "-T", "--entrypoint", "python", "tools", "-c", WHO_IS_ACTIVE]
    return int(cluster.compose(*words).splitlines()[-1])


def registrations(cluster: Any) -> dict[int, int]:
    """The epoch of each registered broker."""
    words = ["run", "--rm", "-T", "--entrypoint", "python", "tools", "-c", WHO_IS_REGISTERED]
    return {int(i): epoch for i, epoch in json.loads(cluster.compose(*words).splitlines()[-1]).items()}


def create(cluster: Any, topic: str, partitions: int, replication: int) -> None:
    """A topic, created by a client on the host."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, replication)])[topic].result(CLIENT_LIMIT_S)
