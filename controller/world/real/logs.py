"""Where log lines go: JSON lines in files and services, readable text on a terminal.

A line is `ts` (ISO 8601, UTC, milliseconds), `level`, `event`, `program`, then the keys that the caller gave.
Each line is written whole and flushed, so that a killed process loses none that it wrote. One that cannot be written,
since the disk is full or nobody reads the pipe, is lost, and costs nothing else (as of Kafka's log4j).
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import MutableMapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TextIO

import structlog

from controller.wire import log_events as ev

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
#: A broker with many partitions writes many lines at once; the file is line-buffered so that a kill loses none.
_LINE_BUFFERED: Final = 1
_FIRST_KEYS: Final = ("ts", "level", "event", "program")
_ENCODE: Final = json.JSONEncoder(separators=(", ", ": "), ensure_ascii=False, default=str).encode


def configure(program: str, *, json_file: Path | None = None, level: str = "info") -> TextIO:
    """Sets structlog up for this process: call once, at its start.

    Lines go to `json_file` (appended; its folder is made) or else to stderr: there readable when it is a terminal,
    else as JSON. `program` is in every line. What kazoo and others say through `logging` from WARNING on goes the
    same way, as the event `library.warned`. Returns the stream that the lines go to.

    Raises: ValueError for an unknown level (debug, info, warning, error), OSError when the file cannot be opened.
    """
    if level not in _LEVELS:
        raise ValueError(f"log level {level!r}: allowed are {', '.join(_LEVELS)}")
    readable = json_file is None and sys.stderr.isatty()
    stream = _open(json_file)
    renderer = structlog.dev.ConsoleRenderer() if readable else render_json
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _named(program),
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            _timestamp,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=lambda *_: _Lines(stream),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, handlers=[_LibraryHandler()], force=True)
    return stream


class _Lines(structlog.WriteLogger):
    """Writes lines. Who logs has something to do that is worth more than a line."""

    def msg(self, message: str) -> None:
        """Writes a line, if that can be done."""
        with contextlib.suppress(OSError):
            super().msg(message)

    log = debug = info = warn = warning = msg
    fatal = failure = err = error = critical = exception = msg


def render_json(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
    """One line of JSON, `ts`, `level`, `event` and `program` first; values that JSON does not know as text."""
    first = {key: event.pop(key) for key in _FIRST_KEYS if key in event}
    return _ENCODE({**first, **event})


def _open(json_file: Path | None) -> TextIO:
    if json_file is None:
        return sys.stderr
    json_file.parent.mkdir(parents=True, exist_ok=True)
    return json_file.open("a", encoding="utf-8", buffering=_LINE_BUFFERED)


def _named(program: str) -> structlog.types.Processor:
    def add_program(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event["program"] = program
        return event

    return add_program


def _timestamp(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    event["ts"] = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return event


class _LibraryHandler(logging.Handler):
    """Passes records of `logging` on as events."""

    def emit(self, record: logging.LogRecord) -> None:
        """One event per record; never raises (logging's own rule)."""
        log = structlog.get_logger()
        say = log.error if record.levelno >= logging.ERROR else log.warning
        say(ev.LIBRARY_WARNED, library=record.name, message=record.getMessage())
