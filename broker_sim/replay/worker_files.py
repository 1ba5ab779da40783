"""Parquet files that Spark's Python workers write themselves: what they make need not go through the JVM to a file.

A task writes files under names that nobody else draws, and hands these back; the driver puts the files of the tasks
that ended in their place. So a task that fails, or runs twice, leaves nothing, and no row stands twice. The folder is
one that the driver and all workers see, as that of the results is.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from broker_sim.replay.grouped import ArrowBatches, ArrowStep, arrow_schema

#: What a task hands back for each of its files: where it belongs, below the folder of all, and where it is.
FILE_DDL: Final = "part string, file string"
_COMPRESSION: Final = "zstd"


class WorkerFiles:
    """The files of one task, of each part one at a time. `add` what there is, then `end`."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._open: dict[str, pq.ParquetWriter] = {}
        #: rows of `FILE_DDL`: the files that are whole
        self.written: list[tuple[str, str]] = []

    def add(self, part: str, rows: pa.RecordBatch | pa.Table) -> None:
        """Appends rows to the part's file."""
        if part not in self._open:
            self._folder.mkdir(parents=True, exist_ok=True)
            file = self._folder / f"{secrets.token_hex(8)}.parquet"
            self._open[part] = pq.ParquetWriter(str(file), rows.schema, compression=_COMPRESSION)
            self.written.append((part, str(file)))
        self._open[part].write(rows)

    def end(self) -> None:
        """The open files are whole: what is added from now on goes to others."""
        for writer in self._open.values():
            writer.close()
        self._open.clear()


def put_in_place(written: Iterable[tuple[str, str]], folder: Path) -> None:
    """Moves the files of tasks that ended to their parts below `folder`, on the same file system."""
    for part, file in written:
        place = folder / part / f"part-{Path(file).name}"
        place.parent.mkdir(parents=True, exist_ok=True)
        Path(file).rename(place)


def write(rows: DataFrame, make: ArrowStep, ddl: str, folder: Path) -> None:
    """What `make` makes of `rows`, in the workers, as a new folder: a table, whether there are rows or not."""
    draft = folder.with_name(f"{folder.name}.new")
    draft.mkdir(parents=True)
    pq.write_table(arrow_schema(ddl).empty_table(), str(draft / "part-0.parquet"), compression=_COMPRESSION)
    put_in_place(rows.mapInArrow(_writing(make, str(draft)), schema=FILE_DDL).collect(), draft)
    draft.rename(folder)


def _writing(make: ArrowStep, draft: str) -> ArrowStep:
    handed_back = arrow_schema(FILE_DDL)

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = WorkerFiles(draft)
        for batch in make(batches):
            files.add(".", batch)
        files.end()
        named = ArrowBatches(handed_back)
        named.extend(files.written)
        yield from named.rest()

    return step
