"""What the product defines and never uses itself: functions, methods, classes and constants, by name.

A name is used where product code loads it, as a name or an attribute, or has it in a string (tables of commands).
Imports are no use. Two definitions of one name keep each other alive: what is found here is certain, not complete.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from tests.tidy.source import MODULES, facts_of, tree_of

#: Decorators that hand a function to a library, which calls it.
_CALLED_BY_LIBRARIES = (
    "field_validator",
    "model_validator",
    "field_serializer",
    "computed_field",
    "overload",
    "override",
)
#: Used by others than our own code -> by whom.
ALLOWED: dict[str, str] = {
    "Segment.index_entries": "tests of recovery, which compare the index in memory with its file",
    "Request.deserialize": "kazoo",
    "BatchingConnection._send_request": "kazoo",
    "BatchingConnection._read_watch_event": "kazoo",
    "TcpConnection.connection_made": "asyncio",
    "TcpConnection.data_received": "asyncio",
    "TcpConnection.eof_received": "asyncio",
    "TcpConnection.connection_lost": "asyncio",
    "TcpConnection.pause_writing": "asyncio",
    "VirtualTimeLoop._run_once": "asyncio",
    "VirtualTimeLoop._process_events": "asyncio",
    "VirtualTimeLoop._write_to_self": "asyncio",
    "Handles.api_error": "tests of users",
    "Handles.wait_for_no_moves": "tests of users",
    "KwobContainer": "tests of users",
    "KwobContainer.get_bootstrap_server": "tests of users",
    "KwobContainer.network_bootstrap_servers": "tests of users",
    "pytest_configure": "pytest",
    "pytest_runtest_makereport": "pytest",
    "pytest_runtest_setup": "pytest",
    "SimulatedNetwork.transcript": "who looks at a simulated world",
}


def unused() -> dict[str, str]:
    """`module:line` of each definition that no product code uses, by `Class.name` or name."""
    used = _used()
    return {
        name: f"{module}:{line}"
        for module, path in MODULES.items()
        for name, line in _defined(tree_of(path).body)
        if name.rpartition(".")[2] not in used and name not in ALLOWED and not name.endswith("__")
    }


def _defined(body: list[ast.stmt], within: str = "") -> Iterator[tuple[str, int]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_called_by_a_library(node):
            yield within + node.name, node.lineno
        elif isinstance(node, ast.ClassDef):
            yield within + node.name, node.lineno
            yield from _defined(node.body, f"{node.name}.")
        elif isinstance(node, ast.Assign | ast.AnnAssign) and not within:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((target.id, node.lineno) for target in targets if isinstance(target, ast.Name))


def _is_called_by_a_library(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(name in ast.unparse(decorator) for decorator in node.decorator_list for name in _CALLED_BY_LIBRARIES)


@cache
def _used() -> frozenset[str]:
    return frozenset(name for path in MODULES.values() for name in facts_of(path).uses)
