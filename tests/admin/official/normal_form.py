"""What two clusters cannot have in common is replaced by what it stands for. Pure.

Ids that are drawn, times, ports and folders; a Java stack trace is its first line, and a table of options its name
(every tool words its own help). Blanks are squeezed only in lines where such a replacement changed a column's width.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

#: kwob's controller is a node of its own; Kafka's tools, which do not know that, count it as a broker without disks.
CONTROLLER: Final = 1001
_CONTROLLER_LISTED: Final = re.compile(rf"(?<=\d),{CONTROLLER}\b")
_CONTROLLER_CONFIGS: Final = f"Dynamic configs for broker {CONTROLLER} are:"
#: How often Kafka's client asked in vain, and when; or that its time was up just between two attempts.
_ATTEMPTS: Final = re.compile(
    r"Call\(callName=.*? attempt\(s\)|Timed out waiting for a node assignment\. Call: \w+\(api=METADATA\)"
)
#: Ids of topics and lists in the order of a hash set are drawn.
_TOPIC_ID: Final = re.compile(r"(?<=TopicId: )[\w-]{22}")
_VALID_STATES: Final = re.compile(r"(?<=Valid states are: )[\w, ]+")
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
#: A stack trace; a place in a text follows the message of a cause, too.
_STACK: Final = re.compile(
    r"^(\tat |Caused by: |\t\.\.\. \d+ more|\tSuppressed: |com\.fasterxml\.jackson\.databind\.exc\.)"
)
_EXCEPTION: Final = re.compile(r"^[\w.$]+(Exception|Error)(: .*)?$")
_TABLE_HEAD: Final = re.compile(r"^Option +(\(\* = required\) +)?Description *$")
_LOGGED_AT: Final = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\]")
#: Lines that Kafka's clients log of their own accord: connections, retries, configuration.
_CLIENT_LOG: Final = re.compile(r"^\[<time>\] (WARN|ERROR|INFO) .*\(org\.apache\.kafka\.(clients|common)\..*\)$")
#: The ones that never have an exception: what follows one of them is the tool's own, whenever the tool got to it.
_CONNECTION_LOG: Final = re.compile(r"^\[<time>\] WARN .* Connection to node -?\d+ \(.*")


def normal(text: str, names: Mapping[str, str]) -> list[str]:
    """The lines of a stream. `names` are literal texts and what to put in their place, longest first."""
    lines: list[str] = []
    by_client = in_stack = False
    for line in text.split("\n"):
        if _TABLE_HEAD.match(line):
            lines.append("<options>")
            break
        in_stack = _STACK.match(line) is not None or (in_stack and line.startswith(" at ["))
        if in_stack or line == _CONTROLLER_CONFIGS:
            continue
        line = _LOGGED_AT.sub("[<time>]", line)
        if by_client and _EXCEPTION.match(line):
            by_client = False
            continue
        logged = _CLIENT_LOG.match(line) is not None
        by_client = logged and not _CONNECTION_LOG.match(line)
        if not logged:
            lines.append(_renamed(line, names))
    while lines and not lines[-1]:
        lines.pop()
    return lines


#: The starter of a real Kafka sets it, and so `--describe` shows it there and not here.
_FORMAT_VERSION: Final = re.compile(r"message\.format\.version=2\.6-IV0,?")
#: Which broker coordinates a group depends on where its topic was placed.
_COORDINATOR: Final = re.compile(r"<broker \d> \(\d\)")
#: Characters of a row of `--reset-offsets`.
RESET_ROW: Final = 88
_ISR: Final = re.compile(r"(?<=\tIsr: )[0-9,]*")
_CONFIGS: Final = re.compile(r"^(Topic: .*\tConfigs: )(.*)$")
_ONE_CONFIG: Final = re.compile(r",(?=[a-z.]+=)")


def in_order(tool: str, lines: list[str]) -> list[str]:
    """What Kafka's tools print in the order of a hash table, sorted: topics, their configs, groups."""
    lines = [_sorted_configs(line) for line in lines if not line.startswith("  message.format.version=")]
    if tool == "consumer-groups":
        lines = [_COORDINATOR.sub("<broker> (<id>)", line) for line in lines]
        return _sorted_blocks(part for line in lines for part in _rows(line))
    if tool == "reassign-partitions":
        return _sorted_runs(lines, "Successfully started moving log directory ")
    if tool == "leader-election":
        return sorted(map(_sorted_names, lines))
    if tool == "topics" and lines and lines[0].startswith("\t"):
        return sorted(lines)
    heads = {"topics": "Topic: ", "configs": "Dynamic configs for topic "}
    if (head := heads.get(tool)) is None or not any(line.startswith(head) for line in lines):
        return lines
    blocks: list[list[str]] = [[]]
    for line in lines:
        if line.startswith(head):
            blocks.append([])
        blocks[-1].append(line)
    return blocks[0] + [line for block in sorted(blocks[1:]) for line in block]


def _sorted_blocks(lines: Iterable[str]) -> list[str]:
    """Sorts what stands between headers and empty lines."""
    found: list[str] = []
    block: list[str] = []
    for line in lines:
        if not line or line.startswith(("GROUP ", "TOPIC ")):
            found += [*sorted(block), line]
            block = []
        else:
            block.append(line)
    return found + sorted(block)


def _sorted_runs(lines: Sequence[str], head: str) -> list[str]:
    """Sorts lines with this beginning that follow each other."""
    found: list[str] = []
    for is_run, group in itertools.groupby(lines, key=lambda line: line.startswith(head)):
        block = list(group)
        found += sorted(block) if is_run else block
    return found


def _rows(line: str) -> list[str]:
    """The rows of `--reset-offsets`, which Kafka prints on one line, one by one."""
    if not line.startswith("GROUP ") or "NEW-OFFSET" not in line:
        return [line]
    return [line[at : at + RESET_ROW] for at in range(0, len(line), RESET_ROW)]


def _sorted_names(line: str) -> str:
    """The partitions at the end of a line of kafka-leader-election."""
    head, separator, names = line.partition(" for partitions ")
    return head + separator + ", ".join(sorted(names.split(", ")))


def _sorted_configs(line: str) -> str:
    line = _ISR.sub(lambda isr: ",".join(sorted(isr[0].split(","))), line)
    found = _CONFIGS.match(line)
    if found is None:
        return line
    configs = _ONE_CONFIG.split(_FORMAT_VERSION.sub("", found[2]).removesuffix(","))
    return found[1] + ",".join(sorted(configs))


def _renamed(line: str, names: Mapping[str, str]) -> str:
    line = _ATTEMPTS.sub("<attempts>", _CONTROLLER_LISTED.sub("", line))
    line = _VALID_STATES.sub(lambda found: ", ".join(sorted(found[0].split(", "))), _TOPIC_ID.sub("<id>", line))
    changed = _UUID.sub("<uuid>", line)
    for literal in sorted(names, key=len, reverse=True):
        changed = changed.replace(literal, names[literal])
    return re.sub(r" {2,}", " ", changed) if changed != line and not line.startswith("{") else changed


def normal_znodes(znodes: Mapping[str, Any]) -> dict[str, Any]:
    """Znodes by path, as JSON; topic ids left out, lists of throttled replicas as they are."""
    found = {}
    for path, value in sorted(znodes.items()):
        if isinstance(value, dict):
            value = {k: v for k, v in value.items() if k not in ("topic_id",)}
        found[path] = value
    return found


def joined(lines: Iterable[str]) -> str:
    """For messages."""
    return "\n".join(lines)
