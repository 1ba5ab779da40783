"""Rows to the layout: judged, sorted and written by the workers that make or compare them.

The JVM does not see them again: Arrow judges and sorts many at once. A file has at most some `FILE_ROWS` rows; a lane
with more of a day is in several, one after the other. "log files" of the benchmark: so a step that took 36 s of CPU for
600,000 rows takes 20 s.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from broker_sim.replay.grouped import ArrowBatches, ArrowStep, arrow_schema
from broker_sim.replay.ingest import layout
from broker_sim.replay.ingest.neighbours import DUPLICATE, REPEATS
from broker_sim.replay.ingest.own_verdict import TORN, UNKNOWN_VERSION, reasons_of
from broker_sim.replay.schema import BULK_EVENTS, CLOCK_WENT_BACK, CORRUPT, OF_OTHER_VERSION, TRACE_COLUMNS, TRACE_DDL
from broker_sim.replay.tables import dataset
from broker_sim.replay.worker_files import FILE_DDL, WorkerFiles, put_in_place
from controller.wire.trace import COLUMNS

#: Rows that a task holds until it sorts and writes them: some 100 MB.
FILE_ROWS: Final = 1 << 19
#: Below the folder aside: rows that are not replayed, with the reason as `key` and, as far as it could be read, their
#: text as `value`.
REFUSED: Final = "refused"
_ROWS: Final = "rows"
_ASIDE: Final = "aside"
#: The order of a file, and what stands for null, which comes first.
_SORTED_BY: Final = {
    name: {"topic": "", "role": ""}.get(name, -1) for name in layout.SORTED_BY if name in TRACE_COLUMNS
}
#: column of `_processes` -> how those of many files become one
_MERGED: Final = {"rows": "sum", "first_ts": "min", "last_ts": "max", "ticks": "sum", "bulk": "sum", "logged": "sum"}


def write_rows(ordered: DataFrame, make: ArrowStep, folder: Path, *, aside: Path) -> dict[str, Any]:
    """Writes the rows that `make` makes of `ordered`, as a new folder in the layout; what is refused (`REFUSED`), and a
    copy of what is odd (`CLOCK_WENT_BACK`), goes to folders below `aside`. Returns the number of rows that are `kept`,
    that are not (by kind), and their span of time.

    `make` gives `TRACE_COLUMNS` (without `run` it is 0) and `CLOCK_WENT_BACK`; of lines also `CORRUPT` and
    `OF_OTHER_VERSION`, of rows that may stand twice `REPEATS` (`neighbours.compared`). Rows of a lane must come from
    one task.
    """
    draft = aside.with_name(f"{aside.name}.new")
    written = ordered.mapInArrow(judge_and_write(make, str(draft / "files")), schema=FILE_DDL).collect()
    put_in_place(written, draft)
    processes = _merged(draft / layout.PROCESSES)
    for made, place in ((draft / _ROWS, folder), (draft / _ASIDE, aside)):
        made.mkdir(parents=True, exist_ok=True)
        made.rename(place)
    (folder / layout.PROCESSES).mkdir()
    pq.write_table(processes, str(folder / layout.PROCESSES / "part-0.parquet"), compression="zstd")
    layout.write_layout_file(folder)
    span = pc.min_max(processes["first_ts"])["min"], pc.min_max(processes["last_ts"])["max"]
    kept = pc.sum(processes["rows"], min_count=0).as_py()
    others = {
        name: dataset(aside, name).count_rows() if (aside / name).is_dir() else 0 for name in (DUPLICATE, REFUSED)
    }
    return {"kept": kept, **others, "from_ts": span[0].as_py(), "to_ts": span[1].as_py()}


def judge_and_write(make: ArrowStep, draft: str) -> ArrowStep:
    """What one task does: writes files of the rows that `make` makes, and hands their names back (`FILE_DDL`)."""
    schema, handed_back = arrow_schema(TRACE_DDL), arrow_schema(FILE_DDL)

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = WorkerFiles(draft)
        waiting: list[pa.RecordBatch] = []
        for batch in make(batches):
            waiting.append(batch)
            if sum(each.num_rows for each in waiting) >= FILE_ROWS:
                _write(pa.Table.from_batches(waiting), schema, files)
                waiting.clear()
        if waiting:
            _write(pa.Table.from_batches(waiting), schema, files)
        named = ArrowBatches(handed_back)
        named.extend(files.written)
        yield from named.rest()

    return step


def _write(made: pa.Table, schema: pa.Schema, files: WorkerFiles) -> None:
    if "run" not in made.column_names:
        made = made.append_column("run", pa.chunked_array([pa.repeat(pa.scalar(0, pa.int64()), made.num_rows)]))
    rows = made.select(TRACE_COLUMNS).cast(schema)
    reasons = _reasons(made, rows)
    is_kept = reasons.is_null()
    is_refused = pc.fill_null(pc.not_equal(reasons, DUPLICATE), False)
    if (texts := _refused(made.filter(is_refused), rows.filter(is_refused), reasons.filter(is_refused))).num_rows:
        files.add(f"{_ASIDE}/{REFUSED}", texts)
    if (twice := rows.filter(pc.equal(reasons, DUPLICATE)).select(["seq"])).num_rows:
        files.add(f"{_ASIDE}/{DUPLICATE}", twice)
    if (odd := rows.filter(pc.and_(is_kept, made[CLOCK_WENT_BACK]))).num_rows:
        files.add(f"{_ASIDE}/{CLOCK_WENT_BACK}", odd)
    kept = rows.filter(is_kept)
    files.add(layout.PROCESSES, _processes(kept))
    days = pc.divide(kept["ts"], layout.DAY_MS)
    is_bulk = pc.is_in(kept["ev"], pa.array(BULK_EVENTS))
    for day in days.unique().sort().to_pylist():
        name = datetime.fromtimestamp(day * layout.DAY_MS / 1000, UTC).date().isoformat()
        for bulk, holds in ((False, pc.invert(is_bulk)), (True, is_bulk)):
            some = kept.filter(pc.and_(pc.equal(days, day), holds))
            if some.num_rows:
                place = f"{_ROWS}/{layout.DAY}={name}/{layout.BULK}={str(bulk).lower()}"
                files.add(place, _in_order(some))
    files.end()


def _reasons(made: pa.Table, rows: pa.Table) -> pa.ChunkedArray:
    """Of each row why it is not replayed, or null: how it was read, then what is in it, then the row before it."""
    found = [reasons_of(rows)]
    if CORRUPT in made.column_names:
        unread = pc.make_struct(pc.fill_null(made[OF_OTHER_VERSION], False), made[CORRUPT].is_valid())
        found.insert(0, pc.case_when(unread, UNKNOWN_VERSION, TORN))
    if REPEATS in made.column_names:
        found.append(made[REPEATS])
    return pc.coalesce(*found)


def _in_order(rows: pa.Table) -> pa.Table:
    keys = pa.table({name: pc.fill_null(rows[name], least) for name, least in _SORTED_BY.items()})
    return rows.take(pc.sort_indices(keys, [(name, "ascending") for name in _SORTED_BY]))


def _refused(made: pa.Table, rows: pa.Table, reasons: pa.ChunkedArray) -> pa.Table:
    """As `REFUSED` has them: a line that could not be read as it stands, another as JSON. A line may be no text."""
    lines = made[CORRUPT].cast(pa.binary()).to_pylist() if CORRUPT in made.column_names else [None] * made.num_rows
    texts = [
        json.dumps({k: v for k, v in row.items() if v is not None}, separators=(",", ":"), ensure_ascii=False)
        if line is None
        else line.decode("utf-8", errors="replace")
        for row, line in zip(rows.select(list(COLUMNS)).to_pylist(), lines, strict=True)
    ]
    for name, values in (("key", reasons), ("value", pa.chunked_array([texts], pa.string()))):
        rows = rows.set_column(rows.schema.get_field_index(name), name, values)
    return rows


def _processes(rows: pa.Table) -> pa.Table:
    """What `layout` tells of the processes that wrote these."""
    counted = {"ticks": ("ev", ("tick",)), "bulk": ("ev", layout.COUNTED_AS_BULK)}
    counted["logged"] = ("src", layout.COUNTED_AS_LOGGED)
    columns = {name: pc.is_in(rows[of], pa.array(values)).cast(pa.int64()) for name, (of, values) in counted.items()}
    ones = pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)
    table = {name: rows[name] for name in layout.PROCESS_KEY} | {
        "rows": ones,
        "first_ts": rows["ts"],
        "last_ts": rows["ts"],
    }
    return _grouped(pa.table(table | columns))


def _grouped(table: pa.Table) -> pa.Table:
    merged = table.group_by(layout.PROCESS_KEY, use_threads=False).aggregate(list(_MERGED.items()))
    return merged.select([*layout.PROCESS_KEY, *(f"{c}_{how}" for c, how in _MERGED.items())]).rename_columns(
        [*layout.PROCESS_KEY, *_MERGED]
    )


def _merged(folder: Path) -> pa.Table:
    return _grouped(pq.read_table(folder)) if folder.is_dir() else _processes(arrow_schema(TRACE_DDL).empty_table())
