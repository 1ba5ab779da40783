"""The changes that a tool makes: each is one, and what only an annotation would notice is none."""

from __future__ import annotations

import ast

from cosmic_ray.plugins import operator_names

from tests.defects.catalogue import ROOT
from tests.defects.mutants import KINDS, MODULES, changes, drawn, places

FILE = "controller/core/leader_choice.py"
ZIPS = "controller/core/effects.py"


def test_every_change_of_a_module_runs_and_differs() -> None:
    text = (ROOT / FILE).read_text(encoding="utf-8")
    texts = [mutant.planted(text) for mutant in filter(changes, places(FILE))]
    assert len(set(texts)) == len(texts) > 20
    assert text not in texts
    for changed in texts:
        ast.parse(changed)


def test_a_draw_is_repeated_by_its_seed_and_says_how_many_there_are() -> None:
    first, every = drawn("core/leader_choice", 5, 3)
    assert (drawn("core/leader_choice", 5, 3), len(first)) == ((first, every), 5)
    assert drawn("core/leader_choice", 5, 4)[0] != first
    assert len(drawn("core/leader_choice", every + 1, 0)[0]) == len(list(filter(changes, places(FILE)))) <= every


def test_that_nobody_checks_how_long_what_is_zipped_is_counts_as_no_change() -> None:
    text = (ROOT / ZIPS).read_text(encoding="utf-8")
    switched_off = [
        mutant for mutant in places(ZIPS) if "True" in mutant.name and "strict=False" in mutant.planted(text)
    ]
    assert switched_off and not any(map(changes, switched_off))


def test_a_change_is_shown_as_the_lines_that_differ() -> None:
    text = (ROOT / FILE).read_text(encoding="utf-8")
    lines = next(filter(changes, places(FILE))).difference(text).splitlines()
    assert [line[4] for line in lines] == ["-", "+"]


def test_each_kind_is_one_that_the_tool_has() -> None:
    names = [name.rpartition("/")[2] for name in operator_names()]
    assert [kind for kind in KINDS if not any(name.startswith(kind) for name in names)] == []


def test_each_module_is_there() -> None:
    assert [module for module in MODULES if not (ROOT / module).exists()] == []
