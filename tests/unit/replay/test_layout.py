"""What a folder of ingested rows tells of itself without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from broker_sim.replay.errors import ReplayRefused
from broker_sim.replay.ingest.layout import PROCESSES, totals


def test_how_much_there_is_and_when(tmp_path: Path) -> None:
    (tmp_path / PROCESSES).mkdir()
    rows = {"rows": [3, 4], "first_ts": [20, 10], "last_ts": [21, 30]}
    pq.write_table(pa.table(rows), tmp_path / PROCESSES / "part-0.parquet")
    assert totals(tmp_path) == {"kept": 7, "from_ts": 10, "to_ts": 30}
    pq.write_table(pa.table(rows).slice(0, 0), tmp_path / PROCESSES / "part-0.parquet")
    assert totals(tmp_path) == {"kept": None, "from_ts": None, "to_ts": None}


@pytest.mark.parametrize("damage", ["no parquet", "other columns"])
def test_what_cannot_be_read_is_refused(tmp_path: Path, damage: str) -> None:
    (tmp_path / PROCESSES).mkdir()
    file = tmp_path / PROCESSES / "part-0.parquet"
    if damage == "no parquet":
        file.write_text("torn")
    else:
        pq.write_table(pa.table({"other": [1]}), file)
    with pytest.raises(ReplayRefused, match=f"{PROCESSES} cannot be read: .*; ingest it again"):
        totals(tmp_path)
