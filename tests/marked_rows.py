"""Which tests hold which row of a table: found by a marker that names rows, without running any test.

The marker stands on a function, or on all of a module by `pytestmark`.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parent


def covered(marker: str) -> dict[str, list[str]]:
    """The tests of each row that the marker names, as `path::name` below tests/."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        for name, keys in _marked(ast.parse(text), marker) if f"mark.{marker}(" in text else ():
            for key in keys:
                found[key].append(f"{path.relative_to(TESTS).as_posix()}::{name}")
    return dict(found)


def _marked(module: ast.Module, marker: str) -> Iterator[tuple[str, list[str]]]:
    """The tests of a module that carry the marker, with the rows it names."""
    everywhere: list[str] = []
    for node in module.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets):
            everywhere += _keys(ast.walk(node.value), marker)
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            own = [key for decorator in node.decorator_list for key in _keys(ast.walk(decorator), marker)]
            if keys := list(dict.fromkeys(everywhere + own)):
                yield node.name, keys


def _keys(nodes: Iterable[ast.AST], marker: str) -> list[str]:
    return [
        str(argument.value)
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == marker
        for argument in node.args
        if isinstance(argument, ast.Constant)
    ]
