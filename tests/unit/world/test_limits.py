"""Limits of waits, on virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controller.world.limits import WaitLimit, answer_within
from controller.world.simulated.loop import VirtualTimeLoop, run


def timers(loop: Any) -> int:
    assert isinstance(loop, VirtualTimeLoop)
    return sum(not timer.cancelled() for _, _, timer in loop._timers)


def test_an_answer_in_time_is_returned_and_leaves_no_timer() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str] = loop.create_future()
        loop.call_later(2.0, answer.set_result, "yes")
        assert await answer_within(answer, 3.0) == "yes"
        assert (loop.time(), timers(loop)) == (2.0, 0)

    run(main())


def test_an_answer_that_does_not_come_is_a_timeout_in_its_moment() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(TimeoutError):
            await answer_within(loop.create_future(), 3.0)
        assert loop.time() == 3.0

    run(main())


def test_each_wait_has_the_whole_limit() -> None:
    async def main() -> None:
        loop, limit = asyncio.get_running_loop(), WaitLimit(3.0)
        for _ in range(5):
            with limit:
                await asyncio.sleep(2.0)
        with pytest.raises(TimeoutError), limit:
            await asyncio.sleep(60)
        assert loop.time() == 13.0
        with limit:
            await asyncio.sleep(2.9)
        limit.close()
        assert timers(loop) == 0

    run(main())


def test_what_is_done_between_two_waits_has_no_limit() -> None:
    async def main() -> None:
        limit = WaitLimit(3.0)
        with limit:
            await asyncio.sleep(1.0)
        await asyncio.sleep(30.0)
        with limit:
            await asyncio.sleep(2.0)

    run(main())


def test_a_cancelled_task_stays_cancelled() -> None:
    async def wait() -> None:
        with WaitLimit(3.0):
            await asyncio.sleep(60)

    async def main() -> None:
        task = asyncio.ensure_future(wait())
        await asyncio.sleep(1.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())


def test_without_a_limit_and_with_another_one() -> None:
    async def main() -> None:
        limit = WaitLimit(None)
        with limit:
            await asyncio.sleep(600.0)
        limit.change(1.0)
        with pytest.raises(TimeoutError), limit:
            await asyncio.sleep(2.0)

    run(main())
