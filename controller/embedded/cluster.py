"""A whole cluster on the running event loop: the real controllers and brokers, TCP, and the ZooKeeper in memory.

Nothing here decides: the programs are those of `kwob up`, put together with another ZooKeeper. What a process would
lose by SIGKILL is lost here, too: sockets break, nothing is flushed, the session lives on until it has timed out.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import structlog

from broker_sim.broker import Broker
from broker_sim.config import BrokerSettings
from broker_sim.faults.board import FaultBoard
from broker_sim.host import BrokerHost
from broker_sim.identity import BrokerIdentity
from broker_sim.metadata_decoding import MetadataDecoder
from controller.node import config
from controller.node.metrics import MetricsServer
from controller.node.process import Controller, Identity, World
from controller.rules.configs import settings
from controller.rules.configs.listeners import PLAINTEXT, NodeListener
from controller.wire.fault_rows import Fault
from controller.wire.types import BrokerId
from controller.world.ports import ZkConnector
from controller.world.real.clock import SystemClock
from controller.world.real.net import TcpNetwork
from controller.world.real.ports import free_ports
from controller.world.simulated.net import Latency
from controller.world.simulated.zookeeper import SimulatedZooKeeper

HOST: Final = "127.0.0.1"
#: Controllers are no brokers, so their ids must not meet: brokers count from 1.
FIRST_CONTROLLER_ID: Final = 901
#: What a test cannot wait for, made short; `settings` of a plan go before them.
QUICK_SETTINGS: Final = {
    "zookeeper.session.timeout.ms": "2000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "controlled.shutdown.retry.backoff.ms": "200",
    "replica.fetch.backoff.ms": "200",
    "replica.lag.time.max.ms": "2000",
}
_INTERNAL: Final = "INTERNAL"
_READY_S: Final = 30.0
_LOOK_S: Final = 0.005

OnEvent = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedPlan:
    """What to run in a folder. Brokers 1, 2, ..., or those with these `ids`, get the racks in turn, and free ports."""

    folder: Path
    brokers: int = 3
    controllers: int = 1
    racks: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    log_dirs: int = 1
    seed: int | None = None
    metrics: bool = False
    ids: Sequence[int] = ()
    #: broker -> listener -> where clients find it from elsewhere (host and port), the port that it binds for them
    published: Mapping[int, Mapping[str, tuple[str, int, int]]] = field(default_factory=dict)
    #: broker or controller -> the port of its page of metrics, at every address; free ports of this machine where none
    page_ports: Mapping[int, int] = field(default_factory=dict)

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """All brokers."""
        return tuple(self.ids) or tuple(range(1, self.brokers + 1))

    @property
    def controller_ids(self) -> tuple[int, ...]:
        """901, 902, ..., or from the first id on that no broker has."""
        first = max(FIRST_CONTROLLER_ID, max(self.broker_ids) + 1)
        return tuple(range(first, first + self.controllers))

    def log_dirs_of(self, broker_id: int) -> tuple[Path, ...]:
        """Where a broker keeps its partitions."""
        return tuple(self.folder / f"broker-{broker_id}" / f"data-{n}" for n in range(1, self.log_dirs + 1))

    @property
    def all_settings(self) -> dict[str, str]:
        """The settings of the programs."""
        factor = {"offsets.topic.replication.factor": str(min(3, self.brokers))}
        return {**QUICK_SETTINGS, **factor, **self._listener_settings, **self.settings}

    @property
    def _listener_settings(self) -> dict[str, str]:
        if not self.published:
            return {}
        names = sorted({_INTERNAL, *(name for each in self.published.values() for name in each)})
        protocols = ",".join(f"{name}:PLAINTEXT" for name in names)
        return {"inter.broker.listener.name": _INTERNAL, "listener.security.protocol.map": protocols}

    def listeners_of(self, broker_id: int) -> tuple[NodeListener, ...]:
        """Where a broker listens: on a free port of this machine, and where it is published, for clients elsewhere."""
        if broker_id not in self.published:
            return (NodeListener(host=HOST, port=0),)
        outside = (
            NodeListener(name=name, host="", port=bound, advertised_host=host, advertised_port=port)
            for name, (host, port, bound) in self.published[broker_id].items()
        )
        return (NodeListener(name=_INTERNAL, host=HOST, port=0), *outside)

    @property
    def trace_dir(self) -> Path:
        """Where brokers and controllers write their traces."""
        return self.folder / "traces"


class EmbeddedCluster:
    """Make it on a running event loop; `start`, then `stop`. `on_event` is told each log line of all programs."""

    def __init__(self, plan: EmbeddedPlan, on_event: OnEvent = lambda line: None) -> None:
        """Raises: SettingError, SettingsError for settings that there are not."""
        self._plan = plan
        self._chance = random.Random(plan.seed)
        self._clock, self._network = SystemClock(), TcpNetwork()
        given = settings.load(None, [f"{name}={value}" for name, value in plan.all_settings.items()])
        self._given = {name: str(value) for name, value in given.items()}
        self._broker_settings = BrokerSettings.parse(given)
        self._properties = config.parse(self._given)
        self._session_ms = self._broker_settings.zookeeper_session_timeout_ms
        self._zookeeper = SimulatedZooKeeper(self._chance, self._clock, latency=Latency(min_s=0.0, max_s=0.0))
        self._inter_broker = _INTERNAL if plan.published else PLAINTEXT
        self._log = _logger(on_event)
        self._controllers: dict[int, Controller] = {}
        self._pages: dict[int, MetricsServer] = {}
        self._files = ExitStack()
        self._decoder = MetadataDecoder()
        self._ports: dict[BrokerId, int] = {}
        # A program that starts again serves its page where it did: whoever scrapes it does not look for it.
        programs = program_names(plan) if plan.metrics and not plan.page_ports else {}
        free = zip(programs, free_ports(len(programs)) if programs else (), strict=True)
        self._page_ports = plan.page_ports or dict(free)
        self._page_host = "" if plan.page_ports else HOST
        self._host = BrokerHost(
            [self._identity(place, broker_id) for place, broker_id in enumerate(plan.broker_ids)],
            self._broker,
            clock=self._clock,
            chance=self._chance,
            session_timeout_ms=self._session_ms,
            log=self._log,
        )

    @property
    def bootstrap(self) -> str:
        """Brokers as clients take them."""
        return ",".join(f"{HOST}:{port}" for _, port in sorted(self._ports.items()))

    @property
    def brokers(self) -> frozenset[int]:
        """The brokers that run now."""
        return frozenset(self._host.brokers)

    @property
    def active_controller(self) -> int | None:
        """The controller that holds the office, as it sees it itself."""
        return next((number for number, each in self._controllers.items() if each.state.serving), None)

    @property
    def metrics(self) -> dict[str, str]:
        """Where each program that runs serves its metrics, `host:port` by name; empty unless the plan has `metrics`."""
        pages = {_machine(number): page.address for number, page in self._pages.items()}
        pages |= {f"broker-{i}": b.metrics.address for i, b in sorted(self._host.brokers.items()) if b.metrics}
        return {name: address for name, address in pages.items() if address is not None}

    def zookeeper(self) -> ZkConnector:
        """What connects to the ZooKeeper in memory, from a machine that nothing befalls."""
        return self._zookeeper.connector("observer")

    async def start(self) -> None:
        """Returns once a controller serves and knows all brokers. Raises: StartRefused, TimeoutError."""
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        for number in self._plan.controller_ids:
            await self.start_controller(number)
        await self._host.start()
        self._ports = {broker_id: broker.endpoint.port for broker_id, broker in self._host.brokers.items()}
        await self.until(lambda: self._is_known(), "every broker to know every other", _READY_S)

    def _is_known(self) -> bool:
        """Whether each broker has been told of all."""
        broker_ids = set(self._host.brokers)
        return all(broker_ids <= broker.context.metadata.alive_brokers() for broker in self._host.brokers.values())

    async def until(self, holds: Callable[[], bool], what: str, limit_s: float) -> None:
        """Waits until it holds. Raises: TimeoutError, which says what did not come."""
        try:
            async with asyncio.timeout(limit_s):
                while not holds():  # noqa: ASYNC110 - what is waited for has many causes
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise TimeoutError(f"waited {limit_s:g} s for {what}") from None

    async def stop(self) -> None:
        """Ends all, without handing over: the cluster ends as a whole. Idempotent."""
        await self._host.stop(controlled=False)
        for number, controller in self._controllers.items():
            await self._end_page(number)
            await controller.stop()
        self._controllers.clear()
        self._files.close()

    def set_faults(self, rows: Sequence[Fault]) -> None:
        """Has these faults in force, and no others."""
        self._host.set_faults(rows)

    # -- controllers ---------------------------------------------------------------------------------------------------

    async def start_controller(self, controller_id: int) -> None:
        """Starts it, or starts it again; nothing when it runs. Who cannot start, its page included, does not run."""
        if controller_id not in self._controllers:
            controller = self._controller(controller_id)
            self._controllers[controller_id] = controller
            try:
                await controller.start()
                if self._plan.metrics:
                    page = self._pages[controller_id] = MetricsServer(controller)
                    await page.listen(self._network, self._page_host, self._page_ports[controller_id])
            except BaseException:
                del self._controllers[controller_id]
                await self._end_page(controller_id)
                await controller.stop()
                raise

    async def kill_controller(self, controller_id: int) -> None:
        """As by SIGKILL: ZooKeeper takes it for alive until its session has timed out. Nothing when it is dead."""
        controller = self._controllers.pop(controller_id, None)
        if controller is not None:
            self._zookeeper.kill(_machine(controller_id))
            await self._end_page(controller_id)
            await controller.stop()

    async def _end_page(self, controller_id: int) -> None:
        page = self._pages.pop(controller_id, None)
        if page is not None:
            await page.close()

    def _controller(self, controller_id: int) -> Controller:
        name = _machine(controller_id)
        connector = self._zookeeper.connector(name, session_timeout_ms=self._session_ms)
        world = World(clock=self._clock, network=self._network, connector=connector, chance=self._chance)
        self._plan.trace_dir.mkdir(parents=True, exist_ok=True)
        path = self._plan.trace_dir / f"{name}.jsonl"
        trace = self._files.enter_context(path.open("ab", buffering=0))  # what a full disk left would fail its close
        listener = NodeListener(host=HOST, port=0, name=self._inter_broker)
        identity = Identity(controller_id=BrokerId(controller_id), listeners=(listener,))

        def write(line: str) -> None:
            trace.write(line.encode())

        return Controller(identity, self._properties, world, self._log, given=self._given, trace_line=write)

    # -- brokers -------------------------------------------------------------------------------------------------------

    def _identity(self, place: int, number: int) -> BrokerIdentity:
        racks = self._plan.racks
        return BrokerIdentity(
            broker_id=BrokerId(number),
            listeners=self._plan.listeners_of(number),
            inter_broker_listener=self._inter_broker,
            log_dirs=self._plan.log_dirs_of(number),
            rack=racks[place % len(racks)] if racks else None,
            trace_dir=self._plan.trace_dir,
            metrics=(self._page_host, self._page_ports[number]) if self._plan.metrics else None,
        )

    def _broker(self, identity: BrokerIdentity, board: FaultBoard) -> Broker:
        for path in identity.log_dirs:
            path.mkdir(parents=True, exist_ok=True)
        return Broker(
            identity,
            self._broker_settings,
            clock=self._clock,
            network=self._network,
            zookeeper=self._zookeeper.connector(f"broker-{identity.broker_id}", session_timeout_ms=self._session_ms),
            chance=random.Random(self._chance.random()),
            log=self._log,
            faults=board,
            metadata_decoder=self._decoder,
        )


def program_names(plan: EmbeddedPlan) -> dict[int, str]:
    """The id of each broker and controller, and the name that it has among pages of metrics."""
    return {i: f"broker-{i}" for i in plan.broker_ids} | {i: _machine(i) for i in plan.controller_ids}


def _machine(controller_id: int) -> str:
    return f"controller-{controller_id}"


def _logger(on_event: OnEvent) -> Any:
    """A logger of its own: the configuration of structlog belongs to whoever embeds the cluster."""

    def hand_over(_logger: Any, level: str, event: MutableMapping[str, Any]) -> Any:
        on_event({"ts": datetime.now(UTC).isoformat(timespec="milliseconds"), "level": level, **event})
        raise structlog.DropEvent

    return structlog.wrap_logger(
        structlog.PrintLogger(),
        processors=[structlog.processors.format_exc_info, hand_over],
        wrapper_class=structlog.make_filtering_bound_logger(20),
        cache_logger_on_first_use=True,
    )
