"""One row of several that say the same: always the same one, whatever the order in which Spark meets them."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def first_of(rows: DataFrame, key: Sequence[str], *, order: Sequence[str]) -> DataFrame:
    """Of the rows with equal `key` the first in `order`; with equal `order`, the least by all columns, left to right.

    Null comes before any value. The columns and their order stay.
    """
    others = [name for name in rows.columns if name not in key]
    ranked = [*order, *(name for name in others if name not in order)]
    picked = rows.groupBy(*key).agg(F.min(F.struct(*ranked)).alias("_first"))
    return picked.select(*(F.col(name if name in key else f"_first.{name}") for name in rows.columns))
