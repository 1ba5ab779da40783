"""Notices of changed configs are taken whatever becomes of the list that they are in: removed, made anew, refused."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence

import pytest
import structlog
from structlog.testing import capture_logs

from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.zk_operations import Create, Delete, GetData, WatchEvent, ZkCode, ZkSessionExpired
from controller.wire.znodes import ConfigChangesZNode
from controller.world.config_notices import RETRY_S, ConfigNotices, Unreadable
from controller.world.ports import ZkSession
from controller.world.simulated.clock import SimulatedClock
from controller.world.simulated.loop import VirtualTimeLoop, run
from controller.world.simulated.zookeeper import SimulatedZooKeeper
from controller.world.standard_znodes import prepare_cluster

PATH = ConfigChangesZNode.path
EXPIRED = ZkSessionExpired("it ended")
UNREADABLE = Unreadable("/config/topics/a", "NO_AUTH")
REFUSED = KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "no topic has such a name")
Scenario = Callable[[ZkSession, SimulatedZooKeeper, list[str]], Awaitable[None]]


def with_follower(scenario: Scenario, failing: Mapping[str, Sequence[Exception]] | None = None) -> None:
    """`scenario(zk, server, changed)`: somebody follows; `changed` are the entities that it was called for. For those
    that are `failing`, its first calls end with these errors."""
    failures = {entity: iter(errors) for entity, errors in (failing or {}).items()}

    async def whole() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        clock = SimulatedClock(loop)
        server = SimulatedZooKeeper(random.Random(1), clock)
        changed: list[str] = []

        async def on_change(entity_path: str) -> None:
            changed.append(entity_path)
            for error in failures.get(entity_path, ()):
                raise error

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

    with_follower(scenario, failing={"topics/b": [EXPIRED], "topics/d": [EXPIRED]})


@pytest.mark.parametrize("code", [ZkCode.NO_AUTH, ZkCode.NO_NODE])
def test_a_notice_that_is_refused_or_gone_hides_none_behind_it(code: ZkCode) -> None:
    """It is read once it can be (by Kafka at the next change, and those behind it not before it); the log says so once,
    but of one that somebody else deleted."""

    async def scenario(zk: ZkSession, server: SimulatedZooKeeper, changed: list[str]) -> None:
        first = f"{ConfigChangesZNode.sequence_path}0000000000"
        server.tree.refusal = lambda op: code if isinstance(op, GetData) and op.path == first else None
        await notify(zk, "topics/a", "topics/b")
        await notify(zk, "topics/c")
        await asyncio.sleep(10 * RETRY_S)
        assert changed == ["topics/b", "topics/c"]
        server.tree.refusal = lambda _: None
        await asyncio.sleep(2 * RETRY_S)
        await notify(zk, "topics/d")
        await asyncio.sleep(10 * RETRY_S)
        late = ["topics/a"] if code is ZkCode.NO_AUTH else []
        assert changed == ["topics/b", "topics/c", *late, "topics/d"]

    with capture_logs() as logged:
        with_follower(scenario)
    lines = [(line["event"], line["path"], line["reason"]) for line in logged]
    refused = (ev.CONFIG_REFUSED, f"{ConfigChangesZNode.sequence_path}0000000000", "NO_AUTH")
    assert lines == ([refused] if code is ZkCode.NO_AUTH else [])


def test_a_list_that_is_refused_hides_no_notice() -> None:
    async def scenario(zk: ZkSession, server: SimulatedZooKeeper, changed: list[str]) -> None:
        server.tree.refusal = lambda op: ZkCode.NO_AUTH if getattr(op, "path", None) == PATH else None
        await notify(zk, "topics/a", "topics/b")
        server.tree.refusal = lambda _: None
        await asyncio.sleep(2 * RETRY_S)
        assert changed == ["topics/a", "topics/b"]

    with_follower(scenario)


ASKED = [  # what comes of the first calls -> how often it is called for in all, how many lines say so
    ("read at once", [], 1, 0),
    ("unreadable once", [UNREADABLE], 2, 1),
    ("unreadable for long", [UNREADABLE] * 5, 6, 1),
    ("refused", [REFUSED], 1, 1),
    ("readable at last, and refused", [UNREADABLE, REFUSED], 2, 2),
    ("the session ends while it is asked again", [UNREADABLE, EXPIRED, UNREADABLE], 4, 1),
]


@pytest.mark.parametrize(("errors", "calls", "lines"), [row[1:] for row in ASKED], ids=[row[0] for row in ASKED])
def test_what_cannot_be_read_is_asked_for_again_until_it_can_and_no_longer(
    errors: Sequence[Exception], calls: int, lines: int
) -> None:
    async def scenario(zk: ZkSession, server: SimulatedZooKeeper, changed: list[str]) -> None:
        await notify(zk, "topics/a")
        await asyncio.sleep(20 * RETRY_S)
        await notify(zk, "topics/b")
        await asyncio.sleep(20 * RETRY_S)
        assert (changed.count("topics/a"), changed.count("topics/b")) == (calls, 1)

    with capture_logs() as logged:
        with_follower(scenario, failing={"topics/a": errors})
    assert [line["event"] for line in logged] == [ev.CONFIG_REFUSED] * lines
