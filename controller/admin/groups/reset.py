"""Where --reset-offsets moves a group to: times, durations, files and limits. Pure.

Source: Kafka 3.9 `ConsumerGroupCommand.prepareOffsetsToReset`, `Utils.getDateTime`, `java.time.Duration`.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from controller.admin.cluster.failures import ToolFailure
from controller.admin.toolkit.options import UsageExit, java_integer, java_split
from controller.wire.types import TopicPartition

Offsets = dict[TopicPartition, int]
_LONG: Final = range(-(2**63), 2**63)
_TIME: Final = re.compile(
    r"(\d+)-(\d{1,2})-(\d{1,2})T(\d{1,2}):(\d{1,2}):(\d{1,2})\.(\d{1,3})(?:(Z)|([+-])(\d\d)(?::?(\d\d))?)"
)
_DURATION: Final = re.compile(
    r"([+-])?P(?:([+-]?\d+)D)?(T(?:([+-]?\d+)H)?(?:([+-]?\d+)M)?(?:([+-]?\d+)(?:[.,](\d{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
#: The seconds that an Instant of Java can have.
_INSTANT: Final = range(-31_557_014_167_219_200, 31_556_889_864_403_200)


def parse_datetime(text: str) -> int:
    """Milliseconds since the epoch of `YYYY-MM-DDTHH:mm:SS.sss`, in UTC unless a zone follows. Raises ToolFailure."""
    _, has_time, time = text.partition("T")
    if not has_time:
        raise _unparsed("Error parsing timestamp. It does not contain a 'T' according to ISO8601 format")
    full = text if re.search(r"[+\-Z]", time) else text + "Z"
    match = _TIME.fullmatch(full)
    if match is None:
        raise _unparsed(f'Unparseable date: "{full}"')
    offset = timedelta(hours=int(match[10] or 0), minutes=int(match[11] or 0))
    try:
        year, month, day, hour, minute, second, fraction = (int(match[n]) for n in range(1, 8))
        zone = timezone(-offset if match[9] == "-" else offset)
        at = datetime(year, month, day, hour, minute, second, fraction * 1000, zone)
    except ValueError as error:
        raise _unparsed(f'Unparseable date: "{full}"') from error
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _unparsed(message: str) -> ToolFailure:
    return ToolFailure(f"java.text.ParseException: {message}")


def parse_duration_ms(text: str) -> int:
    """Milliseconds of `PnDTnHnMnS`. Raises ToolFailure."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match[n] for n in (2, 4, 5, 6)) or (match[3] or "").upper() == "T":
        raise _no_duration("")
    units = ((2, "days", 86_400), (4, "hours", 3600), (5, "minutes", 60), (6, "seconds", 1))
    seconds = sum(_seconds(match[at] or "0", unit, each) for at, unit, each in units)
    if seconds not in _LONG:
        raise _no_duration(": overflow")
    fraction = int(((match[7] or "") + "000")[:3]) * (-1 if (match[6] or "").startswith("-") else 1)
    total = seconds * 1000 + fraction
    return -total if match[1] == "-" else total


def _seconds(text: str, unit: str, each: int) -> int:
    number = java_integer(text, _LONG)
    if number is None or number * each not in _LONG:
        raise _no_duration(f": {unit}")
    return number * each


def _no_duration(why: str) -> ToolFailure:
    return ToolFailure(
        f"Text cannot be parsed to a Duration{why}", java_class="java.time.format.DateTimeParseException"
    )


def time_before(now_ms: int, duration_ms: int) -> int:
    """The time so long before now. Raises ToolFailure for one that Java does not have."""
    at = now_ms - duration_ms
    if at // 1000 not in _INSTANT:
        raise ToolFailure("Instant exceeds minimum or maximum instant", java_class="java.time.DateTimeException")
    if at not in _LONG:
        raise ToolFailure("long overflow", java_class="java.lang.ArithmeticException")
    return at


def parse_topics(given: Sequence[str]) -> tuple[list[str], list[TopicPartition]]:
    """Whole topics, and the partitions of `topic:0,1,2`. Raises UsageExit."""
    topics: list[str] = []
    partitions: list[TopicPartition] = []
    for text in given:
        if ":" not in text:
            topics.append(text)
            continue
        name, *rest = java_split(text, ":") or [""]
        if len(rest) != 1:
            raise UsageExit(f"Invalid topic arg '{text}', expected topic name and partitions")
        for word in java_split(rest[0]):
            number = java_integer(word)
            if number is None:
                raise UsageExit(f"Invalid partition '{word}' specified in topic arg '{text}''")
            partitions.append(TopicPartition(name, number))
    return topics, partitions


def parse_plan(text: str, groups: Sequence[str]) -> dict[str, Offsets]:
    """A file's offsets by group: `topic,partition,offset` for the one group, else `group,topic,partition,offset`.

    A column that is missing counts as 0, as in Kafka. Raises ToolFailure with the line of what is no number.
    """
    lines = [line for line in text.split("\n") if line.strip()]
    rows = [_cells(number, line) for number, line in enumerate(lines, 1)]
    alone = len(groups) == 1 and bool(rows) and _is_number(rows[0], 1) and len(rows[0]) <= 3
    plan: dict[str, Offsets] = {}
    for number, row in enumerate(rows, 1):
        group, cells = (groups[0], row) if alone else (row[0], row[1:])
        cells = [*cells, "0", "0"][: max(3, len(cells))]
        if len(cells) > 3:
            raise ToolFailure(f"line {number}: Too many entries: expected at most {3 if alone else 4}, got {len(row)}")
        partition, offset = java_integer(cells[1].strip()), java_integer(cells[2].strip(), _LONG)
        if partition is None or offset is None:
            wrong = cells[1] if partition is None else cells[2]
            raise ToolFailure(f'line {number}: Cannot deserialize value from String "{wrong}": not a valid number')
        plan.setdefault(group, {})[TopicPartition(cells[0], partition)] = offset
    return plan


def _cells(number: int, line: str) -> list[str]:
    try:
        return next(csv.reader([line]))
    except csv.Error as error:
        raise ToolFailure(f"line {number}: {error}") from error


def _is_number(row: Sequence[str], at: int) -> bool:
    return len(row) <= at or java_integer(row[at].strip()) is not None


def within(
    targets: Offsets, first: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> tuple[Offsets, list[str]]:
    """The offsets within each log, and a warning for each that was not."""
    offsets: Offsets = {}
    warnings = []
    for partition, offset in targets.items():
        offsets[partition] = max(first[partition], min(offset, end[partition]))
        if offsets[partition] != offset:
            how = "higher than latest" if offset > end[partition] else "lower than earliest"
            warnings.append(
                f"New offset ({offset}) is {how} offset for topic partition {partition}. Value will be set to "
                f"{offsets[partition]}"
            )
    return offsets, warnings


def to_csv(plan: Mapping[str, Offsets], *, with_group: bool) -> str:
    """The lines that `--from-file` reads."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for group, offsets in plan.items():
        for partition, offset in offsets.items():
            writer.writerow([*([group] if with_group else []), partition.topic, partition.partition, offset])
    return out.getvalue()
