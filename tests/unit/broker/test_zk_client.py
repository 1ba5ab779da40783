"""A broker's client of ZooKeeper: whoever waits for an answer when it is closed, or let go of, holds nobody up."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from functools import partial
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from broker_sim.zk_client import ZkClient
from controller.wire import log_events as ev
from controller.wire.zk_operations import Create, Exists, ZkOp, ZkResult, ZkSessionExpired, ZkUnreachable
from controller.world.ports import ZkSession
from controller.world.simulated.clock import SimulatedClock
from controller.world.simulated.loop import VirtualTimeLoop, run
from controller.world.simulated.zk_session import SimulatedSession
from controller.world.simulated.zookeeper import SimulatedConnector, SimulatedZooKeeper

CALLS_MAX = 50


async def opened() -> tuple[SimulatedZooKeeper, SimulatedConnector, ZkClient]:
    """A ZooKeeper, and a client that has a session there."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    server = SimulatedZooKeeper(random.Random(1), SimulatedClock(loop))
    connector = server.connector("a", chroot="", session_timeout_ms=6000)
    client = ZkClient(connector, log=structlog.get_logger())
    await client.open()
    return server, connector, client


class SpinsError(BaseException):
    """Asked again and again without a pause: the loop does nothing else any more."""


@pytest.mark.parametrize("how", ["close", "abandon"])
def test_who_waits_when_it_is_closed_holds_up_nobody(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session has ended before its connection is closed; what is asked meanwhile cannot be answered any more."""
    calls = 0
    perform = SimulatedSession.perform

    async def counted(self: SimulatedSession, ops: list[ZkOp]) -> list[ZkResult]:
        nonlocal calls
        calls += 1
        if calls > CALLS_MAX:
            raise SpinsError
        return await perform(self, ops)

    async def slow_close(self: SimulatedSession) -> None:
        await close(self)
        await asyncio.sleep(0.1)  # the real one joins a thread

    close = SimulatedSession.close
    monkeypatch.setattr(SimulatedSession, "perform", counted)
    monkeypatch.setattr(SimulatedSession, "close", slow_close)

    async def whole() -> None:
        _, _, client = await opened()
        await client.perform([Create("/t")])
        asking = [asyncio.create_task(client.perform_one(Exists("/t"))) for _ in range(3)]
        await asyncio.sleep(0)
        await getattr(client, how)()
        late = asyncio.create_task(client.perform_one(Exists("/t")))
        await asyncio.sleep(30)
        assert not late.done(), "there is nobody to ask any more"
        for task in (*asking, late):
            task.cancel()
        ended = await asyncio.gather(*asking, late, return_exceptions=True)
        assert not [e for e in ended if isinstance(e, ZkSessionExpired | SpinsError)]

    run(whole())
    assert calls <= CALLS_MAX


def test_a_session_ends_once_whoever_notices_and_however_late() -> None:
    """Of two requests in the same session one learns of its end when the next session is there already."""

    async def whole() -> None:
        _, _, client = await opened()
        first = client.session
        assert first is not None

        async def after(seconds: float) -> list[ZkResult]:
            await asyncio.sleep(seconds)
            raise ZkSessionExpired

        waits = iter((0.0, 10.0))
        first.perform = lambda ops: after(next(waits))
        renewed = []

        async def note() -> None:
            renewed.append(client.session_id)

        client.on_new_session(note)
        asked = [asyncio.create_task(client.perform_one(Exists("/t"))) for _ in range(2)]
        await asyncio.gather(*asked)
        await asyncio.sleep(10)
        assert (client.expirations, renewed) == (1, [client.session_id])
        assert client.previous_session_id == first.session_id != client.session_id
        await client.close()

    run(whole())


def test_what_a_client_says_of_its_sessions() -> None:
    async def whole() -> None:
        server, connector, client = await opened()
        fresh = ZkClient(connector, log=structlog.get_logger())
        assert (fresh.session_id, fresh.previous_session_id, fresh.connections, fresh.is_connected) == (0, 0, 0, False)
        ids = [client.session_id]
        for times in range(1, 4):
            assert (client.connections, client.expirations, client.is_connected) == (times, times - 1, True)
            await client.expire()
            assert (client.session_id, client.previous_session_id, client.is_connected) == (0, ids[-1], False)
            assert (client.connections, client.expirations) == (times, times)
            await asyncio.sleep(1)
            ids.append(client.session_id)
        assert len({0, *ids}) == 5
        await client.close()
        assert (client.session_id, client.is_connected) == (0, False)
        await client.expire()
        await asyncio.sleep(60)
        assert (client.session_id, client.expirations, len(server.sessions)) == (0, 3, 0), (
            "that of a closed one is none"
        )

    run(whole())


@pytest.mark.parametrize("how", ["nothing", "close", "abandon"])
def test_no_watch_reaches_who_was_closed_or_let_go_of(how: str) -> None:
    """Who was killed does nothing more, though its session lives until it times out; nor does it open another."""

    async def whole() -> None:
        server, connector, client = await opened()
        other, seen = ZkClient(connector, log=structlog.get_logger()), list[str]()
        await other.open()
        client.watch("/t", lambda event: seen.append(event.path))
        client.watch("/u", lambda event: seen.append(event.path))
        await client.perform([Exists("/t", watch=True)])
        if how != "nothing":
            await getattr(client, how)()
        await other.perform([Create("/t"), Create("/u")])
        await asyncio.sleep(60)
        assert seen == (["/t"] if how == "nothing" else [])
        assert len(server.sessions) == (1 if how == "close" else 2), "one that is let go of is not ended"
        for each in (other, client):
            await each.close()

    run(whole())


#: In each new session: with which of the four operations of those who wait for one it ends.
ENDS = [[1], [2], [3], [4], [1, 1], [1, 2, 3, 4], [4, 3, 2, 1]]


@pytest.mark.parametrize("ends", ENDS)
def test_what_is_to_be_done_in_each_new_session_is_done_in_the_last_one_in_order_and_once(ends: list[int]) -> None:
    """Also where sessions end meanwhile: what was begun in them is given up, and does not go on beside it."""

    async def whole() -> None:
        server, _, client = await opened()
        done: list[tuple[str, int]] = []
        asked, left = Counter[int](), list(ends)

        def end_some(session: SimulatedSession, op: ZkOp, result: ZkResult) -> None:
            asked[session.session_id] += 1
            if left and asked[session.session_id] == left[0]:
                del left[0]
                server.expire_session(session.session_id)

        async def handle(name: str) -> None:
            for step in (1, 2):
                await client.perform_one(Exists("/t"))
                done.append((f"{name} {step}", client.session_id))

        for name in ("registers", "looks"):
            client.on_new_session(partial(handle, name))
        server.on_operation.append(end_some)
        await client.expire()
        await asyncio.sleep(60)
        assert (client.is_connected, client.expirations, left) == (True, 1 + len(ends), [])
        in_last = [what for what, session in done if session == client.session_id]
        assert in_last == ["registers 1", "registers 2", "looks 1", "looks 2"]
        assert asked[client.session_id] == 4
        await client.close()

    run(whole())


@pytest.mark.parametrize("fails", [(), (0,), (1,), (2,), (0, 1, 2)])
def test_what_fails_in_a_new_session_skips_nothing_else_that_is_to_be_done_in_it(fails: tuple[int, ...]) -> None:
    """A broker whose registration fails still has to read the notices that came meanwhile."""

    async def whole() -> None:
        _, _, client = await opened()
        done = list[int]()

        async def handle(number: int) -> None:
            done.append(number)
            if number in fails:
                raise ValueError(number)

        for number in range(3):
            client.on_new_session(partial(handle, number))
        with capture_logs() as lines:
            await client.expire()
            await asyncio.sleep(10)
        assert done == [0, 1, 2]
        assert len([line for line in lines if line["event"] == ev.TASK_FAILED]) == len(fails)
        await client.close()

    run(whole())


@pytest.mark.parametrize("error", [ZkUnreachable("nobody"), OSError(24, "no file"), RuntimeError("no thread")])
def test_a_session_is_renewed_whatever_fails_meanwhile(error: Exception) -> None:
    """Once a second. Source: Kafka 3.9 `ZooKeeperClient.reinitialize`, which tries for ever."""

    async def whole() -> None:
        _, connector, client = await opened()
        loop, tried_at = asyncio.get_running_loop(), list[float]()
        connect, failures = connector.connect, iter([error] * 3)

        async def fail(**callbacks: Any) -> ZkSession:
            tried_at.append(loop.time())
            for failure in failures:
                raise failure
            return await connect(**callbacks)

        connector.connect = fail  # type: ignore[assignment]
        await client.expire()
        await asyncio.sleep(10)
        assert client.is_connected, "it is tried again"
        assert [at - tried_at[0] for at in tried_at] == pytest.approx([0, 1, 2, 3])
        await client.close()

    run(whole())


def test_who_waits_for_a_session_that_has_ended_when_it_comes_waits_for_the_next() -> None:
    """As of a process that was stopped while it connected: the end of the session is noticed by the first of those who
    waited, before the others of them run."""

    async def whole() -> None:
        server, connector, client = await opened()
        connect, ends = connector.connect, iter([True])

        async def ended(**callbacks: Any) -> ZkSession:
            session = await connect(**callbacks)
            if next(ends, False):
                server.expire_session(session.session_id)
                await asyncio.sleep(1)
            return session

        connector.connect = ended  # type: ignore[assignment]
        await client.expire()
        asking = [asyncio.create_task(client.perform_one(Exists("/"))) for _ in range(3)]
        await asyncio.sleep(30)
        assert [asked.result().ok for asked in asking] == [True] * 3
        await client.close()

    run(whole())
