"""Copies of the tree in which changes are planted, one at a time in each, so that several are tried side by side."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from queue import Queue
from typing import Final, TypeVar

from tests.defects.catalogue import ROOT, SIMULATION, Planted
from tests.defects.layers import Layer, layers_for, python, who_noticed
from tests.defects.table import SEEDS, Noticed

Change = TypeVar("Change", bound=Planted)
Found = TypeVar("Found")
#: What tests need of the tree.
_COPIED = ("broker_sim", "controller", "docs", "tests", "pyproject.toml", "README.md", "CHANGELOG.md", "Makefile")

#: A layer's limit is of the processor's time, so that a busy machine notices nothing; by the clock it is so much more.
WALL_FACTOR: Final = 10


class Copy:
    """A copy of the tree in which one change at a time is planted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in _COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(ROOT / name, folder / name)
        self._written = int(time.time())

    def noticed(self, change: Planted, seeds: range, layers: Collection[str], *, every_layer: bool) -> Noticed:
        """Runs the layers against the change."""
        path = self.folder / change.file
        sound = path.read_text(encoding="utf-8")
        found: dict[str, str] = {}
        self._write(path, change.planted(sound))
        try:
            for layer in layers_for(change.file, seeds, f"{change.name} {change.breaks}"):
                if layer.name not in layers:
                    continue
                found[layer.name] = self._run(layer)
                if layer.name == SIMULATION and not found[layer.name]:
                    found[SEEDS] = str(len(seeds))
                if found[layer.name] and not every_layer:
                    break
        finally:
            self._write(path, sound)
        return found

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text, encoding="utf-8")
        self._written += 2  # compiled code is kept by the time of its source, in seconds
        os.utime(path, (self._written, self._written))

    def _run(self, layer: Layer) -> str:
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "PYTHONHASHSEED": "0"}
        try:
            done = subprocess.run(
                python(layer),
                cwd=self.folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=WALL_FACTOR * layer.limit_s,
                preexec_fn=partial(_limit_cpu, int(layer.limit_s)),
            )
        except subprocess.TimeoutExpired:
            return who_noticed(layer, None, "")
        code = None if done.returncode == -signal.SIGXCPU else done.returncode
        return who_noticed(layer, code, done.stdout + done.stderr)


def _limit_cpu(seconds: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))


def each_in_a_copy(
    todo: Sequence[Change], workers: int, work: Callable[[Copy, Change], Found]
) -> Iterator[tuple[Change, Found]]:
    """What `work` says of each change, as it is done; so many at a time, each with a copy of its own meanwhile."""
    with tempfile.TemporaryDirectory(prefix="kwob-defects-") as folder:
        free: Queue[Copy] = Queue()
        for number in range(min(workers, len(todo)) or 1):
            free.put(Copy(Path(folder) / str(number)))

        def plant(change: Change) -> tuple[Change, Found]:
            copy = free.get()
            try:
                return change, work(copy, change)
            finally:
                free.put(copy)

        with ThreadPoolExecutor(max_workers=workers) as pool:
            for done in as_completed([pool.submit(plant, change) for change in todo]):
                yield done.result()
