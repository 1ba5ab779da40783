"""What an incident did to partitions: counted in the tables, of which no more is held than the rows of one broker."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc
import pyarrow.dataset as ds

from broker_sim.replay.chronicle import Incident, IncidentKind
from broker_sim.replay.tables import dataset

#: Incidents whose effects are counted; of more, the longest.
COUNTED_MAX: Final = 60
#: A window may begin this much before the last row of the broker that it is about: clocks differ.
_CLOCKS_DIFFER_MS: Final = 1_000
#: A session ends at most this long after its broker did.
_SESSION_MAX_MS: Final = 60_000
_OF_BROKERS: Final = (IncidentKind.GONE, IncidentKind.STOPPED, IncidentKind.SESSION_LOST)
_OF_FOLLOWERS: Final = (IncidentKind.BEHIND, IncidentKind.PAUSED)


def with_effects(out: Path, incidents: Sequence[Incident], *, end_ts: int) -> list[dict[str, Any]]:
    """Each incident as a row, with what it did: `offline`, `short` (see there).

    `end_ts`: the end of the trace.
    """
    longest = sorted(incidents, key=lambda one: one.from_ts - (one.to_ts or end_ts))[:COUNTED_MAX]
    return [_row(out, one, end_ts, _back_before(one, incidents)) for one in incidents if one in longest]


def _back_before(one: Incident, incidents: Sequence[Incident]) -> int:
    """Since when the broker of an absence was there, as far as it matters: it was lost after that."""
    earlier = (i.to_ts for i in incidents if i.kind in _OF_BROKERS and i.who == one.who and i.from_ts < one.from_ts)
    return max((ts for ts in earlier if ts is not None), default=0)


def _row(out: Path, one: Incident, end_ts: int, there_ts: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "kind": one.kind.value,
        "who": one.who,
        "from_ts": one.from_ts,
        "to_ts": one.to_ts,
        "partitions": one.partitions,
        "before": one.before,
        "epoch": one.epoch,
        "topic": one.topic,
        "offline": None,
        "short": None,
    }
    until = end_ts if one.to_ts is None else one.to_ts
    if one.kind in _OF_FOLLOWERS:
        row["short"] = _short(out, one.who, one.from_ts, until, ds.field("left_by") == "leader")
    elif one.kind in _OF_BROKERS:
        since = one.from_ts - _CLOCKS_DIFFER_MS
        lost = _lost_ts(out, one, since, there_ts) if one.kind is IncidentKind.GONE else None
        if lost is not None:
            row["from_ts"] = min(one.from_ts, lost)
            since = min(since, lost)
        row["short"] = _short(out, one.who, since, until, ds.field("left_by") != "added")
        row["offline"] = _offline(out, one.who, since, until)
    return row


def _matching(out: Path, table: str, columns: list[str], *conditions: Any) -> Any:
    return dataset(out, table).to_table(columns=columns, filter=reduce(and_, conditions))


def _lost_ts(out: Path, one: Incident, since: int, there_ts: int) -> int | None:
    """When others lost a broker whose session ended at the beginning of `one`: the partitions that it led were without
    a leader from then on. None: nothing tells of it."""
    field = ds.field
    least = max(there_ts, one.from_ts - _SESSION_MAX_MS)
    windows = _matching(
        out,
        "windows",
        ["from_ts"],
        field("window") == "offline",
        field("leader") == one.who,
        field("from_ts") >= least,
        field("from_ts") < since,
        field("to_ts") >= since,
    )
    found: int | None = pc.min(windows["from_ts"]).as_py()
    return found


def _offline(out: Path, broker: int, since: int, until: int) -> dict[str, Any]:
    """Partitions that the broker led and nobody did after it: how many, for how long at most and summed."""
    field = ds.field
    windows = _matching(
        out,
        "windows",
        ["topic", "partition", "duration_ms", "is_open"],
        field("window") == "offline",
        field("leader") == broker,
        field("from_ts") >= since,
        field("from_ts") <= until,
    )
    return {
        "windows": windows.num_rows,
        "partitions": _partitions(windows),
        "longest_ms": pc.max(windows["duration_ms"]).as_py() or 0,
        "open": int(pc.sum(windows["is_open"]).as_py() or 0),
    }


def _short(out: Path, broker: int, since: int, until: int, left: Any) -> dict[str, Any]:
    """Partitions that lacked the broker's replica: how many, until when, and how many still do.

    The rows of `catch_up` that say so, for which `left` holds, left between `since_ts` and `to_ts`; their number is
    `rows`.
    """
    field = ds.field
    outside = _matching(
        out,
        "catch_up",
        ["topic", "partition", "joined_ts", "out_of_isr_ms"],
        field("replica") == broker,
        left,
        field("left_ts") >= since,
        field("left_ts") <= until,
    )
    return {
        "rows": outside.num_rows,
        "since_ts": since,
        "to_ts": until,
        "partitions": _partitions(outside),
        "until_ts": pc.max(outside["joined_ts"]).as_py(),
        "longest_ms": pc.max(outside["out_of_isr_ms"]).as_py() or 0,
        "open": int(outside["joined_ts"].null_count),
    }


def _partitions(rows: Any) -> int:
    return int(rows.group_by(["topic", "partition"]).aggregate([]).num_rows)
