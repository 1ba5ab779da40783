"""`python -m broker_sim.replay run`: parsing, exit codes, and what is printed. The work is in `job`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from broker_sim.isr import PROFILES
from broker_sim.replay.errors import EXIT_DIFFERS, EXIT_FAILED, EXIT_USAGE, ReplayRefused, reason_of
from broker_sim.replay.show import HISTORY, SHOWN, print_json, print_rows, rows_of
from broker_sim.replay.what_if.asked import ALLOWED, parse
from controller.world.exit_codes import INTERRUPTED
from controller.world.help_text import help_end

_EPILOG: Final = """\
examples:
  kwob replay run --trace kwob-data/traces --out results
  kwob replay run --kafka-logs logs --time-zone Europe/Berlin --out results
  kwob replay run --kafka-logs logs --metadata-log __cluster_metadata-0 --out results
  kwob replay run --trace kwob-data/traces --out what-if --what-if replica.lag.time.max.ms=10000,60000

exit codes: 0 replayed; 1 the job failed; 2 the command or its input is not right;
3 with --check: derived and emitted ISR changes differ. Tables and limits: docs/replay.md
"""


def parser() -> argparse.ArgumentParser:
    """The command line, fixed in part so that scripts can rely on it."""
    raw = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(
        prog="kwob replay", description="Replay in-sync-replica traces on Spark.", epilog=_EPILOG, formatter_class=raw
    )
    commands = top.add_subparsers(dest="command", required=True)
    run = _with_input(commands, "run", help="replay a trace or log files into tables and a report")
    run.add_argument(
        "--profile", default="P37", help=f"rules of which Kafka: {', '.join(PROFILES)} (default: %(default)s)"
    )
    run.add_argument(
        "--what-if",
        action="append",
        default=[],
        metavar="K=V[,V...]",
        help=f"run again with another value: {', '.join(ALLOWED)}",
    )
    run.add_argument("--check", action="store_true", help="exit with 3 when derived and emitted ISR changes differ")
    _validate_parser(commands)
    _show_parser(commands)
    _with_input(commands, "ingest", help="only read: rows, state writes, and what could not be used")
    return top


def _validate_parser(commands: Any) -> None:
    one = commands.add_parser(
        "validate",
        help="hold the replay against recorded runs of a real Kafka",
        **help_end(["kwob replay validate --runs recorded", "kwob replay validate --runs recorded --page figures.md"]),
    )
    runs: dict[str, Any] = {"type": Path, "required": True, "action": "append", "metavar": "DIR"}
    one.add_argument("--runs", **runs, help="a run (truth.jsonl), or a folder of them; of ZooKeeper or KRaft mode")
    one.add_argument("--page", type=Path, metavar="FILE", help="write the figures as a Markdown page")
    one.add_argument(
        "--time-zone", metavar="ZONE", help="of the JVMs (default: what scenario.md of the run says, or UTC)"
    )
    one.add_argument("--profile", default="P37", help=f"one of {', '.join(PROFILES)} (default: %(default)s)")
    one.add_argument(
        "--everything", action="store_true", help="also all files of a run at once, and outages of killed leaders"
    )
    one.add_argument("--master", help="a Spark master, as local[*] (default: without Spark, in this process)")


def _show_parser(commands: Any) -> None:
    one = commands.add_parser(
        "show",
        help="a table of a replay as text: the ISR history, windows, moves, ...",
        **help_end(["kwob replay show results", "kwob replay show results --table windows --topic orders --last"]),
    )
    one.add_argument("out", type=Path, metavar="DIR", help="the --out of a replay")
    one.add_argument("--table", default=HISTORY, choices=SHOWN, help="(default: %(default)s)")
    one.add_argument("--topic", help="only rows of this topic")
    one.add_argument("--partition", type=int, metavar="N", help="only rows of this partition")
    one.add_argument("--limit", type=int, default=200, metavar="N", help="at most so many rows (default: %(default)s)")
    one.add_argument("--last", action="store_true", help="the latest rows, not the first")
    one.add_argument("--json", action="store_true", help="one JSON object per row")


def _with_input(commands: Any, name: str, *, help: str) -> argparse.ArgumentParser:
    """A subcommand that reads traces or logs into a folder."""
    raw = argparse.RawDescriptionHelpFormatter
    one: argparse.ArgumentParser = commands.add_parser(name, help=help, epilog=_EPILOG, formatter_class=raw)
    paths: dict[str, Any] = {"type": Path, "metavar": "PATH", "action": "append", "default": []}
    one.add_argument("--trace", **paths, help="a trace (.jsonl, .jsonl.gz, .parquet), a folder, or ingested rows")
    one.add_argument("--kafka-logs", **paths, help="log files of a real cluster, or a folder of them")
    one.add_argument(
        "--metadata-log",
        **paths,
        help="__cluster_metadata-0 of a KRaft cluster: segments, snapshots, or folders of them",
    )
    one.add_argument(
        "--time-zone",
        action="append",
        default=[],
        metavar="[BROKER=]ZONE",
        help="of the JVMs that wrote the log files, as Europe/Berlin or 3=Europe/Berlin (default: UTC)",
    )
    one.add_argument(
        "--only", action="append", default=[], metavar="GLOB", help="of the log files only those with such a name"
    )
    one.add_argument(
        "--broker",
        action="append",
        default=[],
        metavar="GLOB=ID",
        help="whose the log files with such a path are, where neither their text nor their folder tells",
    )
    one.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the results go; must not exist")
    one.add_argument("--overwrite", action="store_true", help="replace the results of an earlier run in DIR")
    one.add_argument("--master", default="local[*]", help="the Spark master (default: %(default)s)")
    one.add_argument("--json", action="store_true", help="print the summary as JSON, nothing else, on standard output")
    return one


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns its exit code."""
    try:
        asked = parser().parse_args(argv)
    except SystemExit as end:
        return int(end.code or 0)
    try:
        return _COMMANDS.get(asked.command, _run)(asked)
    except ReplayRefused as refused:
        print(f"replay: {refused}", file=sys.stderr)
        return refused.exit_code
    except KeyboardInterrupt:
        print("replay: interrupted; no results were written", file=sys.stderr)
        return INTERRUPTED


def _console(*, stderr: bool = False) -> Console:
    """The terminal; where there is none, lines are as long as they are."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else _LINE_MAX)


#: No line is longer: what goes into a file or a pipe is not wrapped.
_LINE_MAX: Final = 100_000


def _run(asked: argparse.Namespace) -> int:
    _refuse(asked)
    # Spark takes a second to import; a wrong command should not.
    import duckdb
    import pyarrow as pa
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    from broker_sim.replay import job, session
    from broker_sim.replay.ingest.job import Source
    from broker_sim.replay.progress import StepProgress

    settings = job.ReplaySettings(
        source=Source(
            traces=tuple(asked.trace),
            kafka_logs=tuple(asked.kafka_logs),
            metadata_logs=tuple(asked.metadata_log),
            zones=tuple(asked.time_zone),
            only=tuple(asked.only),
            brokers=tuple(asked.broker),
        ),
        out=asked.out,
        profile=asked.profile if asked.command == "run" else next(iter(PROFILES)),
        overwrite=asked.overwrite,
        what_if=parse(asked.what_if) if asked.command == "run" else (),
    )
    inputs = job.check(settings)
    work = job.run if asked.command == "run" else job.ingest_only
    with StepProgress(_console(stderr=True), quiet=asked.json) as progress, ExitStack() as stack:
        with progress.step("start Spark"):
            spark = stack.enter_context(session.spark_session(asked.master, input_bytes=inputs.bytes))
        try:
            done = work(spark, settings, inputs, progress)
        except (PySparkException, Py4JError, pa.ArrowException, duckdb.Error) as error:
            raise ReplayRefused(f"the job failed: {reason_of(error)}", exit_code=EXIT_FAILED) from error
    if asked.json:
        print(json.dumps({**done.summary, "findings": [f.as_row() for f in done.findings]}))
    elif asked.command == "ingest":
        print_ingested(_console(), asked.out, done.summary)
    else:
        print_replayed(_console(), asked.out, done.summary, [f.as_row() for f in done.findings])
    return EXIT_DIFFERS if asked.command == "run" and asked.check and not done.is_exact else 0


def _show(asked: argparse.Namespace) -> int:
    chosen = {"topic": asked.topic, "partition": asked.partition, "limit": asked.limit, "last": asked.last}
    rows = rows_of(asked.out, asked.table, **chosen)
    if asked.json:
        print_json(rows)
    else:
        print_rows(_console(), asked.table, rows)
    return 0


def _validate(asked: argparse.Namespace) -> int:
    from broker_sim.replay import session
    from broker_sim.replay.validation import job as validation_job
    from broker_sim.replay.validation.figures import RunFigures, broken_limits, page

    if asked.profile not in PROFILES:
        raise ReplayRefused(f"no profile {asked.profile!r}; there are {', '.join(PROFILES)}")
    runs = validation_job.look(asked.runs)
    console = _console(stderr=True)

    def show_run(one: RunFigures) -> None:
        console.print(f"{one.run}: done", highlight=False)

    with ExitStack() as stack:
        spark = stack.enter_context(session.spark_session(asked.master, input_bytes=0)) if asked.master else None
        ways = (*validation_job.WAYS, *([validation_job.EVERYTHING] if asked.everything else []))
        how = {"profile": asked.profile, "zone": asked.time_zone, "ways": ways}
        figures = validation_job.validate(runs, spark=spark, **how, done=show_run)
    text = page(figures)
    print(text)
    if asked.page is not None:
        try:
            asked.page.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ReplayRefused(f"--page {asked.page}: {error.strerror}") from error
    broken = broken_limits(figures)
    for line in broken:
        print(f"replay: not within its limits: {line}", file=sys.stderr)
    return EXIT_DIFFERS if broken else 0


#: Those that do not run a job.
_COMMANDS: Final = {"validate": _validate, "show": _show}


def _refuse(asked: argparse.Namespace) -> None:
    """What can be said without looking at any file."""
    if not asked.trace and not asked.kafka_logs and not asked.metadata_log:
        raise ReplayRefused("--trace PATH, --kafka-logs PATH or --metadata-log PATH is needed")
    if asked.command != "run":
        return
    parse(asked.what_if)
    if asked.profile not in PROFILES:
        raise ReplayRefused(f"no profile {asked.profile!r}; there are {', '.join(PROFILES)}", exit_code=EXIT_USAGE)


def print_ingested(console: Console, out: Path, summary: dict[str, Any]) -> None:
    """What was read, and where it is."""
    console.print(f"{summary['rows']} rows, {summary['duplicates']} duplicates", highlight=False)
    _print_metadata(console, summary)
    _print_odd(console, summary)
    console.print(f"rows: {out / 'trace'}", highlight=False, markup=False, soft_wrap=True)


def _print_metadata(console: Console, summary: dict[str, Any]) -> None:
    """What the metadata log is, and what it is not."""
    from broker_sim.replay.metadata_log.words import joined_words, words

    lines = words(summary["metadata_log"]) if "metadata_log" in summary else []
    for line in lines + (joined_words(summary["joined"]) if "joined" in summary else []):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _print_odd(console: Console, summary: dict[str, Any]) -> None:
    """Lines that were refused, and rows that were used but are odd."""
    for words, counts in (("quarantined", summary["quarantined"]), ("noticed", summary["noticed"])):
        odd_words = ", ".join(f"{n} {reason.replace('_', ' ')}" for reason, n in counts.items() if n)
        if odd_words:
            console.print(f"[yellow]{words}:[/] {odd_words} (table {_TABLE_OF[words]})", highlight=False)


_TABLE_OF: Final = {"quarantined": "quarantine", "noticed": "notices"}
_STYLES: Final = {"critical": "bold red", "warning": "yellow", "info": "green"}


def print_replayed(console: Console, out: Path, summary: dict[str, Any], findings: list[dict[str, Any]]) -> None:
    """What was replayed, how it compares, what was found, and where it is."""
    console.print(
        f"{summary['rows']} rows of {summary['partitions']} partitions and {len(summary['brokers'])} brokers, "
        f"{summary['duplicates']} duplicates",
        highlight=False,
    )
    _print_metadata(console, summary)
    _print_odd(console, summary)
    compared = summary["comparison"]
    if "metadata_log" not in summary or compared["emitted"] + compared["replayed"]:  # it has nothing to compare
        _print_compared(console, compared)
    for finding in findings:
        style = _STYLES[finding["severity"]]
        console.print(f"[{style}]{finding['severity']:>8}[/]  {escape(finding['text'])}", highlight=False)
    console.print(f"report: {out / 'report.html'}", highlight=False, markup=False, soft_wrap=True)


def _print_compared(console: Console, compared: dict[str, Any]) -> None:
    table = Table(
        title="ISR changes: emitted by brokers, derived by the rules",
        title_justify="left",
        box=SIMPLE,
        padding=(0, 1, 0, 0),
    )
    columns = ("emitted", "replayed", "matched", "missing", "spurious", "refused")
    for name in (*columns, "time error", "HW agree"):
        table.add_column(name, justify="right")
    table.add_row(
        *(str(compared[name]) for name in columns),
        f"≤ {compared['time_error_ms_max']} ms",
        f"{compared['hw_matched']}/{compared['hw_rows']}",
    )
    console.print(table)
