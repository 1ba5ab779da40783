"""Work that processes share: all of it once, in any order, and nobody stays behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from controller.world.crew import WorkerLost, share_out

#: Longer than any test may take.
FOREVER_S = 600.0


def double(number: int) -> int:
    return 2 * number


def refuse(number: int) -> int:
    raise ValueError(f"not {number}")


def die(_: int) -> int:
    sys.exit(7)


def stay(_: int) -> int:
    time.sleep(FOREVER_S)
    return 0


def note(path: Path) -> None:
    (path / str(os.getpid())).touch()


def disposition(number: int) -> tuple[bool, bool]:
    """Whether Ctrl-C is left to the parent, and SIGTERM ends the process as ever."""
    return signal.getsignal(signal.SIGINT) == signal.SIG_IGN, signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.fixture(autouse=True)
def _nobody_stays_behind() -> Iterator[None]:
    before = set(multiprocessing.active_children())
    yield
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.parametrize(("count", "workers"), [(0, 2), (1, 3), (7, 2)])
def test_each_item_is_done_once(count: int, workers: int) -> None:
    assert dict(share_out(double, range(10, 10 + count), workers)) == {n: 2 * (10 + n) for n in range(count)}


def test_items_are_taken_when_somebody_is_there_for_them() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    with closing(share_out(double, items(), 2)) as found:
        next(found)
        assert len(taken) == 3, "one for each, and one for whom was done"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_each_process_prepares_itself(method: str, tmp_path: Path) -> None:
    assert len(list(share_out(double, range(4), 2, prepare=partial(note, tmp_path), start_method=method))) == 4
    assert len(list(tmp_path.iterdir())) == 2


def test_what_the_work_raises_is_raised() -> None:
    with pytest.raises(ValueError, match="not 3"):
        list(share_out(refuse, [3], 1))


def test_who_is_lost_is_told() -> None:
    with pytest.raises(WorkerLost, match="exit code 7"):
        list(share_out(die, range(2), 2))


def test_who_is_lost_before_there_is_work_for_it_is_told() -> None:
    def late() -> Iterator[int]:
        for child in multiprocessing.active_children():
            child.kill()
            child.join()
        yield 1

    with pytest.raises(WorkerLost, match="exit code -9"):
        list(share_out(double, late(), 1))


def test_closing_waits_for_nobody() -> None:
    with closing(share_out(partial(_stay_unless, 0), range(3), 2)) as found:
        assert next(found) == (0, 0)


def _stay_unless(number: int, item: int) -> int:
    return 0 if item == number else stay(item)


def test_signals_are_the_parents() -> None:
    assert dict(share_out(disposition, [1], 1)) == {0: (True, True)}
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) & {signal.SIGINT, signal.SIGTERM} == set()
