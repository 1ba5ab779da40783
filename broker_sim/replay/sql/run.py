"""DuckDB over folders of Parquet files. It streams, and holds at most its `memory_limit`, whatever it reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow.dataset as ds

from broker_sim.replay.schema import SRC_INFERRED, SRC_LOG, SRC_METADATA, SRC_SNAPSHOT
from broker_sim.replay.tables import exactly, write_batches

#: Nothing is fetched from anywhere; what does not fit into memory waits on the disk. Rows are ordered as Spark does.
_SETTINGS: Final[dict[str, Any]] = {
    "autoinstall_known_extensions": "false",
    "memory_limit": "1GB",
    "default_null_order": "nulls_first_on_asc_last_on_desc",
}
_BATCH_ROWS: Final = 65_536
#: The `source` column from a row's `src`: `trace`, `log`, `inferred`, `metadata` or `snapshot`.
_SOURCE_OF: Final = f"""CREATE MACRO source_of(src) AS CASE
    WHEN src IN ('{SRC_LOG}', 'zk') THEN '{SRC_LOG}'
    WHEN src IN ('{SRC_INFERRED}', '{SRC_METADATA}', '{SRC_SNAPSHOT}') THEN src
    ELSE 'trace' END"""

#: A folder of Parquet files, or a dataset; by the name that questions know it by.
Folders = Mapping[str, Any]


@contextmanager
def tables(folders: Folders, scratch: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that knows these folders as tables; what does not fit into memory goes below `scratch`."""
    with closing(duckdb.connect(config=_SETTINGS | {"temp_directory": str(scratch / "duckdb")})) as connection:
        connection.execute(_SOURCE_OF)
        for name, folder in folders.items():
            rows = ds.dataset(str(folder), format="parquet") if isinstance(folder, Path) else folder
            connection.register(name, rows)
        yield connection


def write(connection: duckdb.DuckDBPyConnection, question: str, out: Path, name: str) -> None:
    """The answer as the table `name` in `out`, as Parquet."""
    write_batches(out, name, connection.execute(question).to_arrow_reader(_BATCH_ROWS))


def staged(folders: Folders, question: str, stage: Path, name: str) -> str:
    """The answer as Parquet below `stage`, for Spark to read; returns where."""
    with tables(folders, stage) as connection:
        write(connection, question, stage, name)
    return exactly(stage / name)


def first_of(source: str, columns: list[str], key: list[str], *, order: list[str]) -> str:
    """Of the rows of `source` with equal `key` the first in `order`; of equal ones the least by all `columns`, left to
    right, so that it is always the same one. Null comes before any value."""
    others = [name for name in columns if name not in (*key, *order)]
    by = ", ".join(quoted([*order, *others]))
    group = ", ".join(quoted(key))
    every = ", ".join(quoted(columns))
    return f"SELECT {every} FROM {source} QUALIFY row_number() OVER (PARTITION BY {group} ORDER BY {by}) = 1"


def quoted(names: list[str]) -> list[str]:
    """Names of columns, some of which are words of SQL."""
    return [f'"{name}"' for name in names]


def typed(kind: str) -> str:
    """Spark's name of a type as DuckDB's."""
    return kind.replace("array<int>", "INTEGER[]")


def texts(values: tuple[str, ...]) -> str:
    """A list for IN."""
    return "(" + ", ".join(f"'{value}'" for value in values) + ")"
