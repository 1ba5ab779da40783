"""Whoever reads the output may stop before its end, as `head` does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from controller.cli import PIPE_CLOSED


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("{}")
    (tmp_path / "findings").mkdir()
    pq.write_table(pa.table({"rank": [1], "text": ["a finding"]}), tmp_path / "findings" / "part-0.parquet")
    words = ["show", str(tmp_path), "--table", "findings", "--json"]
    command = [sys.executable, "-m", "broker_sim.replay", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
        assert (process.wait(60), said) == (PIPE_CLOSED, "")
