"""Limits of time for what is waited for thousands of times a second, cheaper than a new `asyncio.timeout` each.

`answer_within` needs one timer and no cancelled task; a `WaitLimit` of a connection keeps its timer from wait to wait.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Final, TypeVar

T = TypeVar("T")
#: Told to `Task.cancel`, so that a traceback says why.
_OVER: Final = "the limit of a wait is over"


async def answer_within(answer: asyncio.Future[T], timeout_s: float) -> T:
    """What the future gets; nobody else may await it. Raises: TimeoutError after so many seconds, and what it gets."""
    timer = asyncio.get_running_loop().call_later(timeout_s, _time_is_over, answer)
    try:
        return await answer
    finally:
        timer.cancel()


def _time_is_over(answer: asyncio.Future[Any]) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError())


class WaitLimit:
    """`with limit:` around each wait of one task; TimeoutError when one takes longer than `limit_s` (None: for ever).

    Its one timer is set when there is none and looks, when it comes, whether the wait of that moment is over. `close`
    it at the end. It is entered again and again, never twice at once, and by one task.
    """

    __slots__ = ("_deadline_s", "_is_over", "_limit_s", "_loop", "_task", "_timer")

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s = limit_s
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._deadline_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    def __enter__(self) -> None:
        if self._limit_s is not None:
            self._deadline_s = self._loop.time() + self._limit_s
            if self._timer is None:
                self._timer = self._loop.call_at(self._deadline_s, self._look)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._deadline_s = None
        if self._is_over:
            self._is_over = False
            if self._task is not None and self._task.uncancel() <= 0 and kind is asyncio.CancelledError:
                raise TimeoutError from error

    def _look(self) -> None:
        self._timer = None
        if self._deadline_s is None:
            return
        if self._loop.time() < self._deadline_s:
            self._timer = self._loop.call_at(self._deadline_s, self._look)
        elif self._task is not None:
            self._is_over = True
            self._task.cancel(_OVER)

    def change(self, limit_s: float | None) -> None:
        """From the next wait on."""
        if limit_s != self._limit_s:
            self._limit_s = limit_s
            self.close()

    def close(self) -> None:
        """No timer is left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
