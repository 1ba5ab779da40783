"""Two plays of a scenario beside each other. Pure."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from typing import Any

from tests.admin.official.differences import expected

Run = dict[str, Any]


def differences(scenario: str, recorded: Sequence[Run], found: Sequence[Run], by: Sequence[str]) -> list[str]:
    """One text per run that differs and may not: the command line, and both sides as a diff.

    `by` says whose differences of the table are allowed: TOOLS, BROKERS or both.
    """
    texts = []
    if [r["line"] for r in recorded] != [r["line"] for r in found]:
        return [f"{scenario}: the recording is of other command lines; record it again"]
    for number, (one, other) in enumerate(zip(recorded, found, strict=True)):
        if one != other and expected(scenario, one, other, by) is None:
            lines = difflib.unified_diff(_shown(one), _shown(other), "kafka", "kwob", lineterm="", n=1)
            texts.append(f"{scenario} #{number}: {one['line']}\n" + "\n".join(f"    {line}" for line in lines))
    return texts


def rows_met(scenario: str, recorded: Sequence[Run], found: Sequence[Run], by: Sequence[str]) -> set[str]:
    """The reasons of the rows of the table that these two plays need."""
    pairs = zip(recorded, found, strict=True)
    rows = [expected(scenario, one, other, by) for one, other in pairs if one != other]
    return {row.reason for row in rows if row is not None}


def _shown(run: Run) -> list[str]:
    lines = [f"exit {run['exit']}"] if "exit" in run else []
    for stream in ("out", "err"):
        lines += [f"{stream}: {line}" for line in run.get(stream, ())]
    for path, value in run.get("znodes", {}).items():
        lines.append(f"{path} {json.dumps(value, sort_keys=True)}")
    return lines
