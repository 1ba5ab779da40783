"""The tables of `outcomes` (what the rules say, lane by lane) and of `derived` (what the history folds)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker_sim.replay.facts import WindowKind
from broker_sim.replay.rows import Measure, OutcomeKind
from broker_sim.replay.schema import COPY_PROGRESS_COLUMNS, DERIVED_TABLES, MEASURE_COLUMNS
from broker_sim.replay.sql.history import ISR_HISTORY, STATE_NOTICES, STATE_WRITES

#: Flaps of shrinks this close in time are taken for one event when their cause is guessed.
_SAME_EVENT_MS: Final = 10_000


def _is(kind: OutcomeKind) -> str:
    return f"kind = '{kind.value}'"


def _count(*kinds: OutcomeKind) -> str:
    return f"count(*) FILTER ({' OR '.join(map(_is, kinds))})"


#: Derived against emitted membership changes, per partition.
_COMPARISON: Final = f"""
    SELECT topic, partition,
        {_count(OutcomeKind.MATCHED, OutcomeKind.MISSING)} AS emitted,
        {_count(OutcomeKind.MATCHED, OutcomeKind.SPURIOUS)} AS replayed,
        {_count(OutcomeKind.MATCHED)} AS matched,
        {_count(OutcomeKind.MISSING)} AS missing,
        {_count(OutcomeKind.SPURIOUS)} AS spurious,
        {_count(OutcomeKind.REFUSED)} AS refused,
        max(abs(error_ms)) FILTER ({_is(OutcomeKind.MATCHED)}) AS time_error_ms_max,
        avg(abs(error_ms)) FILTER ({_is(OutcomeKind.MATCHED)}) AS time_error_ms_mean,
        coalesce(sum(total) FILTER ({_is(OutcomeKind.HW)}), 0)::BIGINT AS hw_rows,
        coalesce(sum(amount) FILTER ({_is(OutcomeKind.HW)}), 0)::BIGINT AS hw_matched
    FROM outcomes GROUP BY topic, partition ORDER BY topic, partition"""
#: What lanes measured (`rows.Measure`), once per leadership.
_OF_MEASURES: Final = {"measure": "change", "value": "amount", "count": "total", "leader_epoch": "epoch"}
_MEASURES: Final = f"""
    SELECT {", ".join(f'"{_OF_MEASURES.get(name, name)}" AS "{name}"' for name in MEASURE_COLUMNS)}
    FROM outcomes WHERE {_is(OutcomeKind.MEASURE)} ORDER BY topic, partition, measure, ts, replica, leader"""
#: How far replicas outside the ISR had copied, over time (§9).
_OF_COPIES: Final = {
    "leo": "amount",
    "start": "left_ms",
    "target": "total",
    "progress": """CASE WHEN total > left_ms
        THEN greatest(0.0, least(1.0, (amount - left_ms) / (total - left_ms))) ELSE 1.0 END""",
}
_COPY_PROGRESS: Final = f"""
    SELECT {", ".join(f'{_OF_COPIES.get(name, name)} AS "{name}"' for name in COPY_PROGRESS_COLUMNS)}
    FROM outcomes WHERE {_is(OutcomeKind.PROGRESS)} ORDER BY topic, partition, replica, ts"""
#: Rows that were not used because no `leader` row stands before them.
_LANE_NOTICES: Final = f"""
    SELECT change AS reason, topic, partition, leader AS broker, amount AS rows, ts AS first_ts
    FROM outcomes WHERE change = '{Measure.ROWS_WITHOUT_LEADER.value}'"""


def _of_fold(name: str, columns: Mapping[str, str]) -> str:
    picked = ", ".join(f'{source} AS "{column}"' for column, source in columns.items())
    first, second = list(columns)[:2]
    return f"""
        SELECT topic, partition, {picked} FROM derived WHERE "table" = '{name}'
        ORDER BY topic, partition, "{first}", "{second}" """


_OF_FOLD: Final = {name: _of_fold(name, columns) for name, columns in DERIVED_TABLES.items()}
#: A guess from what flapped at the same time: a follower, a leader, the pair of them, or one partition (§9).
_FLAPS: Final = f"""
    SELECT * EXCLUDE (event), CASE
        WHEN count(DISTINCT leader) OVER (PARTITION BY replica, event) > 1 THEN 'follower'
        WHEN count(DISTINCT replica) OVER (PARTITION BY leader, event) > 1 THEN 'leader'
        WHEN count(*) OVER (PARTITION BY leader, replica, event) > 1 THEN 'follower_or_link'
        ELSE 'partition' END AS cause
    FROM (SELECT *, floor(shrink_ts / {_SAME_EVENT_MS}) AS event FROM ({_OF_FOLD["flaps"]}))
    ORDER BY topic, partition, replica, leader"""
_KINDS: Final = tuple(kind.value for kind in WindowKind)
_WINDOW: Final = '"window"'
_SUM: Final = "coalesce(sum({}) FILTER ({}), 0)::BIGINT"


def _each_kind(what: str, suffix: str) -> str:
    """`what` with its `{}` replaced by a condition, once for each kind of window."""
    return ", ".join(what.format(f"{_WINDOW} = '{kind}'") + f" AS {kind}_{suffix}" for kind in _KINDS)


def partition_totals(span_ms: int) -> str:
    """Per partition: time, number and longest of each kind of window, deficit, flaps and their rate (§9)."""
    deficit = _SUM.format("deficit_ms", f"{_WINDOW} = '{WindowKind.UNDER_REPLICATED.value}'")
    return f"""
        SELECT spans.*, coalesce(flaps, 0) AS flaps,
            coalesce(flaps, 0) / {max(span_ms, 1) / 3_600_000}::DOUBLE AS flaps_per_hour
        FROM (
            SELECT topic, partition, {_each_kind(_SUM.format("duration_ms", "{}"), "ms")},
                {_each_kind("count(*) FILTER ({})", "count")},
                {_each_kind("max(duration_ms) FILTER ({})", "longest_ms")}, {deficit} AS deficit_ms
            FROM ({_OF_FOLD["windows"]}) GROUP BY topic, partition
        ) AS spans
        LEFT JOIN (SELECT topic, partition, count(*) AS flaps FROM ({_OF_FOLD["flaps"]}) GROUP BY topic, partition)
            USING (topic, partition)
        ORDER BY topic, partition"""


def _notices(*others: str) -> str:
    parts = " UNION ALL ".join(f"({part})" for part in ("SELECT * FROM clock", *others))
    return f"SELECT * FROM ({parts}) ORDER BY reason, topic, partition, broker, first_ts"


#: The tables of rows that are not replayed: name -> question. `clock` are notices of the ingest.
TABLES_OF_ROWS: Final = {"state_writes": STATE_WRITES, "notices": _notices(STATE_NOTICES)}


def tables(span_ms: int) -> dict[str, str]:
    """All tables of a replay over so much time: name -> question."""
    return {
        "isr_history": ISR_HISTORY,
        "state_writes": STATE_WRITES,
        "comparison": _COMPARISON,
        "measures": _MEASURES,
        "copy_progress": _COPY_PROGRESS,
        "partition_totals": partition_totals(span_ms),
        **_OF_FOLD,
        "flaps": _FLAPS,
        "notices": _notices(STATE_NOTICES, _LANE_NOTICES),
    }
