"""What noticed which defect: kept as JSON, drawn as docs/defects.md (`python -m tests.defects.table` draws alone)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from typing import Any, Final

from tests.defects.catalogue import HERE, LAYERS, PARTS, ROOT, SIMULATION, Defect, defects

#: layer -> who noticed there; an empty text where nobody did. `SEEDS`: how many worlds then did not.
Noticed = dict[str, str]
SEEDS: Final = "seeds"
FILE: Final = ROOT / "docs" / "defects.md"
KEPT: Final = HERE / "noticed.json"
_HEAD: Final = """\
# Planted defects

Changes of the kind that good engineers make, planted one at a time (`make defects`), and who notices: a test of the
room, a script, a test of a known failure, or the simulation, at the seed that is named. A dash is a layer that ran and
saw nothing; a blank one did not run, since one before it had noticed, or there is none. The simulation was asked with
one seed after the other until one noticed, mostly from 0 on, some from where worlds have the steps that it needs; a
dash there says how many did not. What worlds draw grows, so a seed may notice no more what it noticed once:
`make defects ARGS=--named` asks the named ones again. `make mutants` draws changes that a tool makes.
"""


def load() -> dict[str, dict[str, Any]]:
    """What is kept, by `part/name`."""
    return json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.is_file() else {}


def store(noticed: dict[str, dict[str, Any]], defect: Defect, found: Noticed) -> None:
    """Keeps what was found, with a mark of the change that it was found for."""
    before = noticed.get(defect.key, {}) if noticed.get(defect.key, {}).get("change") == change_of(defect) else {}
    noticed[defect.key] = {**before, **found, "change": change_of(defect)}
    KEPT.write_text(json.dumps(noticed, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def change_of(defect: Defect) -> str:
    """Other texts, another mark."""
    return hashlib.sha256(f"{defect.file}\0{defect.old}\0{defect.new}".encode()).hexdigest()[:12]


def is_noticed(noticed: dict[str, dict[str, Any]], defect: Defect) -> bool:
    """Whether some layer noticed it, as it is now."""
    row = noticed.get(defect.key, {})
    return row.get("change") == change_of(defect) and any(row.get(layer) for layer in LAYERS)


def has_run(noticed: dict[str, dict[str, Any]], defect: Defect, layers: Collection[str]) -> bool:
    """Whether all these layers ran against it, as it is now."""
    row = noticed.get(defect.key, {})
    return row.get("change") == change_of(defect) and set(layers) <= row.keys()


def document(noticed: dict[str, dict[str, Any]]) -> str:
    """The whole file."""
    every = defects()
    lines = [_HEAD, _summary(noticed, every)]
    for part in PARTS:
        lines += [f"\n## {part}\n", "| defect | property | unit | script | known failure | simulation |"]
        lines.append("|---|---|---|---|---|---|")
        for defect in every:
            if defect.part == part:
                cells = _cells(noticed.get(defect.key, {}), defect)
                lines.append(f"| {defect.name} | {defect.breaks} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _summary(noticed: dict[str, dict[str, Any]], every: list[Defect]) -> str:
    real = [defect for defect in every if not defect.equivalent]
    rows = [noticed.get(defect.key, {}) for defect in real]
    seen = sum(any(row.get(layer) for layer in LAYERS) for row in rows)
    by = ", ".join(f"{layer} {sum(bool(row.get(layer)) for row in rows)}" for layer in LAYERS)
    same, left = len(every) - len(real), len(real) - seen
    return (
        f"{seen} of {len(real)} are noticed ({by}); {left} have not run through all layers, or pass them; "
        f"{same} more change nothing that anybody can see."
    )


def _cells(row: dict[str, Any], defect: Defect) -> list[str]:
    if defect.equivalent:
        return [f"equivalent: {defect.equivalent}", "", "", ""]
    return ["" if layer not in row else f"`{row[layer]}`" if row[layer] else _dash(row, layer) for layer in LAYERS]


def _dash(row: dict[str, Any], layer: str) -> str:
    return f"- in {row.get(SEEDS, 'seven')}" if layer == SIMULATION else "-"


if __name__ == "__main__":
    FILE.write_text(document(load()), encoding="utf-8")
