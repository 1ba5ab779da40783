"""The table `isr_history`, and the table of every write of a partition's state znode that the rows tell of.

Of `trace` (the rows that are not bulk), `outcomes`.
"""

from __future__ import annotations

from typing import Final

from broker_sim.replay.facts import ISR_CHANGES
from broker_sim.replay.schema import (
    ISR_HISTORY_COLUMNS,
    PARTITION_KEY,
    SRC_INFERRED,
    STATE_WRITE_COLUMNS,
    TRACE_COLUMNS,
)
from broker_sim.replay.sql.facts import EMITTED
from broker_sim.replay.sql.run import first_of, texts

_LEADS: Final = first_of(
    "(SELECT * FROM trace WHERE ev = 'leader')",
    list(TRACE_COLUMNS),
    [*PARTITION_KEY, "epoch", "broker"],
    order=["ts", "seq"],
)
#: One row per change: what brokers and controllers wrote, and what the rules derived beside it.
ISR_HISTORY: Final = f"""
    WITH written AS (
        SELECT topic, partition, ts, CASE ev WHEN 'elect' THEN 'controller' ELSE ev END AS event,
            CASE ev WHEN 'elect' THEN replica ELSE broker END AS leader, epoch AS leader_epoch,
            isr_old, isr, source_of(src) AS source, zk_version
        FROM ({EMITTED} UNION ALL BY NAME {_LEADS} UNION ALL BY NAME SELECT * FROM trace WHERE ev = 'elect')),
    both_kinds AS (
        SELECT * REPLACE (coalesce(isr_old, lag(isr) OVER (
            PARTITION BY topic, partition ORDER BY leader_epoch, zk_version NULLS LAST, ts, event)) AS isr_old)
        FROM written
        UNION ALL BY NAME
        SELECT topic, partition, ts, kind AS event, leader, epoch AS leader_epoch, isr_old, isr, 'replayed' AS source
        FROM outcomes WHERE kind IN {texts(ISR_CHANGES)})
    SELECT {", ".join(ISR_HISTORY_COLUMNS)} FROM both_kinds
    ORDER BY topic, partition, ts, leader_epoch, event, source, leader, isr"""

#: Who tells best when a version was written: who wrote it, then who was told; before all, who does not guess.
_RANK: Final = f"""
    (CASE ev WHEN 'elect' THEN 1 WHEN 'leader' THEN 2 ELSE 0 END)
    + CASE WHEN src = '{SRC_INFERRED}' THEN 10 ELSE 0 END"""
#: `value` of an assignment with which a topic begins anew.
_CREATED: Final = "coalesce(ev = 'assign' AND value = 'created', false)"
#: One row per version. Several rows tell of one (the leader that wrote it, the controller that did, the leader that was
#: told): they are joined on (partition, version), whatever their clocks say. Source: isr-replay.md §8.5.
_VERSIONS: Final = f"""
    SELECT topic, partition, generation, zk_version, max(epoch) AS leader_epoch,
        first({{leader: leader, isr: isr, ts: ts, written_by: written_by, source: source}}
            ORDER BY rank, ts, leader, isr, source) AS best,
        min(list_sort(isr)) != max(list_sort(isr)) AS differs, min(ts) AS first_ts
    FROM (
        SELECT topic, partition, coalesce(done, ts) AS ts, {_CREATED} AS created, zk_version, epoch, isr,
            CASE ev WHEN 'elect' THEN replica ELSE broker END AS leader,
            CASE WHEN ev IN {texts(ISR_CHANGES)} THEN 'leader' ELSE 'controller' END AS written_by,
            source_of(src) AS source, {_RANK} AS rank,
            (sum({_CREATED}::INT) OVER (
                PARTITION BY topic, partition ORDER BY coalesce(done, ts), {_CREATED} DESC
                ROWS UNBOUNDED PRECEDING))::BIGINT AS generation
        FROM trace WHERE partition IS NOT NULL AND ({_CREATED} OR (
            ev IN {texts((*ISR_CHANGES, "elect", "leader"))} AND zk_version IS NOT NULL AND isr IS NOT NULL
            AND coalesce(err, 0) = 0)))
    WHERE NOT created GROUP BY topic, partition, generation, zk_version"""
#: Sorted by partition, generation (how often the topic was created), version.
STATE_WRITES: Final = f"""
    SELECT {", ".join(STATE_WRITE_COLUMNS)} FROM (SELECT *, unnest(best) FROM ({_VERSIONS}))
    ORDER BY topic, partition, generation, zk_version"""
CONTRADICTORY_STATE: Final = "contradictory_state"
MISSING_STATE: Final = "missing_state"
#: Versions about which rows disagree, and versions that no row tells of, because a file is missing: of `notices`.
STATE_NOTICES: Final = f"""
    WITH versions AS (SELECT *, zk_version - 1 - lag(zk_version) OVER (
        PARTITION BY topic, partition, generation ORDER BY zk_version) AS gap FROM ({_VERSIONS})),
    counted AS (
        SELECT topic, partition, min(first_ts) FILTER (differs OR gap > 0) AS first_ts,
            unnest([{{reason: '{CONTRADICTORY_STATE}', rows: count(*) FILTER (differs)}},
                {{reason: '{MISSING_STATE}', rows: coalesce(sum(gap), 0)::BIGINT}}]) AS one
        FROM versions GROUP BY topic, partition)
    SELECT one.reason AS reason, topic, partition, NULL::INT AS broker, one.rows AS rows, first_ts
    FROM counted WHERE one.rows > 0"""
