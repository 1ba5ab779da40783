"""Who changes what the controller believes: the module of the verbs, and nobody but recipes calls a verb."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.tidy.source import MODULES, tree_of

STATE, VIEW = "controller.core.state", "controller.core.view"
MUTATORS = {
    *("add", "append", "clear", "difference_update", "discard", "extend", "insert", "intersection_update", "pop"),
    *("popitem", "remove", "setdefault", "symmetric_difference_update", "update"),
}


def verbs() -> set[str]:
    """The public methods by which `ClusterState` changes: all that `ClusterView` does not have."""
    (cls,) = (n for n in tree_of(MODULES[STATE]).body if isinstance(n, ast.ClassDef) and n.name == "ClusterState")
    return {node.name for node in cls.body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"}


def is_state(node: ast.AST) -> bool:
    """Whether an expression is a controller's state by its name: `state`, `self.state`, `node.state`, `x._state`."""
    return (isinstance(node, ast.Name) and node.id == "state") or (
        isinstance(node, ast.Attribute) and node.attr in ("state", "_state")
    )


def part_of_state(node: ast.AST) -> str | None:
    """The attribute of the state that an expression is, or is a part of."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute) and is_state(node.value):
            return node.attr
        node = node.value
    return None


def changes_of_state(tree: ast.AST) -> Iterator[str]:
    """Where a tree changes a state otherwise than by calling it: assignments, deletions, methods that change a part of
    it, and looks behind its doors."""
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.Delete):
            targets = list(node.targets)
        elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS:
            targets = [node.func.value]
        flat = [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
        yield from (f"line {part.lineno}: {name}" for part in flat if (name := part_of_state(part)) is not None)
        if isinstance(node, ast.Attribute) and is_state(node.value) and re.match(r"_[a-z]", node.attr):
            yield f"line {node.lineno}: {node.attr}"
