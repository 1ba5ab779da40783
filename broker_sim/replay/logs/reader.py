"""Lines in the order of a file to facts and to what could not be used. Pure; holds a line's worth of state per file.

A line of several facts keeps their order (`sub`). A continuation (stack trace, the rest of a long message) is dropped,
but for the settings of a `KafkaConfig values:` dump, which take the time of the record they stand in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from broker_sim.replay.logs import request_lines as requests
from broker_sim.replay.logs import texts
from broker_sim.replay.logs.facts import Fact, What
from broker_sim.replay.logs.lines import HEAD_PATTERN, PREFIX_PATTERN, BadTime, Clock, Head, head_of, hours_passed_twice
from broker_sim.replay.logs.said import Said

TORN: Final = "torn"
UNKNOWN_TEXT: Final = "unknown_text"
BAD_TIME: Final = "bad_time"
UNKNOWN_BROKER: Final = "unknown_broker"
#: Why a line of a log is quarantined, beside the reasons that a row of a trace may have.
LOG_REASONS: Final = (UNKNOWN_TEXT, BAD_TIME, UNKNOWN_BROKER)

_DUMPED_KEYS: Final = (
    "replica.lag.time.max.ms",
    "min.insync.replicas",
    "replica.fetch.wait.max.ms",
    "replica.fetch.max.bytes",
    "replica.fetch.response.max.bytes",
    "zookeeper.session.timeout.ms",
    "inter.broker.protocol.version",
)
#: A setting in the dump of all of them.
_DUMPED: Final = re.compile(PREFIX_PATTERN + r"\t(" + "|".join(re.escape(k) for k in _DUMPED_KEYS) + r") = (.*)$")
#: Lines that may say something (as RE2 and Python read it).
KEPT_PATTERN: Final = (
    HEAD_PATTERN.removesuffix("(.*)$") + f"(?:{texts.RELEVANT})|" + _DUMPED.pattern.removesuffix("(.*)$")
)


@cache
def kept_pattern(zone: ZoneInfo) -> str:
    """Lines that may say something, and all of the hours that clocks of the zone pass twice: which time it is, the step
    back tells, wherever it is."""
    hours = "|".join(hour.replace(" ", "[ T]") for hour in hours_passed_twice(zone))
    return f"{KEPT_PATTERN}|{PREFIX_PATTERN}\\[?(?:{hours}):" if hours else KEPT_PATTERN


#: Settings before a file's first record wait for its time; at most so many.
_WAITING_MAX: Final = 64
#: Requests answered within this of each other stand for a process that was running.
STALL_MS: Final = 1200


class Place(NamedTuple):
    """Where a line stands: the file, and a number that is greater than that of the line before."""

    file: str
    line: int


class Bad(NamedTuple):
    """A line that cannot be used, and why."""

    reason: str
    file: str
    line: str


@dataclass(slots=True)
class LogReader:
    """Reads one file (or a piece of one) of one broker. Feed it the lines, then `finish`."""

    zone: ZoneInfo
    #: whose the file is; None where that is not known: only messages that name their broker can be used.
    broker: int | None = None
    bad: list[Bad] = field(default_factory=list)
    _clock: Clock | None = None
    _record_ts: int | None = None
    _waiting: list[tuple[str, str, Place]] = field(default_factory=list)
    _answered: list[int] | None = None

    def feed(self, line: str, place: Place) -> Sequence[Fact]:
        """The facts of the next line."""
        if self._clock is None:
            self._clock = Clock(self.zone)
        try:
            head = head_of(line, self._clock)
        except BadTime:
            self.bad.append(Bad(BAD_TIME, place.file, line))
            return ()
        if head is None:
            setting = _DUMPED.match(line)
            return () if setting is None else list(self._setting(setting[1], setting[2], place))
        self._record_ts = head.ts
        found: list[Fact] = []
        while self._waiting:
            found += self._setting(*self._waiting.pop(0))
        try:
            if head.text.startswith(requests.BEGINS):
                found += self._request(head, place)
            else:
                found += self._record(head, place)
        except (texts.UnknownText, requests.OldRequest, requests.NamesNoTopic):
            self.bad.append(Bad(TORN if head.logger is None else UNKNOWN_TEXT, place.file, line))
        except requests.TornRequest:
            self.bad.append(Bad(TORN, place.file, line))
        return found

    def finish(self, place: Place) -> Iterator[Fact]:
        """The file (or piece) is over."""
        if self._answered is not None:
            yield self._span(place)

    def _setting(self, key: str, value: str, place: Place) -> Iterator[Fact]:
        if self._record_ts is None:
            if len(self._waiting) < _WAITING_MAX:
                self._waiting.append((key, value, place))
        elif self.broker is None:
            self.bad.append(Bad(UNKNOWN_BROKER, place.file, f"{key} = {value}"))
        else:
            yield Fact(
                self.broker, self._record_ts * 1000, What.CONFIG, key=key, value=value.strip(), **place._asdict()
            )

    def _record(self, head: Head, place: Place) -> Sequence[Fact]:
        speaker, facts = texts.said_by(head.text)
        if not facts:
            return ()
        if head.logger is None:
            # The end of the line is missing: a number at its end may be, too.
            raise texts.UnknownText(head.text)
        broker = speaker if speaker is not None else self.broker
        if broker is None:
            self.bad.append(Bad(UNKNOWN_BROKER, place.file, head.text))
            return ()
        common: Said = {"broker": broker, "at_us": head.ts * 1000, "file": place.file, "line": place.line}
        return [Fact(**{**common, "sub": sub, **one}) for sub, one in enumerate(facts)]  # type: ignore[arg-type]

    def _request(self, head: Head, place: Place) -> Iterator[Fact]:
        if self.broker is None:
            self.bad.append(Bad(UNKNOWN_BROKER, place.file, head.text))
            return
        common: Said = {"broker": self.broker, "file": place.file, "line": place.line}
        for sub, one in enumerate(requests.facts_of_request(head.text, head.ts)):
            yield Fact(**{**common, "sub": sub, **one})  # type: ignore[arg-type]
        if self._answered is None:
            self._answered = [head.ts, head.ts]
        elif head.ts - self._answered[1] > STALL_MS:
            yield self._span(place)
            self._answered = [head.ts, head.ts]
        else:
            self._answered[1] = max(self._answered[1], head.ts)

    def _span(self, place: Place) -> Fact:
        assert self._answered is not None
        return Fact(self.broker, self._answered[0] * 1000, What.ANSWERED, ts=self._answered[1], **place._asdict())
