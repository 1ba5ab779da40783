"""A cluster on virtual time: the real controllers, fluid brokers, and ZooKeeper with what the cluster file says in it.

One event loop whose time jumps to the next thing that happens; one seed gives one run.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import structlog

from broker_sim.fluid.broker import FluidBroker
from broker_sim.fluid.broker import Machine as BrokerMachine
from broker_sim.fluid.clients import Clients
from broker_sim.fluid.copies import Copy
from broker_sim.fluid.fetching import Fetching
from broker_sim.fluid.limits import UNLIMITED, Limits
from broker_sim.fluid.plane import DataPlane
from broker_sim.fluid.retention import limit_bytes
from broker_sim.metadata_decoding import MetadataDecoder
from broker_sim.registration import RegistrationRefused
from controller.node import config as controller_config
from controller.node.process import Controller, Identity
from controller.node.process import World as ControllerWorld
from controller.rehearse.control_to_brokers import ControlToBrokers
from controller.rehearse.endings import first_of
from controller.rehearse.exposure import Exposure
from controller.rehearse.faults_in_force import KRAFT, FaultsInForce
from controller.rehearse.ledger import Ledger
from controller.rehearse.risk import Risk
from controller.rehearse.scenario import AddBroker, Scenario
from controller.rules.configs.listeners import NodeListener
from controller.wire.types import BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition, settled
from controller.wire.zk_operations import Create, WatchEvent, WatchKind, ZkUnreachable
from controller.wire.znodes import (
    PERSISTENT_PATHS,
    ConfigEntityZNode,
    ControllerZNode,
    TopicAssignment,
    TopicPartitionStateZNode,
    TopicZNode,
)
from controller.world.simulated.world import World

BROKER_PORT: Final = 9092
CONTROLLER_PORT: Final = 9090
#: Controllers have ids from here on, or above those of all brokers.
_ABOVE: Final = 900_001
#: How long a whole cluster may take to start, virtual seconds.
START_WITHIN_S: Final = 600.0
#: How often an operator looks whether a batch, a restart or a move is done, virtual seconds.
LOOK_S: Final = 1.0
#: `log.retention.check.interval.ms`
RETENTION_CHECK_S: Final = 300.0
#: KRaft fences a broker that was not heard of for so long (`broker.session.timeout.ms`); ZooKeeper waits 18 s.
KRAFT_SESSION_MS: Final = 9_000


class Stage:
    """Everything that runs. `ledger` is kept as znodes change; times in it are ms since `begin`."""

    def __init__(
        self, world: World, scenario: Scenario, *, trace_dir: Path | None, ledger: Ledger, log: Any = None
    ) -> None:
        self.world, self.scenario, self.ledger = world, scenario, ledger
        self._log = log or structlog.get_logger()
        self._trace_dir, self.trace_failures = trace_dir, list[OSError]()
        shape = scenario.cluster
        self.racks: dict[BrokerId, str | None] = {BrokerId(b.id): b.rack for b in shape.brokers}
        added = {BrokerId(event.id): event.rack for event in scenario.events if isinstance(event, AddBroker)}
        self.exposure = Exposure({**self.racks, **added})
        ids = [*self.racks, *added]
        self.properties = self._properties()
        fetching = Fetching.of(self.properties, batch_bytes=scenario.batch_bytes)
        self.plane = DataPlane(ids, on_change=self._copy_changed, fetching=fetching, acks_all=scenario.acks == "all")
        self.clients = Clients(lambda: self.plane.now_s, self._rates_changed)
        self.brokers: dict[BrokerId, FluidBroker] = {}
        self.disks: dict[BrokerId, dict[TopicPartition, float]] = {broker: {} for broker in ids}
        self.risk = Risk(self.plane, self.disks)
        self.controllers: dict[int, Controller] = {}
        self.machine_limits: dict[BrokerId, Limits] = {}
        self.faults = FaultsInForce(world, self.brokers, self.racks, mode=shape.mode)
        self._decoder = MetadataDecoder()
        self._control = ControlToBrokers(self.brokers, self._decoder)
        self._registers_ms: dict[BrokerId, int] = {}
        self._began_ms = world.clock.now_ms()
        self.began_s = 0.0

    def _properties(self) -> dict[str, str]:
        shape = self.scenario.cluster
        given = {**shape.configs, **self.scenario.settings}
        if shape.mode == KRAFT:
            given["zookeeper.session.timeout.ms"] = given.get("broker.session.timeout.ms", str(KRAFT_SESSION_MS))
        return given

    def now_ms(self) -> int:
        """Since the rehearsal began."""
        return self.world.clock.now_ms() - self._began_ms

    # -- before anything runs --------------------------------------------------------------------------------------

    def load(self) -> None:
        """Puts the cluster file into ZooKeeper and onto the brokers' disks."""
        for path in dict.fromkeys(prefix for standard in PERSISTENT_PATHS for prefix in _prefixes(standard)):
            self._put(path, None)
        for name, topic in self.scenario.cluster.topics.items():
            self._load_topic(name, topic.partitions, topic.configs)
            if topic.configs:
                self._put(ConfigEntityZNode.topic(name), ConfigEntityZNode.encode(topic.configs))
        for broker in self.scenario.cluster.brokers:
            if broker.configs:
                self._put(ConfigEntityZNode.broker(broker.id), ConfigEntityZNode.encode(broker.configs))
            self.set_machine(BrokerId(broker.id), link=broker.link_bytes_per_s, disk=broker.disk_bytes_per_s)
        self.world.zookeeper.on_commit.append(self._committed)

    def set_machine(self, broker: BrokerId, *, link: float | None, disk: float | None) -> None:
        """What its machine lets through; None: what the scenario says for all."""
        limits, before = self.scenario.limits, self.plane.limits(broker)
        machine = Limits(
            link=link or limits.link or UNLIMITED,
            disk=disk or limits.disk or UNLIMITED,
            leader_throttle=before.leader_throttle,
            follower_throttle=before.follower_throttle,
        )
        self.machine_limits[broker] = machine
        self.plane.set_limits(broker, machine)

    def _load_topic(self, name: str, partitions: Sequence[Any], configs: Mapping[str, str]) -> None:
        assignments: dict[int, ReplicaAssignment] = {}
        for number, shape in enumerate(partitions):
            assignments[number] = (
                ReplicaAssignment(
                    replicas=shape.replicas,
                    adding_replicas=shape.adding_replicas,
                    removing_replicas=shape.removing_replicas,
                )
                if shape.adding_replicas or shape.removing_replicas
                else settled(shape.replicas)
            )
            topic_partition = TopicPartition(name, number)
            for replica in shape.replicas:
                in_sync = replica in shape.in_sync
                size = float(shape.bytes) if in_sync else 0.0
                self.disks[BrokerId(replica)][topic_partition] = size
                self.plane.note_disk(BrokerId(replica), size)
            self.plane.retention.limits[topic_partition] = limit_bytes(
                configs, self.properties, size=float(shape.bytes), in_bytes_per_s=shape.in_bytes_per_s
            )
            self.clients.expect(
                topic_partition, in_bytes_per_s=shape.in_bytes_per_s, out_bytes_per_s=shape.out_bytes_per_s
            )
        path = TopicZNode.path(name)
        self._put(path, TopicZNode.encode(TopicAssignment(partitions=assignments)))
        self._put(f"{path}/partitions", None)
        for number, shape in enumerate(partitions):
            topic_partition = TopicPartition(name, number)
            state = LeaderAndIsr(
                leader=shape.leader_id, isr=tuple(shape.in_sync), leader_epoch=shape.leader_epoch, controller_epoch=0
            )
            self._put(f"{path}/partitions/{number}", None)
            self._put(TopicPartitionStateZNode.path(topic_partition), TopicPartitionStateZNode.encode(state))
            self.ledger.assigned(topic_partition, assignments[number], 0)
            self._decided(topic_partition, state, 0)

    def _put(self, path: str, data: bytes | None) -> None:
        """Before anything watches. One that exists is there already."""
        self.world.zookeeper.tree.write(Create(path, data), session=0, now_ms=self.world.clock.now_ms())

    # -- programs --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Brokers, then controllers; returns when every partition that has a leader is led, and time begins anew."""
        for broker in self.scenario.cluster.brokers:
            self.start_broker(BrokerId(broker.id))
        ids = {BrokerId(broker.id) for broker in self.scenario.cluster.brokers}
        await self.until(lambda: self.registered() >= ids, "all brokers to register")
        first = max(_ABOVE, *(broker + 1 for broker in self.disks))
        for number in range(first, first + self.scenario.controllers):
            self.start_controller(number)
        await self.until(self._all_led, "all leaders to lead")
        self._began_ms = self.world.clock.now_ms()
        self.clients.begin()
        self.ledger.begin()
        self.risk.begin()
        self.exposure.begin()
        self.plane.begin()
        self.began_s = self.plane.now_s
        self._check_retention()

    def _check_retention(self) -> None:
        self.plane.check_retention()
        asyncio.get_running_loop().call_later(RETENTION_CHECK_S, self._check_retention)

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits for something that the start needs."""
        await self.world.until(condition, within_s=START_WITHIN_S, every_s=0.25, what=what)

    async def holds(self, condition: Callable[[], bool], *, until_ms: float = math.inf) -> bool:
        """Looks once a second, as an operator does, until the condition holds or it is that late; whether it holds."""
        while not condition() and self.now_ms() < until_ms:  # noqa: ASYNC110  a look is what an operator takes
            await asyncio.sleep(LOOK_S)
        return condition()

    def _all_led(self) -> bool:
        expected = sum(1 for _, shape in self.scenario.cluster.partitions() if shape.leader_id is not None)
        return sum(1 for _ in self.plane.streams()) >= expected

    def registered(self) -> set[BrokerId]:
        """Brokers that have a registration."""
        return {BrokerId(int(name)) for name in self._children("/brokers/ids")}

    def someone_starts(self) -> bool:
        """Whether a broker's process works that has not come to its registration."""
        now_ms = self.now_ms()
        return any(broker in self.brokers and at_ms > now_ms for broker, at_ms in self._registers_ms.items())

    def _children(self, path: str) -> list[str]:
        found = self.world.zookeeper.tree.get(path)
        return sorted(found.children) if found is not None else []

    def start_broker(self, broker_id: BrokerId, *, after_ms: int = 0) -> None:
        """Starts a broker that is down; its process works for so long before it registers."""
        if broker_id not in self.brokers:
            self.brokers[broker_id] = self._broker(broker_id)
            self._registers_ms[broker_id] = self.now_ms() + after_ms
            self.world.machine(f"broker-{broker_id}").start(self._run_broker(broker_id, after_ms / 1000))

    def _session_ms(self) -> int:
        return int(self.properties.get("zookeeper.session.timeout.ms", "18000"))

    def _broker(self, broker_id: BrokerId) -> FluidBroker:
        machine = self.world.machine(f"broker-{broker_id}")
        broker = FluidBroker(
            broker_id,
            BrokerMachine(
                name=machine.name,
                clock=machine.clock,
                network=machine.network,
                zookeeper=machine.connector(session_timeout_ms=self._session_ms()),
                chance=machine.chance,
            ),
            port=BROKER_PORT,
            rack=self.racks.get(broker_id),
            properties=self.properties,
            plane=self.plane,
            clients=self.clients,
            disk=self.disks[broker_id],
            decoder=self._decoder,
            links=self.faults.links,
            acks_all=self.scenario.acks == "all",
            trace_dir=self._trace_dir,
            log=self._log,
        )
        broker.trace.on_failure = self.trace_failures.append
        broker.set_faults(self.faults.rows)
        return broker

    async def _run_broker(self, broker_id: BrokerId, after_s: float) -> None:
        """With a supervisor: it is refused while the session of its predecessor lives."""
        await asyncio.sleep(after_s)
        while True:
            try:
                await self.brokers[broker_id].start()
                break
            except (RegistrationRefused, ZkUnreachable):
                await asyncio.sleep(1)
                self.brokers[broker_id] = self._broker(broker_id)
        await asyncio.Event().wait()

    def kill_broker(self, broker_id: BrokerId) -> None:
        """SIGKILL."""
        if broker_id in self.brokers:
            self._end_process(broker_id).vanish()

    def _end_process(self, broker_id: BrokerId) -> FluidBroker:
        self.world.machine(f"broker-{broker_id}").kill()
        self.brokers[broker_id].killed.set()
        return self.brokers.pop(broker_id)

    async def stop_broker(self, broker_id: BrokerId) -> None:
        """Controlled shutdown; returns when its process has ended."""
        if (broker := self.brokers.get(broker_id)) is not None:
            asked_ms = self.now_ms()
            await first_of(self.world.machine(f"broker-{broker_id}").run(broker.stop()), broker.killed.wait())
            await asyncio.sleep(max(0, asked_ms + self.scenario.broker_stop - self.now_ms()) / 1000)
            if self.brokers.get(broker_id) is broker:  # and not its successor
                self._end_process(broker_id)

    def expire_sessions(self, brokers: Sequence[BrokerId]) -> None:
        """As if ZooKeeper had not heard of them for long; they open others and register again."""
        machines = {f"broker-{broker_id}" for broker_id in brokers}
        for session_id, machine in sorted(self.world.zookeeper.sessions.items()):
            if machine in machines:
                self.world.zookeeper.expire_session(session_id)

    def start_controller(self, number: int) -> None:
        """Starts a controller that is down."""
        if number in self.controllers:
            return
        machine = self.world.machine(f"controller-{number}")
        world = ControllerWorld(
            clock=machine.clock,
            network=machine.network,
            connector=machine.connector(session_timeout_ms=self._session_ms()),
            chance=machine.chance,
            at_once=self._control.takes_at_once,
            shorten=self._control.shortened,
        )
        listener = NodeListener(host=machine.name, port=CONTROLLER_PORT)
        self.controllers[number] = Controller(
            Identity(controller_id=BrokerId(number), listeners=(listener,)),
            controller_config.parse(self.properties),
            world,
            self._log,
            given=self.properties,
        )
        machine.start(self._run_controller(number))

    async def _run_controller(self, number: int) -> None:
        await self.controllers[number].start()
        await asyncio.Event().wait()

    def kill_controller(self, number: int) -> None:
        """SIGKILL."""
        if self.controllers.pop(number, None) is not None:
            self.world.machine(f"controller-{number}").kill()

    def active_controller(self) -> int | None:
        """Who holds the office, as ZooKeeper says."""
        found = self.world.zookeeper.tree.get(ControllerZNode.path)
        return ControllerZNode.decode(found.payload) if found is not None else None

    # -- what is seen ----------------------------------------------------------------------------------------------

    def _committed(self, events: Sequence[WatchEvent]) -> None:
        for event in events:
            parts = event.path.split("/")
            if len(parts) < 4 or parts[1:3] != ["brokers", "topics"]:
                continue
            if len(parts) == 4:
                self._topic_changed(parts[3], event.kind)
            elif len(parts) == 7 and parts[6] == "state":
                self._state_changed(TopicPartition(parts[3], int(parts[5])))

    def _topic_changed(self, topic: str, kind: WatchKind) -> None:
        znode = self.world.zookeeper.tree.get(TopicZNode.path(topic))
        if znode is None or kind is WatchKind.CHILDREN_CHANGED:
            return
        for number, assignment in TopicZNode.decode(znode.payload).partitions.items():
            topic_partition = TopicPartition(topic, number)
            if self.ledger.partition(topic_partition)[1] != assignment:
                self.ledger.assigned(topic_partition, assignment, self.now_ms())

    def _state_changed(self, topic_partition: TopicPartition) -> None:
        znode = self.world.zookeeper.tree.get(TopicPartitionStateZNode.path(topic_partition))
        if znode is None:
            self.ledger.deleted(topic_partition, self.now_ms())
            self.exposure.decided(topic_partition, None, 0, self.now_ms())
            return
        state = TopicPartitionStateZNode.decode(znode.payload, znode.version)
        if state is not None:
            self._decided(topic_partition, state, self.now_ms())

    def _decided(self, topic_partition: TopicPartition, state: LeaderAndIsr, at_ms: int) -> None:
        self.ledger.decided(topic_partition, state, at_ms)
        assignment = self.ledger.partition(topic_partition)[1]
        self.risk.decided(topic_partition, state, assignment)
        self.exposure.decided(topic_partition, state, self.ledger.min_isr_of(topic_partition, assignment), at_ms)

    def _copy_changed(self, copy: Copy) -> None:
        leader = self.brokers.get(copy.leader)
        if leader is not None:
            self.world.machine(f"broker-{copy.leader}").call(leader.replicas.copy_changed, copy)

    def _rates_changed(self, topic_partition: TopicPartition, ingress: float, egress: float) -> None:
        self.plane.set_rates(topic_partition, ingress=ingress, egress=egress)


def _prefixes(path: str) -> list[str]:
    parts = path.strip("/").split("/")
    return ["/" + "/".join(parts[: n + 1]) for n in range(len(parts))]
