"""The steps between the clean trace and the tables, each `DataFrame -> DataFrame`. Nothing here collects or writes."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from broker_sim.replay.facts import FACT_ORDER
from broker_sim.replay.grouped import fold_histories, replay_lanes
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


def replayed(lane_rows: DataFrame, *, profile: str) -> DataFrame:
    """The rules over every lane: outcomes, unordered."""
    schema = to_arrow_schema(StructType.fromDDL(OUTCOME_DDL))
    sorted_lanes = lane_rows.repartition(*LANE_KEY).sortWithinPartitions(*LANE_KEY, "run", "seq")
    return sorted_lanes.mapInArrow(replay_lanes(profile, schema), schema=OUTCOME_DDL)


# -- facts -> history -------------------------------------------------------------------------------------------------


def folded(facts: DataFrame, *, end_ts: int) -> DataFrame:
    """Windows, catch-ups, flaps and reassignments, told apart by `table`. `facts`: from `sql.facts`."""
    order = F.create_map(*(F.lit(x) for pair in FACT_ORDER.items() for x in pair))[F.col("kind")]
    rows = facts.withColumn("order", order).repartition(*PARTITION_KEY)
    ordered = rows.sortWithinPartitions(
        *PARTITION_KEY, "ts", "order", F.col("epoch").asc_nulls_first(), F.col("zk_version").asc_nulls_last()
    ).select(*PARTITION_KEY, *FACT_COLUMNS)
    schema = to_arrow_schema(StructType.fromDDL(DERIVED_DDL))
    return ordered.mapInArrow(fold_histories(end_ts, schema), schema=DERIVED_DDL)
