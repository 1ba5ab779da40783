"""Each rule names tests that pytest finds, and the table is that of the rows, all of which passed when drawn."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.marked_rows import TESTS
from tests.outcomes import PASSING, collected

from .rows import ROWS, SECTIONS
from .table import ELSEWHERE, FILE, all_tests, document, section_of

LIST = Path(os.environ.get("KWOB_SHARED", TESTS.parents[1] / "shared")) / "spec" / "broker.md"
_ROW = re.compile(r"^\| [CD]\d+[a-z] \|")


def _drawn() -> list[str]:
    return FILE.read_text(encoding="utf-8").splitlines()


def test_the_file_is_up_to_date() -> None:
    def without_results(lines: list[str]) -> list[str]:
        return [line.rpartition(" | ")[0] if _ROW.match(line) else line for line in lines]

    assert without_results(_drawn()) == without_results(document({}).splitlines()), (
        "draw it anew: python -m tests.broker_features.table"
    )


def test_all_rows_pass_or_are_shown_elsewhere() -> None:
    rows = [line for line in _drawn() if _ROW.match(line)]
    assert len(rows) == len(ROWS)
    for line in rows:
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        assert len(cells) == 5 and all(cells), line
        assert cells[-1].rstrip(" |") in {PASSING, *ELSEWHERE.values()}, line


def test_every_row_names_tests_once_and_has_a_section() -> None:
    assert {section_of(key) for key in ROWS} == set(SECTIONS)
    for key, row in ROWS.items():
        assert row.tests, f"{key} has no test"
        assert max(Counter(row.tests).values()) == 1, key


def test_the_tests_are_there() -> None:
    named = all_tests()
    assert sorted(set(named) - collected(named)) == []


def test_the_checklist_has_as_many_points_as_there_are_sections() -> None:
    if not LIST.is_file():
        pytest.skip("the checklist of brokers is not here")
    section = LIST.read_text(encoding="utf-8").partition("\n## 21. ")[2]
    points = re.findall(r"^(\d+)\. ", section, re.MULTILINE)
    assert [f"C{number}" for number in points] == [key for key in SECTIONS if key.startswith("C")]
