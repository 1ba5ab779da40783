"""What Spark forks its Python workers from: `pyspark.daemon`, with what a worker needs imported once, before.

Spark puts its library as a zip, and one of its jars, in front of Python's path. Modules of a zip are compiled anew in
each process, and the directories of both are read again before each task. Where the library is installed as files, too,
these are taken: they are compiled already. Started by the JVM, as `session` asks it to (`spark.python.daemon.module`).
"""

from __future__ import annotations

import gc
import importlib
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

#: What workers import for their first task; it imports all that the steps of the replay run.
_NEEDED: Final = (
    "pyspark.worker",
    "pyarrow.compute",
    "broker_sim.replay.grouped",
    "broker_sim.replay.logs.woven",
    "broker_sim.replay.ingest.by_workers",
)
_OF_SPARK: Final = ("pyspark", "py4j")


def as_files(path: list[str]) -> list[str]:
    """Python's path without archives, if Spark's library is found there all the same; else the path as it is."""
    files = [entry for entry in path if not (entry.endswith((".zip", ".jar")) and Path(entry).is_file())]
    return files if all(PathFinder.find_spec(name, files) for name in _OF_SPARK) else path


def main() -> None:
    """Serves the JVM until it closes the standard input."""
    # "log files" of the benchmark, --profile: a quarter of what Python did was to compile and to look for modules.
    sys.path[:] = as_files(sys.path)
    for gone in sys.path_importer_cache.keys() - set(sys.path):
        del sys.path_importer_cache[gone]  # else archives are read again before each task all the same
    for name in _NEEDED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a worker collects after each task: what it was born with need not be looked through
    importlib.import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main()
