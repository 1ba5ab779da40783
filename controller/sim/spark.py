"""Many seeds as one Spark job: a task plays a few worlds after one another, results come back as rows."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from broker_sim.replay.session import spark_session
from controller.sim.many import play_seed, prepare_process
from controller.sim.play import Outcome

#: Worlds of one task: so few that the last tasks do not keep a cluster waiting, so many that starting one is nothing.
SEEDS_PER_TASK: Final = 8
_POLL_S: Final = 0.5
_ROOT: Final = Path(__file__).resolve().parents[2]


def play_on_spark(master: str, seeds: Sequence[int], changes: Sequence[str] = ()) -> Iterator[Outcome | int]:
    """Plays all seeds on `master`; yields how many are done, as it becomes known, and then the outcomes.

    Machines of a cluster need this project's dependencies; the project itself is sent along.
    Raises: ReplayRefused, when Spark does not start.
    """
    with spark_session(master) as spark:
        context = spark.sparkContext
        done = context.accumulator(0)
        if not master.startswith("local"):
            context.addPyFile(str(_packed()))
        rows = context.parallelize(list(seeds), max(1, len(seeds) // SEEDS_PER_TASK))
        outcomes: list[Outcome] = []
        failures: list[BaseException] = []

        def task(part: Iterator[int]) -> Iterator[Outcome]:
            prepare_process()
            for seed in part:
                outcome = play_seed(seed, changes)
                done.add(1)
                yield outcome

        def collect() -> None:
            try:
                outcomes.extend(rows.mapPartitions(task).collect())
            except BaseException as error:  # handed to the caller's thread
                failures.append(error)

        thread = threading.Thread(target=collect, daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(_POLL_S)
            yield int(done.value)
        if failures:
            raise failures[0]
        yield from outcomes


def _packed() -> Path:
    """Both packages in one archive, for the machines of a cluster."""
    folder = Path(tempfile.mkdtemp(prefix="kwob-sim-"))
    for package in ("controller", "broker_sim"):
        ignore: Any = shutil.ignore_patterns("__pycache__")
        shutil.copytree(_ROOT / package, folder / "packed" / package, ignore=ignore)
    return Path(shutil.make_archive(str(folder / "kwob"), "zip", folder / "packed"))
