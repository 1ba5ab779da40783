"""Whatever fails while a controller stops: no other step is left out, and nothing of it goes on. One whose session ends
before it has started stops as well, and says what happened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from controller.wire import log_events as ev
from controller.wire.protocol import ApiKey
from controller.wire.zk_operations import Exists, ZkCode, ZkOp, ZkResult, ZkUnreachable
from controller.wire.znodes import BrokerIdZNode
from controller.world.ports import ZkSession
from controller.world.simulated.zookeeper import SimulatedConnector
from tests.worlds.node import PORT

Play = Callable[..., list[Any]]
STEPS: dict[str, Callable[[Any], tuple[Any, str]]] = {
    "the listener does not close": lambda controller: (controller.server, "close"),
    "the loop does not stop": lambda controller: (controller.loop, "stop"),
    "the channels do not close": lambda controller: (controller.channels, "close"),
    "the tasks do not end": lambda controller: (controller.supervisor, "stop"),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_step_that_fails_skips_no_other(play: Play, monkeypatch: pytest.MonkeyPatch, step: Any) -> None:
    async def scenario(cluster: Any) -> None:
        controller = cluster.controller
        part, name = step(controller)

        def refuse(*_: object, **__: object) -> NoReturn:
            raise RuntimeError("it refuses")

        with monkeypatch.context() as patched:
            patched.setattr(part, name, refuse)
            await cluster.machine.run(controller.stop())
        await asyncio.sleep(1)
        (held,) = await cluster.zk(Exists("/controller"))
        assert held.code is ZkCode.NO_NODE, "the session has ended, so that another can take over"
        if part is not controller.server:
            with pytest.raises((OSError, TimeoutError)):
                await cluster.ask(ApiKey.METADATA, 1, {"topics": []}, timeout_s=5)

    lines = play(scenario)
    assert [line for line in lines if line["event"] == ev.CONTROLLER_FAULTED and "failed" in str(line.get("reason"))]
    assert ev.CONTROLLER_STOPPED in [line["event"] for line in lines]


def test_a_listener_that_does_not_close_answers_nobody(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(cluster: Any) -> None:
        async def refuse(_: object) -> NoReturn:
            raise OSError("it stays open")

        connected = await cluster.client.network.connect("controller", PORT)
        with monkeypatch.context() as patched:
            patched.setattr("controller.world.simulated.net._Listener.close", refuse)
            await cluster.machine.run(cluster.controller.stop())
        with pytest.raises((OSError, TimeoutError)):
            await cluster.ask(ApiKey.METADATA, 1, {"topics": []}, timeout_s=5)
        async with asyncio.timeout(5):
            assert await connected.recv() == b"", "who was connected is not any more"
        (held,) = await cluster.zk(Exists("/controller"))
        assert held.code is ZkCode.NO_NODE

    assert [line for line in play(scenario) if line["event"] == ev.CONTROLLER_FAULTED]


@pytest.mark.parametrize("ends", ["expires", "is closed by a stop"])
def test_a_session_that_ends_before_a_controller_has_started(play: Play, ends: str) -> None:
    """At each operation of its start."""

    async def starts(cluster: Any, number: int) -> list[str]:
        """What it did, up to the one at which its session ends; all, when it has started before that."""
        zookeeper, machine = cluster.world.zookeeper, cluster.world.machine(f"second-{number}")
        controller, paths = cluster.make(101, machine.name), []

        def end(session: ZkSession, op: ZkOp, _: ZkResult) -> None:
            if session.session_id in zookeeper.sessions and zookeeper.sessions[session.session_id] == machine.name:
                paths.append(getattr(op, "path", ""))
                if len(paths) == number and ends == "expires":
                    asyncio.get_running_loop().call_soon(zookeeper.expire_session, session.session_id)
                elif len(paths) == number:
                    stops.append(asyncio.ensure_future(controller.stop()))

        stops: list[asyncio.Future[None]] = []
        zookeeper.on_operation.append(end)
        try:
            with pytest.raises(ZkUnreachable, match="the ZooKeeper session ended while the controller started"):
                await machine.run(controller.start())
        finally:
            zookeeper.on_operation.remove(end)
            await asyncio.gather(*stops)
        assert machine.name not in zookeeper.sessions.values()
        with pytest.raises(OSError):  # nobody listens
            await cluster.client.network.connect(machine.name, PORT)
        return paths

    async def scenario(cluster: Any) -> None:
        number, paths = 0, [""]
        while paths[-1] != BrokerIdZNode.path(101):
            number += 1
            paths = await starts(cluster, number)
        assert number > 3

    lines = play(scenario, brokers=1)
    assert not [line for line in lines if line["event"] == ev.CONTROLLER_FAULTED]


def test_whenever_a_stop_comes_into_a_start_no_session_is_left(play: Play) -> None:
    async def stopped_after(cluster: Any, wait_s: float) -> bool:
        """Whether it had started before."""
        machine = cluster.world.machine(f"second-{wait_s}")
        controller = cluster.make(101, machine.name)
        starting = asyncio.ensure_future(machine.run(controller.start()))
        await asyncio.sleep(wait_s)
        has_started = starting.done()
        await machine.run(controller.stop())
        ends = await asyncio.gather(starting, return_exceptions=True)
        assert has_started or isinstance(ends[0], ZkUnreachable), ends
        await asyncio.sleep(1)
        assert machine.name not in cluster.world.zookeeper.sessions.values()
        return has_started

    async def scenario(cluster: Any) -> None:
        ends = [await stopped_after(cluster, n / 10_000) for n in range(200)]
        assert set(ends) == {True, False}

    lines = play(scenario, brokers=1)
    assert not [line for line in lines if line["event"] == ev.CONTROLLER_FAULTED]


def test_the_session_outlives_the_event_in_progress(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an event has begun to write, it writes to its end."""

    async def scenario(cluster: Any) -> None:
        zk, loop, sessions = cluster.controller.zk, cluster.controller.loop, list[int | None]()
        stop = loop.stop

        async def stops() -> None:
            sessions.append(zk.session_id)
            await stop()
            sessions.append(zk.session_id)

        monkeypatch.setattr(loop, "stop", stops)
        await cluster.machine.run(cluster.controller.stop())
        assert None not in sessions and len(sessions) == 2 and zk.session_id is None

    play(scenario, brokers=1)


def test_a_new_session_waits_for_the_event_that_uses_the_last_one(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(cluster: Any) -> None:
        zk, loop = cluster.controller.zk, cluster.controller.loop
        expire, is_taken = loop.expire, asyncio.Event()

        def expires() -> asyncio.Event:
            expire()
            return is_taken

        monkeypatch.setattr(loop, "expire", expires)
        cluster.world.zookeeper.expire_session(zk.session_id)
        await asyncio.sleep(30)
        assert zk.session_id is None and zk.gauges.sessions == 1
        is_taken.set()
        await cluster.world.until(lambda: zk.gauges.sessions == 2, within_s=5, what="a new session")

    play(scenario, brokers=1)


@pytest.mark.parametrize("error", [ZkUnreachable("nobody"), OSError(24, "no file"), RuntimeError("no thread")])
def test_whatever_fails_while_a_session_is_renewed_ends_no_controller(
    play: Play, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """It is tried again, once a second. Source: Kafka 3.9 `ZooKeeperClient.reinitialize`."""

    async def scenario(cluster: Any) -> None:
        zk, failures = cluster.controller.zk, iter([error] * 3)
        opened, tried_at = zk.open, list[float]()

        async def fail() -> None:
            tried_at.append(cluster.world.loop.time())
            for failure in failures:
                raise failure
            await opened()

        monkeypatch.setattr(zk, "open", fail)
        cluster.world.zookeeper.expire_session(zk.session_id)
        await cluster.world.until(lambda: zk.gauges.sessions == 2, within_s=60, what="a new session")
        assert [at - tried_at[0] for at in tried_at] == pytest.approx([0, 1, 2, 3])

    assert not [line for line in play(scenario, brokers=1) if line["event"] == ev.TASK_FAILED]


@pytest.mark.parametrize("what", ["is never handed over", "is handed over all the same"])
def test_a_session_that_expires_while_it_is_opened_leaves_one_renewal(
    play: Play, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """As where its server is away for a session timeout before it has said whether there is a chroot: two renewals side
    by side would end the process, or leave the office to a session that nobody uses any more."""
    connect = SimulatedConnector.connect

    async def scenario(cluster: Any) -> None:
        zk, zookeeper, ends = cluster.controller.zk, cluster.world.zookeeper, iter([True])

        async def connects(self: SimulatedConnector, **callbacks: Any) -> ZkSession:
            session = await connect(self, **callbacks)
            if next(ends, False):
                zookeeper.expire_session(session.session_id)
                await asyncio.sleep(0.1)
                if what == "is never handed over":
                    raise ZkUnreachable("it expired")
            return session

        machine = zookeeper.sessions[zk.session_id]
        monkeypatch.setattr(SimulatedConnector, "connect", connects)
        zookeeper.expire_session(zk.session_id)
        await asyncio.sleep(30)
        assert list(zookeeper.sessions.values()).count(machine) == 1
        assert cluster.controller.state.serving
        assert zk.session_id in zookeeper.sessions

    assert not [line for line in play(scenario, brokers=1) if line["event"] == ev.TASK_FAILED]
