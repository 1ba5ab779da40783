"""`kwob rehearse compare`: every figure of two summaries, as a user reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from controller.rehearse.command import main
from controller.rehearse.compare import figures
from controller.rehearse.files import OUTCOME_FILE, OUTCOME_VERSION

CALM: dict[str, Any] = {
    "moves_end_ms": None, "end_ms": 60_000, "is_over": True,
    "troubles": {name: {"partitions": 0, "at_most": 0} for name in ("offline", "under_min_isr", "moving")},
    "peak_link": 0.0, "peak_link_broker": None, "moved_bytes": 0.0, "refused_bytes": 0.0, "lost_bytes": 0.0,
    "at_risk_bytes": 0.0, "elections": 0, "unclean_elections": 0, "warnings": [],
}  # fmt: skip
WILD: dict[str, Any] = {
    "moves_end_ms": 3_600_000, "end_ms": 7_200_000, "is_over": True,
    "troubles": {"offline": {"partitions": 1200, "at_most": 1100}, "under_min_isr": {"partitions": 1, "at_most": 1},
                 "moving": {"partitions": 9, "at_most": 9}},
    "peak_link": 0.876, "peak_link_broker": 0, "moved_bytes": 1.5e12, "refused_bytes": 2.5e6, "lost_bytes": 4e9,
    "at_risk_bytes": 1.25e6, "elections": 7, "unclean_elections": 3, "warnings": ["a", "b"],
}  # fmt: skip
CALM_FIGURES = {
    "moves end": "–", "ends": "00:01:00", "offline": "0", "under min isr": "0", "fullest link": "–",
    "copied": "0.00 GB", "refused": "0.0 MB", "lost": "0.0 MB", "at risk, at most": "0.0 MB",
    "elections": "0 (0 unclean)", "warnings": "0",
}  # fmt: skip
WILD_FIGURES = {
    "moves end": "01:00:00", "ends": "02:00:00", "offline": "1,200, at most 1,100 at once",
    "under min isr": "1, at most 1 at once", "fullest link": "88% at broker 0", "copied": "1,500.00 GB",
    "refused": "2.5 MB", "lost": "4,000.0 MB", "at risk, at most": "1.2 MB", "elections": "7 (3 unclean)",
    "warnings": "2",
}  # fmt: skip
#: of moves that do not end, or are none; of a rehearsal that is not over
ENDS = [
    (CALM, CALM_FIGURES),
    (WILD, WILD_FIGURES),
    (WILD | {"moves_end_ms": None, "is_over": False}, WILD_FIGURES | {"moves end": "never", "ends": "never"}),
    (CALM | {"moves_end_ms": 0}, CALM_FIGURES | {"moves end": "0.0 s"}),
]


@pytest.mark.parametrize(("summary", "expected"), ENDS)
def test_the_figures_of_a_rehearsal(summary: dict[str, Any], expected: dict[str, str]) -> None:
    found = figures(summary)
    assert dict(found) == expected and [name for name, _ in found] == list(expected)


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    for name, summary in (("calm", CALM), ("wild", WILD)):
        (tmp_path / name).mkdir()
        (tmp_path / name / OUTCOME_FILE).write_text(json.dumps({"version": OUTCOME_VERSION, **summary}))
    return [str(tmp_path / name) for name in ("calm", "wild")]


def test_two_rehearsals_side_by_side(folders: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *folders, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        name: [CALM_FIGURES[name], WILD_FIGURES[name]] for name in CALM_FIGURES
    }
    assert main(["compare", *folders]) == 0
    head, *rows = (line.rstrip() for line in capsys.readouterr().out.splitlines())
    assert head.split() == folders
    assert [" ".join(row.split()) for row in rows] == [
        f"{name} {CALM_FIGURES[name]} {WILD_FIGURES[name]}" for name in CALM_FIGURES
    ]
