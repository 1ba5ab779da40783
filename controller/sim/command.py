"""`kwob sim`: runs simulated worlds, repeats one, makes a failing one smaller.

Exit codes: 0 when everything held, 1 for a violation, 2 for a command line that cannot be understood.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from controller.sim.curves import curves
from controller.sim.many import Tally, play_in_processes, workers_of_this_machine
from controller.sim.plan import Plan, draw_plan, plan_of
from controller.sim.play import KINDS, Outcome, play
from controller.sim.report import command_of, outcome_value, print_failure, print_world, tally_text
from controller.sim.shape import ShapeError
from controller.sim.shrink import shrink
from controller.sim.soak import Sample, soak, soak_plan
from controller.world.crew import WorkerLost
from controller.world.exit_codes import INTERRUPTED
from controller.world.help_text import help_end

#: Seeds when nothing else is said.
SEEDS: Final = "0..99"
PLAYS_MAX: Final = 150
#: Where there is no bar, a line so often.
_TELL_EVERY_S: Final = 20.0
_WIDTH: Final = 200
#: Failures that `run` shows in full; of the others it names the seed.
_SHOWN_FAILURES: Final = 3
#: Longest soak, virtual hours: a year.
HOURS_MAX: Final = 8766.0


def main(argv: Sequence[str]) -> int:
    """`kwob sim`. Returns the exit code."""
    options = command_line().parse_args(argv)
    console = Console(highlight=False, soft_wrap=True, markup=False, width=None if sys.stdout.isatty() else _WIDTH)
    actions = {"run": _run, "repeat": _repeat, "shrink": _shrink, "soak": _soak}
    try:
        return actions[options.action](options, console)
    except ShapeError as error:
        print(f"kwob sim: {error}", file=sys.stderr)
        return 2


def _run(options: argparse.Namespace, console: Console) -> int:
    first, last = options.seeds
    seeds: Iterable[int] = range(first, last + 1)
    if options.minutes is not None:
        seeds = _until(itertools.count(first), time.monotonic() + 60 * options.minutes)
    if options.master is not None and options.minutes is not None:
        print("kwob sim run: --minutes goes with processes, not with --master; give --seeds A..B", file=sys.stderr)
        return 2
    draw_plan(first, KINDS, options.set)  # refuses a wrong --set before anything starts
    tally, ended, code = Tally(), "", 0
    try:
        _play_all(options, seeds, tally, console)
    except KeyboardInterrupt:
        ended, code = "ended by Ctrl-C", INTERRUPTED
    except WorkerLost as error:
        ended, code = str(error), 1
    if options.json:
        rates = dict(zip(("seeds_per_s", "virtual_s_per_s"), tally.rates(), strict=True))
        failures = [outcome_value(each) for each in tally.failed]
        print(json.dumps({"seeds": tally.seeds, "virtual_s": tally.virtual_s, **rates, "failures": failures}))
    else:
        console.print(tally_text(tally))
    if ended:
        print(f"kwob sim run: {ended}; what was played by then is told", file=sys.stderr)
    return code or (1 if tally.failed else 0)


def _play_all(options: argparse.Namespace, seeds: Iterable[int], tally: Tally, console: Console) -> None:
    """Plays, counts, and tells of what fails and how far it is. Raises WorkerLost."""
    first, last = options.seeds
    total = None if options.minutes is not None else last - first + 1
    if not options.json:
        console.print(f"seeds from {first}" + (f" to {last}" if total else f", for {options.minutes:g} minutes"))
    told_s = time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        Progress(*columns, console=console, disable=options.json or not console.is_terminal) as progress,
        closing(_outcomes(options, seeds)) as outcomes,
    ):
        task = progress.add_task("worlds", total=total)
        for outcome in outcomes:
            if isinstance(outcome, int):
                progress.update(task, completed=outcome)
                continue
            tally.add(outcome)
            _, virtual = tally.rates()
            what = f"{len(tally.failed)} with a violation, {virtual:.0f} virtual s/s"
            progress.update(task, completed=tally.seeds, description=what)
            if outcome.broken and not options.json:
                _tell_failure(outcome, tally, progress.console)
            if not (options.json or console.is_terminal) and time.monotonic() - told_s > _TELL_EVERY_S:
                told_s = time.monotonic()
                console.print(tally_text(tally))
            if tally.failed and options.stop_at_first:
                break


def _tell_failure(outcome: Outcome, tally: Tally, console: Console) -> None:
    if len(tally.failed) <= _SHOWN_FAILURES:
        print_failure(outcome, console)
    else:
        console.print(f"seed {outcome.plan.seed}: {outcome.broken[0][:160]}; {command_of(outcome.plan)}")


def _outcomes(options: argparse.Namespace, seeds: Iterable[int]) -> Generator[Outcome | int]:
    if options.master is None:
        return play_in_processes(seeds, workers=options.workers, changes=options.set)
    from controller.sim.spark import play_on_spark  # only here: Spark takes a while to import

    return play_on_spark(options.master, list(seeds), options.set)


def _until(seeds: Iterable[int], deadline_s: float) -> Iterator[int]:
    return itertools.takewhile(lambda _: time.monotonic() < deadline_s, seeds)


def _plan(options: argparse.Namespace) -> Plan:
    if options.plan is None:
        plan = draw_plan(options.seed, KINDS, options.set)
    else:
        plan = _written_plan(options.plan, options.seed)
        plan = replace(plan, shape=plan.shape.with_text(options.set))
    return plan if options.only is None else plan.only(options.only)


def _again(options: argparse.Namespace, plan: Plan) -> str:
    """The command that plays the plan again, which may be a part of what --plan names."""
    return command_of(plan, options.plan and (options.plan, _written_plan(options.plan, options.seed)))


def _written_plan(path: Path, seed: int) -> Plan:
    """The plan of this seed in a file: what `repeat --json` printed, or a list of such. Raises: ShapeError."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        rows = value if isinstance(value, list) else [value]
        return plan_of(next(row for row in rows if row["seed"] == seed))
    except StopIteration:
        raise ShapeError(f"{path} has no plan of seed {seed}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ShapeError(f"{path} is no plan, as `kwob sim repeat SEED --json` prints it: {error!r}") from error


def _repeat(options: argparse.Namespace, console: Console) -> int:
    plan = _plan(options)
    if not options.json:
        print_world(plan, console)
    outcome = play(plan, keep_events=options.events)
    if options.json:
        print(json.dumps(outcome_value(outcome, command=_again(options, plan))))
    elif outcome.broken:
        print_failure(outcome, console, events=options.events, command=_again(options, plan))
    else:
        for line in outcome.taken:
            console.print(f"  {line}")
        console.print(f"everything held for {outcome.virtual_s:.0f} virtual seconds, {outcome.records} records")
    return 1 if outcome.broken else 0


def _shrink(options: argparse.Namespace, console: Console) -> int:
    note = (lambda text: None) if options.json else (lambda text: console.print(f"still fails with {text}"))
    found = shrink(_plan(options), plays_max=options.plays, note=note)
    if found is None:
        if options.json:
            print(json.dumps({"seed": options.seed, "broken": []}))
        else:
            console.print(f"seed {options.seed} does not fail: there is nothing to shrink")
        return 0
    again = _again(options, found.outcome.plan)
    if options.json:
        print(json.dumps({**outcome_value(found.outcome, command=again), "plays": found.plays}))
    else:
        print_failure(found.outcome, console, command=again)
    return 1


def _soak(options: argparse.Namespace, console: Console) -> int:
    samples: list[Sample] = []

    def tell(sample: Sample) -> None:
        samples.append(sample)
        if not options.json:
            rows = ", ".join(f"{name} {value:,}" for name, value in sample.figures.rows())
            console.print(f"{sample.at_s / 3600:6.2f} virtual h: {rows}")

    soak_plan(options.seed, options.set)  # refuses a wrong --set before anything starts
    outcome = soak(options.seed, hours=options.hours, changes=options.set, on_round=tell)
    words = ["kwob sim soak", f"--seed {options.seed} --hours {options.hours:g}", *(f"--set {s}" for s in options.set)]
    command = " ".join(words)
    if options.json:
        rounds = [{"at_s": sample.at_s, **dict(sample.figures.rows())} for sample in samples]
        print(json.dumps({**outcome_value(outcome, command=command), "rounds": rounds}))
        return 1 if outcome.broken else 0
    if samples:
        names = [name for name, _ in samples[0].figures.rows()]
        rows = {name: [getattr(sample.figures, name) for sample in samples] for name in names}
        console.print(curves(f"held at rest, after each of {len(samples)} rounds", rows))
    if outcome.broken:
        print_failure(outcome, console, command=command)
        return 1
    console.print(f"everything held for {outcome.virtual_s / 3600:.1f} virtual hours, and nothing grew")
    return 0


def _seeds(text: str) -> tuple[int, int]:
    first, dots, last = text.partition("..")
    try:
        numbers = int(first), int(last) if dots else int(first)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no A..B, such as 0..99") from None
    if not 0 <= numbers[0] <= numbers[1]:
        raise argparse.ArgumentTypeError(f"{text!r}: seeds begin at 0, and the first is not above the last")
    return numbers


def _numbers(text: str) -> list[int]:
    try:
        return [] if text == "none" else [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers of steps, such as 3,7,8, nor none") from None


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = 0.0
    if not 0 < hours <= HOURS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of hours above 0 and up to {HOURS_MAX:g}")
    return hours


def command_line() -> argparse.ArgumentParser:
    """The parser."""
    parser = argparse.ArgumentParser(
        prog="kwob sim",
        description="Simulated clusters on virtual time: each seed draws a world, its load and its faults; everything "
        "that must hold is checked all the time.",
        **help_end(["kwob sim run --seeds 1..20", "kwob sim repeat 7"], "0 all held; 1 a violation; 2 wrong arguments"),
    )
    actions = parser.add_subparsers(dest="action", required=True)
    run = actions.add_parser(
        "run", help="play many seeds", **help_end(["kwob sim run --seeds 1..20", "kwob sim run --minutes 10"])
    )
    run.add_argument("--seeds", type=_seeds, default=SEEDS, metavar="A..B", help=f"which (default {SEEDS})")
    run.add_argument("--minutes", type=float, help="from the first seed on, for so long")
    run.add_argument("--workers", type=_positive, default=workers_of_this_machine(), help="processes (default: cores)")
    run.add_argument("--master", help="as one Spark job there, such as local[*] or spark://HOST:PORT")
    run.add_argument("--stop-at-first", action="store_true", help="end at the first violation")
    repeat = actions.add_parser(
        "repeat", help="play one seed again, step by step the same", **help_end(["kwob sim repeat 7 --events 50"])
    )
    repeat.add_argument("--events", type=_positive, default=25, help="log events to show of a failure (default 25)")
    smaller = actions.add_parser(
        "shrink",
        help="find a smaller world in which a failing seed still fails",
        **help_end(["kwob sim shrink 7 --plays 100"]),
    )
    smaller.add_argument("--plays", type=_positive, default=PLAYS_MAX, help=f"worlds to try (default {PLAYS_MAX})")
    long = actions.add_parser(
        "soak",
        help="one cluster for many virtual hours: does anything grow?",
        **help_end(["kwob sim soak --hours 24", "kwob sim soak --hours 3 --seed 8 --set brokers=5"]),
    )
    long.add_argument("--hours", type=_hours, default=24.0, help="virtual hours (default 24)")
    long.add_argument("--seed", type=int, default=0, help="of the cluster and of its rounds (default 0)")
    for each in (repeat, smaller):
        each.add_argument("seed", type=int)
        each.add_argument("--plan", type=Path, metavar="FILE", help="the world as `repeat --json` wrote it down")
        each.add_argument("--only", type=_numbers, metavar="N,N", help="these steps alone; none: no step")
    for each in (run, repeat, smaller, long):
        each.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="an option of the world")
        each.add_argument("--json", action="store_true", help="the result as JSON")
    return parser
