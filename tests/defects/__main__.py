"""`python -m tests.defects [--only WORD] [--workers 2] [--seeds A..B] [--every-layer | --named]`: who notices what.

One defect after the other, each worker in a copy of the tree of its own. What was noticed is kept in
`tests/defects/noticed.json` and drawn as docs/defects.md; a defect that was noticed before and did not change is left
out unless `--again` asks for it. Without `--every-layer`, the layers after the first that notices are not run.
`--named` plays, of each row that names a seed, that one world; where it does not notice any more, `--seeds` are asked,
and the first of them that does is named instead.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Collection
from functools import partial
from typing import Any

from tests.defects.catalogue import LAYERS, SIMULATION, Defect, defects
from tests.defects.copies import Copy, each_in_a_copy
from tests.defects.layers import layers_for
from tests.defects.named import asked_again, named_seed
from tests.defects.table import FILE, Noticed, document, has_run, is_noticed, load, store


def main() -> int:
    """Runs, stores after each defect, draws. 1 where a defect passes everything."""
    parser = argparse.ArgumentParser(prog="python -m tests.defects", description=__doc__)
    parser.add_argument("--only", default="", metavar="WORD", help="those whose part, name or file contains it")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seeds", default="0..19", metavar="A..B", help="worlds of the simulation")
    parser.add_argument("--minutes", type=float, default=0.0, help="begin no further defect after this time")
    parser.add_argument("--layers", default=",".join(LAYERS), help="by comma, of %(default)s")
    parser.add_argument("--every-layer", action="store_true", help="go on after the first layer that notices")
    parser.add_argument("--named", action="store_true", help="ask the seeds again that rows name, others where stale")
    parser.add_argument("--again", action="store_true", help="also those that were noticed before")
    asked = parser.parse_args()
    first, _, last = asked.seeds.partition("..")
    seeds = range(int(first), int(last or first) + 1)
    layers = asked.layers.split(",")
    noticed = load()
    real = [defect for defect in defects(asked.only) if not defect.equivalent]
    for gone in [defect for defect in real if not defect.applies]:
        print(f"{gone.key}: its text is not in {gone.file} any more", flush=True)
        real.remove(gone)
    if asked.named:
        todo = [defect for defect in real if named_seed(noticed.get(defect.key, {})) is not None]
    else:
        todo = [defect for defect in real if asked.again or not _is_done(noticed, defect, layers, asked.every_layer)]
    deadline = time.monotonic() + asked.minutes * 60 if asked.minutes else float("inf")

    def plant(copy: Copy, defect: Defect) -> Noticed | None:
        if time.monotonic() > deadline:
            return None
        if asked.named:
            ask = partial(copy.noticed, defect, layers=(SIMULATION,), every_layer=False)
            return asked_again(noticed[defect.key], seeds, ask)
        return copy.noticed(defect, seeds, layers, every_layer=asked.every_layer)

    for defect, found in each_in_a_copy(todo, asked.workers, plant):
        if found:
            store(noticed, defect, found)
        if found is not None:
            print(f"{defect.key}: {_line(found) or 'as it says'}", flush=True)
    FILE.write_text(document(noticed), encoding="utf-8")
    passed = [defect.key for defect in real if not is_noticed(noticed, defect)]
    print(f"{len(passed)} of {len(real)} pass: {' '.join(passed)}" if passed else "each is noticed")
    return 1 if passed else 0


def _is_done(noticed: dict[str, Any], defect: Defect, layers: Collection[str], every_layer: bool) -> bool:
    """Nothing is left to run."""
    if is_noticed(noticed, defect) and not every_layer:
        return True
    return has_run(noticed, defect, {layer.name for layer in layers_for(defect.file, range(1))} & set(layers))


def _line(found: Noticed) -> str:
    return "; ".join(f"{layer}: {who or '-'}" for layer, who in found.items())


if __name__ == "__main__":
    raise SystemExit(main())
