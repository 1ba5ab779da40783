"""Each row has a test, and the table of them is that of rows and tests, all of which passed when it was drawn."""

from __future__ import annotations

import os
import re

import pytest

from tests.marked_rows import TESTS, covered
from tests.outcomes import PASSING

from .rows import DOCUMENTS, ROWS
from .table import FILE, MARKER, document

LIST = TESTS.parents[1] / "shared"
LIST = type(LIST)(os.environ.get("KWOB_SHARED", LIST)) / "spec" / "admin.md"


def _without_results(text: str) -> list[str]:
    return [line.rpartition(" | ")[0] if line.startswith("| 0") else line for line in text.splitlines()]


def test_the_file_is_up_to_date() -> None:
    drawn = FILE.read_text(encoding="utf-8")
    assert _without_results(drawn) == _without_results(document({})), "draw it anew: python -m tests.features.table"


def test_no_cell_is_empty_and_all_rows_pass() -> None:
    rows = [line for line in FILE.read_text(encoding="utf-8").splitlines() if line.startswith("| 0")]
    assert len(rows) == len(ROWS)
    for line in rows:
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        assert len(cells) == 5 and all(cells), line
        assert cells[-1] == PASSING, line


def test_every_row_has_a_test_and_no_marker_names_another() -> None:
    found = covered(MARKER)
    assert sorted(ROWS.keys() - found.keys()) == [], "rows without a test"
    assert sorted(found.keys() - ROWS.keys()) == [], "no such row"


def test_the_rows_are_as_many_as_the_list_has() -> None:
    if not LIST.is_file():
        pytest.skip("the list of features is not here")
    section = LIST.read_text(encoding="utf-8").partition("\n## 5. ")[2].partition("\n## 6. ")[0]
    for seed in DOCUMENTS:
        listed = len(re.findall(rf"^\| {seed} \|", section, re.MULTILINE))
        own = [key for key in ROWS if re.fullmatch(rf"{seed}-\d\d", key)]
        assert own == [f"{seed}-{n:02}" for n in range(1, listed + 1)]
