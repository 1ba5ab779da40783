"""Draws docs/known-failures.md: `python -m tests.known_failures.table`.

Tests are found by their marker `known_failure`, without running any. It names the rows that a test covers: on the
function, or on all of a module by `pytestmark`.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.known_failures.rows import ROWS, SECTIONS

TESTS = Path(__file__).resolve().parents[1]
FILE = TESTS.parent / "docs" / "known-failures.md"
MARKER = "known_failure"

_HEAD = """\
# Known failures

Failures that controllers of Kafka's ZooKeeper mode really had, what must hold instead, and the tests that say so.
Drawn by `python -m tests.known_failures.table` from `tests/known_failures/rows.py` and the tests' markers; a test fails
when this file is out of date or a row has no test. Where this controller goes beyond Kafka 3.9, or keeps one of its
oddities, is listed in `controller/core/deviations.py`.
"""


def document() -> str:
    """The whole file."""
    found = covered()
    parts = [_HEAD]
    for heading, letter in SECTIONS.items():
        parts += [f"\n## {heading}\n", "| row | Kafka | must hold | tests |", "|---|---|---|---|"]
        for key, row in ROWS.items():
            if key.startswith(letter):
                must_hold = f"{row.must_hold}. In part: {row.where}" if row.where else row.must_hold
                tests = "<br>".join(f"`{test}`" for test in found.get(key, ()))
                parts.append(f"| {key} | {row.issue} | {must_hold} | {tests} |")
    return "\n".join(parts) + "\n"


def covered() -> dict[str, list[str]]:
    """The tests of each row, as `path::name` below tests/."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        for name, keys in marked(ast.parse(text)) if MARKER in text else ():
            for key in keys:
                found[key].append(f"{path.relative_to(TESTS).as_posix()}::{name}")
    return dict(found)


def marked(module: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """The tests of a module that carry the marker, with the keys it names."""
    everywhere: list[str] = []
    for node in module.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets):
            everywhere += _keys(ast.walk(node.value))
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            own = [key for decorator in node.decorator_list for key in _keys(ast.walk(decorator))]
            if keys := list(dict.fromkeys(everywhere + own)):
                yield node.name, keys


def _keys(nodes: Iterable[ast.AST]) -> list[str]:
    return [
        str(argument.value)
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == MARKER
        for argument in node.args
        if isinstance(argument, ast.Constant)
    ]


if __name__ == "__main__":
    print(document(), end="")
