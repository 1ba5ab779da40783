"""What `PartitionHistory` folds: changes as written (derived where there are none), assignments, outcomes.

Of `trace` (the rows that are not bulk) and `outcomes`. Columns: topic, partition, `FACT_COLUMNS`; unordered.
"""

from __future__ import annotations

from typing import Final

from broker_sim.replay.facts import FACT_EVENTS, FACT_OUTCOMES, ISR_CHANGES, STOP_FACTS
from broker_sim.replay.schema import FACT_COLUMNS, FACT_TYPES, LANE_KEY, OUTCOME_COLUMNS, TRACE_COLUMNS
from broker_sim.replay.sql.run import first_of, texts, typed

_TRACE: Final = list(TRACE_COLUMNS)
#: ISR writes that succeeded, as the leaders wrote them: one row per write.
EMITTED: Final = first_of(
    f"""(SELECT * FROM trace
        WHERE ev IN {texts(ISR_CHANGES)} AND partition IS NOT NULL AND coalesce(err, 0) = 0)""",
    _TRACE,
    [*LANE_KEY, "run", "ev", "epoch", "ts", "isr"],
    order=["seq"],
)
#: Facts as they stand; a deletion that names the topic alone, as log lines do, once for each of its partitions.
_OTHERS: Final = f"""
    SELECT * FROM trace WHERE partition IS NOT NULL
        AND (ev IN {texts(FACT_EVENTS)} OR (ev = 'stop' AND value IN {texts(tuple(STOP_FACTS))}))
    UNION ALL BY NAME
    SELECT deleted.* EXCLUDE (partition), named.partition
    FROM (SELECT * FROM trace WHERE ev = 'delete' AND partition IS NULL) AS deleted
    JOIN (SELECT DISTINCT topic, partition FROM trace WHERE partition IS NOT NULL) AS named USING (topic)"""
_STOPS: Final = " ".join(f"WHEN '{value}' THEN '{kind}'" for value, kind in STOP_FACTS.items())


def _as_facts(rows: str, columns: tuple[str, ...], *, recorded: bool, **made: str) -> str:
    values = {name: f'"{name}"' for name in columns} | made
    picked = (
        f'CAST({values.get(name, "NULL")} AS {typed(FACT_TYPES.get(name, "bigint"))}) AS "{name}"'
        for name in FACT_COLUMNS
    )
    return f"SELECT topic, partition, {', '.join(picked)}, {recorded} AS recorded FROM ({rows})"


_ALL: Final = " UNION ALL ".join(
    (
        _as_facts(EMITTED, TRACE_COLUMNS, recorded=True, leader="broker", kind="ev", source="source_of(src)"),
        _as_facts(
            _OTHERS,
            TRACE_COLUMNS,
            recorded=True,
            leader="CASE WHEN ev IN ('leader', 'stop') THEN broker END",
            kind=f"CASE WHEN ev = 'stop' THEN CASE value {_STOPS} END ELSE ev END",
            source="source_of(src)",
        ),
        _as_facts(
            f"SELECT * FROM outcomes WHERE kind IN {texts((*ISR_CHANGES, *FACT_OUTCOMES))}",
            OUTCOME_COLUMNS,
            recorded=False,
            source="'replayed'",
        ),
    )
)
_CHANGED: Final = f"kind IN {texts(ISR_CHANGES)}"
FACTS: Final = f"""
    SELECT * EXCLUDE (recorded, has_recorded) FROM (
        SELECT *, bool_or({_CHANGED} AND recorded) OVER (PARTITION BY topic, partition) AS has_recorded FROM ({_ALL}))
    WHERE NOT {_CHANGED} OR recorded OR NOT has_recorded"""
