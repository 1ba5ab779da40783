"""What a tool prints: Kafka's words for people, or one JSON value for machines, never both.

Standard output carries results, standard error what Kafka's tools write there. Java stack traces are left out: only
their first line, which names the exception, is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from controller.admin.toolkit.machine import Machine


class Console:
    """The two streams of a run. With `as_json`, `line` and `text` are silent and `result` speaks; else the reverse."""

    def __init__(self, machine: Machine, *, as_json: bool = False) -> None:
        self._machine = machine
        self.as_json = as_json

    def line(self, text: str = "") -> None:
        """One line of Kafka's words on standard output."""
        self.text(text + "\n")

    def text(self, text: str) -> None:
        """Kafka's words on standard output, without a line end of their own."""
        if not self.as_json:
            self._machine.out.write(text)
            self._machine.out.flush()

    def result(self, value: Any) -> None:
        """The outcome as JSON on one line, if JSON was asked for."""
        if self.as_json:
            self._machine.out.write(json.dumps(value, ensure_ascii=False) + "\n")
            self._machine.out.flush()

    def complain(self, text: str) -> None:
        """A line on standard error."""
        self._machine.err.write(text + "\n")
        self._machine.err.flush()

    def log(self, level: str, text: str, logger: str) -> None:
        """A line of Kafka's tool log on standard error: `[<timestamp>] <LEVEL> <message> (<logger>)`."""
        now = datetime.fromtimestamp(self._machine.clock.now_ms() / 1000, UTC).astimezone()
        self.complain(f"[{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03}] {level} {text} ({logger})")


def commas(items: Iterable[object], separator: str = ",") -> str:
    """The items as text with commas between them, as Kafka's tools list brokers and partitions."""
    return separator.join(map(str, items))


def compact(value: Any) -> str:
    """JSON as Kafka's tools print it: no blanks, keys in the given order."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
