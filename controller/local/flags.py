"""What the commands of a local cluster have in common: the data folder, how help and errors look."""

from __future__ import annotations

import argparse
import math
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from controller.world.help_text import help_end

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

#: The environment variable that names the data folder in the place of ./kwob-data.
DATA_VARIABLE: Final = "KWOB_DATA"
_FALLBACK: Final = "kwob-data"

#: Exit codes: what was asked cannot be done now; the words themselves are wrong.
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2

#: Columns of a table that goes into a pipe or a file, at most.
_WIDEST: Final = 100_000

_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def default_data() -> Path:
    """The folder that a command is about when nothing says another."""
    return Path(os.environ.get(DATA_VARIABLE) or _FALLBACK)


def add_data(parser: argparse.ArgumentParser, what: str = "data folder") -> None:
    """The flag --data."""
    parser.add_argument(
        "--data", type=Path, default=default_data(), metavar="DIR",
        help=f"{what} (default: ${DATA_VARIABLE}, else {_FALLBACK})",
    )  # fmt: skip


def with_data(command: str, data: Path, *, is_here: bool = True) -> str:
    """A command of kwob to be typed: with the data folder, unless it is the one that is taken without. Where another
    terminal reads it (not `is_here`), which has a variable and a folder of its own, always."""
    is_default = is_here and data.resolve() == default_data().resolve()
    return command if is_default else f"{command} --data {shlex.quote(str(data))}"


def make_parser(
    prog: str, description: str, *, examples: Sequence[str] = (), exit_codes: str = "", **more: Any
) -> argparse.ArgumentParser:
    """A parser whose help ends with examples and exit codes."""
    return argparse.ArgumentParser(prog=prog, description=description, **help_end(examples, exit_codes), **more)


def count(least: int, most: int) -> Any:
    """A type of argument: a whole number of that range."""

    def number(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
        return int(text)

    return number


def seconds(text: str) -> float:
    """A type of argument: a length of time such as 250ms, 5s, 2m, 1h or a number of seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)?", text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time; expected for example 250ms, 5s, 2m, 1h or a number of seconds"
        )
    length_s = float(found[1]) * _UNITS_S[found[2] or "s"]
    if not math.isfinite(length_s):
        raise argparse.ArgumentTypeError(f"{text[:20]}... is longer than any time")
    return length_s


def reason(error: OSError) -> str:
    """What the system says, without its number: `missing.yaml: No such file or directory`."""
    name = f"{error.filename}: " if error.filename is not None else ""
    if isinstance(error, FileExistsError):  # who makes a folder minds none that is there
        return f"{name}a file is where a folder is needed"
    return f"{name}{error.strerror or error}"


def plain_console(**more: Any) -> Console:
    """Where lines are printed as they are: names, folders and errors have brackets and colons in them."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True, markup=False, emoji=False, **more)


def headed(head: str, text: str, style: str = "bold") -> Text:
    """`head: text`, with the head in a style."""
    from rich.text import Text

    return Text.assemble((head, style), f": {text}")


def print_table(table: Table, console: Console) -> None:
    """A row a line, however long, where no terminal shows it: for `grep`, and for who reads a file."""
    if not console.is_terminal:
        whole = console.options.update(max_width=_WIDEST)
        console.width = max(console.width, console.measure(table, options=whole).maximum)
    console.print(table, soft_wrap=False)


def plural(number: int, noun: str) -> str:
    """`1 broker`, `3 brokers`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
