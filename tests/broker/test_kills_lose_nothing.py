"""What was acknowledged with acks=all survives SIGKILL: real processes, killed in the middle of writes, many times."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from controller.world.real.ports import free_ports
from tests.worlds.programs import Program, until_served

from ..acknowledged import Writer, until

pytestmark = pytest.mark.zk
TOPIC, PARTITIONS = "kept", 3
LIMIT_S = 120.0
#: A killed broker is missed after this; the least that the server grants is two of its ticks.
SESSION_TIMEOUT_MS = 2_000


class Machines:
    """A controller and brokers, a process each, on ports that stay theirs."""

    def __init__(self, folder: Path, connect: str, brokers: int) -> None:
        self._folder, self._connect = folder, connect
        self.ports = dict(enumerate(free_ports(brokers), 1))
        self.brokers: dict[int, Program] = {}
        self._controller: Program | None = None
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self.ports.values())
        self.admin: AdminClient

    def start_all(self) -> None:
        """Starts the processes and waits for them."""
        self._controller = Program(
            "controller", "run", "--zookeeper", self._connect, "--controller-id", "100", "--listener", "127.0.0.1:0",
            "--override", "auto.leader.rebalance.enable=false", "--override", "offsets.topic.num.partitions=1",
        )  # fmt: skip
        for number in self.ports:
            self.start(number)
        for broker in self.brokers.values():
            broker.wait_for("broker.started")
        until_served(self.ports)
        # A client that asked too early would keep to what it heard.
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "topic.metadata.refresh.interval.ms": 1_000})

    def start(self, number: int) -> None:
        """Starts a broker, on the files it left."""
        self.brokers[number] = Program(
            "broker_sim", "run", "--zookeeper", self._connect, "--broker-id", str(number),
            "--listener", f"127.0.0.1:{self.ports[number]}", "--log-dirs", str(self._folder / str(number)),
            "--override", f"zookeeper.session.timeout.ms={SESSION_TIMEOUT_MS}",
            "--override", "controlled.shutdown.enable=false",
            "--override", "replica.fetch.backoff.ms=100",
            "--override", "offsets.topic.num.partitions=1",
        )  # fmt: skip

    def restart(self, number: int) -> None:
        """Starts a killed broker until it runs, as a supervisor does: its old registration may outlast its patience."""

        def runs() -> bool:
            broker = self.brokers[number]
            if broker.process.poll() is not None:
                broker.stop()
                self.start(number)
            return any('"broker.started"' in line for line in list(broker.lines))

        self.start(number)
        until(f"broker {number} runs again", runs, LIMIT_S)

    def kill(self, number: int) -> None:
        """SIGKILL."""
        self.brokers[number].process.kill()
        self.brokers[number].stop()

    def create(self) -> None:
        """The topic, with a replica on every broker and small segments."""
        factor = len(self.ports)
        config = {"min.insync.replicas": str(min(2, factor)), "segment.bytes": "60000", "index.interval.bytes": "500"}
        made = self.admin.create_topics([NewTopic(TOPIC, PARTITIONS, factor, config=config)])
        made[TOPIC].result(LIMIT_S)

    def partitions(self) -> dict[int, Any]:
        """What a live broker says of the topic's partitions; nothing while it does not answer."""
        try:
            return dict(self.admin.list_topics(TOPIC, timeout=5).topics[TOPIC].partitions)
        except KafkaException:
            return {}

    def is_whole(self) -> bool:
        """Whether every replica of every partition is in sync."""
        found = self.partitions()
        return len(found) == PARTITIONS and all(
            p.leader >= 0 and sorted(p.isrs) == sorted(self.ports) for p in found.values()
        )

    def leader(self) -> int:
        """Who leads partition 0."""
        found = until(
            "partition 0 has a leader", lambda: (p := self.partitions().get(0)) and p.leader > 0 and p.leader, LIMIT_S
        )
        return int(found)

    def stop(self) -> None:
        """Ends all processes."""
        for number, one in self.brokers.items():
            one.process.kill()
            one.stop()
            print(f"broker {number}:", *one.lines[-30:], sep="\n")
        if self._controller is not None:
            self._controller.stop()


@pytest.fixture
def machines(zk_connect: str, tmp_path: Path) -> Iterator[Callable[[int], Machines]]:
    made: list[Machines] = []

    def make(brokers: int) -> Machines:
        made.append(Machines(tmp_path, zk_connect, brokers))
        made[-1].start_all()
        made[-1].create()
        until("the topic is whole", made[-1].is_whole, LIMIT_S)
        return made[-1]

    yield make
    for one in made:
        one.stop()


#: The writer's: it looks for a new leader often, and what piles up while a broker is down fits into a segment.
OPTIONS: dict[str, Any] = {
    "enable.idempotence": True,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 250,
    "reconnect.backoff.max.ms": 250,
    "topic.metadata.refresh.interval.ms": 1_000,
    "linger.ms": 2,
    "batch.size": 16_000,
}


def read_all(bootstrap: str) -> Counter[str]:
    """Every record up to the high watermarks of now."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    places = [TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
    try:
        ends = {p.partition: consumer.get_watermark_offsets(p, timeout=30)[1] for p in places}
        consumer.assign(places)
        found: Counter[str] = Counter()
        at = dict.fromkeys(ends, 0)
        deadline = time.monotonic() + LIMIT_S
        while any(at[number] < end for number, end in ends.items()):
            assert time.monotonic() < deadline, f"read {at} of {ends}"
            for message in consumer.consume(1000, timeout=0.5):
                if message.error() is None:
                    found[message.value().decode()] += 1
                    at[message.partition()] = message.offset() + 1
        return found
    finally:
        consumer.close()


def kill_and_count(made: Machines, rounds: int) -> None:
    """Kills the leader of partition 0 in the middle of writes, so often; every acknowledged record is there, once."""
    writer = Writer(made.bootstrap, TOPIC, limit_s=LIMIT_S, options=OPTIONS, pause_s=0.002, size=90, waiting_max=300)
    with writer:
        for _ in range(rounds):
            victim = made.leader()
            writer.until_more(50)
            made.kill(victim)
            if len(made.ports) > 1:
                writer.until_more(50)
            made.restart(victim)
            until("every replica is in sync again", made.is_whole, LIMIT_S)
    assert not writer.failed, writer.failed[:3]
    until("every replica is in sync at the end", made.is_whole, LIMIT_S)
    found = read_all(made.bootstrap)
    lost = set(writer.acknowledged) - set(found)
    doubled = [value for value, count in found.items() if count > 1]
    print(f"{rounds} kills of {len(made.ports)} brokers: {len(writer.acknowledged)} acknowledged, {len(lost)} lost")
    assert not lost, f"{len(lost)} of {len(writer.acknowledged)} acknowledged records are lost: {sorted(lost)[:5]}"
    assert not doubled, f"{len(doubled)} records of an idempotent producer are there twice: {doubled[:5]}"


@pytest.mark.long
def test_records_acknowledged_by_all_survive_a_kill_or_two(machines: Callable[[int], Machines]) -> None:
    kill_and_count(machines(3), 2)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("brokers", [3, 1])
def test_records_acknowledged_by_all_survive_fifty_kills(machines: Callable[[int], Machines], brokers: int) -> None:
    kill_and_count(machines(brokers), 50)
