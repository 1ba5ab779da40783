"""Records that were acknowledged, and whether they can still be read. With confluent-kafka, unmodified."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from .. import acknowledged
from .cluster import LIMIT_S, Cluster, until


class Writer(acknowledged.Writer):
    """Writes numbered records to a topic with acks=all, on a thread, until it is left."""

    def __init__(self, bootstrap: str, topic: str, *, idempotent: bool = True) -> None:
        options = {
            "enable.idempotence": idempotent,
            "socket.timeout.ms": 10_000,
            "topic.metadata.refresh.interval.ms": 5_000,
            "linger.ms": 5,
        }
        super().__init__(bootstrap, topic, limit_s=LIMIT_S, options=options)


def read_all(bootstrap: str, topic: str, partitions: int) -> list[str]:
    """Every record of a topic up to the high watermarks of now."""
    ends = until(f"the ends of {topic} are known", lambda: _ends(bootstrap, topic, partitions))
    places = dict.fromkeys(ends, 0)
    values: list[str] = []
    consumer = _consumer(bootstrap)
    try:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in ends])
        deadline = time.monotonic() + LIMIT_S
        while any(places[number] < end for number, end in ends.items()):
            assert time.monotonic() < deadline, f"read {places} of {ends}"
            message = consumer.poll(0.5)
            if message is None or message.error() is not None:
                continue
            values.append(message.value().decode())
            places[message.partition()] = message.offset() + 1
    finally:
        consumer.close()
    return values


def _ends(bootstrap: str, topic: str, partitions: int) -> dict[int, int] | None:
    """The high watermarks; None as long as the brokers do not know who leads. A new client asks, since librdkafka
    keeps on believing metadata without a leader for this question.
    """
    consumer = _consumer(bootstrap)
    try:
        return {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)[1]
            for number in range(partitions)
        }
    except KafkaException:
        return None
    finally:
        consumer.close()


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False, "check.crcs": True}
    )


def consume(cluster: Cluster, topic: str, group: str, count: int, *, bootstrap: str | None = None) -> list[str]:
    """So many records as a member of a group, each committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap or cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    values: list[str] = []
    try:
        while len(values) < count:
            message = until("a record comes", lambda: consumer.poll(0.5))
            if message.error() is None:
                values.append(message.value().decode())
                consumer.commit(message, asynchronous=False)
    finally:
        consumer.close()
    return values


def consume_nothing(cluster: Cluster, topic: str, group: str) -> int:
    """Joins and leaves a group, without a record read."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    until("it has partitions", lambda: consumer.poll(0.2) is None and consumer.assignment())
    consumer.close()
    return 0


class Reader:
    """Reads a topic as the one member of a group, on a thread, and commits after each batch, until it is left."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.values: list[str] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 30_000,
                "heartbeat.interval.ms": 500,
                "topic.metadata.refresh.interval.ms": 5_000,
            }
        )
        self._consumer.subscribe([topic])
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._ending.is_set():
            messages = [m for m in self._consumer.consume(100, 0.2) if m.error() is None]
            if messages:
                self.values += [m.value().decode() for m in messages]
                self._commit()
        self._consumer.close()

    def _commit(self) -> None:
        """Until it is done, or the partitions are another's."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            try:
                self._consumer.commit(asynchronous=False)
            except KafkaException:
                self._ending.wait(0.2)
            else:
                return

    def until_more(self, count: int = 100) -> None:
        """Waits until so many more records than now are read."""
        goal = len(self.values) + count
        until(f"{count} more records are read", lambda: len(self.values) >= goal)

    def until_read(self, wanted: list[str]) -> None:
        """Waits until all of these were read; ends then."""
        until("all is read", lambda: set(wanted) <= set(self.values))
        self._end()

    def _end(self) -> None:
        self._ending.set()
        self._thread.join(LIMIT_S)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._end()


def assert_nothing_lost(cluster: Cluster, writer: Writer, *, duplicates: bool = False) -> None:
    """Every acknowledged record can be read; an idempotent writer's exactly once."""
    assert not writer.failed, writer.failed[:3]
    wanted, values = set(writer.acknowledged), []

    def lost() -> set[str]:
        values[:] = read_all(cluster.bootstrap, writer.topic, len(cluster.partitions(writer.topic)))
        return wanted - set(values)

    # A new leader's high watermark may be behind for as long as its followers have not asked.
    until(f"all {len(wanted)} acknowledged records are there", lambda: not lost(), 30)
    if not duplicates:
        assert len(values) == len(set(values)), "an idempotent producer's records are there twice"
