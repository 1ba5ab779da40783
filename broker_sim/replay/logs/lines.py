"""A line of a Kafka log: its time, its message, whether it continues the line before. Pure.

Kafka's shipped pattern is `[%d] %p %m (%c)%n`, `%d` in the time zone of the JVM. Also taken: a `T` between date and
time, a point before the milliseconds or none at all, no brackets, a thread's name at the end (`%d{ISO8601} %p %m (%c)
[%t]%n`) or before the logger's (`%d{yyyy-MM-dd HH:mm:ss} %-5p [%t] %c{1}:%L - %m%n`), and what containers put in front.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

#: As Spark and Python both read it; the groups are second, milliseconds, level, logger, message.
#: What a container's runtime, `docker compose logs` or `kubectl logs --prefix` put in front of a line.
PREFIX_PATTERN: Final = r"^(?:[\w.-]+ +\| |\S+ std(?:out|err) [FP] |\[pod/\S+\] )?"
#: A thread's name, and the logger's with a line of its program, in front of a message.
_LOCATED_PATTERN: Final = r"\[[^\]]*\] ([\w.$]+):(?:\d+|\?) - "
HEAD_PATTERN: Final = (
    PREFIX_PATTERN + r"\[?(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:[,.](\d{3}))?\]? +\[?([A-Z]+)\]? +"
    rf"(?:{_LOCATED_PATTERN})?(.*)$"
)
_LOCATED: Final = re.compile(_LOCATED_PATTERN)
_HEAD: Final = re.compile(HEAD_PATTERN)
_LOGGER: Final = re.compile(r" \([\w.$/]+\)$")
#: The name of the thread behind the logger's: %t, as some images have it.
_THREAD: Final = re.compile(r"(?<=\)) \[[^\[\]]*\]$")
_LEVELS: Final = frozenset({"TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"})
#: In the hour that a clock passes twice, a step back of more than this means that it is the second time.
_FOLD_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
#: Kafka's first log is not older, and no log is younger for long.
_YEARS: Final = (2011, 2050)


class Head(NamedTuple):
    """A line that begins a record."""

    ts: int  #: ms since the epoch
    level: str
    text: str  #: the message (of a long one, its first line), without the logger's name
    logger: str | None  #: null: the message goes on, or the line is torn


class BadTime(ValueError):
    """A line begins like a record, but its time is none."""


@dataclass(slots=True)
class Clock:
    """From local time to ms since the epoch, for lines in the order of one file.

    The hour that is passed twice when daylight saving ends is told apart by the step back; a local time that never was
    is taken with the offset before the gap.
    """

    zone: ZoneInfo
    _offsets: dict[str, int] = field(default_factory=dict)
    _last: int = 0

    def ms(self, second: str, millis: str) -> int:
        """Raises: BadTime."""
        at = self._offsets.get(second)
        if at is None:
            at = self._known_anew(second)
        self._last = at
        return at + int(millis)

    def ms_if_known(self, second: str, millis: str) -> int | None:
        """The same for a second that was asked for before; None for another, which may be none."""
        at = self._offsets.get(second)
        if at is None:
            return None
        self._last = at
        return at + int(millis)

    def _known_anew(self, second: str) -> int:
        try:
            local = datetime.fromisoformat(second)
        except ValueError as error:
            raise BadTime(second) from error
        first, again = (int(local.replace(tzinfo=self.zone, fold=fold).timestamp()) * 1000 for fold in (0, 1))
        at = again if first < again and first + _FOLD_MS < self._last <= again + _HOUR_MS else first
        if len(self._offsets) > 4096 or first != again:
            self._offsets.clear()
        if first == again:
            self._offsets[second] = at
        return at


@cache
def hours_passed_twice(zone: ZoneInfo) -> tuple[str, ...]:
    """Local hours of which clocks of the zone pass some minutes twice, as `2024-10-27 02`, in order."""
    week, end = (datetime(year, 1, 1) for year in _YEARS)
    found: list[str] = []
    while week < end:
        following = week + timedelta(days=7)
        if _offset(zone, following) < _offset(zone, week):
            halves = (week + timedelta(minutes=30 * half) for half in range(7 * 48))
            found += sorted({f"{at:%Y-%m-%d %H}" for at in halves if _offset(zone, at) > _offset(zone, at, fold=1)})
        week = following
    return tuple(found)


def _offset(zone: ZoneInfo, local: datetime, *, fold: int = 0) -> timedelta:
    return local.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta()


def head_of(line: str, clock: Clock) -> Head | None:
    """The line as the beginning of a record; None for one that continues another.

    Raises: BadTime.
    """
    shipped = _shipped_head(line, clock)
    if shipped is not None:
        return shipped
    match = _HEAD.match(line)
    if match is None:
        return None
    second, millis, level, logger, text = match.groups()
    head = _head(clock.ms(second.replace("T", " "), millis or "000"), level, text)
    return head if logger is None or head.logger is not None else head._replace(logger=logger)


def _shipped_head(line: str, clock: Clock) -> Head | None:
    """A line in the shipped pattern, of a second that is known: nearly all lines; without a look at each character."""
    if line[:1] != "[" or line[20:21] != "," or line[24:26] != "] ":
        return None
    level, blank, text = line[26:].partition(" ")
    millis = line[21:24]
    if not blank or level not in _LEVELS or not (millis.isascii() and millis.isdigit()):
        return None
    text = text.lstrip(" ")
    if text[:1] == "[" and _LOCATED.match(text):
        return None
    at = clock.ms_if_known(line[1:20], millis)
    return None if at is None else _head(at, level, text)


def _head(ts: int, level: str, text: str) -> Head:
    stripped = text.rstrip()
    if stripped.endswith("]"):
        stripped = _THREAD.sub("", stripped)
    if stripped.endswith(")"):
        # The name has no blank, so that it is the last pair of brackets.
        at = stripped.rfind(" (")
        if at >= 0 and _LOGGER.match(stripped, at):
            return Head(ts, level, text[:at], stripped[at + 2 : -1])
    return Head(ts, level, text, None)
