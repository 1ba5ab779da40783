"""A throttled move and the loss of a broker on live clusters, beside what rehearsals of them say.

The recorded runs of all kinds are compared in the plain suite (tests/unit/rehearse/test_validation.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.rehearse.run import rehearse
from tests.rehearsal_validation import record
from tests.rehearsal_validation.agreement import figures_of, pairs, real, recordings, scenario

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]


@pytest.mark.parametrize(("kind", "run"), [("kafka-4.1.0", "link"), ("kafka-3.9.1", "loss")])
def test_what_is_rehearsed_happens(kind: str, run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "RECORDED", tmp_path)
    record.record(kind, [run], lambda _: None)
    (recording,) = recordings(tmp_path)
    rows = list(pairs(recording, real(recording), figures_of(rehearse(scenario(recording)), recording.run)))
    assert rows and all(row.holds for row in rows), [(row.figure, row.real_ms, row.rehearsed_ms) for row in rows]
