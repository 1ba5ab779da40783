"""What is kept ends in the order in which it began, wherever it lies in memory, so that worlds are the same again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import structlog

from controller.node.server import Limits, Server
from controller.world.ports import Network
from controller.world.tasks import Tasks


class Backwards(asyncio.Task[None]):
    """A set would have the last one first."""

    def __init__(self, work: Coroutine[Any, Any, None], number: int) -> None:
        self.number = number
        super().__init__(work)

    def __hash__(self) -> int:
        return 1_000 - self.number


async def waits(ended: list[int], number: int) -> None:
    try:
        await asyncio.sleep(3600)
    finally:
        ended.append(number)


def test_tasks_end_in_the_order_in_which_they_began() -> None:
    async def main() -> None:
        tasks, ended = Tasks(), list[int]()
        for number in range(20):
            tasks.add(Backwards(waits(ended, number), number))
        tasks.add(asyncio.create_task(asyncio.sleep(0)))
        await asyncio.sleep(0.001)
        assert len(list(tasks)) == 20, "what is done is kept no longer"
        await tasks.cancel()
        assert ended == list(range(20)) and list(tasks) == []

    asyncio.run(main())


def test_a_task_that_ends_the_others_goes_on() -> None:
    async def main() -> None:
        tasks, ended = Tasks(), list[int]()

        async def last() -> None:
            await tasks.cancel()
            ended.append(2)

        tasks.add(asyncio.create_task(waits(ended, 1)))
        mine = asyncio.create_task(last())
        tasks.add(mine)
        await mine
        assert ended == [1, 2]

    asyncio.run(main())


class Peer:
    """A connection on which nothing comes, somewhere in memory."""

    def __init__(self, number: int, closed: list[int]) -> None:
        self.number, self.peer, self._closed = number, f"peer-{number}", closed

    def __hash__(self) -> int:
        return 1_000 - self.number

    async def recv(self) -> bytes:
        await asyncio.sleep(3600)
        return b""

    def close(self) -> None:
        self._closed.append(self.number)


class Bound:
    """A network with one listener, which serves whom the test brings."""

    address = "controller", 9090

    async def listen(self, host: str, port: int, serve: Callable[[Any], Coroutine[Any, Any, None]]) -> Bound:
        self.serve = serve
        return self

    async def close(self) -> None:
        pass


def test_a_controller_closes_its_connections_in_the_order_in_which_they_came() -> None:
    """Worlds 263 and 367: it was that of their addresses in memory, and the next world was another."""

    async def main() -> None:
        server, network, closed = Server(Limits(), structlog.get_logger()), Bound(), list[int]()
        await server.listen(cast(Network, network), "controller", 9090)
        serving = [asyncio.ensure_future(network.serve(Peer(number, closed))) for number in range(20)]
        await asyncio.sleep(0.001)
        await server.close()
        assert closed == list(range(20))
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    asyncio.run(main())
