"""The report of the demo says what the demo says, and the same numbers everywhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.sums import disagreements


@pytest.mark.slow
def test_the_report_of_the_demo_agrees_with_the_demo(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "controller.cli", "demo", "--out", str(tmp_path / "demo")]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=400, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    out = tmp_path / "demo" / "replay"
    assert list(disagreements(out)) == []
    findings = {row["text"]: row for row in json.loads((out / "summary.json").read_text())["findings"]}
    told = " ".join(ended.stdout.split())
    first = next(iter(findings))
    assert first.startswith("Broker 3 was gone from"), "the first finding says who, when and whom it hit"
    leaders = re.search(r"broker 3 by SIGKILL: (\d+) leaders moved", told)
    assert leaders is not None and f"{leaders[1]} partitions that it led were without a leader" in first
    assert "Somebody did this: " in first and "`kill broker 3`" in first, "and who did it"
    assert any("somebody did something" in text and "`kwob topics --create --topic orders" in text for text in findings)
    moved = re.search(r"payments: (\d+) of 12 partitions moved.*?, ([\d.]+) MB copied", told)
    (move,) = (text for text in findings if "finished; the longest took" in text)
    copied = re.search(r"([\d.]+) MB were copied", move)
    assert moved is not None and move.startswith(f"{moved[1]} reassignment")
    assert copied is not None and float(copied[1]) == pytest.approx(float(moved[2]), rel=0.03), "bytes that were copied"
    assert any(text.startswith("Topic topic-test7 was deleted") for text in findings)
    assert any("took office" in text and "controller epoch 2" in text for text in findings)
