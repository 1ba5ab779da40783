"""Z1 to Z3, X4, X5: the broker's registration and the office, on a real ZooKeeper and on the one in memory.

Stub brokers: `Registration` and its client, without the rest of a broker.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import structlog

from broker_sim.registration import Registration, RegistrationRefused
from broker_sim.zk_client import ZkClient
from controller.core import events
from controller.node.config import parse
from controller.node.process import Controller, Identity, World
from controller.rules.configs.listeners import NodeListener
from controller.wire.types import Broker, BrokerId, Endpoint, ReplicaAssignment, TopicPartition
from controller.wire.zk_operations import Create, Delete, GetData, Multi, ZkOp, ZkResult
from controller.wire.znodes import BrokerIdZNode, TopicAssignment, TopicZNode
from controller.world.ports import ZkConnector, ZkSession
from controller.world.real.net import TcpNetwork
from controller.world.real.zookeeper import KazooConnector, KazooSession
from controller.world.simulated.clock import SimulatedClock
from controller.world.simulated.loop import VirtualTimeLoop, run
from controller.world.simulated.zookeeper import SimulatedZooKeeper
from controller.world.standard_znodes import prepare_cluster
from tests.worlds.zookeepers import cut, end_session

PATH = "/brokers/ids/1"
ONE = Broker(broker_id=BrokerId(1), endpoints=(Endpoint(host="one", port=9092),))


class FixedClock:
    def now_ms(self) -> int:
        return 1


class Server:
    """Either ZooKeeper, as these tests use it."""

    def __init__(self, zk_connect: str | None) -> None:
        self._zk_connect = zk_connect
        self._simulated: SimulatedZooKeeper
        self._open: list[ZkClient] = []

    def run(self, scenario: Callable[[Server], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            loop = asyncio.get_running_loop()
            if isinstance(loop, VirtualTimeLoop):
                self._simulated = SimulatedZooKeeper(random.Random(1), SimulatedClock(loop))
            client = await self.client()
            await prepare_cluster(client, random.Random(1))
            try:
                await scenario(self)
            finally:
                for opened in self._open:
                    await opened.close()

        if self._zk_connect is None:
            run(whole())
        else:
            asyncio.run(whole())

    def connector(self) -> ZkConnector:
        if self._zk_connect is None:
            return self._simulated.connector("machine", session_timeout_ms=4_000)
        return KazooConnector(self._zk_connect, session_timeout_ms=4_000, connect_timeout_s=10)

    async def client(self, connector: ZkConnector | None = None) -> ZkClient:
        client = ZkClient(connector or self.connector(), log=structlog.get_logger())
        await client.open()
        self._open.append(client)
        return client

    async def expire(self, session: ZkSession) -> None:
        if isinstance(session, KazooSession):
            await end_session(str(self._zk_connect), session)
        else:
            self._simulated.expire_session(session.session_id)


@pytest.fixture(params=[pytest.param("real", marks=pytest.mark.zk), "simulated"])
def server(request: pytest.FixtureRequest) -> Server:
    return Server(request.getfixturevalue("zk_connect") if request.param == "real" else None)


def registration(client: ZkClient, *, timeout_ms: int = 4_000) -> Registration:
    return Registration(client, ONE, clock=FixedClock(), log=structlog.get_logger(), session_timeout_ms=timeout_ms)


async def owner(client: ZkClient) -> int:
    found = await client.perform_one(GetData(PATH))
    return found.stat.ephemeral_owner if found.stat is not None else 0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for belongs to others
            await asyncio.sleep(0.02)


@pytest.mark.known_failure("Z1")
def test_a_refused_twin_leaves_the_registration_alone(server: Server) -> None:
    async def scenario(server: Server) -> None:
        first, twin = await server.client(), await server.client()
        epoch = await registration(first).register()
        with pytest.raises(RegistrationRefused, match=r"broker id 1 is taken: .* stop the other broker"):
            await registration(twin, timeout_ms=100).register()
        await twin.close()
        found = await first.perform_one(GetData(PATH))
        assert found.stat is not None
        assert (found.stat.czxid, found.stat.ephemeral_owner) == (epoch, first.session_id)

    server.run(scenario)


def test_a_node_of_no_session_is_not_taken_for_an_old_one_of_ours(server: Server) -> None:
    """What somebody made by hand is persistent: its owner is session 0, and so is the last session of who starts."""

    async def scenario(server: Server) -> None:
        client = await server.client()
        await client.perform_one(Create(PATH, b"by hand"))
        with pytest.raises(RegistrationRefused, match="is taken"):
            await registration(client).register()
        found = await client.perform_one(GetData(PATH))
        assert found.data == b"by hand"

    server.run(scenario)


@pytest.mark.known_failure("Z2")
def test_the_own_old_registration_is_replaced_and_never_vanishes(server: Server) -> None:
    """The client sees the end of s1 before the server does: its registration is still there."""

    async def scenario(server: Server) -> None:
        client, other = await server.client(), await server.client()
        mine = registration(client)
        before = await mine.register()
        old = client.session
        assert old is not None
        await client.perform_one(Create("/of_s1", None, ephemeral=True))
        client.on_new_session(mine.register_again)
        client._expired(old)
        await until(lambda: mine.broker_epoch > before)
        assert await owner(other) == client.session_id != old.session_id
        assert (await other.perform_one(GetData("/of_s1"))).ok, "the end of s1 is not waited for"
        await server.expire(old)
        await asyncio.sleep(0.2)
        assert await owner(other) == client.session_id, "the end of s1 does not take it along"
        await old.close()

    server.run(scenario)


@pytest.mark.known_failure("Z2")
def test_a_foreign_registration_is_refused_after_a_lost_session() -> None:
    """On virtual time: it waits for a session timeout."""

    async def scenario(server: Server) -> None:
        client, other = await server.client(), await server.client()
        mine = registration(client, timeout_ms=100)
        await mine.register()
        await client.perform_one(Delete(PATH))
        await registration(other).register()
        with pytest.raises(RegistrationRefused, match="is taken"):
            await mine.register()
        assert await owner(client) == other.session_id

    Server(None).run(scenario)


@pytest.mark.known_failure("X4")
@pytest.mark.parametrize("what", ["its own id", "its address, as another broker"])
def test_what_a_killed_process_registered_is_outlived_at_the_start(what: str) -> None:
    """After a kill or a power cut the session lives on for a while; whoever starts on the same data comes up."""
    server = Server(None)

    async def scenario(server: Server) -> None:
        dead, client = await server.client(), await server.client()
        before = ONE if what == "its own id" else replace(ONE, broker_id=BrokerId(2))
        await Registration(dead, before, clock=FixedClock(), log=structlog.get_logger()).register()
        again = registration(client)

        async def start() -> None:
            await again.check_endpoints()
            await again.register()

        starting = asyncio.ensure_future(start())
        await asyncio.sleep(2.5)
        assert not starting.done()
        await dead.close()
        await starting
        assert await owner(client) == client.session_id

    server.run(scenario)


@pytest.mark.known_failure("X4")
def test_a_session_that_nobody_knows_is_outlived() -> None:
    """The create was applied in a session whose handshake reply was lost; Kafka's broker stays out until restarted."""
    server = Server(None)

    async def scenario(server: Server) -> None:
        client, ghost = await server.client(), await server.client()
        mine = registration(client)
        await mine.register()
        await client.perform_one(Delete(PATH))
        await registration(ghost).register()
        again = asyncio.ensure_future(mine.register())
        await asyncio.sleep(2.5)
        assert not again.done()
        await ghost.close()
        await again
        assert await owner(client) == client.session_id

    server.run(scenario)


class Racing:
    """A connector whose sessions delete the registration right after a create met it."""

    def __init__(self, inner: ZkConnector, vanishes: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._inner, self._vanishes = inner, vanishes

    async def connect(self, **callbacks: Any) -> Any:
        session = await self._inner.connect(**callbacks)
        perform = session.perform

        async def racing(ops: Sequence[ZkOp]) -> list[ZkResult]:
            results = await perform(ops)
            if isinstance(ops[0], Multi) and not results[0].ok:
                await self._vanishes()
            return results

        session.perform = racing
        return session


@pytest.mark.known_failure("X5")
def test_a_registration_that_vanishes_between_two_looks_is_made_again() -> None:
    server = Server(None)

    async def scenario(server: Server) -> None:
        old = await server.client()
        await registration(old).register()
        client = await server.client(Racing(server.connector(), old.close))
        assert await registration(client).register() > 0
        assert await owner(client) == client.session_id

    server.run(scenario)


def test_a_registration_whose_answer_was_lost_in_a_new_session_has_the_new_epoch() -> None:
    """The create was done, its answer lost with the connection, and the broker has an epoch of its last session."""
    server = Server(None)

    async def scenario(server: Server) -> None:
        client, other = await server.client(), await server.client()
        mine = registration(client)
        before = await mine.register()
        await client.expire()
        await until(lambda: client.session_id != 0)
        content = BrokerIdZNode.encode(ONE, 1)
        await client.perform_one(Create(PATH, content, ephemeral=True))
        again = await mine.register()
        found = await other.perform_one(GetData(PATH))
        assert found.stat is not None and again == mine.broker_epoch == found.stat.czxid > before

    server.run(scenario)


@pytest.mark.known_failure("X4")
def test_one_foreign_session_after_another_is_outlived() -> None:
    """Each owner is waited for by itself: who came and went meanwhile is no reason to refuse."""
    server = Server(None)

    async def scenario(server: Server) -> None:
        ghosts, client = [await server.client() for _ in range(3)], await server.client()
        await registration(ghosts[0]).register()
        starting = asyncio.ensure_future(registration(client).register())
        for ghost, after in zip(ghosts, [*ghosts[1:], None], strict=True):
            await asyncio.sleep(4)
            assert not starting.done()
            await ghost.close()
            if after is not None:
                await after.perform_one(Create(PATH, BrokerIdZNode.encode(ONE, 1), ephemeral=True))
        await starting
        assert await owner(client) == client.session_id

    server.run(scenario)


# --- the office


@asynccontextmanager
async def controller(server: Server) -> AsyncIterator[Any]:
    """A controller on this ZooKeeper, with a broker that only exists."""

    network = TcpNetwork()
    world = World(clock=FixedClock(), network=network, connector=server.connector(), chance=random.Random(1))
    made = Controller(
        Identity(controller_id=BrokerId(100), listeners=(NodeListener(host="127.0.0.1", port=0),)),
        parse({"auto.leader.rebalance.enable": "false"}),
        world,
        structlog.get_logger(),
    )
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


@pytest.mark.zk
@pytest.mark.known_failure("Z3", "X1", "E3")
@pytest.mark.parametrize("event", ["an event without an end", "a lost connection", "an expiry"])
def test_whatever_the_client_tells_somebody_acts_afterwards(zk_connect: str, event: str) -> None:
    """On a real ZooKeeper: a session event that ended nothing, one that broke the connection, and a real end."""
    server = Server(zk_connect)

    async def scenario(server: Server) -> None:

        client = await server.client()
        await registration(client).register()
        async with controller(server) as made:
            await until(lambda: BrokerId(1) in made.state.live_brokers)
            session = made.zk._session.session
            epoch = made.state.epoch
            match event:
                case "an event without an end":
                    made.loop.expire()
                    made.loop.put(events.RegisterBrokerAndReelect(made.zk.session_id))
                case "a lost connection":
                    cut(session.client)
                case _:
                    await server.expire(session)
            await until(lambda: event == "a lost connection" or made.state.epoch > epoch)
            await until(lambda: made.state.serving and BrokerId(1) in made.state.live_brokers)
            found = await client.perform_one(GetData("/controller"))
            assert found.stat is not None and found.stat.ephemeral_owner == made.zk.session_id

            assignment = TopicAssignment(partitions={0: ReplicaAssignment(replicas=(BrokerId(1),))})
            await client.perform_one(Create(TopicZNode.path("t"), TopicZNode.encode(assignment)))
            await until(lambda: made.state.leadership(TopicPartition("t", 0)) is not None)

    server.run(scenario)


def test_the_registration_can_be_read() -> None:
    """What these tests write is what a controller reads."""
    assert BrokerIdZNode.decode(BrokerId(1), BrokerIdZNode.encode(ONE, 1)).endpoints == ONE.endpoints
