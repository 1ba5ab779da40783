"""A layout as a table of reasons and as a picture, for terminals, and as an HTML or SVG file.

The picture has a row per partition and a column per broker, racks side by side: `L` is the preferred leader, a digit
the place in the replica list. Below it, a bar per broker.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TextIO

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from controller.admin.cluster.failures import ToolFailure
from controller.admin.layout.reasons import Explanation, PartitionReason, Run
from controller.admin.layout.skew import Skew
from controller.admin.toolkit.console import commas
from controller.wire.types import BrokerId

_BAR: Final = 24
#: Wide enough for any layout in a file; a terminal has its own width.
_FILE_WIDTH: Final = 160
_PIPE_WIDTH: Final = 400
_LEADER_STYLE, _FOLLOWER_STYLE = "bold green", "cyan"
#: A picture of more partitions than this is cut; counts and skew still tell of all.
ROWS_MAX: Final = 200


def picture(layout: Mapping[int, Sequence[BrokerId]], racks: Mapping[BrokerId, str], skew: Skew) -> RenderableType:
    """Partitions against brokers; brokers of a rack stand together."""
    brokers = sorted(skew.replicas, key=lambda b: (racks.get(b, ""), b))
    table = Table(box=None, pad_edge=False, header_style="", padding=(0, 1))
    table.add_column("partition")
    for at, broker in enumerate(brokers):
        begins = racks and (at == 0 or racks[brokers[at - 1]] != racks[broker])
        above = f"{'rack ' + racks[broker] if begins else ''}\n" if racks else ""
        table.add_column(f"{above}{broker}", justify="center", no_wrap=True)
    for number in list(layout)[:ROWS_MAX]:
        place = {broker: at for at, broker in enumerate(layout[number])}
        table.add_row(str(number), *(_cell(place.get(broker)) for broker in brokers))
    parts: list[RenderableType] = [table]
    if len(layout) > ROWS_MAX:
        parts.append(Text(f"... and {len(layout) - ROWS_MAX} more partitions"))
    return Group(*parts)


def _cell(place: int | None) -> Text:
    if place is None:
        return Text(".", style="dim")
    return Text("L", style=_LEADER_STYLE) if place == 0 else Text(str(place + 1), style=_FOLLOWER_STYLE)


def skew_table(skew: Skew, racks: Mapping[BrokerId, str]) -> RenderableType:
    """Replicas and leaders per broker with bars, then per rack, then the skews as numbers."""
    table = Table(box=None, pad_edge=False, header_style="")
    for title in ("broker", "rack", "replicas", "", "leaders", ""):
        table.add_column(title, justify="right" if title in ("replicas", "leaders") else "left", no_wrap=True)
    most = max([*skew.replicas.values(), 1])
    for broker in sorted(skew.replicas, key=lambda b: (racks.get(b, ""), b)):
        count, led = skew.replicas[broker], skew.leaders[broker]
        table.add_row(str(broker), racks.get(broker, ""), str(count), _bar(count, most), str(led), _bar(led, most))
    for rack in skew.rack_replicas:
        count, led = skew.rack_replicas[rack], skew.rack_leaders[rack]
        table.add_row("all of", rack, str(count), "", str(led), "")
    violations = f", rack violations {skew.rack_violations}" if skew.rack_replicas else ""
    line = f"replica skew {skew.replica_skew:.4g}, leader skew {skew.leader_skew:.4g} (1 is perfect){violations}"
    return Group(table, Text(line))


def _bar(count: int, most: int) -> str:
    return "█" * round(_BAR * count / most) or ("▏" if count else "")


def reasons_table(explanation: Explanation) -> RenderableType:
    """The list that the arithmetic counts in, the runs, and a line for each replica."""
    parts: list[RenderableType] = [Text(f"broker list: {commas(explanation.broker_list)}{_racked(explanation)}")]
    parts += [Text(run_line(run)) for run in explanation.runs]
    table = Table(box=None, pad_edge=False, header_style="")
    for title in ("partition", "replica", "broker", "rack", "why there", "passed over"):
        table.add_column(title)
    for partition in explanation.partitions[:ROWS_MAX]:
        for row in _reason_rows(partition, explanation.racks):
            table.add_row(*row)
    return Group(*parts, table)


def _reason_rows(partition: PartitionReason, racks: Mapping[BrokerId, str]) -> Iterable[tuple[str, ...]]:
    if not partition.reasons:
        for place, broker in enumerate(partition.replicas):
            yield (_first(place, partition.partition), _place(place), str(broker), racks.get(broker, ""), "by hand", "")
        return
    for place, reason in enumerate(partition.reasons):
        passed = "; ".join(reason.passed_over)
        number = _first(place, partition.partition)
        yield (number, _place(place), str(reason.broker_id), reason.rack or "", reason.because, passed)


def _first(place: int, partition: int) -> str:
    return str(partition) if place == 0 else ""


def _place(place: int) -> str:
    return "leader" if place == 0 else str(place + 1)


def _racked(explanation: Explanation) -> str:
    return " (one of each rack in turn)" if explanation.racks else ""


def run_line(run: Run) -> str:
    """What is known of a run of partitions, in a line."""
    which = f"partition {run.first}" if run.first == run.last else f"partitions {run.first} to {run.last}"
    if run.start is None:
        return f"{which}: {run.origin.value}"
    return f"{which}: {run.origin.value}, start index {run.start.start_index}, shift {run.start.shift}"


def show(out: TextIO, parts: Iterable[RenderableType]) -> None:
    """Prints these below one another, an empty line between two; colours and cut lines on a terminal only."""
    if out.isatty():
        _print(_console(out), parts)
        return
    text = io.StringIO()
    _print(_console(text, width=_PIPE_WIDTH), parts)
    out.write("".join(line.rstrip() + "\n" for line in text.getvalue().splitlines()))
    out.flush()


def _console(file: TextIO, *, width: int | None = None, record: bool = False) -> Console:
    """Keys, groups and racks are text, whatever is in them: no bracket of theirs begins a tag, no colon a picture."""
    return Console(file=file, width=width, record=record, highlight=False, markup=False, emoji=False)


def _print(console: Console, parts: Iterable[RenderableType]) -> None:
    for at, part in enumerate(parts):
        if at:
            console.print()
        # A line of text that goes into a pipe stays one line, so that what reads it finds its words together.
        console.print(part, soft_wrap=isinstance(part, Text) and not console.is_terminal)


def check_picture(path: str | None) -> None:
    """Raises ToolFailure for a file name that says neither HTML nor SVG."""
    if path is not None and Path(path).suffix not in (".html", ".svg"):
        raise ToolFailure(f"--picture {path}: the name must end in .html or .svg")


def save(path: str, title: str, parts: Iterable[RenderableType]) -> None:
    """Writes the same as an `.html` or `.svg` file. Raises ToolFailure for another ending or a path not to write."""
    check_picture(path)
    target = Path(path)
    console = _console(io.StringIO(), width=_FILE_WIDTH, record=True)
    for part in parts:
        console.print(part)
        console.print()
    text = console.export_html() if target.suffix == ".html" else console.export_svg(title=title)
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ToolFailure(f"--picture {path}: cannot be written ({error.strerror})") from error
