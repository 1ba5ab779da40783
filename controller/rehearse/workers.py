"""Rehearsals in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from controller.rehearse.variants import Variant, play, play_in, without_cluster
from controller.world.crew import share_out

_Row = dict[str, Any]


def run_in_processes(listed: Sequence[Variant], workers: int) -> Iterator[_Row]:
    """Rows in the order of the variants, as they come. All have the same cluster, which goes to each process once.

    Raises WorkerLost, and what a rehearsal raises.
    """
    if workers == 1:
        yield from map(play, listed)
        return
    rows, given = dict[int, _Row](), 0
    work = partial(play_in, listed[0].scenario.cluster)
    with closing(share_out(work, map(without_cluster, listed), workers)) as played:
        for number, row in played:
            rows[number] = row
            while given in rows:
                yield rows.pop(given)
                given += 1
