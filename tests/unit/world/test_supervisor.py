"""No background task ends unnoticed: it is logged and counted, and then restarted, left, or the end of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest
import structlog
from structlog.testing import capture_logs

from controller.wire import log_events as ev
from controller.world.simulated.loop import run
from controller.world.supervisor import CALM_S, RESTART_PAUSE_MAX_S, RESTART_PAUSE_S, Supervisor


async def fail() -> None:
    raise ValueError("broken")


async def end() -> None:
    return


def supervised(scenario: Callable[[Supervisor], Awaitable[None]]) -> tuple[Supervisor, list[str], list[str]]:
    """(the supervisor afterwards, the consequences that were logged, the reasons why the process was to end)."""
    halted: list[str] = []

    async def main() -> Supervisor:
        supervisor = Supervisor(structlog.get_logger(), halted.append)
        await scenario(supervisor)
        await supervisor.stop()
        assert supervisor.running == []
        return supervisor

    with capture_logs() as lines:
        supervisor = run(main())
    return supervisor, [line["consequence"] for line in lines if line["event"] == ev.TASK_FAILED], halted


@pytest.mark.parametrize("work", [fail, end])
def test_what_serves_is_started_again_however_it_ends(work: Callable[[], Awaitable[None]]) -> None:
    starts: list[float] = []

    async def count() -> None:
        starts.append(asyncio.get_running_loop().time())
        await work()

    async def scenario(supervisor: Supervisor) -> None:
        supervisor.keep("sender", count)
        await asyncio.sleep(60)

    supervisor, consequences, halted = supervised(scenario)
    pauses = [round(after - before, 3) for before, after in pairwise(starts)]
    assert pauses == [round(min(RESTART_PAUSE_S * 2**n, RESTART_PAUSE_MAX_S), 3) for n in range(len(pauses))]
    assert pauses[-2:] == [RESTART_PAUSE_MAX_S] * 2, "however long ago it began to fail"
    assert supervisor.failures == {"sender": len(starts)} and len(consequences) == len(starts) and halted == []


def test_who_worked_for_long_is_started_again_at_once() -> None:
    starts: list[float] = []

    async def work() -> None:
        starts.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0 if len(starts) < 8 else CALM_S)
        await fail()

    async def scenario(supervisor: Supervisor) -> None:
        supervisor.keep("sender", work)
        await asyncio.sleep(400)

    supervised(scenario)
    assert round(starts[-1] - starts[-2], 3) == CALM_S + RESTART_PAUSE_S


def test_what_fails_once_is_left_and_told() -> None:
    async def scenario(supervisor: Supervisor) -> None:
        await supervisor.once("work", fail)
        await supervisor.once("work", end)

    supervisor, consequences, halted = supervised(scenario)
    assert supervisor.failures == {"work": 1} and consequences == ["left undone"] and halted == []


def test_without_what_is_vital_the_process_ends() -> None:
    async def scenario(supervisor: Supervisor) -> None:
        await supervisor.vital("loop", end)
        await supervisor.vital("loop", fail)
        await supervisor.vital("loop", fail)

    _, consequences, halted = supervised(scenario)
    assert consequences == ["the process ends"] * 2
    assert halted == ["loop failed: ValueError('broken')"], "asked once"


def test_cancelling_is_no_failure() -> None:
    async def scenario(supervisor: Supervisor) -> None:
        for start in (supervisor.keep, supervisor.once, supervisor.vital):
            task = start("sleeper", asyncio.Event().wait)
            await asyncio.sleep(1)
            task.cancel()
            await asyncio.sleep(1)
            assert task.cancelled()

    supervisor, consequences, halted = supervised(scenario)
    assert not supervisor.failures and not consequences and not halted


def test_the_log_says_which_task_failed_and_why() -> None:
    async def main() -> None:
        supervisor = Supervisor(structlog.get_logger())  # whose program nobody can end
        supervisor.keep("ends", end)
        await supervisor.once("works", end)
        await supervisor.once("fails", fail)
        await supervisor.vital("vital", fail)
        await supervisor.stop()

    with capture_logs() as lines:
        run(main())
    assert [(line["task"], line["reason"], line["consequence"], repr(line["exc_info"])) for line in lines] == [
        ("ends", "it ended", f"started again after {RESTART_PAUSE_S:g} s", "None"),
        ("fails", "ValueError('broken')", "left undone", "ValueError('broken')"),
        ("vital", "ValueError('broken')", "the process ends", "ValueError('broken')"),
    ]


def test_all_that_runs_is_named_and_ends_with_its_supervisor() -> None:
    async def scenario(supervisor: Supervisor) -> None:
        starts = {"c": supervisor.keep, "a": supervisor.once, "b": supervisor.vital}
        tasks = [start(name, asyncio.Event().wait) for name, start in starts.items()]
        await asyncio.sleep(1)
        assert supervisor.running == ["a", "b", "c"]
        await supervisor.stop()
        assert all(task.cancelled() for task in tasks)

    supervised(scenario)


def test_a_task_may_stop_the_supervisor_that_runs_it() -> None:
    ended: list[str] = []

    async def scenario(supervisor: Supervisor) -> None:
        async def work() -> None:
            await supervisor.stop()
            ended.append("work")

        await supervisor.once("work", work)

    supervised(scenario)
    assert ended == ["work"]
