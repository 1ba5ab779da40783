"""Who was missing from ISRs, and when it was worst: sums per piece of time to tables and lanes of the report. Pure.

The sums are those of `replay/out_of_sync.py`; the pieces those of `diagnosis_limits.piece_of`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from broker_sim.replay.diagnosis_limits import piece_of
from broker_sim.replay.report.figures import STRIP_HEIGHT, Span

Row = Mapping[str, Any]

#: Minutes (or whatever a piece is) in the table of the worst.
WORST_SHOWN: Final = 10
#: Brokers named beside one of them.
_NAMED: Final = 3
#: How much worse a partition is that nobody can write to, or nobody can use.
_WEIGHTS: Final = {"under_replicated": 1, "under_min_isr": 10, "offline": 100}
CONTROLLERS_SHOWN: Final = 40


@dataclass(frozen=True, slots=True)
class Pieces:
    """The time of the report in pieces of one length."""

    span: Span

    @property
    def ms(self) -> int:
        """How long each is."""
        return piece_of(self.span.end - self.span.start)

    @property
    def count(self) -> int:
        """How many there are."""
        return -(-self.span.width // self.ms)

    def means(self, rows: Iterable[Row]) -> list[float]:
        """How many were open on average in each piece. `rows`: `piece`, `change`, `ms`, as they were summed."""
        of = {row["piece"]: row for row in rows}
        means, before = [], 0
        for piece in range(self.count):
            row = of.get(piece)
            within = (row["ms"] if row else 0) / self.ms
            means.append(round(max(0.0, before + within), 3))
            before += row["change"] if row else 0
        return means

    def length(self, piece: int) -> int:
        """The last one ends with the trace."""
        return min(self.ms, self.span.width - piece * self.ms)


def brokers(pieces: Pieces, troubles: Row) -> list[dict[str, Any]]:
    """Who was missing, most first: for how long, where, in which rack, and what share of all that was missing."""
    hosted = {row["replica"]: row["partitions"] for row in troubles.get("hosted", ())}
    racks = {row["replica"]: row["rack"] for row in troubles.get("racks", ())}
    in_all = _in_all(troubles)
    over_time: dict[int, list[Row]] = defaultdict(list)
    for row in troubles.get("absent_over_time", ()):
        over_time[row["replica"]].append(row)
    return [
        {
            **row,
            "rack": racks.get(row["replica"]),
            "hosted": max(hosted.get(row["replica"], 0), row["partitions"]),
            "share": row["total_ms"] / in_all if in_all else 0.0,
            "means": pieces.means(over_time[row["replica"]]),
        }
        for row in troubles.get("behind", ())
    ]


def _in_all(troubles: Row) -> int:
    return int(next(iter(troubles.get("behind_in_all", ())), {"total_ms": 0})["total_ms"])


def racks(of_brokers: Sequence[Row]) -> list[dict[str, Any]]:
    """The same by rack; empty where no broker names one."""
    sums: dict[str | None, dict[str, Any]] = {}
    for row in of_brokers:
        of_rack = sums.setdefault(row["rack"], {"rack": row["rack"], "total_ms": 0, "share": 0.0, "brokers": []})
        of_rack["total_ms"] += row["total_ms"]
        of_rack["share"] += row["share"]
        of_rack["brokers"].append(row["replica"])
    return sorted(sums.values(), key=lambda rack: -rack["total_ms"]) if set(sums) - {None} else []


def lanes(pieces: Pieces, of_brokers: Sequence[Row]) -> list[dict[str, Any]]:
    """A lane per broker, in the order of their ids: in what share of its partitions it was in the ISR, over time.

    `path` is what was missing, hanging from the top. `values` is for who points at it.
    """
    return [
        {
            "broker": row["replica"],
            "rack": row["rack"],
            "hosted": row["hosted"],
            "path": "".join(_hanging(pieces, row["means"], row["hosted"])),
            "values": row["means"],
        }
        for row in sorted(of_brokers, key=lambda row: int(row["replica"]))
    ]


def _hanging(pieces: Pieces, means: Sequence[float], top: int) -> Iterator[str]:
    for piece, mean in enumerate(means):
        if mean:
            y = round(max(1.0, STRIP_HEIGHT * min(1.0, mean / max(1, top))), 1)
            left = piece * pieces.ms
            yield f"M{left} 0V{y:g}H{left + pieces.length(piece)}V0Z"


def worst(pieces: Pieces, troubles: Row, of_brokers: Sequence[Row]) -> list[dict[str, Any]]:
    """The worst pieces of time, worst first: how many partitions were in which trouble, and who was missing most."""
    by_window: dict[str, list[Row]] = defaultdict(list)
    for row in troubles.get("bad_over_time", ()):
        by_window[row["window"]].append(row)
    means = {kind: pieces.means(by_window[kind]) for kind in _WEIGHTS}
    scores = [sum(_WEIGHTS[kind] * means[kind][piece] for kind in _WEIGHTS) for piece in range(pieces.count)]
    ranked = sorted((piece for piece in range(pieces.count) if scores[piece]), key=lambda p: (-scores[p], p))
    return [
        {
            "from_ts": pieces.span.start + piece * pieces.ms,
            "to_ts": pieces.span.start + piece * pieces.ms + pieces.length(piece),
            **{kind: means[kind][piece] for kind in _WEIGHTS},
            "missing": _missing(of_brokers, piece),
        }
        for piece in ranked[:WORST_SHOWN]
    ]


def _missing(of_brokers: Sequence[Row], piece: int) -> list[dict[str, Any]]:
    missing = sorted(
        ((row["means"][piece], row["replica"]) for row in of_brokers), key=lambda pair: (-pair[0], pair[1])
    )
    return [{"replica": replica, "partitions": mean} for mean, replica in missing[:_NAMED] if mean]


def terms(span: Span, offices: Iterable[Row]) -> list[dict[str, Any]]:
    """Who was the controller, from when until when; until the next one took office."""
    in_order = sorted(offices, key=lambda row: (row["ts"], row["epoch"] or 0))
    ends = [*(row["ts"] for row in in_order[1:]), span.end][: len(in_order)]
    rows = [
        {"controller": row["controller"], "epoch": row["epoch"], "from_ts": row["ts"], "to_ts": end}
        for row, end in zip(in_order, ends, strict=True)
    ]
    return [
        {**row, "x": span.at(row["from_ts"]), "width": span.at(row["to_ts"]) - span.at(row["from_ts"])} for row in rows
    ]
