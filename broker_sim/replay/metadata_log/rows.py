"""Changes, brokers and configs of one log as trace rows. On Spark; `trace_rows` is what runs in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from broker_sim.replay.grouped import ArrowBatches, ArrowStep, arrow_schema
from broker_sim.replay.metadata_log import schemas
from broker_sim.replay.metadata_log.fold import Change
from broker_sim.replay.metadata_log.one_log import MetadataLog
from broker_sim.replay.metadata_log.trace_rows import (
    EMITTED,
    NO_CONTROLLER,
    BrokerChange,
    Teller,
    broker_rows,
    config_row,
)
from controller.wire.trace import COLUMNS

_GROUP: Final = ("topic", "partition")
ROW_DDL: Final = ", ".join(f"`{name}` {kind}" for name, kind in {**COLUMNS, "role": "string", "file": "string"}.items())


def rows(folded: DataFrame, log: MetadataLog) -> DataFrame:
    """Changes, brokers and configs as trace rows, with what ingest adds to a line of a trace."""
    ordered = folded.repartition(*_GROUP).sortWithinPartitions(*_GROUP, "offset", "ts")
    of_partitions = ordered.mapInArrow(_tell(log.leaders, arrow_schema(ROW_DDL)), schema=ROW_DDL)
    return with_added(of_partitions.unionByName(_of_brokers(log)))


def with_added(rows: DataFrame) -> DataFrame:
    """Rows with what ingest adds to a line of a trace."""
    return rows.withColumn("run", F.lit(0).cast("bigint"))


def _tell(controllers: Mapping[int, int], schema: pa.Schema) -> ArrowStep:
    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        out = ArrowBatches(schema)
        teller: Teller | None = None
        for batch in batches:
            for topic, _, partition, _, *values in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                if teller is None or (teller.topic, teller.partition) != (topic, partition):
                    teller = Teller(topic=topic, partition=partition, controllers=controllers)
                teller.feed(Change._make(values))
                out.drain(teller.rows)
            yield from out.full()
        yield from out.rest()

    return step


def broker_events(log: MetadataLog) -> DataFrame:
    """Registrations, fencings, controlled shutdowns, in the order of the log. Those of a snapshot
    stand for what was before it, and only where the log does not begin with its first record."""
    return _events(log).drop(_OF_LOG)


#: Whether a record is of the log: a snapshot is named after the offset behind it, so it comes before the record there.
_OF_LOG: Final = "of_log"


def _events(log: MetadataLog) -> DataFrame:
    key, fenced = F.col("api_key"), F.col("fenced")
    change = key == schemas.BROKER_REGISTRATION_CHANGE
    event = (
        F.when(key == schemas.REGISTER_BROKER, BrokerChange.REGISTERED)
        .when(key == schemas.UNREGISTER_BROKER, BrokerChange.UNREGISTERED)
        .when((key == schemas.FENCE_BROKER) | (change & (fenced == 1)), BrokerChange.FENCED)
        .when((key == schemas.UNFENCE_BROKER) | (change & (fenced == -1)), BrokerChange.UNFENCED)
        .when(change & (F.col("stopping") == 1), BrokerChange.CONTROLLED_SHUTDOWN)
    )
    own = log.records.filter(F.col("broker").isNotNull() & _of_log_or_first(log))
    of_snapshot = {s.offset: s.ts for s in log.inventory.snapshots[:1]}
    led = F.element_at(_map(log.leaders or {-1: NO_CONTROLLER}), F.col("epoch"))
    ts = F.when(F.col("snapshot").isNotNull(), F.lit(next(iter(of_snapshot.values()), 0))).otherwise(F.col("ts"))
    events = own.withColumn("event", event).filter("event IS NOT NULL")
    unfenced = events.filter((key == schemas.REGISTER_BROKER) & (fenced == 0)).withColumn(
        "event", F.lit(BrokerChange.UNFENCED)
    )
    return (
        events.unionByName(unfenced)
        .select(
            F.coalesce("snapshot", "offset").alias("offset"),
            F.col("snapshot").isNull().alias(_OF_LOG),
            ts.alias("ts"),
            F.col("epoch").alias("controller_epoch"),
            F.coalesce(led, F.lit(NO_CONTROLLER)).alias("controller"),
            "broker",
            "event",
            "broker_epoch",
            "incarnation",
            "rack",
            "end_points",
        )
        .coalesce(1)
        .sortWithinPartitions("offset", _OF_LOG, "broker", "event")
    )


def _map(values: Mapping[int, int]) -> Column:
    return F.create_map(*(F.lit(x) for pair in values.items() for x in pair))


def _of_log_or_first(log: MetadataLog) -> Column:
    first = log.inventory.snapshots[0].offset if log.inventory.snapshots and log.inventory.first_offset != 0 else None
    of_log = F.col("snapshot").isNull()
    return of_log if first is None else of_log | (F.col("snapshot") == first)


def _of_brokers(log: MetadataLog) -> DataFrame:
    """Rows about brokers, racks and configs: few. Of settings a snapshot behind a gap tells all, old ones, too."""
    events = _events(log).withColumn("what", F.lit("broker"))
    states = {snapshot.offset: snapshot.ts for snapshot in log.inventory.opening}
    is_told = F.col("snapshot").isNull() | F.col("snapshot").isin(list(states))
    configs = log.records.filter((F.col("api_key") == schemas.CONFIG) & is_told).select(
        F.coalesce("snapshot", "offset").alias("offset"),
        F.col("snapshot").isNull().alias(_OF_LOG),
        F.coalesce(F.element_at(_map(states or {-1: 0}), F.col("snapshot")), F.col("ts")).alias("ts"),
        F.col("epoch").alias("controller_epoch"),
        F.coalesce(F.element_at(_map(log.leaders or {-1: NO_CONTROLLER}), F.col("epoch")), F.lit(NO_CONTROLLER)).alias(
            "controller"
        ),
        "resource",
        "name",
        "key",
        "value",
    )
    every = events.unionByName(configs, allowMissingColumns=True)
    every = every.coalesce(1).sortWithinPartitions("offset", _OF_LOG, "broker", "event")
    schema = arrow_schema(ROW_DDL)

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        out = ArrowBatches(schema)
        last = -1
        for batch in batches:
            for row in batch.to_pylist():
                for event in _rows_of(row):
                    last = max(last + 1, event["seq"])
                    out.extend([tuple({**event, "seq": last}.get(name) for name in EMITTED)])
            yield from out.full()
        yield from out.rest()

    return every.mapInArrow(step, schema=ROW_DDL)


def _rows_of(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    place = {"ts": row["ts"], "controller": row["controller"]}
    if row["what"] == "broker":
        about = {"event": row["event"], "broker": row["broker"], "epoch": row["broker_epoch"], "rack": row["rack"]}
        yield from broker_rows(**place, **about)
        return
    setting = {name: row[name] for name in ("resource", "name", "key", "value")}
    if (config := config_row(**place, **setting)) is not None:
        yield config
