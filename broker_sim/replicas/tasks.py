"""Tasks of the data plane that must not fail unseen."""

from __future__ import annotations

import asyncio


def report_failure(task: asyncio.Task[None]) -> None:
    """A task that ends by an exception is a bug: the loop's handler is told, so that it is not lost."""
    if not task.cancelled() and (error := task.exception()) is not None:
        context = {"message": f"{task.get_name()} failed", "exception": error, "task": task}
        task.get_loop().call_exception_handler(context)
