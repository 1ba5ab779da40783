"""One contract, two ZooKeepers: what a test asks of the real server and of the one in memory."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from controller.wire.zk_operations import WatchEvent
from controller.world.ports import ZkSession
from controller.world.real.zookeeper import KazooConnector, KazooSession
from controller.world.simulated.clock import SimulatedClock
from controller.world.simulated.loop import VirtualTimeLoop, run
from controller.world.simulated.zk_session import SimulatedSession
from controller.world.simulated.zookeeper import SimulatedZooKeeper

LIMIT_S = 20.0


class Client:
    """A session and what it was told."""

    def __init__(self) -> None:
        self.session: ZkSession
        self.events: list[WatchEvent] = []
        self.expirations = 0
        self._told = asyncio.Event()

    def on_watch(self, event: WatchEvent) -> None:
        self.events.append(event)
        self._told.set()

    def on_expired(self) -> None:
        self.expirations += 1
        self._told.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not condition():
                self._told.clear()
                await self._told.wait()


class Zk(Protocol):
    """What a test may do with either server."""

    async def client(self, chroot: str = "") -> Client: ...

    async def expire(self, client: Client) -> None: ...

    async def disconnect(self, client: Client) -> None: ...

    def run(self, scenario: Callable[[], Coroutine[Any, Any, None]]) -> None: ...


class RealZk:
    def __init__(self, zk_connect: str) -> None:
        self._connect = zk_connect
        self._clients: list[Client] = []

    def run(self, scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            try:
                await scenario()
            finally:
                for client in self._clients:
                    await client.session.close()

        asyncio.run(whole())

    async def client(self, chroot: str = "") -> Client:
        client = Client()
        connector = KazooConnector(self._connect + chroot, session_timeout_ms=4000, connect_timeout_s=10)
        client.session = await connector.connect(on_watch=client.on_watch, on_expired=client.on_expired)
        self._clients.append(client)
        return client

    async def expire(self, client: Client) -> None:
        assert isinstance(client.session, KazooSession)
        await end_session(self._connect, client.session)

    async def disconnect(self, client: Client) -> None:
        assert isinstance(client.session, KazooSession)
        cut(client.session.client)


async def end_session(zk_connect: str, session: KazooSession) -> None:
    """A second connection takes the session over and closes it: once more, where its owner took it back before that."""
    owner, lost = session.client, threading.Event()
    owner.add_listener(lambda state: lost.set() if state == KazooState.LOST else None)
    async with asyncio.timeout(3 * LIMIT_S):
        while owner.state != KazooState.LOST:
            thief = KazooClient(zk_connect.partition("/")[0], client_id=owner.client_id)
            with contextlib.suppress(KazooTimeoutError):
                await asyncio.to_thread(thief.start, timeout=2)
                await asyncio.to_thread(thief.stop)
            thief.close()
            await asyncio.to_thread(lost.wait, 2)


def cut(client: KazooClient) -> None:
    """The connection of a client breaks; its session goes on."""
    client._connection._socket.shutdown(2)


class SimulatedZk:
    def __init__(self) -> None:
        self.server: SimulatedZooKeeper

    def run(self, scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualTimeLoop)
            self.server = SimulatedZooKeeper(random.Random(1), SimulatedClock(loop))
            await scenario()

        run(whole())

    async def client(self, chroot: str = "") -> Client:
        client = Client()
        connector = self.server.connector("machine", chroot="/test" + chroot, session_timeout_ms=4000)
        client.session = await connector.connect(on_watch=client.on_watch, on_expired=client.on_expired)
        return client

    async def expire(self, client: Client) -> None:
        self.server.expire_session(client.session.session_id)

    async def disconnect(self, client: Client) -> None:
        assert isinstance(client.session, SimulatedSession)
        self.server.disconnect(client.session.session_id)
