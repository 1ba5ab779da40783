"""Every write of a partition's state znode that the rows tell of, one row per version. Columns only.

Several rows tell of one version (the leader that wrote it, the controller that did, the leader that was told): they
are joined on (partition, version), whatever their clocks say. What they must agree on is checked; versions that no row
tells of are counted, because they mean that a file is missing. Source: isr-replay.md §8.5.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from broker_sim.replay.schema import PARTITION_KEY, SRC_INFERRED, STATE_WRITE_COLUMNS
from broker_sim.replay.steps import source_of

_ISR_CHANGES: Final = ("isr_shrink", "isr_expand")
_STATES: Final = (*_ISR_CHANGES, "elect", "leader")
#: Who tells best when a version was written: who wrote it, then who was told; before all, who does not guess.
_RANK: Final = {"isr_shrink": 0, "isr_expand": 0, "elect": 1, "leader": 2}
_INFERRED_RANK: Final = 10
#: `value` of an assignment with which a topic begins anew.
_CREATED: Final = "created"
CONTRADICTORY_STATE: Final = "contradictory_state"
MISSING_STATE: Final = "missing_state"


def state_writes(trace: DataFrame) -> DataFrame:
    """The table, sorted by partition, generation (how often the topic was created), version."""
    grouped = _grouped(trace).select(*STATE_WRITE_COLUMNS)
    return grouped.sortWithinPartitions(*PARTITION_KEY, "generation", "zk_version")


def _grouped(trace: DataFrame) -> DataFrame:
    written = F.coalesce("err", F.lit(0)) == 0
    state = F.col("ev").isin(*_STATES) & F.col("zk_version").isNotNull() & F.col("isr").isNotNull() & written
    created = (F.col("ev") == "assign") & (F.col("value") == _CREATED)
    rows = trace.filter((state | created) & F.col("partition").isNotNull()).select(
        *PARTITION_KEY,
        F.coalesce("done", "ts").alias("ts"),
        F.coalesce(created, F.lit(False)).cast("int").alias("created"),
        "zk_version",
        "epoch",
        "isr",
        F.when(F.col("ev") == "elect", F.col("replica")).otherwise(F.col("broker")).alias("leader"),
        F.when(F.col("ev").isin(*_ISR_CHANGES), "leader").otherwise("controller").alias("written_by"),
        source_of(F.col("src")).alias("source"),
        _rank().alias("rank"),
    )
    members = F.array_sort("isr")
    so_far = Window.partitionBy(*PARTITION_KEY).orderBy("ts", F.desc("created"))
    ages = rows.withColumn("generation", F.sum("created").over(so_far.rowsBetween(Window.unboundedPreceding, 0)))
    return (
        ages.filter("created = 0")
        .groupBy(*PARTITION_KEY, "generation", "zk_version")
        .agg(
            F.max("epoch").alias("leader_epoch"),
            *(F.min_by(name, "rank").alias(name) for name in ("leader", "isr", "ts", "written_by", "source")),
            # Not a set of arrays: of many groups Spark holds equal ones in two forms, which it tells apart.
            (F.min(members) != F.max(members)).alias("differs"),
            F.min("ts").alias("first_ts"),
        )
    )


def _rank() -> Column:
    ranks = F.create_map(*(F.lit(x) for pair in _RANK.items() for x in pair))[F.col("ev")]
    return ranks + F.when(F.col("src") == SRC_INFERRED, _INFERRED_RANK).otherwise(0)


def state_notices(trace: DataFrame) -> DataFrame:
    """Versions about which rows disagree, and versions that no row tells of: rows of `notices`."""
    before = Window.partitionBy(*PARTITION_KEY, "generation").orderBy("zk_version")
    versions = _grouped(trace).withColumn("gap", F.col("zk_version") - F.lag("zk_version").over(before) - 1)
    counted = versions.groupBy(*PARTITION_KEY).agg(
        F.count_if("differs").alias(CONTRADICTORY_STATE),
        F.sum(F.coalesce("gap", F.lit(0))).alias(MISSING_STATE),
        F.min(F.when(F.col("differs") | (F.col("gap") > 0), F.col("first_ts"))).alias("first_ts"),
    )
    reasons = (CONTRADICTORY_STATE, MISSING_STATE)
    each = F.explode(F.array(*(F.struct(F.lit(r).alias("reason"), F.col(r).alias("rows")) for r in reasons)))
    noticed = counted.select(*PARTITION_KEY, each.alias("one"), "first_ts").filter("one.rows > 0")
    return noticed.select(
        F.col("one.reason").alias("reason"),
        *PARTITION_KEY,
        F.lit(None).cast("int").alias("broker"),
        F.col("one.rows").cast("bigint").alias("rows"),
        "first_ts",
    )
