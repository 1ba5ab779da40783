"""The way from another thread into the event loop: in order, and in batches."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any


class Inbox:
    """Calls posted by any thread, run on the loop in the order of posting; one wake-up for many."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._scheduled = False

    def post(self, call: Callable[..., None], *args: Any) -> None:
        """Runs the call on the loop; it vanishes when the loop is closed."""
        self._calls.append((call, args))
        if not self._scheduled:
            self._scheduled = True
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._scheduled = False  # before looking: what is posted from here on schedules again
        try:
            while self._calls:
                call, args = self._calls.popleft()
                call(*args)
        finally:
            if self._calls:
                self._loop.call_soon(self._drain)
