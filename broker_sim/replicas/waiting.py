"""How a request waits for replicas or records: asked again after each change, up to a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from broker_sim.replicas.partition import Waiters


async def wait_until(
    is_ready: Callable[[], bool], waiters: Callable[[], Iterable[Waiters]], *, timeout_ms: int
) -> bool:
    """Waits until `is_ready`, asked again after each wake-up; False when the time is over first."""
    deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
    while not is_ready():
        if not await woken(waiters(), deadline):
            return is_ready()
    return True


async def woken(waiters: Iterable[Waiters], deadline: float) -> bool:
    """Waits for a change at any of them; False when the deadline (of the event loop) comes first."""
    loop = asyncio.get_running_loop()
    if loop.time() >= deadline:
        return False
    change: asyncio.Future[bool] = loop.create_future()
    joined = list(waiters)
    for each in joined:
        each.add(change)
    timer = loop.call_at(deadline, _time_is_over, change)
    try:
        return await change
    finally:
        timer.cancel()
        for each in joined:
            each.discard(change)


def _time_is_over(change: asyncio.Future[bool]) -> None:
    if not change.done():
        change.set_result(False)
