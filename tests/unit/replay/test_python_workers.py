"""Python's path of Spark's workers: the library as files, where it is installed so."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

from broker_sim.replay.python_workers import as_files


def test_archives_are_left_out_only_where_the_library_is_there_as_files(tmp_path: Path) -> None:
    archives = [str(tmp_path / name) for name in ("pyspark.zip", "spark-core.jar")]
    for name in archives:
        zipfile.ZipFile(name, "w").close()
    absent = str(tmp_path / "python311.zip")
    assert as_files([*archives, absent, *sys.path]) == [absent, *as_files(sys.path)]
    assert as_files([*archives, str(tmp_path)]) == [*archives, str(tmp_path)]
