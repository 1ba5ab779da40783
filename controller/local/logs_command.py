"""`kwob logs`: the log files of all processes of a data folder as one story, by time."""

from __future__ import annotations

import argparse
import heapq
import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from controller.local.cluster_file import ClusterError, read_cluster
from controller.local.flags import EXIT_FAILED, EXIT_USAGE, add_data, count, make_parser, seconds
from controller.local.processes import news_from
from controller.wire.log_meanings import MEANINGS
from controller.wire.types import TopicPartition

_POLL_S: Final = 0.2
_LEVELS: Final = ("debug", "info", "warning", "error")
_COLOURS: Final = {"debug": "2", "info": "0", "warning": "33", "error": "31"}
#: Processes get colours in turn, so that one can be followed with the eye.
_NAME_COLOURS: Final = ("36", "35", "32", "34", "33")
#: Told first, or not at all, in a line for people.
_HEAD: Final = ("ts", "level", "event", "program", "topic", "partition")
Row = dict[str, Any]


def main(argv: Sequence[str]) -> int:
    """`kwob logs`. Returns the exit code (see --help)."""
    options = command_line().parse_args(argv)
    if options.events:
        for event, meaning in MEANINGS.items():
            print(f"{event:30} {meaning}")
        return 0
    try:
        passes = selection(options)
    except ValueError as error:
        print(f"kwob logs: {error}", file=sys.stderr)
        return EXIT_USAGE
    try:
        read_cluster(options.data)
    except ClusterError as error:
        print(f"kwob logs: {error}", file=sys.stderr)
        return EXIT_FAILED
    folder = options.data / "logs"
    offsets = {path: path.stat().st_size for path in sorted(folder.glob("*.log"))}
    rows: Iterable[Row] = (row for row in merged(offsets) if passes(row))
    if options.lines is not None:
        rows = deque(rows, maxlen=options.lines)
    show = _shower(options, folder)
    is_any = False
    for row in rows:
        show(row)
        is_any = True
    if options.follow:
        follow(folder, offsets, passes, show)
    if not is_any and offsets:
        print("kwob logs: no line is like that", file=sys.stderr)
    elif not is_any:
        print(f"kwob logs: there are no logs in {folder}: a cluster that runs there writes them", file=sys.stderr)
        return EXIT_FAILED
    return 0


def merged(sizes: Mapping[Path, int]) -> Iterator[Row]:
    """The rows of these files, each up to its size, by time; each has the name of its process as `process`."""
    return heapq.merge(*(_rows(path, size) for path, size in sizes.items()), key=lambda row: str(row.get("ts", "")))


def _rows(path: Path, size: int) -> Iterator[Row]:
    with path.open("rb") as file:
        while file.tell() < size and (line := file.readline()):
            if (row := _row(line)) is not None:
                yield {**row, "process": path.stem}


def _row(line: bytes) -> Row | None:
    if not line.startswith(b"{"):
        return None
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def follow(folder: Path, offsets: dict[Path, int], passes: Callable[[Row], bool], show: Callable[[Row], None]) -> None:
    """Shows what comes, until Ctrl-C; files that come, too."""
    while True:
        found: list[Row] = []
        for path in sorted(folder.glob("*.log")):
            rows, offsets[path] = news_from(path, offsets.get(path, 0))
            found += [{**row, "process": path.stem} for row in rows]
        for row in sorted(found, key=lambda row: str(row.get("ts", ""))):
            if passes(row):
                show(row)
        time.sleep(_POLL_S)


# -- which -------------------------------------------------------------------------------------------------------------


def selection(options: argparse.Namespace, now: datetime | None = None) -> Callable[[Row], bool]:
    """Whether a row is wanted. Raises: ValueError for a time that is none."""
    since = since_text(options.since, now or datetime.now(UTC)) if options.since else ""
    least = _LEVELS.index(options.level)
    topics = [name for text in options.topic for name in text.split(",")]
    events = [name for text in options.event for name in text.split(",")]

    def passes(row: Row) -> bool:
        level, event = str(row.get("level", "info")), str(row.get("event", ""))
        return (
            str(row.get("ts", "")) >= since
            and (_LEVELS.index(level) if level in _LEVELS else 1) >= least
            and (not events or any(fnmatchcase(event, pattern) for pattern in events))
            and (not options.broker or row.get("broker_id") in options.broker or _named(row, "broker", options.broker))
            and (not options.controller or _named(row, "controller", options.controller))
            and (not topics or any(is_about(row, topic) for topic in topics))
        )

    return passes


def _named(row: Row, role: str, ids: Sequence[int]) -> bool:
    return str(row.get("process", "")) in {f"{role}-{number}" for number in ids}


def is_about(row: Mapping[str, Any], name: str) -> bool:
    """Whether a row names a topic, or one partition of it (`orders-3`), under any key.

    A row of a batch names topics alone: it is about each of their partitions, too.
    """
    topic, partition = row.get("topic"), row.get("partition")
    if topic is not None:
        return name in (topic, str(TopicPartition(str(topic), partition)) if isinstance(partition, int) else None)
    named: set[str] = set()
    for value in row.values():
        named |= {str(part) for part in value} if isinstance(value, list) else {str(value)}
    batch = row.get("topics")
    if isinstance(batch, list) and any(_is_partition_of(name, str(topic)) for topic in batch):
        return True
    return any(text == name or f"/{name}" in text or _is_partition_of(text, name) for text in named)


def _is_partition_of(text: str, name: str) -> bool:
    head, dash, number = text.rpartition("-")
    return bool(dash) and head == name and number.isdigit()


def since_text(text: str, now: datetime) -> str:
    """A length of time before now, or a time of day or date (UTC), as `ts` has it. Raises: ValueError."""
    try:
        when = now - timedelta(seconds=seconds(text))
    except argparse.ArgumentTypeError:
        try:
            given = f"{now:%Y-%m-%d}T{text}" if text[2:3] == ":" else text
            when = datetime.fromisoformat(given)
        except ValueError:
            raise ValueError(f"--since {text!r}: expected for example 5m, 10:42:07 or 2026-01-31T10:42:07") from None
        when = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    except OverflowError:
        raise ValueError(f"--since {text!r}: no date is so long ago") from None
    return when.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# -- how ---------------------------------------------------------------------------------------------------------------


def _shower(options: argparse.Namespace, folder: Path) -> Callable[[Row], None]:
    names = sorted(path.stem for path in folder.glob("*.log"))
    colours = {name: _NAME_COLOURS[place % len(_NAME_COLOURS)] for place, name in enumerate(names)}
    width = max(map(len, names), default=0)
    is_coloured = sys.stdout.isatty()

    def show(row: Row) -> None:
        print(json.dumps(row) if options.json else line(row, width, colours if is_coloured else {}), flush=True)

    return show


def line(row: Mapping[str, Any], width: int = 0, colours: Mapping[str, str] | None = None) -> str:
    """A row for people: time, process, event, what it is about, the other keys. With colours where some are given."""
    name, level = str(row.get("process", "")), str(row.get("level", "info"))
    topic, partition = row.get("topic"), row.get("partition")
    about = "" if topic is None else f" {topic}" if partition is None else f" {topic}-{partition}"
    whose = {"process", "broker_id" if name.startswith("broker-") else "controller" if name else ""}
    keys = "".join(f" {k}={_value(v)}" for k, v in row.items() if k not in _HEAD and k not in whose and v is not None)
    when, event = str(row.get("ts", ""))[11:23], str(row.get("event", ""))
    mark = "" if level in ("info", "debug") else f" {level}"
    if not colours:
        return f"{when} {name:{width}}{mark} {event}{about}{keys}"
    return (
        f"\x1b[2m{when}\x1b[0m \x1b[{colours.get(name, '0')}m{name:{width}}\x1b[0m"
        f"\x1b[{_COLOURS.get(level, '0')}m{mark} \x1b[1m{event}\x1b[22m{about}\x1b[0m\x1b[2m{keys}\x1b[0m"
    )


def _value(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ",".join(map(str, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {each}" for key, each in value.items()) + "}"
    return json.dumps(value) if isinstance(value, str) and " " in value else str(value)


def command_line() -> argparse.ArgumentParser:
    """The parser."""
    parser = make_parser(
        "kwob logs",
        "The log lines of all processes of a data folder, merged by time. What the events mean: kwob logs --events.",
        examples=[
            "kwob logs --follow",
            "kwob logs --topic orders-3 --since 5m",
            "kwob logs --event 'isr.*,partition.*' --broker 2 --json",
        ],
        exit_codes="0 shown; 1 there is no cluster, or it has no logs; 2 wrong arguments; 130 Ctrl-C",
    )
    add_data(parser)
    parser.add_argument("--follow", action="store_true", help="go on with what comes, until Ctrl-C")
    parser.add_argument(
        "--topic", action="append", default=[], metavar="T[-N]", help="about this topic, or this partition of it"
    )
    for role in ("broker", "controller"):
        parser.add_argument(f"--{role}", action="append", default=[], type=int, metavar="ID", help=f"of this {role}")
    parser.add_argument("--event", action="append", default=[], metavar="NAME", help="events that fit, such as 'isr.*'")
    parser.add_argument("--level", choices=_LEVELS, default="debug", help="from this level on (default: all)")
    parser.add_argument("--since", metavar="TIME", help="5m (before now), a time of day or a date, UTC")
    parser.add_argument("--lines", type=count(1, 10**9), metavar="N", help="only the last ones")
    parser.add_argument("--json", action="store_true", help="the lines as they are, with `process`")
    parser.add_argument("--events", action="store_true", help="list all events with their meaning")
    return parser
