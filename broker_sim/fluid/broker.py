"""One fluid broker: it registers, obeys the controller, follows configs, writes ISRs and shuts down as a broker does.

Put together from a live broker's parts (ZooKeeper client, registration, socket server, control requests, dynamic
configs, controlled shutdown, ISR writes); only its replicas are others. It answers what the controller asks and nothing
else: clients are rates (`clients`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from broker_sim.apis import control
from broker_sim.config import BrokerSettings
from broker_sim.config_store import ConfigStore, DynamicConfigs
from broker_sim.faults.board import FaultBoard
from broker_sim.faults.links import FaultyNetwork
from broker_sim.fluid.clients import Clients
from broker_sim.fluid.links import Links
from broker_sim.fluid.plane import DataPlane
from broker_sim.fluid.replicas import FluidReplicas
from broker_sim.fluid.settings import FluidSettings
from broker_sim.metadata_cache import MetadataCache
from broker_sim.metadata_decoding import MetadataDecoder
from broker_sim.postponed import PostponedPartitions
from broker_sim.registration import ControllerKind, Registration, RegistrationRefused
from broker_sim.replicas.isr_writer import ZkIsrWriter
from broker_sim.server import Api, SocketServer
from broker_sim.server_limits import ServerLimits
from broker_sim.shutdown import ControlledShutdown
from broker_sim.trace import TraceWriter
from broker_sim.zk_client import ZkClient
from controller.wire.control import UpdateMetadataRequest
from controller.wire.fault_rows import Fault, PauseReplication
from controller.wire.protocol import ApiKey
from controller.wire.types import NO_BROKER_EPOCH, Broker, BrokerId, Endpoint, TopicPartition
from controller.world.ports import Clock, Network, ZkConnector
from controller.world.standard_znodes import prepare_cluster
from controller.world.supervisor import Supervisor

#: How many bytes a control request may have: a whole cluster's UpdateMetadata is one request.
REQUEST_MAX_BYTES: Final = 1 << 30


class LiveBrokers(MetadataCache):
    """What a fluid broker remembers of the cluster: who is alive. Partitions would be the same at each of hundreds."""

    _nodes: tuple[Any, ...] = ()

    def update(self, request: UpdateMetadataRequest, *, controller_is_broker: bool) -> tuple[TopicPartition, ...]:
        """Takes the brokers, where they are others; returns the partitions that the request says are being deleted."""
        nodes = (request.controller_id, controller_is_broker, request.live_brokers)
        if nodes != self._nodes:
            self._nodes = nodes
            super().update(replace(request, partition_states=()), controller_is_broker=controller_is_broker)
        return tuple(entry.topic_partition for entry in request.partition_states if entry.being_deleted)

    def is_as(self, controller_id: BrokerId, live_brokers: tuple[Broker, ...]) -> bool:
        """Whether it remembers this very value of the live brokers (`MetadataDecoder.shared_brokers`)."""
        return bool(self._nodes) and self._nodes[0] == controller_id and self._nodes[2] is live_brokers


class _NoGroups:
    def partitions_deleted(self, partitions: Collection[TopicPartition]) -> None:
        """There are no groups."""


@dataclass(slots=True, kw_only=True)
class FluidContext:
    """What `apis.control` needs of a broker."""

    broker_id: BrokerId
    registration: Registration
    controller_kind: ControllerKind
    metadata: MetadataCache
    replicas: FluidReplicas
    configs: DynamicConfigs
    postponed: PostponedPartitions
    log: Any
    groups: _NoGroups = field(default_factory=_NoGroups)
    controller_epoch: int = 0
    control_lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a broker runs on: its clock, network, ZooKeeper and chance."""

    name: str
    clock: Clock
    network: Network
    zookeeper: ZkConnector
    chance: random.Random


class FluidBroker:
    """Start it once; then `stop` it (controlled), or let its machine be killed and call `vanish`.

    Who ends its process sets `killed`: a `stop` that is under way then never returns.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        machine: Machine,
        *,
        port: int,
        rack: str | None,
        properties: Mapping[str, str],
        plane: DataPlane,
        clients: Clients,
        disk: dict[TopicPartition, float],
        decoder: MetadataDecoder,
        links: Links,
        acks_all: bool,
        trace_dir: Path | None,
        log: Any,
    ) -> None:
        """`properties`: settings under Kafka's names; `decoder`, `links`: those of all fluid brokers of the process."""
        self.broker_id, self.rack = broker_id, rack
        self._machine, self._port, self._decoder, self._links = machine, port, decoder, links
        self._settings, self._metadata = BrokerSettings.parse(dict(properties)), LiveBrokers()
        self._log, self.killed = log.bind(broker_id=broker_id), asyncio.Event()
        self._supervisor = Supervisor(self._log)
        self._zk = ZkClient(machine.zookeeper, supervisor=self._supervisor, log=self._log)
        chance = random.Random(machine.chance.random())
        self._faults = FaultBoard(broker_id, chance, clock=machine.clock, log=self._log, rack=rack)
        self._network = FaultyNetwork(machine.network, self._faults, self._metadata.broker_at)
        self.trace = TraceWriter(broker_id, trace_dir, start_ms=machine.clock.now_ms())
        self.replicas = FluidReplicas(
            broker_id,
            FluidSettings(
                replica_lag_time_max_ms=self._settings.replica_lag_time_max_ms,
                min_insync_replicas=self._settings.min_insync_replicas,
                acks_all=acks_all,
                is_paused=self._faults.is_replication_paused,
                links=links,
            ),
            plane=plane,
            disk=disk,
            clients=clients,
            metadata=self._metadata,
            writer=ZkIsrWriter(self._zk, log=self._log),
            trace=self.trace,
            supervisor=self._supervisor,
            clock=machine.clock,
            log=self._log,
        )
        self._faults.subscribe(self._trace_pause, self._trace_pause)
        self._server: SocketServer | None = None
        self._context: FluidContext | None = None

    async def start(self) -> None:
        """Starts in a broker's order (spec broker.md §3). Raises: ZkUnreachable, ZkRefused, RegistrationRefused."""
        await self._zk.open()
        try:
            await self._join()
        except RegistrationRefused:
            await self._leave()
            raise

    async def _join(self) -> None:
        await prepare_cluster(self._zk, self._machine.chance)
        configs = DynamicConfigs(
            self.broker_id,
            ConfigStore(self._zk),
            self._zk,
            self.replicas,
            clock=self._machine.clock,
            supervisor=self._supervisor,
            log=self._log,
        )
        await configs.load_broker()
        await self._listen(configs)
        self.trace.start(self._machine.clock.now_ms(), settings=self._rule_settings())
        self.replicas.leading.isr_updates.start()
        context = self.context
        await context.registration.register()
        self._zk.on_new_session(context.registration.register_again)
        self._zk.on_new_session(configs.look_again)  # before it arms a watch, which a session may take along
        await configs.start()
        assert self._server is not None
        self._server.serve_requests()

    def _rule_settings(self) -> dict[str, str]:
        return {
            "replica.lag.time.max.ms": str(self._settings.replica_lag_time_max_ms),
            "min.insync.replicas": str(self._settings.min_insync_replicas),
        }

    @property
    def context(self) -> FluidContext:
        """Its parts. Only once it listens."""
        assert self._context is not None, "the broker has not been started"
        return self._context

    async def _listen(self, configs: DynamicConfigs) -> None:
        apis: dict[int, Api] = {}
        limits = ServerLimits(
            max_request_bytes=REQUEST_MAX_BYTES, queued_max_request_bytes=-1, idle_ms=-1, max_connections=1 << 20
        )
        self._server = SocketServer(apis, limits=limits, faults=self._faults, log=self._log)
        host, port = await self._server.listen(self._network, self._machine.name, self._port, listener="PLAINTEXT")
        me = Broker(broker_id=self.broker_id, endpoints=(Endpoint(host=host, port=port),), rack=self.rack)
        self._context = context = FluidContext(
            broker_id=self.broker_id,
            registration=Registration(
                self._zk,
                me,
                clock=self._machine.clock,
                log=self._log,
                session_timeout_ms=self._settings.zookeeper_session_timeout_ms,
            ),
            controller_kind=ControllerKind(self._zk),
            metadata=self._metadata,
            replicas=self.replicas,
            configs=configs,
            postponed=PostponedPartitions(lambda: control.host_postponed(self.context), self._supervisor),
            log=self._log,
        )
        apis[ApiKey.LEADER_AND_ISR] = Api(
            handle=partial(control.handle_leader_and_isr, context), versions=control.LEADER_AND_ISR_VERSIONS
        )
        apis[ApiKey.STOP_REPLICA] = Api(
            handle=partial(control.handle_stop_replica, context), versions=control.STOP_REPLICA_VERSIONS
        )
        apis[ApiKey.UPDATE_METADATA] = Api(
            handle=partial(control.handle_update_metadata, context),
            versions=control.UPDATE_METADATA_VERSIONS,
            decode=lambda data: self._decoder.decode(data, self.broker_id),
        )

    def learns_nothing(self, request: UpdateMetadataRequest, live_brokers: tuple[Broker, ...]) -> bool:
        """Whether it would answer this request, of which nothing is being deleted, at once and be as before.

        `live_brokers`: those of the request, as the value that the decoder shares.
        """
        context = self._context
        if context is None or context.control_lock.locked() or self._links.is_cut_off(self.broker_id):
            return False
        is_current = request.broker_epoch in (NO_BROKER_EPOCH, context.registration.broker_epoch)
        is_led_by_it = request.controller_epoch == context.controller_epoch
        return is_current and is_led_by_it and self._metadata.is_as(request.controller_id, live_brokers)

    async def stop(self) -> None:
        """Controlled shutdown, then it closes and leaves ZooKeeper (spec broker.md §4)."""
        if self._context is not None:
            self.trace.shutting_down(self._machine.clock.now_ms())
            epoch: Callable[[], int] = lambda: self.context.registration.broker_epoch  # noqa: E731
            await ControlledShutdown(
                self.broker_id,
                epoch,
                metadata=self._metadata,
                network=self._network,
                settings=self._settings,
                log=self._log,
            ).run()
            await self.context.configs.stop()
        await self._leave()

    async def _leave(self) -> None:
        if self._server is not None:
            await self._server.close()
        self.vanish()
        await self.replicas.leading.isr_updates.stop()
        await self._supervisor.stop()
        await self._zk.close()

    def vanish(self) -> None:
        """Its process is gone: nothing is copied to or from it, what it has stays on its disks."""
        self._faults.close()
        self.replicas.vanish()
        self.trace.close()

    def set_faults(self, rows: Iterable[Fault]) -> None:
        """Has these faults in force, each in its window, and no others; which links are cut has changed with them."""
        self._faults.replace(rows)
        self.replicas.faults_changed()

    def _trace_pause(self, row: Fault) -> None:
        if isinstance(row, PauseReplication) and self._context is not None:
            self.trace.paused_replication(self._machine.clock.now_ms(), self._faults.paused_replication)
