"""Each known failure has a test, and the table of them is that of the tests."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from broker_sim.apis import api_versions
from broker_sim.apis.table import ROWS as API_ROWS
from tests.marked_rows import covered

from .rows import ROWS, SECTIONS, WITHOUT_STEPS
from .table import FILE, MARKER, document, is_at_every_step

LIST = Path(os.environ.get("KWOB_SHARED", FILE.parents[2] / "shared")) / "spec" / "known-failures.md"

DEVIATIONS = FILE.parent / "deviations.md"


def test_the_file_is_up_to_date() -> None:
    assert FILE.read_text(encoding="utf-8") == document(), "draw it anew: make docs"


def test_every_row_has_a_test_and_no_marker_names_another() -> None:
    found = covered(MARKER)
    assert sorted(ROWS.keys() - found.keys()) == [], "rows without a test"
    assert sorted(found.keys() - ROWS.keys()) == [], "no such row"


def test_every_row_is_played_with_a_fault_at_every_step_or_says_why_not() -> None:
    found = covered(MARKER)
    struck = {key for key, tests in found.items() if any(map(is_at_every_step, tests))}
    assert sorted(ROWS.keys() - struck - WITHOUT_STEPS.keys()) == []
    assert sorted(WITHOUT_STEPS.keys() - ROWS.keys()) == []


def test_every_row_has_a_section() -> None:
    assert {key[0] for key in ROWS} == set(SECTIONS.values())


def test_the_rows_are_those_of_the_list() -> None:
    if not LIST.is_file():
        pytest.skip("the list of known failures is not here")
    listed = re.findall(r"^\| ([A-Z]\d) \|", LIST.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(ROWS)


def test_every_hole_is_in_the_table_of_deviations() -> None:
    """X1 to X6 go beyond Kafka: each has its line on what is done instead, and where; and each line names code."""
    closed, kept = (rows_of(section) for section in ("Closed", "Kept"))
    assert {key for key in ROWS if key.startswith("X")} <= closed.keys()
    assert all("`" in cells[-1] for cells in (*closed.values(), *kept.values()))
    assert not closed.keys() & kept.keys()


def test_the_versions_that_the_document_tells_are_those_that_are_served() -> None:
    """Where it says of a request what is here, that is what ApiVersions tells of; of `none` it is silent."""
    served = {_squeezed(key.name): row.versions for key, row in API_ROWS.items()}
    served["apiversions"] = api_versions.VERSIONS
    rows = {name: here for names, (_, here, _) in rows_of("Versions of requests").items() for name in names.split(", ")}
    assert len(rows) > 40
    for name, here in rows.items():
        first, last = served.get(_squeezed(name), (None, None))
        assert here == ("none" if first is None else f"{first}–{last}"), name


def _squeezed(name: str) -> str:
    return name.replace("_", "").lower()


def rows_of(section: str) -> dict[str, list[str]]:
    """The rows below a heading of the document, by their key."""
    text = DEVIATIONS.read_text(encoding="utf-8").split(f"## {section}\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return {key: cells for key, *cells in rows[2:]}
