"""The steps between the clean trace and the tables, each `DataFrame -> DataFrame`. Nothing here collects or writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from broker_sim.replay.distinct import first_of
from broker_sim.replay.facts import FACT_EVENTS, FACT_ORDER, FACT_OUTCOMES, ISR_CHANGES, STOP_FACTS, WindowKind
from broker_sim.replay.grouped import fold_histories, replay_lanes
from broker_sim.replay.ingest.layout import Ingested
from broker_sim.replay.logs.waiting_rows import SEQ_SHIFT
from broker_sim.replay.rows import ALIVENESS_RUN, RULES_OFF, Measure, OutcomeKind
from broker_sim.replay.schema import (
    COPY_PROGRESS_COLUMNS,
    DERIVED_DDL,
    DERIVED_TABLES,
    FACT_COLUMNS,
    FACT_TYPES,
    ISR_HISTORY_COLUMNS,
    LANE_COLUMNS,
    LANE_KEY,
    MEASURE_COLUMNS,
    NOTICE_COLUMNS,
    OUTCOME_DDL,
    PARTITION_KEY,
    SRC_INFERRED,
    SRC_LOG,
    SRC_METADATA,
    SRC_SNAPSHOT,
)

_LEADERSHIP: Final = ("leader", "follower", "stop")
_OF_BROKER: Final = ("start", "down", "config")
_ALIVENESS: Final = ("broker_up", "broker_down")
_OF_CONTROLLER: Final = ("assign", "elect", "delete", "controller", *_ALIVENESS)
#: Flaps of shrinks this close in time are taken for one event when their cause is guessed.
_SAME_EVENT_MS: Final = 10_000


# -- trace -> lanes -> outcomes -------------------------------------------------------------------------------------


def lanes(rows: Ingested, shared: DataFrame) -> DataFrame:
    """Every row a lane needs: its own, and those that it shares with others, from `shared_rows`."""
    return rows.trace.filter(_of_lanes()).transform(_as_lane_rows).unionByName(shared)


def _of_lanes() -> Column:
    return (F.col("role") == "broker") & F.col("partition").isNotNull() & ~F.col("ev").isin(*_OF_CONTROLLER)


def shared_rows(state_rows: DataFrame, processes: DataFrame) -> DataFrame:
    """Rows that are not of one partition, once for each lane that they concern: starts, settings, who is alive, ticks.

    Of an `Ingested`. Many joins of few rows: who unites them with many had better write them first.
    """
    # A file of one process of one broker tells what that broker knew; a trace of unknown origin may be of controllers.
    has_own_view = (F.max("run") > 0).alias("has_own_view")
    of_brokers = processes.filter("role = 'broker'")
    keys = state_rows.filter(_of_lanes() & (F.col("ev") == "leader")).groupBy(*LANE_KEY).agg(has_own_view)
    parts = (
        _broker_rows(state_rows, of_brokers, keys),
        _rules_off(of_brokers, keys),
        _ticks(state_rows.filter(F.col("role") == "broker")),
        _aliveness(state_rows, keys),
        *_cluster_configs(state_rows, keys),
    )
    return reduce(DataFrame.unionByName, parts)


def _rules_off(processes: DataFrame, keys: DataFrame) -> DataFrame:
    """One row per lane of a broker of which only log lines are known: they tell of no fetch, so no rule can be run."""
    blind = processes.groupBy("broker").agg(F.sum("bulk").alias("bulk"), F.sum("logged").alias("logged"))
    lanes_of = keys.join(F.broadcast(blind.filter("bulk = 0 AND logged > 0")), on="broker", how="left_semi")
    head = {"run": F.lit(ALIVENESS_RUN).cast("bigint"), "seq": F.lit(-1).cast("bigint"), "ts": F.lit(0).cast("bigint")}
    nulls = {name: F.lit(None) for name in LANE_COLUMNS if name not in (*LANE_KEY, *head, "ev")}
    values = {**{k: F.col(k) for k in LANE_KEY}, **head, "ev": F.lit(RULES_OFF), **nulls}
    return lanes_of.select(*(values[name].alias(name) for name in LANE_COLUMNS))


def _as_lane_rows(rows: DataFrame, **extra: Column) -> DataFrame:
    own = {name: F.col(name) for name in rows.columns}
    values = {
        "of_topic": F.lit(None).cast("boolean"),
        "run_ticks": F.lit(None).cast("bigint"),
        "run_end": F.lit(None).cast("bigint"),
        **own,
        **extra,
    }
    return rows.select(*(values[name].alias(name) for name in LANE_COLUMNS))


def _broker_rows(state_rows: DataFrame, processes: DataFrame, keys: DataFrame) -> DataFrame:
    """Starts, ends, settings of a broker, and its view of the others, once per partition that it ever led."""
    rows = state_rows.filter((F.col("role") == "broker") & F.col("partition").isNull())
    rows = rows.filter(F.col("ev").isin(*_OF_BROKER) | (F.col("ev").isin(*_ALIVENESS) & (F.col("run") > 0)))
    ends = processes.select("broker", "run", F.col("ticks").alias("run_ticks"), F.col("last_ts").alias("run_end"))
    with_runs = rows.join(F.broadcast(ends), on=["broker", "run"], how="left").alias("r")
    of_broker = F.col("r.broker") == F.col("k.broker")
    of_topic = F.col("r.topic").isNull() | (F.col("r.topic") == F.col("k.topic"))
    joined = with_runs.join(keys.alias("k"), on=of_broker & of_topic, how="inner")
    plain = [F.col(f"r.{c}") for c in with_runs.columns if c not in LANE_KEY]
    return joined.select(
        *plain, *(F.col(f"k.{c}") for c in LANE_KEY), F.col("r.topic").isNotNull().alias("of_topic")
    ).transform(_as_lane_rows)


def _ticks(state_rows: DataFrame) -> DataFrame:
    """The broker's ticks, once per partition that it leads at that moment."""
    ticks = state_rows.filter((F.col("ev") == "tick") & F.col("partition").isNull()).alias("t")
    run = Window.partitionBy(*LANE_KEY, "run").orderBy("seq")
    led = (
        state_rows.filter(F.col("ev").isin(*_LEADERSHIP))
        .select(*LANE_KEY, "run", "ev", F.col("seq").alias("from_seq"), F.lead("seq").over(run).alias("to_seq"))
        .filter(F.col("ev") == "leader")
        .alias("l")
    )
    while_leading = (
        (F.col("t.broker") == F.col("l.broker"))
        & (F.col("t.run") == F.col("l.run"))
        & (F.col("t.seq") > F.col("l.from_seq"))
        & (F.col("l.to_seq").isNull() | (F.col("t.seq") < F.col("l.to_seq")))
    )
    plain = [F.col(f"t.{c}") for c in state_rows.columns if c not in LANE_KEY]
    joined = ticks.join(led, on=while_leading, how="inner")
    return joined.select(*plain, *(F.col(f"l.{c}") for c in LANE_KEY)).transform(_as_lane_rows)


def _aliveness(state_rows: DataFrame, keys: DataFrame) -> DataFrame:
    """Brokers that came and went as controllers saw it, once per lane; they take effect by their time.

    A lane whose broker tells its own view needs them for one thing: that the leader itself died.
    """
    rows = state_rows.filter(F.col("ev").isin(*_ALIVENESS)).drop(*LANE_KEY)
    concerns = ~F.col("has_own_view") | ((F.col("role") == "controller") & (F.col("replica") == F.col("broker")))
    every = rows.crossJoin(keys).filter(concerns)
    # The seq of another emitter means nothing here: rows are ordered by time.
    return every.transform(_as_lane_rows, run=F.lit(ALIVENESS_RUN).cast("bigint"), seq=F.col("ts"))


def _cluster_configs(state_rows: DataFrame, keys: DataFrame) -> Iterator[DataFrame]:
    """Settings that a controller tells (a KRaft cluster's metadata log has them once, not once a broker): those of a
    topic for its lanes, those of a broker for its own, those of all brokers for all. They take effect by their time."""
    rows = state_rows.filter((F.col("role") == "controller") & (F.col("ev") == "config")).drop("partition", "broker")
    of_topics = rows.filter("topic IS NOT NULL").join(keys, on="topic", how="inner")
    own = F.col("replica").isNull() | (F.col("replica") == F.col("broker"))
    of_brokers = rows.filter("topic IS NULL").drop("topic").join(keys, on=own, how="inner")
    seq = F.col("ts") * (1000 << SEQ_SHIFT)
    for frame, of_topic in ((of_topics, True), (of_brokers, False)):
        yield frame.transform(_as_lane_rows, of_topic=F.lit(of_topic), run=F.lit(0).cast("bigint"), seq=seq)


def replayed(lane_rows: DataFrame, *, profile: str) -> DataFrame:
    """The rules over every lane: outcomes, unordered."""
    schema = to_arrow_schema(StructType.fromDDL(OUTCOME_DDL))
    sorted_lanes = lane_rows.repartition(*LANE_KEY).sortWithinPartitions(*LANE_KEY, "run", "seq")
    return sorted_lanes.mapInArrow(replay_lanes(profile, schema), schema=OUTCOME_DDL)


# -- history ----------------------------------------------------------------------------------------------------------


def emitted_changes(trace: DataFrame) -> DataFrame:
    """ISR writes that succeeded, as the leaders wrote them: one row per write."""
    done = F.col("err").isNull() | (F.col("err") == 0)
    rows = trace.filter(F.col("ev").isin(*ISR_CHANGES) & F.col("partition").isNotNull() & done)
    one_write = [*LANE_KEY, "run", "ev", "epoch", "ts", "isr"]
    return first_of(rows, one_write, order=["seq"])


def source_of(src: Column) -> Column:
    """The `source` column from a row's `src`: `trace`, `log`, `inferred`, `metadata` or `snapshot`."""
    is_recorded = src.isin(SRC_INFERRED, SRC_METADATA, SRC_SNAPSHOT)
    return F.when(src.isin(SRC_LOG, "zk"), "log").when(is_recorded, src).otherwise("trace")


def isr_history(trace: DataFrame, outcomes: DataFrame) -> DataFrame:
    """One row per change: what brokers and controllers wrote, and what the rules derived beside it."""
    source = source_of(F.col("src"))
    leads = first_of(trace.filter(F.col("ev") == "leader"), [*PARTITION_KEY, "epoch", "broker"], order=["ts", "seq"])
    elects = trace.filter(F.col("ev") == "elect").withColumn("broker", F.col("replica"))
    written = reduce(DataFrame.unionByName, (emitted_changes(trace), leads, elects)).select(
        *PARTITION_KEY,
        "ts",
        F.when(F.col("ev") == "elect", "controller").otherwise(F.col("ev")).alias("event"),
        F.col("broker").alias("leader"),
        F.col("epoch").alias("leader_epoch"),
        "isr_old",
        "isr",
        source.alias("source"),
        "zk_version",
    )
    before = Window.partitionBy(*PARTITION_KEY).orderBy(
        "leader_epoch", F.col("zk_version").asc_nulls_last(), "ts", "event"
    )
    with_old = written.withColumn("isr_old", F.coalesce("isr_old", F.lag("isr").over(before)))
    derived = outcomes.filter(F.col("kind").isin(*ISR_CHANGES)).select(
        *PARTITION_KEY,
        "ts",
        F.col("kind").alias("event"),
        "leader",
        F.col("epoch").alias("leader_epoch"),
        "isr_old",
        "isr",
        F.lit("replayed").alias("source"),
    )
    both = with_old.select(*ISR_HISTORY_COLUMNS).unionByName(derived)
    return both.repartition(*PARTITION_KEY).sortWithinPartitions(
        *PARTITION_KEY, "ts", "leader_epoch", "event", "source"
    )


def facts(trace: DataFrame, outcomes: DataFrame) -> DataFrame:
    """What `PartitionHistory` folds: changes as written (derived where there are none), assignments, outcomes."""
    changes = emitted_changes(trace).withColumn("leader", F.col("broker"))
    is_stop = (F.col("ev") == "stop") & F.col("value").isin(*STOP_FACTS)
    of_broker = F.col("ev").isin("leader", "stop")
    others = (
        trace.filter(F.col("partition").isNotNull() & (F.col("ev").isin(*FACT_EVENTS) | is_stop))
        .unionByName(_deleted_partitions(trace))
        .withColumn("leader", F.when(of_broker, F.col("broker")))
    )
    stops = F.create_map(*(F.lit(x) for pair in STOP_FACTS.items() for x in pair))[F.col("value")]
    kind = F.when(F.col("ev") == "stop", stops).otherwise(F.col("ev"))
    of_trace = changes.unionByName(others).withColumns({"kind": kind, "source": source_of(F.col("src"))})
    of_rules = outcomes.filter(F.col("kind").isin(*ISR_CHANGES, *FACT_OUTCOMES)).withColumn("source", F.lit("replayed"))
    both = _as_facts(of_trace, is_recorded=True).unionByName(_as_facts(of_rules, is_recorded=False))
    changed = F.col("kind").isin(*ISR_CHANGES)
    has_recorded = F.max(changed & F.col("recorded")).over(Window.partitionBy(*PARTITION_KEY))
    return both.withColumn("has_recorded", has_recorded).filter(~changed | F.col("recorded") | ~F.col("has_recorded"))


def _deleted_partitions(trace: DataFrame) -> DataFrame:
    """A deletion that names the topic alone, as log lines do, once for each of its partitions."""
    of_topic = trace.filter((F.col("ev") == "delete") & F.col("partition").isNull()).drop("partition")
    partitions = trace.filter(F.col("partition").isNotNull()).select(*PARTITION_KEY).distinct()
    return of_topic.join(partitions, on="topic", how="inner").select(*trace.columns)


def _as_facts(rows: DataFrame, *, is_recorded: bool) -> DataFrame:
    def column(name: str) -> Column:
        value = F.col(name) if name in rows.columns else F.lit(None)
        return value.cast(FACT_TYPES.get(name, "bigint")).alias(name)

    return rows.select(*PARTITION_KEY, *(column(name) for name in FACT_COLUMNS), F.lit(is_recorded).alias("recorded"))


def folded(fact_rows: DataFrame, *, end_ts: int) -> DataFrame:
    """Windows, catch-ups, flaps and reassignments, told apart by `table`."""
    order = F.create_map(*(F.lit(x) for pair in FACT_ORDER.items() for x in pair))[F.col("kind")]
    rows = fact_rows.withColumn("order", order).repartition(*PARTITION_KEY)
    ordered = rows.sortWithinPartitions(
        *PARTITION_KEY, "ts", "order", F.col("epoch").asc_nulls_first(), F.col("zk_version").asc_nulls_last()
    ).select(*PARTITION_KEY, *FACT_COLUMNS)
    schema = to_arrow_schema(StructType.fromDDL(DERIVED_DDL))
    return ordered.mapInArrow(fold_histories(end_ts, schema), schema=DERIVED_DDL)


def table_of(derived: DataFrame, name: str) -> DataFrame:
    """One of `DERIVED_TABLES`, with its columns, sorted within topic and partition."""
    columns: Mapping[str, str] = DERIVED_TABLES[name]
    rows = derived.filter(F.col("table") == name).select(
        *PARTITION_KEY, *(F.expr(source).alias(column) for column, source in columns.items())
    )
    if name == "flaps":
        rows = rows.transform(_add_cause)
    return rows.coalesce(1).sortWithinPartitions(*PARTITION_KEY, *list(columns)[:2])


def _add_cause(flaps: DataFrame) -> DataFrame:
    """A guess from what flapped at the same time: a follower, a leader, the pair of them, or one partition (§9)."""
    event = flaps.withColumn("event", F.floor(F.col("shrink_ts") / _SAME_EVENT_MS))
    of_replica = Window.partitionBy("replica", "event")
    of_leader = Window.partitionBy("leader", "event")
    of_pair = Window.partitionBy("leader", "replica", "event")
    cause = (
        F.when(F.size(F.collect_set("leader").over(of_replica)) > 1, "follower")
        .when(F.size(F.collect_set("replica").over(of_leader)) > 1, "leader")
        .when(F.count("*").over(of_pair) > 1, "follower_or_link")
        .otherwise("partition")
    )
    return event.withColumn("cause", cause).drop("event")


def measures(outcomes: DataFrame) -> DataFrame:
    """What lanes measured (`rows.Measure`), once per leadership."""
    of_kind = outcomes.filter(F.col("kind") == OutcomeKind.MEASURE.value)
    named = {"measure": F.col("change"), "value": F.col("amount"), "count": F.col("total"), "leader_epoch": "epoch"}
    values = {**named, "p95": "p95", "worst": "worst", "ts": "ts", "replica": "replica", "leader": "leader"}
    return (
        of_kind.select(*(_column(values.get(name, name)).alias(name) for name in MEASURE_COLUMNS))
        .coalesce(1)
        .sortWithinPartitions(*PARTITION_KEY, "measure", "ts")
    )


def _column(of: str | Column) -> Column:
    return F.col(of) if isinstance(of, str) else of


def copy_progress(outcomes: DataFrame) -> DataFrame:
    """How far replicas outside the ISR had copied, over time (§9)."""
    of_kind = outcomes.filter(F.col("kind") == OutcomeKind.PROGRESS.value)
    start, target, leo = F.col("left_ms"), F.col("total"), F.col("amount")
    share = F.when(target > start, F.greatest(F.lit(0.0), F.least(F.lit(1.0), (leo - start) / (target - start))))
    values = {"leo": leo, "start": start, "target": target, "progress": F.coalesce(share, F.lit(1.0))}
    return of_kind.select(*(values.get(c, F.col(c)).alias(c) for c in COPY_PROGRESS_COLUMNS)).sortWithinPartitions(
        *PARTITION_KEY, "replica", "ts"
    )


def lane_notices(outcomes: DataFrame) -> DataFrame:
    """Rows that were not used because no `leader` row stands before them: rows of `notices`."""
    of_kind = outcomes.filter(F.col("change") == Measure.ROWS_WITHOUT_LEADER.value)
    values = {"reason": F.col("change"), "broker": F.col("leader"), "rows": F.col("amount"), "first_ts": F.col("ts")}
    return of_kind.select(*(values.get(c, F.col(c)).alias(c) for c in NOTICE_COLUMNS))


def partition_totals(windows: DataFrame, flaps: DataFrame, *, span_ms: int) -> DataFrame:
    """Per partition: time, number and longest of each kind of window, deficit, flaps and their rate (§9)."""
    of = {kind.value: F.col("window") == kind.value for kind in WindowKind}
    sums = [F.sum(F.when(holds, F.col("duration_ms")).otherwise(0)).alias(f"{kind}_ms") for kind, holds in of.items()]
    counts = [F.count_if(holds).alias(f"{kind}_count") for kind, holds in of.items()]
    longest = [F.max(F.when(holds, F.col("duration_ms"))).alias(f"{kind}_longest_ms") for kind, holds in of.items()]
    deficit = F.sum(F.when(of[WindowKind.UNDER_REPLICATED.value], F.col("deficit_ms")).otherwise(0))
    per_partition = windows.groupBy(*PARTITION_KEY).agg(*sums, *counts, *longest, deficit.alias("deficit_ms"))
    flapped = flaps.groupBy(*PARTITION_KEY).agg(F.count("*").alias("flaps"))
    hours = max(span_ms, 1) / 3_600_000
    joined = per_partition.join(flapped, on=list(PARTITION_KEY), how="left").fillna(0, ["flaps"])
    return joined.withColumn("flaps_per_hour", F.col("flaps") / F.lit(hours)).sortWithinPartitions(*PARTITION_KEY)


# -- comparison -------------------------------------------------------------------------------------------------------


def comparison(outcomes: DataFrame) -> DataFrame:
    """Derived against emitted membership changes, per partition."""

    def count(kind: OutcomeKind) -> Column:
        return F.count_if(F.col("kind") == kind.value)

    matched, missing, spurious = (count(k) for k in (OutcomeKind.MATCHED, OutcomeKind.MISSING, OutcomeKind.SPURIOUS))
    error = F.when(F.col("kind") == OutcomeKind.MATCHED.value, F.abs("error_ms"))
    hw = F.col("kind") == OutcomeKind.HW.value
    return (
        outcomes.groupBy(*PARTITION_KEY)
        .agg(
            (matched + missing).alias("emitted"),
            (matched + spurious).alias("replayed"),
            matched.alias("matched"),
            missing.alias("missing"),
            spurious.alias("spurious"),
            count(OutcomeKind.REFUSED).alias("refused"),
            F.max(error).alias("time_error_ms_max"),
            F.avg(error).alias("time_error_ms_mean"),
            F.coalesce(F.sum(F.when(hw, F.col("total"))), F.lit(0)).alias("hw_rows"),
            F.coalesce(F.sum(F.when(hw, F.col("amount"))), F.lit(0)).alias("hw_matched"),
        )
        .coalesce(1)
        .sortWithinPartitions(*PARTITION_KEY)
    )
