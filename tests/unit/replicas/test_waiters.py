"""Who waits at a partition is woken once, all at a time; who gave up is not."""

from __future__ import annotations

import asyncio

import pytest

from broker_sim.replicas.partition import Waiters
from broker_sim.replicas.waiting import woken
from controller.world.simulated.loop import run


@pytest.mark.parametrize("left", [(), (0,), (1,), (0, 2), (0, 1, 2)], ids=str)
def test_all_are_woken_but_those_that_left(left: tuple[int, ...]) -> None:
    async def main() -> None:
        waiters = Waiters()
        futures = [asyncio.get_running_loop().create_future() for _ in range(3)]
        for future in futures:
            waiters.add(future)
        for place in left:
            waiters.discard(futures[place])
        assert len(waiters) == 3 - len(left)
        again = asyncio.get_running_loop().create_future()
        waiters.add(again)
        assert len(waiters) == 4 - len(left)
        waiters.wake()
        assert [future.done() for future in futures] == [place not in left for place in range(3)]
        assert again.result() is True and len(waiters) == 0 and waiters.wakes == 1

    run(main())


def test_a_wait_ends_with_a_change_or_with_its_time_and_leaves_nothing() -> None:
    async def main() -> None:
        loop, one, other = asyncio.get_running_loop(), Waiters(), Waiters()
        loop.call_later(2.0, other.wake)
        assert await woken([one, other], loop.time() + 3.0) is True
        assert (loop.time(), len(one), len(other)) == (2.0, 0, 0)
        assert await woken([one, other], loop.time() + 3.0) is False
        assert (loop.time(), len(one), len(other)) == (5.0, 0, 0)
        assert await woken([one], loop.time()) is False
        gives_up = asyncio.ensure_future(woken([one, other], loop.time() + 3.0))  # as when its client is gone
        await asyncio.sleep(1.0)
        assert (len(one), len(other)) == (1, 1)
        gives_up.cancel()
        await asyncio.gather(gives_up, return_exceptions=True)
        assert (len(one), len(other)) == (0, 0)

    run(main())
