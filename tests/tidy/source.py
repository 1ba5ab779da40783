"""Our source as data: files, modules by dotted name, their syntax trees and imports."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("controller", "broker_sim")
TOP_LEVEL = {
    ".ci",
    ".dockerignore",
    ".gitignore",
    "CHANGELOG.md",
    "Dockerfile",
    "LICENSE",
    "Makefile",
    "README.md",
    "broker_sim",
    "controller",
    "docker-compose.yml",
    "docs",
    "pyproject.toml",
    "requirements.lock",
    "tests",
}


def tracked() -> list[Path]:
    """The files of the project: git's list where there is a repository, else all that is not ignored."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.split("\0")
        files = [ROOT / name for name in listed if name]
    except (OSError, subprocess.CalledProcessError):
        files = [path for name in TOP_LEVEL for path in [ROOT / name, *(ROOT / name).rglob("*")]]
    return sorted(path for path in files if path.is_file() and "__pycache__" not in path.parts)


def modules_below(*folders: str) -> dict[str, Path]:
    """Modules below top-level folders, by dotted name."""
    found: dict[str, Path] = {}
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


#: The product's modules, and those of the tests.
MODULES = modules_below(*PACKAGES)
TEST_MODULES = modules_below("tests")


@cache
def text_of(path: Path) -> str:
    """What a file holds."""
    return path.read_text(encoding="utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(text_of(path))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a file, outer ones first."""
    return tuple(ast.walk(tree_of(path)))


def lines_of(path: Path) -> int:
    """How long a file is."""
    return len(text_of(path).splitlines())


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, also inside functions; `from a import b` counts as a.b where that is one."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES else module for name in names)


def functions_of(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function of a file, methods and nested ones included."""
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def under(module: str, *prefixes: str) -> bool:
    """Whether a module is one of these, or lies in one of these packages."""
    return any(module == prefix or module.startswith(prefix + ".") for prefix in prefixes)
