"""Tables made by hand: rows as mappings, columns as Spark's DDL has them. No Spark is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

TYPES = {
    "string": pa.string(), "int": pa.int32(), "smallint": pa.int16(), "bigint": pa.int64(), "boolean": pa.bool_(),
    "double": pa.float64(),
    "array<int>": pa.list_(pa.int32()),
}  # fmt: skip


def made(ddl: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """A table with the columns of `ddl`; what a row does not name is null."""
    columns = [column.replace("`", "").split() for column in ddl.split(",")]
    schema = pa.schema([(column, TYPES[kind]) for column, kind in columns])
    return pa.Table.from_pylist([dict(row) for row in rows], schema=schema)


def ddl_of(types: Mapping[str, str]) -> str:
    """Columns with their types as DDL."""
    return ", ".join(f"{name} {kind}" for name, kind in types.items())
