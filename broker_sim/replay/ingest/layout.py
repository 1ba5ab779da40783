"""The Parquet layout of ingested rows: one version, one place that writes it and one that reads it.

    FOLDER/_layout.json                       version, and the columns
    FOLDER/day=2026-11-20/part-*.parquet      zstd; within a file sorted by `SORTED_BY`

`day` is the UTC day of `ts`. A row stands once; the sort puts each lane (what one broker wrote about one partition)
in one piece of a file, in the broker's order. Nothing here knows where rows come from.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from broker_sim.replay.errors import ReplayRefused
from broker_sim.replay.schema import TRACE_COLUMNS, TRACE_DDL
from controller.wire.trace import TRACE_VERSION

#: Raised when columns, partitioning or order change.
LAYOUT_VERSION: Final = 1
LAYOUT_FILE: Final = "_layout.json"
PARTITION_COLUMN: Final = "day"
SORTED_BY: Final = (PARTITION_COLUMN, "topic", "partition", "broker", "role", "run", "seq")
_DAY_MS: Final = 86_400_000


def write_rows(rows: DataFrame, folder: Path) -> None:
    """Writes rows with `TRACE_COLUMNS` as a new folder in the layout. Rows of a lane must be in one partition."""
    day = F.date_from_unix_date(F.floor(F.col("ts") / _DAY_MS).cast("int")).cast("string")
    dated = rows.select(*TRACE_COLUMNS, day.alias(PARTITION_COLUMN)).sortWithinPartitions(*SORTED_BY)
    dated.write.partitionBy(PARTITION_COLUMN).option("compression", "zstd").parquet(str(folder))
    told = {"layout": LAYOUT_VERSION, "trace_version": TRACE_VERSION, "columns": list(TRACE_COLUMNS)}
    (folder / LAYOUT_FILE).write_text(json.dumps({**told, "sorted_by": list(SORTED_BY)}) + "\n", encoding="utf-8")


def is_layout(path: Path) -> bool:
    """Whether `path` is a folder in this layout, of any version."""
    return (path / LAYOUT_FILE).is_file()


def read_rows(spark: SparkSession, folder: Path) -> DataFrame:
    """The rows of a folder that `write_rows` wrote: `TRACE_COLUMNS`, in no order.

    Raises: ReplayRefused, when it is of another version, or not readable.
    """
    check_layout(folder)
    schema = f"{TRACE_DDL}, {PARTITION_COLUMN} string"
    return spark.read.schema(schema).parquet(str(folder)).select(*TRACE_COLUMNS)


def check_layout(folder: Path) -> None:
    """Raises: ReplayRefused, when `folder` is not in the layout of this version."""
    try:
        told = json.loads((folder / LAYOUT_FILE).read_text(encoding="utf-8"))
        version = told["layout"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReplayRefused(f"{folder} is no folder of ingested rows: {LAYOUT_FILE} is missing or damaged") from error
    if version != LAYOUT_VERSION:
        raise ReplayRefused(f"{folder} has layout {version}, this version reads {LAYOUT_VERSION}: ingest it again")
