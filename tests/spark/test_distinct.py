"""Of rows that say the same, always the same one is taken."""

from __future__ import annotations

from itertools import permutations

import pytest
from pyspark.sql import SparkSession

from broker_sim.replay.distinct import first_of

ROWS = [("t", 1, 5, None), ("t", 1, 5, "b"), ("t", 1, 3, "z"), ("u", 0, 9, "a"), ("t", 1, 3, "y")]


@pytest.mark.long
def test_the_order_in_which_rows_come_does_not_matter(spark: SparkSession) -> None:
    expected = [("t", 1, 3, "y"), ("u", 0, 9, "a")]
    for rows in (ROWS, ROWS[::-1], *list(permutations(ROWS))[40:42]):
        frame = spark.createDataFrame(rows, "topic string, partition int, ts int, text string").repartition(3)
        assert sorted(map(tuple, first_of(frame, ["topic", "partition"], order=["ts"]).collect())) == expected


@pytest.mark.long
def test_null_comes_before_any_value(spark: SparkSession) -> None:
    frame = spark.createDataFrame(ROWS[:2], "topic string, partition int, ts int, text string")
    (row,) = first_of(frame, ["topic"], order=["ts"]).collect()
    assert tuple(row) == ("t", 1, 5, None)
