"""`report.html`: one self-contained file. What is read for it is decided here; words and looks are in `report.html.j2`.

Every read is bounded: the report shows the partitions with the most trouble and aggregates of all, and says how many
it leaves out. Charts are SVG with a little script of our own: a plotting library would be larger than the report.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import reduce
from importlib.resources import files
from operator import and_, or_
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc
import pyarrow.dataset as ds
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from broker_sim.replay.finding import Finding, Where, count, seconds, size
from broker_sim.replay.report import figures, out_of_sync
from broker_sim.replay.report.figures import Span, Strip
from broker_sim.replay.tables import dataset, read_rows, worst_rows
from broker_sim.replay.what_if_limits import in_words

#: Rows of history, and of windows, that are read at most.
DRAWN_ROWS_MAX: Final = 20_000
#: Rows shown below a finding.
SAMPLE_ROWS: Final = 8
#: table -> the column whose greatest values are the worst.
_WORST_BY: Final = {
    "windows": "duration_ms",
    "catch_up": "out_of_isr_ms",
    "flaps": "out_of_isr_ms",
    "reassignments": "duration_ms",
    "measures": "worst",
}
_CATCH_UPS_SHOWN: Final = 20
_CURVES_SHOWN: Final = 8
_CURVE_ROWS_MAX: Final = 400
_PACKAGE: Final = "broker_sim.replay.report"
#: Columns of times: shown as clock times, others that end so as durations.
_DURATION: Final = "_ms"
_TIME: Final = "_ts"

TopicPartition = tuple[str, int]
Row = dict[str, Any]


def write_report(
    out: Path, target: Path, summary: dict[str, Any], troubles: dict[str, Any], findings: Sequence[Finding]
) -> None:
    """Writes the report on the tables in `out` to `target`."""
    span = Span(summary["from_ts"], summary["to_ts"])
    shown = [(row["topic"], row["partition"]) for row in troubles["partitions_shown"]]
    strips = _strips(out, span, shown)
    flap_map = figures.flap_map(span, troubles["flap_map"])
    lanes = figures.lanes(span, summary["brokers"], troubles["incidents"])
    marks = figures.marks(span, troubles.get("marks", ()))
    membership = _membership(span, troubles)
    page = (
        _environment()
        .get_template("report.html.j2")
        .render(
            summary=summary,
            troubles=troubles,
            findings=[(finding, _sample(out, finding)) for finding in findings],
            span=span,
            day=datetime.fromtimestamp(span.start / 1000, UTC).strftime("%Y-%m-%d"),
            strips=strips,
            lanes=lanes,
            marks=marks,
            upright=figures.upright,
            **membership,
            left_out=summary["partitions"] - len(shown),
            in_trouble=figures.over_time(span, troubles["troubled_over_time"], kinds=figures.AREAS),
            elections=_elections(span, troubles["elections_over_time"]),
            flap_map=flap_map,
            catch_ups=_catch_ups(troubles["longest_out"]),
            curves=_curves(out, troubles["slowest"]),
            reassignments=[_with_eta(out, row) for row in troubles["reassignments"]],
            what_if=figures.what_if_charts(troubles["what_if"]),
            compared=list(read_rows(out, "comparison", where=_among(shown), limit=len(shown))) if shown else [],
            pointed=_as_json(
                {
                    "from": span.start,
                    "width": span.width,
                    "bucket": span.bucket,
                    "strips": [{"name": s.name, "changes": s.changes} for s in strips],
                    "lanes": [{"name": lane["name"], "pieces": _controller_rows(span, lane["rows"])} for lane in lanes],
                    **_pointed(membership),
                    "marks": [[mark["x"], mark["words"]] for mark in marks],
                    "flaps": [{"name": f"broker {row['broker']}", "buckets": row["buckets"]} for row in flap_map],
                }
            ),
        )
    )
    target.write_text(page, encoding="utf-8")


def _membership(span: Span, troubles: dict[str, Any]) -> dict[str, Any]:
    """Who was missing from ISRs, when it was worst, and who was the controller."""
    pieces = out_of_sync.Pieces(span)
    behind = out_of_sync.brokers(pieces, troubles)
    return {
        "piece_ms": pieces.ms,
        "behind": behind,
        "racks": out_of_sync.racks(behind),
        "memberships": out_of_sync.lanes(pieces, behind),
        "worst_pieces": out_of_sync.worst(pieces, troubles, behind),
        "terms": out_of_sync.terms(span, troubles.get("offices", ())),
        "controllers_shown": out_of_sync.CONTROLLERS_SHOWN,
    }


def _pointed(membership: dict[str, Any]) -> dict[str, Any]:
    """The same for who points at it."""
    return {
        "piece": membership["piece_ms"],
        "terms": [[term["x"], term["controller"], term["epoch"]] for term in membership["terms"]],
        "memberships": [
            {"name": f"broker {lane['broker']}", "hosted": lane["hosted"], "values": lane["values"]}
            for lane in membership["memberships"]
        ],
    }


def _controller_rows(span: Span, rows: Iterable[Row]) -> list[list[Any]]:
    """Pieces of a lane for who points at them: from, to, what."""
    return [
        [
            span.at(row["from_ts"]),
            span.width if row["to_ts"] is None else span.at(row["to_ts"]),
            _LANE_WORDS[row["kind"]],
        ]
        for row in rows
    ]


_LANE_WORDS: Final = {
    "gone": "gone",
    "stopped": "stopped in order",
    "session-lost": "session lost",
    "paused": "replication paused",
    "shutting-down": "shutting down",
    "behind": "fell behind",
    "no-controller": "no controller",
}


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(_PACKAGE, "."),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        seconds=lambda ms: seconds(None if ms is None else round(ms)),
        clock=clock,
        size=size,
        count=count,
        number=lambda n: f"{n:,}",
        mean=lambda n: f"{n:,.0f}" if n >= 10 or n == round(n) else f"{n:.1f}",
        percent=lambda share: f"{100 * share:.0f} %",
        joined=lambda ids: ", ".join(map(str, ids or ())),
        cell=_cell,
        in_words=in_words,
    )
    environment.globals["asset"] = _asset
    return environment


def _asset(name: str) -> Markup:
    """A file of the package, as it stands."""
    return Markup(files(_PACKAGE).joinpath(name).read_text(encoding="utf-8"))


def _as_json(value: Any) -> Markup:
    """JSON that may stand inside a script element."""
    text = json.dumps(value, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace("&", "\\u0026"))


def clock(ts: int | None) -> str:
    """UTC time of day of `ts`, with ms."""
    return "–" if ts is None else datetime.fromtimestamp(ts / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]


def _cell(value: Any, column: str) -> str:
    """A value of a table for readers."""
    if value is None:
        return "–"
    if column.endswith(_TIME) or column == "ts":
        return clock(value)
    if column.endswith(_DURATION) and not isinstance(value, list):
        return seconds(round(value))
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:.1f}" if isinstance(value, float) else str(value)


# -- bounded reads ----------------------------------------------------------------------------------------------------


def _among(shown: Iterable[TopicPartition]) -> Any:
    """Rows of just these partitions."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, partition in shown:
        by_topic[topic].append(partition)
    of = [(ds.field("topic") == t) & ds.field("partition").isin(ps) for t, ps in sorted(by_topic.items())]
    return reduce(or_, of)


def _strips(out: Path, span: Span, shown: Sequence[TopicPartition]) -> list[Strip]:
    if not shown:
        return []
    history, windows = _by_partition(out, "isr_history", shown), _by_partition(out, "windows", shown)
    return [figures.strip(span, f"{tp[0]}-{tp[1]}", history[tp], windows[tp]) for tp in shown]


def _by_partition(out: Path, table: str, shown: Sequence[TopicPartition]) -> dict[TopicPartition, list[Row]]:
    rows: dict[TopicPartition, list[Row]] = defaultdict(list)
    for row in read_rows(out, table, where=_among(shown), limit=DRAWN_ROWS_MAX):
        rows[row["topic"], row["partition"]].append(row)
    return rows


def _sample(out: Path, finding: Finding) -> dict[str, Any] | None:
    """Some of the rows behind a finding; None: the table is not there, or none match."""
    if not finding.rows or not (out / finding.table).is_dir():
        return None
    where = reduce(and_, (_expression(one) for one in finding.where)) if finding.where else None
    rows = worst_rows(out, finding.table, where=where, by=_WORST_BY.get(finding.table), limit=SAMPLE_ROWS)
    columns = [c for c in (rows[0] if rows else {}) if any(row[c] is not None for row in rows)]
    return {"columns": columns, "rows": rows} if rows else None


def _expression(one: Where) -> Any:
    terms = [ds.field(name.strip()) for name in one.column.split("+")]
    left = terms[0] if len(terms) == 1 else reduce(lambda a, b: a + b, terms)
    match one.op:
        case "=":
            return left == one.value
        case "!=":
            return left != one.value
        case ">":
            return left > one.value
        case ">=":
            return left >= one.value
        case "<":
            return left < one.value
        case "is null":
            return left.is_null()
        case "is true" | "is false":
            return left == (one.op == "is true")
        case _:
            return left.is_valid()


def _catch_ups(rows: Sequence[Row]) -> list[Row]:
    """The longest absences that ended, with their parts in percent of the longest."""
    rows = [dict(row) for row in rows[:_CATCH_UPS_SHOWN]]
    longest = max((r.get("out_of_isr_ms") or r.get("catch_up_ms") or 0 for r in rows), default=0) or 1
    for row in rows:
        catching = row.get("catch_up_ms") or 0
        row["catching"] = round(100 * catching / longest, 2)
        row["silent"] = round(100 * max(0, (row.get("out_of_isr_ms") or catching) - catching) / longest, 2)
    return rows


def _progress(out: Path, topic: str, partition: int, replica: int, since: int, until: int | None) -> list[Row]:
    if not (out / "copy_progress").is_dir():
        return []
    at = [ds.field("topic") == topic, ds.field("partition") == partition, ds.field("replica") == replica]
    at.append(ds.field("ts") >= since)
    if until is not None:
        at.append(ds.field("ts") <= until)
    table = dataset(out, "copy_progress").head(_CURVE_ROWS_MAX, filter=reduce(and_, at))
    rows: list[Row] = table.take(pc.sort_indices(table, [("ts", "ascending")])).to_pylist()
    return rows


def _curves(out: Path, slowest: Sequence[Row]) -> dict[str, Any]:
    """How the slowest came back: what share they had copied, over time."""
    names: list[str] = []
    curves: list[list[tuple[float, float]]] = []
    for row in slowest:
        since = row.get("first_fetch_ts")
        if since is None or len(curves) == _CURVES_SHOWN:
            continue
        rows = _progress(out, row["topic"], row["partition"], row["replica"], since, row["joined_ts"])
        curve = [*figures.catch_up_curve(rows, since=since), ((row["joined_ts"] - since) / 1000, 1.0)]
        if len(curve) > 2:
            names.append(f"{row['topic']}-{row['partition']}, replica {row['replica']}")
            curves.append(curve)
    return {"names": names, **figures.lines(curves)}


def _with_eta(out: Path, row: Row) -> Row:
    """A reassignment; one that did not finish gets the time that its slowest copy still needs."""
    shown = dict(row)
    shown["eta_ms"], shown["copies"] = None, []
    if row.get("finish_ts") is None:
        for replica in row.get("adding") or ():
            copied = _progress(out, row["topic"], row["partition"], replica, row["start_ts"], None)
            if copied:
                share, left = copied[-1]["progress"], figures.eta_ms(copied)
                shown["copies"].append({"replica": replica, "progress": share, "eta_ms": left})
        etas = [c["eta_ms"] for c in shown["copies"]]
        shown["eta_ms"] = max(etas) if etas and None not in etas else None
    return shown


def _elections(span: Span, rows: Sequence[Row]) -> dict[str, Any]:
    """New leader epochs per bucket, and the highest epoch so far.

    In the first bucket each partition tells of the leader that it has: the scale is that of the others, which it hides.
    """
    counts = {row["bucket"]: row["count"] for row in rows}
    top = max((n for bucket, n in counts.items() if bucket), default=counts.get(0, 0))
    counts = {bucket: min(n, top) for bucket, n in counts.items()}
    highest = max((row.get("leader_epoch") or 0 for row in rows), default=0)
    epochs: list[tuple[int, float]] = []
    so_far = 0
    for row in sorted(rows, key=lambda r: int(r["bucket"])):
        so_far = max(so_far, row.get("leader_epoch") or 0)
        epochs.append((row["bucket"] * span.bucket, so_far))
    line = figures.steps(epochs, top=max(1, highest), height=figures.TRACK_HEIGHT, end=span.width, is_area=False)
    return {"top": top, "path": figures.bars(span, counts, top=top), "highest": highest, "epochs": line}
