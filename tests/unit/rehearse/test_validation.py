"""Rehearsals beside what was recorded on live clusters (tests/rehearsal_validation)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from controller.rehearse.run import rehearse
from tests.rehearsal_validation.agreement import (
    Recording,
    Row,
    compare,
    figures_of,
    real,
    recordings,
    scenario,
)
from tests.rehearsal_validation.page import PAGE, page
from tests.rehearsal_validation.runs import RUNS

RECORDED = recordings()


@pytest.mark.parametrize("recording", RECORDED, ids=lambda r: f"{r.kind}-{r.run.name}")
def test_a_rehearsal_agrees_with_what_was_seen(recording: Recording) -> None:
    rows = list(compare(recording))
    assert rows and rows[0].figure == "end"
    off = [f"{row.figure}: {row.real_ms:.0f} seen, {row.rehearsed_ms:.0f} rehearsed" for row in rows if not row.holds]
    # one with a reason on the page may be off, but not much, and where all of it ends only as far as the run says
    run = recording.run
    end, others = run.off_times, max(1.5, run.off_times)
    assert off == [] or (run.disagrees and rows[0].is_within(end) and all(row.is_within(others) for row in rows)), off


def test_the_page_says_what_is_recorded() -> None:
    assert PAGE.read_text() == page(RECORDED), "python -m tests.rehearsal_validation report"


def test_a_throttle_that_copies_got_whole_would_not_agree() -> None:
    """The tolerance is narrow enough to see the fetch mechanics."""
    (recording,) = [r for r in RECORDED if (r.kind, r.run.name) == ("kafka-4.1.0", "batches")]
    without = scenario(recording).model_copy(update={"batch_bytes": 0.0, "settings": {"replica.fetch.backoff.ms": "1"}})
    seen, ours = real(recording), figures_of(rehearse(without), recording.run)
    assert not Row("", "", "end", seen.end, ours.end).holds


def test_what_is_measured_of_a_recording(tmp_path: Path) -> None:
    changes = [
        [10, "t", 0, 1, [1, 2], [1, 2]],
        [10, "t", 1, 1, [1, 2], [1, 2]],
        [100, "t", 0, 1, [3, 2, 1], [1, 2]],
        [150, "t", 1, 1, [1, 2], [1]],
        [400, "t", 1, 1, [1, 2], [1, 2]],
        [900, "t", 0, 3, [3, 2], [3, 2]],
    ]
    document = {"kind": "kwob", "run": RUNS[0].name, "cluster": {}, "notes": [[0, "begun"]], "changes": changes}
    (tmp_path / "a.json").write_text(json.dumps({**document, "end_ms": 1000, "at": "today"}))
    (recording,) = recordings(tmp_path)
    figures = real(recording)
    assert figures.moved == {("t", 0): 800}
    assert figures.under == {("t", 0): 0, ("t", 1): 250}
    assert figures.end == 800
