"""`kwob rehearse`: flags, progress, table, exit codes. `compare` and `sweep` are its subcommands."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from controller.rehearse import compare, files, sweep
from controller.rehearse.answer import answer, partitions
from controller.rehearse.clock import clock
from controller.rehearse.fail_on import CONDITIONS, FailOnError, failures, parse_conditions
from controller.rehearse.interrupts import ended_by_signals
from controller.rehearse.outcome import Outcome
from controller.rehearse.printing import bare_table, wide_console
from controller.rehearse.run import rehearse
from controller.rehearse.scenario import Scenario, ScenarioError
from controller.rehearse.scenario_file import load
from controller.wire.cluster_file import ClusterFileError
from controller.world.exit_codes import INTERRUPTED

_HELD, _FAILED, _REFUSED = 0, 1, 2
EXAMPLES: Final = """\
examples:
  kwob rehearse plan.yaml --cluster cluster.yaml
  kwob rehearse plan.yaml --out rehearsal --fail-on offline,under-min-isr,'eta>2h'
  kwob rehearse compare rehearsal-10MB rehearsal-50MB
  kwob rehearse sweep plan.yaml --each broker --out sweep

exit codes: 0 nothing of --fail-on happened; 1 something of it did; 2 the scenario cannot be rehearsed; 130 Ctrl-C"""


def main(argv: Sequence[str]) -> int:
    """`kwob rehearse ...`. Returns the exit code."""
    if argv and argv[0] in ("compare", "sweep"):
        return (compare.main if argv[0] == "compare" else sweep.main)(argv[1:])
    options = command_line().parse_args(argv)
    with ended_by_signals():
        return _main(options)


def _main(options: argparse.Namespace) -> int:
    out: Path | None = options.out
    try:
        conditions = () if options.fail_on is None else parse_conditions(options.fail_on)
        scenario = load(options.scenario, cluster=options.cluster)
        if options.seed is not None:
            scenario = scenario.model_copy(update={"seed": options.seed})
        if out is not None:
            files.check_out(out, overwrite=options.overwrite)
        if options.trace_dir is not None:
            files.check_traces(options.trace_dir)
        outcome = _with_progress(scenario, options.trace_dir)
        if out is not None:
            files.write(outcome, out)
    except (ScenarioError, ClusterFileError, FailOnError, files.OutError, OSError) as error:
        print(f"kwob rehearse: {error}", file=sys.stderr)
        return _REFUSED
    except KeyboardInterrupt:
        print("kwob rehearse: ended by Ctrl-C; nothing was written", file=sys.stderr)
        return INTERRUPTED
    broken = failures(conditions, outcome.summary())
    if options.json:
        print(json.dumps({**outcome.summary(), "answer": answer(outcome.summary()), "failures": broken}))
    else:
        _show(outcome, out, broken)
    return _FAILED if broken else _HELD


def command_line() -> argparse.ArgumentParser:
    """The parser."""
    parser = argparse.ArgumentParser(
        prog="kwob rehearse",
        description="Plays a scenario (docs/rehearse.md) against a cluster on virtual time: the real controller, "
        "brokers whose data is sizes and rates. Says when moves end, what goes wrong and how full links get.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenario", type=Path, metavar="SCENARIO", help="a YAML file: events at times")
    parser.add_argument("--cluster", type=Path, metavar="FILE", help="the cluster, in place of the scenario's own")
    parser.add_argument("--out", type=Path, metavar="DIR", help="writes outcome.json, tables and rehearsal.html there")
    parser.add_argument("--overwrite", action="store_true", help="replace the folder of an earlier rehearsal")
    parser.add_argument("--trace-dir", type=Path, metavar="DIR", help="writes the brokers' trace rows there")
    parser.add_argument("--seed", type=int, metavar="N", help="in place of the scenario's")
    parser.add_argument(
        "--fail-on",
        metavar="LIST",
        help=f"{', '.join(CONDITIONS)}, eta>2h",
    )
    parser.add_argument("--json", action="store_true", help="the outcome as one JSON object on standard output")
    return parser


def _with_progress(scenario: Scenario, trace_dir: Path | None) -> Outcome:
    """On a terminal a bar of virtual time, and each line of the story as it happens."""
    console = Console(stderr=True, highlight=False)
    columns = (SpinnerColumn(), TextColumn("{task.fields[at]}"), BarColumn(), TextColumn("{task.fields[what]}"))
    last_ms = max((event.at for event in scenario.events), default=0)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=scenario.end_ms or last_ms or None, at="0.0 s", what="")

        def progress(at_ms: int, what: str) -> None:
            bar.update(task, completed=at_ms, at=clock(at_ms))
            if what:
                bar.update(task, what=what)
            if what and console.is_terminal:
                bar.console.print(f"{clock(at_ms):>12}  {what}")

        return rehearse(scenario, trace_dir=trace_dir, progress=progress)


def _show(outcome: Outcome, out: Path | None, broken: Sequence[str]) -> None:
    console, summary = wide_console(), outcome.summary()
    for warning in outcome.warnings:
        console.print(f"warning: {warning}", style="bold red", markup=False)
    console.print(answer(summary), markup=False)
    table = bare_table(("", "partitions", "most at once", "at", "longest"))
    for name, totals in outcome.troubles.items():
        none = not totals.partitions
        table.add_row(
            name.replace("_", " "),
            f"{totals.partitions:,}",
            f"{totals.at_most:,}",
            "" if none else clock(totals.at_most_ms),
            "" if none else clock(totals.longest_ms),
        )
    console.print(table)
    console.print(
        f"elections {outcome.elections} (unclean {outcome.unclean_elections}), "
        f"copied {outcome.moved_bytes / 1e9:.2f} GB, ends at {clock(outcome.end_ms)}",
        markup=False,
    )
    console.print(
        f"records refused {outcome.refused_bytes / 1e6:.1f} MB (of {partitions(outcome.refused_partitions)}), "
        f"lost {outcome.lost_bytes / 1e6:.1f} MB (of {partitions(outcome.lost_partitions)}), "
        f"at risk on one replica alone {outcome.at_risk_bytes / 1e6:.1f} MB at most "
        f"(of {partitions(outcome.at_risk_partitions)})",
        markup=False,
    )
    if out is not None:
        console.print(f"page      {out / files.PAGE_FILE}", markup=False)
    for line in broken:
        console.print(f"failed: {line}", style="bold red", markup=False)
