"""`kwob replay show`: tables of a replay as text, without Spark. A row of history is one change, however often told."""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import reduce
from itertools import groupby
from operator import and_, itemgetter
from pathlib import Path
from typing import Any, Final

import pyarrow.dataset as ds
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from broker_sim.replay.errors import ReplayRefused
from broker_sim.replay.finding import seconds
from broker_sim.replay.schema import SRC_INFERRED, SRC_LOG, SRC_METADATA, SRC_SNAPSHOT
from broker_sim.replay.tables import dataset

HISTORY: Final = "isr_history"
#: Tables that can be shown, with the column that orders their rows.
SHOWN: Final = {
    HISTORY: "ts",
    "windows": "from_ts",
    "catch_up": "left_ts",
    "flaps": "shrink_ts",
    "reassignments": "start_ts",
    "measures": "ts",
    "findings": "rank",
}
_EVENTS: Final = {
    "isr_shrink": "ISR shrinks",
    "isr_expand": "ISR expands",
    "leader": "leads",
    "controller": "elected",
}
#: Who told of a change, best first: the broker itself, the log of the controllers, the broker's log, a state of later,
#: the rules alone.
SOURCES: Final = ("trace", SRC_METADATA, SRC_LOG, SRC_SNAPSHOT, SRC_INFERRED, "replayed")
_TIMES: Final = ("ts", "_ts")

Row = dict[str, Any]


def rows_of(
    out: Path, table: str, *, topic: str | None, partition: int | None, limit: int, last: bool = False
) -> list[Row]:
    """The first or `last` `limit` rows by time of a table, of one topic or partition where asked; history as `merged`.

    Raises: ReplayRefused, when `out` is no result of a replay, or the table is not there.
    """
    if not (out / "summary.json").is_file():
        raise ReplayRefused(f"{out} is not the result of a replay")
    if table not in SHOWN:
        raise ReplayRefused(f"no table {table!r} to show; there are {', '.join(SHOWN)}")
    if not (out / table).is_dir():
        raise ReplayRefused(f"{out} has no table {table}")
    data, order = dataset(out, table), SHOWN[table]
    conditions = [
        ds.field(name) == value for name, value in (("topic", topic), ("partition", partition)) if value is not None
    ]
    if conditions and "topic" not in data.schema.names:
        raise ReplayRefused(f"rows of {table} are not of one topic")
    batches = data.to_batches(filter=reduce(and_, conditions) if conditions else None)
    rows: Iterable[Row] = (row for batch in batches for row in batch.to_pylist())
    if table == HISTORY:
        rows = _changes(rows)

    def place(row: Row) -> tuple[Any, ...]:
        return row[order] or 0, row.get("topic") or "", row.get("partition") or 0

    return sorted((heapq.nlargest if last else heapq.nsmallest)(limit, rows, key=place), key=place)


def _changes(rows: Iterable[Row]) -> Iterator[Row]:
    """Rows of the table, which has those of a partition together, as `merged`: before any is left out, for of a change
    whose other rows were, nothing would tell that they had been."""
    for _, of_partition in groupby(rows, key=itemgetter("topic", "partition")):
        yield from merged(sorted(of_partition, key=itemgetter("ts")))


def merged(rows: Iterable[Row]) -> Iterator[Row]:
    """Rows of history where what a broker wrote and what the rules derived of it are one row.

    `source` is the best of its sources, `derived` whether the rules came to the same change. A replica that flaps
    leaves the same ISR behind again and again: the first told by one source is the first told by the other.
    """
    same: dict[tuple[Any, ...], Row] = {}
    seen: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        place = (row["topic"], row["partition"], row["event"], row["leader"], row["leader_epoch"])
        change = (*place, frozenset(row["isr"] or ()))
        seen[change, row["source"]] += 1
        key = (*change, seen[change, row["source"]])
        before = same.get(key)
        derived = row["source"] == "replayed"
        if before is None:
            same[key] = {**row, "derived": derived}
        elif SOURCES.index(row["source"]) < SOURCES.index(before["source"]):
            same[key] = {**row, "derived": before["derived"] or derived}
        else:
            before["derived"] = before["derived"] or derived
    yield from sorted(same.values(), key=lambda row: (row["ts"], row["topic"], row["partition"]))


def print_rows(console: Console, table: str, rows: list[Row]) -> None:
    """A table for people."""
    if not rows:
        console.print("no such row", highlight=False)
        return
    shown = [_change(row) for row in rows] if table == HISTORY else rows
    columns = [name for name in shown[0] if any(row[name] is not None for row in shown)]
    view = Table(box=SIMPLE, padding=(0, 1, 0, 0))
    for name in columns:
        view.add_column(name.removesuffix("_ts"), overflow="fold")
    for row in shown:
        view.add_row(*(escape(_cell(row[name], name)) for name in columns))
    console.print(view)


def _change(row: Row) -> Row:
    told_by = {"replayed": "the rules alone"}.get(row["source"], row["source"])
    return {
        "time (UTC)": _clock(row["ts"]),
        "partition": f"{row['topic']}-{row['partition']}",
        "event": _EVENTS.get(row["event"], row["event"]),
        "leader": "none" if (row["leader"] or 0) < 0 else row["leader"],
        "epoch": row["leader_epoch"],
        "ISR before": row["isr_old"],
        "ISR": row["isr"],
        "told by": f"{told_by}, rules agree" if row["derived"] and row["source"] != "replayed" else told_by,
    }


def _cell(value: Any, column: str) -> str:
    if value is None:
        return "–"
    if column.endswith(_TIMES[1]) or column == _TIMES[0]:
        return _clock(value)
    if column.endswith("_ms") and isinstance(value, int):
        return seconds(value)
    if isinstance(value, list):
        return ",".join(map(str, value)) or "none"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _clock(ts: int) -> str:
    return datetime.fromtimestamp(ts / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def print_json(rows: list[Row]) -> None:
    """One JSON object per line."""
    for row in rows:
        print(json.dumps(row))
