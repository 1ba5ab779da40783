"""`kwob demo`: its flags, its folder, its exit code."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from controller.demo import how_to_look
from controller.demo.screen import Screen
from controller.demo.stage import ActFailed
from controller.demo.story import run_story
from controller.local.cluster_file import ClusterError
from controller.local.flags import plain_console, reason
from controller.local.up import run_until_signal
from controller.world.exit_codes import INTERRUPTED
from controller.world.help_text import help_end
from controller.world.real import logs

DEFAULT_OUT: Final = Path("kwob-demo")
#: The log of the demo itself; also what marks a folder as a demo's.
LOG_NAME: Final = "demo.log"
_FAILED: Final = 1


def main(argv: Sequence[str]) -> int:
    """`kwob demo`. Returns the exit code: 0 when everything held, 1 when not, 130 after Ctrl-C."""
    options = command_line().parse_args(argv)
    out: Path = options.out.resolve()
    try:
        _prepare(out, overwrite=options.overwrite)
        with logs.configure("demo", json_file=out / LOG_NAME):
            return run_until_signal(_demo(out, seed=options.seed))
    except (ClusterError, OSError) as error:
        print(f"kwob demo: {reason(error) if isinstance(error, OSError) else error}", file=sys.stderr)
        return _FAILED


async def _demo(out: Path, *, seed: int) -> int:
    console = plain_console()
    with Screen(console) as screen:
        try:
            holds = await run_story(screen, out=out, seed=seed)
        except (ActFailed, ClusterError) as error:
            screen.finish(str(error), holds=False)
            return _FAILED
        except asyncio.CancelledError:
            console.print("ended by a signal; nothing is left running")
            raise
    looked = how_to_look.write(out)
    console.print(f"report    {out / 'replay' / 'report.html'}\nlook      {looked}: five commands worth typing next")
    if not holds:
        print(f"kwob demo: not everything held; logs: {out / 'cluster' / 'logs'}", file=sys.stderr)
    return 0 if holds else _FAILED


def _prepare(out: Path, *, overwrite: bool) -> None:
    """Makes the folder. Raises: ClusterError, when it holds something and may not be replaced."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        if not _is_a_demo(out):
            raise ClusterError(f"{out} exists and is not the folder of a demo; choose another with --out")
        if not overwrite:
            raise ClusterError(f"{out} holds an earlier demo; replace it with --overwrite, or choose another --out")
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)


def _is_a_demo(out: Path) -> bool:
    return (out / LOG_NAME).is_file()


def command_line() -> argparse.ArgumentParser:
    """The parser."""
    parser = argparse.ArgumentParser(
        prog="kwob demo",
        description="Runs a cluster of two controllers and three brokers, breaks it, heals it, checks it from outside, "
        "and replays its ISR trace on Spark. Takes about two minutes.",
        **help_end(
            ["kwob demo", "kwob demo --out /tmp/demo --overwrite"],
            f"0 everything held; 1 something did not, or nothing could run; 2 wrong arguments; {INTERRUPTED} Ctrl-C",
        ),
    )
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, metavar="DIR", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the records' content (default: 1)")
    parser.add_argument("--overwrite", action="store_true", help="replace the folder of an earlier demo")
    return parser


__all__ = ["main"]
