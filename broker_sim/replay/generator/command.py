"""`kwob trace generate`: parsing, progress, what is printed. The work is in `write`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from broker_sim.replay.errors import EXIT_USAGE, ReplayRefused
from broker_sim.replay.generator.plan import DEFAULT_FAULTS, ClusterPlan, FaultKind
from broker_sim.replay.generator.write import FORMATS, generate

_EPILOG: Final = f"""\
--faults takes kinds with weights, the default being
{",".join(f"{k.value}={w:g}" for k, w in DEFAULT_FAULTS.items())}
examples:
  kwob trace generate --out big --brokers 12 --hours 6 --seed 7
  kwob trace generate --out small --format parquet --hours 0.5

Into DIR go trace/ (to give to `kwob replay run --trace`), truth/ (every change of an ISR, with the fault it comes from)
and faults.json. exit codes: 0 written; 1 it could not be; 2 the command is not right
"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    default = ClusterPlan()
    raw = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(
        prog="kwob trace",
        description="Make ISR traces of clusters that never were.",
        epilog="examples:\n  kwob trace generate --out big --brokers 12 --hours 6 --seed 7",
        formatter_class=raw,
    )
    make = top.add_subparsers(dest="command", required=True).add_parser(
        "generate",
        help="a synthetic cluster's trace, with the truth beside it",
        epilog=_EPILOG,
        formatter_class=raw,
    )
    make.add_argument("--out", type=Path, required=True, metavar="DIR", help="must not exist")
    make.add_argument("--format", choices=FORMATS, default="jsonl", help="(default: %(default)s)")
    for flag, kind, what in (
        ("brokers", int, "brokers"),
        ("topics", int, "topics"),
        ("partitions-per-topic", int, "partitions of each topic"),
        ("replication-factor", int, "replicas of each partition"),
        ("hours", float, "length of the trace"),
        ("seed", int, "everything is drawn from it"),
        ("append-interval-ms", int, "mean time between appends to a partition"),
        ("skew", float, "the first partition gets so many times as many appends"),
        ("records-per-append-max", int, "an append has 1 to so many records"),
        ("record-bytes", int, "bytes of a record"),
        ("lag-time-max-ms", int, "replica.lag.time.max.ms"),
        ("min-insync-replicas", int, "min.insync.replicas"),
        ("session-timeout-ms", int, "zookeeper.session.timeout.ms"),
        ("fault-every-ms", int, "mean time between the end of one fault and the next"),
        ("start-ms", int, "when the trace begins, ms since the epoch"),
    ):
        value = getattr(default, flag.replace("-", "_"))
        make.add_argument(f"--{flag}", type=kind, default=value, metavar="N", help=f"{what} (default: %(default)s)")
    make.add_argument("--faults", metavar="KIND=WEIGHT,...", help="what befalls the cluster; see below")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns its exit code."""
    try:
        asked = parser().parse_args(argv)
    except SystemExit as end:
        return int(end.code or 0)
    try:
        _generate(asked)
    except ReplayRefused as refused:
        print(f"kwob trace: {refused}", file=sys.stderr)
        return refused.exit_code
    return 0


def _generate(asked: argparse.Namespace) -> None:
    words = {k: v for k, v in vars(asked).items() if k not in ("command", "out", "format", "faults")}
    try:
        plan = ClusterPlan(**words, faults_wanted=_weights(asked.faults))
    except ValueError as error:
        raise ReplayRefused(str(error), exit_code=EXIT_USAGE) from error
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[rows]:,} rows"), console=console, transient=True) as progress:
        bar = progress.add_task("partitions", total=plan.partition_count, rows=0)
        rows = 0

        def show_progress(partitions: int, of_part: int) -> None:
            nonlocal rows
            rows += of_part
            progress.update(bar, advance=partitions, rows=rows)

        done = generate(plan, asked.out, form=asked.format, progress=show_progress)
    print(
        f"{done.rows} rows of {plan.partition_count} partitions and {plan.brokers} brokers, {plan.hours:g} hours; "
        f"{done.faults} faults, {done.changes} ISR changes: {asked.out}"
    )


def _weights(text: str | None) -> Mapping[FaultKind, float]:
    """`--faults` as weights. Raises: ValueError, naming the kind or weight that is none."""
    if text is None:
        return DEFAULT_FAULTS
    if text == "none":
        return {}
    weights: dict[FaultKind, float] = {}
    kinds = {k.value: k for k in FaultKind}
    for word in text.split(","):
        name, _, weight = word.partition("=")
        if name not in kinds:
            raise ValueError(f"--faults: no kind {name!r}; there are {', '.join(kinds)}, or none")
        try:
            weights[kinds[name]] = float(weight or 1)
        except ValueError:
            raise ValueError(f"--faults: {name}: {weight!r} is no number") from None
    return weights
