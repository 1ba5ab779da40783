"""Three client libraries write with acks=all while leaders are killed: each acknowledged record is read, in order."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import kafka
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import NewTopic

from ..acknowledged import until
from .clients import CLIENTS
from .test_kills_lose_nothing import Machines

pytestmark = [
    pytest.mark.zk,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
PARTITIONS = 3
ROUNDS = 3
LIMIT_S = 120.0
Note = Callable[[str], None]


def write_confluent(bootstrap: str, topic: str, values: Iterator[str], ended: threading.Event, note: Note) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "message.timeout.ms": int(LIMIT_S * 1000),
            "linger.ms": 2,
        }
    )
    while not ended.wait(0.005):
        value = next(values)
        producer.produce(
            topic, key=value[-1], value=value, on_delivery=lambda error, m: error or note(m.value().decode())
        )
        producer.poll(0)
    assert producer.flush(LIMIT_S) == 0


def write_python(bootstrap: str, topic: str, values: Iterator[str], ended: threading.Event, note: Note) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap.split(","),
        acks="all",
        enable_idempotence=True,
        delivery_timeout_ms=int(LIMIT_S * 1000),
        linger_ms=2,
    )
    while not ended.wait(0.005):
        value = next(values)
        future = producer.send(topic, key=value[-1:].encode(), value=value.encode())
        future.add_callback(lambda _, value=value: note(value))
    producer.flush(LIMIT_S)
    producer.close(10)


def write_aio(bootstrap: str, topic: str, values: Iterator[str], ended: threading.Event, note: Note) -> None:
    async def send() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, request_timeout_ms=10_000, linger_ms=2
        )
        await producer.start()
        waiting: list[tuple[str, Any]] = []
        while not ended.is_set():
            value = next(values)
            waiting.append((value, await producer.send(topic, key=value[-1:].encode(), value=value.encode())))
            await asyncio.sleep(0.005)
        for value, future in waiting:
            try:
                await asyncio.wait_for(future, LIMIT_S)
            except aiokafka.errors.KafkaError:
                continue
            note(value)
        await producer.stop()

    asyncio.run(send())


@pytest.fixture(autouse=True)
def sockets_of_the_dead(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """kafka-python leaves sockets of dead brokers to the garbage collector, and logs errors whose frames hold them."""
    yield
    caplog.get_records("call").clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


WRITERS = {"confluent-kafka": write_confluent, "kafka-python": write_python, "aiokafka": write_aio}


@pytest.mark.timeout(400)
def test_what_was_acknowledged_is_read_once_and_in_order(zk_connect: str, tmp_path: Path) -> None:
    machines = Machines(tmp_path, zk_connect, 3)
    try:
        machines.start_all()
        topics = {name: f"kept-{name}" for name in WRITERS}
        for topic in topics.values():
            create(machines, topic)
        acknowledged: dict[str, list[str]] = {name: [] for name in WRITERS}
        ended = threading.Event()
        threads = [
            threading.Thread(
                target=writer,
                args=(machines.bootstrap, topics[name], numbered(name), ended, acknowledged[name].append),
                daemon=True,
            )
            for name, writer in WRITERS.items()
        ]
        for thread in threads:
            thread.start()
        for number in range(ROUNDS):
            _more(acknowledged, skip="aiokafka")
            machines.kill(number % 3 + 1)
            _more(acknowledged, skip="aiokafka")
            machines.start(number % 3 + 1)
            until("all replicas are in sync", lambda: is_whole(machines, topics.values()), LIMIT_S)
        _more(acknowledged, skip="aiokafka")
        ended.set()
        for thread in threads:
            thread.join(LIMIT_S)
            assert not thread.is_alive()
        for client in CLIENTS:
            _check(machines, client, topics[client.name], acknowledged[client.name])
    finally:
        machines.stop()


def create(machines: Machines, topic: str) -> None:
    new = NewTopic(topic, PARTITIONS, 3, config={"min.insync.replicas": "2"})
    machines.admin.create_topics([new])[topic].result(LIMIT_S)
    until("all replicas are in sync", lambda: is_whole(machines, [topic]), LIMIT_S)


def is_whole(machines: Machines, topics: Iterable[str]) -> bool:
    try:
        found = machines.admin.list_topics(timeout=5).topics
    except KafkaException:
        return False
    partitions = [p for topic in topics if topic in found for p in found[topic].partitions.values()]
    return len(partitions) == PARTITIONS * len(list(topics)) and all(len(p.isrs) == 3 for p in partitions)


def numbered(name: str) -> Iterator[str]:
    number = 0
    while True:
        number += 1
        yield f"{name} {number}"


def _more(acknowledged: dict[str, list[str]], *, skip: str) -> None:
    """Waits until each writer has 100 more; the one that looks at its futures last is left out."""
    goals = {name: len(done) + 100 for name, done in acknowledged.items() if name != skip}
    until("more is acknowledged", lambda: all(len(acknowledged[name]) >= goal for name, goal in goals.items()), LIMIT_S)


def _check(machines: Machines, client: Any, topic: str, acknowledged: list[str]) -> None:
    assert len(acknowledged) > 100
    lost: set[str] = set()
    found: list[Any] = []

    def whole() -> bool:
        nonlocal found, lost
        found = client.read(machines.bootstrap, topic, PARTITIONS)
        lost = set(acknowledged) - {value.decode() for *_, value, _ in found}
        return not lost

    until(f"all of {client.name} is there", whole, 60)
    counts = Counter(value for *_, value, _ in found)
    assert max(counts.values()) == 1, "an idempotent producer's record is there twice"
    for number in range(PARTITIONS):
        order = [int(value.split()[-1]) for partition, _, _, value, _ in sorted(found) if partition == number]
        assert order == sorted(order), "an idempotent producer's records are out of order"
