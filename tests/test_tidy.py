"""What holds for the whole tree: the top level, the layers, sizes, and words that do not belong here."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
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
#: The guide, which nine files in ten keep to, and where it stops being a guide.
LINES_GUIDE, LINES_MAX = 400, 650

#: room -> rooms of our own that it may import besides itself; the longest prefix that fits counts. Arrows go down.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    # what crosses a border, and Kafka's arithmetic: both programs know them, and they know nobody
    "controller.wire": (),
    "controller.rules": ("controller.wire",),
    # the ports, and what stands behind them: only who puts a program together knows the latter
    "controller.world": ("controller.wire",),
    "controller.world.real": ("controller.world.ports", "controller.wire"),
    "controller.world.simulated": ("controller.world.ports", "controller.wire"),
    # the controller: deciding, and the shell around it
    "controller.core": ("controller.wire", "controller.rules"),
    "controller.node": ("controller.core", "controller.wire", "controller.rules", "controller.world"),
    # clients of the protocol
    "controller.admin": ("controller.wire", "controller.rules", "controller.world"),
    # whole clusters
    "controller.local": ("controller.admin", "controller.wire", "controller.rules", "controller.world"),
    "controller.demo": (
        "controller.local",
        "controller.admin",
        "controller.wire",
        "controller.rules",
        "controller.world",
    ),
    # the composition root: what starts programs may know them all
    "controller": ("controller", "broker_sim"),
    "broker_sim": ("broker_sim", "controller.wire", "controller.rules", "controller.world"),
    "broker_sim.isr": ("controller.wire",),
    "broker_sim.replay": ("broker_sim.isr", "controller.wire", "controller.rules", "controller.world"),
}
#: room -> what it may not import although the row above allows it.
MAY_NOT_IMPORT: dict[str, tuple[str, ...]] = {
    "controller.world": ("controller.world.real", "controller.world.simulated"),
    "controller.world.real": (),
    "controller.world.simulated": (),
    "broker_sim.replay": (
        "controller.world.real.net",
        "controller.world.real.zookeeper",
        "controller.world.simulated",
    ),
    "broker_sim": ("broker_sim.replay",),
}
#: library -> the only modules that may import it.
ONLY_IN: dict[str, tuple[str, ...]] = {
    "kazoo": ("controller.world.real.zookeeper", "controller.world.real.kazoo_connection"),
    "kio": ("controller.wire.codec.kio_schemas", "controller.wire.codec.schema"),
    "pyspark": ("broker_sim.replay",),
    "confluent_kafka": ("controller.demo",),
    "prometheus_client": ("controller.node.metrics",),
}
#: What decides does no I/O and has no clock: neither of these, nor asyncio.
IMPURE = {"asyncio", "kazoo", "pyspark", "random", "socket", "structlog", "subprocess", "threading", "time"}
PURE = ("controller.core", "broker_sim.isr", "controller.demo.checks", "controller.demo.compare")
#: Outside these, time passes on the event loop and chance comes from a generator that is passed in.
#: module -> functions nobody calls there.
FORBIDDEN_CALLS = {("time", "time"), ("time", "sleep"), ("socket", "socket"), ("socket", "create_connection")}
FORBIDDEN_CALLS |= {("random", name) for name in ("random", "randint", "choice", "shuffle", "uniform", "sample")}
MAY_CALL = ("controller.world.real", "controller.world.real.embedded_zookeeper", "controller.local", "controller.demo")

WORDS = {
    "an absolute path of one machine": re.compile(r"(?<![\w.])/(?:work|home|root|Users)/\w"),
    "a package registry": re.compile(r"\b(?:files\.pythonhosted|pypi|registry\.npmjs)\.(?:org|com)\b|\bindex-url\s*="),
    "how it was written": re.compile(
        r"\b(?:chatgpt|claude|copilot|llm|anthropic|openai|helper [1-9])\b", re.IGNORECASE
    ),
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


def modules() -> dict[str, Path]:
    """Our modules by dotted name."""
    found: dict[str, Path] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, also inside functions; `from a import b` counts as a.b where that is one."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES else module for name in names)


def under(module: str, *prefixes: str) -> bool:
    return any(module == prefix or module.startswith(prefix + ".") for prefix in prefixes)


def row(table: dict[str, tuple[str, ...]], module: str) -> tuple[str, ...] | None:
    fitting = [prefix for prefix in table if under(module, prefix)]
    return table[max(fitting, key=len)] if fitting else None


def test_the_top_level_is_closed() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in tracked()} <= TOP_LEVEL


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_module_imports_only_what_its_layer_allows(module: str) -> None:
    ours = {name for name in imports(MODULES[module]) if under(name, *PACKAGES)}
    allowed, refused = row(MAY_IMPORT, module) or (), row(MAY_NOT_IMPORT, module) or ()
    home = max((room for room in MAY_IMPORT if under(module, room)), key=len)
    too_far = {name for name in ours if not under(name, home, *allowed) or under(name, *refused)}
    assert not too_far, f"{module} may not import {sorted(too_far)}"


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_library_is_imported_only_by_its_adapter(module: str) -> None:
    for name in imports(MODULES[module]):
        places = ONLY_IN.get(name.split(".")[0])
        assert places is None or under(module, *places), f"{module} imports {name}; only {places} may"


@pytest.mark.parametrize("module", sorted(module for module in MODULES if under(module, *PURE)))
def test_what_decides_is_pure(module: str) -> None:
    assert not {name.split(".")[0] for name in imports(MODULES[module])} & IMPURE


@pytest.mark.parametrize("module", sorted(module for module in MODULES if not under(module, *MAY_CALL)))
def test_time_chance_and_sockets_are_passed_in(module: str) -> None:
    called = {
        (node.func.value.id, node.func.attr)
        for node in ast.walk(tree_of(MODULES[module]))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)
    }
    assert not called & FORBIDDEN_CALLS, f"{module} calls {sorted(called & FORBIDDEN_CALLS)}"


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_module_says_what_it_is_for(module: str) -> None:
    tree = tree_of(MODULES[module])
    assert ast.get_docstring(tree), f"{module} has no docstring"
    if MODULES[module].name == "__init__.py":
        assert len(tree.body) == 1, f"{module}: an __init__ holds a docstring only; importing a submodule runs it"


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_file_can_be_read_in_one_go(module: str) -> None:
    assert lines_of(module) <= LINES_MAX


def test_most_files_are_short() -> None:
    assert sum(lines_of(module) > LINES_GUIDE for module in MODULES) <= len(MODULES) / 10


def lines_of(module: str) -> int:
    return len(MODULES[module].read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("what", WORDS)
def test_no_file_tells(what: str) -> None:
    found = []
    for path in tracked():
        if path.name in ("LICENSE", "requirements.lock", Path(__file__).name):
            continue
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}:{n}" for n, line in enumerate(lines, 1) if WORDS[what].search(line)]
    assert not found, f"{what}: {found}"


def test_the_lock_file_names_no_host() -> None:
    assert "://" not in (ROOT / "requirements.lock").read_text(encoding="utf-8")


def test_what_workers_begin_with_is_there(request: pytest.FixtureRequest) -> None:
    """A folder that moved would be begun last, and waited for."""
    workers = request.config.pluginmanager.get_plugin(str(ROOT / "tests" / "conftest.py"))
    assert workers is not None
    assert [path for path in workers.LONGEST_FIRST if not (ROOT / path).is_dir()] == []
