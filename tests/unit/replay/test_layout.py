"""What a folder of ingested rows tells of itself without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from broker_sim.replay.errors import ReplayRefused
from broker_sim.replay.ingest.layout import (
    LAYOUT_FILE,
    LAYOUT_VERSION,
    PROCESSES,
    check_layout,
    is_layout,
    totals,
    write_layout_file,
)


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


def test_a_folder_that_was_written_here_is_read_here(tmp_path: Path) -> None:
    (tmp_path / PROCESSES).mkdir()
    assert not is_layout(tmp_path)
    write_layout_file(tmp_path)
    assert is_layout(tmp_path) and not is_layout(tmp_path / LAYOUT_FILE)
    check_layout(tmp_path)


#: what the file says -> why the folder is refused
REFUSED: dict[str | None, str] = {
    None: "is no folder of ingested rows: _layout.json is missing or damaged",
    "{": "is no folder of ingested rows",
    "{}": "is no folder of ingested rows",
    "[]": "is no folder of ingested rows",
    json.dumps({"layout": 1}): f"has layout 1, this version reads {LAYOUT_VERSION}: ingest it again",
    json.dumps({"layout": LAYOUT_VERSION}): "is damaged: _processes is missing; ingest it again",
    json.dumps({"layout": LAYOUT_VERSION + 1}): f"has layout {LAYOUT_VERSION + 1}, this version reads",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_folder_that_cannot_be_read_here_is_refused(tmp_path: Path, text: str | None) -> None:
    """Of another version it may have no processes: which it is is told first."""
    if text is not None:
        (tmp_path / LAYOUT_FILE).write_text(text)
    with pytest.raises(ReplayRefused, match=REFUSED[text]):
        check_layout(tmp_path)
