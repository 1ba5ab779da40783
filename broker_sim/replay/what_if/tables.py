"""The `what_if` table: its columns, and the steps from trace and lanes to its rows. Frames to frames (§9.1-9.3)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from broker_sim.replay.distinct import first_of
from broker_sim.replay.schema import LANE_KEY, PARTITION_KEY
from broker_sim.replay.what_if.asked import LAG, Change, lane_changes, rate_changes
from broker_sim.replay.what_if.copies import COPY_DDL, EtaRow, eta_step
from broker_sim.replay.what_if.sweep import SWEPT_DDL, sweep_lanes

#: column -> type. `value` null: as recorded. `scope` tells what the row is about: `all`, one `partition`, one `copy`
#: (a replica that catches up), one `broker`.
WHAT_IF: Final[dict[str, str]] = {
    "key": "string",
    "value": "bigint",
    "scope": "string",
    "topic": "string",
    "partition": "int",
    "replica": "int",
    "broker": "int",
    "partitions": "bigint",
    "shrinks": "bigint",
    "expected_shrinks": "double",
    "expands": "bigint",
    "flaps": "bigint",
    "under_replicated": "bigint",
    "under_replicated_ms": "bigint",
    "under_min_isr": "bigint",
    "under_min_isr_ms": "bigint",
    "detection_mean_ms": "double",
    "detection_max_ms": "bigint",
    "hw_stalls": "bigint",
    "hw_stalled_ms": "bigint",
    "hw_stall_max_ms": "bigint",
    "lag_headroom_min_ms": "bigint",
    "episodes": "bigint",
    "episodes_throttled": "bigint",
    "start_ts": "bigint",
    "eta_ms": "bigint",
    "never": "bigint",
    "smallest_rate": "bigint",
    "backlog_bytes": "bigint",
    "ingress_bytes_per_second": "double",
    "limits": "array<string>",
}
WHAT_IF_DDL: Final = ", ".join(f"`{name}` {kind}" for name, kind in WHAT_IF.items())

_SUMS: Final = (
    "shrinks", "expected_shrinks", "expands", "flaps", "under_replicated", "under_replicated_ms",
    "under_min_isr", "under_min_isr_ms",
    "hw_stalls", "hw_stalled_ms", "leader_rows_differ", "detections", "detection_ms", "never",
)  # fmt: skip
_WORST: Final = ("detection_max_ms", "hw_stall_max_ms", "smallest_rate")
#: A partition has a row of its own where any of these is not 0.
_WORTH_A_ROW: Final = (
    "shrinks",
    "under_replicated_ms",
    "under_min_isr_ms",
    "hw_stalled_ms",
    "expected_shrinks",
    "smallest_rate",
    "never",
)
_MINUTE_MS: Final = 60_000
_FETCH_BYTES_KEY: Final = "replica.fetch.max.bytes"
_RESPONSE_BYTES_KEY: Final = "replica.fetch.response.max.bytes"
_RATE_KEYS: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
#: What lies between two fetches is a round trip, and often a wait: the quick ones tell the round trip.
_ROUND_TRIP_SHARE: Final = 0.1
#: A copy that took at least so long without a throttle shows what the follower can take in.
_TELLING_COPY_MS: Final = 10_000


def swept(lane_rows: DataFrame, *, profile: str, changes: Sequence[Change], end_ts: int) -> DataFrame:
    """Every lane under every change, in one pass over sorted rows: figures and episodes (`sweep.SWEPT_DDL`)."""
    schema = to_arrow_schema(StructType.fromDDL(SWEPT_DDL))
    ordered = lane_rows.repartition(*LANE_KEY).sortWithinPartitions(*LANE_KEY, "run", "seq")
    step = sweep_lanes(profile, lane_changes(changes), schema, end_ts=end_ts)
    return ordered.mapInArrow(step, schema=SWEPT_DDL)


def of_lanes(rows: DataFrame, trace: DataFrame) -> DataFrame:
    """Rows of scope `all` and `partition` from what `swept` gave."""
    figures, episodes = rows.filter("replica IS NULL"), rows.filter("replica IS NOT NULL")
    throttled = _with_throttled(episodes, trace).groupBy("key", "value", *PARTITION_KEY)
    counted = throttled.agg(F.count("*").alias("episodes"), F.count_if("is_throttled").alias("episodes_throttled"))
    sums = [F.sum(name).alias(name) for name in _SUMS]
    worst = [F.max(name).alias(name) for name in _WORST]
    flags = [F.max(name).alias(name) for name in ("phase_unknown", "rules_off", "bytes_unknown")]
    least = F.min("lag_headroom_min_ms").alias("lag_headroom_min_ms")
    of_partition = figures.groupBy("key", "value", *PARTITION_KEY).agg(*sums, *worst, *flags, least)
    same = [F.col("p.key") == F.col("e.key"), F.col("p.value").eqNullSafe(F.col("e.value"))]
    same += [F.col(f"p.{name}") == F.col(f"e.{name}") for name in PARTITION_KEY]
    joined = of_partition.alias("p").join(counted.alias("e"), on=reduce(Column.__and__, same), how="left")
    each = joined.select("p.*", *(F.coalesce(f"e.{n}", F.lit(0)).alias(n) for n in ("episodes", "episodes_throttled")))
    counts = [F.sum(n).alias(n) for n in ("episodes", "episodes_throttled")]
    everything = each.groupBy("key", "value").agg(
        *sums, *worst, *flags, least, *counts, F.count("*").alias("partitions")
    )
    one = F.lit(1).cast("bigint")
    parts = (
        everything.withColumn("scope", F.lit("all")).transform(_with_limits, by=("key",)),
        each.withColumns({"scope": F.lit("partition"), "partitions": one})
        .transform(_with_limits, by=("key", *PARTITION_KEY))
        .filter(reduce(Column.__or__, (F.coalesce(F.col(name), F.lit(0)) > 0 for name in _WORTH_A_ROW))),
    )
    return reduce(DataFrame.unionByName, (part.transform(as_what_if) for part in parts))


def _with_limits(figures: DataFrame, *, by: tuple[str, ...]) -> DataFrame:
    """What makes the answer less certain, by name: docs/replay-what-if.md explains each."""
    recorded = Window.partitionBy(*by).rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)

    def as_recorded(name: str) -> Column:
        return F.max(F.when(F.col("value").isNull(), F.col(name))).over(recorded)

    is_change = F.col("value").isNotNull()
    limits = {
        "throttle_active": F.col("episodes_throttled") > 0,
        "elections_as_recorded": is_change & (F.col("leader_rows_differ") > as_recorded("leader_rows_differ")),
        "appends_as_recorded": is_change & (F.col("hw_stalled_ms") != as_recorded("hw_stalled_ms")),
        "tick_phase_unknown": is_change & (F.col("key") == LAG) & F.col("phase_unknown"),
        "bytes_unknown": F.col("bytes_unknown"),
        "no_fetches": is_change & (F.col("key") == LAG) & F.col("rules_off"),
    }
    named = F.array(*(F.when(holds, F.lit(name)) for name, holds in limits.items()))
    mean = F.when(F.col("detections") > 0, F.col("detection_ms") / F.col("detections"))
    return figures.withColumns({"limits": F.array_compact(named), "detection_mean_ms": mean})


def as_what_if(rows: DataFrame) -> DataFrame:
    """The columns of the table; what a row does not tell is null."""
    have = set(rows.columns)
    return rows.select(
        *((F.col(name) if name in have else F.lit(None)).cast(kind).alias(name) for name, kind in WHAT_IF.items())
    )


def _with_throttled(episodes: DataFrame, trace: DataFrame) -> DataFrame:
    """Whether an answer to the replica was emptied by the quota within the minutes of its absence."""
    minute = F.floor(F.col("ts") / _MINUTE_MS).alias("minute")
    minutes = trace.filter("ev = 'fetch' AND throttled").select(*PARTITION_KEY, "replica", minute).distinct().alias("m")
    asked = episodes.select("key", "value", *PARTITION_KEY, "replica", "from_ts", "to_ts").alias("e")
    same = [F.col(f"m.{n}") == F.col(f"e.{n}") for n in (*PARTITION_KEY, "replica")]
    same.append(F.col("m.minute") >= F.floor(F.col("e.from_ts") / _MINUTE_MS))
    same.append(F.col("e.to_ts").isNull() | (F.col("m.minute") <= F.floor(F.col("e.to_ts") / _MINUTE_MS)))
    is_hit = F.exists(F.collect_list("m.minute"), lambda m: m.isNotNull())
    joined = asked.join(minutes, on=reduce(Column.__and__, same), how="left")
    columns = [F.col(f"e.{n}").alias(n) for n in ("key", "value", *PARTITION_KEY, "replica", "from_ts", "to_ts")]
    return joined.groupBy(*columns).agg(is_hit.alias("is_throttled"))


# -- throttles -------------------------------------------------------------------------------------------------------


def copies(trace: DataFrame, catch_up: DataFrame) -> DataFrame:
    """Replicas that copied: those that were added, and others whose fetches a throttle held up (`copies.COPY_DDL`)."""
    began = catch_up.filter(F.col("first_fetch_ts").isNotNull()).withColumnRenamed("leader_epoch", "epoch")
    in_sync = (F.size("isr") - 1).alias("in_sync_followers")
    led = trace.filter("ev = 'leader'").select(*PARTITION_KEY, "epoch", "ts", in_sync)
    first_led = first_of(led, [*PARTITION_KEY, "epoch"], order=["ts"]).drop("ts")
    with_isr = began.join(first_led, on=[*PARTITION_KEY, "epoch"], how="left")
    observed = with_isr.join(_observed(trace, began), on=[*PARTITION_KEY, "replica", "first_fetch_ts"], how="left")
    moves = observed.filter((F.col("left_by") == "added") | F.col("is_throttled"))
    settings = _settings(trace)
    named = {
        "start_ts": F.col("first_fetch_ts"),
        "recorded_ms": F.col("catch_up_ms"),
        "follower": F.col("replica"),
        "copied_bytes": F.col("fetched_bytes"),
        "is_throttled": F.coalesce("is_throttled", F.lit(False)),
    }
    named_moves = moves.withColumns(named)
    for column, role in {"leader_settings": "leader", "follower_settings": "replica"}.items():
        own = settings.select(F.col("broker").alias("b"), F.col("settings").alias(column))
        named_moves = named_moves.join(F.broadcast(own), on=F.col("b") == F.col(role), how="left").drop("b")
    setting = {
        "leader_rate": F.col("leader_settings")[_RATE_KEYS[0]],
        "follower_rate": F.col("follower_settings")[_RATE_KEYS[1]],
        "fetch_bytes": F.col("follower_settings")[_FETCH_BYTES_KEY],
        "response_bytes": F.col("follower_settings")[_RESPONSE_BYTES_KEY],
    }
    took = F.col("catch_up_ms") / 1000
    capacity = F.when((F.col("catch_up_ms") >= _TELLING_COPY_MS) & ~F.col("is_throttled"), F.col("copied_bytes") / took)
    full = named_moves.withColumns({**{n: v.cast("bigint") for n, v in setting.items()}, "capacity": capacity})
    schema = StructType.fromDDL(COPY_DDL)
    return full.select(*(F.col(f.name).cast(f.dataType).alias(f.name) for f in schema.fields))


def _observed(trace: DataFrame, began: DataFrame) -> DataFrame:
    """Of each copy: what it fetched, how soon one fetch can follow another, whether a throttle held it up."""
    which = began.select(*PARTITION_KEY, "replica", "first_fetch_ts", "joined_ts")
    fetches = trace.filter("ev = 'fetch'").select(*PARTITION_KEY, "replica", "ts", "bytes", "throttled")
    during = fetches.join(F.broadcast(which), on=[*PARTITION_KEY, "replica"], how="inner").filter(
        (F.col("ts") >= F.col("first_fetch_ts")) & (F.col("joined_ts").isNull() | (F.col("ts") <= F.col("joined_ts")))
    )
    one = Window.partitionBy(*PARTITION_KEY, "replica", "first_fetch_ts").orderBy("ts")
    since = F.when(~F.coalesce("throttled", F.lit(False)), F.col("ts") - F.lag("ts").over(one))
    return (
        during.withColumn("since_ms", since)
        .groupBy(*PARTITION_KEY, "replica", "first_fetch_ts")
        .agg(
            F.sum("bytes").alias("fetched_bytes"),
            F.percentile_approx("since_ms", _ROUND_TRIP_SHARE).alias("round_trip_ms"),
            F.coalesce(F.max("throttled"), F.lit(False)).alias("is_throttled"),
        )
    )


def _settings(trace: DataFrame) -> DataFrame:
    """Per broker the last value of each setting that bounds a copy: its own, or one that all brokers share."""
    keys = (*_RATE_KEYS, _FETCH_BYTES_KEY, _RESPONSE_BYTES_KEY)
    rows = trace.filter((F.col("ev") == "config") & F.col("key").isin(*keys) & F.col("topic").isNull())
    broker = F.coalesce("replica", "broker").alias("of")
    last = rows.filter(F.col("value").rlike("^[0-9]+$")).groupBy(broker, "key").agg(F.max_by("value", "ts").alias("v"))
    return last.groupBy(F.col("of").alias("broker")).agg(
        F.map_from_entries(F.collect_list(F.struct("key", "v"))).alias("settings")
    )


def of_rates(copy_rows: DataFrame, changes: Sequence[Change]) -> DataFrame:
    """Rows of scope `all`, `copy` and `broker`. Copies share brokers, so all go to one task; they are few."""
    schema = to_arrow_schema(StructType.fromDDL(WHAT_IF_DDL))
    step = eta_step(rate_changes(changes), schema)
    assert set(EtaRow._fields) <= set(WHAT_IF)
    return copy_rows.coalesce(1).mapInArrow(step, schema=WHAT_IF_DDL)


def what_if(
    trace: DataFrame,
    lane_rows: DataFrame,
    catch_up: DataFrame,
    *,
    profile: str,
    changes: Sequence[Change],
    end_ts: int,
) -> DataFrame:
    """The whole table, for the changes that were asked for (at least one)."""
    parts = []
    if lane_changes(changes):
        rows = swept(lane_rows, profile=profile, changes=changes, end_ts=end_ts).persist()
        parts.append(of_lanes(rows, trace))
    if rate_changes(changes):
        parts.append(of_rates(copies(trace, catch_up), changes))
    order = [F.col(n).asc_nulls_first() for n in ("key", "scope", "value", "topic", "partition", "broker", "replica")]
    return reduce(DataFrame.unionByName, parts).coalesce(1).sortWithinPartitions(*order)
