"""Each planted defect still applies, changes something that compiles, and stands in the table."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.defects.catalogue import LAYERS, PARTS, ROOT, Defect, defects
from tests.defects.layers import UNIT, Layer, layers_for, paths_of, who_noticed
from tests.defects.named import asked_again, named_seed
from tests.defects.table import FILE, Noticed, document, load

EVERY = defects()


@pytest.mark.parametrize("defect", EVERY, ids=lambda defect: defect.key)
def test_a_defect_applies(defect: Defect) -> None:
    text = (ROOT / defect.file).read_text(encoding="utf-8")
    assert ast.dump(ast.parse(defect.planted(text))) != ast.dump(ast.parse(text))
    assert (defect.layer in LAYERS) is not bool(defect.equivalent)
    assert defect.breaks
    assert any(defect.file.startswith(room) for room in UNIT), "no room's tests are known for it"


def test_there_are_enough() -> None:
    counted = Counter(defect.part for defect in EVERY)
    assert {part: counted[part] for part in PARTS if counted[part] < PARTS[part]} == {}


def test_the_table_is_that_of_the_defects() -> None:
    assert FILE.read_text(encoding="utf-8") == document(load()), "draw it anew: python -m tests.defects.table"


def test_the_unit_tests_of_each_room_are_there() -> None:
    named = {path for row in UNIT for path in paths_of(row)}
    assert {path for path in named if not (ROOT / path).exists()} == set()


@pytest.mark.parametrize(
    ("file", "hints", "first"),
    [
        ("controller/core/reassignment_znode.py", "", "core/test_reassignment_znode.py"),
        ("controller/core/view.py", "a balance of leaders", "core/test_balance.py"),
        ("broker_sim/replicas/log_cleaner.py", "", "replicas/test_cleaner.py"),
    ],
)
def test_all_files_of_a_room_run_and_those_first_that_share_a_word(file: str, hints: str, first: str) -> None:
    unit = layers_for(file, range(1), hints)[0]
    files = [word for word in unit.arguments if word.startswith("tests/")]
    row = max((prefix for prefix in UNIT if file.startswith(prefix)), key=len)
    room = [path for name in paths_of(row) for path in (ROOT / name).rglob("test_*.py")]
    assert sorted(files) == sorted(path.relative_to(ROOT).as_posix() for path in room)
    assert files[0] == f"tests/unit/{first}"


@pytest.mark.parametrize(
    ("code", "output", "expected"),
    [
        (0, "", ""),
        (1, "...\nFAILED tests/unit/core/test_x.py::test_y[1] - AssertionError\n", "unit/core/test_x.py::test_y"),
        (2, "ERROR tests/unit/core/test_x.py - SyntaxError", "unit/core/test_x.py"),
        (None, "", "more than 300 s"),
    ],
)
def test_who_noticed(code: int | None, output: str, expected: str) -> None:
    assert who_noticed(Layer("unit", (), 300), code, output) == expected


def test_a_command_that_is_not_understood_notices_nothing() -> None:
    with pytest.raises(RuntimeError, match="usage: pytest"):
        who_noticed(Layer("unit", (), 300), 4, "usage: pytest")


def test_the_first_seed_that_notices_is_named() -> None:
    assert who_noticed(Layer("simulation", (), 60), 1, "seed 17 breaks high_watermarks") == "seed 17"


@pytest.mark.parametrize(
    ("row", "noticing", "expected"),
    [
        ({"simulation": "seed 7"}, {7, 3}, {}),
        ({"simulation": "seed 7"}, {3}, {"simulation": "seed 3"}),
        ({"simulation": "seed 7"}, set(), {"simulation": "", "seeds": "5"}),
        ({"simulation": ""}, {3}, {"simulation": "seed 3"}),
    ],
)
def test_another_seed_is_looked_for_where_the_named_one_is_stale(
    row: dict[str, str], noticing: set[int], expected: Noticed
) -> None:
    def ask(seeds: range) -> Noticed:
        first = min(noticing & set(seeds), default=None)
        return {"simulation": "", "seeds": str(len(seeds))} if first is None else {"simulation": f"seed {first}"}

    assert asked_again(row, range(5), ask) == expected


def test_the_seed_of_a_row() -> None:
    assert named_seed({"simulation": "seed 8202003"}) == 8202003
    assert [named_seed(row) for row in ({}, {"simulation": ""}, {"simulation": "more than 260 s"})] == [None] * 3


def test_layers_come_in_their_order() -> None:
    assert [layer.name for layer in layers_for("controller/core/step.py", range(3))] == list(LAYERS)
    assert [layer.name for layer in layers_for("broker_sim/replay/rows.py", range(3))] == ["unit"]
    real = layers_for("controller/world/real/zookeeper.py", range(3))
    assert [layer.name for layer in real] == ["unit", "known failure"], "no simulated world has it"
