"""What the report draws, as numbers and SVG paths. Pure: rows in, values out; words and looks are in the template.

Time runs along x in ms since the start of the trace: zooming is another `viewBox`, nothing is drawn anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from broker_sim.replay.diagnosis_limits import BUCKETS
from broker_sim.replay.what_if_limits import in_words

Row = Mapping[str, Any]

#: Height of a partition's strip, and of other tracks, in units of their `viewBox`.
STRIP_HEIGHT: Final = 24
TRACK_HEIGHT: Final = 48
#: Changes drawn of one partition; of more, the latest.
CHANGES_MAX: Final = 400
#: Which windows are drawn, from back to front.
SHOWN_WINDOWS: Final = ("under_replicated", "under_min_isr", "offline", "reassigning")
#: The same over all partitions: what matters most must not be hidden.
AREAS: Final = ("reassigning", "under_replicated", "under_min_isr", "offline")
#: `kind` of an incident that is of no broker.
NO_CONTROLLER: Final = "no-controller"
#: The last so many points tell how fast a copy goes.
_ETA_POINTS: Final = 5


@dataclass(frozen=True, slots=True)
class Span:
    """The time that the report covers, ms."""

    start: int
    end: int

    @property
    def width(self) -> int:
        """At least 1."""
        return max(1, self.end - self.start)

    def at(self, ts: int) -> int:
        """Where `ts` is: ms since the start, within the span."""
        return min(max(ts - self.start, 0), self.width)

    @property
    def bucket(self) -> int:
        """How many ms one of `BUCKETS` pieces has; as `diagnosis` cuts them."""
        return max(1, -(-(self.end - self.start + 1) // BUCKETS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A rectangle: from where, how wide, how it looks (a class)."""

    x: int
    width: int
    look: str
    share: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """One partition over time: the size of its ISR, its windows, its leaders; `changes` for who points at it."""

    name: str
    path: str
    pieces: list[Piece]
    leaders: list[int]
    changes: list[list[Any]]
    left_out: int = 0


def strip(span: Span, name: str, history: Sequence[Row], windows: Iterable[Row]) -> Strip:
    """One partition from its rows of `isr_history` and `windows`."""
    changes = as_written(history)
    left_out = max(0, len(changes) - CHANGES_MAX)
    changes = changes[left_out:]
    top = max((len(row["isr"]) for row in changes), default=1) or 1
    pieces = [
        Piece(x=span.at(w["from_ts"]), width=span.at(w["to_ts"]) - span.at(w["from_ts"]), look=_look(kind))
        for kind in SHOWN_WINDOWS
        for w in windows
        if w["window"] == kind
    ]
    sizes = [(span.at(row["ts"]), len(row["isr"])) for row in changes]
    dots = [[span.at(row["ts"]), " ".join(map(str, row["isr"])), row["leader"], row["leader_epoch"]] for row in changes]
    new = [row for before, row in zip([None, *changes], changes, strict=False) if _leads_anew(before, row)]
    return Strip(
        name=name,
        path=steps(sizes, top=top, height=STRIP_HEIGHT, end=span.width),
        pieces=pieces[-CHANGES_MAX:],
        leaders=[span.at(row["ts"]) for row in new],
        changes=dots,
        left_out=left_out,
    )


def _leads_anew(before: Row | None, row: Row) -> bool:
    return before is not None and before["leader"] != row["leader"]


def _look(kind: str) -> str:
    return kind.replace("_", "-")


def as_written(history: Sequence[Row]) -> list[Row]:
    """Changes in order: as they were written, or as derived where the partition has none of the leader."""
    is_recorded = any(row["source"] != "replayed" and row["event"].startswith("isr_") for row in history)
    rows = [row for row in history if row["isr"] is not None and (row["source"] == "replayed") <= (not is_recorded)]
    return sorted(rows, key=lambda row: (row["ts"], row["leader_epoch"] or 0))


def marks(span: Span, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What somebody did: where it stands, and its words."""
    return [{"x": span.at(row["ts"]), "ts": row["ts"], "words": row["words"]} for row in rows]


def upright(xs: Iterable[int], height: int) -> str:
    """Lines from top to bottom, as one SVG path."""
    return "".join(f"M{x} 0V{height}" for x in xs)


def steps(points: Sequence[tuple[int, float]], *, top: float, height: int, end: int, is_area: bool = True) -> str:
    """The area below a step line, or the line alone, as an SVG path; empty without points."""
    if not points:
        return ""
    path = f"M{points[0][0]} {height}"
    last = None
    for x, value in points:
        y = round(height - (height - 2) * value / max(top, 1e-9), 1)
        path += f"V{y:g}" if last is None else f"H{x}V{y:g}" if y != last else ""
        last = y
    return f"{path}H{end}V{height}Z" if is_area else f"{path}H{end}"


def over_time(span: Span, rows: Iterable[Row], *, kinds: Sequence[str]) -> dict[str, Any]:
    """Counts per bucket as areas: the highest count, and a path for each kind that occurs."""
    counts: dict[str, dict[int, int]] = defaultdict(dict)
    for row in rows:
        counts[row["window"]][row["bucket"]] = row["partitions"]
    top = max((n for kind in kinds for n in counts[kind].values()), default=0)
    areas = [
        {"look": _look(kind), "kind": kind, "path": bars(span, counts[kind], top=top)} for kind in kinds if counts[kind]
    ]
    return {"top": top, "areas": areas}


def bars(span: Span, counts: Mapping[int, int], *, top: int, height: int = TRACK_HEIGHT) -> str:
    """One bar per bucket, as a path."""
    path = ""
    for bucket, n in sorted(counts.items()):
        x, y = bucket * span.bucket, round(height - (height - 2) * n / max(1, top), 1)
        path += f"M{x} {height}V{y:g}H{min(x + span.bucket, span.width)}V{height}Z"
    return path


def lanes(span: Span, brokers: Iterable[int], incidents: Sequence[Row]) -> list[dict[str, Any]]:
    """A lane per broker and one for the office of controller: where each was away, or behind."""
    of: dict[str, list[Row]] = {f"broker {broker}": [] for broker in sorted(brokers)}
    for row in incidents:
        if row["kind"] == NO_CONTROLLER:
            of.setdefault("controller", []).append(row)
        elif row["who"] >= 0:
            of.setdefault(f"broker {row['who']}", []).append(row)
    return [{"name": name, "pieces": [_stretch(span, row) for row in rows], "rows": rows} for name, rows in of.items()]


def _stretch(span: Span, row: Row) -> Piece:
    start, end = span.at(row["from_ts"]), span.width if row["to_ts"] is None else span.at(row["to_ts"])
    return Piece(x=start, width=max(1, end - start), look=row["kind"])


def flap_map(span: Span, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One line per broker: where it flapped, and how much of the most that any did in one bucket."""
    top = max((row["count"] for row in rows), default=1)
    by_broker: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_broker[row["replica"]].append(row)
    return [
        {
            "broker": broker,
            "count": sum(row["count"] for row in of),
            "pieces": [
                Piece(
                    x=row["bucket"] * span.bucket,
                    width=span.bucket,
                    look="flap",
                    share=round(0.25 + 0.75 * row["count"] / top, 2),
                )
                for row in sorted(of, key=lambda r: int(r["bucket"]))
            ],
            "buckets": {str(row["bucket"]): row["count"] for row in of},
        }
        for broker, of in sorted(by_broker.items())
    ]


def catch_up_curve(rows: Sequence[Row], *, since: int) -> list[tuple[float, float]]:
    """Seconds since the first fetch, and the share that is copied (§9 copy progress)."""
    return [((row["ts"] - since) / 1000, row["progress"]) for row in rows if row["ts"] >= since]


def eta_ms(rows: Sequence[Row]) -> int | None:
    """How long a copy needs from its last row on, at the pace of its last rows; None: it gains no ground."""
    recent = list(rows)[-_ETA_POINTS:]
    if len(recent) < 2:
        return None
    first, last = recent[0], recent[-1]
    took = last["ts"] - first["ts"]
    behind = (first["target"] - first["leo"]) - (last["target"] - last["leo"])
    left = max(0, last["target"] - last["leo"])
    if not left:
        return 0
    return round(left * took / behind) if took > 0 and behind > 0 else None


def lines(curves: Sequence[Sequence[tuple[float, float]]], *, width: int = 300, height: int = 120) -> dict[str, Any]:
    """Curves in one box: a path each, and where x ends. y is 0 to 1."""
    right = max((x for curve in curves for x, _ in curve), default=0) or 1
    paths = [
        "".join(
            f"{'L' if i else 'M'}{width * x / right:.1f} {height - (height - 4) * min(max(y, 0), 1):.1f}"
            for i, (x, y) in enumerate(curve)
        )
        for curve in curves
    ]
    return {"right": right, "paths": paths, "width": width, "height": height}


#: measure -> what it is called; those of lanes, and that of throttles.
LANE_MEASURES: Final = {
    "flaps": "flaps",
    "under_replicated_ms": "time under-replicated",
    "under_min_isr_ms": "time under min ISR",
    "detection_max_ms": "longest detection",
    "hw_stall_max_ms": "longest stall of acks=all",
}
RATE_MEASURES: Final = {"eta_ms": "slowest copy"}


def what_if_charts(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """For each key: its values in order, and a curve per measure beside what was recorded."""
    charts = []
    for key in dict.fromkeys(row["key"] for row in rows):
        of_key = [row for row in rows if row["key"] == key]
        changed = sorted((r for r in of_key if r.get("value") is not None), key=lambda r: int(r["value"]))
        recorded = next((r for r in of_key if r.get("value") is None), None)
        if recorded is None or not changed:
            continue
        measures = LANE_MEASURES if "shrinks" in recorded else RATE_MEASURES
        charts.append(
            {
                "key": key,
                "rows": [recorded, *changed],
                "is_rate": measures is RATE_MEASURES,
                "smallest_rate": recorded.get("smallest_rate"),
                "curves": [_curve(name, words, changed, recorded) for name, words in measures.items()],
                "limits": in_words(limit for row in changed for limit in row.get("limits") or ()),
            }
        )
    return charts


def _curve(name: str, words: str, changed: Sequence[Row], recorded: Row) -> dict[str, Any]:
    values = [row.get(name) for row in changed]
    values_drawn = [v for v in (*values, recorded.get(name)) if v is not None]
    top = max(values_drawn, default=0) or 1

    def y(value: float) -> float:
        return round(56 - 48 * value / top, 1)

    step = 200 / max(1, len(values) - 1)
    points = [
        {"x": round(10 + (i * step if len(values) > 1 else 100), 1), "y": None if v is None else y(v), "value": v}
        for i, v in enumerate(values)
    ]
    path = "".join(
        f"{'M' if i == 0 or points[i - 1]['y'] is None else 'L'}{p['x']} {p['y']}"
        for i, p in enumerate(points)
        if p["y"] is not None
    )
    was = recorded.get(name)
    return {"name": name, "words": words, "points": points, "path": path, "top": max(values_drawn, default=None),
            "recorded": None if was is None else y(was), "recorded_value": was}  # fmt: skip
