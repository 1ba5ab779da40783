"""What the tables say, in aggregates of bounded size: the only thing that findings, summary and report are made of.

Everything here is asked of Spark in one action; what comes back does not grow with the trace. Words are in `findings`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from functools import reduce
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from broker_sim.replay import out_of_sync
from broker_sim.replay.chronicle import SAME_INCIDENT_MS
from broker_sim.replay.diagnosis_limits import BUCKETS, DEFAULT_LAG_MS, NEAR_REMOVAL, SLOW_CATCH_UP_MS
from broker_sim.replay.ingest.layout import Ingested
from controller.wire.trace import BROKER_STATE_KEY, OPERATOR_KEY, PAUSED_REPLICATION_KEY

#: Partitions that the report draws, the ones with the most trouble first.
PARTITIONS_SHOWN: Final = 60
#: Rows kept of every "worst" list.
WORST: Final = 12
#: Brokers in a list: all of a cluster that one would draw.
BROKERS_MAX: Final = 60
#: Rows of `what_if` about the whole: values and keys are limited when they are asked for.
WHAT_IF_MAX: Final = 256
#: Processes, sessions, terms and removals that the chronicle is made of.
EVENTS_MAX: Final = 2_000
#: Things that somebody did.
MARKS_MAX: Final = 200
_MINUTE_MS: Final = 60_000
_LAG_KEY: Final = "replica.lag.time.max.ms"

_TABLES: Final = (
    "isr_history", "comparison", "windows", "absences", "catch_up", "flaps", "reassignments", "measures",
)  # fmt: skip
#: Tables that are there where they were asked for, or where a metadata log was read.
_OPTIONAL: Final = ("what_if", "controllers")


def troubles_of(spark: SparkSession, out: Path, rows: Ingested, *, from_ts: int, to_ts: int) -> dict[str, Any]:
    """Aggregates of the tables in `out` and of ingested rows, whose times lie in [from_ts, to_ts]."""
    table = {name: spark.read.parquet(str(out / name)) for name in _TABLES}
    table |= {"trace": rows.state_rows, "processes": rows.processes}
    table |= {name: spark.read.parquet(str(out / name)) for name in _OPTIONAL if (out / name).exists()}
    aggregates = _aggregates(table, _Buckets(from_ts, to_ts))
    aggregates |= out_of_sync.sums(table, from_ts=from_ts, to_ts=to_ts)
    asked = [_section(name, frame) for name, frame in aggregates.items()]
    grouped: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in reduce(DataFrame.unionByName, asked).collect():
        grouped[row["what"]].append(json.loads(row["told"]))
    totals = grouped["totals"][0]
    return {
        **{name: grouped[name] for name in aggregates},
        "what_if": grouped["what_if"],
        "partitions": totals["partitions"],
        "brokers": sorted(row["leader"] for row in grouped["leaders"]),
        "comparison": {k: v for k, v in totals.items() if not k.endswith("partitions")},
        "windows": {row.pop("window"): row for row in grouped["windows"]},
        "changes": {f"{row['source']}.{row['event']}": row["count"] for row in grouped["changes"]},
    }


def _section(name: str, frame: DataFrame) -> DataFrame:
    return frame.select(F.lit(name).alias("what"), F.to_json(F.struct(*frame.columns)).alias("told"))


class _Buckets:
    """The span of the trace in `BUCKETS` pieces."""

    def __init__(self, from_ts: int, to_ts: int) -> None:
        self._from, self._width = from_ts, max(1, -(-(to_ts - from_ts + 1) // BUCKETS))

    def of(self, ts: Column) -> Column:
        """In which piece a time lies."""
        at = F.floor((ts - self._from) / self._width).cast("int")
        return F.greatest(F.lit(0), F.least(F.lit(BUCKETS - 1), at))

    def between(self, start: Column, end: Column) -> Column:
        """All pieces that [start, end) touches."""
        return F.explode(F.sequence(self.of(start), self.of(F.greatest(start, end - 1))))


def _aggregates(table: dict[str, DataFrame], buckets: _Buckets) -> dict[str, DataFrame]:
    history = table["isr_history"]
    found = {
        "totals": _totals(table["comparison"]),
        "leaders": history.filter("event = 'leader'").select("leader").distinct().limit(10 * BROKERS_MAX),
        "changes": history.groupBy("source", "event").count(),
        "controllers": _controllers(table["trace"]),
        "settings": _settings(table["trace"]),
        "windows": _windows(table["windows"]),
        "partitions_shown": _worst_partitions(table),
        **_of_catch_ups(table["catch_up"]),
        **_of_flaps(table["flaps"], buckets),
        **_of_reassignments(table["reassignments"], table["windows"]),
        "headroom": _headroom(table["measures"], _settings(table["trace"])),
        "ack_latency": _ack_latency(table["measures"]),
        "differences": table["comparison"].filter("missing + spurious > 0").orderBy("topic", "partition").limit(WORST),
        **_of_processes(table["trace"], table["processes"]),
        "conditions": _conditions(table["trace"]),
        "marks": _marks(table["trace"]),
        "deleted": _deleted(table["trace"]),
        "dropped": _dropped(table["catch_up"]),
        "troubled_over_time": _over_time(table["windows"], buckets),
        "elections_over_time": history.filter("event = 'leader'")
        .groupBy(buckets.of(F.col("ts")).alias("bucket"))
        .agg(F.count("*").alias("count"), F.max("leader_epoch").alias("leader_epoch")),
    }
    if "what_if" in table:
        found["what_if"] = table["what_if"].filter("scope = 'all'").limit(WHAT_IF_MAX)
        found["what_if_brokers"] = (
            table["what_if"].filter("scope = 'broker'").select("key", "broker", "smallest_rate").limit(WHAT_IF_MAX)
        )
    return found


def _totals(compared: DataFrame) -> DataFrame:
    counts = ("emitted", "replayed", "matched", "missing", "spurious", "refused", "hw_rows", "hw_matched")
    return compared.agg(
        F.count("*").alias("partitions"),
        *(F.coalesce(F.sum(c), F.lit(0)).alias(c) for c in counts),
        F.coalesce(F.max("time_error_ms_max"), F.lit(0)).alias("time_error_ms_max"),
        F.count_if(F.col("emitted") > 0).alias("changed_partitions"),
        F.count_if(F.col("missing") + F.col("spurious") > 0).alias("differing_partitions"),
    )


def _controllers(trace: DataFrame) -> DataFrame:
    decided = trace.filter(F.col("ev").isin("elect", "assign")).groupBy(F.col("broker").alias("controller"))
    terms = decided.agg(F.min("ts").alias("from_ts"), F.max("ts").alias("to_ts"), F.count("*").alias("rows"))
    return terms.orderBy("from_ts").limit(BROKERS_MAX)


def _of_processes(trace: DataFrame, processes: DataFrame) -> dict[str, DataFrame]:
    """Rows of `chronicle`: processes of brokers, signs of who is there, terms of controllers."""
    ended = (
        trace.filter("ev = 'down' AND role = 'broker'").select("broker", "run", F.lit(True).alias("ended")).distinct()
    )
    runs = processes.filter("role = 'broker' AND run > 0").join(F.broadcast(ended), on=["broker", "run"], how="left")
    by_controller = F.col("ev").isin("broker_up", "broker_down") & (
        (F.col("role") == "controller") | (F.col("run") == 0)
    )
    by_itself = F.col("ev").isin("start", "down") & (F.col("role") == "broker")
    signs = trace.filter(by_controller | by_itself).select(
        "ts", "ev", "key", F.when(by_controller, F.col("replica")).otherwise(F.col("broker")).alias("broker")
    )
    elected = trace.filter("ev = 'controller' AND value = 'elected'").select("broker", "ts", "epoch").alias("e")
    of_controllers = trace.filter("role = 'controller'").select("broker", "ts").alias("c")
    before = (F.col("c.ts") < F.col("e.ts")) & (F.col("c.broker") != F.col("e.broker"))
    terms = F.broadcast(elected).join(of_controllers, on=before, how="inner").groupBy("e.broker", "e.ts", "e.epoch")
    return {
        "processes": runs.select(
            "broker", "run", "first_ts", "last_ts", F.coalesce("ended", F.lit(False)).alias("ended")
        )
        .orderBy("first_ts")
        .limit(EVENTS_MAX),
        "signs": signs.distinct().orderBy("ts").limit(EVENTS_MAX),
        "terms": terms.agg(F.max("c.ts").alias("before_ts"), F.max_by("c.broker", "c.ts").alias("before"))
        .orderBy("ts")
        .limit(EVENTS_MAX),
    }


def _conditions(trace: DataFrame) -> DataFrame:
    """What brokers wrote of how they are."""
    rows = trace.filter((F.col("ev") == "config") & F.col("key").isin(BROKER_STATE_KEY, PAUSED_REPLICATION_KEY))
    return rows.select("ts", "broker", "run", "seq", "key", "value").orderBy("ts").limit(EVENTS_MAX)


def _marks(trace: DataFrame) -> DataFrame:
    """What somebody did to the cluster, in words."""
    rows = trace.filter((F.col("ev") == "config") & (F.col("key") == OPERATOR_KEY))
    return rows.select("ts", F.col("value").alias("words")).orderBy("ts").limit(MARKS_MAX)


def _deleted(trace: DataFrame) -> DataFrame:
    rows = trace.filter("ev = 'delete' OR (ev = 'stop' AND value = 'delete_topic')").groupBy("topic")
    ends = rows.agg(F.min("ts").alias("ts"), F.count_distinct("partition").alias("partitions"))
    return ends.orderBy("ts").limit(WORST)


def _dropped(catch_up: DataFrame) -> DataFrame:
    """Replicas that leaders dropped, by broker and piece of time."""
    piece = F.floor(F.col("left_ts") / SAME_INCIDENT_MS)
    dropped = catch_up.filter("left_by = 'leader' AND left_ts IS NOT NULL").groupBy("replica", piece)
    return (
        dropped.agg(
            F.min("left_ts").alias("from_ts"),
            F.when(F.count_if(F.col("joined_ts").isNull()) == 0, F.max("joined_ts")).alias("to_ts"),
            F.count_distinct("topic", "partition").alias("partitions"),
        )
        .select("replica", "from_ts", "to_ts", "partitions")
        .orderBy("from_ts")
        .limit(EVENTS_MAX)
    )


def _settings(trace: DataFrame) -> DataFrame:
    """The values of the lag that were in force somewhere: the least and the greatest."""
    rows = trace.filter((F.col("ev") == "config") & (F.col("key") == _LAG_KEY) & F.col("value").rlike("^[0-9]{1,18}$"))
    value = F.col("value").cast("bigint")
    return rows.agg(F.min(value).alias("lag_min_ms"), F.max(value).alias("lag_max_ms"))


def _partition() -> Column:
    return F.concat_ws("-", "topic", "partition")


def _windows(windows: DataFrame) -> DataFrame:
    return windows.groupBy("window").agg(
        F.count("*").alias("count"),
        F.sum("duration_ms").alias("total_ms"),
        F.max("duration_ms").alias("longest_ms"),
        F.count_if("is_open").alias("open"),
        F.coalesce(F.sum(F.when(~F.col("is_open"), F.col("duration_ms"))), F.lit(0)).alias("closed_ms"),
        F.coalesce(F.max(F.when(~F.col("is_open"), F.col("duration_ms"))), F.lit(0)).alias("closed_longest_ms"),
        F.count_distinct(F.when(~F.col("is_open"), _partition())).alias("closed_partitions"),
        F.max_by(_partition(), F.when(~F.col("is_open"), F.col("duration_ms"))).alias("closed_worst"),
        F.count_distinct("topic", "partition").alias("partitions"),
        F.max_by(_partition(), "duration_ms").alias("worst"),
        F.coalesce(F.sum("deficit_ms"), F.lit(0)).alias("deficit_ms"),
        F.count_if(F.col("missing") > 0).alias("degraded"),
    )


def _worst_partitions(table: dict[str, DataFrame]) -> DataFrame:
    """The partitions to draw: by time offline, below min ISR, under-replicated; then by name."""
    weight = {"offline": 100, "under_min_isr": 10, "under_replicated": 1}
    worth = F.create_map(*(F.lit(x) for pair in weight.items() for x in pair))
    badness = (
        table["windows"]
        .filter(F.col("window").isin(*weight))
        .groupBy("topic", "partition")
        .agg(F.sum(F.col("duration_ms") * worth[F.col("window")]).alias("badness"))
    )
    all_of = table["isr_history"].select("topic", "partition").distinct()
    shown = all_of.join(badness, on=["topic", "partition"], how="left")
    return shown.orderBy(F.desc_nulls_last("badness"), "topic", "partition").limit(PARTITIONS_SHOWN)


def _of_catch_ups(catch_up: DataFrame) -> dict[str, DataFrame]:
    joined = catch_up.filter(F.col("joined_ts").isNotNull())

    def quantile(share: float) -> Column:
        return F.percentile_approx("catch_up_ms", share)

    times = (F.max("catch_up_ms").alias("max_ms"), quantile(0.5).alias("median_ms"), quantile(0.95).alias("p95_ms"))
    return {
        "catch_up": joined.groupBy("left_by").agg(
            F.count("*").alias("count"),
            F.count("catch_up_ms").alias("timed"),
            F.max(F.when(F.col("catch_up_ms").isNull(), F.col("out_of_isr_ms"))).alias("out_max_ms"),
            F.count_if(F.col("catch_up_ms") > SLOW_CATCH_UP_MS).alias("slow"),
            *times,
        ),
        "rejoins": joined.groupBy("replica")
        .agg(F.count("*").alias("count"), *times, F.max("out_of_isr_ms").alias("out_max_ms"))
        .orderBy(F.desc_nulls_last("max_ms"))
        .limit(BROKERS_MAX),
        "slowest": joined.orderBy(F.desc_nulls_last("catch_up_ms"), "topic", "partition").limit(WORST),
        "longest_out": joined.orderBy(F.desc_nulls_last("out_of_isr_ms"), "topic", "partition").limit(2 * WORST),
        "outside": catch_up.filter(F.col("joined_ts").isNull()).groupBy("replica").count().limit(BROKERS_MAX),
    }


def _of_flaps(flaps: DataFrame, buckets: _Buckets) -> dict[str, DataFrame]:
    """Who flaps, when, and what it looks like (§9): by replica and cause, by partition, over time."""
    per_replica = (
        F.count("*").alias("count"),
        F.count_distinct("topic", "partition").alias("partitions"),
        F.count_distinct("leader").alias("leaders"),
        F.max("out_of_isr_ms").alias("longest_ms"),
        F.min("shrink_ts").alias("from_ts"),
        F.max("expand_ts").alias("to_ts"),
    )
    busiest = flaps.groupBy("replica").count().orderBy(F.desc("count"), "replica").limit(BROKERS_MAX).select("replica")
    return {
        "flaps": flaps.groupBy("replica", "cause").agg(*per_replica).orderBy(F.desc("count"), "replica").limit(WORST),
        "flapping_leaders": flaps.filter("cause = 'leader'")
        .groupBy("leader")
        .agg(*per_replica)
        .orderBy(F.desc("count"), "leader")
        .limit(WORST),
        "flapping_partitions": flaps.groupBy("topic", "partition")
        .agg(*per_replica)
        .filter("count > 1")
        .orderBy(F.desc("count"), "topic", "partition")
        .limit(WORST),
        "flap_map": flaps.join(F.broadcast(busiest), on="replica", how="left_semi")
        .groupBy("replica", buckets.of(F.col("shrink_ts")).alias("bucket"))
        .agg(F.count("*").alias("count")),
    }


def _of_reassignments(moves: DataFrame, windows: DataFrame) -> dict[str, DataFrame]:
    """The moves themselves, and what befell the partitions that were not moved while one ran."""
    ends = F.coalesce("finish_ts", "start_ts")
    minutes = moves.select(
        F.explode(F.sequence(F.floor(F.col("start_ts") / _MINUTE_MS), F.floor(ends / _MINUTE_MS))).alias("minute")
    ).distinct()
    moved = moves.select("topic", "partition").distinct()
    began = windows.filter("window = 'under_replicated'").withColumn("minute", F.floor(F.col("from_ts") / _MINUTE_MS))
    others = began.join(moved, on=["topic", "partition"], how="left_anti")
    flagged = minutes.withColumn("moving", F.lit(True))
    disturbed = others.join(F.broadcast(flagged), on="minute", how="left").agg(
        F.count_if("moving").alias("during"), F.count_if(F.col("moving").isNull()).alias("otherwise")
    )
    return {
        "reassignments": moves.orderBy(F.desc_nulls_first("duration_ms"), "topic", "partition").limit(2 * WORST),
        "reassigned": moves.agg(
            F.count("*").alias("count"),
            F.count_if(F.col("finish_ts").isNull()).alias("unfinished"),
            F.coalesce(F.sum("original_shrinks"), F.lit(0)).alias("original_shrinks"),
            F.count_if(F.col("original_shrinks") > 0).alias("hurt"),
            F.coalesce(F.sum("copied_bytes"), F.lit(0)).alias("copied_bytes"),
            F.max("duration_ms").alias("longest_ms"),
            F.coalesce(F.sum("state_writes"), F.lit(0)).alias("state_writes"),
            F.coalesce(F.sum("isr_writes"), F.lit(0)).alias("isr_writes"),
        ),
        "disturbed": disturbed.crossJoin(F.broadcast(minutes.agg(F.count("*").alias("moving_minutes")))),
    }


def _headroom(measures: DataFrame, settings: DataFrame) -> DataFrame:
    """How close members came to removal: the least of each replica, nearest first; and how many came near."""
    limit = F.coalesce("lag_max_ms", F.lit(DEFAULT_LAG_MS)) * F.lit(NEAR_REMOVAL)
    near = measures.filter("measure = 'lag_headroom_ms'").crossJoin(F.broadcast(settings)).groupBy("replica")
    lowest = near.agg(
        F.min("value").alias("least_ms"),
        F.min_by(_partition(), "value").alias("worst"),
        F.count_if(F.col("value") < F.round(limit)).alias("near"),
    )
    return lowest.orderBy("least_ms").limit(BROKERS_MAX)


def _ack_latency(measures: DataFrame) -> DataFrame:
    """What acks=all took at least: the worst partition."""
    worst = measures.filter("measure = 'ack_latency_ms'")
    return worst.agg(
        F.count("*").alias("rows"),
        F.max("p95").alias("p95_max_ms"),
        F.max("worst").alias("worst_ms"),
        F.max_by(_partition(), "worst").alias("worst"),
    )


def _over_time(windows: DataFrame, buckets: _Buckets) -> DataFrame:
    """How many partitions were in trouble within each piece of the trace's time."""
    bad = windows.filter(F.col("window").isin("under_replicated", "under_min_isr", "offline", "reassigning"))
    pieces = bad.select(
        "window", "topic", "partition", buckets.between(F.col("from_ts"), F.col("to_ts")).alias("bucket")
    )
    return pieces.distinct().groupBy("window", "bucket").agg(F.count("*").alias("partitions"))
