"""How Spark is set for what a step reads."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from broker_sim.replay.session import SMALL_INPUT_BYTES, TINY_INPUT_BYTES, tuned_for

pytestmark = pytest.mark.spark

GREAT = {
    "spark.sql.shuffle.partitions": "64",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.wholeStage": "true",
}


def settings_of(session: SparkSession) -> dict[str, str | None]:
    return {key: session.conf.get(key) for key in GREAT}


@pytest.mark.parametrize(
    ("input_bytes", "inside"),
    [
        (0, {**dict.fromkeys(GREAT, "false"), "spark.sql.shuffle.partitions": "2"}),
        (TINY_INPUT_BYTES, {**GREAT, "spark.sql.shuffle.partitions": "2", "spark.sql.adaptive.enabled": "false"}),
        (SMALL_INPUT_BYTES, GREAT),
    ],
)
def test_a_step_of_a_great_job_is_set_for_what_it_reads(
    spark: SparkSession, input_bytes: int, inside: dict[str, str]
) -> None:
    session = spark.newSession()
    for key, value in GREAT.items():
        session.conf.set(key, value)
    with pytest.raises(ZeroDivisionError), tuned_for(session, input_bytes):
        assert settings_of(session) == inside
        raise ZeroDivisionError
    assert settings_of(session) == GREAT  # as before, however the step ended


def test_workers_take_the_library_from_files_and_have_loaded_what_they_need(spark: SparkSession) -> None:
    def loaded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        library, is_loaded = str(sys.modules["pyspark"].__file__), "broker_sim.replay.logs.woven" in sys.modules
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"library": [library], "is_loaded": [is_loaded]})

    (row,) = spark.range(1, numPartitions=1).mapInArrow(loaded, "library string, is_loaded boolean").collect()
    assert Path(row["library"]).is_file() and row["is_loaded"]
