"""The changes of every partition from the records of one log. On Spark; `fold` is what runs in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from broker_sim.replay.grouped import ArrowBatches, ArrowStep, arrow_schema
from broker_sim.replay.metadata_log import schemas
from broker_sim.replay.metadata_log.columns import RECORD_TYPES
from broker_sim.replay.metadata_log.fold import Change, Checked, Entry, Kind, PartitionFold
from broker_sim.replay.metadata_log.inventory import Inventory
from broker_sim.replay.metadata_log.one_log import MetadataLog
from broker_sim.replay.metadata_log.trace_rows import NO_CONTROLLER

_GROUP: Final = ("topic", "partition")
CHECKED: Final = "checked"
_CHANGE_TYPES: Final = {
    "event": "string",
    "cause": "string",
    "controller_epoch": "int",
    "leader": "int",
    "leader_epoch": "int",
    "partition_epoch": "int",
    "leader_epoch_old": "int",
    "recovering": "boolean",
    "is_reassigned": "boolean",
    **dict.fromkeys(("isr_old", "isr", "replicas", "adding", "removing", "elr", "last_known_elr"), "array<int>"),
}
CHANGE_DDL: Final = "topic string, topic_id string, partition int, controller int, " + ", ".join(
    f"{name} {_CHANGE_TYPES.get(name, 'bigint')}" for name in Change._fields
)


def changes(log: MetadataLog) -> DataFrame:
    """Every change of every partition, with `CHANGE_DDL`; rows of event `checked` hold a snapshot against the log.

    Sorted by topic, partition and offset. A topic that lost its name has its id for one.
    """
    names = _topics(log.records)
    entries = reduce(DataFrame.unionByName, (_partitions(log), *_of_topics(log.records, names)))
    named = entries.join(names.select("topic_id", "topic"), on="topic_id", how="left")
    named = named.withColumn("topic", F.coalesce("topic", "topic_id"))
    placed = named.repartition(*_GROUP).sortWithinPartitions(
        *_GROUP, "topic_id", "offset", F.col("kind") != Kind.SNAPSHOT
    )
    read = placed.select(*_GROUP, "topic_id", *Entry._fields)
    return read.mapInArrow(_fold(log.inventory, log.leaders, arrow_schema(CHANGE_DDL)), schema=CHANGE_DDL)


def _topics(rows: DataFrame) -> DataFrame:
    """`topic_id`, its name, where and when it was removed."""
    removed = F.col("api_key") == schemas.REMOVE_TOPIC
    return (
        rows.filter(F.col("api_key").isin(schemas.TOPIC, schemas.REMOVE_TOPIC))
        .groupBy("topic_id")
        .agg(
            F.max("topic").alias("topic"),
            *(F.max(F.when(removed, F.col(name))).alias(f"removed_{name}") for name in ("offset", "ts", "epoch")),
        )
    )


def _partitions(log: MetadataLog) -> DataFrame:
    """Entries from partition records, with who was fenced, stopped or registered in the same ms."""
    rows = log.records.filter(F.col("api_key").isin(schemas.PARTITION, schemas.PARTITION_CHANGE))
    until = {snapshot.offset: snapshot.ts for snapshot in log.inventory.snapshots}
    is_state = F.col("snapshot").isNotNull()
    kind = F.when(is_state, Kind.SNAPSHOT).when(F.col("api_key") == schemas.PARTITION, Kind.CREATED)
    contains = F.element_at(F.create_map(*(F.lit(x) for pair in until.items() for x in pair)), F.col("snapshot"))
    values = {
        "offset": F.coalesce("snapshot", "offset"),
        "ts": F.when(is_state, contains).otherwise(F.col("ts")) if until else F.col("ts"),
        "controller_epoch": F.col("epoch"),
        "kind": kind.otherwise(Kind.CHANGED),
    }
    joined = rows.join(
        _beside(log.records).withColumnRenamed("ts", "beside_ts"), F.col("ts") == F.col("beside_ts"), "left"
    )
    return _as_entries(joined, values)


def _beside(rows: DataFrame) -> DataFrame:
    key = F.col("api_key")
    change = key == schemas.BROKER_REGISTRATION_CHANGE
    fenced = key.isin(schemas.FENCE_BROKER, schemas.UNREGISTER_BROKER) | (change & (F.col("fenced") == 1))
    of_log = rows.filter(F.col("snapshot").isNull() & F.col("broker").isNotNull())
    who = {
        "fenced": fenced,
        "stopping": change & (F.col("stopping") == 1),
        "registered": key == schemas.REGISTER_BROKER,
    }
    return of_log.groupBy("ts").agg(
        *(F.collect_set(F.when(is_one, F.col("broker"))).alias(f"{name}_brokers") for name, is_one in who.items())
    )


def _as_entries(rows: DataFrame, values: Mapping[str, Column]) -> DataFrame:
    beside = {name: f"{name}_brokers" for name in ("fenced", "stopping", "registered")}

    def column(name: str) -> Column:
        if name in values:
            return values[name]
        source = beside.get(name, name)
        type_ = "array<int>" if name in beside else RECORD_TYPES.get(name, "int")
        return (F.col(source) if source in rows.columns else F.lit(None)).cast(type_)

    return rows.select("topic_id", "partition", *(column(name).alias(name) for name in Entry._fields))


def _of_topics(rows: DataFrame, names: DataFrame) -> Iterator[DataFrame]:
    """Records about a topic, once for each of its partitions: that it is removed, that its ELRs are forgotten."""
    parts = rows.filter(F.col("api_key").isin(schemas.PARTITION, schemas.PARTITION_CHANGE))
    each = parts.select("topic_id", "partition").distinct()
    removed = each.join(names.filter("removed_offset IS NOT NULL"), on="topic_id", how="inner")
    of = {"offset": "removed_offset", "ts": "removed_ts", "controller_epoch": "removed_epoch"}
    yield _as_entries(removed.drop("topic"), {**{k: F.col(v) for k, v in of.items()}, "kind": F.lit(Kind.DELETED)})
    cleared = rows.filter(F.col("api_key") == schemas.CLEAR_ELR).select(
        "offset", "ts", "epoch", F.col("topic").alias("of")
    )
    every = each.join(names.select("topic_id", "topic"), on="topic_id", how="left")
    hit = every.join(F.broadcast(cleared), (F.col("of") == "") | (F.col("of") == F.col("topic")), "inner").drop("topic")
    of_cleared = {"controller_epoch": F.col("epoch"), "kind": F.lit(Kind.ELR_CLEARED)}
    yield _as_entries(hit, {"offset": F.col("offset"), "ts": F.col("ts"), **of_cleared})


def _fold(there: Inventory, controllers: Mapping[int, int], schema: pa.Schema) -> ArrowStep:
    def anew() -> PartitionFold:
        return PartitionFold(gaps=there.gaps, snapshots=there.snapshots, first_offset=there.first_offset)

    def drained(fold: PartitionFold, topic: str, topic_id: str, partition: int) -> Iterator[tuple[Any, ...]]:
        for change in fold.changes:
            yield (topic, topic_id, partition, controllers.get(change.controller_epoch, NO_CONTROLLER), *change)
        for one in fold.checked:
            yield (topic, topic_id, partition, NO_CONTROLLER, *_as_change(one))
        fold.changes.clear()
        fold.checked.clear()

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        out = ArrowBatches(schema)
        key: tuple[Any, ...] | None = None
        fold = anew()
        for batch in batches:
            for topic, partition, topic_id, *values in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                if (topic, topic_id, partition) != key:
                    if key is not None:
                        fold.finish()
                        out.extend(drained(fold, *key))
                    key, fold = (topic, topic_id, partition), anew()
                fold.feed(Entry._make(values))
                out.extend(drained(fold, *key))
            yield from out.full()
        if key is not None:
            fold.finish()
            out.extend(drained(fold, *key))
        yield from out.rest()

    return step


def _as_change(one: Checked) -> Change:
    return Change(one.offset, 0, -1, CHECKED, one.what)


def checks(rows: DataFrame) -> DataFrame:
    """Of `changes`: `offset` of a snapshot, `topic`, `partition`, `what` differs (empty: nothing)."""
    return rows.filter(F.col("event") == CHECKED).select("offset", *_GROUP, F.col("cause").alias("what"))


def only_changes(rows: DataFrame) -> DataFrame:
    """Of `changes` the changes."""
    return rows.filter(F.col("event") != CHECKED)
