"""A cluster of real brokers in a simulated world, whose controller is the test."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import structlog

from broker_sim.broker import Broker
from broker_sim.config import BrokerSettings
from broker_sim.identity import BrokerIdentity
from controller.rules.configs.listeners import NodeListener
from controller.wire import control_bytes
from controller.wire.control import (
    LeaderAndIsrEntry,
    LeaderAndIsrRequest,
    StopReplicaEntry,
    StopReplicaRequest,
    UpdateMetadataEntry,
    UpdateMetadataRequest,
)
from controller.wire.protocol import ApiKey
from controller.wire.types import Broker as RegisteredBroker
from controller.wire.types import BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition
from controller.wire.zk_operations import Create
from controller.wire.znodes import TopicPartitionStateZNode
from controller.world.client import BrokerConnection
from controller.world.simulated.world import Machine, World

T = TypeVar("T")
CONTROLLER = BrokerId(100)


class BrokerCluster:
    """Starts brokers and plays their controller."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world, self.folder = world, folder
        self.brokers: dict[int, Broker] = {}
        self.client = world.machine("client")
        self.controller_epoch = 1
        #: where brokers that are made from now on write their traces; None: nowhere.
        self.trace_dir: Path | None = None
        self.connections: dict[int, BrokerConnection] = {}

    def make(
        self,
        broker_id: int,
        *,
        dirs: int = 1,
        binds: Sequence[NodeListener] = (),
        inter_broker_listener: str = "PLAINTEXT",
        rack: str | None = None,
        properties: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> Broker:
        machine = self.machine(broker_id)
        identity = BrokerIdentity(
            broker_id=BrokerId(broker_id),
            listeners=tuple(binds) or (NodeListener(host=f"broker-{broker_id}", port=9092),),
            inter_broker_listener=inter_broker_listener,
            log_dirs=tuple(self.folder / f"broker-{broker_id}-{n}" for n in range(dirs)),
            trace_dir=self.trace_dir,
            rack=rack,
        )
        return Broker(
            identity,
            BrokerSettings(**settings) if properties is None else BrokerSettings.parse(properties),
            clock=machine.clock,
            network=machine.network,
            zookeeper=machine.connector(),
            chance=machine.chance,
            log=structlog.get_logger(),
        )

    def machine(self, broker_id: int) -> Machine:
        return self.world.machine(f"broker-{broker_id}")

    async def start(self, broker_id: int, **settings: Any) -> Broker:
        broker = self.make(broker_id, **settings)
        started = asyncio.Event()

        async def program() -> None:
            await broker.start()
            started.set()
            await asyncio.Event().wait()

        self.machine(broker_id).start(program())
        await self.world.until(started.is_set, within_s=30, what=f"broker {broker_id} started")
        self.brokers[broker_id] = broker
        return broker

    async def in_broker(self, broker_id: int, work: Coroutine[Any, Any, T]) -> T:
        return await self.machine(broker_id).run(work)

    async def connect(self, broker_id: int, client_id: str = "test") -> BrokerConnection:
        endpoint = self.brokers[broker_id].endpoint
        return await BrokerConnection.open(self.client.network, endpoint.host, endpoint.port, client_id=client_id)

    async def call(self, broker_id: int, api_key: int, version: int, body: Mapping[str, Any] | bytes) -> Any:
        connection = self.connections.get(broker_id)
        if connection is None or not connection.is_open:
            connection = self.connections[broker_id] = await self.connect(broker_id)
        return await connection.call(api_key, version, body)

    # -- the controller ------------------------------------------------------------------------------------------

    def registered(self) -> tuple[RegisteredBroker, ...]:
        return tuple(
            RegisteredBroker(broker_id=BrokerId(i), endpoints=b.endpoints) for i, b in sorted(self.brokers.items())
        )

    def epochs(self, broker_id: int, **overrides: Any) -> dict[str, Any]:
        return {
            "to": BrokerId(broker_id),
            "controller_id": CONTROLLER,
            "controller_epoch": self.controller_epoch,
            "broker_epoch": self.brokers[broker_id].context.registration.broker_epoch,
            **overrides,
        }

    async def update_metadata(
        self,
        broker_id: int,
        entries: Sequence[UpdateMetadataEntry] = (),
        live_brokers: tuple[RegisteredBroker, ...] | None = None,
        **overrides: Any,
    ) -> Any:
        request = UpdateMetadataRequest(
            partition_states=tuple(entries),
            live_brokers=self.registered() if live_brokers is None else live_brokers,
            **self.epochs(broker_id, **overrides),
        )
        return await self.call(broker_id, ApiKey.UPDATE_METADATA, 6, control_bytes.encode(request))

    async def leader_and_isr(self, broker_id: int, entries: Sequence[LeaderAndIsrEntry], **overrides: Any) -> Any:
        request = LeaderAndIsrRequest(
            partition_states=tuple(entries), live_leaders=self.registered(), **self.epochs(broker_id, **overrides)
        )
        return await self.call(broker_id, ApiKey.LEADER_AND_ISR, 4, control_bytes.encode(request))

    async def stop_replica(self, broker_id: int, entries: Sequence[StopReplicaEntry], **overrides: Any) -> Any:
        request = StopReplicaRequest(partition_states=tuple(entries), **self.epochs(broker_id, **overrides))
        return await self.call(broker_id, ApiKey.STOP_REPLICA, 3, control_bytes.encode(request))

    async def create_topic(
        self, topic: str, assignments: Sequence[Sequence[int]], *, leader_epoch: int = 0, is_new: bool = True
    ) -> None:
        """All replicas in sync, the first of each partition leads: state znodes, then both requests to all brokers."""
        states = {
            TopicPartition(topic, n): LeaderAndIsr(
                leader=BrokerId(replicas[0]),
                isr=tuple(map(BrokerId, replicas)),
                leader_epoch=leader_epoch,
                controller_epoch=self.controller_epoch,
            )
            for n, replicas in enumerate(assignments)
        }
        first = next(iter(self.brokers.values()))
        if is_new:
            zk = first.zk
            paths = [f"/brokers/topics/{topic}", f"/brokers/topics/{topic}/partitions"]
            ops = [Create(path) for path in paths]
            for tp, state in states.items():
                ops += [
                    Create(TopicPartitionStateZNode.path(tp).removesuffix("/state")),
                    Create(TopicPartitionStateZNode.path(tp), TopicPartitionStateZNode.encode(state)),
                ]
            await self.in_broker(first.broker_id, zk.perform(ops))
        metadata = [
            UpdateMetadataEntry(topic_partition=tp, state=state, replicas=state.isr) for tp, state in states.items()
        ]
        for broker_id in self.brokers:
            await self.update_metadata(broker_id, metadata)
        for broker_id in self.brokers:
            entries = [
                LeaderAndIsrEntry(
                    topic_partition=tp,
                    state=state,
                    assignment=ReplicaAssignment(replicas=state.isr),
                    is_new=is_new,
                )
                for tp, state in states.items()
                if broker_id in state.isr
            ]
            answer = await self.leader_and_isr(broker_id, entries)
            assert answer.error_code == 0
            assert [p.error_code for p in answer.partition_errors] == [0] * len(entries)
