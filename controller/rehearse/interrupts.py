"""Ctrl-C and SIGTERM end a command of this room alike: KeyboardInterrupt here, and no process is left."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


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
def no_worker_outlives() -> Iterator[None]:
    """Where the block is interrupted, the processes that it started are killed: what they do is for nobody."""
    try:
        yield
    except KeyboardInterrupt:
        for child in multiprocessing.active_children():
            child.kill()
        raise


def leave_signals_to_the_parent() -> None:
    """In a worker: Ctrl-C goes to all processes of a terminal, and only one of them is to speak."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
