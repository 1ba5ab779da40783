"""Who was missing from ISRs, when, and what that cost: questions in SQL with answers of bounded size, for the report.

Time is cut into `piece_of` pieces. Of each piece is told what began and what ended in it, which is enough to count
afterwards (`report/out_of_sync.py`) how much was missing at any time: an absence of days costs two rows, not thousands.
"""

from __future__ import annotations

from typing import Final

from broker_sim.replay.diagnosis_limits import BROKERS_MAX, WORST, piece_of

CONTROLLERS_MAX: Final = 500
RACK_KEY: Final = "broker.rack"
#: Windows that make a minute a bad one.
BAD_WINDOWS: Final = ("under_replicated", "under_min_isr", "offline")

_BAD: Final = f'SELECT * FROM windows WHERE "window" IN {BAD_WINDOWS}'
_BY_KIND: Final = ", ".join(
    f"coalesce(sum(CASE WHEN \"window\" = '{kind}' THEN duration_ms END), 0) AS {kind}_ms" for kind in BAD_WINDOWS
)
_BEHIND: Final = f"""
    SELECT replica, sum(duration_ms) AS total_ms, count(*) AS count,
        count(DISTINCT (topic, partition)) AS partitions, max(duration_ms) AS longest_ms,
        first(partition_name(topic, partition) ORDER BY duration_ms DESC, topic, partition) AS worst,
        count(*) FILTER (is_open) AS open
    FROM absences GROUP BY replica ORDER BY total_ms DESC, replica LIMIT {BROKERS_MAX}"""
_QUESTIONS: Final = {
    "behind": _BEHIND,
    "behind_in_all": """
        SELECT coalesce(sum(duration_ms), 0) AS total_ms, count(DISTINCT (topic, partition)) AS partitions
        FROM absences""",
    # How many partitions ever had a replica on each broker.
    "hosted": f"""
        SELECT replica, count(DISTINCT (topic, partition)) AS partitions
        FROM (SELECT topic, partition, unnest(replicas) AS replica FROM trace WHERE ev IN ('assign', 'leader'))
        GROUP BY replica ORDER BY replica LIMIT {10 * BROKERS_MAX}""",
    "racks": f"""
        SELECT coalesce(replica, broker) AS replica, max_by(value, seq) AS rack
        FROM trace WHERE ev = 'config' AND key = '{RACK_KEY}' AND value IS NOT NULL
        GROUP BY ALL ORDER BY replica LIMIT {10 * BROKERS_MAX}""",
    "behind_by_topic": f"""
        SELECT topic,
            {_BY_KIND},
            count(DISTINCT partition) AS partitions
        FROM ({_BAD}) GROUP BY topic
        ORDER BY offline_ms DESC, under_min_isr_ms DESC, under_replicated_ms DESC, topic LIMIT {WORST}""",
    # The partitions that were under min ISR for longest, and who was missing then: nobody, where all replicas together
    # are too few.
    "under_min_isr": f"""
        WITH spans AS (SELECT * FROM windows WHERE "window" = 'under_min_isr'),
        worst AS (
            SELECT topic, partition, sum(duration_ms) AS total_ms, count(*) AS count, min(from_ts) AS first_ts,
                max(to_ts) AS last_ts, max(duration_ms) AS longest_ms, count(*) FILTER (is_open) AS open
            FROM spans GROUP BY topic, partition ORDER BY total_ms DESC, topic, partition LIMIT {WORST}),
        absent AS (
            SELECT topic, partition, list_sort(list(DISTINCT absences.replica)) AS missing
            FROM absences JOIN spans USING (topic, partition) SEMI JOIN worst USING (topic, partition)
            WHERE absences.from_ts < spans.to_ts AND absences.to_ts > spans.from_ts
            GROUP BY topic, partition)
        SELECT worst.*, coalesce(missing, []) AS missing FROM worst LEFT JOIN absent USING (topic, partition)
        ORDER BY total_ms DESC, topic, partition""",
}
_ELECTED: Final = """
    SELECT DISTINCT broker AS controller, epoch, ts FROM trace WHERE ev = 'controller' AND value = 'elected'"""
_IN_METADATA: Final = "SELECT controller, controller_epoch AS epoch, ts FROM controllers"


def questions(*, from_ts: int, to_ts: int, of_metadata: bool) -> dict[str, str]:
    """Of the tables `absences`, `windows`, `trace` (rows that are not bulk) and, `of_metadata`, `controllers`."""
    missing_most = f"(SELECT * FROM absences SEMI JOIN ({_BEHIND}) USING (replica))"
    piece_ms = piece_of(to_ts - from_ts)
    offices = _IN_METADATA if of_metadata else _ELECTED
    return {
        **_QUESTIONS,
        "absent_over_time": _over_time(missing_most, "replica", from_ts, piece_ms),
        "bad_over_time": _over_time(f"({_BAD})", '"window"', from_ts, piece_ms),
        # Each controller that took office, and when; the latest, where there are very many.
        "offices": f"SELECT * FROM ({offices}) ORDER BY ts DESC, epoch DESC, controller LIMIT {CONTROLLERS_MAX}",
    }


def _over_time(spans: str, by: str, from_ts: int, piece_ms: int) -> str:
    """What begins and ends in each piece of time, per `by`: `change`, how many more are open after it, and `ms`, how
    much of the piece that is."""
    ends = f"SELECT {by}, from_ts AS ts, 1 AS sign FROM {spans} UNION ALL SELECT {by}, to_ts, -1 FROM {spans}"
    return f"""
        SELECT {by}, piece, sum(sign) AS change, sum(sign * ({from_ts} + (piece + 1) * {piece_ms} - ts)) AS ms
        FROM (SELECT *, piece_of(ts, {from_ts}, {piece_ms}) AS piece FROM ({ends}))
        GROUP BY {by}, piece ORDER BY {by}, piece"""
