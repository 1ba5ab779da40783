"""Draws docs/known-failures.md: `python -m tests.known_failures.table`.

Tests are found by their marker `known_failure`, without running any. It names the rows that a test covers: on the
function, or on all of a module by `pytestmark`.
"""

from __future__ import annotations

import ast
from functools import cache

from tests.known_failures.rows import ROWS, SECTIONS
from tests.marked_rows import TESTS, covered

FILE = TESTS.parent / "docs" / "known-failures.md"
MARKER = "known_failure"

_HEAD = """\
# Known failures

Failures that controllers of Kafka's ZooKeeper mode really had, what must hold instead, and the tests that say so.
Drawn by `python -m tests.known_failures.table` from `tests/known_failures/rows.py` and the tests' markers; a test fails
when this file is out of date or a row has no test. Where this controller goes beyond Kafka 3.9, or keeps one of its
oddities, is listed in `docs/deviations.md`. A test marked "at every step" plays its row again and again, with a crash,
a lost session, a lost reply and a rival controller at each I/O step in turn.
"""
#: What makes a test one of these: the helper that strikes, or a loop of its own over the steps.
_STEPS = {"faults_everywhere", "at_step"}


def is_at_every_step(test: str) -> bool:
    """Whether a test, `path::name` below tests/, plays its row with a fault at each step."""
    path, name = test.split("::")
    return name in _by_step(path)


@cache
def _by_step(path: str) -> frozenset[str]:
    functions = [
        node for node in ast.parse((TESTS / path).read_text("utf-8")).body if isinstance(node, ast.FunctionDef)
    ]
    return frozenset(
        function.name
        for function in functions
        if any(isinstance(node, ast.Name) and node.id in _STEPS for node in ast.walk(function))
    )


def document() -> str:
    """The whole file."""
    found = covered(MARKER)
    parts = [_HEAD]
    for heading, letter in SECTIONS.items():
        parts += [f"\n## {heading}\n", "| row | Kafka | must hold | tests |", "|---|---|---|---|"]
        for key, row in ROWS.items():
            if key.startswith(letter):
                must_hold = f"{row.must_hold}. In part: {row.where}" if row.where else row.must_hold
                tests = "<br>".join(
                    f"`{test}`{', at every step' if is_at_every_step(test) else ''}" for test in found.get(key, ())
                )
                parts.append(f"| {key} | {row.issue} | {must_hold} | {tests} |")
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    print(document(), end="")
