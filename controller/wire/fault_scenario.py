"""A scenario: faults with times relative to its start, as YAML (or JSON, which is YAML too).

    faults:
      - at: 5s                      # how long after the start; default 0
        for: 20s                    # how long it is in force; default: to the scenario's end
        fault: pause_replication
        broker: 3
      - at: 30s
        for: 15s
        fault: stop
        rack: b
    end: 60s                        # default: when the last fault with an end has ended

A time is a number of seconds or has a unit: 250ms, 5s, 2m, 1h. Everything else is a row's columns (see `rows`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from controller.wire.document_errors import NotYaml, compose
from controller.wire.fault_rows import ExpireSession, Fault, FaultError, parse_row

_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TIME: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
_MAX_MS: Final = 7 * 24 * 3_600_000
#: A scenario is typed by a person; more rows than this are a mistake.
MAX_ROWS: Final = 10_000
_TOP: Final = ("faults", "end")
#: What a file for `kwob scenario` may have beside these.
PARTS: Final = ("cluster", "topics", "load", "steps", "expect")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One fault of a scenario: from `at_ms` after the start until `end_ms`."""

    at_ms: int
    end_ms: int
    row: Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Steps in the order of their begin. `length_ms` is when the last one has ended."""

    steps: tuple[Step, ...]
    length_ms: int

    def rows(self, start_ms: int) -> tuple[Fault, ...]:
        """The rows of a run that starts at that time, with their windows."""
        return tuple(
            step.row.model_copy(update={"from_ms": start_ms + step.at_ms, "until_ms": start_ms + step.end_ms})
            for step in self.steps
        )


def parse_time_ms(value: Any, *, max_ms: int = _MAX_MS) -> int:
    """`250ms`, `5s`, `2m`, `1h`, `1d`, or a number of seconds, in ms. Raises ValueError, naming what is allowed."""
    text = str(value).strip()
    found = None if isinstance(value, bool) else _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no time; expected for example 250ms, 5s, 2m, 1h or a number of seconds")
    time_ms = float(found[1]) * _UNITS_MS[found[2] or "s"]
    if time_ms > max_ms:
        raise ValueError(f"{text!r} is more than {max_ms // _UNITS_MS['d']} days")
    return round(time_ms)


def format_time(time_ms: int) -> str:
    """The shortest way to write a time that `parse_time_ms` reads."""
    for unit in ("h", "m", "s"):
        if time_ms and time_ms % _UNITS_MS[unit] == 0:
            return f"{time_ms // _UNITS_MS[unit]}{unit}"
    return f"{time_ms}ms"


def parse(text: str, name: str = "scenario", *, beside: Sequence[str] = ()) -> Scenario:
    """The scenario in a file's text. Where other parts may stand beside the faults, there may be no faults.

    Raises FaultError: file, line, row, what is wrong and what is allowed.
    """
    try:
        root = compose(text, name)
    except NotYaml as error:
        raise FaultError(str(error)) from error
    if root is None:
        raise FaultError(f"{name}: is empty; expected a mapping with `faults`, a list")
    top = _mapping(root, name, "the file")
    for key, (line, _) in top.items():
        if key not in (*_TOP, *beside):
            hint = " (with others, kwob scenario plays it)" if key in PARTS else ""
            raise FaultError(
                f"{name}, line {line}: {key!r} is not known; there are {', '.join((*_TOP, *beside))}{hint}"
            )
    if "faults" not in top and beside:
        return Scenario(steps=(), length_ms=_end(top, name) or 0)
    if "faults" not in top:
        raise FaultError(f"{name}, line 1: `faults` is missing, a list of faults")
    line, rows = top["faults"]
    if not isinstance(rows, yaml.SequenceNode) or not rows.value:
        raise FaultError(f"{name}, line {line}: `faults` must be a list with at least one fault")
    if len(rows.value) > MAX_ROWS:
        raise FaultError(f"{name}, line {line}: {len(rows.value)} faults; allowed are {MAX_ROWS}")
    drafts = [_draft(node, name, number) for number, node in enumerate(rows.value, 1)]
    end_ms = _end(top, name)
    length_ms = end_ms if end_ms is not None else max((d.end_ms or d.at_ms) for d in drafts)
    return Scenario(steps=tuple(_steps(drafts, length_ms, name)), length_ms=length_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    line: int
    number: int
    at_ms: int
    end_ms: int | None
    row: Fault


def _draft(node: Any, name: str, number: int) -> _Draft:
    line = node.start_mark.line + 1
    what = f"{name}, line {line}, fault {number}"
    columns = _mapping(node, name, f"fault {number}")
    values = {key: _value(value, name) for key, (_, value) in columns.items()}
    for key in ("id", "from_ms", "until_ms"):
        if key in values:
            raise FaultError(f"{name}, line {columns[key][0]}, fault {number}: {key}: give `at` and `for` instead")
    at_ms = _time(values.pop("at", 0), f"{what}: at")
    for_ms = _time(values.pop("for"), f"{what}: for") if "for" in values else None
    if for_ms == 0:
        raise FaultError(f"{what}: for: must be longer than 0")
    try:
        row = parse_row({**values, "id": f"s{number}"}, times=("at", "for"))
    except FaultError as error:
        column = str(error).partition(":")[0]
        line = columns[column][0] if column in columns else line
        raise FaultError(f"{name}, line {line}, fault {number}: {error}") from error
    if for_ms is None and isinstance(row, ExpireSession):
        for_ms = 1
    return _Draft(line=line, number=number, at_ms=at_ms, end_ms=None if for_ms is None else at_ms + for_ms, row=row)


def _steps(drafts: list[_Draft], length_ms: int, name: str) -> Iterator[Step]:
    for draft in sorted(drafts, key=lambda d: d.at_ms):
        end_ms = length_ms if draft.end_ms is None else min(draft.end_ms, length_ms)
        if end_ms <= draft.at_ms:
            raise FaultError(
                f"{name}, line {draft.line}, fault {draft.number}: begins at {format_time(draft.at_ms)}, when the "
                f"scenario ends ({format_time(length_ms)}); give it `for`, or the scenario a later `end`"
            )
        yield Step(at_ms=draft.at_ms, end_ms=end_ms, row=draft.row)


def _end(top: dict[str, tuple[int, Any]], name: str) -> int | None:
    if "end" not in top:
        return None
    line, node = top["end"]
    return _time(_value(node, name), f"{name}, line {line}: end")


def _time(value: Any, what: str) -> int:
    try:
        return parse_time_ms(value)
    except ValueError as error:
        raise FaultError(f"{what}: {error}") from error


def _mapping(node: Any, name: str, what: str) -> dict[str, tuple[int, Any]]:
    """key -> (line, node). Raises FaultError for anything but a mapping with different text keys."""
    line = node.start_mark.line + 1
    if not isinstance(node, yaml.MappingNode):
        raise FaultError(f"{name}, line {line}: {what} must be a mapping of names to values")
    found: dict[str, tuple[int, Any]] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        text = str(key.value) if isinstance(key, yaml.ScalarNode) else "?"
        if text in found:
            raise FaultError(f"{name}, line {line}: {text!r} is there twice in {what}")
        found[text] = (line, value)
    return found


def _value(node: Any, name: str) -> Any:
    """A scalar, or a list of scalars; rows have nothing deeper."""
    line = node.start_mark.line + 1
    loader = yaml.SafeLoader("")
    try:
        if isinstance(node, yaml.ScalarNode):
            return loader.construct_object(node)
        if isinstance(node, yaml.SequenceNode) and all(isinstance(item, yaml.ScalarNode) for item in node.value):
            return [loader.construct_object(item) for item in node.value]
    except (yaml.YAMLError, ValueError) as error:
        raise FaultError(f"{name}, line {line}: {error}") from error
    finally:
        loader.dispose()
    raise FaultError(f"{name}, line {line}: expected a value or a list of values")
