"""Versions about which rows disagree are named, and no others, however many versions one task counts."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from broker_sim.replay.schema import SRC_METADATA
from broker_sim.replay.state_writes import CONTRADICTORY_STATE, MISSING_STATE, state_notices
from controller.wire.trace import COLUMNS

DDL = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())
#: More versions than Spark keeps in the hash table of one task before it goes on by sorting.
PARTITIONS = 150


def _row(partition: int, version: int, ev: str, isr: list[int], ts: int) -> tuple[object, ...]:
    row = {
        "topic": "t", "partition": partition, "ts": ts, "ev": ev, "zk_version": version, "epoch": 0, "isr": isr,
        "broker": 1, "replica": 1, "src": SRC_METADATA,
    }  # fmt: skip
    return tuple(map(row.get, COLUMNS))


def _notices(rows: DataFrame) -> set[tuple[object, ...]]:
    return {(r.reason, r.topic, r.partition, r.rows, r.first_ts) for r in state_notices(rows).collect()}


def test_rows_that_agree_are_no_contradiction(spark: SparkSession) -> None:
    """A version's rows may stand apart: of two versions in one ms the controller's come first, then the leaders'."""
    rows = [
        _row(partition, version, ev, [2, 1] if ev == "elect" else [1, 2], 1000)
        for partition in range(PARTITIONS)
        for ev in ("elect", "leader")
        for version in (7, 8)
    ]
    assert _notices(spark.createDataFrame(rows, DDL).coalesce(1)) == set()


def test_rows_that_disagree_and_versions_that_are_missing_are_named(spark: SparkSession) -> None:
    rows = [_row(0, 1, "elect", [1, 2], 5), _row(0, 1, "leader", [1], 6), _row(1, 1, "elect", [1], 7)]
    rows += [_row(1, 4, "elect", [1], 9), _row(2, 1, "elect", [], 1), _row(2, 1, "leader", [], 1)]
    assert _notices(spark.createDataFrame(rows, DDL)) == {
        (CONTRADICTORY_STATE, "t", 0, 1, 5),
        (MISSING_STATE, "t", 1, 2, 9),
    }
