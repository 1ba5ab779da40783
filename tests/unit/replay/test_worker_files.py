"""Files that workers write themselves: those of tasks that ended, each once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from broker_sim.replay.worker_files import WorkerFiles, put_in_place


def _files(folder: Path) -> dict[str, list[list[dict[str, Any]]]]:
    found: dict[str, list[list[dict[str, Any]]]] = {}
    for file in sorted(folder.rglob("*.parquet")):
        found.setdefault(str(file.parent.relative_to(folder)), []).append(pq.ParquetFile(file).read().to_pylist())
    return found


def test_of_a_task_that_did_not_end_nothing_is_there(tmp_path: Path) -> None:
    failed, ended = (WorkerFiles(str(tmp_path / "draft")) for _ in range(2))
    for files in (failed, ended):
        files.add("a", pa.table({"x": [1]}))
    ended.add("a", pa.table({"x": [2]}))
    ended.add("b", pa.table({"x": [3]}))
    ended.end()
    ended.add("b", pa.table({"x": [4]}))
    ended.end()
    put_in_place(ended.written, tmp_path / "all")
    of_b = _files(tmp_path / "all").pop("b")
    assert _files(tmp_path / "all")["a"] == [[{"x": 1}, {"x": 2}]]
    assert sorted(of_b, key=str) == [[{"x": 3}], [{"x": 4}]]
