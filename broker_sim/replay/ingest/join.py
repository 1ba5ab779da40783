"""Rows of log files and rows of the metadata log to rows of one history, on Spark; `one_history` is what runs in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from broker_sim.replay.grouped import ArrowBatches, ArrowStep, arrow_schema
from broker_sim.replay.ingest.one_history import COMPARED, CONTRADICTIONS, Judged, Note, OneHistory
from broker_sim.replay.logs.waiting_rows import EMITTED
from broker_sim.replay.metadata_log.ingest import FromMetadata
from broker_sim.replay.metadata_log.rows import ROW_DDL, with_added
from broker_sim.replay.schema import NOTICE_COLUMNS
from broker_sim.replay.tables import exactly

_GROUP: Final = ("topic", "partition")
_WOVEN: Final = "woven"
_JOINED: Final = "joined"
_NOTE: Final = "note"
_JOINED_DDL: Final = f"{ROW_DDL}, {_NOTE} string"
#: Of what is compared so much must agree, else the log files are not of this cluster.
_SAME_CLUSTER_MIN: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """Rows of both, notices (`NOTICE_COLUMNS`), and what goes into `summary.json` as `joined`."""

    rows: DataFrame
    notices: DataFrame
    summary: dict[str, Any]


def joined(of_logs: DataFrame, metadata: FromMetadata, stage: Path) -> Joined:
    """One history of both. Intermediate results go below `stage`."""
    spark = of_logs.sparkSession
    of_logs.write.parquet(str(stage / _WOVEN))
    woven = spark.read.parquet(exactly(stage / _WOVEN))
    # A setting of a topic is told by the metadata log, with the time from which on it holds.
    of_topic = (F.col("ev") == "config") & F.col("topic").isNotNull()
    is_compared = F.col("ev").isin(*COMPARED)
    _one_history(woven.filter(is_compared), metadata).write.parquet(str(stage / _JOINED))
    both = spark.read.parquet(exactly(stage / _JOINED))
    rows = both.filter(F.col(_NOTE).isNull()).drop(_NOTE)
    others = woven.filter(~is_compared & ~of_topic).select(*rows.columns)
    notes = both.filter(F.col(_NOTE).isNotNull())
    return Joined(rows=with_added(rows.unionByName(others)), notices=_notices(notes), summary=_summary(both))


def _one_history(woven: DataFrame, metadata: FromMetadata) -> DataFrame:
    judged = woven.select(*EMITTED, F.lit(True).alias("of_log"))
    every = metadata.rows.select(*EMITTED, F.lit(False).alias("of_log")).unionByName(judged)
    ordered = every.repartition(*_GROUP).sortWithinPartitions(*_GROUP, "of_log", "seq", "broker")
    spans = [(start, end) for start, end in metadata.spans]
    return ordered.mapInArrow(_join(spans, metadata.from_beginning, arrow_schema(_JOINED_DDL)), schema=_JOINED_DDL)


def _join(spans: Sequence[tuple[int, int]], from_beginning: bool, schema: pa.Schema) -> ArrowStep:
    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        out = ArrowBatches(schema)
        key: tuple[Any, ...] | None = None
        history = OneHistory(spans)
        for batch in batches:
            for of_log, row in _rows_of(batch):
                if (row["topic"], row["partition"]) != key:
                    out.extend(_finished(history))
                    key = (row["topic"], row["partition"])
                    history = OneHistory(spans, from_beginning or row["partition"] is None)
                (history.of_log if of_log else history.of_metadata)(row)
            yield from out.full()
        out.extend(_finished(history))
        yield from out.rest()

    return step


def _rows_of(batch: pa.RecordBatch) -> Iterator[tuple[bool, dict[str, Any]]]:
    for *values, of_log in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        yield of_log, dict(zip(EMITTED, values, strict=True))


def _finished(history: OneHistory) -> Iterator[tuple[Any, ...]]:
    history.finish()
    for row in history.rows:
        yield (*map(row.get, EMITTED), None)
    for judged in history.notes:
        yield _as_row(judged)


def _as_row(judged: Judged) -> tuple[Any, ...]:
    columns = judged._asdict()
    return (*map(columns.get, EMITTED), judged.note)


def _notices(notes: DataFrame) -> DataFrame:
    """What contradicts the metadata log, counted per lane."""
    odd = notes.filter(F.col(_NOTE).isin(*CONTRADICTIONS)).groupBy(
        F.col(_NOTE).alias("reason"), "topic", "partition", "broker"
    )
    return odd.agg(F.count("*").alias("rows"), F.min("ts").alias("first_ts")).select(*NOTICE_COLUMNS)


def _summary(both: DataFrame) -> dict[str, Any]:
    counts = {row[_NOTE]: row["n"] for row in both.groupBy(_NOTE).agg(F.count("*").alias("n")).collect()}
    is_write = F.col(_NOTE).isNull() & (F.col("ev") == "isr_shrink") & F.col("err").isin(0)
    (of_leaders,) = both.agg(
        F.count_if(is_write).alias("removed"), F.count_if(is_write & F.col("cu").isNotNull()).alias("caught_up_known")
    ).collect()
    contradictions = {name: counts.get(name, 0) for name in CONTRADICTIONS}
    wrong = contradictions[Note.CONTRADICTS] + contradictions[Note.NOT_WRITTEN]
    agree = counts.get(Note.AGREES, 0)
    return {
        "agree": agree,
        "refused": counts.get(Note.REFUSED, 0),
        "outside": counts.get(Note.OUTSIDE, 0),
        "contradictions": contradictions,
        "removed": of_leaders["removed"],
        "caught_up_known": of_leaders["caught_up_known"],
        "is_other_cluster": wrong > 0 and agree < _SAME_CLUSTER_MIN * (agree + wrong),
    }
