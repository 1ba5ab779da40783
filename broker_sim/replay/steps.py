"""The steps between the clean trace and the tables: frames, and what runs over them. It writes nothing."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from broker_sim.replay.facts import FACT_ORDER
from broker_sim.replay.grouped import ArrowStep, arrow_schema, fold_histories, replay_lanes
from broker_sim.replay.schema import (
    DERIVED_DDL,
    FACT_COLUMNS,
    LANE_COLUMNS,
    LANE_KEY,
    OF_CONTROLLER,
    OUTCOME_DDL,
    PARTITION_KEY,
    SHARED_TYPES,
)

# -- trace -> lanes -> outcomes -------------------------------------------------------------------------------------


def lanes(trace: DataFrame, shared: DataFrame) -> DataFrame:
    """Every row a lane needs: its own, and those that it shares with others (`sql.lanes.SHARED_ROWS`)."""
    of_lanes = (F.col("role") == "broker") & F.col("partition").isNotNull() & ~F.col("ev").isin(*OF_CONTROLLER)
    return trace.filter(of_lanes).select(*map(_own, LANE_COLUMNS)).unionByName(shared)


def _own(name: str) -> Column:
    return F.lit(None).cast(SHARED_TYPES[name]).alias(name) if name in SHARED_TYPES else F.col(name)


def in_lanes(lane_rows: DataFrame) -> DataFrame:
    """The rows of `lanes`, those of each in one task, in their order: what the rules take."""
    return lane_rows.repartition(*LANE_KEY).sortWithinPartitions(*LANE_KEY, "run", "seq")


def rules(profile: str) -> ArrowStep:
    """Rows of `in_lanes` to outcomes (`OUTCOME_DDL`), unordered."""
    return replay_lanes(profile, arrow_schema(OUTCOME_DDL))


def replayed(lane_rows: DataFrame, *, profile: str) -> DataFrame:
    """The rules over every lane: outcomes, unordered."""
    return in_lanes(lane_rows).mapInArrow(rules(profile), schema=OUTCOME_DDL)


# -- facts -> history -------------------------------------------------------------------------------------------------


def in_partitions(facts: DataFrame) -> DataFrame:
    """`facts` (from `sql.facts`), those of each partition in one task, in their order: what `fold` takes."""
    order = F.create_map(*(F.lit(x) for pair in FACT_ORDER.items() for x in pair))[F.col("kind")]
    rows = facts.withColumn("order", order).repartition(*PARTITION_KEY)
    return rows.sortWithinPartitions(
        *PARTITION_KEY, "ts", "order", F.col("epoch").asc_nulls_first(), F.col("zk_version").asc_nulls_last()
    ).select(*PARTITION_KEY, *FACT_COLUMNS)


def fold(end_ts: int) -> ArrowStep:
    """Windows, catch-ups, flaps and reassignments (`DERIVED_DDL`), told apart by `table`."""
    return fold_histories(end_ts, arrow_schema(DERIVED_DDL))
