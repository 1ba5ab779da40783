"""One controller, put together from its parts and the world it is given: real or simulated, it cannot tell.

Wiring only: what to do about an event is `core`'s, what about a request `requests`'. The order of starting and stopping
is what this file knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from structlog.typing import FilteringBoundLogger

from controller.core import step
from controller.core.effects import Effect, Recipe, Trace
from controller.core.events import ControllerState, Event, RegisterBrokerAndReelect, Startup
from controller.core.state import ClusterState
from controller.core.view import ClusterView
from controller.node import zk_watches as zk_module
from controller.node.channels import Channels
from controller.node.config import Properties
from controller.node.config_changes import DynamicConfigs
from controller.node.loop import ControllerLoop
from controller.node.requests.context import Node
from controller.node.requests.groups_topic import GroupsTopic
from controller.node.server import Limits, Server
from controller.node.zk_watches import Zk
from controller.rules.configs.listeners import NodeListener
from controller.wire import log_events as ev
from controller.wire import trace, znodes
from controller.wire.control import ControlRequest
from controller.wire.types import Broker, BrokerId, Endpoint
from controller.wire.zk_operations import (
    Exists,
    WatchEvent,
    ZkRefused,
    ZkSessionExpired,
    ZkUnreachable,
)
from controller.world.ports import Clock, Network, ZkConnector
from controller.world.producer_ids import ProducerIds
from controller.world.standard_znodes import ClusterIdRemoved, prepare_cluster
from controller.world.supervisor import Supervisor

#: Pause between attempts to open a new session (spec controller.md §2.6).
SESSION_RETRY_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What is passed in: time of day, network, ZooKeeper and chance. `chance` draws placements and the cluster's id.

    `at_once`: see `Channels`.
    """

    clock: Clock
    network: Network
    connector: ZkConnector
    chance: Random
    at_once: Callable[[ControlRequest], bool] | None = None
    shorten: Callable[[ControlRequest], ControlRequest] = lambda request: request


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who this controller is and where it listens: among others on the listener that brokers use among themselves."""

    controller_id: BrokerId
    listeners: tuple[NodeListener, ...]


class IdTaken(Exception):
    """The id of this controller is a broker's. The message says what to do."""


class BoundCore:
    """The functions of `core.step`, bound to one state; see `loop.Core`."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def handle(self, event: Event, now_ms: int) -> Recipe:
        """The recipe for one event."""
        return step.handle(self._state, event, now_ms)

    def preempted(self, event: Event) -> Iterable[Effect]:
        """The answers owed when an event is dropped."""
        return step.preempted(event)

    def may_be_dropped(self, event: Event) -> bool:
        """Whether the event may be."""
        return step.may_be_dropped(event)

    def state_during(self, event: Event) -> ControllerState:
        """What the gauge shows meanwhile."""
        return step.state_during(event)

    @property
    def epoch(self) -> int:
        """The controller epoch."""
        return self._state.epoch


class Controller:
    """A controller process: make it on a running event loop, `start`, then `stop`.

    `given` are all settings as they were given, as text: what brokers would call their static configs. `trace_line`
    takes lines of the ISR trace, one row each, until it raises OSError.
    """

    def __init__(
        self,
        identity: Identity,
        properties: Properties,
        world: World,
        log: FilteringBoundLogger,
        *,
        given: Mapping[str, str] | None = None,
        trace_line: Callable[[str], None] | None = None,
    ) -> None:
        self._identity = identity
        self._properties = properties
        self._world = world
        self._log = log.bind(controller=identity.controller_id)
        self._trace_line, self._trace_seq = trace_line, 0
        state = ClusterState(identity.controller_id, replace(properties.core(), trace=trace_line is not None))
        self.state: ClusterView = state  # for everybody to look at; only the loop's core changes it
        self._halted: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.supervisor = Supervisor(self._log, halt=self._halted.set_result)
        self.zk = Zk(world.connector, self._watched, self._expired)
        self.channels = Channels(
            controller_id=identity.controller_id,
            network=world.network,
            settings=properties.channels(),
            emit=self._emit,
            deletion_started=lambda topic: topic in self.state.topics_with_deletion_started,
            log=self._log,
            supervisor=self.supervisor,
            at_once=world.at_once,
            shorten=world.shorten,
        )
        self.loop = ControllerLoop(
            BoundCore(state), self.zk, self.channels, clock=world.clock, trace=self._trace, log=self._log
        )
        self._configs = DynamicConfigs(
            controller_id=identity.controller_id,
            static=given or {},
            zk=self.zk,
            is_serving=lambda: self.state.serving,
            unclean_elections=state.settings.unclean_leader_election_enable,
            emit=self._emit,
            clock=world.clock,
            log=self._log,
        )
        self.server = Server(_limits(properties), self._log)
        self._renewal: asyncio.Task[None] | None = None

    async def start(self) -> Endpoint:
        """Binds the listener, opens a session, creates what every cluster has, and runs for office.

        Returns where brokers are told that it listens. Raises: OSError, which names the address that cannot be bound;
        ZkUnreachable, also for a session that ends meanwhile; ZnodeError, when `/cluster/id` cannot be read; IdTaken.
        Then nothing of it is left running.
        """
        try:
            endpoints = await self._listen()
            await self.zk.open()
            cluster_id = await self._prepare()
            await self._check_id()
        except ZkSessionExpired as error:
            await self.stop()
            raise ZkUnreachable(f"the ZooKeeper session ended while the controller started: {error}") from error
        except BaseException:
            await self.stop()
            raise
        self.loop.start(self.supervisor)
        shown = Broker(broker_id=self._identity.controller_id, endpoints=endpoints)
        self.loop.put(Startup(self.zk.session_id, shown))
        self._configs.start(self.supervisor)
        self.server.open(self._node(cluster_id, shown))
        endpoint = next(e for e in endpoints if e.listener == self._properties.inter_broker_listener)
        self._log.info(
            ev.CONTROLLER_STARTED,
            host=endpoint.host,
            port=endpoint.port,
            listeners=[f"{e.listener}://{e.host}:{e.port}" for e in endpoints],
            cluster_id=cluster_id,
        )
        return endpoint

    async def _listen(self) -> tuple[Endpoint, ...]:
        """Binds each listener; returns what others are told of. Raises OSError, which names the address."""
        endpoints = []
        for each in self._identity.listeners:
            try:
                bound = await self.server.listen(self._world.network, each.host, each.port, listener=each.name)
            except OSError as error:
                raise OSError(f"cannot listen on {each.host}:{each.port}: {error.strerror or error}") from error
            if each.is_advertised:
                endpoints.append(each.endpoint(*bound))
        return tuple(endpoints)

    async def stop(self) -> None:
        """Stops taking requests and events, drops what was queued for brokers, and ends the session. A step that fails
        is logged and skips no other. Idempotent."""
        for stop in (self.server.close, self._configs.stop, self.loop.stop, self._close_channels, self.zk.close):
            try:
                await stop()
            except Exception as error:  # whatever it is: the session must end, so that another can take over
                self._log.error(ev.CONTROLLER_FAULTED, reason=f"{stop.__qualname__} failed", exc_info=error)
        self._log.info(ev.CONTROLLER_STOPPED)

    async def wait_halted(self) -> str:
        """Waits until the process must end by itself, and says why. Who waits stops it."""
        return await asyncio.shield(self._halted)

    async def _close_channels(self) -> None:
        self.channels.close()
        await self.supervisor.stop()

    def _node(self, cluster_id: str, endpoint: Broker) -> Node:
        return Node(
            state=self.state,
            loop=self.loop,
            channels=self.channels,
            zk=self.zk,
            properties=self._properties,
            configs=self._configs,
            cluster_id=cluster_id,
            endpoint=endpoint,
            listener=self._properties.inter_broker_listener,
            chance=self._world.chance,
            producer_ids=ProducerIds(self.zk, self._identity.controller_id),
            groups_topic=GroupsTopic(self._world.network, self._properties.inter_broker_listener, self._world.chance),
            log=self._log,
        )

    def _emit(self, event: Event) -> None:
        self.loop.put(event)

    # --- sessions

    async def _prepare(self) -> str:
        """Creates the standard znodes and the cluster's id where they are missing; returns the id.

        Empty for an id that was removed: the first broker that holds it restores it, and a controller needs none.
        Raises: ZkUnreachable, when ZooKeeper refuses; ZkSessionExpired.
        """
        try:
            return await prepare_cluster(self.zk, self._world.chance)
        except ClusterIdRemoved as error:
            self._log.warning(ev.CLUSTER_ID_REMOVED, reason=str(error))
            return ""
        except ZkRefused as error:
            raise ZkUnreachable(f"ZooKeeper refuses what every node needs: {error}") from error

    async def _check_id(self) -> None:
        """A controller is no broker: under one id, brokers and clients could not tell them apart.

        Raises: IdTaken, ZkSessionExpired.
        """
        controller_id = self._identity.controller_id
        (registered,) = await self.zk.perform([Exists(znodes.BrokerIdZNode.path(controller_id))])
        if registered.ok:
            raise IdTaken(f"a broker with id {controller_id} is registered; choose another --controller-id")

    def _watched(self, watch: WatchEvent) -> None:
        if watch.path == znodes.ConfigChangesZNode.path:
            self._configs.notice()
        elif (event := zk_module.event_of(watch)) is not None:
            self.loop.put(event)

    def _expired(self) -> None:
        """Source: spec controller.md §2.6."""
        self._log.warning(ev.ZK_SESSION_EXPIRED)
        taken = self.loop.expire()
        self._renewal = self.supervisor.vital("session-renewal", lambda: self._renew(taken))

    async def _renew(self, expire_taken: asyncio.Event) -> None:
        """Once `Expire` is being processed (so the event before has ended): a new session, then the election. It is
        tried once a second for ever (spec §2.6)."""
        await expire_taken.wait()
        attempt = 0
        while True:
            attempt += 1
            try:
                await self.zk.open()
                break
            except (ZkUnreachable, OSError, RuntimeError) as error:  # no descriptor or thread is left, say
                self._log.warning(ev.ZK_RECONNECT_FAILED, attempt=attempt, reason=str(error))
                await asyncio.sleep(SESSION_RETRY_S)
        self._configs.notice()
        self.loop.put(RegisterBrokerAndReelect(self.zk.session_id))

    # --- the trace

    def _trace(self, row: Trace) -> None:
        if self._trace_line is None:
            return
        self._trace_seq += 1
        line = trace.encode_row(
            seq=self._trace_seq,
            ts=self._world.clock.now_ms(),
            broker=self._identity.controller_id,
            ev=trace.TraceEvent(row.ev),
            **row.columns,
        )
        try:
            self._trace_line(line)
        except OSError as error:  # a trace is not worth the office, nor what was decided and is not told yet
            self._trace_line = None
            self._log.error(ev.TRACE_ENDED, reason=str(error))


def _limits(properties: Properties) -> Limits:
    return Limits(
        request_bytes=properties.socket_request_max_bytes,
        connections=properties.max_connections,
        idle_ms=properties.connections_max_idle_ms,
    )
