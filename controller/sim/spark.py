"""Many seeds as one Spark job: a task plays a few worlds after one another, results come back as rows."""

from __future__ import annotations

import gc
from collections.abc import Generator, Sequence
from functools import partial
from typing import Final

from broker_sim.replay.many import play_on
from broker_sim.replay.session import spark_session
from controller.sim.many import play_seed, prepare_process
from controller.sim.play import Outcome

#: Worlds of one task: so few that the last tasks do not keep a cluster waiting, so many that starting one is nothing.
SEEDS_PER_TASK: Final = 8


def play_on_spark(master: str, seeds: Sequence[int], changes: Sequence[str] = ()) -> Generator[Outcome | int]:
    """Plays all seeds on `master`; yields how many are done, as it becomes known, and then the outcomes.

    Raises: ReplayRefused, when Spark does not start.
    """
    with spark_session(master) as spark:
        for found in play_on(spark, list(seeds), partial(_play, tuple(changes)), per_task=SEEDS_PER_TASK):
            if isinstance(found, int):
                yield found
            else:
                yield from found


def _play(changes: Sequence[str], seed: int) -> Outcome:
    if gc.isenabled():  # a worker's process plays many
        prepare_process()
    return play_seed(seed, changes)
