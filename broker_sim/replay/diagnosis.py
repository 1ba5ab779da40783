"""What the tables say, in aggregates of bounded size: the only thing that findings, summary and report are made of.

DuckDB answers the questions (`questions`, `out_of_sync`), at once, where Spark would plan for longer than it reads.
Words are in `findings`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import duckdb

from broker_sim.replay import out_of_sync
from broker_sim.replay.questions import QUESTIONS, TABLES, WHAT_IF, macros
from broker_sim.replay.sql import run

#: Tables that are there where they were asked for, or where a metadata log was read.
_OPTIONAL: Final = ("what_if", "controllers")


def troubles_of(out: Path, rows: run.Folders, *, scratch: Path, from_ts: int, to_ts: int) -> dict[str, Any]:
    """Aggregates of the tables in `out` and of ingested rows (`Ingested.tables`), whose times lie in [from_ts, to_ts].

    Of each row of an answer only the columns that have a value are there.
    """
    folders = {name: out / name for name in TABLES} | dict(rows)
    folders |= {name: out / name for name in _OPTIONAL if (out / name).exists()}
    questions = QUESTIONS | (WHAT_IF if "what_if" in folders else {})
    questions |= out_of_sync.questions(from_ts=from_ts, to_ts=to_ts, of_metadata="controllers" in folders)
    with run.tables(folders, scratch) as tables:
        for statement in macros(from_ts, to_ts):
            tables.execute(statement)
        found = {name: list(_rows(tables.execute(question))) for name, question in questions.items()}
    return found | _in_all(found)


def _rows(answer: duckdb.DuckDBPyConnection) -> Iterator[dict[str, Any]]:
    columns = [column[0] for column in answer.description or ()]
    for row in answer.fetchall():
        yield {name: value for name, value in zip(columns, row, strict=True) if value is not None}


def _in_all(found: Mapping[str, list[dict[str, Any]]]) -> dict[str, Any]:
    totals, partitions = found["totals"][0], found["partitions_in_all"][0]
    return {
        "what_if": found.get("what_if", []),
        **partitions,
        "brokers": sorted(row["leader"] for row in found["leaders"]),
        "comparison": {k: v for k, v in totals.items() if not k.endswith("partitions")},
        "windows": {row.pop("window"): row for row in found["windows"]},
        "changes": {f"{row['source']}.{row['event']}": row["count"] for row in found["changes"]},
    }
