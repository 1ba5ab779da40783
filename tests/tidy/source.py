"""Our source as data: files, modules by dotted name, their syntax trees and imports."""

from __future__ import annotations

import ast
import re
import subprocess
from dataclasses import dataclass, field
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


def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file. Large: who asks for many should keep what it needs, not the trees."""
    return ast.parse(text_of(path))


def lines_of(path: Path) -> int:
    """How long a file is."""
    return len(text_of(path).splitlines())


@dataclass(slots=True)
class Facts:
    """What the checks need of a module, taken in one go."""

    docstring: str
    statements: int
    #: modules, also imported inside functions; `from a import b` counts as a.b where that is one
    imports: set[str] = field(default_factory=set)
    #: (name, lines) of each function, methods and nested ones included
    functions: list[tuple[str, int]] = field(default_factory=list)
    #: `a.b()` as (a, b); `b()` as ("", b)
    calls: set[tuple[str, str]] = field(default_factory=set)
    #: names that are loaded, as such or as attributes, and words in strings that look like paths of names
    uses: set[str] = field(default_factory=set)
    #: names that are given to variables, parameters, attributes and functions, without leading underscores
    made: set[str] = field(default_factory=set)
    #: attributes of the module `random` that are named, and whether each generator made has a seed
    chance: set[str] = field(default_factory=set)
    is_seeded: bool = True

    def note(self, node: ast.AST) -> None:
        """Takes one node."""
        if (name := name_made(node)) is not None:
            self.made.add(name.lstrip("_"))
        match node:
            case ast.Import():
                self.imports.update(alias.name for alias in node.names)
            case ast.ImportFrom():
                assert node.level == 0, "relative import"
                names = [f"{node.module}.{alias.name}" for alias in node.names]
                self.imports.update(name if name in MODULES else node.module or "" for name in names)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.functions.append((node.name, (node.end_lineno or 0) - node.lineno + 1))
            case ast.Name(id=name, ctx=ast.Load()):
                self.uses.add(name)
            case ast.Attribute(attr=name, ctx=ast.Load()):
                self.uses.add(name)
                if isinstance(node.value, ast.Name) and node.value.id == "random":
                    self.chance.add(name)
            case ast.Constant(value=str() as text) if re.fullmatch(r"[\w.:]+", text):
                self.uses.update(re.split(r"[.:]", text))
            case ast.Call(func=ast.Attribute(attr=name) as called):
                self.calls.add((called.value.id if isinstance(called.value, ast.Name) else "?", name))
                if ast.unparse(called) == "random.Random" and not node.args:
                    self.is_seeded = False
            case ast.Call(func=ast.Name(id=name)):
                self.calls.add(("", name))


@cache
def facts_of(path: Path) -> Facts:
    """The facts of a file."""
    return facts_in(tree_of(path))


def facts_in(tree: ast.Module) -> Facts:
    """The facts of a tree."""
    facts = Facts(docstring=ast.get_docstring(tree) or "", statements=len(tree.body))
    for node in ast.walk(tree):
        facts.note(node)
    return facts


def imports(path: Path) -> set[str]:
    """Every module that a file imports."""
    return facts_of(path).imports


#: What namedtuple and Enum call theirs although it is public.
_PUBLIC = {"_replace", "_fields", "_asdict", "_value2member_map_"}


def private_reaches(path: Path) -> list[str]:
    """The places where a file looks at a private attribute of something that is not `self`, `cls` or `super()`."""
    if not re.search(r"[\w\])]\._[a-z]", text_of(path)):
        return []
    own = ("self", "cls", "super()")
    return [
        f"{path.name}:{node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute)
        and re.match(r"_[^_]", node.attr)
        and node.attr not in _PUBLIC
        and ast.unparse(node.value) not in own
    ]


def name_made(node: ast.AST) -> str | None:
    """The name that a node gives to a variable, parameter, attribute or function."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
            return name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return name
    return None


def under(module: str, *prefixes: str) -> bool:
    """Whether a module is one of these, or lies in one of these packages."""
    return any(module == prefix or module.startswith(prefix + ".") for prefix in prefixes)
