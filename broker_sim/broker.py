"""One simulated broker: puts its parts together, starts them in Kafka's order and stops them in Kafka's order.

Given clock, network, ZooKeeper and chance, it runs in production and in tests on virtual time alike.
Source: spec broker.md §3, §4; Kafka 3.9 `KafkaServer`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from broker_sim.apis.context import BrokerContext
from broker_sim.apis.control import host_postponed
from broker_sim.apis.table import api_table
from broker_sim.config import BrokerSettings
from broker_sim.config_store import ConfigStore, DynamicConfigs
from broker_sim.faults.board import FaultBoard
from broker_sim.faults.links import FaultyNetwork
from broker_sim.forwarding import ControllerForwarding
from broker_sim.groups.coordinator import GroupCoordinator
from broker_sim.identity import BrokerIdentity
from broker_sim.log.checkpoints import cluster_id_of
from broker_sim.log.errors import LogDirsUnusable
from broker_sim.log.files import Files
from broker_sim.metadata_cache import MetadataCache
from broker_sim.metadata_decoding import MetadataDecoder
from broker_sim.metrics.page import broker_page
from broker_sim.postponed import PostponedPartitions
from broker_sim.registration import ControllerKind, Registration, RegistrationRefused
from broker_sim.replicas.fetch_session import FetchSessionCache
from broker_sim.replicas.isr_writer import ZkIsrWriter, notify_log_dir_failure
from broker_sim.replicas.manager import ReplicaManager
from broker_sim.replicas.types import ReplicaHooks
from broker_sim.server import SocketServer
from broker_sim.server_limits import ServerLimits
from broker_sim.shutdown import ControlledShutdown
from broker_sim.strays import StrayReplicas
from broker_sim.topic_creation import TopicCreator, offsets_partitions
from broker_sim.trace import TraceWriter
from broker_sim.zk_client import ZkClient
from controller.wire import log_events as ev
from controller.wire.fault_rows import ExpireSession, FailLogDir, Fault, PauseReplication
from controller.wire.types import Broker as RegisteredBroker
from controller.wire.types import BrokerId, Endpoint, TopicPartition
from controller.wire.zk_operations import ZkRefused, ZkUnreachable
from controller.wire.znodes import ZnodeError
from controller.world.config_notices import Unreadable
from controller.world.metrics_page import MetricsPage
from controller.world.ports import Clock, Network, ZkConnector, ZkSession
from controller.world.producer_ids import ProducerIds
from controller.world.standard_znodes import prepare_cluster
from controller.world.supervisor import Supervisor


class StartRefused(Exception):
    """The broker cannot start as asked. The message is for the operator, one line."""


_START_FAILURES = (ZkUnreachable, ZkRefused, ZnodeError, Unreadable, RegistrationRefused, LogDirsUnusable, OSError)


class Broker:
    """A broker process without the process. Start it once, stop it once."""

    def __init__(
        self,
        identity: BrokerIdentity,
        settings: BrokerSettings,
        *,
        clock: Clock,
        network: Network,
        zookeeper: ZkConnector,
        chance: random.Random,
        log: Any,
        faults: FaultBoard | None = None,
        off_loop: Callable[[Callable[[], None]], Awaitable[None]] | None = None,
        metadata_decoder: MetadataDecoder | None = None,
        files: Files | None = None,
        make_trace: Callable[..., TraceWriter] = TraceWriter,
        make_groups: Callable[..., GroupCoordinator] = GroupCoordinator,
    ) -> None:
        """`faults`: a board that outlives this broker (see `host`); without one it has its own. `files` is the disk.
        `make_trace`, `make_groups` take the arguments of what they make; all brokers of a process share a decoder.
        `off_loop(work)` waits for disks without stopping the event loop (`asyncio.to_thread`); None: on the loop.
        """
        self.identity, self.settings = identity, settings
        self.clock, self._chance, self._off_loop = clock, chance, off_loop
        self.log = log.bind(broker_id=identity.broker_id)
        self._metadata = MetadataCache(inter_broker_listener=identity.inter_broker_listener)
        self._files, self._make_trace, self._make_groups = files, make_trace, make_groups
        self._metadata_decoder = metadata_decoder or MetadataDecoder(kept_requests=0)
        board_chance = random.Random(chance.random())
        self._faults = faults or FaultBoard(
            identity.broker_id, board_chance, clock=clock, log=self.log, rack=identity.rack
        )
        self._network = FaultyNetwork(network, self._faults, self._metadata.broker_at)
        self._unsubscribe = self._faults.subscribe(self._fault_started, self._pause_changed)
        self._supervisor = Supervisor(self.log, halt=lambda reason: self._halt(reason=reason))
        self.zk = ZkClient(zookeeper, supervisor=self._supervisor, log=self.log)
        self._endpoints: tuple[Endpoint, ...] = ()
        self._bound_ports: dict[str, int] = {}
        self._trace: TraceWriter | None = None
        self.replicas: ReplicaManager | None = None
        self._context: BrokerContext | None = None
        self.server: SocketServer | None = None
        self.metrics: MetricsPage | None = None
        self._halted = asyncio.Event()
        self.is_closing = False  # it hands over nothing more

    # -- what others see -----------------------------------------------------------------------------------------

    @property
    def broker_id(self) -> BrokerId:
        """Its id."""
        return self.identity.broker_id

    @property
    def endpoint(self) -> Endpoint:
        """Where other brokers reach it (the real port). Only after `start`."""
        return next(e for e in self.endpoints if e.listener == self.identity.inter_broker_listener)

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """What it tells of its listeners, in their order. Only after `start`."""
        assert self._endpoints, "the broker has not been started"
        return self._endpoints

    @property
    def bound_ports(self) -> Mapping[str, int]:
        """The ports that are really bound, by name of the listener, once started."""
        return self._bound_ports

    @property
    def context(self) -> BrokerContext:
        """Its parts, for tests and gauges. Only after `start`."""
        assert self._context is not None, "the broker has not been started"
        return self._context

    async def wait_halted(self) -> None:
        """Returns once the broker cannot go on because every log dir has failed: whoever runs it then kills it."""
        await self._halted.wait()

    # -- start ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Starts (spec broker.md §3). When it returns the broker is registered and answers requests.

        Raises: StartRefused, with nothing left open.
        """
        try:
            await self._start()
        except BaseException as error:
            await self._close(clean=True)
            if isinstance(error, _START_FAILURES):
                raise StartRefused(f"broker {self.broker_id} cannot start: {error}") from error
            raise

    async def _start(self) -> None:
        await self.zk.open()
        cluster_id = await prepare_cluster(self.zk, self._chance, own=cluster_id_of(self.identity.log_dirs))
        self.replicas = self._make_replicas()
        self.replicas.load_logs(cluster_id=cluster_id)
        store = ConfigStore(self.zk)
        configs = DynamicConfigs(
            self.broker_id,
            store,
            self.zk,
            self.replicas.configs,
            clock=self.clock,
            supervisor=self._supervisor,
            log=self.log,
        )
        await configs.load_broker()
        server, registration = await self._listen(cluster_id, self.replicas, store, configs)
        self.replicas.startup()
        await registration.check_endpoints()
        await registration.register()
        self.zk.on_new_session(registration.register_again)
        self.context.groups.start(await offsets_partitions(self.zk))
        self.zk.on_new_session(configs.look_again)  # before it arms a watch, which a session may take along
        await configs.start()
        self._supervisor.keep("stray-replicas", StrayReplicas(self.context, self.zk).watch)
        self._meet_faults()
        server.serve_requests()
        if self.identity.metrics is not None:
            self.metrics = broker_page(self.context, server, self.zk)
            await self.metrics.listen(self._network, *self.identity.metrics)
        endpoint = self.endpoint
        self.log.info(
            ev.BROKER_STARTED,
            host=endpoint.host,
            port=endpoint.port,
            listeners=[f"{e.listener}://{e.host}:{e.port}" for e in self._endpoints],
            rack=self.identity.rack,
            broker_epoch=registration.broker_epoch,
            log_dirs=[str(path) for path in self.identity.log_dirs],
            metrics=None if self.metrics is None else self.metrics.address,
        )

    def _meet_faults(self) -> None:
        """A disk that is broken is broken at a start, too, and what is paused stays so."""
        for row in self._faults.rows:
            if isinstance(row, (FailLogDir, PauseReplication)):
                self._fault_started(row)

    def _make_replicas(self) -> ReplicaManager:
        self._trace = self._make_trace(self.broker_id, self.identity.trace_dir, start_ms=self.clock.now_ms())
        return ReplicaManager(
            broker_id=self.broker_id,
            settings=self.settings.of_replicas(self.identity.log_dirs),
            clock=self.clock,
            network=self._network,
            rng=random.Random(self._chance.random()),
            isr_writer=ZkIsrWriter(self.zk, log=self.log),
            metadata=self._metadata,
            log=self.log,
            trace=self._trace,
            hooks=ReplicaHooks(
                on_log_dir_failure=self._log_dir_failed,
                on_leadership_change=self._leadership_changed,
                is_paused=self._faults.is_replication_paused,
                disk_wait_s=self._faults.disk_wait_s,
                files=self._files,
                **({} if self._off_loop is None else {"off_loop": self._off_loop}),
            ),
            supervisor=self._supervisor,
        )

    async def _listen(
        self, cluster_id: str, replicas: ReplicaManager, store: ConfigStore, configs: DynamicConfigs
    ) -> tuple[SocketServer, Registration]:
        """Binds before registering: what is registered is the port that is really bound."""
        limits = ServerLimits.at_start(self.settings, self._network.address_of)
        apis: dict[Any, Any] = {}
        server = SocketServer(apis, limits=limits, faults=self._faults, log=self.log)
        self.server = server
        configs.subscribe(server.reconfigure)
        await self._bind(server)
        me = RegisteredBroker(broker_id=self.broker_id, endpoints=self._endpoints, rack=self.identity.rack)
        timeout_ms = self.settings.zookeeper_session_timeout_ms
        registration = Registration(self.zk, me, clock=self.clock, log=self.log, session_timeout_ms=timeout_ms)
        self._context = self._make_context(cluster_id, replicas, store, configs, registration)
        apis.update(api_table(self._context))
        return server, registration

    async def _bind(self, server: SocketServer) -> None:
        """Each listener. Raises OSError, which names the address."""
        endpoints = []
        if len(self.identity.listeners) > 1:
            server.protect(self.identity.inter_broker_listener)
        for each in self.identity.listeners:
            try:
                host, port = await server.listen(self._network, each.host, each.port, listener=each.name)
            except OSError as error:
                raise OSError(f"cannot listen on {each.host}:{each.port}: {error.strerror or error}") from error
            self._bound_ports[each.name] = port
            if each.is_advertised:
                endpoints.append(each.endpoint(host, port))
        self._endpoints = tuple(endpoints)

    def _make_context(
        self,
        cluster_id: str,
        replicas: ReplicaManager,
        store: ConfigStore,
        configs: DynamicConfigs,
        registration: Registration,
    ) -> BrokerContext:
        slots = self.settings.max_incremental_fetch_session_cache_slots
        return BrokerContext(
            broker_id=self.broker_id,
            cluster_id=cluster_id,
            settings=self.settings,
            clock=self.clock,
            log=self.log,
            supervisor=self._supervisor,
            registration=registration,
            controller_kind=ControllerKind(self.zk),
            forwarding=ControllerForwarding(
                self.broker_id,
                metadata=self._metadata,
                network=self._network,
                settings=self.settings,
                log=self.log,
            ),
            metadata=self._metadata,
            metadata_decoder=self._metadata_decoder,
            replicas=replicas,
            producing=replicas.producing,
            fetching=replicas.fetching,
            offsets=replicas.offsets,
            sessions=FetchSessionCache(random.Random(self._chance.random()), slots=slots),
            config_store=store,
            configs=configs,
            postponed=PostponedPartitions(lambda: host_postponed(self.context), self._supervisor),
            topic_creator=TopicCreator(self.zk, self.settings, self._chance, log=self.log),
            producer_ids=ProducerIds(self.zk, self.broker_id),
            groups=self._make_groups(
                self.settings,
                replicas,
                clock=self.clock,
                chance=self._chance,
                supervisor=self._supervisor,
                log=self.log,
            ),
        )

    # -- stop ----------------------------------------------------------------------------------------------------

    async def stop(self, *, controlled: bool = True) -> None:
        """Hands over leadership (unless not `controlled`), closes the logs cleanly, then leaves ZooKeeper (§4)."""
        if self.is_closing:
            return
        if controlled and self.settings.controlled_shutdown_enable and self._context is not None:
            self._context.replicas.table.trace.shutting_down(self.clock.now_ms())
            shutdown = ControlledShutdown(
                self.broker_id,
                lambda: self.context.registration.broker_epoch,
                metadata=self._metadata,
                network=self._network,
                settings=self.settings,
                log=self.log,
            )
            await self._supervisor.step("controlled shutdown", shutdown.run)
        await self._close(clean=True)
        self.log.info(ev.BROKER_STOPPED)

    async def kill(self) -> ZkSession | None:
        """Stops as `kill -9` does: sockets break, nothing is flushed; ZooKeeper notices when the session times out.

        Returns the session that a process would have taken along, for the caller to end after its time.
        """
        session = self.zk.abandoned_session()
        await self._close(clean=False)
        return session

    async def _close(self, *, clean: bool) -> None:
        """A step that fails is logged and skips no other. Source: Kafka 3.9 `KafkaServer.shutdown`."""
        self.is_closing = True
        self._unsubscribe()
        self._unsubscribe = lambda: None
        for name, step in self._last_steps(clean=clean):
            await self._supervisor.step(f"end of {name}", step)

    def _last_steps(self, *, clean: bool) -> Iterator[tuple[str, Callable[[], Awaitable[object] | None]]]:
        if not clean:
            yield "the session", self.zk.abandon
        if (context := self._context) is not None:
            yield "the configs", context.configs.stop
        if self.server is not None:
            yield "the server", self.server.close
        if self.metrics is not None:
            yield "the metrics", self.metrics.close
        if context is not None:
            yield from (("the groups", context.groups.stop), ("the forwarding", context.forwarding.close))
        if self.replicas is not None:
            epoch = context.registration.broker_epoch if context is not None else -1
            yield "the replicas", partial(self.replicas.shutdown, clean=clean, broker_epoch=epoch)
        if self._trace is not None:
            yield "the trace", self._trace.close
        yield "the tasks", self._supervisor.stop
        if clean:
            yield "the session", self.zk.close

    # -- what happens to it --------------------------------------------------------------------------------------

    def set_faults(self, rows: Iterable[Fault]) -> None:
        """Has these faults in force, each in its window, and no others."""
        self._faults.replace(rows)

    def _pause_changed(self, row: Fault) -> None:
        if isinstance(row, PauseReplication) and self._trace is not None and self._context is not None:
            self._trace.paused_replication(self.clock.now_ms(), self._faults.paused_replication)

    def _fault_started(self, row: Fault) -> None:
        self._pause_changed(row)
        if isinstance(row, FailLogDir) and self.replicas is not None:
            self._faults.acted(row)
            self.replicas.fail_log_dir(row.log_dir)
        elif isinstance(row, ExpireSession):
            self._faults.acted(row)
            self._supervisor.once("session-expiry", self.zk.expire)

    def _log_dir_failed(self, path: str) -> None:
        """Tells the controller; of the last dir nobody is told (Kafka `LogManager.handleLogDirFailure` comes first)."""
        if self.replicas is not None and self.replicas.all_log_dirs_failed:
            self._halt(reason="every log dir has failed", log_dir=path)
        else:
            self._supervisor.once("log-dir-notice", partial(notify_log_dir_failure, self.zk, self.broker_id, self.log))

    def _halt(self, **keys: str) -> None:
        self.log.error(ev.BROKER_HALTED, **keys)
        self._halted.set()

    def _leadership_changed(self, led: Collection[TopicPartition], followed: Collection[TopicPartition]) -> None:
        if self._context is not None:
            self._context.groups.leadership_changed(led, followed)
