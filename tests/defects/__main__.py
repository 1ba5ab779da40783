"""`python -m tests.defects [--only WORD] [--workers 2] [--seeds A..B] [--every-layer]`: plants and looks who notices.

One defect after the other, each worker in a copy of the tree of its own. What was noticed is kept in
`tests/defects/noticed.json` and drawn as docs/defects.md; a defect that was noticed before and did not change is left
out unless `--again` asks for it. Without `--every-layer`, the layers after the first that notices are not run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import Queue
from typing import Any

from tests.defects.catalogue import LAYERS, ROOT, Defect, defects
from tests.defects.layers import Layer, layers_for, python, who_noticed
from tests.defects.table import FILE, Noticed, document, has_run, is_noticed, load, store

#: What tests need of the tree.
_COPIED = ("broker_sim", "controller", "docs", "tests", "pyproject.toml", "README.md", "CHANGELOG.md", "Makefile")


class Copy:
    """A copy of the tree in which one defect at a time is planted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in _COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(ROOT / name, folder / name)
        self._written = int(time.time())

    def noticed(self, defect: Defect, seeds: range, layers: Collection[str], *, every_layer: bool) -> Noticed:
        """Runs the layers against the defect."""
        path = self.folder / defect.file
        sound = path.read_text(encoding="utf-8")
        found: dict[str, str] = {}
        self._write(path, defect.planted(sound))
        try:
            for layer in layers_for(defect.file, seeds, f"{defect.name} {defect.breaks}"):
                if layer.name not in layers:
                    continue
                found[layer.name] = self._run(layer)
                if found[layer.name] and not every_layer:
                    break
        finally:
            self._write(path, sound)
        return found

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text, encoding="utf-8")
        self._written += 2  # compiled code is kept by the time of its source, in seconds
        os.utime(path, (self._written, self._written))

    def _run(self, layer: Layer) -> str:
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "PYTHONHASHSEED": "0"}
        try:
            done = subprocess.run(
                python(layer), cwd=self.folder, env=environment, capture_output=True, text=True, timeout=layer.limit_s
            )
        except subprocess.TimeoutExpired:
            return who_noticed(layer, None, "")
        return who_noticed(layer, done.returncode, done.stdout + done.stderr)


def main() -> int:
    """Runs, stores after each defect, draws. 1 where a defect passes everything."""
    parser = argparse.ArgumentParser(prog="python -m tests.defects", description=__doc__)
    parser.add_argument("--only", default="", metavar="WORD", help="those whose part, name or file contains it")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seeds", default="0..19", metavar="A..B", help="worlds of the simulation")
    parser.add_argument("--minutes", type=float, default=0.0, help="begin no further defect after this time")
    parser.add_argument("--layers", default=",".join(LAYERS), help="by comma, of %(default)s")
    parser.add_argument("--every-layer", action="store_true", help="go on after the first layer that notices")
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
    todo = [defect for defect in real if asked.again or not _is_done(noticed, defect, layers, asked.every_layer)]
    deadline = time.monotonic() + asked.minutes * 60 if asked.minutes else float("inf")
    with tempfile.TemporaryDirectory(prefix="kwob-defects-") as folder:
        free: Queue[Copy] = Queue()
        for number in range(min(asked.workers, len(todo)) or 1):
            free.put(Copy(Path(folder) / str(number)))

        def plant(defect: Defect) -> tuple[Defect, Noticed | None]:
            copy = free.get()
            try:
                late = time.monotonic() > deadline
                return defect, None if late else copy.noticed(defect, seeds, layers, every_layer=asked.every_layer)
            finally:
                free.put(copy)

        with ThreadPoolExecutor(max_workers=asked.workers) as pool:
            for done in as_completed([pool.submit(plant, defect) for defect in todo]):
                defect, found = done.result()
                if found is not None:
                    store(noticed, defect, found)
                    print(f"{defect.key}: {_line(found)}", flush=True)
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
