"""Which dataclasses of a room may change: those that are handed around as values must not."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from typing import Any


def dataclasses_of(room: str) -> list[type[Any]]:
    """Those of a module, or of a package's own modules and not of packages below it."""
    top = importlib.import_module(room)
    below = [each.name for each in pkgutil.iter_modules(getattr(top, "__path__", ())) if not each.ispkg]
    modules = [top, *(importlib.import_module(f"{room}.{name}") for name in below if name != "__main__")]
    found = [(module, each) for module in modules for each in vars(module).values() if isinstance(each, type)]
    return [each for module, each in found if dataclasses.is_dataclass(each) and each.__module__ == module.__name__]


def changing(room: str) -> set[str]:
    """The names of those of a room that can be changed once they are made."""
    return {each.__name__ for each in dataclasses_of(room) if not each.__dataclass_params__.frozen}
