"""A program that never waits again stops the world: nothing else is done any more, and no virtual time passes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

#: Seconds of CPU in which some virtual time must pass. The longest look at a world takes a few.
CPU_S: Final = 30.0
_FRAMES: Final = 4


class Endless(KeyboardInterrupt):
    """What the program was doing. An interrupt, since whatever else is raised in a task ends only that task."""


@contextmanager
def noticed(now: Callable[[], float], *, cpu_s: float = CPU_S) -> Iterator[None]:
    """Raises Endless inside when `now` stands still for so long. Does nothing outside a process's main thread, where no
    signal comes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[float] = []

    def look(_: int, frame: FrameType | None) -> None:
        at = now()
        if at in seen:
            raise Endless(f"no virtual time passes any more, at {at:g} s: {_where(frame)}")
        seen[:] = [at]

    former = signal.signal(signal.SIGVTALRM, look)
    signal.setitimer(signal.ITIMER_VIRTUAL, cpu_s, cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, former)


def _where(frame: FrameType | None) -> str:
    """The innermost functions, the one that runs first."""
    found: list[str] = []
    while frame is not None and len(found) < _FRAMES:
        module = frame.f_globals.get("__name__", "?")
        found.append(f"{module}.{frame.f_code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return ", called by ".join(found)
