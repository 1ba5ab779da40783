"""A sweep as one Spark job: one row in, one task, one row out. The only module of this room that imports pyspark."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from controller.rehearse.variants import play

if TYPE_CHECKING:
    from controller.rehearse.variants import Variant


def run_variants(listed: Sequence[Variant], master: str) -> list[dict[str, Any]]:
    """The rows, in the order of the variants. The session ends with the job."""
    spark = SparkSession.builder.master(master).appName("kwob rehearse sweep").getOrCreate()
    try:
        packed = [(number, pickle.dumps(variant)) for number, variant in enumerate(listed)]
        rows = spark.sparkContext.parallelize(packed, numSlices=len(packed)).mapPartitions(_play).collect()
        return [json.loads(text) for _, text in sorted(rows)]
    finally:
        spark.stop()


def _play(rows: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, str]]:
    for number, packed in rows:
        yield number, json.dumps(play(pickle.loads(packed)))
