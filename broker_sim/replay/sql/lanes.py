"""Rows that are not of one partition, once for each lane that they concern: starts, settings, who is alive, ticks.

Of `trace` (the rows that are not bulk) and `processes`, as `ingest.layout` has them. Columns: `LANE_COLUMNS`.
"""

from __future__ import annotations

from typing import Final

from broker_sim.replay.logs.waiting_rows import SEQ_SHIFT
from broker_sim.replay.rows import ALIVENESS_RUN, RULES_OFF
from broker_sim.replay.schema import ALIVENESS, LANE_COLUMNS, LANE_KEY, LANE_TYPES
from broker_sim.replay.sql.run import texts, typed
from controller.wire.trace import COLUMNS

_LEADERSHIP: Final = ("leader", "follower", "stop")
_OF_BROKER: Final = ("start", "down", "config")


def _lane_rows(sql: str, row: str, **columns: str) -> str:
    """Rows of lanes: `columns` as given, those of the lane from `k`, others from the trace's row `row`."""
    of_row = {name: f'{row}."{name}"' for name in COLUMNS} if row else {}
    values = of_row | {name: f"k.{name}" for name in LANE_KEY} | columns
    picked = (f'CAST({values.get(name, "NULL")} AS {typed(LANE_TYPES[name])}) AS "{name}"' for name in LANE_COLUMNS)
    return f"SELECT {', '.join(picked)} {sql}"


#: Lanes that were ever led. A file of one process of one broker tells what that broker knew; a trace of unknown origin
#: may be of controllers.
_KEYS: Final = """
    SELECT topic, partition, broker, max(run) > 0 AS has_own_view FROM trace
    WHERE role = 'broker' AND partition IS NOT NULL AND ev = 'leader' GROUP BY ALL"""
#: Starts, ends, settings of a broker, and its view of the others, once per partition that it ever led.
_BROKER_ROWS: Final = _lane_rows(
    f"""FROM trace AS r
        LEFT JOIN (SELECT broker, run, ticks, last_ts FROM processes WHERE role = 'broker') AS p USING (broker, run)
        JOIN keys AS k ON r.broker = k.broker AND (r.topic IS NULL OR r.topic = k.topic)
        WHERE r.role = 'broker' AND r.partition IS NULL
            AND (r.ev IN {texts(_OF_BROKER)} OR (r.ev IN {texts(ALIVENESS)} AND r.run > 0))""",
    "r",
    run="r.run",
    of_topic="r.topic IS NOT NULL",
    run_ticks="p.ticks",
    run_end="p.last_ts",
)
#: One row per lane of a broker of which only log lines are known: they tell of no fetch, so no rule can be run.
_RULES_OFF: Final = _lane_rows(
    """FROM keys AS k SEMI JOIN (
        SELECT broker FROM processes WHERE role = 'broker' GROUP BY broker HAVING sum(bulk) = 0 AND sum(logged) > 0
        ) AS blind USING (broker)""",
    "",
    run=str(ALIVENESS_RUN),
    seq="-1",
    ts="0",
    ev=f"'{RULES_OFF}'",
)
#: The broker's ticks, once per partition that it leads at that moment.
_TICKS: Final = _lane_rows(
    f"""FROM (SELECT * FROM trace WHERE role = 'broker' AND ev = 'tick' AND partition IS NULL) AS t
        JOIN (
            SELECT topic, partition, broker, run, ev, seq AS from_seq,
                lead(seq) OVER (PARTITION BY topic, partition, broker, run ORDER BY seq) AS to_seq
            FROM trace WHERE role = 'broker' AND ev IN {texts(_LEADERSHIP)} QUALIFY ev = 'leader'
        ) AS k ON t.broker = k.broker AND t.run = k.run AND t.seq > k.from_seq
            AND (k.to_seq IS NULL OR t.seq < k.to_seq)""",
    "t",
    run="t.run",
)
#: Brokers that came and went as controllers saw it, once per lane; they take effect by their time. A lane whose broker
#: tells its own view needs them for one thing: that the leader itself died.
_ALIVE: Final = _lane_rows(
    f"""FROM trace AS r CROSS JOIN keys AS k
        WHERE r.ev IN {texts(ALIVENESS)}
            AND (NOT k.has_own_view OR (r.role = 'controller' AND r.replica = k.broker))""",
    "r",
    run=str(ALIVENESS_RUN),
    seq="r.ts",  # the seq of another emitter means nothing here: rows are ordered by time
)
#: Settings that a controller tells (a KRaft cluster's metadata log has them once, not once a broker): those of a topic
#: for its lanes, those of a broker for its own, those of all brokers for all. They take effect by their time.
_CLUSTER_CONFIGS: Final = _lane_rows(
    """FROM trace AS r JOIN keys AS k
        ON r.topic = k.topic OR (r.topic IS NULL AND (r.replica IS NULL OR r.replica = k.broker))
        WHERE r.role = 'controller' AND r.ev = 'config'""",
    "r",
    run="0",
    seq=f"r.ts * {1000 << SEQ_SHIFT}",
    of_topic="r.topic IS NOT NULL",
)
SHARED_ROWS: Final = f"WITH keys AS ({_KEYS}) " + " UNION ALL ".join(
    (_BROKER_ROWS, _RULES_OFF, _TICKS, _ALIVE, _CLUSTER_CONFIGS)
)
