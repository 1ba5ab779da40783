"""Faults and operations that a seed draws, one after the other, against a running cluster."""

from __future__ import annotations

from collections.abc import Callable

from controller.wire.protocol import ApiKey
from controller.world.simulated.net import Latency
from controller.world.simulated.world import ZOOKEEPER

from .cluster import Cluster

TOPIC = "t"
#: Topics that come and go.
SIDE_TOPICS = ("side-1", "side-2")


class Chaos:
    """Draws steps from the world's seed and takes them. `taken` lists them, for the report of a failure."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._chance = cluster.world.chance
        self._paused: set[int] = set()
        self.taken: list[str] = []

    async def step(self) -> None:
        """One drawn step, and a while of waiting."""
        step = self._chance.choice(
            [
                *(self._kill, self._kill, self._start, self._start, self._start),
                *(self._pause, self._resume, self._resume, self._cut, self._heal, self._heal),
                *(self._expire, self._drop_connections, self._slow_link, self._lossy_zookeeper),
            ]
        )
        self._note(step.__name__.strip("_"), step())
        await self._cluster.sleep(self._chance.choice((0.05, 0.5, 2.0, 8.0)))
        operation = self._chance.choice([self._reassign, self._create, self._delete, None, None, None, None, None])
        if operation is not None:
            await operation()

    async def heal(self) -> None:
        """The second act: no more faults; everything must come right."""
        self._note("everything", "healed")
        for number in sorted(self._paused):
            self._resume_one(number)
        cluster, network = self._cluster, self._cluster.world.network
        for one in self._machines():
            for other in self._machines():
                network.set_latency(one, other, None)
        await cluster.heal()

    def _note(self, what: str, whom: str) -> None:
        self.taken.append(f"{self._cluster.world.loop.time():.3f} {what} {whom}")

    def _numbers(self) -> list[int]:
        return [*self._cluster.controller_ids, *self._cluster.broker_ids]

    def _machines(self) -> list[str]:
        return [self._cluster.machine(number).name for number in self._numbers()]

    def _running(self) -> list[int]:
        return sorted({*self._cluster.brokers, *self._cluster.controllers} - self._paused)

    def _one_of(self, numbers: list[int], act: Callable[[int], None]) -> str:
        if not numbers:
            return "none"
        number = self._chance.choice(numbers)
        act(number)
        return self._cluster.machine(number).name

    def _kill(self) -> str:
        return self._one_of(self._running(), self._cluster.kill)

    def _start(self) -> str:
        return self._one_of(sorted(set(self._numbers()) - set(self._running()) - self._paused), self._cluster.start_one)

    def _pause(self) -> str:
        return self._one_of(self._running(), self._pause_one)

    def _pause_one(self, number: int) -> None:
        self._paused.add(number)
        self._cluster.machine(number).pause()

    def _resume(self) -> str:
        return self._one_of(sorted(self._paused), self._resume_one)

    def _resume_one(self, number: int) -> None:
        self._paused.discard(number)
        self._cluster.machine(number).resume()

    def _cut(self) -> str:
        one, other = self._chance.sample([*self._machines(), ZOOKEEPER], 2)
        self._cluster.world.partition(one, other)
        return f"{one} {other}"

    def _heal(self) -> str:
        self._cluster.world.heal()
        for number in sorted(self._paused):
            self._cluster.world.zookeeper.cut(self._cluster.machine(number).name)
        return "all partitions"

    def _expire(self) -> str:
        sessions = self._cluster.world.zookeeper.sessions
        if not sessions:
            return "none"
        session = self._chance.choice(sorted(sessions))
        self._cluster.world.zookeeper.expire_session(session)
        return sessions[session]

    def _drop_connections(self) -> str:
        one, other = self._chance.sample(self._machines(), 2)
        self._cluster.world.network.drop_connections(one, other)
        return f"{one} {other}"

    def _slow_link(self) -> str:
        one, other = self._chance.sample(self._machines(), 2)
        self._cluster.world.network.set_latency(one, other, Latency(min_s=0.05, max_s=1.0))
        return f"{one} {other}"

    def _lossy_zookeeper(self) -> str:
        self._cluster.world.zookeeper.link_loss = 0.02
        return "messages"

    async def _reassign(self) -> None:
        """Asks for a move of one partition, if there is a controller to ask; it need not succeed."""
        cluster = self._cluster
        partition = self._chance.choice([tp[1] for tp in cluster.partitions() if tp[0] == TOPIC])
        replicas = self._chance.sample(list(cluster.broker_ids), self._chance.choice((2, 3)))
        rows = [{"name": TOPIC, "partitions": [{"partition_index": partition, "replicas": replicas}]}]
        body = {"timeout": 10_000, "topics": rows}
        went = await cluster.ask_once(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, body)
        self._note("reassign", f"{partition} to {replicas}: {went}")

    async def _create(self) -> None:
        """Asks for another topic, or the same again."""
        cluster, topic = self._cluster, self._chance.choice(SIDE_TOPICS)
        cluster.deletable.add(topic)
        rows = [{"partition_index": n, "broker_ids": self._chance.sample(list(cluster.broker_ids), 2)} for n in (0, 1)]
        wanted = {"name": topic, "num_partitions": -1, "replication_factor": -1, "assignments": rows, "configs": []}
        body = {"topics": [wanted], "timeout": 1_000, "validate_only": False}
        self._note("create", f"{topic}: {await cluster.ask_once(ApiKey.CREATE_TOPICS, 4, body)}")

    async def _delete(self) -> None:
        """Asks for the end of such a topic."""
        topic = self._chance.choice(SIDE_TOPICS)
        body = {"topic_names": [topic], "timeout": 1_000}
        self._note("delete", f"{topic}: {await self._cluster.ask_once(ApiKey.DELETE_TOPICS, 3, body)}")
