"""`report.html`: one self-contained file. What is drawn where is decided here; words and looks are in `report.html.j2`.

Positions are percentages of the span of the trace, so that the page fits any width. Every read is bounded: the report
shows the partitions with the most trouble, and says how many it leaves out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow.dataset as ds
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from broker_sim.replay.findings import Finding, seconds
from broker_sim.replay.tables import read_rows

#: Rows of history and of windows that are drawn at most.
DRAWN_ROWS_MAX: Final = 20_000
_TIME_MARKS: Final = 4
_CATCH_UPS_SHOWN: Final = 25
#: A segment narrower than this (percent) has no room for its number.
_LABEL_MIN: Final = 1.6
#: Leaders that follow each other closer than this (percent): only the last is named.
_MARK_ROOM: Final = 2.5
_SHOWN_WINDOWS: Final = ("under_replicated", "under_min_isr", "offline", "reassigning")


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A piece of a strip: where, how it looks, what it says."""

    left: float
    width: float
    look: str
    label: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """One line of a timeline."""

    name: str
    segments: list[Segment]
    marks: list[Segment]


@dataclass(frozen=True, slots=True)
class Span:
    """The time that the report covers, ms."""

    start: int
    end: int

    def at(self, ts: int) -> float:
        """Where `ts` is, in percent."""
        return round(100 * (min(max(ts, self.start), self.end) - self.start) / max(1, self.end - self.start), 3)

    def piece(self, start: int, end: int, look: str, *, label: str = "", title: str = "") -> Segment:
        """A segment from `start` to `end`."""
        left = self.at(start)
        width = round(self.at(end) - left, 3)
        return Segment(left=left, width=width, look=look, label=label if width >= _LABEL_MIN else "", title=title)

    def marks(self) -> list[tuple[float, str]]:
        """Evenly spaced times, with their UTC clock."""
        step = (self.end - self.start) / _TIME_MARKS
        return [(self.at(ts), clock(ts)) for ts in (int(self.start + i * step) for i in range(_TIME_MARKS + 1))]


def write_report(
    out: Path, target: Path, summary: dict[str, Any], troubles: dict[str, Any], findings: Sequence[Finding]
) -> None:
    """Writes the report on the tables in `out` to `target`."""
    span = Span(summary["from_ts"], summary["to_ts"])
    shown = [(row["topic"], row["partition"]) for row in troubles["partitions_shown"]]
    history, windows = _by_partition(out, "isr_history", shown), _by_partition(out, "windows", shown)
    environment = Environment(
        loader=PackageLoader("broker_sim.replay", "."),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(seconds=seconds, clock=clock, joined=lambda ids: ", ".join(map(str, ids or ())))
    page = environment.get_template("report.html.j2").render(
        summary=summary,
        troubles=troubles,
        findings=findings,
        span=span,
        day=datetime.fromtimestamp(span.start / 1000, UTC).strftime("%Y-%m-%d"),
        strips=[_strip(span, tp, history[tp], windows[tp]) for tp in shown],
        left_out=summary["partitions"] - len(shown),
        catch_ups=_catch_ups(out),
        controllers=_controllers(span, troubles["controllers"]),
        epochs=_epochs(span, shown, history),
        compared=list(read_rows(out, "comparison", where=_among(shown), limit=DRAWN_ROWS_MAX)),
    )
    target.write_text(page, encoding="utf-8")


def clock(ts: int | None) -> str:
    """UTC time of day of `ts`, with ms."""
    return "–" if ts is None else datetime.fromtimestamp(ts / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]


TopicPartition = tuple[str, int]


def _among(shown: Iterable[TopicPartition]) -> Any:
    topics = sorted({topic for topic, _ in shown})
    return ds.field("topic").isin(topics)


def _by_partition(out: Path, table: str, shown: Sequence[TopicPartition]) -> dict[TopicPartition, list[dict[str, Any]]]:
    rows: dict[TopicPartition, list[dict[str, Any]]] = defaultdict(list)
    wanted = set(shown)
    for row in read_rows(out, table, where=_among(shown), limit=DRAWN_ROWS_MAX):
        if (row["topic"], row["partition"]) in wanted:
            rows[row["topic"], row["partition"]].append(row)
    return rows


def _strip(span: Span, tp: TopicPartition, history: list[dict[str, Any]], windows: list[dict[str, Any]]) -> Strip:
    changes = _as_written(history)
    segments = [
        span.piece(
            row["ts"],
            next_ts,
            "isr",
            label=str(len(row["isr"])),
            title=f"{clock(row['ts'])} ISR {row['isr']} leader {row['leader']} epoch {row['leader_epoch']}",
        )
        for row, next_ts in zip(changes, [*(r["ts"] for r in changes[1:]), span.end], strict=True)
    ]
    drawn = [
        span.piece(
            w["from_ts"],
            w["to_ts"],
            w["window"].replace("_", "-"),
            title=f"{w['window'].replace('_', ' ')}, {seconds(w['duration_ms'])} from {clock(w['from_ts'])}",
        )
        for kind in _SHOWN_WINDOWS
        for w in windows
        if w["window"] == kind
    ]
    return Strip(name=f"{tp[0]}-{tp[1]}", segments=[*drawn, *segments], marks=_leader_marks(span, changes))


def _as_written(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Changes in order: as they were written, or as derived where the partition has none of the leader."""
    told = any(row["source"] != "replayed" and row["event"].startswith("isr_") for row in history)
    rows = [row for row in history if row["isr"] is not None and (row["source"] == "replayed") <= (not told)]
    return sorted(rows, key=lambda row: (row["ts"], row["leader_epoch"]))


def _leader_marks(span: Span, changes: list[dict[str, Any]]) -> list[Segment]:
    marks: list[Segment] = []
    last = None
    for row in changes:
        if row["leader"] != last:
            look = "leader" if row["leader"] is not None and row["leader"] >= 0 else "nobody"
            title = f"{clock(row['ts'])} leader {row['leader']}, epoch {row['leader_epoch']}"
            left = span.at(row["ts"])
            if marks and left - marks[-1].left < _MARK_ROOM:
                marks[-1] = replace(marks[-1], label="")
            marks.append(Segment(left=left, width=0, look=look, label=str(row["leader"]), title=title))
            last = row["leader"]
    return marks


def _catch_ups(out: Path) -> list[dict[str, Any]]:
    """The longest absences that ended, with their parts in percent of the longest."""
    rows = [r for r in read_rows(out, "catch_up", limit=DRAWN_ROWS_MAX) if r["joined_ts"] is not None]
    rows.sort(key=lambda r: -(r["out_of_isr_ms"] or r["catch_up_ms"] or 0))
    rows = rows[:_CATCH_UPS_SHOWN]
    longest = max((r["out_of_isr_ms"] or r["catch_up_ms"] or 0 for r in rows), default=0) or 1
    for row in rows:
        catching = row["catch_up_ms"] or 0
        row["catching"] = round(100 * catching / longest, 2)
        row["silent"] = round(100 * max(0, (row["out_of_isr_ms"] or catching) - catching) / longest, 2)
    return rows


def _controllers(span: Span, rows: list[dict[str, Any]]) -> list[Strip]:
    return [
        Strip(
            name=f"controller {row['controller']}",
            segments=[
                span.piece(row["from_ts"], row["to_ts"] + 1, "acted", title=f"{row['rows']} decisions"),
            ],
            marks=[],
        )
        for row in sorted(rows, key=lambda r: int(r["from_ts"]))
    ]


def _epochs(
    span: Span, shown: Sequence[TopicPartition], history: dict[TopicPartition, list[dict[str, Any]]]
) -> dict[str, Any]:
    """Leader epochs as step lines in a box of 100 x 100."""
    top = max((r["leader_epoch"] or 0 for rows in history.values() for r in rows), default=0) or 1
    lines = []
    for tp in shown:
        path, last = "", None
        for row in _as_written(history[tp]):
            if row["leader_epoch"] != last:
                x, y = span.at(row["ts"]), round(96 - 92 * (row["leader_epoch"] or 0) / top, 2)
                path += f"H{x}V{y}" if path else f"M{x} {y}"
                last = row["leader_epoch"]
        if path:
            lines.append({"path": path + "H100", "name": f"{tp[0]}-{tp[1]}", "last": last})
    return {"top": top, "lines": lines}
