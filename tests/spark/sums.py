"""Whether a replay says the same everywhere: headline, findings, tables, CSV and summary. Read from OUT alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import reduce
from operator import add, and_
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset as ds

from broker_sim.replay.finding import seconds, size

#: Windows whose sums the headline of the report has, by its words.
HEADLINE = {
    "offline": "offline, summed",
    "under_min_isr": "under min ISR, summed",
    "under_replicated": "under-replicated, summed",
}


def disagreements(out: Path) -> Iterator[str]:
    """One line for each number that is not what the tables say."""
    summary = json.loads((out / "summary.json").read_text())
    page = (out / "report.html").read_text()
    yield from _windows(out, summary)
    yield from _headline(summary, page)
    yield from _findings(out, summary, page)
    yield from _incidents(out, summary)
    yield from _csv(out)


def table(out: Path, name: str) -> ds.Dataset:
    return ds.dataset(out / name, format="parquet")


def _windows(out: Path, summary: dict[str, Any]) -> Iterator[str]:
    """The summary's counts are those of the table."""
    rows = table(out, "windows").to_table(columns=["window", "duration_ms", "topic", "partition"]).to_pylist()
    for kind in {row["window"] for row in rows} | set(summary["windows"]):
        of = [row for row in rows if row["window"] == kind]
        told = summary["windows"].get(kind, {})
        counted = {
            "count": len(of),
            "total_ms": sum(row["duration_ms"] for row in of),
            "longest_ms": max((row["duration_ms"] for row in of), default=0),
            "partitions": len({(row["topic"], row["partition"]) for row in of}),
        }
        if {name: told.get(name) for name in counted} != counted:
            yield f"windows {kind}: summary {told}, table {counted}"


def _headline(summary: dict[str, Any], page: str) -> Iterator[str]:
    for kind, words in HEADLINE.items():
        shown = re.search(rf"<b[^>]*>([^<]*)</b><span>{words}</span>", page)
        total = seconds(summary["windows"].get(kind, {}).get("total_ms", 0))
        if shown is None or shown[1] != total:
            yield f"headline {words}: {shown and shown[1]}, summary {total}"


def _findings(out: Path, summary: dict[str, Any], page: str) -> Iterator[str]:
    """Each finding's rows are those that its filter finds, and the page and its table repeat its sentence."""
    written = {row["rank"]: row for row in table(out, "findings").to_table().to_pylist()}
    for finding in summary["findings"]:
        text = finding["text"]
        if written[finding["rank"]]["text"] != text:
            yield f"finding {finding['rank']}: another text in its table"
        if text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") not in page.replace("&#39;", "'"):
            yield f"finding {finding['rank']} is not on the page: {text}"
        if finding["rows"]:
            found = table(out, finding["table"]).count_rows(filter=_expression(finding["filter"]))
            if found != finding["rows"]:
                yield f"{text!r} rests on {finding['rows']} rows; {finding['filter']!r} finds {found}"
        yield from _durations(out, finding)
        if copied := re.search(r"([\d.]+ [kMGT]?B) were copied", text):
            moved = size(pc.sum(table(out, "reassignments").to_table(columns=["copied_bytes"])["copied_bytes"]).as_py())
            if copied[1] != moved:
                yield f"{text!r}: the table says {moved}"


def _durations(out: Path, finding: dict[str, Any]) -> Iterator[str]:
    """`N partitions ..., 1 min 21 s in sum, longest 4.5 s (payments-7)`."""
    sums = re.search(r"(\d+) partitions?\b.*, ([^,]+) in sum, longest ([^(]+) \(", finding["text"])
    if sums is None or finding["table"] != "windows":
        return
    rows = table(out, "windows").to_table(filter=_expression(finding["filter"])).to_pylist()
    counted = (
        str(len({(row["topic"], row["partition"]) for row in rows})),
        seconds(sum(row["duration_ms"] for row in rows)),
        seconds(max(row["duration_ms"] for row in rows)),
    )
    if sums.groups() != counted:
        yield f"{finding['text']!r}: the table says {counted}"


def _incidents(out: Path, summary: dict[str, Any]) -> Iterator[str]:
    """Leaderless partitions that absences account for are no more than there were."""
    offline = summary["windows"].get("offline", {}).get("partitions", 0)
    for finding in summary["findings"]:
        led = re.search(
            r"(\d+) partitions? that it led (?:was|were) without a leader for up to ([^;,.]+)", finding["text"]
        )
        if led and int(led[1]) > offline:
            yield f"{finding['text']!r}: only {offline} partitions were without a leader"


def _csv(out: Path) -> Iterator[str]:
    for path in sorted((out / "csv").glob("*.csv")):
        rows = pyarrow.csv.read_csv(path, parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True)).num_rows
        if rows != table(out, path.stem).count_rows():
            yield f"{path.name} has {rows} rows, the table {table(out, path.stem).count_rows()}"


def _expression(text: str) -> Any:
    """A filter of a finding; None: all rows."""
    return reduce(and_, map(_term, text.split(" and "))) if text else None


def _term(text: str) -> Any:
    parts = re.fullmatch(r"([\w +]+?) (is not null|is null|is true|is false|!=|>=|=|>|<)(?: (.*))?", text)
    assert parts is not None, text
    column, op, value = parts.groups()
    left = reduce(add, [ds.field(name.strip()) for name in column.split("+")])
    right = None if value is None else value.strip("'") if value.startswith("'") else int(value)
    tests = {"is null": left.is_null, "is not null": left.is_valid, "is true": lambda: left, "is false": lambda: ~left}
    compared = {"=": left.__eq__, "!=": left.__ne__, ">": left.__gt__, ">=": left.__ge__, "<": left.__lt__}
    return tests[op]() if op in tests else compared[op](right)
