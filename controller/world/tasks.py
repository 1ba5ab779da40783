"""Tasks that somebody keeps until they are done, and ends together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any


class Tasks:
    """Those under way, in the order in which they began: whoever ends them does so in the same order each time."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(list(self._tasks))

    def add(self, task: asyncio.Task[Any]) -> None:
        """Keeps it until it is done."""
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def cancel(self) -> None:
        """Ends them all and waits for that, but for the task that calls this. Their failures are theirs. Idempotent."""
        others = [task for task in self if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
