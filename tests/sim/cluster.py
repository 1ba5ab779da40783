"""A whole cluster in one process on virtual time: the real controllers, the real brokers, a client, one seed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog

from broker_sim.broker import Broker, StartRefused
from broker_sim.config import BrokerSettings
from broker_sim.identity import BrokerIdentity
from controller.node import config as controller_config
from controller.node.process import Controller, Identity
from controller.node.process import World as ControllerWorld
from controller.rules.configs.listeners import NodeListener
from controller.wire.protocol import ApiKey, ProtocolError
from controller.wire.records import build_values, iterate
from controller.wire.types import BrokerId
from controller.wire.zk_operations import ZkUnreachable
from controller.world.client import BrokerConnection
from controller.world.simulated.world import Machine, World, run_world

from .invariants import Invariants

SETTINGS = {
    "auto.leader.rebalance.enable": "true",
    "leader.imbalance.check.interval.seconds": "30",
    "replica.lag.time.max.ms": "3000",
    "zookeeper.session.timeout.ms": "6000",
    "controlled.shutdown.retry.backoff.ms": "500",
    "offsets.topic.num.partitions": "2",
}
COMMIT_S = 10
BROKER_PORT, CONTROLLER_PORT, FIRST_CONTROLLER = 9092, 9090, 1001


class Cluster:
    """Machines `broker-N`, `controller-N` and `client`. `lines` is all that the programs logged, with virtual times."""

    def __init__(self, world: World, folder: Path, *, brokers: int = 3, controllers: int = 1) -> None:
        self.world, self.folder = world, folder
        self.lines: list[str] = []
        self.broker_ids = range(1, brokers + 1)
        self.controller_ids = range(FIRST_CONTROLLER, FIRST_CONTROLLER + controllers)
        self.brokers: dict[int, Broker] = {}
        self.controllers: dict[int, Controller] = {}
        self.deletable: set[str] = set()  # topics whose epochs may begin again
        self.acked: dict[tuple[str, int], list[bytes]] = {}
        self.invariants = Invariants(world.zookeeper.tree)
        world.zookeeper.on_commit.append(self.invariants.check)

    # -- programs --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Everything, until there is a controller and all brokers are registered."""
        for number in (*self.controller_ids, *self.broker_ids):
            self.start_one(number)
        await self.world.until(lambda: self.active_controller() is not None, within_s=60, what="a controller")
        await self.world.until(lambda: self.registered() == set(self.broker_ids), within_s=60, what="all brokers")

    def start_one(self, number: int) -> None:
        """Starts, or starts again, a broker or a controller; nothing when it runs."""
        if number in self.controllers or number in self.brokers:
            return
        if number in self.controller_ids:
            self.controllers[number] = self._controller(number)
            self.machine(number).start(self._run_controller(number))
        else:
            self.brokers[number] = self._broker(number)
            self.machine(number).start(self._run_broker(number))

    def kill(self, number: int) -> None:
        """SIGKILL; the end of a process also gives up its file locks."""
        self.machine(number).kill()
        self.controllers.pop(number, None)
        broker = self.brokers.pop(number, None)
        if broker is not None and broker._replicas is not None:
            broker._replicas.abandon()

    async def stop(self, broker_id: int) -> None:
        """Controlled shutdown."""
        broker = self.brokers.pop(broker_id)
        await self.machine(broker_id).run(broker.stop())
        self.machine(broker_id).kill()

    def machine(self, number: int) -> Machine:
        kind = "controller" if number in self.controller_ids else "broker"
        return self.world.machine(f"{kind}-{number}")

    def _controller(self, number: int) -> Controller:
        machine = self.machine(number)
        surroundings = ControllerWorld(
            clock=machine.clock,
            network=machine.network,
            connector=machine.connector(session_timeout_ms=int(SETTINGS["zookeeper.session.timeout.ms"])),
            chance=machine.chance,
        )
        identity = Identity(
            controller_id=BrokerId(number), listeners=(NodeListener(host=machine.name, port=CONTROLLER_PORT),)
        )
        return Controller(
            identity, controller_config.parse(SETTINGS), surroundings, structlog.get_logger(), given=SETTINGS
        )

    def _broker(self, number: int) -> Broker:
        machine = self.machine(number)
        identity = BrokerIdentity(
            broker_id=BrokerId(number),
            listeners=(NodeListener(host=machine.name, port=BROKER_PORT),),
            log_dirs=(self.folder / machine.name,),
            trace_dir=self.folder / "trace",
        )
        return Broker(
            identity,
            BrokerSettings.parse(SETTINGS),
            clock=machine.clock,
            network=machine.network,
            zookeeper=machine.connector(session_timeout_ms=int(SETTINGS["zookeeper.session.timeout.ms"])),
            chance=machine.chance,
            log=structlog.get_logger(),
        )

    async def _run_controller(self, number: int) -> None:
        """With a supervisor: what cannot start (ZooKeeper is out of reach) is started again."""
        while True:
            try:
                await self.controllers[number].start()
                break
            except ZkUnreachable:
                await asyncio.sleep(1)
                self.controllers[number] = self._controller(number)
        await asyncio.Event().wait()

    async def _run_broker(self, number: int) -> None:
        """With a supervisor: a broker is refused while the session of its predecessor lives."""
        while True:
            try:
                await self.brokers[number].start()
                break
            except StartRefused:
                await asyncio.sleep(1)
                self.brokers[number] = self._broker(number)
        await self.brokers[number].wait_halted()

    @contextmanager
    def logging(self) -> Iterator[None]:
        """Collects every log line, with its virtual time and without paths of this run."""

        def collect(_: object, method: str, event: MutableMapping[str, Any]) -> Any:
            text = json.dumps(event, sort_keys=True, default=str).replace(str(self.folder), "")
            self.lines.append(f"{self.world.loop.time():.6f} {method} {text}")
            raise structlog.DropEvent

        before = structlog.get_config()
        structlog.configure(processors=[collect], cache_logger_on_first_use=False)
        try:
            yield
        finally:
            structlog.configure(**before)

    # -- what ZooKeeper says ---------------------------------------------------------------------------------------

    def znode(self, path: str) -> Any:
        """The JSON in a znode, None when there is none."""
        found = self.world.zookeeper.tree.get(path)
        return json.loads(found.payload) if found is not None and found.payload else None

    def children(self, path: str) -> list[str]:
        found = self.world.zookeeper.tree.get(path)
        return sorted(found.children) if found is not None else []

    def registered(self) -> set[int]:
        return set(map(int, self.children("/brokers/ids")))

    def active_controller(self) -> int | None:
        found = self.znode("/controller")
        return found["brokerid"] if found else None

    def partitions(self) -> list[tuple[str, int]]:
        return [
            (topic, int(number))
            for topic in self.children("/brokers/topics")
            for number in (self.znode(f"/brokers/topics/{topic}") or {"partitions": {}})["partitions"]
        ]

    def state(self, topic: str, partition: int) -> Any:
        return self.znode(f"/brokers/topics/{topic}/partitions/{partition}/state")

    def assignment(self, topic: str, partition: int) -> list[int]:
        found: list[int] = self.znode(f"/brokers/topics/{topic}")["partitions"][str(partition)]
        return found

    def healthy(self) -> bool:
        """All brokers are there, and each partition has all replicas in sync and a leader among them."""
        return self.registered() == set(self.broker_ids) and all(
            (state := self.state(*tp)) is not None
            and set(state["isr"]) == set(self.assignment(*tp))
            and state["leader"] in state["isr"]
            for tp in self.partitions()
        )

    # -- the client ------------------------------------------------------------------------------------------------

    async def call(self, number: int, api_key: ApiKey, version: int, body: Mapping[str, Any]) -> Any:
        """One request to one broker or controller, on a connection of its own. Raises OSError."""
        port = CONTROLLER_PORT if number in self.controller_ids else BROKER_PORT
        network = self.world.machine("client").network
        connection = await BrokerConnection.open(
            network, self.machine(number).name, port, client_id="sim", timeout_s=10
        )
        try:
            return await connection.call(api_key, version, body, timeout_s=15)
        finally:
            connection.close()

    async def ask_controller(self, api_key: ApiKey, version: int, body: Mapping[str, Any]) -> Any:
        """Asks whoever is the controller, until one answers as the controller."""
        for _ in range(120):
            active = self.active_controller()
            if active is not None:
                try:
                    return await self.call(active, api_key, version, body)
                except (OSError, ProtocolError):
                    pass
            await self.world.sleep(0.5)
        raise AssertionError(f"no controller answers {api_key.name}")

    async def create_topic(self, topic: str, assignments: Sequence[Sequence[int]]) -> None:
        """Asks for the topic until it is there."""
        rows = [{"partition_index": n, "broker_ids": list(ids)} for n, ids in enumerate(assignments)]
        wanted = {"name": topic, "num_partitions": -1, "replication_factor": -1, "assignments": rows, "configs": []}
        body = {"topics": [wanted], "timeout": 10_000, "validate_only": False}
        for _ in range(20):
            answer = await self.ask_controller(ApiKey.CREATE_TOPICS, 4, body)
            if answer.topics[0].error_code in (0, 36):
                return
            await self.world.sleep(1)
        raise AssertionError(f"topic {topic} is not created: {answer.topics[0]}")

    async def ask_once(self, api_key: ApiKey, version: int, body: Mapping[str, Any]) -> str:
        """Asks the controller of this moment, if any; how that went, in a word."""
        active = self.active_controller()
        if active is None:
            return "nobody to ask"
        try:
            await self.call(active, api_key, version, body)
        except (OSError, ProtocolError) as error:
            return type(error).__name__
        return "answered"

    async def produce(self, topic: str, partition: int, value: bytes) -> bool:
        """One record with acks=all to the leader that ZooKeeper names; whether it was acknowledged."""
        state = self.state(topic, partition)
        if state is None or state["leader"] not in self.broker_ids:
            return False
        batch = build_values([(None, value)], timestamp=self.world.clock.now_ms())
        body = {
            "acks": -1,
            "timeout": 5_000,
            "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}],
        }
        try:
            answer = await self.call(state["leader"], ApiKey.PRODUCE, 8, body)
        except (OSError, ProtocolError):
            return False
        if answer.responses[0].partition_responses[0].error_code != 0:
            return False
        self.acked.setdefault((topic, partition), []).append(value)
        return True

    async def keep_producing(self, topic: str, partitions: int, *, every_s: float = 0.3) -> None:
        """A program for the client machine."""
        number = 0
        while True:
            await self.produce(topic, number % partitions, b"%06d" % number)
            number += 1
            await asyncio.sleep(every_s)

    async def read(self, topic: str, partition: int) -> list[bytes]:
        """All committed values of a partition, from its leader."""
        values: list[bytes] = []
        offset = 0
        while True:
            rows = [{"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]
            body = {
                "replica_id": -1,
                "max_wait": 0,
                "min_bytes": 0,
                "max_bytes": 1 << 20,
                "session_epoch": -1,
                "topics": [{"topic": topic, "partitions": rows}],
            }
            answer = await self.call(self.state(topic, partition)["leader"], ApiKey.FETCH, 11, body)
            found = answer.responses[0].partitions[0]
            assert found.error_code == 0, f"fetch of {topic}-{partition}: error {found.error_code}"
            records = [record for record in iterate(bytes(found.records or b"")) if record.offset >= offset]
            if not records:
                return values
            values += [record.value or b"" for record in records]
            offset = records[-1].offset + 1

    # -- checks ----------------------------------------------------------------------------------------------------

    async def sleep(self, seconds: float) -> None:
        """Lets time pass, then checks everything that must hold at any time."""
        await self.world.sleep(seconds)
        self.invariants.raise_if_broken()
        self.check_brokers()

    def check_brokers(self) -> None:
        """No broker was told more than ZooKeeper says: a request goes out only after the write that it announces."""
        for broker_id, broker in self.brokers.items():
            for tp, replica in broker._replicas._table.partitions.items() if broker._replicas else ():
                state = self.state(tp.topic, tp.partition)
                if state is None or tp.topic in self.deletable:
                    continue
                told = f"broker {broker_id} has {tp} leader {replica.leader} epoch {replica.leader_epoch}; {state}"
                assert replica.leader_epoch <= state["leader_epoch"], told
                same = replica.leader_epoch == state["leader_epoch"]
                assert not (same and replica.led is not None and state["leader"] != broker_id), told

    async def until(self, condition: Callable[[], bool], *, within_s: float, what: str) -> None:
        await self.world.until(condition, within_s=within_s, what=what)
        self.invariants.raise_if_broken()

    async def heal(self) -> None:
        """Ends all faults, starts what is down, and waits until the cluster is whole again."""
        self.world.heal()
        for number in (*self.controller_ids, *self.broker_ids):
            self.start_one(number)
        await self.sleep(2 * int(SETTINGS["zookeeper.session.timeout.ms"]) / 1000)  # sessions of the dead are gone
        for _ in range(60):
            if self.healthy() and not self.children("/admin/delete_topics"):
                return
            await self.sleep(5)
        raise AssertionError(f"the cluster does not come right: {self.ill()}")

    def ill(self) -> str:
        """What is not as it should be."""
        states = {f"{tp[0]}-{tp[1]}": self.state(*tp) for tp in self.partitions()}
        return f"registered {sorted(self.registered())}, controller {self.active_controller()}, {states}"

    async def check_nothing_acknowledged_is_lost(self) -> None:
        """Each acknowledged record can be read; a leader of this moment may need a while to know what is committed."""
        for tp, values in sorted(self.acked.items()):
            lost: list[bytes] = values
            for _ in range(COMMIT_S):
                there = set(await self.read(*tp))
                lost = [value for value in values if value not in there]
                if not lost:
                    break
                await self.sleep(1)
            assert not lost, f"{tp}: {len(lost)} of {len(values)} acknowledged records lost: {lost[:5]}; {self.ill()}"


def play(seed: int, folder: Path, scenario: Callable[[Cluster], Coroutine[Any, Any, None]], **shape: int) -> Cluster:
    """Plays a scenario on a cluster of that shape to its end, and kills what still runs."""

    async def run(world: World) -> Cluster:
        cluster = Cluster(world, folder, **shape)
        with cluster.logging():
            try:
                await scenario(cluster)
            finally:
                for number in (*cluster.brokers, *cluster.controllers):
                    cluster.kill(number)
        return cluster

    return run_world(seed, run)
