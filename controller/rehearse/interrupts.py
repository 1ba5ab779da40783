"""Ctrl-C and SIGTERM end a command of this room alike: by KeyboardInterrupt, between two steps of a rehearsal."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """In the block SIGTERM does what Ctrl-C does; so does SIGINT where a shell's background job was told to ignore it.

    Only in the main thread; elsewhere, as in tests, signals do not arrive.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGTERM, _as_interrupt)
    if before[signal.SIGINT] == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _as_interrupt(_: int, __: FrameType | None) -> None:
    """Whoever takes Ctrl-C now takes this one (Spark's session has a handler of its own)."""
    signal.raise_signal(signal.SIGINT)


@contextmanager
def cancelled_by_ctrl_c(task: asyncio.Task[Any]) -> Iterator[None]:
    """In the block Ctrl-C cancels the task, which ends between two steps; not where it has a handler of its own."""

    def cancel(_: int, __: FrameType | None) -> None:
        task.cancel()

    is_ours = threading.current_thread() is threading.main_thread() and (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if is_ours:
        signal.signal(signal.SIGINT, cancel)
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
