"""How tests end, by function: for the tables below docs/ that say whether a row's tests pass."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.marked_rows import TESTS

PASSING = "yes"


def run(tests: Iterable[str]) -> dict[str, str]:
    """Runs tests, given as `path::name` below tests/: `yes` for one whose cases all pass, else how they ended.

    Slow ones, too; those that need a real Kafka or containers are not among the results.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "outcomes.json"
        ids = [str(TESTS / test) for test in sorted(set(tests))]
        argv = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-m",
            "not docker and not kafka",
            "--feature-outcomes",
            str(file),
            *ids,
        ]
        subprocess.run(argv, cwd=TESTS.parent, check=False, stdout=sys.stderr)
        told: dict[str, list[str]] = json.loads(file.read_text(encoding="utf-8"))
    return {test: _word(outcomes) for test, outcomes in told.items()}


def _word(outcomes: Iterable[str]) -> str:
    words = set(outcomes)
    return PASSING if words == {"passed"} else ", ".join(sorted(words))


def collected(tests: Iterable[str]) -> set[str]:
    """Those of the tests, as `path::name` below tests/, that pytest finds, whatever their markers."""
    found: set[str] = set()
    for path in {test.partition("::")[0] for test in tests}:
        file = TESTS / path
        if file.is_file() and file.match("test_*.py"):
            nodes = ast.parse(file.read_text(encoding="utf-8")).body
            functions = (node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {f"{path}::{name}" for name in functions if name.startswith("test_")}
    return found


def listed(tests: Iterable[str]) -> str:
    """The cell of a table that names them."""
    return "<br>".join(f"`{test}`" for test in tests)
