"""`kwob plan`: the highest throttle and batch size under which a move harms nobody."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml
from rich.console import Console
from rich.progress import Progress

from controller.rehearse.clock import clock
from controller.rehearse.interrupts import ended_by_signals
from controller.rehearse.plan import (
    HARM,
    Setting,
    Try,
    Verdict,
    best,
    check_moves,
    default_batches,
    default_throttles,
    harm_of,
    search,
    size,
    what_is_in_the_way,
    without_moves,
)
from controller.rehearse.printing import bare_table, wide_console
from controller.rehearse.scenario import Scenario, ScenarioError
from controller.rehearse.scenario_file import load
from controller.rehearse.sweep import at_least_one
from controller.rehearse.variants import Variant, with_throttle
from controller.rehearse.workers import run_in_processes
from controller.wire.cluster_file import ClusterFileError
from controller.wire.sizes import parse_bytes
from controller.world.crew import WorkerLost
from controller.world.exit_codes import INTERRUPTED
from controller.world.whole_files import check_place, write_whole

_FOUND, _NONE, _REFUSED = 0, 1, 2
#: Events whose throttle and batch are what is searched.
_MOVES: Final = ("reassign", "add_broker")


def main(argv: Sequence[str]) -> int:
    """`kwob plan ...`. Returns the exit code."""
    options = command_line().parse_args(argv)
    with ended_by_signals():
        return _main(options)


def _main(options: argparse.Namespace) -> int:
    try:
        if options.out is not None:
            if options.out.exists() and not options.overwrite:
                raise ScenarioError(f"{options.out} exists; --overwrite replaces it")
            check_place(options.out)
        scenario = load(options.scenario, cluster=options.cluster)
        check_moves(scenario)
        batches = default_batches(scenario) if options.batches is None else options.batches
        throttles = default_throttles(scenario) if options.throttles is None else options.throttles
        tries = _search(scenario, throttles, batches, options)
        chosen = best(tries)
        if chosen is not None and options.out is not None:
            _write(options, chosen)
    except (ScenarioError, ClusterFileError, WorkerLost, OSError) as error:
        print(f"kwob plan: {error}", file=sys.stderr)
        return _REFUSED
    except KeyboardInterrupt:
        print("kwob plan: ended by Ctrl-C; nothing was written", file=sys.stderr)
        return INTERRUPTED
    if options.json:
        print(json.dumps({"chosen": None if chosen is None else chosen.row(), "tries": [t.row() for t in tries]}))
    else:
        _show(tries, chosen, options)
    return _NONE if chosen is None else _FOUND


def _search(
    scenario: Scenario, throttles: Sequence[float], batches: Sequence[int], options: argparse.Namespace
) -> list[Try]:
    console = Console(stderr=True)
    steps = 1 + len(batches) * len(throttles).bit_length()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("without the move", total=steps)

        def advance(what: str) -> None:
            bar.update(task, advance=1, description=what)

        (before,) = run_in_processes([Variant("without the move", without_moves(scenario))], 1)
        advance("throttles")
        found = search(
            partial(_rehearse, scenario, options.workers, advance),
            throttles,
            batches,
            max_link=options.max_link,
            before=harm_of(before),
        )
        return list(found)


def _rehearse(
    scenario: Scenario, workers: int, advance: Callable[[str], None], settings: Sequence[Setting]
) -> list[dict[str, Any]]:
    listed = [Variant(_name(s), with_throttle(scenario, s.throttle, s.batch)) for s in settings]
    rows = []
    for row in run_in_processes(listed, min(workers, len(listed))):
        rows.append(row)
        advance(row["variant"])
    return rows


def _name(setting: Setting | Try) -> str:
    return f"{size(setting.throttle)}, {_batch(setting.batch)}"


def _batch(batch: int) -> str:
    return f"{batch} at a time" if batch else "all at once"


def _show(tries: Sequence[Try], chosen: Try | None, options: argparse.Namespace) -> None:
    console = wide_console()
    for warning in () if chosen is None else chosen.warnings:
        console.print(f"warning: {warning}", style="bold red", markup=False)
    table = bare_table(("throttle", "batch", "move ends", "fullest link", *HARM, "refused"), left=2)
    table.add_column("")
    for tried in sorted(tries, key=lambda t: (t.batch != 0, -t.batch, t.throttle)):
        table.add_row(
            f"{size(tried.throttle)}/s",
            _batch(tried.batch),
            "never" if tried.moves_end_ms is None else clock(tried.moves_end_ms),
            f"{tried.peak_link:.0%}",
            *(f"{count:,}" for count in tried.harm.values()),
            f"{tried.refused_bytes / 1e6:,.1f} MB",
            "chosen" if tried == chosen else f"{tried.verdict}: {tried.why}" if tried.why else tried.verdict,
            style="bold" if tried == chosen else "dim" if tried.verdict is not Verdict.HOLDS else None,
        )
    console.print(table)
    if chosen is None:
        console.print(what_is_in_the_way(tries), style="bold red", markup=False)
        return
    end_ms = chosen.moves_end_ms or 0
    console.print(
        f"throttle {size(chosen.throttle)}/s, {_batch(chosen.batch)}: the move ends at {clock(end_ms)}, the fullest "
        f"link is broker {chosen.peak_link_broker}'s at {chosen.peak_link:.0%}",
        markup=False,
    )
    if options.out is not None:
        console.print(f"scenario  {options.out}", markup=False)


def _write(options: argparse.Namespace, chosen: Try) -> None:
    """The scenario as it was given, with what was chosen in it; files that it names are still found."""
    path: Path = options.out
    document = yaml.safe_load(options.scenario.read_text(encoding="utf-8"))
    if options.cluster is not None:
        document["cluster"] = os.path.relpath(options.cluster, path.parent)
    elif isinstance(document["cluster"], str):
        document["cluster"] = os.path.relpath(options.scenario.parent / document["cluster"], path.parent)
    for event in document["events"]:
        if event["do"] in _MOVES:
            event["throttle"] = size(chosen.throttle)
            event.pop("batch", None)
            event |= {"batch": chosen.batch} if chosen.batch else {}
            if "file" in event:
                event["file"] = os.path.relpath(options.scenario.parent / event["file"], path.parent)
    write_whole(path, yaml.safe_dump(document, sort_keys=False, allow_unicode=True))


def _sizes(text: str) -> list[float]:
    try:
        found = [parse_bytes(part) for part in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not all(size >= 1 for size in found):
        raise argparse.ArgumentTypeError(f"{text!r}: a throttle is at least 1 byte per second")
    return found


def _batches(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part == "all" or (part.isascii() and part.isdigit() and int(part) > 0) for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r}: expected numbers of partitions and `all`, as 50,200,all")
    return [0 if part == "all" else int(part) for part in parts]


def _share(text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a share of a link, as 80%")
    return share


def command_line() -> argparse.ArgumentParser:
    """The parser."""
    parser = argparse.ArgumentParser(
        prog="kwob plan",
        description="Searches, by rehearsals (docs/rehearse.md), the throttle and batch size with which a scenario's "
        "reassignment ends first while no link is over a share and no partition goes under its min ISR because of it.",
        epilog="examples:\n  kwob plan move.yaml --cluster cluster.yaml --out chosen.yaml\n"
        "  kwob plan move.yaml --max-link 70% --throttles 20MB,40MB,80MB --batches 100,all\n\n"
        "exit codes: 0 found; 1 nothing holds; 2 the scenario cannot be rehearsed; 130 Ctrl-C",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenario", type=Path, metavar="SCENARIO")
    parser.add_argument("--cluster", type=Path, metavar="FILE", help="the cluster, in place of the scenario's own")
    parser.add_argument(
        "--max-link", type=_share, default=0.8, metavar="SHARE", help="how full a link may get (default: 80%%)"
    )
    parser.add_argument(
        "--throttles", type=_sizes, metavar="LIST", help="those to try (default: steps up to the narrowest link)"
    )
    parser.add_argument(
        "--batches", type=_batches, metavar="LIST", help="partitions at a time (default: all, a quarter, a sixteenth)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="writes the scenario with what was chosen there")
    parser.add_argument("--overwrite", action="store_true", help="replace a file that is there")
    parser.add_argument(
        "--workers", type=at_least_one, default=os.cpu_count() or 1, metavar="N", help="processes (default: cores)"
    )
    parser.add_argument("--json", action="store_true", help="everything that was tried as one JSON object")
    return parser
