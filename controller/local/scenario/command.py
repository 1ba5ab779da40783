"""`kwob scenario`: plays a file against a cluster and says what held."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from controller.local.cluster_file import CLUSTER_FILE, ClusterError
from controller.local.flags import EXIT_FAILED, EXIT_USAGE, add_data, make_parser, plain_console, reason
from controller.local.place import LOCK_FILE, lock_owner
from controller.local.scenario import own_cluster
from controller.local.scenario.file import Scenario, parse
from controller.local.scenario.play import Played, Player
from controller.local.up import run_until_signal
from controller.wire.fault_rows import FaultError


def main(argv: Sequence[str]) -> int:
    """`kwob scenario`. Returns the exit code (see --help)."""
    options = command_line().parse_args(argv)
    try:
        text = options.file.read_text(encoding="utf-8")
        scenario = parse(text, str(options.file))
        own_cluster.check(scenario, text, str(options.file))
    except UnicodeDecodeError as error:
        what = f"is no text in UTF-8: byte {error.start} is {error.object[error.start]:#x}"
        print(f"kwob scenario: {options.file} {what}", file=sys.stderr)
        return EXIT_USAGE
    except FaultError as error:
        print(f"kwob scenario: {error}", file=sys.stderr)
        return EXIT_USAGE
    except OSError as error:
        print(f"kwob scenario: {reason(error)}", file=sys.stderr)
        return EXIT_USAGE
    if options.check_only:
        return 0
    try:
        _make_room(scenario, options.data, overwrite=options.overwrite)
        return run_until_signal(_play(scenario, options.data.resolve(), as_json=options.json))
    except (ClusterError, FaultError) as error:
        print(f"kwob scenario: {error}", file=sys.stderr)
    except OSError as error:
        print(f"kwob scenario: {reason(error)}", file=sys.stderr)
    return EXIT_FAILED


def _make_room(scenario: Scenario, data: Path, *, overwrite: bool) -> None:
    """A scenario with a cluster of its own begins on an empty folder. Raises: ClusterError."""
    if scenario.cluster is None or not (data / CLUSTER_FILE).exists():
        return
    if lock_owner(data / LOCK_FILE) is not None:
        raise ClusterError(f"a cluster runs in {data}, and this scenario starts its own: give another --data")
    if not overwrite:
        raise ClusterError(f"{data} has a cluster, and this scenario starts a new one: --overwrite, or another --data")
    shutil.rmtree(data)


async def _play(scenario: Scenario, data: Path, *, as_json: bool) -> int:
    console = plain_console(quiet=as_json)

    def say(at_s: float, line: str) -> None:
        console.print(f"{at_s:7.1f}s  {line}")

    with console.status("playing"):
        played = await Player(scenario, data, say).play()
    if as_json:
        print(_as_json(played))
    else:
        console.print(f"\n{'all of it held' if played.holds else 'NOT all of it held'}:")
        for each in played.judged:
            console.print(f"{'ok  ' if each.holds else 'NOT '} {each.statement}: {each.detail}")
    return 0 if played.holds else EXIT_FAILED


def _as_json(played: Played) -> str:
    rows = [{"statement": each.statement, "holds": each.holds, "detail": each.detail} for each in played.judged]
    return json.dumps({"holds": played.holds, "statements": rows, "loads": played.loads})


def command_line() -> argparse.ArgumentParser:
    """The parser."""
    parser = make_parser(
        "kwob scenario",
        "Plays a file (a cluster of its own or the running one, topics, load, faults, commands) and says what held: "
        "docs/scenarios.md.",
        examples=[
            "kwob scenario rack-loss.yaml",
            "kwob scenario rack-loss.yaml --data runs/rack-loss --overwrite --json",
            "kwob scenario rack-loss.yaml --check-only",
        ],
        exit_codes="0 all of it held; 1 some did not, or it could not be played; 2 the file or the arguments are "
        "wrong; 130 Ctrl-C",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the scenario, as YAML or JSON")
    add_data(parser, "data folder: of the running cluster, or for the one that the file describes")
    parser.add_argument("--overwrite", action="store_true", help="empty the folder before a cluster is started in it")
    parser.add_argument("--check-only", action="store_true", help="only read the file and say what is wrong with it")
    parser.add_argument("--json", action="store_true", help="only the outcome, as one JSON object")
    return parser
