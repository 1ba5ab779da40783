"""One real hour of processes: `python -m tests.soak --minutes 60`.

Plays the drawn scenario with `kwob scenario`, and looks every few seconds at what each process holds: memory and
descriptors. The processes that are never killed must not grow. Exit code 0: all of the scenario held, and nothing grew.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Final

from rich.console import Console

from controller.local.cluster_file import ClusterError, read_cluster
from controller.sim.curves import curves
from controller.sim.soak import grown
from tests.soak.drawn import moves, scenario

SAMPLE_S: Final = 5.0
#: Fewer tell nothing.
SAMPLES_LEAST: Final = 9
#: What may be added between the middle third and the last one, besides the share of `controller.sim.soak`.
MIB_MORE: Final = 12.0
DESCRIPTORS_MORE: Final = 8.0
#: Never killed.
STEADY: Final = ("broker-1", "controller-901")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def held(pid: int) -> tuple[float, float] | None:
    """(MiB in memory, open descriptors) of a process; None where there is none."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * _PAGE / 2**20, float(sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()))
    except (OSError, IndexError, ValueError):
        return None


def pids(data: Path) -> dict[str, int]:
    """The processes of the cluster by name, as its folder says."""
    try:
        row = read_cluster(data)
    except ClusterError:
        return {}
    named = [(f"broker-{b.id}", b.pid) for b in row.brokers] + [(f"controller-{c.id}", c.pid) for c in row.controllers]
    return {name: pid for name, pid in named if pid is not None}


def drifts_of(samples: dict[str, list[float]], more: float) -> list[str]:
    """Of the steady processes, those that grow."""
    found = []
    for name in STEADY:
        values = samples.get(name, [])
        if len(values) < SAMPLES_LEAST:
            found.append(f"{name}: {len(values)} samples, too few to tell")
        elif (drift := grown(values, more=more)) is not None:
            found.append(f"{name} grows: {drift[0]:.0f} in the middle, {drift[1]:.0f} at the end")
    return found


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("build/soak"), help="a folder, made if need be")
    options = parser.parse_args()
    out, data = options.out.resolve(), options.out.resolve() / "cluster"
    out.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(moves()):
        (out / f"{number}.json").write_text(text, encoding="utf-8")
    file = out / "scenario.json"
    file.write_text(json.dumps(scenario(options.seed, options.minutes, str(out)), indent=1), encoding="utf-8")
    memory, descriptors = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    kwob = str(Path(sys.executable).parent / "kwob")
    with subprocess.Popen([kwob, "scenario", str(file), "--data", str(data), "--overwrite"]) as playing:
        while playing.poll() is None:
            for name, pid in pids(data).items():
                if (figures := held(pid)) is not None:
                    memory[name].append(figures[0])
                    descriptors[name].append(figures[1])
            time.sleep(SAMPLE_S)
    (out / "samples.json").write_text(json.dumps({"mib": memory, "descriptors": descriptors}), encoding="utf-8")
    console = Console(highlight=False, soft_wrap=True)
    if memory:
        console.print(curves("MiB in memory", dict(sorted(memory.items()))))
        console.print(curves("open descriptors", dict(sorted(descriptors.items()))))
    wrong = [*drifts_of(memory, MIB_MORE), *drifts_of(descriptors, DESCRIPTORS_MORE)]
    console.print("\n".join(wrong) or "nothing grew", markup=False)
    return 1 if playing.returncode or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
