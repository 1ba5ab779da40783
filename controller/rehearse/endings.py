"""Waiting for what may never come, because the process that would bring it is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def first_of(*works: Coroutine[Any, Any, Any]) -> None:
    """Returns when one of them is over; the others are cancelled. Raises what that one raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
    for task in done:
        task.result()
