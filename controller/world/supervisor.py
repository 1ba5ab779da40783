"""Background tasks that nobody awaits: one place notices how each of them ends.

A task that nobody awaits dies unheard: asyncio keeps its exception until the task is collected, and what it was to do
is not done. Whoever starts such a task starts it here, and says what its failure costs:

    keep   it is logged, counted, and started again after a pause: what serves for as long as the process does
    once   it is logged and counted: work that ends by itself, whose failure concerns nobody else
    vital  it is logged, counted, and the process is asked to end: what nothing can go on without

Cancelling is no failure. Nothing here decides when to stop: who made a supervisor stops it, or each of its tasks.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from controller.wire import log_events as ev
from controller.world.tasks import Tasks

#: Pause before a task is started again: the first time, and at most, as it doubles with each failure in a row.
RESTART_PAUSE_S: Final = 0.1
RESTART_PAUSE_MAX_S: Final = 10.0
#: A task that ran for so long before it failed is started again after the shortest pause.
CALM_S: Final = 60.0

Run = Callable[[], Awaitable[None]]


class Supervisor:
    """The background tasks of one program. `halt` is called, once, with the reason why the program must end."""

    def __init__(self, log: FilteringBoundLogger, halt: Callable[[str], None] | None = None) -> None:
        self._log = log
        self._halt = halt
        self._halted = False
        self._tasks = Tasks()
        #: How often tasks failed, by name.
        self.failures: Counter[str] = Counter()

    def keep(self, name: str, run: Run) -> asyncio.Task[None]:
        """Runs `run()` until the task is cancelled; should it raise, or return, it is run again after a pause."""
        return self._start(name, self._kept(name, run))

    def once(self, name: str, run: Run) -> asyncio.Task[None]:
        """Runs `run()` to its end. That it failed is logged and counted; the task itself ends without an error."""
        return self._start(name, self._tried(name, run))

    def vital(self, name: str, run: Run) -> asyncio.Task[None]:
        """Runs `run()`; should it raise, the program is asked to end. That it returns is no failure."""
        return self._start(name, self._vital(name, run))

    async def step(self, name: str, run: Callable[[], Awaitable[object] | None]) -> None:
        """Does `run()` here, to its end. That it failed is logged and counted: whoever asked has more steps to do."""

        async def whole() -> None:
            if (rest := run()) is not None:
                await rest

        await self._tried(name, whole)

    async def stop(self) -> None:
        """Cancels what still runs and waits for its end; a task that calls this is left. Idempotent."""
        await self._tasks.cancel()

    @property
    def running(self) -> list[str]:
        """The names of the tasks that run, sorted: for metrics and tests."""
        return sorted(task.get_name() for task in self._tasks)

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        return task

    async def _kept(self, name: str, run: Run) -> None:
        loop = asyncio.get_running_loop()
        pause_s = RESTART_PAUSE_S
        while True:
            started_s = loop.time()
            failure = await self._attempt(run)
            if loop.time() - started_s >= CALM_S:
                pause_s = RESTART_PAUSE_S
            self._failed(name, failure, f"started again after {pause_s:g} s")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RESTART_PAUSE_MAX_S)

    async def _tried(self, name: str, run: Run) -> None:
        if (failure := await self._attempt(run)) is not None:
            self._failed(name, failure, "left undone")

    async def _vital(self, name: str, run: Run) -> None:
        if (failure := await self._attempt(run)) is None:
            return
        self._failed(name, failure, "the process ends")
        if self._halt is not None and not self._halted:
            self._halted = True
            self._halt(f"{name} failed: {failure!r}")

    @staticmethod
    async def _attempt(run: Run) -> Exception | None:
        try:
            await run()
        except Exception as error:  # whatever it is, somebody must hear of it: that is what this file is for
            return error
        return None

    def _failed(self, name: str, failure: Exception | None, consequence: str) -> None:
        self.failures[name] += 1
        reason = "it ended" if failure is None else repr(failure)
        self._log.error(ev.TASK_FAILED, task=name, reason=reason, consequence=consequence, exc_info=failure)
