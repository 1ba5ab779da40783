"""Many seeds: in processes of this machine, or as one Spark job."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

from controller.sim.closing import import_what_explains_traces
from controller.sim.plan import draw_plan
from controller.sim.play import KINDS, Outcome, play
from controller.world.crew import share_out


@dataclass(slots=True)
class Tally:
    """What a run came to, so far."""

    seeds: int = 0
    virtual_s: float = 0.0
    records: int = 0
    cpu_s: float = 0.0
    failed: list[Outcome] = field(default_factory=list)
    started_s: float = field(default_factory=time.monotonic)

    def add(self, outcome: Outcome) -> None:
        """One more."""
        self.seeds += 1
        self.virtual_s += outcome.virtual_s
        self.records += outcome.records
        self.cpu_s += outcome.cpu_s
        if outcome.broken:
            self.failed.append(outcome)

    def rates(self) -> tuple[float, float]:
        """(seeds a second, virtual seconds a second)."""
        passed_s = max(time.monotonic() - self.started_s, 1e-9)
        return self.seeds / passed_s, self.virtual_s / passed_s


def play_seed(seed: int, changes: Sequence[str] = ()) -> Outcome:
    """One world, as its seed and the changes say."""
    return play(draw_plan(seed, KINDS, changes))


def prepare_process() -> None:
    """Before many worlds in one process: what is imported is never garbage, and a world is small enough to be collected
    once, at its end."""
    import_what_explains_traces()
    gc.collect()
    gc.freeze()
    gc.disable()


def play_in_processes(seeds: Iterable[int], *, workers: int, changes: Sequence[str] = ()) -> Generator[Outcome]:
    """Outcomes in the order in which worlds end. Closing the iterator ends the processes at once.

    Raises: WorkerLost.
    """
    if workers <= 1:
        prepare_process()
        try:
            for seed in seeds:
                yield play_seed(seed, changes)
        finally:
            gc.enable()
            gc.unfreeze()
        return
    work = partial(play_seed, changes=changes)
    with closing(share_out(work, seeds, workers, prepare=prepare_process, start_method="spawn")) as played:
        for _, outcome in played:
            yield outcome


def workers_of_this_machine() -> int:
    """A process for each core."""
    return os.cpu_count() or 1
