"""Virtual time: it jumps, it keeps order, it refuses the real world, and it says who waits for what."""

from __future__ import annotations

import asyncio
import contextvars

import pytest

from controller.world.simulated import loop as loop_module
from controller.world.simulated.loop import Deadlock, ProcessGate, RealIoRefused, VirtualTimeLoop, current_gate, run


def test_a_year_passes_at_once_and_to_the_second() -> None:
    async def main() -> float:
        await asyncio.sleep(365 * 86_400)
        return asyncio.get_running_loop().time()

    assert run(main()) == 365 * 86_400


def test_timers_of_one_instant_run_in_the_order_they_were_set() -> None:
    async def main() -> list[int]:
        seen: list[int] = []
        loop = asyncio.get_running_loop()
        for number in range(100):
            loop.call_at(5.0, seen.append, number)
        await asyncio.sleep(6)
        return seen

    assert run(main()) == list(range(100))


def test_a_set_of_tasks_is_walked_in_the_same_order_in_every_run() -> None:
    async def main() -> list[str]:
        tasks = {asyncio.ensure_future(asyncio.sleep(1)) for _ in range(50)}
        cancelled: list[str] = []
        for task in tasks:
            task.add_done_callback(lambda done: cancelled.append(done.get_name()))
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        return cancelled

    assert run(main()) == run(main())


def test_timeouts_groups_and_threads_work() -> None:
    async def main() -> str:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await asyncio.sleep(11)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(asyncio.to_thread(str.upper, "done"))
        return f"{task.result()} at {asyncio.get_running_loop().time():g}"

    assert run(main()) == "DONE at 10"


def test_a_failure_in_a_thread_reaches_who_waits() -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="invalid literal"):
            await asyncio.to_thread(int, "x")

    run(main())


def test_waiting_for_what_never_comes_is_a_deadlock_that_names_the_place() -> None:
    async def stuck() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match=r"(?s)no timer is left.*task-1 .*stuck.*test_virtual_time_loop\.py"):
        run(stuck())


def test_time_that_stands_still_is_a_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "STEPS_PER_INSTANT_MAX", 100)

    async def spin() -> None:
        for _ in range(1000):
            await asyncio.sleep(0)

    with pytest.raises(Deadlock, match="without time moving on"):
        run(spin())


def test_real_sockets_are_refused() -> None:
    async def main() -> None:
        with pytest.raises(RealIoRefused, match="create_connection"):
            await asyncio.open_connection("localhost", 1)
        with pytest.raises(RealIoRefused, match="subprocess_exec"):
            await asyncio.create_subprocess_exec("true")

    run(main())


def test_a_shut_gate_stops_a_process_between_two_steps_and_opening_it_goes_on() -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        seen: list[str] = []

        async def child() -> None:
            await asyncio.sleep(1.5)
            seen.append(f"child at {loop.time():g}")

        async def process() -> None:
            task = asyncio.ensure_future(child())
            try:
                for _ in range(3):
                    await asyncio.sleep(1)
                    seen.append(f"step at {loop.time():g}")
                await task
            finally:
                seen.append("finally")

        gate, context = ProcessGate(), contextvars.copy_context()
        context.run(current_gate.set, gate)
        task = loop.create_task(process(), context=context)
        await asyncio.sleep(1.2)
        gate.shut()
        await asyncio.sleep(10)
        assert seen == ["step at 1"]
        gate.open(loop)
        await task
        return seen

    # What came due while the gate was shut happens when it opens, in order.
    assert run(main()) == ["step at 1", "child at 11.2", "step at 11.2", "step at 12.2", "finally"]
