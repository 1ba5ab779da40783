"""A thread's event loop ends with all that was begun on it, and a client that is cancelled lets its socket go."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from controller.admin.cluster.client import AdminClient
from controller.embedded.backends import LoopThread
from controller.world.client import BrokerConnection
from controller.world.ports import Connection
from controller.world.real.net import TcpNetwork


class Mute:
    """Takes connections and answers nothing, on a loop of its own."""

    def __init__(self) -> None:
        self.loop = LoopThread("mute")
        self.came, self.went = threading.Event(), threading.Event()
        self.listener = self.loop.run(TcpNetwork().listen("127.0.0.1", 0, self._serve))
        self.port = self.listener.address[1]

    async def _serve(self, connection: Connection) -> None:
        await connection.recv()
        self.came.set()
        while await connection.recv():
            pass
        self.went.set()
        connection.close()


@pytest.fixture
def mute() -> Iterator[Mute]:
    server = Mute()
    yield server
    server.loop.run(server.listener.close())
    server.loop.close()


def test_a_client_that_is_cancelled_before_the_first_answer_closes_its_connection(mute: Mute) -> None:
    async def main() -> None:
        async with AdminClient(TcpNetwork(), f"127.0.0.1:{mute.port}") as client:
            task = asyncio.ensure_future(client.nodes())
            await asyncio.to_thread(mute.came.wait, 10)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert await asyncio.to_thread(mute.went.wait, 10), "its socket is still open"
            assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_what_was_left_on_the_loop_ends_with_it(mute: Mute) -> None:
    async def ask() -> None:
        kept.append(await BrokerConnection.open(TcpNetwork(), "127.0.0.1", mute.port, client_id="test"))
        await kept[0].call(3, 0, {})

    kept: list[BrokerConnection] = []
    loop = LoopThread("test")
    refused = []

    def run() -> None:
        with pytest.raises(RuntimeError, match="the cluster was stopped meanwhile"):
            loop.run(ask())
        refused.append(True)

    asking = threading.Thread(target=run, daemon=True)
    asking.start()
    assert mute.came.wait(10)
    loop.close()
    asking.join(10)
    assert not asking.is_alive(), "who asked waits for a loop that is gone"
    assert refused, "who asked is told why there is no answer"
    assert not kept[0].is_open
    assert mute.went.wait(10), "its socket is still open"


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """They take turns after every few lines."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(usual_s)


@pytest.mark.parametrize("seed", range(20))
def test_whoever_asks_beside_the_end_is_told_of_it_or_answered(seed: int, hasty_threads: None) -> None:
    draw = random.Random(seed)
    loop, outcomes = LoopThread("test"), list[str]()

    def ask() -> None:
        for _ in range(50):
            try:
                loop.run(asyncio.sleep(0))
                outcomes.append("answered")
            except RuntimeError as error:
                outcomes.append(str(error).removesuffix(" meanwhile"))

    asking = [threading.Thread(target=ask, daemon=True) for _ in range(4)]
    for thread in asking:
        thread.start()
    time.sleep(draw.uniform(0, 0.003))
    loop.close()
    loop.close()
    for thread in asking:
        thread.join(10)
    assert not any(thread.is_alive() for thread in asking), "who asked waits for a loop that is gone"
    assert set(outcomes) <= {"answered", "the cluster was stopped"}
    assert len(outcomes) == 200


def test_whom_the_end_cancels_before_it_is_noted_is_told_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, begun, ended = LoopThread("test"), threading.Event(), threading.Event()
    outcomes: list[str] = []
    soon = asyncio.BaseEventLoop.call_soon_threadsafe

    def lingers(self: asyncio.BaseEventLoop, callback: Any, *args: Any, **about: Any) -> asyncio.Handle:
        handle = soon(self, callback, *args, **about)
        if callback == self.stop:
            ended.wait(0.3)  # all is cancelled by then
        return handle

    async def waits() -> None:
        begun.set()
        await asyncio.Event().wait()

    def ask() -> None:
        try:
            loop.run(waits())
        except BaseException as error:
            outcomes.append(repr(error))
        ended.set()

    monkeypatch.setattr(asyncio.BaseEventLoop, "call_soon_threadsafe", lingers)
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    assert begun.wait(10)
    loop.close()
    asking.join(10)
    assert outcomes == ["RuntimeError('the cluster was stopped meanwhile')"]
