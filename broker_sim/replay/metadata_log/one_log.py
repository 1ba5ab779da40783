"""One cluster's log from decoded records: each record once, without what was never committed. On Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from broker_sim.replay.distinct import first_of
from broker_sim.replay.metadata_log import schemas
from broker_sim.replay.metadata_log.files import MetadataFile
from broker_sim.replay.metadata_log.inventory import Inventory, inventory, one_cluster
from broker_sim.replay.metadata_log.segments import CONTROL, Walked
from broker_sim.replay.metadata_log.transactions import ends_of_epochs, left_out


def cluster_files(
    decoded: DataFrame, files: Sequence[MetadataFile]
) -> tuple[list[MetadataFile], list[MetadataFile], list[str]]:
    """`inventory.one_cluster` of files whose records are `decoded`."""
    if len({file.folder for file in files}) == 1:
        return list(files), [], []
    tokens = F.array(
        F.col("topic_id"),
        F.when(F.col("api_key") == schemas.REGISTER_BROKER, F.col("incarnation")),
        F.when(F.col("api_key") == CONTROL, F.concat_ws(" ", "offset", "epoch", "ts")),
    )
    named = decoded.select("folder", F.explode(tokens).alias("token")).filter("token IS NOT NULL")
    together = named.groupBy("token").agg(F.sort_array(F.collect_set("folder")).alias("folders"))
    linked = [row["folders"] for row in together.select("folders").distinct().collect()]
    return one_cluster(files, linked)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataLog:
    """The records of one cluster's log, each once, without what was never committed; and what is known of it."""

    records: DataFrame
    inventory: Inventory
    #: epoch of the quorum -> the controller that led it, first offset, append time
    controllers: Mapping[int, tuple[int, int, int]]
    cluster: str | None = None
    #: what was left out, by why
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def leaders(self) -> dict[int, int]:
        """Epoch of the quorum -> controller."""
        return {epoch: history[0] for epoch, history in self.controllers.items()}


def one_log(
    decoded: DataFrame, files: Sequence[MetadataFile], found: Mapping[str, Walked], problems: Sequence[str]
) -> MetadataLog:
    """The log that the `files` of one cluster hold, of all whose records are `decoded`."""
    there = inventory(files, found, problems)
    used = list(there.snapshot_files.values())
    own = decoded.filter(F.col("folder").isin(sorted({file.folder for file in files})) & F.col("problem").isNull())
    of_log = own.filter(F.col("snapshot").isNull())
    spans = of_log.groupBy("epoch").agg(F.min("offset").alias("first"), F.max("offset").alias("last")).collect()
    ends = ends_of_epochs({row["epoch"]: row["first"] for row in spans})
    superseded = sum(row["last"] >= ends[row["epoch"]] for row in spans if row["epoch"] in ends)
    valid = of_log.filter(_is_valid(ends)) if superseded else of_log
    control = F.col("api_key").isin(CONTROL, *_MARKERS)
    marks = valid.filter(control).select("offset", "api_key", "epoch", "leader", "ts").distinct().collect()
    markers = {(row["offset"], row["api_key"]) for row in marks if row["api_key"] != CONTROL}
    dropped, counts = left_out(markers, [gap.start for gap in there.gaps])
    if superseded:
        counts["superseded"] = of_log.filter(~_is_valid(ends)).select("offset", "epoch").distinct().count()
    return MetadataLog(
        records=first_of(valid.filter(~_within(dropped)), ["offset"], order=["folder", "file"]).unionByName(
            own.filter(F.col("file").isin(used))
        ),
        inventory=there,
        controllers={m["epoch"]: (m["leader"], m["offset"], m["ts"]) for m in marks if m["api_key"] == CONTROL},
        cluster=next((file.cluster for file in files if file.cluster), None),
        counts={"superseded": 0, **counts},
    )


_MARKERS: Final = (schemas.BEGIN_TRANSACTION, schemas.END_TRANSACTION, schemas.ABORT_TRANSACTION)


def _is_valid(ends: Mapping[int, int]) -> Column:
    late = [(F.col("epoch") == epoch) & (F.col("offset") >= end) for epoch, end in ends.items()]
    return ~reduce(Column.__or__, late, F.lit(False))


def _within(spans: Sequence[tuple[int, int | None]]) -> Column:
    inside = [
        (F.col("offset") >= start) & (F.lit(True) if end is None else F.col("offset") <= end) for start, end in spans
    ]
    return reduce(Column.__or__, inside, F.lit(False))
