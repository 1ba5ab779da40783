"""Work that processes of this machine share. They end with whoever waits for them, whatever ends that.

`ProcessPoolExecutor` has a thread that still speaks of lost futures when the processes are killed, and waits for those
that are not; who is interrupted has nothing to wait for.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final, TypeVar

from controller.world.parent import end_with_parent

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_Item = TypeVar("_Item")
_Found = TypeVar("_Found")
_Crew = dict[Connection, BaseProcess]


class WorkerLost(RuntimeError):
    """A process ended by itself: the machine may have had no memory left for it."""


def share_out(
    work: Callable[[_Item], _Found],
    items: Iterable[_Item],
    workers: int,
    *,
    prepare: Callable[[], None] | None = None,
    start_method: str | None = None,
) -> Generator[tuple[int, _Found]]:
    """(number of the item, from 0; what `work` makes of it), in the order in which they end.

    An item is taken when a process is there for it. Each process calls `prepare` first. `start_method` is one of
    `multiprocessing`'s; with "spawn" all must be picklable. Closing the iterator ends the processes at once.
    Raises WorkerLost, and what `work` raises.
    """
    waiting, crew = enumerate(items), _Crew()
    try:
        for _ in range(workers):
            _start(crew, work, prepare, start_method)
        busy = [pipe for pipe, process in crew.items() if _give(pipe, process, waiting)]
        while busy:
            for pipe in wait(busy):
                assert isinstance(pipe, Connection)
                found = _taken(pipe, crew[pipe])
                if not _give(pipe, crew[pipe], waiting):
                    busy.remove(pipe)
                yield found
    finally:
        for process in crew.values():
            process.kill()
        for pipe, process in crew.items():
            process.join()
            pipe.close()


def _start(crew: _Crew, work: Callable[..., Any], prepare: Callable[[], None] | None, method: str | None) -> None:
    """One more of the crew. Signals wait until it is there; in it, until it leaves them to its parent."""
    context = multiprocessing.get_context(method)
    if method == "spawn":
        resource_tracker.ensure_running()  # whose own start lets signals through, waiting or not
    ours, theirs = context.Pipe()
    with _signals_wait():
        process = context.Process(target=_work, args=(theirs, work, prepare), daemon=True)  # type: ignore[attr-defined]  # every context has one
        process.start()
        crew[ours] = process
    theirs.close()


@contextmanager
def _signals_wait() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _give(pipe: Connection, process: BaseProcess, waiting: Iterator[tuple[int, Any]]) -> bool:
    """The next one, if there is one."""
    for numbered in waiting:
        with _lost_is_told(process):
            pipe.send(numbered)
        return True
    return False


def _taken(pipe: Connection, process: BaseProcess) -> tuple[int, Any]:
    with _lost_is_told(process):
        number, found = pipe.recv()
    if isinstance(found, BaseException):
        raise found
    return number, found


@contextmanager
def _lost_is_told(process: BaseProcess) -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError):
        process.join()
        raise WorkerLost(f"a process ended by itself (exit code {process.exitcode})") from None


def _work(pipe: Connection, work: Callable[[Any], Any], prepare: Callable[[], None] | None) -> None:
    """Does what comes, until it is killed."""
    end_with_parent()  # the pipe does not tell: who was forked later holds its other end, too
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes of a terminal; only one is to speak
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    if prepare is not None:
        prepare()
    while True:
        number, item = pipe.recv()
        try:
            found = work(item)
        except Exception as error:  # the parent's, who raises it
            found = error
        pipe.send((number, found))
