"""A consumer in a process of its own, so that it can be killed.

    member.py CLIENT BOOTSTRAP GROUP TOPIC ASSIGNOR INSTANCE

Prints JSON lines: `{"assigned": [partitions]}` after each rebalance, `{"values": [...]}` once what was read is
committed. SIGTERM leaves the group. ASSIGNOR is Kafka's name of it; INSTANCE `-` is none.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import warnings
from typing import Any

SESSION_MS = 3_000
HEARTBEAT_MS = 500


def say(**line: Any) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


class Ending:
    """Whether SIGTERM came."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, *_: Any) -> None:
        self.asked = True


def confluent(bootstrap: str, group: str, topic: str, assignor: str, instance: str | None, ending: Ending) -> None:
    from confluent_kafka import Consumer

    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "partition.assignment.strategy": assignor,
        **({"group.instance.id": instance} if instance else {}),
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    last: list[int] | None = None
    while not ending.asked:
        messages = [m for m in consumer.consume(100, 0.1) if m.error() is None]
        if messages:
            consumer.commit(asynchronous=False)
            say(values=[m.value().decode() for m in messages])
        now = sorted(place.partition for place in consumer.assignment())
        if now != last:
            last = now
            say(assigned=now)
    consumer.close()


def python(bootstrap: str, group: str, topic: str, assignor: str, instance: str | None, ending: Ending) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import KafkaConsumer
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
        from kafka.coordinator.assignors.range import RangePartitionAssignor
        from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    assignors = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id=instance,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        partition_assignment_strategy=[assignors[assignor]],
    )
    last: list[int] | None = None
    while not ending.asked:
        rows = [row for rows in consumer.poll(timeout_ms=100).values() for row in rows]
        if rows:
            consumer.commit()
            say(values=[row.value.decode() for row in rows])
        now = sorted(place.partition for place in consumer.assignment())
        if now != last:
            last = now
            say(assigned=now)
    consumer.close()


async def aio(bootstrap: str, group: str, topic: str, assignor: str, instance: str | None, ending: Ending) -> None:
    import aiokafka
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    assignors = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }
    consumer = aiokafka.AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id=instance,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        partition_assignment_strategy=[assignors[assignor]],
    )
    await consumer.start()
    last: list[int] | None = None
    while not ending.asked:
        rows = [row for rows in (await consumer.getmany(timeout_ms=100)).values() for row in rows]
        if rows:
            try:
                await consumer.commit()
            except aiokafka.errors.CommitFailedError:
                continue  # they go to another member, which will say them
            say(values=[row.value.decode() for row in rows])
        now = sorted(place.partition for place in consumer.assignment())
        if now != last:
            last = now
            say(assigned=now)
    await consumer.stop()


def main(client: str, bootstrap: str, group: str, topic: str, assignor: str, instance: str) -> None:
    name = None if instance == "-" else instance
    if client == "aiokafka":
        asyncio.run(aio(bootstrap, group, topic, assignor, name, Ending()))
    else:
        {"confluent-kafka": confluent, "kafka-python": python}[client](
            bootstrap, group, topic, assignor, name, Ending()
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
