"""Draws docs/admin-features.md: `python -m tests.features.table`, which runs the tests of all rows (about a minute).

Which tests cover a row is found by their marker `feature`, without running any; whether they pass, from a run.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.features.rows import DOCUMENTS, ROWS
from tests.marked_rows import TESTS, covered
from tests.outcomes import PASSING, listed, run

FILE = TESTS.parent / "docs" / "admin-features.md"
MARKER = "feature"

_HEAD = """\
# Features of the admin tools, row by row

What the source documents tell of placement, topics, reassignment, brokers and clients; what must hold, which is what
Kafka 3.9 does; the tests that hold it; and whether they pass. The id of each test names its rows, so that
`pytest -k 002-21` runs those of a row. Drawn by `python -m tests.features.table` from `tests/features/rows.py`, the
tests' markers and a run of these tests; a test fails when rows and tests are other ones than here.
"""


def document(results: Mapping[str, str]) -> str:
    """The whole file; `results` has the word for the last column by test."""
    found = covered(MARKER)
    parts = [_HEAD]
    for seed, title in DOCUMENTS.items():
        parts += [f"\n## {seed}: {title}\n", "| row | feature | must hold | tests | passing |", "|---|---|---|---|---|"]
        for key, row in ROWS.items():
            if key.startswith(seed):
                tests = found.get(key, [])
                passing = sorted({results.get(test, "not run") for test in tests} or {"no test"})
                parts.append(f"| {key} | {row.feature} | {row.must_hold} | {listed(tests)} | {', '.join(passing)} |")
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    text = document(run(test for tests in covered(MARKER).values() for test in tests))
    FILE.write_text(text, encoding="utf-8")
    print(f"wrote {FILE.name}: {text.count(f'| {PASSING} |')} of {len(ROWS)} rows pass")
