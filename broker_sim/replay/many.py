"""Many independent plays as one Spark job: simulated worlds, rehearsals. What is played is a function and its items."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from pyspark import SparkContext
from pyspark.sql import SparkSession

_POLL_S: Final = 0.5
_ROOT: Final = Path(__file__).resolve().parents[2]
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
#: Sessions that have the project.
_sent: set[str] = set()


def play_on(
    spark: SparkSession, items: Sequence[_Item], play: Callable[[_Item], _Result], *, per_task: int = 1
) -> Iterator[int | list[_Result]]:
    """Plays all items on the session's machines, `per_task` after one another in a task.

    Yields how many are done, as it becomes known, and at last all results, in the order of the items. Machines of a
    cluster need this project's dependencies; the project itself is sent along. Raises what a play raises, by way of
    Spark.
    """
    context = spark.sparkContext
    done = context.accumulator(0)
    rows = context.parallelize(list(items), max(1, -(-len(items) // per_task)))
    results: list[_Result] = []
    failures: list[BaseException] = []

    def task(part: Iterator[_Item]) -> Iterator[_Result]:
        for item in part:
            result = play(item)
            done.add(1)
            yield result

    def collect() -> None:
        try:
            results.extend(rows.mapPartitions(task).collect())
        except BaseException as error:  # handed to the caller's thread
            failures.append(error)

    if not str(context.master).startswith("local"):
        _send_along(context)
    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_POLL_S)
        yield int(done.value)
    if failures:
        raise failures[0]
    yield results


def _send_along(context: SparkContext) -> None:
    """This project to the machines, once for a session; each fetches it with its first task, however late that is."""
    if context.applicationId not in _sent:
        folder = Path(tempfile.mkdtemp(prefix="kwob-packed-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        context.addPyFile(_packed(folder))
        _sent.add(context.applicationId)


def _packed(folder: Path) -> str:
    """Both packages in one archive, for the machines of a cluster."""
    for package in ("controller", "broker_sim"):
        ignore: Any = shutil.ignore_patterns("__pycache__")
        shutil.copytree(_ROOT / package, folder / "packed" / package, ignore=ignore)
    return shutil.make_archive(str(folder / "kwob"), "zip", folder / "packed")
