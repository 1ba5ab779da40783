"""Embedded clusters on real sockets, whose members are stopped, killed and started in any order and at any moment: no
call waits longer than a dead session lasts, all comes back, and what was acknowledged is there."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from controller.embedded.handles import KafkaCluster

from ..acknowledged import Writer, until

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
#: A killed member is missed after 2 s; then others take over.
CALL_MAX_S = 15.0
#: What is heard of the life of a broker.
LIVES = ("fault.acted", "broker.stopped", "broker.started")
#: Steps that concern a controller.
CONTROLLERS = ("kill controller", "kill controller", "start controller", "start controller")
#: Of each a cluster and its steps are drawn; five are always walked, the others are the day's.
SEEDS = (*range(5), *(date.today().toordinal() * 1000 + number for number in range(20)))


class Walk:
    """One cluster and the steps that a seed draws. `steps` is what was done, with the seconds that it took."""

    def __init__(self, cluster: KafkaCluster, draw: random.Random) -> None:
        self._cluster, self._draw = cluster, draw
        self._controllers = [int(name.split("-")[1]) for name in cluster.metrics if name.startswith("controller")]
        self._dead_brokers: list[int] = []
        self._dead_controllers: list[int] = []
        self.steps: list[str] = []

    def step(self) -> None:
        """Stops, kills or starts somebody; all brokers but one may be down, and all controllers."""
        time.sleep(self._draw.choice([0, 0, 0, 0, 0.001, 0.003, 0.01, 0.03, 0.3]))
        up = [number for number in self._cluster.broker_ids if number not in self._dead_brokers]
        serving = [number for number in self._controllers if number not in self._dead_controllers]
        what = self._draw.choice(["stop", "stop", "kill", "start", "start", "start", *CONTROLLERS])
        if what in ("stop", "kill") and len(up) > 1:
            self._dead_brokers.append(self._draw.choice(up))
            do = self._cluster.stop_broker if what == "stop" else self._cluster.kill_broker
            self._timed(what, do, self._dead_brokers[-1])
        elif what == "start" and self._dead_brokers:
            self._timed(what, self._cluster.start_broker, self._take(self._dead_brokers))
        elif what == "kill controller" and serving:
            self._dead_controllers.append(self._draw.choice(serving))
            self._timed(what, self._cluster.kill_controller, self._dead_controllers[-1])
        elif what == "start controller" and self._dead_controllers:
            self._timed(what, self._cluster.start_controller, self._take(self._dead_controllers))

    def heal(self, topic: str) -> None:
        """All are there again, and in sync."""
        while self._dead_controllers:
            self._timed("start controller", self._cluster.start_controller, self._take(self._dead_controllers))
        while self._dead_brokers:
            self._timed("start", self._cluster.start_broker, self._take(self._dead_brokers))
        until(f"all are up, {self.steps}", self._are_up, CALL_MAX_S)
        self._timed("full ISRs", self._cluster.wait_for_full_isr, topic)

    def _are_up(self) -> bool:
        """Of each broker a start is the last that was heard."""
        last = {e["broker_id"]: e["event"] for e in self._cluster.events() if e["event"] in LIVES}
        return set(last.values()) == {"broker.started"}

    def _take(self, numbers: list[int]) -> int:
        return numbers.pop(self._draw.randrange(len(numbers)))

    def _timed(self, name: str, do: Callable[..., Any], *of: Any) -> None:
        begun = time.monotonic()
        do(*of)
        self.steps.append(f"{name} {of[0]} {time.monotonic() - begun:.1f} s")
        assert time.monotonic() - begun < CALL_MAX_S, self.steps


def all_records(bootstrap: str, topic: str, partitions: int, count: int) -> set[str]:
    """As many different values as were acknowledged, or all that came before ten silent seconds.

    A broker that has just come back knows no topic, as Kafka's; of librdkafka such an answer resets the beginning.
    """
    found: set[str] = set()
    options = {"group.id": "all", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": bootstrap, **options})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
    while len(found) < count and (message := consumer.poll(10)) is not None:
        if message.error() is None:
            found.add(bytes(message.value() or b"").decode())
    consumer.close()
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_whoever_goes_and_comes_no_call_hangs_and_nothing_acknowledged_is_lost(seed: int) -> None:
    draw = random.Random(seed)
    brokers, controllers = draw.choice([1, 2, 3]), draw.choice([1, 1, 2])
    with KafkaCluster(brokers=brokers, controllers=controllers, metrics=True) as cluster:
        cluster.create_topic("t", partitions=3, replication_factor=brokers)
        walk = Walk(cluster, draw)
        with Writer(cluster.bootstrap_servers, "t", limit_s=60, options={"enable.idempotence": True}) as writer:
            for _ in range(draw.randint(3, 12)):
                walk.step()
            walk.heal("t")
        assert not writer.failed, (walk.steps, writer.failed)
        lost = set(writer.acknowledged) - all_records(cluster.bootstrap_servers, "t", 3, len(writer.acknowledged))
        assert not lost, (walk.steps, sorted(lost)[:5])
