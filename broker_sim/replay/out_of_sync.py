"""Who was missing from ISRs, when, and what that cost: sums of bounded size for the report. Asked of Spark.

Time is cut into `piece_of` pieces. Of each piece is told what began and what ended in it, which is enough to count
afterwards (`report/out_of_sync.py`) how much was missing at any time: an absence of days costs two rows, not thousands.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from broker_sim.replay.diagnosis_limits import piece_of

#: Brokers that are drawn: the ones that were missing most.
BROKERS_MAX: Final = 60
#: Rows of the tables of topics and of partitions under min ISR.
WORST: Final = 12
CONTROLLERS_MAX: Final = 500
RACK_KEY: Final = "broker.rack"
#: Windows that make a minute a bad one.
BAD_WINDOWS: Final = ("under_replicated", "under_min_isr", "offline")


def sums(table: dict[str, DataFrame], *, from_ts: int, to_ts: int) -> dict[str, DataFrame]:
    """Sums of the tables `absences`, `windows`, `trace` (rows that are not bulk) and, if it is there, `controllers`."""
    absences, windows = table["absences"], table["windows"].filter(F.col("window").isin(*BAD_WINDOWS))
    behind = _behind(absences)
    pieces = _Pieces(from_ts, piece_of(to_ts - from_ts))
    return {
        "behind": behind,
        "behind_in_all": absences.agg(
            F.coalesce(F.sum("duration_ms"), F.lit(0)).alias("total_ms"),
            F.count_distinct("topic", "partition").alias("partitions"),
        ),
        "hosted": _hosted(table["trace"]),
        "racks": _racks(table["trace"]),
        "absent_over_time": pieces.of(absences.join(F.broadcast(behind.select("replica")), on="replica"), "replica"),
        "bad_over_time": pieces.of(windows, "window"),
        "behind_by_topic": _by_topic(windows),
        "under_min_isr": _under_min_isr(windows, absences),
        "offices": _offices(table),
    }


class _Pieces:
    """What begins and ends in each piece of time: how many, and how much of the piece was left then."""

    def __init__(self, from_ts: int, piece_ms: int) -> None:
        self._from, self._ms = from_ts, piece_ms

    def of(self, spans: DataFrame, by: str) -> DataFrame:
        """Per `by` and piece: `change`, how many more are open after it, and `ms`, how much of the piece that is."""
        begins = spans.select(by, F.col("from_ts").alias("ts"), F.lit(1).alias("sign"))
        ends = spans.select(by, F.col("to_ts").alias("ts"), F.lit(-1).alias("sign"))
        piece = F.floor((F.col("ts") - self._from) / self._ms)
        left = self._from + (piece + 1) * self._ms - F.col("ts")
        placed = begins.unionByName(ends).select(by, piece.alias("piece"), "sign", left.alias("left"))
        return placed.groupBy(by, "piece").agg(
            F.sum("sign").alias("change"), F.sum(F.col("sign") * F.col("left")).alias("ms")
        )


def _behind(absences: DataFrame) -> DataFrame:
    return (
        absences.groupBy("replica")
        .agg(
            F.sum("duration_ms").alias("total_ms"),
            F.count("*").alias("count"),
            F.count_distinct("topic", "partition").alias("partitions"),
            F.max("duration_ms").alias("longest_ms"),
            F.max_by(F.concat_ws("-", "topic", "partition"), "duration_ms").alias("worst"),
            F.count_if("is_open").alias("open"),
        )
        .orderBy(F.desc("total_ms"), "replica")
        .limit(BROKERS_MAX)
    )


def _hosted(trace: DataFrame) -> DataFrame:
    """How many partitions ever had a replica on each broker."""
    rows = trace.filter(F.col("ev").isin("assign", "leader") & F.col("replicas").isNotNull())
    replicas = rows.select("topic", "partition", F.explode("replicas").alias("replica")).distinct()
    return replicas.groupBy("replica").agg(F.count("*").alias("partitions")).limit(10 * BROKERS_MAX)


def _racks(trace: DataFrame) -> DataFrame:
    rows = trace.filter((F.col("ev") == "config") & (F.col("key") == RACK_KEY) & F.col("value").isNotNull())
    return (
        rows.groupBy(F.coalesce("replica", "broker").alias("replica"))
        .agg(F.max_by("value", "seq").alias("rack"))
        .limit(10 * BROKERS_MAX)
    )


def _by_topic(windows: DataFrame) -> DataFrame:
    def total(kind: str) -> Column:
        return F.coalesce(F.sum(F.when(F.col("window") == kind, F.col("duration_ms"))), F.lit(0)).alias(f"{kind}_ms")

    sums_of = windows.groupBy("topic").agg(
        *(total(kind) for kind in BAD_WINDOWS), F.count_distinct("partition").alias("partitions")
    )
    worst = (F.desc("offline_ms"), F.desc("under_min_isr_ms"), F.desc("under_replicated_ms"), "topic")
    return sums_of.orderBy(*worst).limit(WORST)


def _under_min_isr(windows: DataFrame, absences: DataFrame) -> DataFrame:
    """The partitions that were under min ISR for longest, and who was missing then."""
    of_kind = windows.filter("window = 'under_min_isr'")
    worst = (
        of_kind.groupBy("topic", "partition")
        .agg(
            F.sum("duration_ms").alias("total_ms"),
            F.count("*").alias("count"),
            F.min("from_ts").alias("first_ts"),
            F.max("to_ts").alias("last_ts"),
            F.max("duration_ms").alias("longest_ms"),
            F.count_if("is_open").alias("open"),
        )
        .orderBy(F.desc("total_ms"), "topic", "partition")
        .limit(WORST)
    )
    then = of_kind.select("topic", "partition", F.col("from_ts").alias("start"), F.col("to_ts").alias("end"))
    spans = then.join(F.broadcast(worst.select("topic", "partition")), on=["topic", "partition"])
    overlap = (F.col("from_ts") < F.col("end")) & (F.col("to_ts") > F.col("start"))
    missing = (
        absences.join(F.broadcast(spans), on=["topic", "partition"])
        .filter(overlap)
        .groupBy("topic", "partition")
        .agg(F.sort_array(F.collect_set("replica")).alias("missing"))
    )
    return worst.join(missing, on=["topic", "partition"], how="left")


def _offices(table: dict[str, DataFrame]) -> DataFrame:
    """Each controller that took office, and when; the latest, where there are very many."""
    if "controllers" in table:
        rows = table["controllers"].select("controller", F.col("controller_epoch").alias("epoch"), "ts")
    else:
        elected = table["trace"].filter("ev = 'controller' AND value = 'elected'")
        rows = elected.select(F.col("broker").alias("controller"), "epoch", "ts").distinct()
    return rows.orderBy(F.desc("ts")).limit(CONTROLLERS_MAX)
