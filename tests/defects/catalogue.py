"""The planted defects: small changes of the kind that good engineers make, each in a TOML file below its part.

    file      the module that is changed, from the top of the tree
    property  what no longer holds
    layer     who should notice first: `unit`, `script`, `known failure`, `simulation`
    old, new  the text that is there, exactly once, and what takes its place
    equivalent  instead of a layer: why nothing that anybody can see is different

Text, not line numbers: a defect stays where its code goes, and a test says when the text is not there any more.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
#: part -> how many defects there are at least.
PARTS: Final = {"controller": 40, "broker": 40, "replay": 10, "tools": 10}
SIMULATION: Final = "simulation"
LAYERS: Final = ("unit", "script", "known failure", SIMULATION)


class Planted(Protocol):
    """A change of one module that can be planted."""

    @property
    def file(self) -> str:
        """The module, from the top of the tree."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def breaks(self) -> str:
        """The property that no longer holds."""

    def planted(self, text: str) -> str:
        """The text of the module with the change in it."""


@dataclass(frozen=True, slots=True)
class Defect:
    """One change that should be noticed."""

    part: str
    name: str
    file: str
    breaks: str
    old: str
    new: str
    layer: str = ""
    equivalent: str = ""

    @property
    def key(self) -> str:
        """`part/name`."""
        return f"{self.part}/{self.name}"

    @property
    def applies(self) -> bool:
        """Whether its text is there, once."""
        path = ROOT / self.file
        return path.is_file() and path.read_text(encoding="utf-8").count(self.old) == 1

    def planted(self, text: str) -> str:
        """The text of the module with the defect in it. Raises: ValueError, unless `old` is there exactly once."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.key}: its text is {text.count(self.old)} times in {self.file}")
        return text.replace(self.old, self.new)


def read(path: Path) -> Defect:
    """The defect of one file. Raises: TypeError, for a key that is missing or unknown."""
    values = tomllib.loads(path.read_text(encoding="utf-8"))
    values["breaks"] = values.pop("property", "")
    return Defect(part=path.parent.name, name=path.stem, **values)


def defects(only: str = "") -> list[Defect]:
    """All of them, or those whose part, name or file contains `only`."""
    found = [read(path) for part in PARTS for path in sorted((HERE / part).glob("*.toml"))]
    return [defect for defect in found if only in f"{defect.key} {defect.file}"]
