"""Draws docs/broker-features.md: `python -m tests.broker_features.table`, which runs the tests of all rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tests.broker_features.rows import ROWS, SECTIONS
from tests.marked_rows import TESTS
from tests.outcomes import PASSING, listed, run

FILE = TESTS.parent / "docs" / "broker-features.md"
#: Folder below tests/ -> what the plain run does not have.
ELSEWHERE = {"kafka/": "beside a real Kafka", "docker/": "in containers"}

_HEAD = """\
# What a simulated broker does, row by row

The checklist of the specification of brokers (C) and what a broker offers besides (D); what must hold, which is what
Kafka 3.9 does at inter.broker.protocol.version 2.6; the tests that show it, the lowest layer first; and whether they
pass. Tests below `kafka/` need a real Kafka (`make test-kafka`) and count where a row has no other. Drawn by `python -m
tests.broker_features.table` from `tests/broker_features/rows.py` and a run of these tests; a test fails when the rows
are other ones than here or name a test that is not there.
"""


def all_tests() -> list[str]:
    """Every test that a row names, once."""
    return sorted({test for row in ROWS.values() for test in row.tests})


def document(results: Mapping[str, str]) -> str:
    """The whole file; `results` has the word for the last column by test."""
    parts = [_HEAD]
    for section, title in SECTIONS.items():
        parts += [f"\n## {section}: {title}\n", "| row | rule | must hold | tests | passing |", "|---|---|---|---|---|"]
        parts += [
            f"| {key} | {row.rule} | {row.must_hold} | {listed(row.tests)} | {_passing(row.tests, results)} |"
            for key, row in ROWS.items()
            if section_of(key) == section
        ]
    return "\n".join(parts) + "\n"


def section_of(key: str) -> str:
    """`C2` of `C2a`."""
    found = re.fullmatch(r"([CD]\d+)[a-z]", key)
    return found[1] if found else ""


def _passing(tests: Iterable[str], results: Mapping[str, str]) -> str:
    words = {test: _elsewhere(test) or results.get(test, "not run") for test in tests}
    here = {word for test, word in words.items() if _elsewhere(test) is None}
    return ", ".join(sorted(here or set(words.values())))


def _elsewhere(test: str) -> str | None:
    return next((word for folder, word in ELSEWHERE.items() if test.startswith(folder)), None)


if __name__ == "__main__":
    text = document(run(test for test in all_tests() if _elsewhere(test) is None))
    FILE.write_text(text, encoding="utf-8")
    print(f"wrote {FILE.name}: {text.count(f'| {PASSING} |')} of {len(ROWS)} rows pass here")
