"""The stage on virtual time: kwob's controller and brokers in this process, on a network and a ZooKeeper in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import structlog

from broker_sim.broker import Broker
from broker_sim.config import BrokerSettings
from broker_sim.identity import BrokerIdentity
from controller.node import config as controller_config
from controller.node.process import Controller, Identity
from controller.node.process import World as ControllerWorld
from controller.rules.configs.listeners import NodeListener
from controller.wire.types import BrokerId
from controller.world.simulated.world import Machine, World
from tests.admin.official.normal_form import CONTROLLER
from tests.admin.official.stage import BROKERS, CONTROLLER_SETTINGS, RACKS, SETTINGS, WITHOUT_GROUPS, Stage

PORT = 9092
_SESSION_MS = int(SETTINGS["zookeeper.session.timeout.ms"])


class Programs:
    """The programs on machines `controller` and `broker-N`."""

    def __init__(self, world: World, folder: Path, kind: str) -> None:
        self._world, self._folder, self._kind = world, folder, kind
        self._brokers: dict[int, Broker] = {}

    def start_controller(self) -> None:
        machine = self._world.machine("controller")
        surroundings = ControllerWorld(
            clock=machine.clock,
            network=machine.network,
            connector=machine.connector(session_timeout_ms=_SESSION_MS),
            chance=machine.chance,
        )
        identity = Identity(controller_id=BrokerId(CONTROLLER), listeners=(NodeListener(host=machine.name, port=PORT),))
        controller = Controller(
            identity,
            controller_config.parse(CONTROLLER_SETTINGS),
            surroundings,
            structlog.get_logger(),
            given=CONTROLLER_SETTINGS,
        )
        machine.start(_forever(controller))

    async def start(self, broker: int) -> None:
        machine = self._machine(broker)
        self._brokers[broker] = made = self._broker(broker, machine)
        machine.start(_started(made))

    async def kill(self, broker: int) -> None:
        self._machine(broker).kill()
        gone = self._brokers.pop(broker)
        if gone.replicas is not None:
            gone.replicas.abandon()  # the end of a process gives up its file locks, too

    async def kill_all(self) -> None:
        for broker in list(self._brokers):
            await self.kill(broker)
        self._world.machine("controller").kill()

    def _machine(self, broker: int) -> Machine:
        return self._world.machine(f"broker-{broker}")

    def _broker(self, broker: int, machine: Machine) -> Broker:
        identity = BrokerIdentity(
            broker_id=BrokerId(broker),
            listeners=(NodeListener(host=machine.name, port=PORT),),
            rack=RACKS[self._kind].get(broker),
            log_dirs=tuple(self._folder / machine.name / name for name in ("logs", "more")),
        )
        return Broker(
            identity,
            BrokerSettings.parse(SETTINGS),
            clock=machine.clock,
            network=machine.network,
            zookeeper=machine.connector(session_timeout_ms=_SESSION_MS),
            chance=machine.chance,
            log=structlog.get_logger(),
        )


async def _forever(controller: Controller) -> None:
    import asyncio

    await controller.start()
    await asyncio.Event().wait()


async def _started(broker: Broker) -> None:
    await broker.start()
    await broker.wait_halted()


@asynccontextmanager
async def simulated(world: World, folder: Path, kind: str) -> AsyncIterator[Stage]:
    """Three brokers and a controller, settled."""
    files = folder / "files"
    files.mkdir(parents=True)
    programs = Programs(world, folder / "data", kind)
    programs.start_controller()
    for broker in BROKERS:
        await programs.start(broker)
    client = world.machine("client")
    session = await client.connector(session_timeout_ms=3_600_000).connect(
        on_watch=lambda _: None, on_expired=lambda: None
    )
    stage = Stage(
        client.network,
        session,
        programs,
        {b: (f"broker-{b}", PORT) for b in BROKERS},
        data=folder / "data",
        files=files,
        zookeeper="zookeeper:2181",
        extra_names={"/client": "<client>", "zookeeper:2181": "<zookeeper>"},
    )
    try:
        await stage.open_curtain(groups=kind not in WITHOUT_GROUPS)
        yield stage
    finally:
        await programs.kill_all()
