"""What calls itself pure is: no clock, no chance, no I/O, no task."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.tidy.source import MODULES, imports, tree_of, under

#: What decides knows none of these, nor a port behind which one stands.
IMPURE = {
    *("asyncio", "concurrent", "fcntl", "http", "multiprocessing", "os", "random", "secrets", "select", "selectors"),
    *("shutil", "signal", "socket", "ssl", "structlog", "subprocess", "sys", "tempfile", "threading", "time", "urllib"),
    *("confluent_kafka", "kazoo", "prometheus_client", "pyspark", "controller.world", "broker_sim.host"),
}
#: Packages that decide, whatever their modules say of themselves.
ALWAYS = (
    "controller.core",
    "broker_sim.isr",
    "broker_sim.isr_columns",
    "controller.demo.checks",
    "controller.demo.compare",
)
#: module -> what it may nevertheless import, and why.
BUT_FOR: dict[str, dict[str, str]] = {
    "controller.world.real.armed_watches": {"controller.world.real.jute": "bytes in, bytes out; pure itself"},
    "controller.world.real.units": {"asyncio": "settles the future of a unit, as its docstring says"},
}
#: Functions of the clock, and of the process's own generator.
_FORBIDDEN_CALLS = {("time", "time"), ("time", "sleep"), ("socket", "socket"), ("socket", "create_connection")}
_FORBIDDEN_CALLS |= {("random", name) for name in ("random", "randint", "choice", "shuffle", "uniform", "sample")}
_FILE_CALLS = {"open", "read_text", "read_bytes", "write_text", "write_bytes"}


def pure_modules() -> list[str]:
    """The modules that say so in their docstring as a word of its own sentence, and those that must be."""
    return [name for name, path in MODULES.items() if under(name, *ALWAYS) or _says_pure(tree_of(path))]


def _says_pure(tree: ast.Module) -> bool:
    return re.search(r"(^|[.:;] )Pure\b", " ".join((ast.get_docstring(tree) or "").split())) is not None


def impurities(module: str) -> set[str]:
    """What a pure module imports or calls that is not; a generator of chance with a seed is."""
    tree = tree_of(MODULES[module])
    allowed = BUT_FOR.get(module, {})
    found = {name for name in imports(MODULES[module]) if under(name, *IMPURE) and name not in allowed}
    if _is_seeded(tree):
        found.discard("random")
    return found | {f"{name}()" for name in _file_calls(tree)}


def _is_seeded(tree: ast.Module) -> bool:
    """Generators are passed in, or made from a seed: nothing else of `random` is named."""
    named = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_name(node.value, "random")}
    made = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "random.Random"]
    return named <= {"Random"} and all(node.args for node in made)


def _file_calls(tree: ast.Module) -> Iterator[str]:
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    excepted = {id(inner) for node in classes if _has_files(tree, node) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and id(node) not in excepted:
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in _FILE_CALLS:
                yield name


def _has_files(tree: ast.Module, node: ast.ClassDef) -> bool:
    """A class that the docstring excepts by name: "Pure but for `EpochFile`"."""
    return f"ure but for `{node.name}`" in " ".join((ast.get_docstring(tree) or "").split())


def calls(tree: ast.Module) -> set[tuple[str, str]]:
    """The calls `a.b()` of a module, as (a, b)."""
    return {
        (node.func.value.id, node.func.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)
    }


def calls_of_the_world(module: str) -> set[tuple[str, str]]:
    """Calls that take time, chance or a socket from the process instead of from what was passed in."""
    return calls(tree_of(MODULES[module])) & _FORBIDDEN_CALLS


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
