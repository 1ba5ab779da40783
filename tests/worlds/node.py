"""A controller in a simulated world, with brokers that say yes to everything."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import structlog
from structlog.testing import capture_logs

from controller.node.config import parse
from controller.node.process import Controller, Identity
from controller.node.process import World as Given
from controller.rules.configs.listeners import NodeListener
from controller.wire import protocol, znodes
from controller.wire.framing import FrameBuffer
from controller.wire.protocol import ApiKey
from controller.wire.types import Broker, BrokerId, Endpoint
from controller.wire.zk_operations import Create, GetData, ZkOp, ZkResult
from controller.world.client import BrokerConnection
from controller.world.ports import Connection, ZkSession
from controller.world.simulated.world import World, run_world

CONTROLLER_ID = BrokerId(100)
HOST, PORT = "controller", 9090


async def _agree(connection: Connection) -> None:
    frames = FrameBuffer()
    while data := await connection.recv():
        for frame in frames.feed(data):
            request = protocol.decode_request(frame)
            body: dict[str, Any] = {}
            if request.api_key is ApiKey.STOP_REPLICA:
                body["partition_errors"] = [
                    {"topic_name": topic.topic_name, "partition_index": int(state.partition_index), "error_code": 0}
                    for topic in request.body.topic_states
                    for state in topic.partition_states
                ]
            connection.send(
                protocol.encode_response(request.api_key, request.api_version, request.correlation_id, body)
            )


class Cluster:
    """One controller and its surroundings; `ask` is a client."""

    def __init__(self, world: World, settings: Mapping[str, str]) -> None:
        self.world = world
        self.machine = world.machine(HOST)
        self.client = world.machine("client")
        self.settings = dict(settings)
        self.listeners: tuple[NodeListener, ...] = ()
        self.trace: list[str] = []
        self.controller: Controller
        self.session: ZkSession
        self._registered: dict[int, ZkSession] = {}

    async def start(self) -> None:
        self.session = await self.client.connector().connect(on_watch=lambda event: None, on_expired=lambda: None)
        self.controller = self.make()
        await self.machine.run(self.controller.start())

    def make(self, controller_id: int = CONTROLLER_ID, host: str = HOST) -> Controller:
        machine = self.world.machine(host)
        given = Given(
            clock=machine.clock, network=machine.network, connector=machine.connector(), chance=random.Random(5)
        )
        return Controller(
            Identity(
                controller_id=BrokerId(controller_id), listeners=self.listeners or (NodeListener(host=host, port=PORT),)
            ),
            parse(self.settings),
            given,
            structlog.get_logger(),
            given=self.settings,
            trace_line=self.trace.append,
        )

    def _listeners(self, host: str) -> tuple[NodeListener, ...]:
        return self.listeners or (NodeListener(host=host, port=PORT),)

    async def register(self, number: int, rack: str | None = None, listener: str = "PLAINTEXT") -> None:
        """A broker that answers NONE to every control request."""
        machine = self.world.machine(f"broker-{number}")
        await machine.network.listen(machine.name, 9092, _agree)
        session = await machine.connector().connect(on_watch=lambda event: None, on_expired=lambda: None)
        endpoint = Endpoint(host=machine.name, port=9092, listener=listener)
        broker = Broker(broker_id=BrokerId(number), endpoints=(endpoint,), rack=rack)
        await session.perform(
            [Create(znodes.BrokerIdZNode.path(number), znodes.BrokerIdZNode.encode(broker, 0), ephemeral=True)]
        )
        self._registered[number] = session
        await self.world.until(
            lambda: BrokerId(number) in self.controller.state.live_brokers, within_s=10, what="the broker is seen"
        )

    async def unregister(self, number: int) -> None:
        await self._registered.pop(number).close()
        await self.world.until(
            lambda: BrokerId(number) not in self.controller.state.live_brokers, within_s=10, what="the broker is gone"
        )

    async def zk(self, *ops: ZkOp) -> list[ZkResult]:
        return await self.session.perform(ops)

    async def read(self, path: str) -> bytes | None:
        (found,) = await self.zk(GetData(path))
        return found.data

    async def ask(
        self, api_key: ApiKey, version: int, body: Mapping[str, Any], *, host: str = HOST, timeout_s: float = 60
    ) -> Any:
        """The answer, as plain values."""
        connection = await BrokerConnection.open(self.client.network, host, PORT, client_id="test")
        try:
            return protocol.plain(await connection.call(api_key, version, body, timeout_s=timeout_s))
        finally:
            connection.close()


def play(
    scenario: Callable[[Cluster], Coroutine[Any, Any, None]],
    *,
    brokers: int = 3,
    settings: Mapping[str, str] | None = None,
) -> list[Any]:
    """Runs a scenario with a controller in office and brokers 1..n; returns the log lines."""

    async def main(world: World) -> None:
        cluster = Cluster(world, {"auto.leader.rebalance.enable": "false", **(settings or {})})
        await cluster.start()
        await world.until(lambda: cluster.controller.state.serving, within_s=10, what="the controller is in office")
        for number in range(1, brokers + 1):
            await cluster.register(number)
        try:
            await scenario(cluster)
        finally:
            await cluster.machine.run(cluster.controller.stop())
            await asyncio.sleep(0)

    with capture_logs() as lines:
        run_world(1, main)
    return list(lines)
