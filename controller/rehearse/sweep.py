"""`kwob rehearse sweep`: many rehearsals of one scenario, one row each; as one Spark job, or in processes.

What varies is a list of `variants`: every single broker or rack that is lost at a moment, each of some throttles, each
of some seeds. A variant is a value; where it runs does not matter.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from broker_sim.replay.errors import ReplayRefused
from controller.rehearse import files
from controller.rehearse.compare import figures
from controller.rehearse.run import rehearse
from controller.rehearse.scenario import ScenarioError
from controller.rehearse.scenario_file import load
from controller.rehearse.variants import Variant, play, play_in, severity, variants, without_cluster
from controller.wire.cluster_file import ClusterFileError, ClusterShape
from controller.wire.fault_scenario import parse_time_ms
from controller.world.exit_codes import INTERRUPTED

_REFUSED: Final = 2
SWEEP_FILE: Final = "sweep.json"


def run_in_processes(listed: Sequence[Variant], workers: int) -> Iterator[dict[str, Any]]:
    """Rows in the order of the variants, as they come. All have the same cluster, which goes to each process once."""
    if workers == 1:
        yield from map(play, listed)
        return
    cluster = listed[0].scenario.cluster
    with ProcessPoolExecutor(max_workers=workers, initializer=_take_cluster, initargs=(cluster,)) as pool:
        yield from pool.map(_play_here, map(without_cluster, listed))


_cluster: list[ClusterShape] = []


def _take_cluster(cluster: ClusterShape) -> None:
    _cluster[:] = [cluster]


def _play_here(variant: Variant) -> dict[str, Any]:
    return play_in(_cluster[0], variant)


def main(argv: Sequence[str]) -> int:
    """`kwob rehearse sweep ...`. Returns the exit code."""
    options = _parser().parse_args(argv)
    try:
        files.check_out(options.out, overwrite=options.overwrite)
        scenario = load(options.scenario, cluster=options.cluster)
        for_ms = None if options.for_ is None else parse_time_ms(options.for_)
        listed = list(variants(scenario, options.each, at_ms=parse_time_ms(options.at), for_ms=for_ms))
        rows = _run(listed, options)
        worst = max(rows, key=severity)
        outcome = rehearse(next(v for v in listed if v.name == worst["variant"]).scenario)
        files.write(outcome, options.out)
        (options.out / SWEEP_FILE).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    except (ScenarioError, ClusterFileError, files.OutError, ReplayRefused, ValueError, OSError) as error:
        print(f"kwob rehearse sweep: {error}", file=sys.stderr)
        return _REFUSED
    except KeyboardInterrupt:
        print("kwob rehearse sweep: ended by Ctrl-C; nothing was written", file=sys.stderr)
        return INTERRUPTED
    _show(rows, options.out)
    return 0


def _run(listed: Sequence[Variant], options: argparse.Namespace) -> list[dict[str, Any]]:
    console = Console(stderr=True)
    rows: list[dict[str, Any]] = []
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("rehearsals", total=len(listed))
        if options.master:
            from controller.rehearse.sweep_job import run_variants  # only here: Spark takes a while to import

            for found in run_variants(listed, listed[0].scenario.cluster, options.master):
                if isinstance(found, int):
                    bar.update(task, completed=found)
                else:
                    rows = found
            return rows
        for row in run_in_processes(listed, min(options.workers, len(listed))):
            rows.append(row)
            bar.update(task, advance=1, description=row["variant"])
    return rows


def _show(rows: Sequence[dict[str, Any]], out: Path) -> None:
    console = Console(highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for name in ("variant", *(name for name, _ in figures(rows[0]))):
        table.add_column(name)
    for row in sorted(rows, key=severity, reverse=True):
        table.add_row(row["variant"], *(text for _, text in figures(row)))
    console.print(table)
    worst = max(rows, key=severity)
    console.print(f"worst     {worst['variant']}: {out / files.PAGE_FILE}", markup=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kwob rehearse sweep",
        description="Rehearses a scenario many times: with each broker or rack lost, each throttle, each seed. One row "
        "each, the worst first; the worst one is kept whole.",
        epilog="examples:\n  kwob rehearse sweep plan.yaml --each rack --at 30m --out sweep\n"
        "  kwob rehearse sweep plan.yaml --each throttle=10M,20M,50M --out sweep\n"
        "  kwob rehearse sweep plan.yaml --each seed=1..500 --master spark://host:7077 --out sweep\n\n"
        "exit codes: 0 rehearsed; 2 the scenario cannot be rehearsed; 130 Ctrl-C",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenario", type=Path, metavar="SCENARIO")
    parser.add_argument("--cluster", type=Path, metavar="FILE", help="the cluster, in place of the scenario's own")
    parser.add_argument("--each", required=True, metavar="WHAT", help="broker, rack, throttle=10M,20M or seed=1..50")
    parser.add_argument(
        "--at", default="1m", metavar="TIME", help="when a broker or rack is lost (default: %(default)s)"
    )
    parser.add_argument("--for", dest="for_", metavar="TIME", help="when it comes back, after that (default: never)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the worst rehearsal, and sweep.json")
    parser.add_argument("--overwrite", action="store_true", help="replace the folder of an earlier rehearsal")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, metavar="N", help="processes (default: cores)"
    )
    parser.add_argument("--master", metavar="URL", help="run as one Spark job there, for example local[*]")
    return parser
