"""`kwob rehearse compare A B`: two rehearsals side by side."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from controller.rehearse import files
from controller.rehearse.clock import clock
from controller.rehearse.printing import bare_table, wide_console

_REFUSED = 2


def main(argv: Sequence[str]) -> int:
    """Returns the exit code: 0, or 2 where a folder is none of a rehearsal."""
    options = command_line().parse_args(argv)
    try:
        rows = side_by_side(*(_figures(folder) for folder in (options.a, options.b)))
    except files.OutError as error:
        print(f"kwob rehearse compare: {error}", file=sys.stderr)
        return _REFUSED
    if options.json:
        print(json.dumps({name: [left, right] for name, left, right in rows}))
        return 0
    table = bare_table(("", str(options.a), str(options.b)), left=3)
    for name, left, right in rows:
        style = None if left == right else "bold"
        table.add_row(name, left, right, style=style)
    wide_console().print(table)
    return 0


def command_line() -> argparse.ArgumentParser:
    """The parser."""
    parser = argparse.ArgumentParser(
        prog="kwob rehearse compare",
        description="Two rehearsals side by side.",
        epilog="examples:\n  kwob rehearse compare rehearsal-10MB rehearsal-50MB\n\n"
        "exit codes: 0 told; 2 a folder is none of a rehearsal",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("a", type=Path, metavar="DIR", help="the folder of a rehearsal (its --out)")
    parser.add_argument("b", type=Path, metavar="DIR", help="another one")
    parser.add_argument("--json", action="store_true", help="both as one JSON object")
    return parser


def _figures(folder: Path) -> list[tuple[str, str]]:
    """Raises OutError."""
    try:
        return figures(files.read_summary(folder))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, files.OutError):
            raise
        raise files.OutError(f"{folder} is not whole ({error!r}): rehearse again") from error


def side_by_side(one: Sequence[tuple[str, str]], other: Sequence[tuple[str, str]]) -> list[tuple[str, str, str]]:
    """Name and both figures, as text, of two summaries."""
    return [(name, left, right) for (name, left), (_, right) in zip(one, other, strict=True)]


def figures(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The figures of one summary that are worth a line."""
    end_ms = summary["moves_end_ms"]
    rows = [
        ("moves end", "never" if end_ms is None and summary["troubles"]["moving"]["partitions"] else _time(end_ms)),
        ("ends", clock(summary["end_ms"]) if summary["is_over"] else "never"),
    ]
    for name, totals in summary["troubles"].items():
        if name == "moving":
            continue
        text = f"{totals['partitions']:,}, at most {totals['at_most']:,} at once" if totals["partitions"] else "0"
        rows.append((name.replace("_", " "), text))
    rows += [
        ("fullest link", _link(summary)),
        ("copied", f"{summary['moved_bytes'] / 1e9:,.2f} GB"),
        ("refused", f"{summary['refused_bytes'] / 1e6:,.1f} MB"),
        ("lost", f"{summary['lost_bytes'] / 1e6:,.1f} MB"),
        ("at risk, at most", f"{summary['at_risk_bytes'] / 1e6:,.1f} MB"),
        ("elections", f"{summary['elections']} ({summary['unclean_elections']} unclean)"),
        ("warnings", str(len(summary["warnings"]))),
    ]
    return rows


def _link(summary: Mapping[str, Any]) -> str:
    broker = summary["peak_link_broker"]
    return "–" if broker is None else f"{summary['peak_link']:.0%} at broker {broker}"


def _time(at_ms: int | None) -> str:
    return "–" if at_ms is None else clock(at_ms)
