"""The programs of a simulated cluster: real controllers and brokers on machines that can be killed and paused."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog

from broker_sim.broker import Broker, StartRefused
from broker_sim.config import BrokerSettings
from broker_sim.groups.coordinator import GroupCoordinator
from broker_sim.groups.group import Group
from broker_sim.groups.registry import let_others_run
from broker_sim.groups.values import GroupSettings
from broker_sim.identity import BrokerIdentity
from broker_sim.log.errors import StorageFailure
from broker_sim.metadata_decoding import MetadataDecoder
from broker_sim.trace import TraceWriter
from controller.node import config as controller_config
from controller.node.process import Controller, Identity
from controller.node.process import World as ControllerWorld
from controller.rules.configs.listeners import NodeListener
from controller.sim.disk import SimulatedDisk
from controller.sim.shape import SETTINGS, TOOLED, Shape
from controller.wire.types import BrokerId
from controller.wire.zk_operations import ZkUnreachable
from controller.wire.znodes import ZnodeError
from controller.world.simulated.world import Machine, World

BROKER_PORT: Final = 9092
CONTROLLER_PORT: Final = 9090
#: The listener that clients may have of their own, and its ports: who is no broker then reaches nothing else.
CLIENTS: Final = "CLIENTS"
CLIENTS_ON: Final = {BROKER_PORT: 9094, CONTROLLER_PORT: 9093}
FIRST_CONTROLLER: Final = 1001
#: How machines are called that are no clients.
INSIDE: Final = "broker-", "controller-"
#: How long a supervisor waits before it starts again what could not start.
RESTART_S: Final = 1.0
#: So many batches a slow disk reads in the time that it takes to sync.
BATCHES_A_READ: Final = 20


class NothingThere(Exception):
    """No target for this step, or no longer."""


class Programs:
    """Machines `broker-N` and `controller-N`, and what runs on them. `lines` is all that the programs logged, with
    virtual times; `events` the same as values."""

    def __init__(
        self, world: World, folder: Path, *, brokers: int = 3, controllers: int = 1, shape: Shape | None = None
    ) -> None:
        """With a `shape` its numbers and settings count, without one `SETTINGS` and the numbers given."""
        self.world, self.folder, self.shape = world, folder, shape
        self.settings = SETTINGS if shape is None else shape.settings()
        self.lines: list[str] = []
        self.events: list[tuple[float, str, dict[str, Any]]] = []
        first = shape.first_id if shape else 1
        self.broker_ids = range(first, first + (shape.brokers if shape else brokers))
        self.controller_ids = range(FIRST_CONTROLLER, FIRST_CONTROLLER + (shape.controllers if shape else controllers))
        self._clients_apart = bool(shape and shape.client_listener)
        if self._clients_apart:
            world.network.forbids = lambda machine, port: port in CLIENTS_ON and not machine.startswith(INSIDE)
        self.brokers: dict[int, Broker] = {}
        self.controllers: dict[int, Controller] = {}
        self.paused: set[int] = set()
        #: Those that are being stopped in order.
        self.stopping: dict[int, Broker | Controller] = {}
        self.disks: dict[int, SimulatedDisk] = {}
        #: The shortest time for which any broker so far keeps the offsets of groups that have no members.
        self.offset_retention_s = math.inf
        #: what all brokers are told alike is decoded once, as in a process that has several
        self._decoder = MetadataDecoder()
        #: path of a znode -> what was in it when it was read last, as bytes and as what they say
        self._parsed: dict[str, tuple[bytes, Any]] = {}
        #: Machines whose program has stopped in order, and left a session that it keeps alive.
        self.left_sessions: list[str] = []
        #: Told of each controller before it starts.
        self.on_controller: list[Callable[[int, Controller], None]] = []
        #: Told of each log event, in its moment.
        self.on_event: list[Callable[[dict[str, Any]], None]] = []
        #: Makes the traces of brokers, and the groups of the broker with this number.
        self.make_trace: Callable[..., TraceWriter] = TraceWriter
        self.make_group: Callable[[int, str, GroupSettings], Group] = lambda _, *about: Group(*about)

    async def start(self) -> None:
        """Everything, until there is a controller and all brokers are registered."""
        for number in (*self.controller_ids, *self.broker_ids):
            self.start_one(number)
        await self.world.until(lambda: self.active_controller() is not None, within_s=60, what="a controller")
        await self.world.until(lambda: self.registered() == set(self.broker_ids), within_s=60, what="all brokers")

    def start_one(self, number: int) -> None:
        """Starts, or starts again, a broker or a controller; nothing when it runs."""
        if number in self.controllers or number in self.brokers or number in self.stopping:
            return
        if number in self.controller_ids:
            self.controllers[number] = self._controller(number)
            self.machine(number).start(self._run_controller(number, self.controllers[number]))
        else:
            self.brokers[number] = self._broker(number)
            self.machine(number).start(self._run_broker(number, self.brokers[number]))

    def kill(self, number: int, *, power: bool = False) -> None:
        """SIGKILL; the end of a process also gives up its file locks. With `power` the machine loses its power, and
        what was not synced."""
        self.machine(number).kill()
        self.paused.discard(number)
        self.controllers.pop(number, None)
        stopping = self.stopping.pop(number, None)
        for broker in (self.brokers.pop(number, None), stopping):
            if isinstance(broker, Broker) and broker.replicas is not None:
                broker.replicas.abandon()
        if power and number in self.disks:
            self.disks[number].lose_power()

    async def stop(self, number: int, *, lingers_s: float = 0.0) -> None:
        """Controlled shutdown of a broker, a clean end of a controller. Waits for ever if it is killed meanwhile.
        `lingers_s`: how long the process lives on when it has stopped."""
        program: Broker | Controller = (
            self.brokers.pop(number) if number in self.brokers else self.controllers.pop(number)
        )
        self.stopping[number] = program
        await self.machine(number).run(program.stop())
        if lingers_s:
            await self.world.sleep(lingers_s)
        if self.stopping.get(number) is program:
            self.left_sessions += self._sessions_of(number)
            del self.stopping[number]
            self.machine(number).kill()

    def _sessions_of(self, number: int) -> list[str]:
        """Of a program that has stopped: those that it keeps alive."""
        name = self.machine(number).name
        return [name for machine in self.world.zookeeper.connected.values() if machine == name]

    def pause(self, number: int) -> None:
        """SIGSTOP."""
        self.paused.add(number)
        self.machine(number).pause()

    def resume(self, number: int) -> None:
        """SIGCONT; nothing when it is not paused."""
        if number in self.paused:
            self.paused.discard(number)
            self.machine(number).resume()

    def running(self) -> list[int]:
        """Brokers and controllers that run, and are neither paused nor being stopped."""
        return sorted({*self.brokers, *self.controllers} - self.paused)

    def machine(self, number: int) -> Machine:
        """The machine of a broker or controller."""
        kind = "controller" if number in self.controller_ids else "broker"
        return self.world.machine(f"{kind}-{number}")

    def port(self, number: int) -> int:
        """Where clients reach a broker or controller."""
        port = CONTROLLER_PORT if number in self.controller_ids else BROKER_PORT
        return CLIENTS_ON[port] if self._clients_apart else port

    def log_dirs(self, number: int) -> list[Path]:
        """Of a broker: as many as the shape says, whether they are there yet or not."""
        name, count = self.machine(number).name, self.shape.log_dirs if self.shape else 1
        return [self.folder / each for each in (name, *(f"{name}-{n}" for n in range(2, count + 1)))]

    def numbers(self) -> list[int]:
        """All controllers and brokers."""
        return [*self.controller_ids, *self.broker_ids]

    # -- what ZooKeeper says ---------------------------------------------------------------------------------------

    def znode(self, path: str) -> Any:
        """The JSON in a znode, not to be changed; None when there is none, or when it is none."""
        found = self.world.zookeeper.tree.get(path)
        if found is None or not found.payload:
            return None
        before = self._parsed.get(path)
        if before is None or before[0] is not found.payload:
            try:
                before = found.payload, json.loads(found.payload)
            except ValueError:
                before = found.payload, None
            self._parsed[path] = before
        return before[1]

    def children(self, path: str) -> list[str]:
        """Names of children, sorted."""
        found = self.world.zookeeper.tree.get(path)
        return sorted(found.children) if found is not None else []

    def registered(self) -> set[int]:
        """Brokers in ZooKeeper."""
        return set(map(int, self.children("/brokers/ids")))

    def active_controller(self) -> int | None:
        """Who `/controller` names."""
        found = self.znode("/controller")
        return found["brokerid"] if found else None

    def partitions(self) -> list[tuple[str, int]]:
        """(topic, partition) of all."""
        return [
            (topic, int(number))
            for topic in self.children("/brokers/topics")
            for number in (self.znode(f"/brokers/topics/{topic}") or {"partitions": {}})["partitions"]
        ]

    def movable(self) -> list[tuple[str, int]]:
        """Those of them that no administrator works on alone."""
        return [tp for tp in self.partitions() if tp[0] not in TOOLED]

    def state(self, topic: str, partition: int) -> Any:
        """A partition's state znode."""
        return self.znode(f"/brokers/topics/{topic}/partitions/{partition}/state")

    def assignment(self, topic: str, partition: int) -> list[int]:
        """A partition's replicas. Raises NothingThere."""
        try:
            return list(self.znode(f"/brokers/topics/{topic}")["partitions"][str(partition)])
        except (TypeError, KeyError):
            raise NothingThere(f"{topic}-{partition}") from None

    def content_of(self, topic: str) -> dict[str, Any]:
        """The replicas of a topic, those that are being added, and those that are being removed."""
        found = self.znode(f"/brokers/topics/{topic}") or {}
        return {name: found.get(name) for name in ("partitions", "adding_replicas", "removing_replicas")}

    def moving(self) -> dict[tuple[str, int], tuple[list[int], list[int], list[int]]]:
        """Partitions that are being moved: their replicas, those that are added, those that are removed."""
        found: dict[tuple[str, int], tuple[list[int], list[int], list[int]]] = {}
        for topic in self.children("/brokers/topics"):
            content = self.content_of(topic)
            adding, removing = content["adding_replicas"] or {}, content["removing_replicas"] or {}
            for number in sorted(adding.keys() | removing.keys()):
                row = content["partitions"].get(number, []), adding.get(number) or [], removing.get(number) or []
                found[topic, int(number)] = row
        return found

    # -- making them -----------------------------------------------------------------------------------------------

    def _controller(self, number: int) -> Controller:
        machine = self.machine(number)
        surroundings = ControllerWorld(
            clock=machine.clock,
            network=machine.network,
            connector=machine.connector(session_timeout_ms=int(self.settings["zookeeper.session.timeout.ms"])),
            chance=machine.chance,
        )
        identity = Identity(controller_id=BrokerId(number), listeners=self._listeners(number))
        made = Controller(
            identity, controller_config.parse(self.settings), surroundings, structlog.get_logger(), given=self.settings
        )
        if self.shape is not None:
            made.channels.merge_above = self.shape.merge_above
        for observer in self.on_controller:
            observer(number, made)
        return made

    def _broker(self, number: int) -> Broker:
        machine = self.machine(number)
        shape = self.shape
        identity = BrokerIdentity(
            broker_id=BrokerId(number),
            listeners=self._listeners(number),
            log_dirs=tuple(self.log_dirs(number)),
            rack=f"rack-{number % shape.racks}" if shape and shape.racks else None,
            trace_dir=self.folder / "trace",
        )
        if shape and number not in self.disks:
            chance = self.world.stream(f"{machine.name}/disk")
            self.disks[number] = SimulatedDisk(chance, self.world.loop.time, machine.clock.now_ms)
        settings = BrokerSettings.parse(self.settings)
        self.offset_retention_s = min(self.offset_retention_s, settings.offsets_retention_minutes * 60)
        return Broker(
            identity,
            settings,
            clock=machine.clock,
            network=machine.network,
            zookeeper=machine.connector(session_timeout_ms=int(self.settings["zookeeper.session.timeout.ms"])),
            chance=machine.chance,
            log=structlog.get_logger(),
            off_loop=partial(self.beside, number),
            files=self.disks.get(number),
            metadata_decoder=self._decoder,
            make_trace=self.make_trace,
            make_groups=partial(
                GroupCoordinator,
                make_group=partial(self.make_group, number),
                between_batches=partial(self.between_batches, number),
            ),
        )

    def _listeners(self, number: int) -> tuple[NodeListener, ...]:
        """That of clients first, where they have one: nobody may take the first one for that of brokers."""
        host = self.machine(number).name
        own = NodeListener(host=host, port=CONTROLLER_PORT if number in self.controller_ids else BROKER_PORT)
        return (NodeListener(name=CLIENTS, host=host, port=self.port(number)), own) if self._clients_apart else (own,)

    async def beside(self, number: int, work: Callable[[], None]) -> None:
        """What a broker leaves to another thread, since it waits for a disk: done at once, or, where that is slow, some
        time after it was asked for and some time before that is told. It is done though nobody waits any more."""
        disk = self.disks.get(number)
        if disk is None or not disk.slow_s:
            work()
            return
        loop = self.world.loop
        done = loop.create_future()

        def tell(error: BaseException | None) -> None:
            if not done.done():
                done.set_result(None) if error is None else done.set_exception(error)

        def do() -> None:
            error: BaseException | None = None
            try:
                work()
            except (OSError, StorageFailure) as failure:
                error = failure
            loop.call_later(disk.takes_s(), tell, error)

        loop.call_later(disk.takes_s(), do)
        await done

    async def between_batches(self, number: int, batch: int) -> None:
        """What a coordinator does between two batches of the log of its groups: reading takes its time, too."""
        disk = self.disks.get(number)
        if disk is None or not disk.slow_s:
            await let_others_run(batch)
        else:
            await asyncio.sleep(disk.takes_s() / BATCHES_A_READ)

    async def _run_controller(self, number: int, controller: Controller) -> None:
        """With a supervisor: what cannot start (ZooKeeper is out of reach, `/cluster/id` damaged) is started again."""
        while True:
            try:
                await controller.start()
                break
            except (ZkUnreachable, ZnodeError):
                await asyncio.sleep(RESTART_S)
                if self.controllers.get(number) is not controller:
                    return  # it is being stopped
                controller = self.controllers[number] = self._controller(number)
        await asyncio.Event().wait()

    async def _run_broker(self, number: int, broker: Broker) -> None:
        """With a supervisor: a broker is refused while the session of its predecessor lives."""
        while True:
            try:
                await broker.start()
                break
            except StartRefused:
                await asyncio.sleep(RESTART_S)
                if self.brokers.get(number) is not broker:
                    return  # it is being stopped
                broker = self.brokers[number] = self._broker(number)
        await broker.wait_halted()
        if self.brokers.get(number) is broker:
            self.kill(number)

    @contextmanager
    def logging(self) -> Iterator[None]:
        """Collects every log line, with its virtual time and without paths of this run."""

        def collect(_: object, method: str, event: MutableMapping[str, Any]) -> Any:
            self.events.append((self.world.loop.time(), method, dict(event)))
            for observer in self.on_event:
                observer(self.events[-1][2])
            if self.shape is None:
                self.lines.append(self.line(*self.events[-1]))
            raise structlog.DropEvent

        before = structlog.get_config()
        structlog.configure(processors=[collect], cache_logger_on_first_use=False)
        try:
            yield
        finally:
            structlog.configure(**before)

    def line(self, at_s: float, method: str, event: dict[str, Any]) -> str:
        """A log line as text."""
        text = json.dumps(event, sort_keys=True, default=str).replace(str(self.folder), "")
        return f"{at_s:.6f} {method} {text}"
