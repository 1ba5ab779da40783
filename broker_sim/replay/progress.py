"""What the job is doing, on the terminal: one line per step, with the tasks of Spark's running stages."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

_POLL_S: Final = 0.2


class StepProgress:
    """Shows steps on `console`. Not a terminal: one plain line per finished step."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self._console = console
        self._quiet = quiet
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[tasks]}"))
        self._bars = Progress(*columns, TimeElapsedColumn(), console=console, disable=quiet or not console.is_terminal)

    def __enter__(self) -> StepProgress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    @contextmanager
    def step(self, name: str, spark: SparkSession | None = None) -> Iterator[None]:
        """The time in the block is one step; with `spark` its bar follows Spark's tasks."""
        bar = self._bars.add_task(name, total=None, tasks="")
        done = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(bar, spark, done), daemon=True)
        if spark is not None and not self._bars.disable:
            watcher.start()
        try:
            yield
        finally:
            done.set()
            if watcher.ident is not None:
                watcher.join()
        self._bars.update(bar, total=1, completed=1, tasks="")
        if self._bars.disable and not self._quiet:
            took = self._bars.tasks[bar].finished_time or 0.0
            self._console.print(f"{name}: {took:.1f} s", highlight=False)

    def _watch(self, bar: TaskID, spark: SparkSession, done: threading.Event) -> None:
        with suppress(Py4JError, OSError):  # the JVM is gone: Ctrl-C has ended it
            tracker = spark.sparkContext.statusTracker()
            while not done.wait(_POLL_S):
                stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
                total = sum(stage.numTasks for stage in stages if stage is not None)
                completed = sum(stage.numCompletedTasks for stage in stages if stage is not None)
                if total:
                    self._bars.update(bar, total=total, completed=completed, tasks=f"{completed}/{total} tasks")
