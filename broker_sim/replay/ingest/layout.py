"""The Parquet layout of ingested rows: one version, one place that writes it (`by_workers`) and one that reads it.

    FOLDER/_layout.json                                  version, and the columns
    FOLDER/_processes/part-*.parquet                     one row for each process that wrote rows
    FOLDER/day=2026-11-20/bulk=true/part-*.parquet       zstd; within a file sorted by `SORTED_BY`

`day` is the UTC day of `ts`; `bulk` is true for `schema.BULK_EVENTS`, so that who asks for the others need not read
them. A row stands once; the sort puts each lane (what one broker wrote about one partition) in one piece of a file,
in the broker's order. Nothing here knows where rows come from.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession

from broker_sim.replay.errors import ReplayRefused
from broker_sim.replay.grouped import arrow_schema
from broker_sim.replay.schema import (
    SRC_INFERRED,
    SRC_LOG,
    SRC_METADATA,
    SRC_SNAPSHOT,
    TRACE_COLUMNS,
    TRACE_DDL,
)
from broker_sim.replay.tables import dataset, exactly
from controller.wire.trace import TRACE_VERSION

#: Raised when columns, partitioning or order change.
LAYOUT_VERSION: Final = 2
LAYOUT_FILE: Final = "_layout.json"
DAY: Final = "day"
BULK: Final = "bulk"
SORTED_BY: Final = (DAY, BULK, "topic", "partition", "broker", "role", "run", "seq")
#: Below the folder: the processes that wrote rows.
PROCESSES: Final = "_processes"
DAY_MS: Final = 86_400_000
#: What names a process, and how its rows are counted: the events that are `bulk`, the sources that are `logged`.
PROCESS_KEY: Final = ("role", "broker", "run")
COUNTED_AS_BULK: Final = ("append", "fetch")
COUNTED_AS_LOGGED: Final = (SRC_LOG, SRC_INFERRED, SRC_METADATA, SRC_SNAPSHOT)


@dataclass(frozen=True, slots=True)
class Ingested:
    """A folder's rows, in no order. `trace`: all, `TRACE_COLUMNS`."""

    trace: DataFrame
    folder: Path

    @property
    def tables(self) -> dict[str, Any]:
        """What can be asked in SQL, as Arrow datasets. `trace`: the rows that are not of `BULK_EVENTS`. `processes`:
        one row for each (`role`, `broker`, `run`), with the number of its `rows`, `first_ts`, `last_ts`, and how many
        of them are `ticks`, are appends or fetches (`bulk`) and were read from log files or a metadata log (`logged`).
        """
        files = sorted(str(file) for file in self.folder.glob(f"{DAY}=*/{BULK}=false/*.parquet"))
        schema = arrow_schema(TRACE_DDL)
        rows = ds.dataset(files, schema=schema, format="parquet") if files else ds.dataset(schema.empty_table())
        return {"trace": rows, "processes": dataset(self.folder, PROCESSES)}


def write_layout_file(folder: Path) -> None:
    """The last that is written of a folder."""
    layout_row = {"layout": LAYOUT_VERSION, "trace_version": TRACE_VERSION, "columns": list(TRACE_COLUMNS)}
    (folder / LAYOUT_FILE).write_text(json.dumps({**layout_row, "sorted_by": list(SORTED_BY)}) + "\n", encoding="utf-8")


def is_layout(path: Path) -> bool:
    """Whether `path` is a folder in this layout, of any version."""
    return (path / LAYOUT_FILE).is_file()


def read_rows(spark: SparkSession, folder: Path) -> Ingested:
    """The rows of a folder that `by_workers.write_rows` wrote.

    Raises: ReplayRefused, when it is of another version, or not readable.
    """
    check_layout(folder)
    return Ingested(_read(spark, folder).select(*TRACE_COLUMNS), folder)


def _read(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.schema(f"{TRACE_DDL}, {DAY} string, {BULK} boolean").parquet(exactly(folder))


def totals(folder: Path) -> dict[str, Any]:
    """Of a folder's rows: how many are `kept`, and their span, `from_ts` and `to_ts`; None where there are none.

    Raises: ReplayRefused, when what tells of its processes cannot be read.
    """
    try:
        processes = dataset(folder, PROCESSES).to_table()
        kept, since, until = (processes[name] for name in ("rows", "first_ts", "last_ts"))
    except (pa.ArrowException, KeyError) as error:
        raise ReplayRefused(f"{folder} is damaged: {PROCESSES} cannot be read: {error}; ingest it again") from error
    return {"kept": pc.sum(kept).as_py(), "from_ts": pc.min(since).as_py(), "to_ts": pc.max(until).as_py()}


def check_layout(folder: Path) -> None:
    """Raises: ReplayRefused, when `folder` is not in the layout of this version."""
    try:
        layout_row = json.loads((folder / LAYOUT_FILE).read_text(encoding="utf-8"))
        version = layout_row["layout"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReplayRefused(f"{folder} is no folder of ingested rows: {LAYOUT_FILE} is missing or damaged") from error
    if version == LAYOUT_VERSION and not (folder / PROCESSES).is_dir():
        raise ReplayRefused(f"{folder} is damaged: {PROCESSES} is missing; ingest it again")
    if version != LAYOUT_VERSION:
        raise ReplayRefused(f"{folder} has layout {version}, this version reads {LAYOUT_VERSION}: ingest it again")
