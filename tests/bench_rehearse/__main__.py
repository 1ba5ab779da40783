"""Rehearsals of large clusters: what `kwob rehearse` costs, reading the files and writing the folder included.

    make bench-rehearse
    make bench-rehearse ARGS="--only day --profile flames"

Each case is one process, as a person starts it; a rehearsal uses one core. CPU seconds and the most memory are those of
the process (getrusage), so other work on the machine lengthens only the wall's time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from controller.rehearse.printing import bare_table, wide_console
from tests.bench_broker.scale import profiled

GB: Final = 1_000_000_000
#: Partitions of a topic.
WIDTH: Final = 100
#: A day's curve of clients' rates, hour by hour.
CURVE: Final = (
    0.5, 0.4, 0.4, 0.4, 0.5, 0.6, 0.8, 1.0, 1.2, 1.3, 1.3, 1.3, 1.3, 1.3, 1.3, 1.2, 1.2, 1.1, 1.0, 1.0, 0.9, 0.8, 0.7,
    0.6,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """One rehearsal: of so many brokers and partitions, each of that size; `plan`: the partitions that move."""

    what: str
    brokers: int
    partitions: int
    size: int
    rate: float
    scenario: Mapping[str, Any]
    moves: int = 0
    aim: str = ""


_REASSIGN: Final = {"at": "1h", "do": "reassign", "file": "plan.json", "throttle": "20MB"}


def _day(what: str, **reassign: int) -> Case:
    events = [{"at": "0s", "do": "curve", "factors": list(CURVE)}, {**_REASSIGN, **reassign}]
    return Case(what, 100, 20_000, GB, 20_000, {"events": events, "end": "1d"}, moves=10_000, aim="180 s, 2 GiB")


CASES: Final[Mapping[str, Case]] = {
    "day": _day("a day with its curve; 10,000 of the partitions move in batches of 500, 10 TB at 20 MB/s", batch=500),
    "at-once": _day("the same day; all 10,000 move at once"),
    "rack": Case(
        "one of four racks killed for 5 min, until all is whole",
        200,
        200_000,
        GB // 10,
        5_000,
        {"events": [{"at": "10s", "for": "5m", "do": "kill", "rack": "a"}]},
        aim="600 s",
    ),
}  # fmt: skip


def write(case: Case, folder: Path) -> Path:
    """The scenario, the cluster and the plan as files; returns the first."""
    ids = range(1, case.brokers + 1)
    brokers = [{"id": n, "rack": "abcd"[n % 4], "link_bytes_per_s": 125e6, "disk_bytes_per_s": 500e6} for n in ids]
    # steps of 1, 5, 9, ...: the replicas of a partition are in different racks, and leaders have many followers
    steps = [1 + 4 * (n // case.brokers % (case.brokers // 4 - 2)) for n in range(case.partitions)]
    replicas = [[(n + k * step) % case.brokers + 1 for k in range(3)] for n, step in enumerate(steps)]
    shapes = [
        {"replicas": ids, "bytes": case.size, "in_bytes_per_s": case.rate, "out_bytes_per_s": case.rate}
        for ids in replicas
    ]
    topics = {
        f"topic-{n // WIDTH}": {"partitions": shapes[n : n + WIDTH], "configs": {"min.insync.replicas": "2"}}
        for n in range(0, case.partitions, WIDTH)
    }
    (folder / "cluster.json").write_text(json.dumps({"version": 1, "brokers": brokers, "topics": topics}))
    rows = [
        {
            "topic": f"topic-{n // WIDTH}",
            "partition": n % WIDTH,
            "replicas": [*replicas[n][:2], (replicas[n][2] + 3) % case.brokers + 1],
        }
        for n in range(case.moves)
    ]
    (folder / "plan.json").write_text(json.dumps({"version": 1, "partitions": rows}))
    path = folder / "scenario.yaml"
    path.write_text(json.dumps({"cluster": "cluster.json", **case.scenario}))
    return path


def measure(name: str, case: Case, profile: Path | None, say: Callable[[str], None]) -> list[str]:
    """One row of the table. Raises SystemExit when the rehearsal fails."""
    with tempfile.TemporaryDirectory(prefix="bench-rehearse-") as folder:
        path = write(case, Path(folder))
        out, err = Path(folder) / "summary.json", Path(folder) / "errors"
        argv = [sys.executable, "-m", "controller.cli", "rehearse", str(path), "--json", "--out", f"{folder}/out"]
        began = time.monotonic()
        with out.open("wb") as summary, err.open("wb") as errors:
            process = subprocess.Popen(argv, stdout=summary, stderr=errors, cwd=Path(__file__).parents[2])
            try:
                with profiled(profile, {name: process.pid}):
                    _, status, used = os.wait4(process.pid, 0)
            except BaseException:
                process.kill()
                raise
        if status:
            raise SystemExit(f"{name}: {err.read_text()[-2000:]}")
        found = json.loads(out.read_text())
        say(f"{name}: {found['answer']}")
        return [
            name,
            f"{case.brokers} × {case.partitions:,}",
            case.what,
            f"{used.ru_utime + used.ru_stime:.0f} s",
            f"{time.monotonic() - began:.0f} s",
            f"{used.ru_maxrss * 1024 / GB:.2f} GB",
            case.aim,
        ]


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="bench-rehearse", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=list(CASES), action="append")
    parser.add_argument("--profile", type=Path, metavar="DIR", help="leave flame graphs there (needs py-spy)")
    options = parser.parse_args()
    console = wide_console()
    table = bare_table(("case", "brokers × partitions", "what", "CPU", "wall", "memory", "aim"), left=3)
    for name in options.only or CASES:
        table.add_row(*measure(name, CASES[name], options.profile, console.print))
    console.print(f"load average {os.getloadavg()[0]:.1f} at the end, of {os.cpu_count()} cores")
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
