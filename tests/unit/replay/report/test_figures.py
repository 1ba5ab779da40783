"""What the report draws and how bad it calls an absence: nothing gained, open ends, what is so still at the end."""

from __future__ import annotations

from typing import Any

import pytest

from broker_sim.replay.chronicle import IncidentKind
from broker_sim.replay.finding import Severity
from broker_sim.replay.report.figures import Piece, Span, eta_ms, lanes
from broker_sim.replay.story import story

#: of each look when it was, where the leader's log ends and where the copy does -> how long the rest takes
ETAS: list[tuple[str, list[tuple[int, int, int]], int | None]] = [
    ("half is copied", [(0, 100, 0), (10, 100, 50)], 10),
    ("more comes in meanwhile", [(0, 100, 0), (10, 150, 100)], 10),
    ("as much comes in as is copied", [(0, 100, 50), (10, 200, 150)], None),
    ("more comes in than is copied", [(0, 100, 50), (10, 200, 100)], None),
    ("all is copied", [(0, 100, 50), (10, 100, 100)], 0),
    ("all was copied all the time", [(0, 100, 100), (10, 200, 200)], 0),
    ("two looks of one moment", [(5, 100, 0), (5, 100, 50)], None),
    ("one look", [(0, 100, 50)], None),
]


@pytest.mark.parametrize(("looks", "eta"), [row[1:] for row in ETAS], ids=[row[0] for row in ETAS])
def test_how_long_a_copy_still_takes(looks: list[tuple[int, int, int]], eta: int | None) -> None:
    assert eta_ms([{"ts": ts, "target": target, "leo": leo} for ts, target, leo in looks]) == eta


def test_what_has_not_ended_is_drawn_to_the_end_and_what_is_beyond_it_is_cut() -> None:
    span = Span(start=1_000, end=2_000)
    rows = [
        {"kind": "gone", "who": 1, "from_ts": since, "to_ts": until}
        for since, until in ((1_100, 1_300), (1_500, None), (500, 1_200), (1_900, 2_500), (1_700, 1_700))
    ]
    (lane,) = lanes(span, [1], rows)
    pieces = [(100, 200), (500, 500), (0, 200), (900, 100), (700, 1)]
    assert lane["pieces"] == [Piece(x=x, width=width, look="gone") for x, width in pieces]


#: how long partitions were without a leader at most, how many still are; the same of a replica -> how bad it is
BAD = [
    ((1_000, 0), (0, 0), Severity.CRITICAL),
    ((999, 0), (0, 0), Severity.WARNING),
    ((5, 1), (0, 0), Severity.CRITICAL),
    ((99, 0), (999, 0), Severity.INFO),
    ((99, 0), (1_000, 0), Severity.WARNING),
    ((99, 0), (5, 1), Severity.WARNING),
]


@pytest.mark.parametrize(("offline", "short", "severity"), BAD)
def test_an_absence_is_as_bad_as_what_it_did(
    offline: tuple[int, int], short: tuple[int, int], severity: Severity
) -> None:
    """What lasts at the end of the trace may last for ever: no end of it is told."""
    row: dict[str, Any] = {
        "kind": IncidentKind.GONE.value, "who": 1, "from_ts": 0, "to_ts": 10, "partitions": 0, "before": None,
        "epoch": None, "topic": None,
        "offline": {"windows": 1, "partitions": 1, "longest_ms": offline[0], "open": offline[1]},
        "short": {"rows": 2, "since_ts": 0, "to_ts": 10, "partitions": 2, "until_ts": 5, "longest_ms": short[0],
                  "open": short[1]},
    }  # fmt: skip
    (finding,) = story({}, {"incidents": [row]})
    assert finding.severity is severity
    lacked = "2 partitions lacked its replica" + (", 1 still at the end" if short[1] else " until 00:00:00.0")
    assert lacked in finding.text
