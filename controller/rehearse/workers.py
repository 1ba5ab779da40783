"""Rehearsals in processes of their own, which end with whoever waits for them, whatever ends that.

`ProcessPoolExecutor` has a thread that still speaks of lost futures when the processes are killed, and waits for those
that are not; a sweep that is interrupted has nothing to wait for.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final

from controller.rehearse.variants import Variant, play, play_in, without_cluster
from controller.wire.cluster_file import ClusterShape
from controller.world.parent import end_with_parent

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_Row = dict[str, Any]


class WorkerLost(RuntimeError):
    """A process ended by itself: the machine may have had no memory left for it."""


def run_in_processes(listed: Sequence[Variant], workers: int) -> Iterator[_Row]:
    """Rows in the order of the variants, as they come. All have the same cluster, which goes to each process once.

    Raises WorkerLost, and what a rehearsal raises.
    """
    if workers == 1:
        yield from map(play, listed)
        return
    waiting, rows = deque(enumerate(listed)), dict[int, _Row]()
    try:
        crew = dict(_started(listed[0].scenario.cluster) for _ in range(workers))
        busy = [pipe for pipe in crew if _give(pipe, waiting)]
        for number in range(len(listed)):
            while number not in rows:
                for pipe in wait(busy):
                    assert isinstance(pipe, Connection)
                    rows.update([_taken(pipe, crew[pipe])])
                    if not _give(pipe, waiting):
                        busy.remove(pipe)
            yield rows.pop(number)
    finally:
        for process in multiprocessing.active_children():
            process.kill()
            process.join()


def _started(cluster: ClusterShape) -> tuple[Connection, BaseProcess]:
    """A process, and the pipe to it. Signals wait until it has said that it leaves them to its parent."""
    ours, theirs = multiprocessing.Pipe()
    with _signals_wait():
        process = multiprocessing.Process(target=_work, args=(theirs, cluster), daemon=True)
        process.start()
    theirs.close()
    return ours, process


@contextmanager
def _signals_wait() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _give(pipe: Connection, waiting: deque[tuple[int, Variant]]) -> bool:
    """The next one, if there is one."""
    if waiting:
        number, variant = waiting.popleft()
        pipe.send((number, without_cluster(variant)))
        return True
    return False


def _taken(pipe: Connection, process: BaseProcess) -> tuple[int, _Row]:
    try:
        number, found = pipe.recv()
    except (EOFError, OSError):
        process.join()
        raise WorkerLost(f"a process of a rehearsal ended by itself (exit code {process.exitcode})") from None
    if isinstance(found, BaseException):
        raise found
    return number, found


def _work(pipe: Connection, cluster: ClusterShape) -> None:
    """Plays what comes, until it is killed."""
    end_with_parent()  # the pipe does not tell: who was forked later holds its other end, too
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes of a terminal; only one is to speak
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    while True:
        number, variant = pipe.recv()
        try:
            found: _Row | Exception = play_in(cluster, variant)
        except Exception as error:  # the parent's, who raises it
            found = error
        pipe.send((number, found))
