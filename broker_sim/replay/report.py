"""`report.html`: one self-contained file. Drawing is here, words are in `report.html.j2`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from broker_sim.replay.findings import Finding


def write_report(out: Path, target: Path, summary: dict[str, Any], findings: list[Finding]) -> None:
    """Writes the report on the tables in `out` to `target`."""
    target.write_text("tbd")
