"""What the report and the findings ask of the tables of a replay: each question in SQL (DuckDB), each answer bounded.

Every list is in an order that leaves no choice, so that the same tables always give the same answers.
"""

from __future__ import annotations

from typing import Final

from broker_sim.replay.chronicle import SAME_INCIDENT_MS
from broker_sim.replay.diagnosis_limits import (
    BROKERS_MAX,
    BUCKETS,
    DEFAULT_LAG_MS,
    NEAR_REMOVAL,
    SLOW_CATCH_UP_MS,
    WORST,
)
from controller.wire.trace import BROKER_STATE_KEY, OPERATOR_KEY, PAUSED_REPLICATION_KEY

#: Partitions that the report draws, the ones with the most trouble first.
PARTITIONS_SHOWN: Final = 60
#: Rows of `what_if` about the whole: values and keys are limited when they are asked for.
WHAT_IF_MAX: Final = 256
#: Processes, sessions, terms and removals that the chronicle is made of.
EVENTS_MAX: Final = 2_000
#: Things that somebody did.
MARKS_MAX: Final = 200
_MINUTE_MS: Final = 60_000
_LAG_KEY: Final = "replica.lag.time.max.ms"

#: The partition with the greatest value, by name: of equal ones the first.
_WORST_BY: Final = (
    "first(partition_name(topic, partition) ORDER BY {value} DESC, topic, partition) FILTER ({value} IS NOT NULL)"
)
_SETTINGS: Final = f"""
    SELECT min(try_cast(value AS BIGINT)) AS lag_min_ms, max(try_cast(value AS BIGINT)) AS lag_max_ms
    FROM trace WHERE ev = 'config' AND key = '{_LAG_KEY}' AND regexp_full_match(value, '[0-9]{{1,18}}')"""
_CATCH_UP_TIMES: Final = """
    max(catch_up_ms) AS max_ms,
    quantile_disc(catch_up_ms, 0.5) AS median_ms,
    quantile_disc(catch_up_ms, 0.95) AS p95_ms"""
_FLAP_SUMS: Final = """
    count(*) AS count,
    count(DISTINCT (topic, partition)) AS partitions,
    count(DISTINCT leader) AS leaders,
    max(out_of_isr_ms) AS longest_ms,
    min(shrink_ts) AS from_ts,
    max(expand_ts) AS to_ts"""


def macros(from_ts: int, to_ts: int) -> tuple[str, ...]:
    """What the questions share: names of partitions, and in which of `BUCKETS` pieces of the trace a time lies."""
    width = max(1, -(-(to_ts - from_ts + 1) // BUCKETS))
    return (
        "CREATE MACRO partition_name(topic, partition) AS topic || '-' || partition",
        "CREATE MACRO piece_of(ts, since, width) AS floor((ts - since)::DOUBLE / width)::BIGINT",
        f"CREATE MACRO bucket_of(ts) AS greatest(0, least({BUCKETS - 1}, piece_of(ts, {from_ts}, {width})))",
    )


#: Each has rows of partitions.
TABLES: Final = (
    "isr_history", "comparison", "windows", "absences", "catch_up", "flaps", "reassignments", "measures",
)  # fmt: skip
_OF_HISTORY: Final = {
    "partitions_in_all": f"""
        SELECT count(*) AS partitions
        FROM ({" UNION ".join(f"SELECT topic, partition FROM {table}" for table in TABLES)})""",
    "leaders": f"""
        SELECT DISTINCT leader FROM isr_history WHERE event = 'leader' ORDER BY leader LIMIT {10 * BROKERS_MAX}""",
    "changes": "SELECT source, event, count(*) AS count FROM isr_history GROUP BY ALL ORDER BY ALL",
    "elections_over_time": """
        SELECT bucket_of(ts) AS bucket, count(*) AS count, max(leader_epoch) AS leader_epoch
        FROM isr_history WHERE event = 'leader' GROUP BY bucket ORDER BY bucket""",
}

_SUMMED: Final = ("emitted", "replayed", "matched", "missing", "spurious", "refused", "hw_rows", "hw_matched")
_SUMS: Final = ", ".join(f"coalesce(sum({name}), 0) AS {name}" for name in _SUMMED)
_OF_COMPARISON: Final = {
    "totals": f"""
        SELECT {_SUMS},
            coalesce(max(time_error_ms_max), 0) AS time_error_ms_max,
            count(*) FILTER (emitted > 0) AS changed_partitions,
            count(*) FILTER (missing + spurious > 0) AS differing_partitions
        FROM comparison""",
    "differences": f"""
        SELECT * FROM comparison WHERE missing + spurious > 0 ORDER BY topic, partition LIMIT {WORST}""",
}

_OF_WINDOWS: Final = {
    "windows": f"""
        SELECT "window", count(*) AS count, sum(duration_ms) AS total_ms, max(duration_ms) AS longest_ms,
            count(*) FILTER (is_open) AS open,
            coalesce(sum(closed), 0) AS closed_ms,
            coalesce(max(closed), 0) AS closed_longest_ms,
            count(DISTINCT CASE WHEN NOT is_open THEN (topic, partition) END) AS closed_partitions,
            {_WORST_BY.format(value="closed")} AS closed_worst,
            count(DISTINCT (topic, partition)) AS partitions,
            {_WORST_BY.format(value="duration_ms")} AS worst,
            coalesce(sum(deficit_ms), 0) AS deficit_ms,
            count(*) FILTER (missing > 0) AS degraded
        FROM (SELECT *, CASE WHEN NOT is_open THEN duration_ms END AS closed FROM windows)
        GROUP BY "window" ORDER BY "window" """,
    # Those to draw: by time offline, below min ISR, under-replicated; then by name.
    "partitions_shown": f"""
        WITH weight("window", worth) AS (VALUES ('offline', 100), ('under_min_isr', 10), ('under_replicated', 1)),
        troubled AS (
            SELECT topic, partition, sum(duration_ms * worth) AS badness
            FROM windows JOIN weight USING ("window") GROUP BY topic, partition)
        SELECT topic, partition, badness
        FROM (SELECT DISTINCT topic, partition FROM isr_history) LEFT JOIN troubled USING (topic, partition)
        ORDER BY badness DESC NULLS LAST, topic, partition LIMIT {PARTITIONS_SHOWN}""",
    # How many partitions were in trouble within each piece of the trace's time.
    "troubled_over_time": """
        SELECT "window", bucket, count(*) AS partitions
        FROM (
            SELECT DISTINCT "window", topic, partition,
                unnest(range(bucket_of(from_ts), bucket_of(greatest(from_ts, to_ts - 1)) + 1)) AS bucket
            FROM windows WHERE "window" IN ('under_replicated', 'under_min_isr', 'offline', 'reassigning'))
        GROUP BY "window", bucket ORDER BY "window", bucket""",
}

_OF_CATCH_UPS: Final = {
    "catch_up": f"""
        SELECT left_by, count(*) AS count, count(catch_up_ms) AS timed,
            max(CASE WHEN catch_up_ms IS NULL THEN out_of_isr_ms END) AS out_max_ms,
            count(*) FILTER (catch_up_ms > {SLOW_CATCH_UP_MS}) AS slow, {_CATCH_UP_TIMES}
        FROM catch_up WHERE joined_ts IS NOT NULL GROUP BY left_by ORDER BY left_by""",
    "rejoins": f"""
        SELECT replica, count(*) AS count, {_CATCH_UP_TIMES}, max(out_of_isr_ms) AS out_max_ms
        FROM catch_up WHERE joined_ts IS NOT NULL
        GROUP BY replica ORDER BY max_ms DESC NULLS LAST, replica LIMIT {BROKERS_MAX}""",
    "slowest": f"""
        SELECT * FROM catch_up WHERE joined_ts IS NOT NULL
        ORDER BY catch_up_ms DESC NULLS LAST, topic, partition, replica, joined_ts LIMIT {WORST}""",
    "longest_out": f"""
        SELECT * FROM catch_up WHERE joined_ts IS NOT NULL
        ORDER BY out_of_isr_ms DESC NULLS LAST, topic, partition, replica, joined_ts LIMIT {2 * WORST}""",
    "outside": f"""
        SELECT replica, count(*) AS count FROM catch_up WHERE joined_ts IS NULL
        GROUP BY replica ORDER BY replica LIMIT {BROKERS_MAX}""",
    # Replicas that leaders dropped, by broker and piece of time.
    "dropped": f"""
        SELECT replica, min(left_ts) AS from_ts,
            CASE WHEN count(*) FILTER (joined_ts IS NULL) = 0 THEN max(joined_ts) END AS to_ts,
            count(DISTINCT (topic, partition)) AS partitions
        FROM catch_up WHERE left_by = 'leader' AND left_ts IS NOT NULL
        GROUP BY replica, piece_of(left_ts, 0, {SAME_INCIDENT_MS}) ORDER BY from_ts, replica LIMIT {EVENTS_MAX}""",
}

#: Who flaps, when, and what it looks like (§9): by replica and cause, by partition, over time.
_OF_FLAPS: Final = {
    "flaps": f"""
        SELECT replica, cause, {_FLAP_SUMS} FROM flaps
        GROUP BY replica, cause ORDER BY count(*) DESC, replica, cause LIMIT {WORST}""",
    "flapping_leaders": f"""
        SELECT leader, {_FLAP_SUMS} FROM flaps WHERE cause = 'leader'
        GROUP BY leader ORDER BY count(*) DESC, leader LIMIT {WORST}""",
    "flapping_partitions": f"""
        SELECT topic, partition, {_FLAP_SUMS} FROM flaps
        GROUP BY topic, partition HAVING count(*) > 1 ORDER BY count(*) DESC, topic, partition LIMIT {WORST}""",
    "flap_map": f"""
        SELECT replica, bucket_of(shrink_ts) AS bucket, count(*) AS count
        FROM flaps SEMI JOIN (
            SELECT replica FROM flaps GROUP BY replica ORDER BY count(*) DESC, replica LIMIT {BROKERS_MAX}
        ) USING (replica)
        GROUP BY replica, bucket ORDER BY replica, bucket""",
}

#: The moves themselves, and what befell the partitions that were not moved while one ran.
_OF_REASSIGNMENTS: Final = {
    "reassignments": f"""
        SELECT * FROM reassignments ORDER BY duration_ms DESC NULLS FIRST, topic, partition, start_ts
        LIMIT {2 * WORST}""",
    "reassigned": f"""
        SELECT count(*) AS count, count(*) FILTER (finish_ts IS NULL) AS unfinished,
            coalesce(sum(original_shrinks), 0) AS original_shrinks, count(*) FILTER (original_shrinks > 0) AS hurt,
            coalesce(sum(copied_bytes), 0) AS copied_bytes, max(duration_ms) AS longest_ms,
            {_WORST_BY.format(value="duration_ms")} AS longest,
            coalesce(sum(state_writes), 0) AS state_writes, coalesce(sum(isr_writes), 0) AS isr_writes
        FROM reassignments""",
    "disturbed": f"""
        WITH minutes AS (
            SELECT DISTINCT unnest(range(
                start_ts // {_MINUTE_MS}, coalesce(finish_ts, start_ts) // {_MINUTE_MS} + 1)) AS minute
            FROM reassignments),
        others AS (
            SELECT from_ts // {_MINUTE_MS} AS minute
            FROM windows ANTI JOIN reassignments USING (topic, partition) WHERE "window" = 'under_replicated')
        SELECT count(minutes.minute) AS during, count(*) - count(minutes.minute) AS otherwise,
            (SELECT count(*) FROM minutes) AS moving_minutes
        FROM others LEFT JOIN minutes USING (minute)""",
}

_OF_MEASURES: Final = {
    # How close members came to removal: the least of each replica, nearest first; and how many came near.
    "headroom": f"""
        SELECT replica, min(value) AS least_ms,
            first(partition_name(topic, partition) ORDER BY value, topic, partition) AS worst,
            count(*) FILTER (value < round(coalesce(lag_max_ms, {DEFAULT_LAG_MS}) * {NEAR_REMOVAL})) AS near
        FROM measures, ({_SETTINGS}) WHERE measure = 'lag_headroom_ms'
        GROUP BY replica ORDER BY least_ms, replica LIMIT {BROKERS_MAX}""",
    # What acks=all took at least: the worst partition.
    "ack_latency": f"""
        SELECT count(*) AS rows, max(p95) AS p95_max_ms, max(worst) AS worst_ms,
            {_WORST_BY.format(value="worst")} AS worst
        FROM measures WHERE measure = 'ack_latency_ms'""",
}

#: What brokers and controllers wrote of themselves, for `chronicle`.
_OF_TRACE: Final = {
    "controllers": f"""
        SELECT broker AS controller, min(ts) AS from_ts, max(ts) AS to_ts, count(*) AS rows
        FROM trace WHERE ev IN ('elect', 'assign') GROUP BY broker ORDER BY from_ts, broker LIMIT {BROKERS_MAX}""",
    "settings": _SETTINGS,
    "processes": f"""
        SELECT broker, run, first_ts, last_ts, ended.run IS NOT NULL AS ended
        FROM processes
        LEFT JOIN (SELECT DISTINCT broker, run FROM trace WHERE ev = 'down' AND role = 'broker') AS ended
            USING (broker, run)
        WHERE role = 'broker' AND run > 0 ORDER BY first_ts, broker, run LIMIT {EVENTS_MAX}""",
    # Who is there: as a controller saw it, or as the broker itself wrote.
    "signs": f"""
        SELECT DISTINCT ts, ev, key, replica AS broker FROM trace
        WHERE ev IN ('broker_up', 'broker_down') AND (role = 'controller' OR run = 0)
        UNION
        SELECT DISTINCT ts, ev, key, broker FROM trace WHERE ev IN ('start', 'down') AND role = 'broker'
        ORDER BY ts, broker, ev, key LIMIT {EVENTS_MAX}""",
    # Elections, and the last word of any other controller before each.
    "terms": f"""
        SELECT elected.broker, elected.ts, elected.epoch,
            max(others.ts) AS before_ts, first(others.broker ORDER BY others.ts DESC, others.broker) AS before
        FROM trace AS elected JOIN trace AS others ON others.ts < elected.ts AND others.broker <> elected.broker
        WHERE elected.ev = 'controller' AND elected.value = 'elected' AND others.role = 'controller'
        GROUP BY elected.broker, elected.ts, elected.epoch ORDER BY elected.ts, elected.broker LIMIT {EVENTS_MAX}""",
    # What brokers wrote of how they are.
    "conditions": f"""
        SELECT ts, broker, run, seq, key, value FROM trace
        WHERE ev = 'config' AND key IN ('{BROKER_STATE_KEY}', '{PAUSED_REPLICATION_KEY}')
        ORDER BY ts, broker, seq LIMIT {EVENTS_MAX}""",
    # What somebody did to the cluster, in words.
    "marks": f"""
        SELECT ts, value AS words FROM trace WHERE ev = 'config' AND key = '{OPERATOR_KEY}'
        ORDER BY ts, broker, seq LIMIT {MARKS_MAX}""",
    # Each life of a topic that ended: between two of them it was created. Of a row that names the topic alone,
    # as log lines do, all its partitions that are known. Brokers hear of it later: theirs count where nobody else's do.
    "deleted": f"""
        WITH ended AS (SELECT topic, partition, ts FROM trace WHERE ev = 'delete'),
        gone AS (
            FROM ended UNION ALL
            SELECT topic, partition, ts FROM trace ANTI JOIN ended USING (topic)
            WHERE ev = 'stop' AND value = 'delete_topic'),
        born AS (SELECT topic, ts AS born_ts FROM trace WHERE ev = 'elect' AND epoch = 0),
        lives AS (
            SELECT gone.*, born_ts FROM gone ASOF LEFT JOIN born ON gone.topic = born.topic AND gone.ts >= born_ts),
        known AS (SELECT DISTINCT topic, partition FROM trace WHERE partition IS NOT NULL)
        SELECT lives.topic AS topic, min(ts) AS ts, count(DISTINCT known.partition) AS partitions
        FROM lives LEFT JOIN known ON known.topic = lives.topic
            AND (lives.partition IS NULL OR known.partition = lives.partition)
        GROUP BY lives.topic, born_ts ORDER BY ts, topic LIMIT {WORST}""",
}

QUESTIONS: Final = {
    **_OF_HISTORY,
    **_OF_COMPARISON,
    **_OF_WINDOWS,
    **_OF_CATCH_UPS,
    **_OF_FLAPS,
    **_OF_REASSIGNMENTS,
    **_OF_MEASURES,
    **_OF_TRACE,
}

#: Of a table that is there where it was asked for.
WHAT_IF: Final = {
    "what_if": f"SELECT * FROM what_if WHERE scope = 'all' LIMIT {WHAT_IF_MAX}",
    "what_if_brokers": f"SELECT key, broker, smallest_rate FROM what_if WHERE scope = 'broker' LIMIT {WHAT_IF_MAX}",
}
