"""`kwob rehearse sweep`: many rehearsals of one scenario, one row each; as Spark jobs, or in processes.

What varies is a list of `variants`: every single broker or rack that is lost, each at the moments at which that hurts,
under each of some throttles, with each of some seeds. A variant is a value; where it runs does not matter.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import Progress, TaskID

from broker_sim.replay.errors import ReplayRefused
from controller.rehearse import files
from controller.rehearse.interrupts import ended_by_signals
from controller.rehearse.run import rehearse
from controller.rehearse.scenario import Scenario, ScenarioError, parse_ms
from controller.rehearse.scenario_file import load
from controller.rehearse.sweep_table import show
from controller.rehearse.variants import (
    MOMENTS,
    Sweep,
    Variant,
    parse_moments,
    severity,
    with_losses,
)
from controller.rehearse.workers import run_in_processes
from controller.wire.cluster_file import ClusterFileError
from controller.world.crew import WorkerLost
from controller.world.exit_codes import INTERRUPTED

_REFUSED: Final = 2
_AT: Final = "worst,busiest"
SWEEP_FILE: Final = "sweep.json"
_Row = dict[str, Any]


def main(argv: Sequence[str]) -> int:
    """`kwob rehearse sweep ...`. Returns the exit code."""
    options = command_line().parse_args(argv)
    with ended_by_signals():
        return _main(options)


def _main(options: argparse.Namespace) -> int:
    try:
        files.check_out(options.out, overwrite=options.overwrite)
        scenario = load(options.scenario, cluster=options.cluster)
        rows, listed = _sweep(scenario, options)
        lost = [row for row in rows if "loss" in row["varied"]]
        worst = max(lost or rows, key=severity)
        outcome = rehearse(next(v for v in listed if v.name == worst["variant"]).scenario)
        more = {SWEEP_FILE: json.dumps(rows, indent=1) + "\n"}
        files.write(outcome, options.out, more=more)
    except (ScenarioError, ClusterFileError, files.OutError, ReplayRefused, WorkerLost, OSError) as error:
        print(f"kwob rehearse sweep: {error}", file=sys.stderr)
        return _REFUSED
    except KeyboardInterrupt:
        print("kwob rehearse sweep: ended by Ctrl-C; nothing was written", file=sys.stderr)
        return INTERRUPTED
    if options.json:
        print(json.dumps(rows))
    else:
        show(rows, worst, options.out)
    return 0


def _sweep(scenario: Scenario, options: argparse.Namespace) -> tuple[list[_Row], list[Variant]]:
    """All rows, those without a loss last, and their variants. Raises ScenarioError."""
    sweep = Sweep.parse(scenario, options.each)
    if sweep.losses is None and (options.at or options.for_):
        raise ScenarioError(f"{'--at' if options.at else '--for'}: nothing is lost; there are --each broker and rack")
    moments = parse_moments(options.at or _AT, scenario)
    for_ms = _length(options.for_)
    bases = sweep.bases(scenario)
    with _runner(scenario, options) as run:
        rows = run(bases)
        if sweep.losses is None:
            return rows, bases
        listed = [
            variant
            for base, row in zip(bases, rows, strict=True)
            for variant in with_losses(base, sweep.losses, row, moments, for_ms)
        ]
        if not listed:
            raise ScenarioError(f"--at {options.at or _AT}: nothing of what is to be lost has joined by then")
        return [*run(listed), *rows], [*listed, *bases]


def _length(text: str | None) -> int | None:
    try:
        return None if text is None else parse_ms(text)
    except ValueError as error:
        raise ScenarioError(f"--for: {error}") from error


@contextmanager
def _runner(scenario: Scenario, options: argparse.Namespace) -> Iterator[Callable[[Sequence[Variant]], list[_Row]]]:
    """Plays variants where the options say, and shows how far it is."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        if not options.master:
            yield lambda listed: _in_processes(listed, options.workers, bar)
            return
        from controller.rehearse.sweep_job import Job, spark_job  # only here: Spark takes a while to import

        def on_spark(job: Job, listed: Sequence[Variant]) -> list[_Row]:
            task, rows = bar.add_task("rehearsals", total=len(listed)), []
            for found in job(listed):
                if isinstance(found, int):
                    bar.update(task, completed=found)
                else:
                    rows = found
            bar.remove_task(task)
            return rows

        with spark_job(scenario.cluster, options.master) as job:
            yield lambda listed: on_spark(job, listed)


def _in_processes(listed: Sequence[Variant], workers: int, bar: Progress) -> list[_Row]:
    task: TaskID = bar.add_task("rehearsals", total=len(listed))
    rows = []
    for row in run_in_processes(listed, min(workers, len(listed))):
        rows.append(row)
        bar.update(task, advance=1, description=row["variant"])
    bar.remove_task(task)
    return rows


def at_least_one(text: str) -> int:
    """A number of processes. Raises ArgumentTypeError."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of processes, 1 or more")
    return int(text)


def command_line() -> argparse.ArgumentParser:
    """The parser."""
    parser = argparse.ArgumentParser(
        prog="kwob rehearse sweep",
        description="Rehearses a scenario many times: with each broker or rack lost at the moments at which that "
        "hurts, under each throttle, with each seed. One row each, the worst first; the worst one is kept whole.",
        epilog="examples:\n  kwob rehearse sweep plan.yaml --each rack --out sweep\n"
        "  kwob rehearse sweep plan.yaml --each broker --at worst,10m,30m --for 10m --out sweep\n"
        "  kwob rehearse sweep plan.yaml --each rack --each throttle=10M,20M,50M --out sweep\n"
        "  kwob rehearse sweep plan.yaml --each seed=1..500 --master spark://host:7077 --out sweep\n\n"
        "exit codes: 0 rehearsed; 2 the scenario cannot be rehearsed; 130 Ctrl-C",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenario", type=Path, metavar="SCENARIO")
    parser.add_argument("--cluster", type=Path, metavar="FILE", help="the cluster, in place of the scenario's own")
    parser.add_argument(
        "--each",
        required=True,
        action="append",
        metavar="WHAT",
        help="broker, rack, throttle=10M,20M or seed=1..50; several: each with each",
    )
    parser.add_argument(
        "--at",
        metavar="LIST",
        help="when a broker or rack is lost: times, and moments that a rehearsal without the loss finds: "
        f"{MOMENTS[0]} (it takes most offline, then under min ISR), {MOMENTS[1]} (most moves or lags), "
        f"{MOMENTS[2]} (the fullest link) (default: {_AT})",
    )
    parser.add_argument("--for", dest="for_", metavar="TIME", help="when it comes back, after that (default: never)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the worst rehearsal, and sweep.json")
    parser.add_argument("--overwrite", action="store_true", help="replace the folder of an earlier rehearsal")
    parser.add_argument(
        "--workers", type=at_least_one, default=os.cpu_count() or 1, metavar="N", help="processes (default: cores)"
    )
    parser.add_argument("--master", metavar="URL", help="run as Spark jobs there, for example local[*]")
    parser.add_argument("--json", action="store_true", help="all rows as JSON on standard output")
    return parser
