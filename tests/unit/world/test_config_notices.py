"""Notices of changed configs are taken whatever becomes of the list that they are in: removed, made anew, refused."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

import structlog

from controller.wire.zk_operations import Create, Delete, WatchEvent, ZkCode, ZkSessionExpired
from controller.wire.znodes import ConfigChangesZNode
from controller.world.config_notices import RETRY_S, ConfigNotices
from controller.world.ports import ZkSession
from controller.world.simulated.clock import SimulatedClock
from controller.world.simulated.loop import VirtualTimeLoop, run
from controller.world.simulated.zookeeper import SimulatedZooKeeper
from controller.world.standard_znodes import prepare_cluster

PATH = ConfigChangesZNode.path
Scenario = Callable[[ZkSession, SimulatedZooKeeper, list[str]], Awaitable[None]]


def with_follower(scenario: Scenario, failing: Sequence[str] = ()) -> None:
    """`scenario(zk, server, changed)`: somebody follows; `changed` are the entities that it was called for. Of those
    that are `failing` the session ends when they are taken first."""

    async def whole() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        clock = SimulatedClock(loop)
        server = SimulatedZooKeeper(random.Random(1), clock)
        changed: list[str] = []

        async def on_change(entity_path: str) -> None:
            changed.append(entity_path)
            if entity_path in failing and changed.count(entity_path) == 1:
                raise ZkSessionExpired("it ended")

        def on_watch(event: WatchEvent) -> None:
            if event.path == PATH:
                notices.look()

        mine = await server.connector("a", chroot="", session_timeout_ms=60_000).connect(
            on_watch=on_watch, on_expired=lambda: None
        )
        zk = await server.connector("b", chroot="", session_timeout_ms=60_000).connect(
            on_watch=lambda _: None, on_expired=lambda: None
        )
        await prepare_cluster(zk, random.Random(1))
        notices = ConfigNotices(mine, on_change, clock=clock, log=structlog.get_logger())
        notices.look()
        following = asyncio.create_task(notices.follow())
        await scenario(zk, server, changed)
        following.cancel()

    run(whole())


async def notify(zk: ZkSession, *entities: str) -> None:
    for entity in entities:
        await zk.perform([Create(ConfigChangesZNode.sequence_path, ConfigChangesZNode.encode(entity), sequence=True)])
    await asyncio.sleep(0.5)


async def remove_list(zk: ZkSession, server: SimulatedZooKeeper) -> None:
    below = [path for path in server.tree.paths() if path.startswith(PATH)]
    await zk.perform([Delete(path) for path in reversed(below)])


def test_notices_of_a_list_that_was_made_anew_are_taken_from_its_first_on() -> None:
    async def scenario(zk: ZkSession, server: SimulatedZooKeeper, changed: list[str]) -> None:
        await notify(zk, "topics/a", "topics/b")
        await remove_list(zk, server)
        await zk.perform([Create(PATH)])
        await asyncio.sleep(2 * RETRY_S)
        await notify(zk, "topics/c")
        assert changed == ["topics/a", "topics/b", "topics/c"]

    with_follower(scenario)


def test_a_list_that_is_gone_is_looked_for_until_it_is_there_again() -> None:
    async def scenario(zk: ZkSession, server: SimulatedZooKeeper, changed: list[str]) -> None:
        await remove_list(zk, server)
        await asyncio.sleep(10 * RETRY_S)
        await zk.perform([Create(PATH)])
        await asyncio.sleep(2 * RETRY_S)
        await notify(zk, "topics/a")
        assert changed == ["topics/a"]

    with_follower(scenario)


def test_a_notice_counts_as_taken_when_it_has_been_acted_upon() -> None:
    """A session that ends in the middle of one loses neither it nor those behind it, and none is taken twice."""

    async def scenario(zk: ZkSession, server: SimulatedZooKeeper, changed: list[str]) -> None:
        await notify(zk, "topics/a", "topics/b", "topics/c")
        await notify(zk, "topics/d")  # by which it is looked again, as by the next session
        await notify(zk, "topics/e")
        assert changed == [f"topics/{name}" for name in "abbcdde"]

    with_follower(scenario, failing=("topics/b", "topics/d"))


def test_a_list_that_is_refused_hides_no_notice() -> None:
    async def scenario(zk: ZkSession, server: SimulatedZooKeeper, changed: list[str]) -> None:
        server.tree.refusal = lambda op: ZkCode.NO_AUTH if getattr(op, "path", None) == PATH else None
        await notify(zk, "topics/a", "topics/b")
        server.tree.refusal = lambda _: None
        await asyncio.sleep(2 * RETRY_S)
        assert changed == ["topics/a", "topics/b"]

    with_follower(scenario)
