"""Which optional packages a command needs, and the line that says what to install where they are not.

The core (`pip install kwob`) is light; the extras are those of pyproject.toml.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Final

#: extra -> the modules that it brings and that the core may lack; of several, who imports a module wants the first.
EXTRAS: Final[dict[str, tuple[str, ...]]] = {
    "load": ("confluent_kafka",),
    "rehearse": ("numpy", "pyarrow"),
    "replay": ("duckdb", "jinja2", "numpy", "pandas", "py4j", "pyarrow", "pyspark"),
    "testcontainers": ("testcontainers",),
    "ui": ("starlette", "uvicorn"),
    "up": ("pyspark",),
}
#: command -> the extras without which it does nothing.
NEEDED: Final[dict[str, tuple[str, ...]]] = {
    "demo": ("load", "replay"),
    "up": ("up",),
    "scenario": ("up", "load"),
    "ui": ("ui",),
    "load": ("load",),
    "produce": ("load",),
    "consume": ("load",),
    "rehearse": ("rehearse",),
    "plan": ("rehearse",),
    "trace": ("replay",),
    "replay": ("replay",),
}


def lacking(extras: Iterable[str]) -> list[str]:
    """Those of the extras that are not installed whole."""
    return [extra for extra in extras if any(find_spec(module) is None for module in EXTRAS[extra])]


def extra_of(module: str | None, preferred: Iterable[str] = ()) -> str | None:
    """The extra that brings the package of a module, one of `preferred` first; None where none does."""
    package = (module or "").partition(".")[0]
    order = [*preferred, *EXTRAS]
    return next((extra for extra in order if package in EXTRAS[extra]), None)


def what_to_install(command: str, extras: Iterable[str]) -> str:
    """The line for a command that lacks these extras."""
    return f"kwob {command} needs packages that are not installed: pip install 'kwob[{','.join(extras)}]'"
