"""Tables on disk without Spark: CSV copies, small tables, bounded reads for the report. Nothing is held whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq

CSV_FOLDER: Final = "csv"


def dataset(out: Path, name: str) -> Any:
    """The Parquet table `name` as an Arrow dataset."""
    return ds.dataset(str(out / name), format="parquet")


def exactly(path: Path) -> str:
    """A path for Spark to read, and that one alone: it looks for whatever fits the `[`, `{`, `*` and `?` in one."""
    return re.sub(r"[\\\[\]{}*?]", r"\\\g<0>", str(path))


def write_csv(out: Path, name: str) -> None:
    """Copies a table to `csv/<name>.csv`, batch by batch; lists are space-separated (isr-replay.md §7)."""
    folder = out / CSV_FOLDER
    folder.mkdir(exist_ok=True)
    table = dataset(out, name)
    schema = pa.schema([(f.name, pa.string() if pa.types.is_list(f.type) else f.type) for f in table.schema])
    with pa_csv.CSVWriter(str(folder / f"{name}.csv"), schema) as writer:
        for batch in table.to_batches():
            columns = [_flat(batch.column(i)) for i in range(batch.num_columns)]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def write_batches(out: Path, name: str, batches: pa.RecordBatchReader) -> None:
    """A table from batches, one after the other, as Parquet."""
    (out / name).mkdir(parents=True)
    path = str(out / name / "part-0.parquet")
    with pq.ParquetWriter(path, batches.schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)


def _flat(column: Any) -> Any:
    if not pa.types.is_list(column.type):
        return column
    return pc.binary_join(column.cast(pa.list_(pa.string())), " ")


def write_rows(out: Path, name: str, rows: list[dict[str, Any]]) -> None:
    """A small table from rows, as Parquet and CSV. No rows: nothing is written."""
    if not rows:
        return
    (out / name).mkdir()
    pq.write_table(pa.Table.from_pylist(rows), str(out / name / "part-0.parquet"), compression="zstd")
    write_csv(out, name)


def write_empty(out: Path, name: str, schema: pa.Schema) -> None:
    """A table without rows, as Parquet."""
    (out / name).mkdir(parents=True)
    pq.write_table(schema.empty_table(), str(out / name / "part-0.parquet"), compression="zstd")


def read_rows(out: Path, name: str, *, where: Any = None, limit: int) -> Iterator[dict[str, Any]]:
    """At most `limit` rows of a table that match `where`, in the order of the table."""
    yield from dataset(out, name).head(limit, filter=where).to_pylist()


def worst_rows(out: Path, name: str, *, where: Any = None, by: str | None, limit: int) -> list[dict[str, Any]]:
    """The rows that match `where` with the greatest values of `by`, at most `limit`; without `by` the first ones."""
    if by is None or by not in dataset(out, name).schema.names:
        return list(read_rows(out, name, where=where, limit=limit))
    worst: Any = None
    for batch in dataset(out, name).to_batches(filter=where):
        both = (
            pa.Table.from_batches([batch])
            if worst is None
            else pa.concat_tables([worst, pa.Table.from_batches([batch])])
        )
        worst = both.take(pc.select_k_unstable(both, k=min(limit, both.num_rows), sort_keys=[(by, "descending")]))
    rows: list[dict[str, Any]] = [] if worst is None else worst.to_pylist()
    return rows
