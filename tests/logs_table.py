"""docs/logs.md: every log event with its levels, its keys and its meaning, read from the code that logs it.

python -m tests.logs_table > docs/logs.md
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from controller.wire import log_events
from controller.wire.log_meanings import MEANINGS

ROOT: Final = Path(__file__).resolve().parents[1]
LEVELS: Final = ("debug", "info", "warning", "error")
EVENTS: Final = {name: value for name, value in vars(log_events).items() if name.isupper() and "." in str(value)}
HEAD: Final = """\
# Log events

Every program writes JSON lines: `ts` (ISO 8601, UTC), `level`, `event`, `program`, then the keys of the event, which
have Kafka's names. An event's name never changes with what it is about, so that it can be searched for; `reason` says
why something was not done. `kwob logs` merges, filters and follows them ([watching](watching.md)); `--log-level debug`
of `kwob up`, `kwob controller run` and `kwob broker run` has more. Brokers bind `broker_id` to every line, controllers
`controller` and `controller_epoch`. A key that stands in few of an event's lines is among its keys, too.

This page is made from the code: `make docs`.

| event | level | keys | meaning |
| --- | --- | --- | --- |
"""


@dataclass(slots=True)
class Usage:
    """What the code gives an event."""

    levels: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)


@cache
def usages() -> dict[str, Usage]:
    """event -> where it is logged: a call of a logger, or an effect Log of the core."""
    found: defaultdict[str, Usage] = defaultdict(Usage)
    for package in ("controller", "broker_sim"):
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)) if "ev." in text else ():
                if isinstance(node, ast.Call):
                    for name in _events(node):
                        _take(node, found[EVENTS[name]])
    return dict(found)


def _events(call: ast.Call) -> Iterator[str]:
    """The names of the events that are the first argument, also of `ev.A if ... else ev.B`."""
    for part in ast.walk(call.args[0]) if call.args else ():
        is_event = isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "ev"
        if is_event and part.attr in EVENTS:  # type: ignore[attr-defined]
            yield part.attr  # type: ignore[attr-defined]


def _take(call: ast.Call, usage: Usage) -> None:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name.startswith("wait_for"):
        return  # who reads a log
    if name in LEVELS:
        usage.levels.add(name)
    elif name == "Log":
        given = [part.value for part in call.args[2:3] if isinstance(part, ast.Constant)]
        usage.levels.add(str(given[0]) if given else "info")
    for keyword in call.keywords:
        if keyword.arg is not None and keyword.arg not in ("exc_info", "fields", "level"):
            usage.keys.add(keyword.arg)
    for part in call.args[1:]:
        if isinstance(part, ast.Dict):
            usage.keys |= {str(key.value) for key in part.keys if isinstance(key, ast.Constant)}


def page() -> str:
    """The whole page."""
    found = usages()
    rows = []
    for event in EVENTS.values():
        usage = found.get(event, Usage())
        levels = ", ".join(level for level in LEVELS if level in usage.levels) or "info"
        keys = ", ".join(f"`{key}`" for key in sorted(usage.keys))
        rows.append(f"| `{event}` | {levels} | {keys} | {MEANINGS.get(event, '')} |\n")
    return HEAD + "".join(rows)


if __name__ == "__main__":
    print(page(), end="")
