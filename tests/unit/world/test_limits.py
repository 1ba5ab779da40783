"""Limits of waits, on virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import pytest

from controller.world.limits import WaitLimit, answer_within
from controller.world.simulated.loop import VirtualTimeLoop, run


def timers(loop: Any) -> int:
    assert isinstance(loop, VirtualTimeLoop)
    return sum(not timer.cancelled() for _, _, timer in loop._timers)


def run_well(main: Coroutine[Any, Any, None]) -> None:
    """Runs it; no callback fails."""
    failures: list[Any] = []

    async def whole() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        await main

    run(whole())
    assert failures == []


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


def test_what_is_done_between_two_waits_has_no_limit_and_the_next_wait_has_one() -> None:
    async def main() -> None:
        loop, limit = asyncio.get_running_loop(), WaitLimit(3.0)
        with limit:
            await asyncio.sleep(1.0)
        await asyncio.sleep(30.0)
        with limit:
            await asyncio.sleep(2.0)
        with pytest.raises(TimeoutError), limit:
            await asyncio.sleep(60)
        assert loop.time() == 36.0

    run_well(main())


@pytest.mark.parametrize("is_first", ["the answer", "the limit"])
def test_an_answer_in_the_moment_of_its_limit_is_one_of_both(is_first: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str] = loop.create_future()
        if is_first == "the answer":
            loop.call_later(3.0, answer.set_result, "yes")
            assert await answer_within(answer, 3.0) == "yes"
        else:
            with pytest.raises(TimeoutError):
                await answer_within(answer, 3.0)

    run_well(main())


async def ends_otherwise() -> None:
    """Who is cancelled ends with an error of its own."""
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        raise ConnectionError from None


def test_an_error_in_the_moment_of_the_limit_is_that_error() -> None:
    async def main() -> None:
        limit = WaitLimit(3.0)
        with pytest.raises(ConnectionError), limit:
            await ends_otherwise()
        with pytest.raises(TimeoutError), limit:
            await asyncio.sleep(60)

    run_well(main())


@pytest.mark.parametrize("earlier", [False, True], ids=["at once", "after a wait that took too long"])
@pytest.mark.parametrize("at_s", [1.0, 3.0], ids=["in time", "in the moment of the limit"])
def test_who_is_cancelled_by_another_stays_cancelled(earlier: bool, at_s: float) -> None:
    ends: list[str] = []

    async def waits(limit_s: float) -> None:
        limit = WaitLimit(limit_s)
        if earlier:
            with contextlib.suppress(TimeoutError), limit:
                await asyncio.sleep(60)
            ends.append("late")
        with limit:
            await asyncio.sleep(60)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(waits(3.0))
        await asyncio.sleep(0)
        loop.call_later(at_s + 3.0 * earlier, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert loop.time() == at_s + 3.0 * earlier

    run_well(main())
    assert ends == ["late"] * earlier


@pytest.mark.parametrize(("before_s", "after_s"), [(None, 1.0), (60.0, 1.0), (1.0, 60.0), (60.0, None), (1.0, None)])
def test_another_limit_holds_from_the_next_wait_on(before_s: float | None, after_s: float | None) -> None:
    async def main() -> None:
        loop, limit = asyncio.get_running_loop(), WaitLimit(before_s)
        with limit:
            await asyncio.sleep(0.5)
        limit.change(after_s)
        begun = loop.time()
        with contextlib.suppress(TimeoutError), limit:
            await asyncio.sleep(600)
        assert loop.time() - begun == (600 if after_s is None else after_s)
        limit.close()
        assert timers(loop) == 0

    run_well(main())
