"""Rows as workers write them: judged, placed by day and kind, in order, none too many in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from broker_sim.replay.grouped import arrow_schema
from broker_sim.replay.ingest import by_workers
from broker_sim.replay.ingest.neighbours import REPEATS
from broker_sim.replay.logs.woven import WOVEN_DDL
from broker_sim.replay.schema import CLOCK_WENT_BACK, CORRUPT, OF_OTHER_VERSION
from broker_sim.replay.worker_files import put_in_place

DAY_MS = 86_400_000
pytestmark = pytest.mark.usefixtures("spark")


def _files(folder: Path) -> dict[str, list[list[dict[str, Any]]]]:
    found: dict[str, list[list[dict[str, Any]]]] = {}
    for file in sorted(folder.rglob("*.parquet")):
        found.setdefault(str(file.parent.relative_to(folder)), []).append(pq.ParquetFile(file).read().to_pylist())
    return found


def _row(seq: int, **columns: Any) -> dict[str, Any]:
    common = {"broker": 1, "ev": "append", "topic": "t", "partition": 0, "leo": 9, "role": "broker"}
    return {"seq": seq, "ts": seq, **common, CLOCK_WENT_BACK: False, **columns}


ROWS = [
    _row(7),
    _row(3, **{CLOCK_WENT_BACK: True}),
    _row(5, ev="start", topic=None, partition=None),
    _row(4, ev="tick"),
    _row(6, leo=None, **{CLOCK_WENT_BACK: True}),
    _row(8, offset=10, isr=[1, 2]),
    _row(9, ts=DAY_MS, ev="hw", hw=0),
    _row(10, ts=1_790_000_000_000_000_000),
]


def _written(tmp_path: Path) -> dict[str, list[list[dict[str, Any]]]]:
    batches = [pa.RecordBatch.from_pylist(rows, arrow_schema(WOVEN_DDL)) for rows in (ROWS[:4], ROWS[4:])]
    step = by_workers.judge_and_write(lambda given: given, str(tmp_path / "draft"))
    for named in step(iter(batches)):
        put_in_place(zip(*named.to_pydict().values(), strict=True), tmp_path / "all")
    return _files(tmp_path / "all")


def test_rows_are_judged_and_placed_by_day_and_kind_in_order(tmp_path: Path) -> None:
    files = _written(tmp_path)
    seqs = {place: [[row["seq"] for row in rows] for rows in of] for place, of in files.items() if "rows/" in place}
    assert seqs == {
        "rows/day=1970-01-01/bulk=false": [[5, 4]],
        "rows/day=1970-01-01/bulk=true": [[3, 7]],
        "rows/day=1970-01-02/bulk=true": [[9]],
    }
    ((odd,),) = files[f"aside/{CLOCK_WENT_BACK}"]
    assert odd["seq"] == 3
    (refused,) = files["aside/refused"]
    assert [row["key"] for row in refused] == ["incomplete", "contradictory", "contradictory"]
    assert json.loads(refused[1]["value"])["isr"] == [1, 2] and "hw" not in json.loads(refused[1]["value"])
    ((process,),) = files["_processes"]
    assert (process["rows"], process["ticks"], process["bulk"], process["last_ts"]) == (5, 1, 2, DAY_MS)


def test_how_a_line_was_read_goes_before_what_it_says_and_that_before_the_row_before(tmp_path: Path) -> None:
    """A row that stands twice is counted and dropped, whatever else; a line that could not be read stands as it was."""
    ddl = f"{WOVEN_DDL}, run bigint, {CORRUPT} string, {OF_OTHER_VERSION} boolean, {REPEATS} string"
    rows = [
        _row(1, run=7),
        _row(1, run=7, **{REPEATS: "duplicate"}),
        _row(2, leo=None, **{REPEATS: "duplicate"}),
        _row(3, leo=None, **{CORRUPT: '{"seq": 3, '}),
        _row(4, **{CORRUPT: "x", OF_OTHER_VERSION: True}),
        _row(5, **{REPEATS: "contradictory", CLOCK_WENT_BACK: True}),
    ]
    step = by_workers.judge_and_write(lambda given: given, str(tmp_path / "draft"))
    for named in step(iter([pa.RecordBatch.from_pylist(rows, arrow_schema(ddl))])):
        put_in_place(zip(*named.to_pydict().values(), strict=True), tmp_path / "all")
    files = _files(tmp_path / "all")
    (refused,) = files["aside/refused"]
    reasons = ["incomplete", "torn", "unknown_version", "contradictory"]
    assert [row["key"] for row in refused] == reasons
    assert [row["value"] for row in refused[1:3]] == ['{"seq": 3, ', "x"]
    assert len(files["aside/duplicate"][0]) == 1
    ((process,),) = files["_processes"]
    assert (process["run"], process["rows"]) == (7, 1)


def test_a_line_that_is_no_text_is_refused_as_any_other(tmp_path: Path) -> None:
    """A disk that lost its power leaves anything. Spark hands the bytes on as they are."""
    batch = pa.RecordBatch.from_pylist([_row(1), _row(2)], arrow_schema(WOVEN_DDL))
    unread = pa.array([None, b"{\x8b\xff"], pa.binary()).cast(pa.string(), safe=False)
    batch = batch.append_column(CORRUPT, unread).append_column(OF_OTHER_VERSION, pa.array([False, False]))
    step = by_workers.judge_and_write(lambda given: given, str(tmp_path / "draft"))
    for named in step(iter([batch])):
        put_in_place(zip(*named.to_pydict().values(), strict=True), tmp_path / "all")
    ((refused,),) = _files(tmp_path / "all")["aside/refused"]
    assert (refused["key"], refused["value"]) == ("torn", "{\ufffd\ufffd")


def test_a_task_holds_no_more_rows_than_go_into_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_workers, "FILE_ROWS", 4)
    files = _written(tmp_path)["rows/day=1970-01-01/bulk=true"]
    assert [row["seq"] for rows in files for row in rows] == [3, 7]
    assert len(_files(tmp_path / "all")["_processes"]) == 2
