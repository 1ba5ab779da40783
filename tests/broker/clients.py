"""Three client libraries, unmodified, behind one face: producing, reading back, looking up by time."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python warns when it is imported
    import aiokafka
    import kafka

LIMIT_S = 60.0
#: (key, value, timestamp in ms)
Sent = tuple[bytes, bytes, int]
#: (partition, offset, key, value, timestamp in ms)
Read = tuple[int, int, bytes, bytes, int]


class Confluent:
    """confluent-kafka, and so librdkafka."""

    name = "confluent-kafka"

    def produce(self, bootstrap: str, topic: str, records: Sequence[Sent], codec: str, *, idempotent: bool) -> None:
        failed: list[Any] = []
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": idempotent,
                "compression.type": codec,
                "linger.ms": 5,
            }
        )
        for key, value, timestamp in records:
            producer.produce(
                topic, key=key, value=value, timestamp=timestamp, on_delivery=lambda e, _: e and failed.append(e)
            )
        assert producer.flush(LIMIT_S) == 0
        assert not failed, failed[:3]

    def read(self, bootstrap: str, topic: str, partitions: int) -> list[Read]:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "check.crcs": True})
        places = [ConfluentPartition(topic, n, OFFSET_BEGINNING) for n in range(partitions)]
        ends = [consumer.get_watermark_offsets(place, timeout=LIMIT_S)[1] for place in places]
        consumer.assign(places)
        found: list[Read] = []
        deadline = time.monotonic() + LIMIT_S
        while len(found) < sum(ends) and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                found.append(
                    (message.partition(), message.offset(), message.key(), message.value(), message.timestamp()[1])
                )
        consumer.close()
        return found

    def offsets_at(self, bootstrap: str, topic: str, partitions: int, timestamp: int) -> list[int]:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
        wanted = [ConfluentPartition(topic, n, timestamp) for n in range(partitions)]
        found = [place.offset for place in consumer.offsets_for_times(wanted, timeout=LIMIT_S)]
        consumer.close()
        return found


class KafkaPython:
    """kafka-python 3."""

    name = "kafka-python"

    def produce(self, bootstrap: str, topic: str, records: Sequence[Sent], codec: str, *, idempotent: bool) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            enable_idempotence=idempotent,
            compression_type=None if codec == "none" else codec,
            linger_ms=5,
        )
        try:
            futures = [producer.send(topic, key=k, value=v, timestamp_ms=t) for k, v, t in records]
            producer.flush(LIMIT_S)
            for future in futures:
                future.get(LIMIT_S)
        finally:
            producer.close()

    def read(self, bootstrap: str, topic: str, partitions: int) -> list[Read]:
        consumer, places = self._consumer(bootstrap, topic, partitions)
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        consumer.seek_to_beginning()
        found: list[Read] = []
        deadline = time.monotonic() + LIMIT_S
        while len(found) < sum(ends.values()) and time.monotonic() < deadline:
            for rows in consumer.poll(timeout_ms=500).values():
                found += [(row.partition, row.offset, row.key, row.value, row.timestamp) for row in rows]
        consumer.close()
        return found

    def offsets_at(self, bootstrap: str, topic: str, partitions: int, timestamp: int) -> list[int]:
        consumer, places = self._consumer(bootstrap, topic, partitions)
        found = consumer.offsets_for_times(dict.fromkeys(places, timestamp))
        consumer.close()
        return [-1 if found[place] is None else found[place].offset for place in places]

    @staticmethod
    def _consumer(bootstrap: str, topic: str, partitions: int) -> tuple[Any, list[Any]]:
        places = [kafka.TopicPartition(topic, n) for n in range(partitions)]
        return kafka.KafkaConsumer(bootstrap_servers=bootstrap), places


class AioKafka:
    """aiokafka."""

    name = "aiokafka"

    def produce(self, bootstrap: str, topic: str, records: Sequence[Sent], codec: str, *, idempotent: bool) -> None:
        async def send() -> None:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                acks="all",
                enable_idempotence=idempotent,
                compression_type=None if codec == "none" else codec,
                linger_ms=5,
            )
            await producer.start()
            try:
                futures = [await producer.send(topic, key=k, value=v, timestamp_ms=t) for k, v, t in records]
                await asyncio.wait_for(asyncio.gather(*futures), LIMIT_S)
            finally:
                await producer.stop()

        asyncio.run(send())

    def read(self, bootstrap: str, topic: str, partitions: int) -> list[Read]:
        async def receive() -> list[Read]:
            consumer, places = self._consumer(bootstrap, topic, partitions)
            await consumer.start()
            try:
                ends = await consumer.end_offsets(places)
                consumer.assign(places)
                await consumer.seek_to_beginning()
                found: list[Read] = []
                async with asyncio.timeout(LIMIT_S):
                    while len(found) < sum(ends.values()):
                        for rows in (await consumer.getmany(timeout_ms=500)).values():
                            found += [(row.partition, row.offset, row.key, row.value, row.timestamp) for row in rows]
                return found
            finally:
                await consumer.stop()

        return asyncio.run(receive())

    def offsets_at(self, bootstrap: str, topic: str, partitions: int, timestamp: int) -> list[int]:
        async def look() -> list[int]:
            consumer, places = self._consumer(bootstrap, topic, partitions)
            await consumer.start()
            try:
                found = await consumer.offsets_for_times(dict.fromkeys(places, timestamp))
                return [-1 if found[place] is None else found[place].offset for place in places]
            finally:
                await consumer.stop()

        return asyncio.run(look())

    @staticmethod
    def _consumer(bootstrap: str, topic: str, partitions: int) -> tuple[Any, list[Any]]:
        places = [aiokafka.TopicPartition(topic, n) for n in range(partitions)]
        return aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest"), places


CLIENTS = (Confluent(), KafkaPython(), AioKafka())
