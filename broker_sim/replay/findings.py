"""What is worth a look, worst first, in words: from aggregates of the tables, each bounded in size."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import reduce
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

#: Partitions that the report draws, the ones with the most trouble first.
PARTITIONS_SHOWN: Final = 60
#: Rows kept of every "worst" list.
WORST: Final = 12
#: A replica that needs longer than this to come back is worth a line.
SLOW_CATCH_UP_MS: Final = 10_000


class Severity(IntEnum):
    """How much a finding matters to someone on call."""

    CRITICAL = 0
    WARNING = 1
    INFO = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One sentence, and the table and the number of its rows that it rests on."""

    severity: Severity
    text: str
    table: str
    rows: int
    rank: int = 0

    def as_row(self) -> dict[str, Any]:
        """The row of the `findings` table."""
        severity = self.severity.name.lower()
        return {"rank": self.rank, "severity": severity, "text": self.text, "table": self.table, "rows": self.rows}


# -- aggregates, one Spark action -------------------------------------------------------------------------------------


def troubles_of(spark: SparkSession, out: Path) -> dict[str, Any]:
    """Aggregates of the tables in `out`, of bounded size: what findings, summary and report are made of."""
    table = {name: spark.read.parquet(str(out / name)) for name in _TABLES}
    asked = [_told(name, frame) for name, frame in _aggregates(table).items()]
    grouped: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in reduce(DataFrame.unionByName, asked).collect():
        grouped[row["what"]].append(json.loads(row["told"]))
    totals = grouped["totals"][0]
    return {
        **{name: grouped[name] for name in _aggregates(table)},
        "partitions": totals["partitions"],
        "brokers": sorted(row["leader"] for row in grouped["leaders"]),
        "comparison": {k: v for k, v in totals.items() if k != "partitions"},
        "windows": {row.pop("window"): row for row in grouped["windows"]},
        "changes": {f"{row['source']}.{row['event']}": row["count"] for row in grouped["changes"]},
    }


_TABLES: Final = ("trace", "isr_history", "comparison", "windows", "catch_up", "flaps", "reassignments")


def _told(name: str, frame: DataFrame) -> DataFrame:
    return frame.select(F.lit(name).alias("what"), F.to_json(F.struct(*frame.columns)).alias("told"))


def _aggregates(table: dict[str, DataFrame]) -> dict[str, DataFrame]:
    windows, catch_up, flaps = table["windows"], table["catch_up"], table["flaps"]
    joined = catch_up.filter(F.col("joined_ts").isNotNull())
    partition = F.concat_ws("-", "topic", "partition")
    return {
        "totals": _totals(table["comparison"]),
        "leaders": table["isr_history"].filter("event = 'leader'").select("leader").distinct(),
        "changes": table["isr_history"].groupBy("source", "event").count(),
        "controllers": table["trace"]
        .filter(F.col("ev").isin("elect", "assign"))
        .groupBy(F.col("broker").alias("controller"))
        .agg(F.min("ts").alias("from_ts"), F.max("ts").alias("to_ts"), F.count("*").alias("rows")),
        "windows": windows.groupBy("window").agg(
            F.count("*").alias("count"),
            F.sum("duration_ms").alias("total_ms"),
            F.max("duration_ms").alias("longest_ms"),
            F.count_if("is_open").alias("open"),
            F.size(F.collect_set(partition)).alias("partitions"),
            F.max_by(partition, "duration_ms").alias("worst"),
            F.coalesce(F.sum("deficit_ms"), F.lit(0)).alias("deficit_ms"),
            F.count_if(F.col("missing") > 0).alias("degraded"),
        ),
        "partitions_shown": _worst_partitions(table),
        "catch_up": joined.groupBy("left_by").agg(
            F.count("*").alias("count"),
            F.max("catch_up_ms").alias("max_ms"),
            F.percentile_approx("catch_up_ms", 0.5).alias("median_ms"),
        ),
        "slowest": joined.orderBy(F.desc("catch_up_ms"), "topic", "partition").limit(WORST),
        "outside": catch_up.filter(F.col("joined_ts").isNull()).groupBy("replica").count(),
        "flaps": flaps.groupBy("replica", "cause")
        .agg(
            F.count("*").alias("count"),
            F.size(F.collect_set(partition)).alias("partitions"),
            F.size(F.collect_set("leader")).alias("leaders"),
            F.max("out_of_isr_ms").alias("longest_ms"),
        )
        .orderBy(F.desc("count"))
        .limit(WORST),
        "reassignments": table["reassignments"].orderBy(F.desc_nulls_first("duration_ms")).limit(WORST),
        "differences": table["comparison"].filter("missing + spurious > 0").orderBy("topic", "partition").limit(WORST),
    }


def _totals(compared: DataFrame) -> DataFrame:
    counts = ("emitted", "replayed", "matched", "missing", "spurious", "refused", "hw_rows", "hw_matched")
    return compared.agg(
        F.count("*").alias("partitions"),
        *(F.coalesce(F.sum(c), F.lit(0)).alias(c) for c in counts),
        F.coalesce(F.max("time_error_ms_max"), F.lit(0)).alias("time_error_ms_max"),
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


# -- words ------------------------------------------------------------------------------------------------------------


def find(summary: dict[str, Any], troubles: dict[str, Any]) -> list[Finding]:
    """All findings, ranked: by severity, then in the order of the rules below."""
    rules = (_windows, _outside, _flaps, _slow, _reassignments, _quarantine, _compared)
    found = [finding for rule in rules for finding in rule(summary, troubles)]
    found.sort(key=lambda finding: finding.severity)
    return [
        Finding(severity=f.severity, text=f.text, table=f.table, rows=f.rows, rank=rank)
        for rank, f in enumerate(found, start=1)
    ]


_WINDOW_WORDS: Final = {
    "offline": (Severity.CRITICAL, "had no live leader: neither reads nor writes"),
    "under_min_isr": (Severity.CRITICAL, "had fewer in-sync replicas than min.insync.replicas: acks=all was refused"),
    "under_replicated": (Severity.WARNING, "had fewer in-sync replicas than assigned"),
    "original_missing": (Severity.WARNING, "missed an original replica while being reassigned, unseen by the gauge"),
}


def _windows(_: dict[str, Any], troubles: dict[str, Any]) -> Iterator[Finding]:
    for kind, (severity, words) in _WINDOW_WORDS.items():
        if (of_kind := troubles["windows"].get(kind)) is None:
            continue
        if kind == "offline" and of_kind["count"] == of_kind["open"]:
            text = f"The trace ends with {count(of_kind['partitions'], 'partition')} without a live leader."
            yield Finding(severity=Severity.INFO, text=text, table="windows", rows=of_kind["count"])
            continue
        still = f"; {of_kind['open']} still at the end" if of_kind["open"] else ""
        yield Finding(
            severity=severity,
            text=f"{count(of_kind['partitions'], 'partition')} {words}, {seconds(of_kind['total_ms'])} in all, longest "
            f"{seconds(of_kind['longest_ms'])} ({of_kind['worst']}){still}.",
            table="windows",
            rows=of_kind["count"],
        )
    if "under_replicated" not in troubles["windows"]:
        yield Finding(severity=Severity.INFO, text="No partition was under-replicated.", table="windows", rows=0)
    at_min = troubles["windows"].get("at_min_isr")
    if at_min is not None and at_min["degraded"]:
        text = f"{count(at_min['degraded'], 'time')} a degraded partition was one loss from refusing acks=all."
        yield Finding(severity=Severity.INFO, text=text, table="windows", rows=at_min["degraded"])


def _outside(_: dict[str, Any], troubles: dict[str, Any]) -> Iterator[Finding]:
    rows = sum(row["count"] for row in troubles["outside"])
    if rows:
        brokers = ", ".join(str(row["replica"]) for row in sorted(troubles["outside"], key=lambda r: r["replica"]))
        text = (
            f"{count(rows, 'replica')} (broker {brokers}) was still outside the ISR when the trace of its leader ended."
        )
        yield Finding(severity=Severity.WARNING, text=text, table="catch_up", rows=rows)


_CAUSES: Final = {
    "follower": "several leaders dropped it at once: look at its host",
    "leader": "its leader dropped several followers at once: look at the leader's disk and network",
    "follower_or_link": "several partitions of one leader at once: look at the link between the two",
    "partition": "one partition at a time: look for a hot partition",
}


def _flaps(_: dict[str, Any], troubles: dict[str, Any]) -> Iterator[Finding]:
    for row in troubles["flaps"]:
        yield Finding(
            severity=Severity.WARNING,
            text=f"Replica {row['replica']} left and rejoined the ISR {count(row['count'], 'time')} in "
            f"{count(row['partitions'], 'partition')}, {_CAUSES[row['cause']]}.",
            table="flaps",
            rows=row["count"],
        )


def _slow(_: dict[str, Any], troubles: dict[str, Any]) -> Iterator[Finding]:
    slow = [row for row in troubles["slowest"] if (row.get("catch_up_ms") or 0) > SLOW_CATCH_UP_MS]
    if slow:
        worst = slow[0]
        text = (
            f"Catching up took up to {seconds(worst['catch_up_ms'])}: replica {worst['replica']} of "
            f"{worst['topic']}-{worst['partition']}, from its first fetch until it was in the ISR."
        )
        yield Finding(severity=Severity.WARNING, text=text, table="catch_up", rows=len(slow))
    elif troubles["catch_up"]:
        total, longest = (
            sum(r["count"] for r in troubles["catch_up"]),
            max(r.get("max_ms") or 0 for r in troubles["catch_up"]),
        )
        text = f"{count(total, 'replica')} caught up, each within {seconds(longest)} of its first fetch."
        yield Finding(severity=Severity.INFO, text=text, table="catch_up", rows=total)


def _reassignments(_: dict[str, Any], troubles: dict[str, Any]) -> Iterator[Finding]:
    rows = troubles["reassignments"]
    unfinished = [row for row in rows if row.get("finish_ts") is None]
    if unfinished:
        names = ", ".join(f"{row['topic']}-{row['partition']}" for row in unfinished)
        text = f"{count(len(unfinished), 'reassignment')} did not finish: {names}."
        yield Finding(severity=Severity.WARNING, text=text, table="reassignments", rows=len(unfinished))
    done = [row for row in rows if row.get("finish_ts") is not None]
    if done:
        longest = done[0]
        text = (
            f"{count(len(done), 'reassignment')} finished; the longest took {seconds(longest['duration_ms'])} "
            f"({longest['topic']}-{longest['partition']})."
        )
        yield Finding(severity=Severity.INFO, text=text, table="reassignments", rows=len(done))


def _quarantine(summary: dict[str, Any], _: dict[str, Any]) -> Iterator[Finding]:
    reasons = {reason: n for reason, n in summary["quarantined"].items() if n}
    if reasons:
        words = ", ".join(f"{n} {reason.replace('_', ' ')}" for reason, n in reasons.items())
        rows = sum(reasons.values())
        text = f"{count(rows, 'line')} of the trace could not be used ({words})."
        yield Finding(severity=Severity.INFO, text=text, table="quarantine", rows=rows)


def _compared(summary: dict[str, Any], troubles: dict[str, Any]) -> Iterator[Finding]:
    compared = summary["comparison"]
    differ = compared["missing"] + compared["spurious"]
    if differ:
        names = ", ".join(f"{row['topic']}-{row['partition']}" for row in troubles["differences"])
        text = (
            f"The brokers and the rules disagree: {compared['missing']} emitted ISR changes do not follow, "
            f"{compared['spurious']} derived ones were not emitted ({names})."
        )
        yield Finding(severity=Severity.WARNING, text=text, table="comparison", rows=differ)
    elif compared["emitted"]:
        text = (
            f"All {compared['emitted']} ISR changes that brokers wrote follow from the rules, to within "
            f"{compared['time_error_ms_max']} ms, and no other does."
        )
        yield Finding(severity=Severity.INFO, text=text, table="comparison", rows=compared["emitted"])


def count(n: int, noun: str) -> str:
    """`1 partition`, `3 partitions`."""
    return f"{n} {noun}" + ("" if n == 1 else "s")


def seconds(ms: int | None) -> str:
    """A duration for readers: `85 ms`, `4.2 s`, `3 min 5 s`, `2 h 10 min`."""
    if ms is None:
        return "–"
    if ms < 1000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    if ms < 3_600_000:
        return f"{ms // 60_000} min {ms // 1000 % 60} s"
    return f"{ms // 3_600_000} h {ms // 60_000 % 60} min"
